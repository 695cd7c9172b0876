"""A unit's gates as a graph: its longest path in a stated delay model, and what pipelining adds.

Delays are those of logical effort: (parasitic delay + load) / 5, so that an inverter that drives
four of its kind takes 1. The load is what a signal's gates ask for, in inverters. Where it is
faster, a tree of inverters of four stands between; each of its levels takes 1, and its inverters
count as `drivers` (whether a signal comes out inverted is not followed). Inputs are driven as
if by an inverter.

A pipeline is cut as late as each gate's inputs let, from the start of the first stage that makes
registers fewest. A signal is kept in a flip-flop at each cut that it crosses, and has its load to
drive again behind it. Inputs come at the stage that needs them first; a last row of flip-flops
is the accumulator.

Source: Sutherland, Sproull and Harris 1999, Logical Effort, chapters 1 and 4; a full adder is a
majority gate and an inverter for its carry, two XORs for its sum.
Units: delays and periods in FO4, the delay of an inverter that drives four of its kind; loads in
inverters.
Not handled: wires, sizes of gates, what a flip-flop takes of a period, retiming beyond the start.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

from madl.errors import MadlError

# Of an output: the delay up to its last gate, and that gate's parasitic delay.
OUTPUTS: Mapping[str, tuple[float, float]] = {
    "$_NOT_": (0, 1),
    "$_NAND_": (0, 2),
    "$_NOR_": (0, 2),
    **dict.fromkeys(("$_AOI3_", "$_OAI3_"), (0, 7 / 3)),
    **dict.fromkeys(("$_AOI4_", "$_OAI4_", "$_NMUX_", "$_XOR_", "$_XNOR_"), (0, 4)),
    "$_MUX_": ((4 + 1) / 5, 1),
    "carry": ((6 + 1) / 5, 1),
    "sum": ((4 + 4) / 5, 4),
}
LOADS: Mapping[str, float] = {  # of an input
    "$_NOT_": 1,
    "$_NAND_": 4 / 3,
    "$_NOR_": 5 / 3,
    **dict.fromkeys(("$_AOI3_", "$_OAI3_", "$_AOI4_", "$_OAI4_", "$_NMUX_", "$_MUX_"), 2),
    **dict.fromkeys(("$_XOR_", "$_XNOR_", "full_adder"), 4),
}
_PINS = ("Y", "carry", "sum")
OF_RESULT = 4.0  # what an output of the unit drives
STARTS = 8  # of the first stage that are tried


@dataclass(frozen=True, slots=True, kw_only=True)
class Netlist:
    """`made`: a signal → the delay of what makes it, its load's included, and the signals it is
    made of, in an order in which each comes after those. `again`: a signal → the delay of an
    inverter that drives its load. Constants are no signals."""

    inputs: frozenset[str]
    outputs: Sequence[str]
    made: Mapping[str, tuple[float, Sequence[str]]]
    again: Mapping[str, float]
    drivers: int

    @property
    def delay(self) -> float:
        """Of the longest path."""
        at = {one: self.again[one] for one in self.inputs}
        for signal, (delay, sources) in self.made.items():
            at[signal] = max((at[one] for one in sources), default=0.0) + delay
        return max((at[one] for one in self.outputs), default=0.0)

    def pipelined(self, period: float) -> tuple[int, int]:
        """Stages, and flip-flops, where a new result comes every `period`.

        Raises:
            ValueError: a gate is slower than that.
        """
        tried = [self._cut(period, period * i / STARTS) for i in range(STARTS)]
        return min(tried, key=lambda one: (one[1], one[0]))

    def _cut(self, period: float, start: float) -> tuple[int, int]:
        stage = dict.fromkeys(self.inputs, 0)
        at = {one: start + self.again[one] for one in self.inputs}
        kept_until: dict[str, int] = {}
        given: dict[str, int] = {}  # an input comes when it is needed first

        def ready(one: str, own: int) -> float:
            return at[one] if stage[one] == own else self.again[one]

        for signal, (delay, sources) in self.made.items():
            own = max((stage[one] for one in sources), default=0)
            end = max((ready(one, own) for one in sources), default=0.0) + delay
            if end > period:
                own += 1
                end = max(self.again[one] for one in sources) + delay
            if end > period:
                raise ValueError(f"a period of {period:g} is shorter than a gate's {end:.1f}")
            stage[signal], at[signal] = own, end
            for one in sources:
                kept_until[one] = max(kept_until.get(one, 0), own)
                if one in self.inputs:
                    given[one] = min(given.get(one, own), own)
        last = max((stage[one] for one in self.outputs), default=0)
        kept_until |= dict.fromkeys(self.outputs, last + 1)
        made_in = stage | given
        flip_flops = sum(until - made_in[one] for one, until in kept_until.items())
        return last + 1, flip_flops


def driven(load: float) -> tuple[float, int]:
    """What a load adds to a delay, and the inverters between: so many levels as make it least."""
    levels = min(range(12), key=lambda k: load / 4**k / 5 + k)
    between = sum(load / 4 ** (k + 1) for k in range(levels))
    return load / 4**levels / 5 + levels, math.ceil(between)


def read(path: Path) -> Netlist:
    """What yosys wrote as BLIF, with its gates and without modules.

    Raises:
        MadlError: no such file, a cell without a delay, or gates in a circle.
    """
    try:
        lines = path.read_text("utf-8").replace("\\\n", " ").splitlines()
    except OSError as error:
        raise MadlError(
            f"yosys ended without a netlist ({type(error).__name__}: {error})"
        ) from error
    inputs: list[str] = []
    outputs: list[str] = []
    gates: list[tuple[str, list[str]]] = []
    same: dict[str, str | None] = {}  # a signal with two names; None: a constant
    for line in lines:
        what, *words = line.split() or ("",)
        if what == ".inputs":
            inputs += words
        elif what == ".outputs":
            outputs += words
        elif what == ".names":
            same[words[-1]] = words[0] if len(words) == 2 else None
        elif what in (".gate", ".subckt"):
            gates.append((words[0], words[1:]))
    return _netlist(inputs, outputs, gates, same)


def _netlist(
    inputs: Sequence[str],
    outputs: Sequence[str],
    gates: Sequence[tuple[str, Sequence[str]]],
    same: Mapping[str, str | None],
) -> Netlist:
    kinds: dict[str, tuple[str, list[str]]] = {}  # output → its kind, what it is made of
    loads: defaultdict[str, float] = defaultdict(float)

    def named(signals: Iterable[str]) -> list[str]:
        """By their first names, constants left out."""
        found: list[str] = []
        for signal in signals:
            own: str | None = signal
            while own is not None and own in same:
                own = same[own]
            if own is not None and own not in ("$true", "$false", "$undef"):
                found.append(own)
        return found

    for cell, pins in gates:
        ends = dict(pin.split("=", 1) for pin in pins)
        sources = named(signal for pin, signal in ends.items() if pin not in _PINS)
        for source in sources:
            loads[source] += LOADS.get(cell, 0)
        for pin in _PINS:
            if pin in ends:
                kinds[ends[pin]] = (cell if pin == "Y" else pin, sources)
    for output in named(outputs):
        loads[output] += OF_RESULT
    unknown = {kind for kind, _ in kinds.values()} - OUTPUTS.keys()
    if unknown:
        raise MadlError(f"yosys left a cell {min(unknown)}, which has no delay here")
    drives = {signal: driven(loads[signal]) for signal in (*inputs, *kinds)}
    try:
        order = list(TopologicalSorter({s: of for s, (_, of) in kinds.items()}).static_order())
    except CycleError as error:
        raise MadlError("yosys left gates in a circle") from error
    made: dict[str, tuple[float, Sequence[str]]] = {}
    for signal in order:
        if signal in kinds:
            kind, sources = kinds[signal]
            inside, parasitic = OUTPUTS[kind]
            made[signal] = (inside + parasitic / 5 + drives[signal][0], sources)
    return Netlist(
        inputs=frozenset(inputs),
        outputs=named(outputs),
        made=made,
        again={signal: 1 / 5 + delay for signal, (delay, _) in drives.items()},
        drivers=sum(inverters for _, inverters in drives.values()),
    )
