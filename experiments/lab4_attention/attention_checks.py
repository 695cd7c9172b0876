"""What the page of attention says of its own measurements: how exact, and how well timed."""

from collections.abc import Iterable

from experiments.lab4_attention.attention_times import DTYPES
from madl.logbook.claims import Fact
from madl.logbook.records import Record, Records
from madl.logbook.stats import number, per_cent
from madl.machine import lint
from madl.machine.timing import DISTURBED


def within_tolerance(records: Records) -> Fact:
    """How many combinations agree with float64, and by how much the worst does."""
    found = [
        e["error"] / x.values["tolerance"][e["dtype"]]
        for x in records
        for e in x.values["errors"]
        if "error" in e
    ]
    tolerance = records[0].values["tolerance"]
    allowed = ", ".join(f"{title} {small(tolerance[name])}" for name, title in DTYPES.items())
    lengths = sorted({int(x.case.params["length"] or 0) for x in records})
    return Fact(
        text=f"On random inputs of {' and '.join(map(number, lengths))} positions, "
        f"{sum(share <= 1 for share in found)} of {len(found)} combinations agree with float64 "
        f"within what their dtype's rounding allows (as a share of the largest output: {allowed}); "
        f"the worst error is {per_cent(max(found))} of its tolerance",
        of=f"{len(found)} combinations of device, form, dtype, mask and pass",
    )


def wrong_scales(record: Record) -> Fact:
    """The error of a wrong scale on inputs of ones, against that on random inputs."""
    found = record.values["scales"]
    ones = max(e["all ones"] for e in found.values())
    drawn = min(e["random"] for e in found.values())
    return Fact(
        text=f"With a wrong scale in FP32, inputs of ones give an error of at most {small(ones)} "
        f"of the largest output, where {small(record.values['tolerance']['float32'])} is allowed; "
        f"random inputs give one of at least {per_cent(drawn)}",
        of=f"{len(found)} wrong scales",
    )


def linted(kinds: Iterable[Records]) -> Fact:
    """Each timing against the naive form of the same problem, and that against itself."""
    runs = [x.values["measurements"] for records in kinds for x in records]
    said, count = lint.failing(
        (m[name], m.get(f"naive {name.partition(' ')[2]}", m[name])) for m in runs for name in m
    )
    most = f"{lint.CONTENDED:.0%}".replace("%", " %")
    return Fact(
        text=f"The measurement linter's checks that a timing of this page fails: {said}. The "
        f"machine is quiet if others use at most {most} of it during that one timing, and at most "
        f"{most} of its samples take over {DISTURBED:g} × their median; the row Crowded, below, "
        f"counts whole cases during which others used more than {most}",
        of=f"{len(lint.CHECKS) + 1} checks of {count} timings",
    )


def small(value: float) -> str:
    """A number near zero: "1.4e-15"; zero is "0"."""
    return f"{value:.2g}".replace("e-0", "e-")
