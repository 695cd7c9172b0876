"""The memory ledger by hand on a two-layer model, what measures beside it, and the page of 4.3d."""

import sys

import torch
from torch import nn

from experiments.lab4_memory import design
from experiments.lab4_memory.footprint import live_bytes
from experiments.lab4_memory.ledger import Ledger, ledger
from madl.logbook.records import Records
from madl.running.project import Project
from tests.synthetic import kept_of, published

MXINT8 = {"bits": 8, "scale_bits": 8, "block": 32}


def test_a_ledger_and_live_bytes_by_hand():
    by_hand = Ledger(
        num_packed=240 + 18,
        num_parameters=400 + 240 + 6 + 18,
        dense_bytes=4 * (240 + 18),
        packed_bytes=(240 + 6 * 2) + (18 + 3),  # rows of 40 take two scales, the last one short
        kept_bytes=4 * (400 + 6),
    )
    model = nn.Sequential(nn.Embedding(10, 40), nn.Linear(40, 6), nn.Linear(6, 3, bias=False))
    found = ledger(model, **MXINT8)
    assert found == by_hand
    assert found.before_bytes == 4 * 664
    assert found.after_bytes == 252 + 21 + 1624
    assert found.saved == 1 - 1897 / 2656
    with torch.device("meta"):  # where shared weights count once, too
        tied = nn.Sequential(nn.Linear(32, 32, bias=False), nn.LayerNorm(32), nn.LayerNorm(32))
    tied[2].weight = tied[1].weight
    assert ledger(tied, **MXINT8).kept_bytes == 4 * 64 + 4 * 32

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


PAGE = Project().load("lab4_memory")
MODULE = sys.modules["experiments.lab4_memory.page"]


def test_the_xlarge_model_is_counted_from_its_configuration_and_replayed_as_published():
    cases = [{"what": "ledger", "of": "DeBERTa-xlarge"}, {"what": "replay", "tokens": 10}]
    every = [kept_of("lab4_memory", PAGE.execute(params, None), **params) for params in cases]
    values = every[0].values
    assert values["ledger"]["num_packed"] == 48 * 14 * 2**20 + 2**20 + 6 * 1024
    assert values["ledger"]["num_parameters"] == 758_859_782
    assert values["largest_weight"] == 4 * 2**20
    assert round(MODULE.ledger_of(Records(every), design.LARGE).before_bytes / 2**20) == 2895
    assert every[1].values == {
        "FP32": {"allocated_bytes": 3047392256, "requested_bytes": 3047389080},
        "MXINT8": {"allocated_bytes": 1027684864, "requested_bytes": 977350664},
        "MXINT8, packed before": {"allocated_bytes": 987838976, "requested_bytes": 977350664},
    }


def test_the_parts_of_a_model_add_up_to_its_peak():
    ran = Records(record for record in published("lab4_memory") if record.status == "ok")
    for kind in design.REPORTED_MIB:
        parts = MODULE.parts_of(ran, "DeBERTa-xlarge", kind)
        held = sum(parts.values()) + MODULE.spare(ran, kind)
        assert held == MODULE.peaks(ran, kind)["allocated_bytes"]
        assert parts["workspaces"] == 9.125 * 2**20
        assert 2 * 2**20 < parts["activations"] < 3 * 2**20
    assert parts["written-out weight"] == 6 * 4 * 2**20
    small = MODULE.parts_of(ran, "default", "MXINT8")
    assert small["workspaces"] == 0
    (held,) = {
        one.values["written_out"]["live_bytes"]
        for one in ran.where(what="resident", variant="MXINT8")
    }
    assert small["activations"] + small["written-out weight"] == held
