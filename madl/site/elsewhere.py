"""What replicates: verdicts of other runs, machines, profiles and data beside a page's own."""

import html
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import mean
from typing import Any

from madl.errors import MadlError
from madl.logbook import benchmarks
from madl.logbook.arms import Arm, TimedArm
from madl.logbook.claims import Evidence, Finding
from madl.logbook.records import Pending, Row, Scalar
from madl.logbook.stats import Interval, Unit, number
from madl.site import evidence
from madl.site.evidence import chip, inline
from madl.site.views import Page, View, in_common
from madl.training import workloads

DECIDED = ("supported", "refuted")
_LABEL = "label"
SAME_TEST = (
    "Runs of the same data are judged on the same test examples, and those of one machine share "
    "models: only other data are a fresh test."
)


def again(page: Page, made: Finding) -> str:
    """What the last repeated runs of the timings found of a claim.

    Empty where none were published, or another hypothesis' of that name. What these runs were of
    that the page is not is said; only of the same can a page's interval be held against them.
    """
    row = _repeated(page, made)
    if row is None or made.evidence is None:
        return ""
    unit = made.evidence.unit
    counts = {name: row[name] for name in benchmarks.OUTCOMES if name in row}
    said = ", ".join(f"{count} × {name}" for name, count in counts.items())
    effects = row["effects"]
    shown = f"; effects {number(min(effects))} to {number(max(effects))} {unit}" if effects else ""
    others = _other_runs(page.view, made.evidence, row)
    runs = [f"{sum(counts.values())} runs one after the other", *others]
    if len(runs) == 1 and (outside := _outside(made.evidence, effects)):
        shown += (
            f", {outside} outside the interval above: it is of one run, and what differs from run "
            "to run is not in it"
        )
    return f"{', '.join(runs)}: {said}{shown}"


def _repeated(page: Page, made: Finding) -> Mapping[str, Any] | None:
    """What the last repeated runs kept of a claim, while its hypothesis is the same."""
    try:
        found = benchmarks.rows("repeats", claim=f"{page.name}.{made.name}")
    except (Pending, MadlError):  # the machine's page says so
        return None
    return next((row for row in found if row["hypothesis"] == made.hypothesis), None)


def _outside(made: Evidence, effects: Sequence[float]) -> int:
    """How many effects of other runs lie outside a finding's interval."""
    interval = Interval(*map(made.unit.shown, made.interval))
    return sum(not interval.holds(effect) for effect in effects)


def _other_runs(view: View, made: Evidence, row: Mapping[str, Any]) -> list[str]:
    """What the published repeated runs of a claim are of and this view's evidence is not.

    Raises:
        Pending: none were published.
    """
    machine = benchmarks.machine("repeats")
    code = (benchmarks.kept("repeats", "code") or {}).get(view.name)
    of = row.get("of", [made.part])
    return [
        *([f"on another machine ({machine})"] if machine != view.machine else []),
        *_other_profile(view),
        *(["of other code"] if {code} != {record.run.code for record in view.own} else []),
        *([" or ".join(of)] if of != [made.part] else []),
    ]


def _other_profile(view: View) -> list[str]:
    """The profile of the published repeated runs, where this view has another."""
    profile = benchmarks.kept("repeats", "profile")
    return [f"with {profile}'s sizes and budgets"] if profile != view.plan.profile.name else []


def runs_again(pages: Iterable[Page]) -> list[str]:
    """How well the intervals of timed claims hold what the same gave when it was run again."""
    held: list[tuple[str, int, int]] = []
    for page in pages:
        for made in page.view.findings.values():
            row = _repeated(page, made)
            if row and made.evidence and not _other_runs(page.view, made.evidence, row):
                outside = _outside(made.evidence, row["effects"])
                held.append((page.questions[0].id, len(row["effects"]), outside))
    if not held:
        return []
    questions = ", ".join(dict.fromkeys(question for question, _, _ in held))
    effects, outside = sum(n for _, n, _ in held), sum(n for _, _, n in held)
    return [
        f"{len(held)} claims on times were run again with the same code and the same budget, on "
        f"{benchmarks.machine('repeats')} (in {questions}): {outside} of {effects} effects lie "
        "outside the page's 95 % interval, which is of one run: what differs from run to run is "
        "not in it."
    ]


