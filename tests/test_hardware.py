"""The dot-product units: described, checked against the formats, simulated, counted."""

import json
from collections import Counter
from dataclasses import replace
from fractions import Fraction
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from experiments.lab4_hardware import (
    codes,
    netlist,
    page,
    records,
    reference,
    simulation,
    study,
    synthesis,
    tools,
    units,
)
from experiments.lab4_hardware.dyadic import NAN, to_fp32
from experiments.lab4_hardware.operands import Float, Integer, Operand, Signs
from experiments.lab4_hardware.reference import expected
from experiments.lab4_hardware.stimuli import Piece
from madl.errors import MadlError
from madl.formats import presets
from madl.logbook.experiment import PROFILES
from madl.logbook.records import Case, Record, decode, encode
from madl.running.project import Project
from tests.conftest import a_record

needs_iverilog = pytest.mark.skipif(tools.iverilog() is None, reason=tools.NO_IVERILOG)
needs_yosys = pytest.mark.skipif(tools.yosys() is None, reason=tools.NO_YOSYS)

UNITS = [
    units.fixed(lanes=3, width=2),
    units.fixed(lanes=8, width=8),
    units.mxint(lanes=8, width=8),
    units.mxint(lanes=8, width=8, block=2),
    units.mxint(lanes=5, width=4, block=64),
    units.mxint_quantizing(lanes=8, width=8),
    units.mxint_quantizing(lanes=8, width=5, block=2),
    units.block_float(lanes=8, mantissa=7, block=4),
    units.block_float(lanes=4, mantissa=1, block=4),
    units.mxint_bf16(lanes=8, width=8),
    units.mxint_bf16(lanes=8, width=4, block=4),
    units.floating(lanes=8, exponent=8, mantissa=7),
    units.floating(lanes=8, exponent=4, mantissa=3, specials="nan"),
    units.floating(lanes=3, exponent=2, mantissa=1, specials="none"),
    units.floating(lanes=8, exponent=3, mantissa=2, specials="none"),
    units.floating(lanes=8, exponent=5, mantissa=2),
    units.mxfloat(lanes=8, exponent=4, mantissa=3),
    units.mxfloat(lanes=8, exponent=2, mantissa=1, block=4),
    units.mxfloat(lanes=8, exponent=2, mantissa=3, block=2),
    units.mxfloat(lanes=8, exponent=5, mantissa=2),
    units.denormal(lanes=8, exponent=2, mantissa=1),
    units.denormal(lanes=5, exponent=4, mantissa=3),
    units.block_minifloat(lanes=8, exponent=2, mantissa=1, block=4),
    units.block_minifloat(lanes=8, exponent=4, mantissa=3, block=4),
    units.log(lanes=8, width=4),
    units.log(lanes=3, width=8),
    units.block_log(lanes=8, width=4, block=4),
    units.block_log(lanes=8, width=8, block=8),
    units.scaled(lanes=8, width=4),
    units.binary(lanes=1),
    units.binary(lanes=13),
    units.scaled_binary(lanes=8),
    units.residual_sign(lanes=8, levels=2),
    units.residual_sign(lanes=3, levels=3),
    units.ternary(lanes=1),
    units.ternary(lanes=13),
    units.float_adders(lanes=7, mantissa=7),
    units.float_adders(lanes=8, mantissa=23),
]
every_unit = pytest.mark.parametrize("unit", UNITS, ids=lambda u: f"{u.name}/{u.lanes}/{u.block}")


def bf16(*values: float) -> list[int]:
    codes = torch.tensor(values).bfloat16().view(torch.int16)
    return [int(code) & 0xFFFF for code in codes]


def fp32(value: float) -> int:
    return int(np.float32(value).view(np.uint32))


# ---- simulation ---------------------------------------------------------------------------------


@needs_iverilog
@every_unit
def test_every_result_has_the_bits_of_the_definition_and_lies_within_the_bound(unit):
    verdict = study.verify(unit, num_random=20, seed=3)
    assert verdict["mismatches"] == 0, verdict["first_mismatch"]
    assert verdict["beyond_bound"] == 0
    assert verdict["from_format"] == 20
    assert verdict["finite"] >= 40


