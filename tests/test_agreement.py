"""Other libraries' results beside ours: what is drawn, what counts as a difference, and why."""

import math

import pytest
import torch

from experiments.formats import agreement, design
from experiments.formats.agreement import Peer
from madl.formats.blocked import MXFloat, RealScale
from madl.formats.minifloat import Minifloat

FP8 = Minifloat(width=8, exponent_width=4, specials="nan")
MX = MXFloat(exponent_width=2, mantissa_width=1)
RCEIL = MXFloat(exponent_width=2, mantissa_width=1, rule="rceil")


def test_what_is_drawn_has_all_that_can_go_wrong():
    x = agreement.drawn(50_000, seed=0)
    assert x.numel() >= 50_000
    assert torch.equal(x.nan_to_num(7.0), agreement.drawn(50_000, seed=0).nan_to_num(7.0))
    assert x.isnan().any()
    assert x.isposinf().any()
    assert x.isneginf().any()
    zeros = x[x == 0]
    assert zeros.signbit().any()
    assert not zeros.signbit().all()
    exponents = x[x.isfinite() & (x != 0)].abs().double().log2()
    assert exponents.min() < -140
    assert exponents.max() > 126
    near = ((exponents > -36) & (exponents < 33)).double().mean()
    assert 0.4 < near < 0.8
    blocks = x.view(-1, agreement.BLOCK)
    assert (blocks == 0).all(1).any()


@pytest.mark.parametrize(
    ("ours", "x", "theirs", "reason"),
    [
        (FP8, 1e6, math.inf, "values beyond the range"),
        (FP8, math.inf, math.nan, "NaN and infinity"),
        (FP8, -1e-9, 0.0, "signs of zero"),
        (FP8, 1.0625, 1.125, "ties"),
        (FP8, 1.05, 1.125, "other values"),
        (MX, 5e-39, 0.0, "blocks at an end of float32"),
        (RCEIL, 6 * 2.0**66 * (1 + 2**-20), 5 * 2.0**66, "rounded logarithms"),
        (RCEIL, 6 * 2.0**66 * (1 + 2**-10), 5 * 2.0**66, "other values"),
    ],
)
def test_a_difference_is_told_by_what_is_special_about_the_value(ours, x, theirs, reason):
    values = torch.zeros(1, agreement.COLUMNS)
    values[0, 5] = x

    def other(part):
        out = ours.quantize(part)
        out[0, 5] = theirs
        return out

    found = agreement.compared(values, Peer("", ours, other))
    assert (found["compared"], found["differing"]) == (agreement.COLUMNS, 1)
    assert found["why"] == {reason: 1}
    assert len(found["examples"][reason]) == 3
    if ours is FP8:
        assert found["nonzero"] == 1 or reason == "signs of zero"
    same = agreement.compared(values, Peer("", ours, ours.quantize))
    assert (same["differing"], same["why"]) == (0, {})


def test_a_scale_of_the_whole_tensor_meets_values_that_it_can_hold():
    nvfp4 = RealScale(element_name="e2m1", scale="e4m3", block=16)
    peer = Peer("", nvfp4, nvfp4.quantize, finite=True)
    found = agreement.compared(agreement.drawn(100_000, seed=0), peer)
    assert found["nonzero"] > 0.3 * found["compared"]
    assert found["differing"] == 0


@pytest.mark.parametrize("library", ["torch", "ml_dtypes"])
def test_casts_differ_beyond_the_range_and_where_a_format_has_no_such_value_alone(library):
    found = agreement.agreement({"library": library, "values": 100_000, "seed": 0})
    assert found["version"]
    assert {row["format"] for row in found["rows"]} >= {"minifloat(8,4,nan)", "minifloat(8,5,ieee)"}
    reasons = {reason for row in found["rows"] for reason in row["why"]}
    ends = {"blocks at an end of float32"}  # torch's fake quantization: a row of tiny values
    assert reasons <= {"values beyond the range", "NaN and infinity", *ends}
    assert agreement.LIBRARIES.keys() == design.LIBRARIES.keys()