def otherwise(page: Page, name: str) -> tuple[str, str] | None:
    """What other data or machines say against a claim decided here, as a chip, and where.

    "Not so elsewhere" is a verdict of the opposite; "open elsewhere" none at all, unless for a
    busy machine, on which nothing was tested.
    """
    made = page.view.findings[name]
    if made.verdict not in DECIDED or made.evidence is None:
        return None
    against: list[tuple[bool, str]] = []
    for other in page.others:
        found = other.findings[name]
        if found.evidence is None:
            continue
        is_open = found.verdict == "undecided" and not found.evidence.is_blocked
        if is_open or any(
            (made.evidence.effect > line) != (found.evidence.effect > line)
            for line in made.evidence.boundaries
        ):
            where = f"{_where(other, page.view)}: {evidence.effect(found.evidence)}"
            compared = _compared_in([page.view, other], name)[1]
            said = f"{where}, {found.verdict}{compared}"
            against.append((found.verdict in DECIDED, said))
    if not against:
        return _of_another_size(page, made)
    is_opposite = any(decided for decided, _ in against)
    label = "not so elsewhere" if is_opposite else "open elsewhere"
    return label, "; ".join(said for _, said in against)


def _of_another_size(page: Page, made: Finding) -> tuple[str, str] | None:
    """Where a timing was run again on the same machine and no effect lies in its interval."""
    row = _repeated(page, made)
    if row is None or made.evidence is None or not (effects := row["effects"]):
        return None
    others = _other_runs(page.view, made.evidence, row)
    if others != _other_profile(page.view) or _outside(made.evidence, effects) < len(effects):
        return None
    shown = f"{number(min(effects))} to {number(max(effects))} {made.evidence.unit}"
    runs = ", ".join([f"{len(effects)} runs", *others])
    return (
        f"{len(effects)} runs in a row: {shown}",
        f"{shown} in {runs}; here {evidence.effect(made.evidence)}",
    )


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
    names = [html.escape(_where(view, here)) for view in views]
    head = "".join(f"<th>{inline(_title(view, here))}</th>" for view in views)
    rows = "".join(
        f"<tr><td>{inline(claim.hypothesis)}</td>"
        + "".join(map(_cell, names, (v.findings[name] for v in views), _compared_in(views, name)))
        + "</tr>"
        for name, claim in measured.items()
    )
    said = "".join(f"<li>{inline(_compared(here, other))}</li>" for other in others)
    made = [one.evidence for one in here.findings.values() if one.evidence]
    is_judged = any(one.unit is Unit.POINTS for one in made)
    has_same = any(other.plan.workload == here.plan.workload for other in others)
    note = f"<p>{SAME_TEST}</p>" if is_judged and has_same else ""
    return (
        "## Elsewhere\n\n"
        f'<div class="register">{note}<ul>{said}</ul><table><thead><tr><th>Hypothesis</th>'
        f"{head}</tr></thead><tbody>{rows}</tbody></table></div>\n"
    )


def _has(view: View, name: str) -> bool:
    return name in view.findings and view.findings[name].verdict != "not measured"


def _title(view: View, here: View) -> str:
    older = ["of older code"] if view.is_older else []
    return ", ".join([_where(view, here), view.date, view.progress, *older])


def _where(view: View, here: View) -> str:
    other = workloads.differences(view.plan.workload, here.plan.workload)
    return ", ".join([*other, view.machine, view.plan.profile.name])


def _compared_in(views: Sequence[View], name: str) -> list[str]:
    """What a claim compares in each view; nothing where it is the same in all that have it."""
    parts = [made.part if (made := view.findings[name].evidence) else "" for view in views]
    if len({part for part in parts if part}) > 1:
        return [f" ({part})" if part else "" for part in parts]
    told = [_told(view, name) for view in views]
    known = [one for one in told if one]
    fields = {field: None for sides in known for side in sides for field in side}
    differing = [
        field
        for field in fields
        if len({tuple(side.get(field) for side in sides) for sides in known}) > 1
        and not _is_told_once(views, field)
    ]
    if not differing:
        return [""] * len(views)
    if _LABEL in differing:  # it says all
        differing = [_LABEL]
    said = [dict.fromkeys(filter(None, (_shown(s, differing) for s in sides))) for sides in told]
    return [f" ({' against '.join(sides)})" if sides else "" for sides in said]