@needs_iverilog
def test_one_mxint8_lane_multiplies():
    unit = units.mxint(lanes=1, width=8)
    vectors = [
        {"a": [0x60], "b": [0x40], "a_scale": [127], "b_scale": [128]},  # 1.5 · 1 · 2
        {"a": [0xA0], "b": [0x20], "a_scale": [127], "b_scale": [127]},  # -1.5 · 0.5
        {"a": [0x80], "b": [0x80], "a_scale": [127], "b_scale": [127]},  # -2 · -2
        {"a": [0x40], "b": [0x40], "a_scale": [255], "b_scale": [127]},  # a scale that is NaN
        {"a": [0x40], "b": [0x40], "a_scale": [254], "b_scale": [254]},  # 2^254
        {"a": [0x40], "b": [0x40], "a_scale": [0], "b_scale": [0]},  # 2^-254
    ]
    wanted = [fp32(3.0), fp32(-0.75), fp32(4.0), NAN, NAN, 0]
    assert simulation.simulate(unit, vectors) == wanted


@needs_iverilog
def test_one_fixed_lane_multiplies_all_pairs():
    unit = units.fixed(lanes=1, width=4)
    pairs = [(a, b) for a in range(-8, 8) for b in range(-8, 8)]
    vectors = [{"a": [a & 15], "b": [b & 15]} for a, b in pairs]
    assert simulation.simulate(unit, vectors) == [a * b & 255 for a, b in pairs]


@needs_iverilog
def test_the_signed_multiplier_is_right_for_all_pairs_of_eight_bits():
    unit = units.fixed(lanes=1, width=8)
    pairs = [(a, b) for a in range(-128, 128) for b in range(-128, 128)]
    vectors = [{"a": [a & 255], "b": [b & 255]} for a, b in pairs]
    assert simulation.simulate(unit, vectors) == [a * b & 0xFFFF for a, b in pairs]


@needs_iverilog
def test_a_zero_beside_a_huge_number_does_not_push_the_others_out():
    """0 · 2^100 has no place in the alignment of 2^-20 · 2^-20."""
    unit = units.floating(lanes=2, exponent=8, mantissa=7)
    vector = {"a": bf16(0.0, 2.0**-20), "b": bf16(2.0**100, 2.0**-20)}
    assert simulation.simulate(unit, [vector]) == [fp32(2.0**-40)]


@needs_iverilog
def test_fp32_adders_agree_with_numpy():
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((2, 200, 2)).astype(np.float32)
    unit = units.float_adders(lanes=2, mantissa=23)
    vectors = [
        {"a": x.view(np.uint32).tolist(), "b": y.view(np.uint32).tolist()} for x, y in zip(a, b)
    ]
    products = a * b
    wanted = (products[:, 0] + products[:, 1]).view(np.uint32).tolist()
    assert simulation.simulate(unit, vectors) == wanted


@needs_iverilog
def test_signs_are_counted_in_every_combination():
    """(±1)·(±1) + (±1)·(±1), and a level of one side against each of the other's."""
    vectors = [{"a": [a & 1, a >> 1], "b": [b & 1, b >> 1]} for a in range(4) for b in range(4)]
    wanted = [sum((1 - 2 * x) * (1 - 2 * y) for x, y in zip(v["a"], v["b"])) & 7 for v in vectors]
    assert simulation.simulate(units.binary(lanes=2), vectors) == wanted
    unit = units.residual_sign(lanes=1, levels=2)
    # levels -1 and 1 of side a, 1 and -1 of side b: the pairs' results are -1, 1, 1, -1
    assert simulation.simulate(unit, [{"a": [0b01], "b": [0b10]}]) == [0b11_01_01_11]


@needs_iverilog
def test_ternary_numbers_are_masked():
    """Codes {negative, nonzero}: zero has two."""
    value = {0b00: 0, 0b01: 1, 0b10: 0, 0b11: -1}
    vectors = [{"a": [a, c], "b": [b, 1]} for a in value for b in value for c in value]
    wanted = [value[v["a"][0]] * value[v["b"][0]] + value[v["a"][1]] & 7 for v in vectors]
    assert simulation.simulate(units.ternary(lanes=2), vectors) == wanted


