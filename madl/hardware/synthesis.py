"""Gates of a unit, by yosys: cells, transistors by part, and the longest path.

The unit is mapped to NAND, NOR and NOT (or to the larger set `cmos4`) with its modules kept, so
each distinct module is worked on once and its gates can be told apart; the longest path is taken
after flattening.

Units: `transistors` of static CMOS (NOT 2, NAND and NOR 4); `depth` in gates.
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

from madl.errors import MadlError
from madl.hardware import tools
from madl.hardware.units import SOURCES, Unit

# transistors of a gate in static CMOS, as yosys' `stat -tech cmos` has them
TRANSISTORS = {
    **{"$_NOT_": 2, "$_NAND_": 4, "$_NOR_": 4},
    **{"$_AOI3_": 6, "$_OAI3_": 6, "$_AOI4_": 8, "$_OAI4_": 8},
}
GATE_SETS = ("cmos2", "cmos4")

# What a module's own gates are for; one that is not named here counts with what contains it.
PARTS = {
    "multiply_signed": "multipliers",
    "multiply_unsigned": "multipliers",
    "adder_tree": "adders",
    "add_fp32": "adders",
    "align_term": "lane exponents",
    "maximum_tree": "lane exponents",
    "float_product": "lane exponents",
    "mxint_bf16_product": "lane exponents",
    "decode_float": "lane exponents",
    "apply_sign": "signs",
    "multiply_sign_magnitude": "signs",
    "multiply_fp32": "rounding",
    "round_fp32": "rounding",
    "add_scales": "scales and result",
    "combine_blocks": "scales and result",
    "to_fp32": "scales and result",
}
SEALED = ("add_fp32", "to_fp32")  # all that these contain counts with them
REST = "scales and result"


@dataclass(frozen=True, slots=True, kw_only=True)
class Gates:
    """What a unit is made of."""

    cells: int
    transistors: int
    parts: Mapping[str, int]  # transistors
    depth: int
    input_bits: int
    gate_set: str
    tool: str

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "parts": dict(self.parts)}


def synthesize(unit: Unit, *, gate_set: str = "cmos2") -> Gates:
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
        for source in SOURCES.glob("*.v"):  # yosys as WebAssembly sees its own folder only
            shutil.copy(source, folder)
        tools.run([*command, "-q", "-p", script(unit, gate_set)], cwd=folder)
        modules = read_stat(folder / "stat.json", unit.top)
        depth = read_depth(folder / "depth.txt")
    parts = count_parts(modules, unit.top)
    return Gates(
        cells=sum(_all_gates(modules, unit.top).values()),
        transistors=sum(parts.values()),
        parts=parts,
        depth=depth,
        input_bits=unit.input_bits,
        gate_set=gate_set,
        tool=tools.yosys_version(),
    )


def script(unit: Unit, gate_set: str) -> str:
    """The commands that yosys is given."""
    numbers = " ".join(f"-chparam {name} {value}" for name, value in unit.parameters.items())
    return "; ".join(
        (
            "read_verilog -defer *.v",
            f"hierarchy -check -top {unit.top} {numbers}",
            f"synth -top {unit.top}",
            f"abc -g {gate_set}",
            "tee -q -o stat.json stat -json -tech cmos",
            "flatten",
            "opt_clean",
            "tee -q -o depth.txt ltp -noff",
        )
    )


Modules = Mapping[str, Counter[str]]  # name → its own gates and the modules it contains


def read_stat(path: Path, top: str) -> Modules:
    """yosys' report, checked: some versions stop in the middle and still end well.

    Raises:
        MadlError: no report, not JSON, no such unit in it, or its numbers do not add up.
    """
    try:
        data = json.loads(path.read_text("utf-8"))
        modules = {
            _plain(name): Counter({_plain(k): int(v) for k, v in m["num_cells_by_type"].items()})
            for name, m in data["modules"].items()
        }
        said = int(data["design"]["estimated_num_transistors"])
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