def _is_told_once(views: Sequence[View], field: str) -> bool:
    """Whether all cases of each page that have this parameter have one value.

    What differs between such pages is told with the counts, `_other_parameters`.
    """
    having = [v for v in views if any(field in case.params for case in v.cases)]
    return bool(having) and all(field in view.in_common for view in having)


def _told(view: View, name: str) -> list[dict[str, Scalar]]:
    """What tells the sides of a claim: labels and, of models, what their cases have in common.

    Of a claim without two sides, what all of its cases have in common.
    """
    sides, made = view.sides(name), view.findings[name]
    if sides is None:
        return [{_LABEL: "", **in_common(made.cases)}] if made.cases else []
    return [_side(arm) for arm in sides]


def _side(arm: Arm | TimedArm) -> dict[str, Scalar]:
    if isinstance(arm, TimedArm):
        return {_LABEL: arm.label}
    told = {_LABEL: arm.label, **in_common(record.case for record in arm.records)}
    return told | ({"judged": ", ".join(map(str, arm.within))} if arm.within else {})


def _shown(side: Mapping[str, Scalar], differing: Sequence[str]) -> str:
    """What differs of a side, or its label where nothing does."""
    named = [f"`{name}` {side[name]}" for name in differing if name != _LABEL and name in side]
    return ", ".join(named) or str(side[_LABEL])


def _cell(where: str, made: Finding, compared: str) -> str:
    """A verdict and its effect; where, is read on a phone, which shows no head."""
    shown = evidence.effect(made.evidence) + compared if made.evidence else ""
    small = f"<br><small>{inline(shown)}</small>" if shown else ""
    return f'<td data-of="{where}">{chip(made.verdict)}{small}</td>'


def _compared(here: View, other: View) -> str:
    """How what is decided here came out there, what is decided only there, and how near all is."""
    found = replication(here, other)
    counts = Counter(one for one in found.came_out.values() if one not in DECIDED)
    parts = [f"{len(found.alike)} came out alike", f"{len(found.turned)} the other way round"]
    parts += [f"{number} {verdict}" for verdict, number in counts.items()]
    flips = [
        f"“{here.findings[name].hypothesis.rstrip('.')}”{_compared_in([here, other], name)[1]}"
        for name in found.turned
    ]
    named = f": {'; '.join(flips)}" if flips else ""
    where = f"{_where(other, here)}, {other.date}"
    ours = {case.key for case in here.cases} if other.machine == here.machine else set[str]()
    if shared := sum(case.key in ours for case in other.cases):
        verb = "is" if shared == 1 else "are"
        where += f"; {shared} of its {len(other.cases)} cases {verb} this page's own"
    hypotheses = "hypothesis" if len(found.decided) == 1 else "hypotheses"
    said = "No hypothesis is decided here"
    if found.shared:
        said = f"What is decided here rests on the same records there, {found.shared} in all"
    if found.decided:
        beside = f" (and {found.shared} on the same records)" if found.shared else ""
        said = f"Of {len(found.decided)} {hypotheses} decided here{beside}, {', '.join(parts)}"
    return (
        f"{said} ({where}){named}"
        f"{f'; decided there and open here: {found.only_there}' if found.only_there else ''}"
        f"{_held(found)}"
        f"{_other_parameters(here, other)}."
    )


def _held(found: "Replication") -> str:
    """How many effects lie in the intervals here, and how many are not to be held against them."""
    alike, unlike = len(found.held), found.unlike
    if alike:
        said = f"; {sum(found.held)} of {alike} effects there lie in the intervals here"
        aside = f", {unlike} {'is' if unlike == 1 else 'are'} of something else, as the table tells"
        return said + aside if unlike else said
    return "; what was measured there is of something else, as the table tells" if unlike else ""


