"""What replicates: verdicts of other runs, machines, profiles and data beside a page's own."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import mean
from typing import Any

from madl.logbook import benchmarks
from madl.logbook.claims import Finding
from madl.logbook.records import Pending, Row
from madl.logbook.stats import Interval, number
from madl.site import evidence
from madl.site.evidence import chip, inline
from madl.site.views import Page, View
from madl.training import workloads

DECIDED = ("supported", "refuted")


def again(stem: str, made: Finding, machine: str) -> str:
    """What the last repeated runs of the timings found of a claim of this machine's.

    Empty where none were published, or another hypothesis' of that name.
    """
    try:
        found = benchmarks.rows("repeats", claim=f"{stem}.{made.name}")
        ran_on = benchmarks.machine("repeats")
    except Pending:
        return ""
    if not found or found[0]["hypothesis"] != made.hypothesis or made.evidence is None:
        return ""
    row, unit = found[0], made.evidence.unit
    counts = {name: row[name] for name in benchmarks.OUTCOMES if name in row}
    said = ", ".join(f"{count} × {name}" for name, count in counts.items())
    effects = row["effects"]
    shown = f"; effects {number(min(effects))} to {number(max(effects))} {unit}" if effects else ""
    runs = f"{sum(counts.values())} runs one after the other"
    if ran_on != machine:
        return f"{runs}, on another machine ({ran_on}): {said}{shown}"
    interval = Interval(*map(unit.shown, made.evidence.interval))
    if outside := sum(not interval.holds(effect) for effect in effects):
        shown += (
            f", {outside} outside the interval above: it is of one run, and what differs from run "
            "to run is not in it"
        )
    return f"{runs}: {said}{shown}"


def not_so(page: Page, name: str) -> str:
    """Where else the effect of a claim decided here lies on the other side of its line."""
    made = page.view.findings[name]
    if made.verdict not in DECIDED or made.evidence is None:
        return ""
    said: list[str] = []
    for other in page.others:
        found = other.findings[name].evidence
        if found and any(
            (made.evidence.effect > line) != (found.effect > line)
            for line in made.evidence.boundaries
        ):
            said.append(f"{_where(other, page.view)}: {evidence.effect(found)}")
    return "; ".join(said)


def section(here: View, others: Sequence[View]) -> str:
    """A line for each of the others, and a row a hypothesis that one of them has measured."""
    measured = {
        name: claim
        for name, claim in here.experiment.claims.items()
        if any(_has(other, name) for other in others)
    }
    if not measured:
        return ""
    others = [other for other in others if any(_has(other, name) for name in measured)]
    views = [here, *others]
    head = "".join(f"<th>{inline(_title(view, here))}</th>" for view in views)
    rows = "".join(
        f"<tr><td>{inline(claim.hypothesis)}</td>"
        + "".join(f"<td>{_cell(view.findings[name])}</td>" for view in views)
        + "</tr>"
        for name, claim in measured.items()
    )
    said = "".join(f"<li>{inline(_compared(here, other))}</li>" for other in others)
    return (
        "## Elsewhere\n\n"
        f'<div class="register"><ul>{said}</ul><table><thead><tr><th>Hypothesis</th>'
        f"{head}</tr></thead><tbody>{rows}</tbody></table></div>\n"
    )


def _has(view: View, name: str) -> bool:
    return view.findings[name].verdict != "not measured"


def _title(view: View, here: View) -> str:
    return ", ".join([_where(view, here), view.date, view.progress])


def _where(view: View, here: View) -> str:
    other = workloads.differences(view.plan.workload, here.plan.workload)
    return ", ".join([*other, view.machine, view.plan.profile.name])


def _cell(made: Finding) -> str:
    effect = f"<br><small>{inline(evidence.effect(made.evidence))}</small>" if made.evidence else ""
    return chip(made.verdict) + effect


def _compared(here: View, other: View) -> str:
    """How what is decided here came out there, what is decided only there, and how near all is."""
    found = replication(here, other)
    counts = Counter(one for one in found.came_out.values() if one not in DECIDED)
    parts = [f"{len(found.alike)} come out alike", f"{len(found.turned)} the other way round"]
    parts += [f"{number} {verdict}" for verdict, number in counts.items()]
    flips = [f"“{here.findings[name].hypothesis.rstrip('.')}”" for name in found.turned]
    named = f": {'; '.join(flips)}" if flips else ""
    where = f"{_where(other, here)}, {other.date}"
    ours = {case.key for case in here.cases} if other.machine == here.machine else set[str]()
    if shared := sum(case.key in ours for case in other.cases):
        where += f"; {shared} of its {len(other.cases)} cases are this page's own"
    hypotheses = "hypothesis" if len(found.decided) == 1 else "hypotheses"
    said = f"Of {len(found.decided)} {hypotheses} decided here, {', '.join(parts)}"
    return (
        f"{said if found.decided else 'No hypothesis is decided here'} ({where}){named}"
        f"{f'; {found.only_there} decided there are open here' if found.only_there else ''}"
        f"; {sum(found.held)} of {len(found.held)} effects there lie in the intervals here."
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Replication:
    """One page's hypotheses, here and elsewhere."""

    decided: Mapping[str, str]  # name → verdict here
    came_out: Mapping[str, str]  # the same names, and their verdicts there
    only_there: int  # how many others are decided there
    held: Sequence[bool]  # of each effect that both measured, whether it lies in the interval here

    @property
    def alike(self) -> list[str]:
        return [name for name, verdict in self.decided.items() if self.came_out[name] == verdict]

    @property
    def turned(self) -> list[str]:
        decided = [name for name, verdict in self.came_out.items() if verdict in DECIDED]
        return [name for name in decided if self.came_out[name] != self.decided[name]]


