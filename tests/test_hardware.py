"""The dot-product units: described, checked against the formats, simulated, counted."""

import contextlib
import json
import math
from collections import Counter
from dataclasses import replace
from fractions import Fraction
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
import torch

from experiments.lab4_hardware import (
    codes,
    netlist,
    page,
    reference,
    simulation,
    study,
    switching,
    synthesis,
    tools,
    units,
)
from experiments.lab4_hardware.dyadic import NAN, add_fp32, to_fp32
from experiments.lab4_hardware.operands import Float, Operand, Port
from experiments.lab4_hardware.reference import expected_result
from experiments.lab4_hardware.stimuli import corner_vectors, random_vectors, single_chains
from kernels import compilers
from madl.errors import MadlError
from madl.formats.presets import FORMATS
from madl.running.project import Project
from tests.machine import needs_compiler, needs_yosys

pytestmark = pytest.mark.outside


def bf16(*values: float) -> list[int]:
    made = torch.tensor(values).bfloat16().view(torch.int16)
    return [int(code) & 0xFFFF for code in made]


def fp32(value: float) -> int:
    return int(np.float32(value).view(np.uint32))


def distinct(lanes: int) -> list[str]:
    """Names of units that are different ones with so few lanes, to which blocks are cut."""
    made = {name: units.unit_named(name, lanes) for name in units.UNITS}
    return [name for i, name in enumerate(made) if made[name] not in [*made.values()][:i]]


@needs_yosys
@needs_compiler
@pytest.mark.parametrize("name", distinct(lanes=8))
def test_every_result_has_the_bits_of_the_definition_and_lies_within_the_bound(name):
    unit = units.unit_named(name, 8)
    x = torch.randn(2, 48, generator=torch.Generator().manual_seed(2))
    found = study.verify(unit, num_random=10, rows=[(x[0], x[1])])
    assert found["mismatches"] == 0, found["first_mismatch"]
    assert found["beyond_bound"] == 0
    assert found["finite"] > 20
    assert found["error_db"] > 5


@needs_yosys
@needs_compiler
@pytest.mark.parametrize("name", ["MXINT8, blocks of 8", "MXFP4, blocks of 16", "NVFP4"])
def test_several_blocks_a_cycle_are_added_as_the_definition_says(name):
    unit = units.unit_named(name)
    assert unit.block < unit.lanes
    x = torch.randn(2, 64, generator=torch.Generator().manual_seed(3))
    found = study.verify(unit, num_random=10, rows=[(x[0], x[1])])
    assert found["mismatches"] == 0, found["first_mismatch"]
    assert found["beyond_bound"] == 0


@needs_yosys
@needs_compiler
@pytest.mark.parametrize("signs", [False, True])
def test_one_mxint8_lane_multiplies_and_accumulates(signs):
    unit = units.mxint(lanes=1, width=8, signs=signs)
    minus = 0x80 | 0x60 if signs else 0x100 - 0x60  # -1.5
    one = {"a": [0x60], "b": [0x40], "a_scale": [127], "b_scale": [128], "acc": [0]}
    vectors = [
        one,  # 1.5 · 1 · 2
        {**one, "a": [minus], "acc": [fp32(0.25)]},
        {**one, "acc": [fp32(2.0**24)]},  # a tie goes to even
        {**one, "a_scale": [255]},  # a scale that is NaN
        {**one, "acc": [fp32(math.inf)]},
        {**one, "a_scale": [254], "b_scale": [254]},  # 2^254
        {**one, "a_scale": [0], "b_scale": [0], "acc": [fp32(7.0)]},  # 2^-254
    ]
    wanted = [fp32(3.0), fp32(-2.75), fp32(2.0**24 + 4), NAN, NAN, NAN, fp32(7.0)]
    assert simulation.simulate(unit, vectors) == wanted


@needs_yosys
@needs_compiler
def test_the_quantizer_rounds_to_even_saturates_and_knows_subnormals_and_a_zero_is_nothing():
    """Under a scale of one an MXINT8 code counts 64ths; 1.0078125 = 64.5 and 1.0234375 = 65.5."""
    unit = units.unit_named("MXINT8, quantizing", 8)
    values = (1.0078125, 1.0234375, 1.9921875, -1.9921875, 2.0**-7, 3 * 2.0**-8, -(2.0**-133), 1.0)
    vector = {"a": [0x40] * 8, "b": bf16(*values), "a_scale": [127], "acc": [0]}
    inner = unit.inner
    assert inner is not None
    made = reference.quantize_inputs(inner, vector)
    assert made["b"] == [64, 66, 127, 0x80 | 127, 0, 1, 0x80, 64]
    assert made["b_scale"] == [127]
    tiny = {**vector, "b": bf16(*[2.0**-127, 2.0**-128] * 4), "a_scale": [254]}
    assert reference.quantize_inputs(inner, tiny)["b"] == [64, 32] * 4
    assert reference.quantize_inputs(inner, tiny)["b_scale"] == [0]
    infinite = {**vector, "b": bf16(math.inf, *values[1:])}
    wanted = [fp32((64 + 66 + 1 + 64) / 64), fp32(6.0), NAN]
    assert simulation.simulate(unit, [vector, tiny, infinite]) == wanted
    unit = units.unit_named("BF16", 2)
    vector = {"a": bf16(0.0, 2.0**-20), "b": bf16(2.0**100, 2.0**-20), "acc": [0]}
    assert simulation.simulate(unit, [vector]) == [fp32(2.0**-40)]