@needs_iverilog
def test_powers_of_two_by_hand():
    """log(4) with bias 3 counts 2^-4 in its results: 2·4 - 0.25·0.5 + 0·16 = 7.875."""
    unit = units.log(lanes=3, width=4)
    two, four, quarter, half = 4, 5, 1, 2
    vector = {"a": [two, 8 | quarter, 0], "b": [four, half, 7]}
    (result,) = simulation.simulate(unit, [vector])
    assert study.value_of(unit, result) == Fraction(63, 8)
    assert result == 7.875 * 16
    assert unit.result_bits == 2 + 12 + 2


@needs_iverilog
@pytest.mark.parametrize("terms", [1, 2, 3, 4, 7, 8, 31, 32, 33])
def test_ones_are_counted(terms):
    unit = units.binary(lanes=terms)
    vectors = [{"a": [1] * ones + [0] * (terms - ones), "b": [0] * terms} for ones in range(terms)]
    mask = (1 << unit.result_bits) - 1
    wanted = [(terms - 2 * ones) & mask for ones in range(terms)]
    assert simulation.simulate(unit, vectors) == wanted


@needs_iverilog
def test_a_wrong_unit_is_caught(monkeypatch, tmp_path):
    for source in units.SOURCES.glob("*.v"):
        text = source.read_text()
        if source.name == "adder_tree.v":
            assert "left + right" in text
            text = text.replace("left + right", "left | right")
        (tmp_path / source.name).write_text(text)
    monkeypatch.setattr(simulation, "SOURCES", tmp_path)
    verdict = study.verify(units.mxint(lanes=4, width=8), num_random=20, seed=0)
    assert verdict["mismatches"] > 10
    assert verdict["beyond_bound"] > 10
    assert "expected" in verdict["first_mismatch"]


@needs_iverilog
def test_broken_verilog_is_one_clear_line(monkeypatch, tmp_path):
    (tmp_path / "dot_fixed.v").write_text("module dot_fixed; endmodul")
    monkeypatch.setattr(simulation, "SOURCES", tmp_path)
    with pytest.raises(MadlError, match="iverilog failed: "):
        simulation.simulate(units.fixed(lanes=1, width=4), [{"a": [1], "b": [1]}])


@needs_iverilog
def test_the_quantizer_rounds_ties_to_even_saturates_and_knows_subnormals():
    """Under a scale of one an MXINT8 code counts 64ths; 1.0078125 = 64.5 and 1.0234375 = 65.5."""
    unit = units.mxint_quantizing(lanes=8, width=8)
    values = (1.0078125, 1.0234375, 1.9921875, -1.9921875, 2.0**-7, 3 * 2.0**-8, -(2.0**-133), 1.0)
    vector = {"a": [0x40] * 8, "b": bf16(*values), "a_scale": [127]}
    inner = unit.inner
    assert inner is not None
    made = reference.quantized(inner, vector)
    assert made["b"] == [64, 66, 127, 256 - 127, 0, 1, 0, 64]
    assert made["b_scale"] == [127]
    assert simulation.simulate(unit, [vector]) == [fp32((64 + 66 + 1 + 64) / 64)]
    tiny = {"a": [0x40] * 8, "b": bf16(*[2.0**-127, 2.0**-128] * 4), "a_scale": [254]}
    assert reference.quantized(inner, tiny)["b"] == [64, 32] * 4
    assert reference.quantized(inner, tiny)["b_scale"] == [0]
    assert simulation.simulate(unit, [tiny]) == [fp32(6.0)]
    infinite = {**vector, "b": bf16(float("inf"), *values[1:])}
    assert simulation.simulate(unit, [infinite]) == [NAN]


@needs_iverilog
def test_the_error_of_a_unit_is_that_of_its_results_for_unrounded_rows():
    """fixed(8,4) makes 1.03 one, and nothing of 0.01: signal 1.03², error 0.03² in decibels."""
    a, b = torch.tensor([1.03, 0.01]), torch.tensor([1.0, 0.0])
    unit = units.fixed(lanes=2, width=8)
    found = study.verify(unit, num_random=1, seed=0, rows=[Piece(a=a, b=b, start=0)])
    assert found["rows"] == 1
    assert found["error_db"] == pytest.approx(20 * np.log10(1.03 / 0.03), abs=0.01)