def replication(here: View, other: View) -> Replication:
    """What became elsewhere of what is decided here."""
    decided = {n: f.verdict for n, f in here.findings.items() if f.verdict in DECIDED}
    pairs = [(f.evidence, other.findings[name].evidence) for name, f in here.findings.items()]
    open_here = other.findings.keys() - decided.keys()
    return Replication(
        decided=decided,
        came_out={name: other.findings[name].verdict for name in decided},
        only_there=sum(other.findings[name].verdict in DECIDED for name in open_here),
        held=[a.interval.holds(b.effect) for a, b in pairs if a and b],
    )


def over_pages(pages: Iterable[Page]) -> list[Row]:
    """The same over all pages: a row for each other data, machine and profile."""
    found: dict[str, list[Replication]] = {}
    for page in pages:
        for other in page.others:
            made = replication(page.view, other)
            if made.held:
                found.setdefault(_where(other, page.view), []).append(made)
    return [
        {
            "where": where,
            "pages": len(every),
            "decided here": sum(len(one.decided) for one in every),
            "alike there": sum(len(one.alike) for one in every),
            "the other way round": sum(len(one.turned) for one in every),
            "effects measured there": sum(len(one.held) for one in every),
            "in the interval here": sum(sum(one.held) for one in every),
        }
        for where, every in found.items()
    ]


def two_machines(pages: Iterable[Page]) -> list[str]:
    """For each other machine, how near the test accuracies are in the cases that both ran."""
    gaps: dict[str, dict[tuple[str, ...], tuple[float, str]]] = {}  # points, and the question
    for page in pages:
        ours = {record.case.key: dict(_judged(record.values)) for record in page.view.own}
        for other in page.others:
            if other.machine == page.view.machine:
                continue
            found = gaps.setdefault(f"{page.view.machine}, and on {other.machine}", {})
            for record in other.own:
                here = ours.get(record.case.key, {})
                for path, there in _judged(record.values):
                    if path in here:
                        gap = 100 * abs(here[path] - there)
                        found[record.case.key, *path] = gap, page.questions[0].id
    return [_nearness(machines, list(found.values())) for machines, found in gaps.items() if found]


def _nearness(machines: str, gaps: Sequence[tuple[float, str]]) -> str:
    largest, question = max(gaps)
    points = [gap for gap, _ in gaps]
    return (
        f"{len(gaps)} models come of the same cases on {machines}: {points.count(0)} have the same "
        f"accuracy on test; the difference is {mean(points):.2f} points on average, and "
        f"{largest:.1f} at most (in {question})."
    )


def _judged(values: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], float]]:
    """The test accuracies among a record's values, each with the names that lead to it."""
    if isinstance(values, Mapping):
        if "outcomes" in values and "validation" not in path:
            yield path, values["accuracy"]
        for name, value in values.items():
            yield from _judged(value, (*path, str(name)))
    elif isinstance(values, list):
        for place, value in enumerate(values):
            yield from _judged(value, (*path, str(place)))