@needs_yosys
@needs_compiler
def test_a_wrong_unit_is_caught_and_its_case_fails(monkeypatch, tmp_path):
    for source in units.SOURCES.glob("*.v"):
        text = source.read_text()
        if source.name == "carry_save.v":
            assert "a ^ b ^ c" in text
            text = text.replace("a ^ b ^ c", "a | b ^ c")
        (tmp_path / source.name).write_text(text)
    monkeypatch.setattr(simulation, "SOURCES", tmp_path)
    monkeypatch.setattr(units, "LANES", 4)
    monkeypatch.setattr(units, "unit_named", lambda name: units.mxint(lanes=4, width=4))
    monkeypatch.setattr(study, "rows_of_model", lambda *args: [])
    with pytest.raises(MadlError, match="results with wrong bits and .* beyond its bound: got 0x"):
        study.run({"kind": "simulation", "unit": "MXINT4", "num_random": 4}, None)


@needs_yosys
@needs_compiler
@pytest.mark.parametrize(
    ("logic", "complaint"),
    [
        ("wire nothing; assign result = acc & {32{nothing}};", "problems in 'check -assert'"),
        ("assign result = acc ^ {32{a[0]}} & 6;", ""),
        ("wire loop; kept k(loop, loop); assign result = acc ^ loop;", "problems in 'check"),
        (
            "reg [31:0] held; always @* if (a[0]) held = acc; assign result = held;",
            "not empty: .*latch",
        ),
        ("assign result = {acc, 1'bx};", "not empty: .*anyseq"),
    ],
    ids=["undriven", "sound", "loop", "latch", "x"],
)
def test_logic_that_two_states_cannot_say_is_refused(logic, complaint, monkeypatch, tmp_path):
    """Also across the borders of modules."""
    (tmp_path / "unit.v").write_text(
        "(* keep_hierarchy *) module kept(input i, output o); assign o = ~i; endmodule\n"
        "module dot_int #(parameter LANES = 1, parameter WIDTH = 4) (input [3:0] a, "
        f"input [3:0] b, input [31:0] acc, output [31:0] result); {logic} endmodule\n"
    )
    monkeypatch.setattr(simulation, "SOURCES", tmp_path)
    unit = units.integers(lanes=1, width=4)
    with pytest.raises(MadlError, match=complaint) if complaint else contextlib.nullcontext():
        assert simulation.simulate(unit, [{"a": [1], "b": [1], "acc": [5]}]) == [3]


@needs_yosys
@needs_compiler
def test_the_error_of_a_unit_is_that_of_its_finished_rows():
    """Row by row the largest is 127; 1.5 becomes 2: signal (2 + 127²)², error 0.5²."""
    a, b = torch.tensor([1.6, 0.0, 127.0, 0.0]), torch.tensor([1.0, 0.0, 127.0, 0.0])
    found = study.verify(units.integers(lanes=2, width=8), num_random=0, rows=[(a, b)])
    wanted = 20 * math.log10((1.6 + 127**2) / 0.4)
    assert found["error_db"] == pytest.approx(wanted, abs=0.01)


def test_the_definition_of_an_aligned_sum_by_hand_and_of_fp32_by_numpy():
    """What lies below the window of 16 bits is dropped, toward zero: ±(1 + 2^-16) is ±1."""
    unit = units.unit_named("BF16", 2)
    small = 2.0**-8
    up = expected_result(unit, {"a": bf16(1, small), "b": bf16(1, small), "acc": [0]})
    down = expected_result(unit, {"a": bf16(-1, -small), "b": bf16(1, small), "acc": [fp32(0.5)]})
    assert up.code == fp32(1.0)
    assert down.code == fp32(-0.5)
    assert up.exact == 1 + Fraction(1, 2**16)
    assert up.bound >= 2 * Fraction(1, 2**14)
    rng = np.random.default_rng(1)
    for significand in [0, 1, (1 << 25) - 1, 3 << 24, *rng.integers(-(2**40), 2**40, 300).tolist()]:
        for exponent in (-60, -3, 0, 11):
            assert to_fp32(significand, exponent) == fp32(significand * 2.0**exponent)
    assert to_fp32(1, 200) == NAN
    assert to_fp32(-1, -200) == 0
    a, b = (rng.standard_normal((2, 300)) * 4.0 ** rng.integers(-9, 9, (2, 300))).astype(np.float32)
    for x, y in zip(a, b):
        assert add_fp32(fp32(x), fp32(y)) == fp32(x + y)