@pytest.mark.parametrize(
    ("vectors", "complaint"),
    [
        ([], "at least one vector"),
        ([{"a": [1], "b": [1, 2]}], "port a takes 2 codes, got 1"),
        ([{"a": [1, 16], "b": [1, 2]}], "port a takes codes of 4 bits, got 16"),
    ],
)
@needs_iverilog
def test_bad_vectors_are_refused(vectors, complaint):
    with pytest.raises(ValueError, match=complaint):
        simulation.simulate(units.fixed(lanes=2, width=4), vectors)


def test_an_undefined_result_is_an_error():
    with pytest.raises(MadlError, match="undefined result"):
        simulation._results(["00xx"], 1)
    with pytest.raises(MadlError, match="1 results for 2 vectors"):
        simulation._results(["00ff"], 2)


def test_without_iverilog_the_reason_is_clear(monkeypatch):
    monkeypatch.setattr(tools.shutil, "which", lambda name: None)
    assert tools.iverilog() is None
    with pytest.raises(MadlError, match="no iverilog here: install"):
        simulation.simulate(units.fixed(lanes=1, width=4), [{"a": [1], "b": [1]}])


# ---- the definition -----------------------------------------------------------------------------


def test_the_definition_of_an_aligned_sum_by_hand():
    """1 + 2^-30 loses the small term: the window has 24 bits. -1 - 2^-30 goes one step down."""
    unit = units.floating(lanes=2, exponent=8, mantissa=7, window=24)
    small = 2.0**-15
    up = expected(unit, {"a": bf16(1, small), "b": bf16(1, small)})
    down = expected(unit, {"a": bf16(-1, -small), "b": bf16(1, small)})
    assert up.code == fp32(1.0)
    assert down.code == fp32(-1 - 2.0**-22)
    assert up.exact == 1 + Fraction(1, 2**30)
    assert up.bound >= 2 * Fraction(1, 2**22)


def test_rounding_to_fp32_agrees_with_numpy():
    rng = np.random.default_rng(1)
    for significand in [0, 1, (1 << 25) - 1, 3 << 24, *rng.integers(-(2**40), 2**40, 500).tolist()]:
        for exponent in (-60, -3, 0, 11):
            assert to_fp32(significand, exponent) == fp32(significand * 2.0**exponent)
    assert to_fp32(1, 200) == NAN
    assert to_fp32(-1, -200) == 0


FORMATTED = [(u, side) for u in UNITS for side in (u.a, u.b) if side.element.bits < 32]


@pytest.mark.parametrize(("unit", "side"), FORMATTED, ids=lambda v: getattr(v, "name", ""))
def test_codes_mean_the_values_of_the_formats(unit, side):
    made = codes.number_format(side, unit.block)
    x = torch.randn(unit.lanes * 4, generator=torch.Generator().manual_seed(2)) * 3
    part = slice(unit.lanes, 2 * unit.lanes)
    found = codes.coded(side, unit.block, x, part)
    values = [significand * 2.0**exponent for significand, exponent in found.values]
    assert torch.equal(torch.tensor(values, dtype=torch.float32), made.quantize(x)[part])
    if side.scale != "row":
        assert codes.values_of(side, found.codes, found.scales, unit.block) is not None
        again = codes.values_of(side, found.codes, found.scales, unit.block)
        assert [s * 2.0**e for s, e in again] == values


def test_codes_of_row_scales_by_hand():
    """Mean magnitude 2 and signs; what is left over is ±1, and its mean 1."""
    row = torch.tensor([3.0, -1.0, -3.0, 1.0])
    found = codes.coded(Operand(element=Signs(levels=2), scale="row"), 4, row, slice(1, 4))
    assert found.codes == [0b01, 0b11, 0b10]  # -2 + 1, -2 - 1, 2 - 1
    assert [s * 2.0**e for s, e in found.levels] == [2.0, 1.0]
    assert [s * 2.0**e for s, e in found.values] == [-1.0, -3.0, 1.0]
    row = torch.tensor([7.0, -7.0, 2.0, 0.0]) / 2
    found = codes.coded(Operand(element=Integer(width=4), scale="row"), 4, row, slice(0, 4))
    assert found.codes == [7, 16 - 7, 2, 0]  # times 3.5 / 7
    assert [s * 2.0**e for s, e in found.levels] == [0.5]


def test_the_scale_is_that_of_the_whole_row_and_not_of_the_piece():
    row = torch.tensor([0.5, -0.25, 7.0, 0.0])
    found = codes.coded(Operand(element=Integer(width=4), scale="row"), 2, row, slice(0, 2))
    assert found.codes == [0, 0]  # under a scale of one; alone 0.5 would be 7


