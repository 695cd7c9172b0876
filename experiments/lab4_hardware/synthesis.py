"""Gates of a unit, by yosys: transistors by part, delay, and the flip-flops of its pipelines.

The unit is mapped with those modules kept that are a part of it, so each distinct one is worked on
once and its gates can be told apart; paths are those of the flat netlist (see `netlist`). Gates are
those of a small cell library: NAND, NOR, AND-OR-INVERT and its dual, XOR, multiplexers, and the
full adders that the Verilog names.

Units: `transistors` of static CMOS, flip-flops not among them; `delay` and the periods of `PERIODS`
in FO4.
Invariants: the parts add up to the whole.
Not handled: placement, wires, clock, power; optimisation across the borders of parts.
"""

import json
import shutil
import tempfile
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from experiments.lab4_hardware import netlist, tools
from experiments.lab4_hardware.design import ACCUMULATOR, DRIVERS, PARTS, PERIODS, REST
from experiments.lab4_hardware.netlist import Netlist
from experiments.lab4_hardware.operands import Unit
from experiments.lab4_hardware.units import SOURCES
from madl.errors import MadlError

# transistors of a gate in static CMOS, as yosys' `stat -tech cmos` has them
TRANSISTORS = {
    **{"$_NOT_": 2, "$_NAND_": 4, "$_NOR_": 4},
    **{"$_AOI3_": 6, "$_OAI3_": 6, "$_AOI4_": 8, "$_OAI4_": 8},
    **{"$_XOR_": 12, "$_XNOR_": 12, "$_MUX_": 12, "$_NMUX_": 10},
    "full_adder": 28,  # the mirror adder of Weste and Harris 2010, CMOS VLSI Design, 11.2
}
NO_GATES = "$scopeinfo"  # yosys' note of a module that it took apart
# Modules whose contents count with them, but for the accumulator.
SEALED = ("quantize_mxint", "apply_scales", "finish")
LEVELS = 16  # of full adders, at most, along which a constant goes


def synthesize(unit: Unit) -> dict[str, Any]:
    """Map a unit to gates and count them; raises what `mapped` does."""
    modules, graph = mapped(unit)
    pipelines = {f"{period}": graph.pipelined(period) for period in PERIODS}
    drivers = TRANSISTORS["$_NOT_"] * graph.num_drivers
    parts = {**count_parts(modules, unit.top), DRIVERS: drivers}
    return {
        "transistors": sum(parts.values()),
        "parts": parts,
        "delay": round(graph.delay, 2),
        "stages": {period: stages for period, (stages, _) in pipelines.items()},
        "flip_flops": {period: count for period, (_, count) in pipelines.items()},
        "tool": tools.yosys_version(),
    }


def mapped(unit: Unit) -> tuple["Modules", Netlist]:
    """A unit's gates by module, and flat.

    Raises:
        MadlError: no yosys, or it failed or stopped without its report.
    """
    command = tools.needed_yosys()
    with tempfile.TemporaryDirectory(prefix="madl-yosys-") as work:
        folder = Path(work)
        (folder / "cells").mkdir()
        for source in SOURCES.rglob("*.v"):  # yosys as WebAssembly sees its own folder only
            shutil.copy(source, folder / source.relative_to(SOURCES))
        tools.run([*command, "-q", "-p", script(unit)], cwd=folder)
        return read_stat(folder / "stat.json", unit.top), netlist.read(folder / "flat.blif")


def script(unit: Unit) -> str:
    """The commands for yosys, which maps the unit to gates and writes a report and a netlist."""
    numbers = " ".join(f"-chparam {name} {value}" for name, value in unit.parameters.items())
    return "; ".join(
        (
            "read_verilog -defer *.v",
            "read_verilog -lib cells/full_adder.v",
            f"hierarchy -check -top {unit.top} {numbers}",
            *("proc", "flatten", "opt"),
            *(("techmap -map cells/constant_input.v", "opt") * LEVELS),
            f"synth -top {unit.top} -noabc",
            *("abc -g cmos", "opt_clean"),
            "tee -q -o stat.json stat -json -tech cmos",
            *("setattr -mod -unset keep_hierarchy *", "flatten", "opt_clean"),
            "write_blif -gates -icells flat.blif",
        )
    )


Modules = Mapping[str, Counter[str]]  # name → its own gates and the modules it contains


def read_stat(path: Path, top: str) -> Modules:
    """The modules in yosys' report, checked: some versions stop in the middle and still end well.

    Raises:
        MadlError: no report, not JSON, no such unit in it, or its numbers do not add up.
    """
    try:
        lines = path.read_text("utf-8").splitlines()
        # yosys 0.23 writes the tree of modules among the JSON
        data = json.loads("\n".join(x for x in lines if x.lstrip()[:1] in ("", *'{}[]"')))
        modules = {
            _plain(name): Counter({_plain(k): int(v) for k, v in m["num_cells_by_type"].items()})
            for name, m in data["modules"].items()
        }
        total = int(data["design"]["estimated_num_transistors"].rstrip("+"))  # +: and full adders
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise MadlError(
            f"yosys ended without a usable report ({type(error).__name__}: {error}); "
            "use the version that requirements.txt names"
        ) from error
    if top not in modules:
        raise MadlError(
            f"yosys' report has no unit {top}; it has {', '.join(modules) or 'nothing'}"
        )
    counted = sum(count_parts(modules, top).values())
    counted -= TRANSISTORS["full_adder"] * _count(modules, top, "full_adder")
    if counted != total:
        raise MadlError(f"yosys reports {total} transistors, its cells make {counted}")
    return modules


def _plain(name: str) -> str:
    return name.removeprefix("\\")


def base_name(module: str) -> str:
    """The name in the source of what yosys calls `$paramod$…\\name` or `$paramod\\name\\W=…`."""
    return module.split("\\")[1] if module.startswith("$paramod") else module


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
    """Add the transistors of a module, `times` over, and of all below it to `counts`, by part.

    `around` is the part of what contains it; `sealed`: all but accumulators count as that.
    """
    name = base_name(module)
    part = PARTS.get(name, around)
    part = around if sealed and part != ACCUMULATOR else part
    for cell, count in modules[module].items():
        if cell in modules:
            inside = sealed or name in SEALED
            _add_parts(modules, cell, part, inside, times * count, counts)
        elif cell in TRANSISTORS:
            counts[part] += TRANSISTORS[cell] * count * times
        elif cell != NO_GATES:
            raise MadlError(f"yosys left a cell {cell} in {name}, which is no gate of the set")


def _count(modules: Modules, module: str, kind: str) -> int:
    """The number of cells of a kind in a module and all below it."""
    cells = modules[module].items()
    return sum(
        count * (_count(modules, cell, kind) if cell in modules else cell == kind)
        for cell, count in cells
    )