@pytest.mark.parametrize("name", units.UNITS)
def test_codes_mean_the_values_of_the_formats(name):
    unit = units.unit_named(name)
    x = torch.randn(64, generator=torch.Generator().manual_seed(2)) * 3
    for side in (unit.a, unit.b):
        made = codes.number_format(side, unit.block)
        found = codes.encode_row(side, unit.block, x)
        decoded = codes.values_of(side, found.codes, found.scales, unit.block)
        scale = math.ldexp(*found.row_scale)
        values = torch.tensor([math.ldexp(*value) * scale for value in decoded])
        if side.scale == "e4m3":  # the format rounds a block's scale times the tensor's to float32
            torch.testing.assert_close(values, made.quantize(x), rtol=2**-23, atol=0)
        else:
            assert torch.equal(values, made.quantize(x))


def test_every_code_is_a_value_of_its_format_and_units_have_their_format_s():
    for element in (
        Float(exponent=4, mantissa=3, specials="nan"),
        Float(exponent=5, mantissa=2),
        Float(exponent=2, mantissa=1, specials="none"),
    ):
        side = Operand(element=element)
        decoded = [codes.values_of(side, [code], (), 1) for code in range(1 << element.bits)]
        values = {s * 2.0**e for ((s, e),) in filter(None, decoded)}
        assert sorted(values) == codes.number_format(side, 1).values().tolist()
    side = units.unit_named("block log 4").a
    assert [codes.scale_of(side, code) for code in (0, 1, 127, 128, 255)] == [
        *((1, exponent) for exponent in (0, -1, -127, 128, 1))
    ]
    nvfp4 = units.unit_named("NVFP4").a
    found = [codes.scale_of(nvfp4, code) for code in (0, 1, 0x38, 0x7E, 0x7F)]
    assert found == [(0, -9), (1, -9), (8, -3), (14, 5), None]
    for name, unit in page.FORMATS.items():
        made = units.unit_named(unit)
        for side in (made.a, made.b):
            assert codes.number_format(side, made.block) == FORMATS[name]


def stat(modules: dict, transistors: int) -> str:
    data = {
        "modules": {name: {"num_cells_by_type": cells} for name, cells in modules.items()},
        "design": {"estimated_num_transistors": str(transistors)},
    }
    return json.dumps(data)


TREE = {
    "\\dot_int": {"$paramod$ab\\multiply_signed": 2, "$paramod\\sum_products\\W=4": 1},
    "$paramod$ab\\multiply_signed": {"$_NAND_": 10, "$_NOT_": 1, "full_adder": 1},
    "$paramod\\sum_products\\W=4": {"$_NOR_": 3, "$scopeinfo": 2},
}


def test_parts_are_counted_over_the_tree_of_modules(tmp_path):
    path = tmp_path / "stat.json"
    path.write_text(stat(TREE, 2 * 42 + 12))
    modules = synthesis.read_stat(path, "dot_int")
    assert synthesis.count_parts(modules, "dot_int") == {"multipliers": 2 * 70, "adders": 12}
    modules = {  # what finishes counts together but for the accumulator
        "top": Counter({"finish": 1}),
        "finish": Counter({"align_term": 1, "add_fp32": 1, "$_NOT_": 1}),
        "align_term": Counter({"$_NAND_": 1}),
        "add_fp32": Counter({"$_NOR_": 3}),
    }
    assert synthesis.count_parts(modules, "top") == {"scales and result": 6, "accumulator": 12}
    for text, complaint in (
        ("", "without a usable report .JSONDecodeError"),
        (stat(TREE, 1), "yosys reports 1 transistors, its cells make 96"),
        (stat({"dot_int": {"$_DFF_P_": 1}}, 0), r"left a cell \$_DFF_P_ in dot_int"),
    ):
        path.write_text(text)
        with pytest.raises(MadlError, match=complaint):
            synthesis.read_stat(path, "dot_int")


@pytest.mark.slow
@needs_yosys
@pytest.mark.parametrize(
    "name", ["BF16", "MXINT8, signs apart", "MXFP4-e2m1", "NVFP4", "INT4 by 32"]
)
def test_the_gates_that_are_counted_compute_what_the_definition_says(name):
    unit = units.unit_named(name, 4)
    chains = single_chains([*corner_vectors(unit), *random_vectors(unit, 20, 0)])
    vectors, wants = study.with_results(unit, chains)
    assert len(vectors) >= 200
    _, flat = synthesis.mapped(unit)
    bits = switching.signals(flat, unit, vectors)
    assert switching.results(flat, bits) == [want.code for want in wants]