@pytest.mark.parametrize(
    "element",
    [
        Float(exponent=4, mantissa=3, specials="nan"),
        Float(exponent=5, mantissa=2),
        Float(exponent=2, mantissa=1, specials="none"),
        Float(exponent=3, mantissa=0, specials="none"),
        Float(exponent=7, mantissa=0, specials="none"),
        Float(exponent=2, mantissa=1, specials="none", has_implicit_one=False),
        Float(exponent=4, mantissa=3, specials="none", has_implicit_one=False),
        Integer(width=8),
        Signs(levels=1),
    ],
    ids=str,
)
def test_every_code_is_a_value_of_its_format_and_none_is_missing(element):
    side = Operand(element=element)
    decoded = [codes.values_of(side, [code], (), 1) for code in range(1 << element.bits)]
    values = {s * 2.0**e for ((s, e),) in filter(None, decoded)}
    assert sorted(values) == codes.number_format(side, 1).values().tolist()


def test_the_whole_range_of_a_block_minifloats_bias():
    """A bias in two's complement makes values smaller: 2^128 to 2^-127."""
    side = Operand(element=Float(exponent=2, mantissa=1, specials="none", own_bias=0), scale="bias")
    assert [codes.scale_of(side, code) for code in (0, 1, 127, 128, 255)] == [0, -1, -127, 128, 1]


# ---- parameters ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("params", "complaint"),
    [
        ({"unit": "mxint", "lanes": 0, "width": 8}, "lanes is 1 … 1024, got 0"),
        ({"unit": "fixed", "lanes": 4, "width": 0}, "width is 2 … 16, got 0"),
        ({"unit": "mxint", "lanes": 4, "width": 17}, "width is 2 … 16, got 17"),
        ({"unit": "mxint", "lanes": 32, "width": 8, "block": 0}, "block is 1 … 1024, got 0"),
        ({"unit": "mxint", "lanes": 32, "width": 8, "block": 5}, "multiple of the block, got 32"),
        ({"unit": "block_float", "lanes": 4, "mantissa": 0}, "mantissa is 1 … 16, got 0"),
        ({"unit": "float", "lanes": 4, "exponent": 1, "mantissa": 3}, "exponent is 2 … 8, got 1"),
        ({"unit": "float_adders", "lanes": 4, "mantissa": 24}, "mantissa is 1 … 23, got 24"),
        ({"unit": "log", "lanes": 4, "width": 2}, "width is 3 … 8, got 2"),
        ({"unit": "denormal", "lanes": 4, "exponent": 8, "mantissa": 3}, "exponent is 2 … 7"),
        ({"unit": "residual_sign", "lanes": 4, "levels": 1}, "levels is 2 … 8, got 1"),
        ({"unit": "ternary", "lanes": 0}, "lanes is 1 … 1024, got 0"),
        ({"unit": "posit", "lanes": 4}, "unknown unit 'posit'; known: fixed, scaled"),
    ],
)
def test_limits_of_the_parameters_are_named(params, complaint):
    with pytest.raises(ValueError, match=complaint):
        units.from_params(params)


def test_input_bits_count_values_and_scales():
    assert units.mxint(lanes=32, width=8).input_bits == 2 * (32 * 8 + 8)
    assert units.mxint(lanes=32, width=8, block=8).input_bits == 2 * (32 * 8 + 4 * 8)
    assert units.floating(lanes=32, exponent=8, mantissa=7).input_bits == 2 * 32 * 16


# ---- synthesis ----------------------------------------------------------------------------------


def stat(modules: dict, transistors: int) -> str:
    data = {
        "modules": {name: {"num_cells_by_type": cells} for name, cells in modules.items()},
        "design": {"estimated_num_transistors": str(transistors)},
    }
    return json.dumps(data)


TREE = {
    "\\dot_fixed": {"$paramod$ab\\multiply_signed": 2, "$paramod\\adder_tree\\W=4": 1},
    "$paramod$ab\\multiply_signed": {"$_NAND_": 10, "$_NOT_": 1},
    "$paramod\\adder_tree\\W=4": {"$_NOR_": 3},
}


