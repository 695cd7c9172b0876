"""A unit's gates as a graph: its longest path in a stated delay model, and what pipelining adds.

Delays are those of logical effort where each gate drives four times its own load: (parasitic delay
+ 4 · effort) / 5, so that an inverter takes 1. A pipeline is cut as late as each gate's inputs let,
and a signal is kept in a flip-flop at each cut that it crosses. Inputs come at the stage that needs
them first; they and the results are held by what surrounds the unit, and not counted.

Source: Sutherland, Sproull and Harris 1999, Logical Effort, chapters 1 and 4; here a full
adder's carry is a majority gate, its sum two XORs.
Units: delays and periods in FO4, the delay of an inverter that drives four of its kind.
Not handled: wires, drive strengths, fan-out, retiming for fewer flip-flops.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

from madl.errors import MadlError


def _delay(parasitic: float, effort: float) -> float:
    return (parasitic + 4 * effort) / 5


XOR = _delay(4, 4)
DELAYS: Mapping[str, float] = {
    "$_NOT_": _delay(1, 1),
    "$_NAND_": _delay(2, 4 / 3),
    "$_NOR_": _delay(2, 5 / 3),
    **dict.fromkeys(("$_AOI3_", "$_OAI3_"), _delay(7 / 3, 2)),
    **dict.fromkeys(("$_AOI4_", "$_OAI4_"), _delay(4, 2)),
    **dict.fromkeys(("$_XOR_", "$_XNOR_"), XOR),
    "$_NMUX_": _delay(4, 2),
    "$_MUX_": _delay(4, 2) + _delay(1, 1),
    "CARRY": _delay(6, 4),
    "SUM": 2 * XOR,
}
_OUTPUTS = ("Y", "CARRY", "SUM")


@dataclass(frozen=True, slots=True, kw_only=True)
class Netlist:
    """`made`: a signal → the delay of what makes it, and the signals it is made of, in an order in
    which each comes after those. Constants are no signals."""

    inputs: frozenset[str]
    outputs: Sequence[str]
    made: Mapping[str, tuple[float, Sequence[str]]]

    @property
    def delay(self) -> float:
        """Of the longest path."""
        at = dict.fromkeys(self.inputs, 0.0)
        for signal, (delay, sources) in self.made.items():
            at[signal] = max((at[one] for one in sources), default=0.0) + delay
        return max((at[one] for one in self.outputs), default=0.0)

    def pipelined(self, period: float) -> tuple[int, int]:
        """Stages, and flip-flops between them, where a new result comes every `period`.

        Raises:
            ValueError: a gate is slower than that.
        """
        slowest = max((delay for delay, _ in self.made.values()), default=0.0)
        if period < slowest:
            raise ValueError(f"a period of {period:g} is shorter than a gate's {slowest:g}")
        stage, at = dict.fromkeys(self.inputs, 0), dict.fromkeys(self.inputs, 0.0)
        kept_until: dict[str, int] = {}
        given: dict[str, int] = {}  # an input comes when it is needed first
        for signal, (delay, sources) in self.made.items():
            own = max((stage[one] for one in sources), default=0)
            start = max((at[one] for one in sources if stage[one] == own), default=0.0)
            if start + delay > period + 1e-9:
                own, start = own + 1, 0.0
            stage[signal], at[signal] = own, start + delay
            for one in sources:
                kept_until[one] = max(kept_until.get(one, 0), own)
                if one in self.inputs:
                    given[one] = min(given.get(one, own), own)
        last = max((stage[one] for one in self.outputs), default=0)
        kept_until |= dict.fromkeys(self.outputs, last)
        made_in = stage | given
        flip_flops = sum(until - made_in[one] for one, until in kept_until.items())
        return last + 1, flip_flops


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
    gates: list[tuple[float, str, list[str]]] = []
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
            gates += _gate(words[0], words[1:])
    return _ordered(inputs, outputs, gates, same)


def _gate(kind: str, pins: Iterable[str]) -> list[tuple[float, str, list[str]]]:
    """Each of a cell's outputs: its delay, its name, the cell's inputs."""
    ends = dict(pin.split("=", 1) for pin in pins)
    sources = [signal for pin, signal in ends.items() if pin not in _OUTPUTS]
    found: list[tuple[float, str, list[str]]] = []
    for pin in _OUTPUTS:
        if pin in ends:
            name = kind if pin == "Y" else pin
            if name not in DELAYS:
                raise MadlError(f"yosys left a cell {kind}, which has no delay here")
            found.append((DELAYS[name], ends[pin], sources))
    return found


def _ordered(
    inputs: Sequence[str],
    outputs: Sequence[str],
    gates: Sequence[tuple[float, str, list[str]]],
    same: Mapping[str, str | None],
) -> Netlist:
    def named(signals: Iterable[str]) -> list[str]:
        found: dict[str, None] = {}
        for signal in signals:
            own: str | None = signal
            while own is not None and own in same:
                own = same[own]
            if own is not None and own in known:
                found[own] = None
        return list(found)

    known = {*inputs, *(signal for _, signal, _ in gates)}
    made = {signal: (delay, named(sources)) for delay, signal, sources in gates}
    try:
        order = list(TopologicalSorter({s: of for s, (_, of) in made.items()}).static_order())
    except CycleError as error:
        raise MadlError("yosys left gates in a circle") from error
    return Netlist(
        inputs=frozenset(inputs),
        outputs=named(outputs),
        made={signal: made[signal] for signal in order if signal in made},
    )