def test_gates_that_give_other_bits_switch_nothing_that_counts(monkeypatch):
    broken = SimpleNamespace(mapped=lambda unit: ({}, None))
    monkeypatch.setattr(study, "synthesis", broken)
    monkeypatch.setattr(switching, "signals", lambda *_: {})
    monkeypatch.setattr(switching, "results", lambda *_: [0] * 12)
    rows = [(torch.ones(384), torch.ones(384))]
    with pytest.raises(MadlError, match="the gates of dot_mxint give 12 of 12 results other bits"):
        study.switch(units.unit_named("MXINT8"), rows)


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
.gate full_adder a=a b=b c=$true carry=z sum=unused
.end
"""


def test_the_longest_path_and_the_pipeline_of_a_chain_by_hand(tmp_path):
    """a drives an inverter and a full adder, b a NAND and a full adder, outputs four inverters."""
    (tmp_path / "chain.blif").write_text(CHAIN)
    made = netlist.read(tmp_path / "chain.blif")
    a, b = (1 + 5) / 5, (1 + 4 + 4 / 3) / 5
    n0, n1, y, z = (1 + 1) / 5, (1 + 4 / 3) / 5, (2 + 4) / 5, 7 / 5 + (1 + 4) / 5
    assert made.num_drivers == 0
    assert made.drive_delays["a"] == pytest.approx(a)
    assert made.delay == pytest.approx(max(a + n0 + n1 + y, b + z))
    assert made.pipelined(20) == (1, 2)  # nothing but the row of flip-flops behind it
    only_y = replace(made, gates={n: made.gates[n] for n in ("n0", "n1", "y")}, outputs=["y"])
    assert only_y._cut(3, 0) == (2, 2)  # n1 crosses the one cut, b comes behind it, y is kept
    with pytest.raises(ValueError, match="shorter than a gate's"):
        made.pipelined(1)
    assert netlist.load_delay(4) == (0.8, 0)
    assert netlist.load_delay(24) == (pytest.approx(2.2), 6)
    assert netlist.load_delay(96) == (pytest.approx(3.2), 30)


def test_what_switches_in_a_chain_by_hand(tmp_path):
    (tmp_path / "chain.blif").write_text(CHAIN)
    flat = netlist.read(tmp_path / "chain.blif")
    unit = cast("Any", SimpleNamespace(inputs=[Port(name=n, fields=1, bits=1) for n in "ab"]))
    vectors = [{"a": [a], "b": [b]} for a, b in zip((0, 1, 1, 0), (0, 0, 1, 1))]
    bits = switching.signals(flat, unit, vectors)
    assert switching.results(flat, bits) == [0b01, 0b11, 0b10, 0b11]  # z, y
    by_signal = {"a": 2 * (1 + 4), "b": 4 + 4 / 3, "n0": 2, "n1": 2 * 4 / 3, "y": 2 * 4, "z": 4}
    assert switching.switched(flat, bits) == pytest.approx(sum(by_signal.values()) / 3)


def test_rows_of_a_model_are_whole_and_without_padding(monkeypatch):
    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.narrow = torch.nn.Linear(3, 2)  # no whole number of lanes
            self.layer = torch.nn.Linear(4, 3)  # runs first, and twice, as blocks that share one

        def forward(self, attention_mask):
            return self.narrow(sum(self.layer(attention_mask[:, :, None] * row) for _ in "ab"))

    class Data(list):
        def batch(self, which):
            return {"attention_mask": torch.stack([self[i] for i in which])}

    monkeypatch.setattr(units, "LANES", 2)
    model, row = Model(), torch.tensor([1.0, 2.0, 3.0, 4.0])
    found = study.sample_pairs(model, Data(torch.tensor([[1.0, 1.0, 0.0], [1.0, 0.0, 0.0]])), 40)
    assert len(found) == 40
    for a, b in found:
        assert torch.equal(b, row)
        assert any(torch.equal(a, one) for one in model.layer.weight)


def test_a_machine_without_the_programs_leaves_only_their_cases_alone(monkeypatch):
    unavailable = Project().load("lab4_hardware").why_unavailable
    monkeypatch.setenv("CXX", "")
    monkeypatch.setattr(tools.shutil, "which", lambda name: None)
    if tools.yosys():
        assert unavailable({"kind": "gates"}) is None
        assert unavailable({"kind": "simulation"}) == compilers.NO_COMPILER
    monkeypatch.setattr(tools.importlib.util, "find_spec", lambda name: None)
    assert unavailable({"kind": "gates"}) == tools.NO_YOSYS
    assert unavailable({"kind": "simulation"}) == tools.NO_YOSYS