def test_parts_are_counted_over_the_tree_of_modules(tmp_path):
    path = tmp_path / "stat.json"
    path.write_text(stat(TREE, 2 * 42 + 12))
    modules = synthesis.read_stat(path, "dot_fixed")
    assert synthesis.count_parts(modules, "dot_fixed") == {"multipliers": 84, "adders": 12}


def test_what_an_fp32_adder_contains_is_adding():
    modules = {
        "top": Counter({"add_fp32": 2, "multiply_fp32": 1}),
        "add_fp32": Counter({"round_fp32": 1, "$_NOT_": 1}),
        "multiply_fp32": Counter({"round_fp32": 1}),
        "round_fp32": Counter({"$_NAND_": 1}),
    }
    assert synthesis.count_parts(modules, "top") == {"adders": 12, "rounding": 4}


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (None, "without a usable report .FileNotFoundError"),
        ("", "without a usable report .JSONDecodeError"),
        ('{"modules": {}}', "without a usable report .KeyError"),
        ("[]", "without a usable report .TypeError"),
        (stat({}, 0), "has no unit dot_fixed; it has nothing"),
        (stat(TREE, 1), "yosys reports 1 transistors, its cells make 96"),
        (stat({"dot_fixed": {"$_DFF_P_": 1}}, 0), r"left a cell \$_DFF_P_ in dot_fixed"),
    ],
)
def test_a_broken_report_is_a_clear_error(tmp_path, text, complaint):
    path = tmp_path / "stat.json"
    if text is not None:
        path.write_text(text)
    with pytest.raises(MadlError, match=complaint):
        synthesis.read_stat(path, "dot_fixed")


def test_a_missing_longest_path_is_a_clear_error(tmp_path):
    with pytest.raises(MadlError, match="did not report the longest path"):
        synthesis.read_depth(tmp_path / "depth.txt")


def test_without_yosys_the_reason_is_clear(monkeypatch):
    monkeypatch.setattr(tools.importlib.util, "find_spec", lambda name: None)
    monkeypatch.setattr(tools.shutil, "which", lambda name: None)
    assert tools.yosys() is None
    with pytest.raises(MadlError, match="no yosys here: pip install"):
        synthesis.synthesize(units.fixed(lanes=1, width=2))


def test_a_yosys_that_stops_silently_is_noticed(monkeypatch):
    monkeypatch.setattr(tools, "needed_yosys", lambda: ["true"])
    with pytest.raises(MadlError, match="without a usable report"):
        synthesis.synthesize(units.fixed(lanes=1, width=2))


def test_an_unknown_gate_set_is_refused():
    with pytest.raises(ValueError, match="gate_set is one of cells, cmos2, got 'ttl'"):
        synthesis.synthesize(units.fixed(lanes=1, width=2), gate_set="ttl")


@pytest.mark.slow
@needs_yosys
@pytest.mark.parametrize("gate_set", synthesis.GATE_SETS)
def test_gates_of_small_units(gate_set):
    one = synthesis.synthesize(units.fixed(lanes=1, width=4), gate_set=gate_set)
    two = synthesis.synthesize(units.fixed(lanes=2, width=4), gate_set=gate_set)
    assert set(one.parts) == {"multipliers"}
    assert two.parts["multipliers"] == 2 * one.parts["multipliers"]
    assert two.transistors == sum(two.parts.values())
    assert two.delay > one.delay > one.depth > 4
    assert one.input_bits == 8
    assert min(one.stages.values()) >= 1
    scaled = synthesis.synthesize(units.mxint(lanes=2, width=4), gate_set=gate_set)
    assert scaled.parts["multipliers"] == two.parts["multipliers"]
    assert scaled.parts["adders"] == two.parts["adders"]
    assert scaled.parts["scales and result"] > 0


@pytest.mark.slow
@needs_yosys
def test_what_quantizes_is_counted_apart():
    bare = synthesis.synthesize(units.mxint(lanes=2, width=4))
    whole = synthesis.synthesize(units.mxint_quantizing(lanes=2, width=4))
    own = whole.parts["quantizer"]
    assert own > 0
    assert whole.transistors == bare.transistors + own


CHAIN = """\
.model chain
.inputs a b
.outputs y z
.names $true
1
.gate $_NOT_ A=a Y=n0
.gate $_NOT_ A=n0 Y=n1
.names n1 same
1 1
.gate $_NAND_ A=same B=b Y=y
.gate FULL_ADDER A=a B=b C=$true CARRY=z SUM=unused
.end
"""