def _other_parameters(here: View, other: View) -> str:
    """What all cases of one have in common and all of the other otherwise: budgets, choices."""
    ours, theirs = here.in_common, other.in_common
    found = [
        f"`{name}` {theirs[name]} (here {ours[name]})"
        for name in ours
        if name in theirs and ours[name] != theirs[name]
    ]
    here_alone, there_alone = (
        [
            name
            for name in common
            if all(name in case.params for case in mine.cases)
            and not any(name in case.params for case in view.cases)
        ]
        for common, mine, view in ((ours, here, other), (theirs, other, here))
    )
    found += [f"`{name}` {theirs[name]} (here none)" for name in there_alone]
    found += [f"no `{name}` (here {ours[name]})" for name in here_alone]
    return f"; there with {', '.join(found)}" if found else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Replication:
    """One page's hypotheses, here and elsewhere."""

    decided: Mapping[str, str]  # name → verdict here
    came_out: Mapping[str, str]  # the same names, and their verdicts there
    only_there: int  # how many others are decided there
    held: Sequence[bool]  # of each effect that both measured, whether it lies in the interval here
    unlike: int  # how many effects both measured of different things, as the table tells
    shared: int  # how many more are decided here and rest on the very same records there

    @property
    def alike(self) -> list[str]:
        return [name for name, verdict in self.decided.items() if self.came_out[name] == verdict]

    @property
    def turned(self) -> list[str]:
        decided = [name for name, verdict in self.came_out.items() if verdict in DECIDED]
        return [name for name in decided if self.came_out[name] != self.decided[name]]


def replication(here: View, other: View) -> Replication:
    """What became elsewhere of what is decided here, unless it is of the same records there."""
    findings = {n: f for n, f in here.findings.items() if not _is_shared(here, other, n)}
    decided = {n: f.verdict for n, f in findings.items() if f.verdict in DECIDED}
    both = {
        name: (a, b)
        for name, f in findings.items()
        if (a := f.evidence) and (b := other.findings[name].evidence)
    }
    alike = [pair for name, pair in both.items() if not any(_compared_in([here, other], name))]
    open_here = findings.keys() - decided.keys()
    return Replication(
        decided=decided,
        came_out={name: other.findings[name].verdict for name in decided},
        only_there=sum(other.findings[name].verdict in DECIDED for name in open_here),
        held=[a.interval.holds(b.effect) for a, b in alike],
        unlike=len(both) - len(alike),
        shared=sum(f.verdict in DECIDED for n, f in here.findings.items() if n not in findings),
    )


def _is_shared(here: View, other: View, name: str) -> bool:
    """Whether a claim is of the same records there, borrowed ones of a third machine included."""
    ours, theirs = _rests_on(here, name), _rests_on(other, name)
    return bool(ours) and ours == theirs


def _rests_on(view: View, name: str) -> set[tuple[str, str]]:
    """The records that a claim is of, by machine and case."""
    keys = {case.key for case in view.findings[name].cases}
    return {(r.run.host, r.case.key) for r in view.stored if r.case.key in keys}


def over_pages(pages: Iterable[Page]) -> list[Row]:
    """The same over all pages: a row for each other data and machine.

    Another profile on the same of both shares cases and data, and replicates nothing.
    """
    found: dict[str, list[Replication]] = {}
    for page in pages:
        for other in page.others:
            made = replication(page.view, other)
            is_other = other.machine != page.view.machine
            is_other |= other.plan.workload != page.view.plan.workload
            if made.held and is_other:
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
    """For every two machines, how near the test accuracies are in the cases that both ran."""
    gaps: dict[str, dict[tuple[str, ...], tuple[float, str]]] = {}  # points, and the question
    for page in pages:
        ours = {record.case.key: dict(_judged(record.values)) for record in page.view.own}
        for other in page.others:
            if other.machine == page.view.machine:
                continue
            both = ", and on ".join(sorted((page.view.machine, other.machine)))
            found = gaps.setdefault(both, {})
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
        f"{len(gaps)} models come of cases that these pages show and that were run alike on "
        f"{machines}: {points.count(0)} of them with the same accuracy on test; the difference is "
        f"{mean(points):.2f} points on average, and {largest:.2f} at most (in {question})."
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
