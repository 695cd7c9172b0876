"""Gates of a unit, by yosys: cells, transistors by part, delay, and what pipelining adds.

The unit is mapped with its modules kept, so each distinct module is worked on once and its gates
can be told apart; paths are those of the flat netlist (see `netlist`). Of two sets of gates `cells`
is that of a small cell library (NAND, NOR, AND-OR-INVERT and its dual, XOR, multiplexers, full
adders in multipliers and adder trees), and `cmos2` NAND, NOR and NOT alone.

Units: `transistors` of static CMOS, flip-flops not among them; `depth` in gates; `delay` and the
periods of `PERIODS` in FO4.
Invariants: the parts add up to the whole.
Not handled: placement, wires, clock, power; optimisation across the borders of modules.
"""

import json
import re
import shutil
import tempfile
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from experiments.lab4_hardware import netlist, tools
from experiments.lab4_hardware.operands import Unit
from experiments.lab4_hardware.units import SOURCES
from madl.errors import MadlError

FULL_ADDER = "FULL_ADDER"
# transistors of a gate in static CMOS, as yosys' `stat -tech cmos` has them
TRANSISTORS = {
    **{"$_NOT_": 2, "$_NAND_": 4, "$_NOR_": 4},
    **{"$_AOI3_": 6, "$_OAI3_": 6, "$_AOI4_": 8, "$_OAI4_": 8},
    **{"$_XOR_": 12, "$_XNOR_": 12, "$_MUX_": 12, "$_NMUX_": 10},
    FULL_ADDER: 28,  # the mirror adder of Weste and Harris 2010, CMOS VLSI Design, 11.2
}
FLIP_FLOP = 24  # transistors of a static one, two latches with their clock's inverters (ibid. 10.3)
PERIODS = (20, 40)  # FO4 between two results: a fast clock of cell libraries, and a relaxed one
GATE_SETS = {"cells": "cmos", "cmos2": "cmos2"}  # ours → abc's name, less full adders

# What a module's own gates are for; one that is not named here counts with what contains it.
PARTS = {
    "multiply_signed": "multipliers",
    "multiply_unsigned": "multipliers",
    "multiply_signs": "multipliers",
    "multiply_ternary": "multipliers",
    "adder_tree": "adders",
    "popcount": "adders",
    "add_fp32": "adders",
    "align_term": "lane exponents",
    "shift_term": "lane exponents",
    "maximum_tree": "lane exponents",
    "float_product": "lane exponents",
    "denormal_product": "lane exponents",
    "log_product": "lane exponents",
    "mxint_bf16_product": "lane exponents",
    "decode_float": "lane exponents",
    "apply_sign": "signs",
    "multiply_sign_magnitude": "signs",
    "multiply_fp32": "rounding",
    "round_fp32": "rounding",
    "add_scales": "scales and result",
    "add_biases": "scales and result",
    "combine_blocks": "scales and result",
    "to_fp32": "scales and result",
    "quantize_mxint": "quantizer",
}
SEALED = ("add_fp32", "to_fp32", "quantize_mxint")  # all that these contain counts with them
REST = "scales and result"
ADDING = "*multiply_* *adder_tree* *popcount*"  # modules in which full adders are placed


@dataclass(frozen=True, slots=True, kw_only=True)
class Gates:
    """What a unit is made of."""

    cells: int
    transistors: int
    parts: Mapping[str, int]  # transistors
    depth: int
    delay: float
    stages: Mapping[str, int]  # by period
    flip_flops: Mapping[str, int]
    input_bits: int
    gate_set: str
    tool: str

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def synthesize(unit: Unit, *, gate_set: str = "cells") -> Gates:
    """Map a unit to gates and count them.

    Raises:
        ValueError: an unknown gate set.
        MadlError: no yosys, or it failed or stopped without its report.
    """
    if gate_set not in GATE_SETS:
        raise ValueError(f"gate_set is one of {', '.join(GATE_SETS)}, got {gate_set!r}")
    command = tools.needed_yosys()
    with tempfile.TemporaryDirectory(prefix="madl-yosys-") as work:
        folder = Path(work)
        (folder / "cells").mkdir()
        for source in SOURCES.rglob("*.v"):  # yosys as WebAssembly sees its own folder only
            shutil.copy(source, folder / source.relative_to(SOURCES))
        tools.run([*command, "-q", "-p", script(unit, gate_set)], cwd=folder)
        modules = read_stat(folder / "stat.json", unit.top)
        depth = read_depth(folder / "depth.txt")
        graph = netlist.read(folder / "flat.blif")
    pipelines = {f"{period}": graph.pipelined(period) for period in PERIODS}
    parts = count_parts(modules, unit.top)
    return Gates(
        cells=sum(_all_gates(modules, unit.top).values()),
        transistors=sum(parts.values()),
        parts=parts,
        depth=depth,
        delay=round(graph.delay, 2),
        stages={period: stages for period, (stages, _) in pipelines.items()},
        flip_flops={period: count for period, (_, count) in pipelines.items()},
        input_bits=unit.input_bits,
        gate_set=gate_set,
        tool=tools.yosys_version(),
    )