def test_the_longest_path_and_the_pipeline_of_a_chain_by_hand(tmp_path):
    """Two inverters take 1 each, NAND (2 + 16/3)/5, a carry (6 + 16)/5."""
    (tmp_path / "chain.blif").write_text(CHAIN)
    made = netlist.read(tmp_path / "chain.blif")
    nand, carry = (2 + 16 / 3) / 5, (6 + 16) / 5
    assert netlist.DELAYS["$_NOT_"] == 1
    assert made.delay == pytest.approx(max(2 + nand, carry))
    assert made.pipelined(10) == (1, 0)
    only_y = replace(made, made={n: made.made[n] for n in ("n0", "n1", "y")}, outputs=["y"])
    assert only_y.pipelined(4) == (1, 0)
    assert only_y.pipelined(2) == (2, 1)  # n1 crosses the one cut, b comes behind it
    assert only_y.pipelined(1.5) == (3, 2)  # n0 and n1
    both = replace(only_y, made={**only_y.made, "x": (1.0, ["b"])}, outputs=["y", "x"])
    assert both.pipelined(1.5) == (3, 2 + 2 + 2)  # b and x over both cuts
    with pytest.raises(ValueError, match="shorter than a gate's"):
        made.pipelined(1)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (None, "without a netlist"),
        (".gate $_DFF_P_ D=a Q=b Y=q", "which has no delay here"),
        (".gate $_NOT_ A=a Y=b\n.gate $_NOT_ A=b Y=a", "gates in a circle"),
    ],
)
def test_a_broken_netlist_is_a_clear_error(tmp_path, text, complaint):
    path = tmp_path / "flat.blif"
    if text is not None:
        path.write_text(text)
    with pytest.raises(MadlError, match=complaint):
        netlist.read(path)


def test_an_old_report_with_the_tree_among_the_json_is_read(tmp_path):
    text = json.dumps(json.loads(stat(TREE, 96)), indent=1).replace('"design"', '"design"', 1)
    path = tmp_path / "stat.json"
    path.write_text(text.replace("\n", "\n      $paramod$ab\\multiply_signed      2\n", 1))
    assert set(synthesis.read_stat(path, "dot_fixed")) == {n.removeprefix("\\") for n in TREE}


def gates_record(unit: dict, transistors: int, **changes) -> Record:
    params = {"kind": "gates", "lanes": 32, "gate_set": "cells", **unit, **changes}
    values = {
        **{"transistors": transistors, "cells": 10, "depth": 5, "input_bits": 64, "delay": 9.5},
        "flip_flops": {"20": 2, "40": 1},
    }
    case = Case(experiment="lab4_hardware", params=params)
    return replace(a_record(), case=case, values=values)


def test_a_borrowed_result_names_its_machine_beside_its_label():
    mxint8 = records.MXINT8
    own = gates_record(mxint8, 100)
    lent = replace(own, borrowed_from="another machine: EPYC, 2026-01-02")
    assert records.label_of(own) == "MXINT8"
    assert records.label_of(lent) == "MXINT8 [another machine: EPYC, 2026-01-02]"
    assert "borrowed_from" not in json.loads(encode(lent))
    assert decode(encode(lent), "file").borrowed_from == ""


@pytest.mark.parametrize(
    ("name", "label"),
    [
        ("fixed(4) moved", "fixed4, moved"),
        ("scaled(8,row)", "scaled8 by row"),
        ("scaled(8,tensor)", "scaled8 by tensor"),
        ("mxint8", "MXINT8"),
    ],
)
def test_formats_that_share_a_unit_have_names_of_their_own(name, label):
    unit = {**page.JUDGED, **page.MOVED, **page.RESCALED}[name]
    assert page.called(name, gates_record(dict(unit), 9)) == label


