"""What replicates: verdicts of other runs, machines, profiles and data beside a page's own."""

from collections import Counter
from collections.abc import Sequence

from madl.logbook import benchmarks
from madl.logbook.claims import Finding
from madl.logbook.records import Pending
from madl.logbook.stats import Interval, number
from madl.site import evidence
from madl.site.evidence import chip, inline
from madl.site.views import View
from madl.training import workloads

DECIDED = ("supported", "refuted")


def again(stem: str, made: Finding) -> str:
    """What the last repeated runs of the timings found of a claim; empty without any of it."""
    try:
        found = benchmarks.rows("repeats", claim=f"{stem}.{made.name}")
    except Pending:
        return ""
    if not found or found[0]["hypothesis"] != made.hypothesis or made.evidence is None:
        return ""
    row, unit = found[0], made.evidence.unit
    counts = {name: row[name] for name in benchmarks.OUTCOMES if name in row}
    said = ", ".join(f"{count} × {name}" for name, count in counts.items())
    effects = row["effects"]
    shown = f"; effects {number(min(effects))} to {number(max(effects))} {unit}" if effects else ""
    interval = Interval(*map(unit.shown, made.evidence.interval))
    if outside := sum(not interval.holds(effect) for effect in effects):
        shown += (
            f", {outside} outside the interval above: it is of one run, and what differs from run "
            "to run is not in it"
        )
    return f"{sum(counts.values())} runs one after the other: {said}{shown}"


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
    other = workloads.differences(view.plan.workload, here.plan.workload)
    profile = view.plan.profile.name
    return ", ".join([*other, view.machine, profile, view.date, view.progress])


def _cell(made: Finding) -> str:
    effect = f"<br><small>{inline(evidence.effect(made.evidence))}</small>" if made.evidence else ""
    return chip(made.verdict) + effect


def _compared(here: View, other: View) -> str:
    """How what is decided here came out there, what is decided only there, and how near all is."""
    decided = {n: f.verdict for n, f in here.findings.items() if f.verdict in DECIDED}
    there = {name: other.findings[name].verdict for name in here.findings}
    turned = [n for n in decided if there[n] in DECIDED and there[n] != decided[n]]
    counts = Counter(there[name] for name in decided if there[name] not in DECIDED)
    alike = len(decided) - len(turned) - counts.total()
    parts = [f"{alike} come out alike", f"{len(turned)} the other way round"]
    parts += [f"{number} {verdict}" for verdict, number in counts.items()]
    flips = [f"“{here.findings[name].hypothesis.rstrip('.')}”" for name in turned]
    named = f": {'; '.join(flips)}" if flips else ""
    only_there = sum(verdict in DECIDED for verdict in there.values()) - alike - len(turned)
    where = _title(other, here).rpartition(", ")[0]
    ours = {case.key for case in here.cases} if other.machine == here.machine else set[str]()
    if shared := sum(case.key in ours for case in other.cases):
        where += f"; {shared} of its {len(other.cases)} cases are this page's own"
    hypotheses = "hypothesis" if len(decided) == 1 else "hypotheses"
    said = f"Of {len(decided)} {hypotheses} decided here, {', '.join(parts)}"
    effects = [(here.findings[name].evidence, other.findings[name].evidence) for name in there]
    held = [a.interval.holds(b.effect) for a, b in effects if a and b]
    return (
        f"{said if decided else 'No hypothesis is decided here'} ({where}){named}"
        f"{f'; {only_there} decided there are open here' if only_there else ''}"
        f"; {sum(held)} of {len(held)} effects there lie in the intervals here."
    )