def script(unit: Unit, gate_set: str) -> str:
    """The commands that yosys is given."""
    numbers = " ".join(f"-chparam {name} {value}" for name, value in unit.parameters.items())
    top = unit.top
    place_adders = (
        f"synth -top {top} -run begin:fine",
        "techmap",
        "opt",
        f"extract_fa -fa {ADDING}",
        "opt_clean",
        "techmap -map cells/place.v",
        f"synth -top {top} -run fine:check -noabc",
    )
    return "; ".join(
        (
            "read_verilog -defer *.v",
            "read_verilog -lib cells/full_adder.v",
            f"hierarchy -check -top {top} {numbers}",
            *(place_adders if gate_set == "cells" else (f"synth -top {top}",)),
            f"abc -g {GATE_SETS[gate_set]}",
            "opt_clean",
            "tee -q -o stat.json stat -json -tech cmos",
            "flatten",
            "opt_clean",
            "tee -q -o depth.txt ltp -noff",
            "write_blif -gates -icells flat.blif",
        )
    )


Modules = Mapping[str, Counter[str]]  # name → its own gates and the modules it contains


def read_stat(path: Path, top: str) -> Modules:
    """yosys' report, checked: some versions stop in the middle and still end well.

    Raises:
        MadlError: no report, not JSON, no such unit in it, or its numbers do not add up.
    """
    try:
        lines = path.read_text("utf-8").splitlines()
        # yosys 0.23 writes the tree of modules among the JSON
        data = json.loads("\n".join(one for one in lines if one.lstrip()[:1] in ("", *'{}[]"')))
        modules = {
            _plain(name): Counter({_plain(k): int(v) for k, v in m["num_cells_by_type"].items()})
            for name, m in data["modules"].items()
        }
        said = int(data["design"]["estimated_num_transistors"].rstrip("+"))  # +: and full adders
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise MadlError(
            f"yosys ended without a usable report ({type(error).__name__}: {error}); "
            "use the version that requirements.txt names"
        ) from error
    if top not in modules:
        raise MadlError(
            f"yosys' report has no unit {top}; it has {', '.join(modules) or 'nothing'}"
        )
    adders = _all_gates(modules, top)[FULL_ADDER] if top in modules else 0
    counted = sum(count_parts(modules, top).values()) - TRANSISTORS[FULL_ADDER] * adders
    if counted != said:
        raise MadlError(f"yosys reports {said} transistors, its cells make {counted}")
    return modules


def _plain(name: str) -> str:
    return name.removeprefix("\\")


def base_name(module: str) -> str:
    """The name in the source of what yosys calls `$paramod$…\\name` or `$paramod\\name\\W=…`."""
    if not module.startswith("$paramod"):
        return module
    return module.split("\\")[1]


def count_parts(modules: Modules, top: str) -> dict[str, int]:
    """Transistors by part, over the whole tree of modules; parts without any are left out.

    Raises:
        MadlError: a cell that is neither a known gate nor a module.
    """
    counts: Counter[str] = Counter()
    _add_parts(modules, top, REST, False, 1, counts)
    return {part: count for part, count in sorted(counts.items()) if count}


def _add_parts(
    modules: Modules, module: str, around: str, sealed: bool, times: int, counts: Counter[str]
) -> None:
    name = base_name(module)
    part = around if sealed else PARTS.get(name, around)
    sealed = sealed or name in SEALED
    for cell, count in modules[module].items():
        if cell in modules:
            _add_parts(modules, cell, part, sealed, times * count, counts)
        elif cell in TRANSISTORS:
            counts[part] += TRANSISTORS[cell] * count * times
        else:
            raise MadlError(f"yosys left a cell {cell} in {name}, which is no gate of the set")


def _all_gates(modules: Modules, module: str) -> Counter[str]:
    total: Counter[str] = Counter()
    for cell, count in modules[module].items():
        if cell in modules:
            for gate, inner in _all_gates(modules, cell).items():
                total[gate] += inner * count
        else:
            total[cell] += count
    return total


def read_depth(path: Path) -> int:
    """Gates on the longest path from an input to an output.

    Raises:
        MadlError: yosys did not say.
    """
    text = path.read_text("utf-8") if path.exists() else ""
    found = re.search(r"Longest topological path in .* \(length=(\d+)\)", text)
    if found is None:
        raise MadlError(
            "yosys did not report the longest path; use the version of requirements.txt"
        )
    return int(found[1])
