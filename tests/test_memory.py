"""The memory ledger, by hand on a two-layer model, and what measures beside it."""

import pytest
import torch
from torch import nn

from madl.machine.memory import Ledger, ledger, live_bytes, peak_resident_bytes, resident_bytes

MXINT8 = {"bits": 8, "scale_bits": 8, "block": 32}


def model() -> nn.Module:
    return nn.Sequential(nn.Embedding(10, 40), nn.Linear(40, 6), nn.Linear(6, 3, bias=False))


def test_a_two_layer_model_by_hand():
    by_hand = Ledger(
        num_packed=240 + 18,
        num_parameters=400 + 240 + 6 + 18,
        dense_bytes=4 * (240 + 18),
        packed_bytes=(240 + 6 * 2) + (18 + 3),  # rows of 40 take two scales, the last one short
        kept_bytes=4 * (400 + 6),
        activation_bytes=1000,
        transient_bytes=2 * 240,
    )
    found = ledger(model(), **MXINT8, activation_bytes=1000, transient_bytes_per_weight=2)
    assert found == by_hand
    assert found.before_bytes == 4 * 664 + 1000
    assert found.after_bytes == 252 + 21 + 1624 + 1000 + 480
    assert found.saved == 1 - 3377 / 3656


def test_excepted_layers_are_kept():
    found = ledger(model(), **MXINT8, except_layers=["2"])
    assert (found.num_packed, found.kept_bytes) == (240, 4 * (400 + 6 + 18))
    with pytest.raises(ValueError, match="no Linear layer 3; layers: 1, 2"):
        ledger(model(), **MXINT8, except_layers=["3"])


def test_shared_weights_and_the_meta_device_count_once():
    with torch.device("meta"):
        tied = nn.Sequential(nn.Linear(32, 32, bias=False), nn.LayerNorm(32))
    tied.append(nn.LayerNorm(32))
    tied[2].weight = tied[1].weight
    assert ledger(tied, **MXINT8).kept_bytes == 4 * 64 + 4 * 32


def test_live_bytes_by_hand():
    def chain() -> None:
        x = torch.zeros(1000)  # 4000 bytes
        y = x + 1  # 8000 alive
        del x
        z = (y + 1).view(10, 100)  # 8000 alive: a view is no memory
        del y
        z.add_(1)  # in place: nothing new

    assert live_bytes(chain) == 8000
    meta = torch.zeros(50, device="meta")
    assert live_bytes(lambda: torch.cat([meta, meta]) * 2) == 800
    assert live_bytes(lambda: None) == 0


@pytest.mark.skipif(resident_bytes() is None, reason="no /proc here")
def test_a_large_tensor_shows_in_resident_memory():
    size = 64 << 20
    before = resident_bytes()
    kept = torch.ones(size // 4)
    assert abs(resident_bytes() - before - size) < 4 << 20
    peak = peak_resident_bytes(lambda: torch.ones(size // 4).sum())
    if peak is not None:
        assert abs(peak - size) < 4 << 20
    del kept