def test_rows_of_a_model_are_pieces_of_its_weights_and_inputs_without_padding():
    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(4, 3)
            self.narrow = torch.nn.Linear(3, 2)  # no whole number of pieces

        def forward(self, attention_mask):
            x = attention_mask[:, :, None] * torch.tensor([1.0, 2.0, 3.0, 4.0])
            return self.narrow(self.layer(x))

    class Data(list):
        def batch(self, which):
            return {"attention_mask": torch.stack([self[i] for i in which])}

    model = Model()
    data = Data([torch.tensor([1.0, 1.0, 0.0]), torch.tensor([1.0, 0.0, 0.0])])
    found = study.sampled(model, data, lanes=2, count=40)
    assert len(found) == 40
    assert {len(one.a) for one in found} == {len(one.b) for one in found} == {4}
    a, b = (
        [side[one.start : one.start + 2] for one, side in zip(found, sides)]
        for sides in ([one.a for one in found], [one.b for one in found])
    )
    whole = torch.tensor([1.0, 2.0, 3.0, 4.0])
    assert all(torch.equal(one.b, whole) for one in found)
    assert found[0].dot(2) == pytest.approx(float(a[0] @ b[0]))
    pieces = {(1.0, 2.0): model.layer.weight[:, :2], (3.0, 4.0): model.layer.weight[:, 2:]}
    for weights, inputs in zip(a, b, strict=True):
        assert any(torch.equal(weights, one) for one in pieces[tuple(inputs.tolist())])


@pytest.mark.parametrize("profile", ["smoke", "quick", "full"])
def test_every_case_of_the_page_describes_a_unit(profile):
    plan = SimpleNamespace(profile=PROFILES[profile], workload={"model": "m", "dataset": "d"})
    cases = Project().load("lab4_hardware").planned("lab4_hardware", plan)
    assert {c.params["kind"] for c in cases} == {"gates", "simulation"}
    for case in cases:
        assert units.from_params({"lanes": 32, **case.params}).lanes == case.params.get("lanes", 32)


def test_every_format_of_question_32_that_is_compared_has_the_unit_of_its_values():
    """The unit's own sides round as the format that the page names beside it."""
    for name, unit in page.JUDGED.items():
        described = units.from_params({"lanes": 32, **unit})
        for side in (described.a, described.b):
            assert codes.number_format(side, described.block) == presets()[name]


def test_every_format_of_question_32_has_a_unit_and_so_has_every_moved_one():
    from madl.training import families

    assert {*page.JUDGED, *page.RESCALED} == set(families.NAMES)
    assert set(page.MOVED) == set(families.MOVED)
    assert page.MOVED["fixed(8) moved"] == page.JUDGED["fixed(8,4)"]


@pytest.mark.parametrize(
    ("name", "label"),
    [
        ("minifloat(8,4)", "FP8-e4m3, no NaN"),
        ("minifloat(8,4,nan)", "FP8-e4m3"),
        ("minifloat(6,3)", "FP6-e3m2"),
    ],
)
def test_two_units_have_two_labels(name, label):
    assert records.label_of(gates_record(dict(page.JUDGED[name]), 9)) == label
    every = [records.label_of(gates_record(dict(u), 9)) for u in page.JUDGED.values()]
    assert len(set(every)) == len(every)


def test_a_multiplier_of_one_lane_says_so():
    assert records.label_of(gates_record(dict(page.MULTIPLIER), 9)).endswith(", 1 lane")


def test_a_case_with_a_wrong_bit_fails(monkeypatch):
    found = {"mismatches": 1, "beyond_bound": 0, "first_mismatch": "1 expected, got 2"}
    monkeypatch.setattr(study, "verify", lambda *args, **kwargs: found)
    monkeypatch.setattr(study, "rows_of_model", lambda *args, **kwargs: [])
    params = {"kind": "simulation", "unit": "fixed", "width": 4, "num_random": 1, "seed": 0}
    with pytest.raises(MadlError, match="1 results with wrong bits .* 1 expected, got 2"):
        Project().load("lab4_hardware").execute(params, None)


def test_a_machine_without_the_programs_leaves_only_their_cases_alone(monkeypatch):
    unavailable = Project().load("lab4_hardware").why_unavailable
    monkeypatch.setattr(tools, "yosys", lambda: None)
    monkeypatch.setattr(tools, "iverilog", lambda: None)
    assert unavailable({"kind": "gates"}) == tools.NO_YOSYS
    assert unavailable({"kind": "simulation"}) == tools.NO_IVERILOG
    monkeypatch.setattr(tools, "yosys", lambda: ["yosys"])
    assert unavailable({"kind": "gates"}) is None
