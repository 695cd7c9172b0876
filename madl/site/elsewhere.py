"""What replicates: the verdicts of other machines, profiles and data beside this page's own."""

from collections import Counter
from collections.abc import Sequence

from madl.logbook.claims import Finding
from madl.site import evidence
from madl.site.evidence import chip, inline
from madl.site.views import View

DECIDED = ("supported", "refuted")


def section(here: View, others: Sequence[View]) -> str:
    """A line for each of the others, and a row a hypothesis; empty where there is nothing."""
    claims = here.experiment.claims
    if not others or not claims:
        return ""
    views = [here, *others]
    head = "".join(f"<th>{inline(_title(view, here))}</th>" for view in views)
    rows = "".join(
        f"<tr><td>{inline(claim.hypothesis)}</td>"
        + "".join(f"<td>{_cell(view.findings[name])}</td>" for view in views)
        + "</tr>"
        for name, claim in claims.items()
    )
    said = "".join(f"<li>{inline(_compared(here, other))}</li>" for other in others)
    return (
        "## Elsewhere\n\n"
        f'<div class="register"><ul>{said}</ul><table><thead><tr><th>Hypothesis</th>'
        f"{head}</tr></thead><tbody>{rows}</tbody></table></div>\n"
    )


def _title(view: View, here: View) -> str:
    profile, workload = view.plan.profile.name, view.plan.workload
    other = [str(value) for name, value in workload.items() if value != here.plan.workload[name]]
    return ", ".join([*other, view.machine, profile, view.date, view.progress])


def _cell(made: Finding) -> str:
    effect = f"<br><small>{inline(evidence.effect(made.evidence))}</small>" if made.evidence else ""
    return chip(made.verdict) + effect


def _compared(here: View, other: View) -> str:
    """How the hypotheses that are decided here came out there."""
    decided = {n: f.verdict for n, f in here.findings.items() if f.verdict in DECIDED}
    there = {name: other.findings[name].verdict for name in decided}
    turned = [n for n, verdict in there.items() if verdict in DECIDED and verdict != decided[n]]
    counts = Counter(verdict for verdict in there.values() if verdict not in DECIDED)
    alike = len(decided) - len(turned) - counts.total()
    parts = [f"{alike} come out alike", f"{len(turned)} the other way round"]
    parts += [f"{number} {verdict}" for verdict, number in counts.items()]
    flips = [f"“{here.findings[name].hypothesis.rstrip('.')}”" for name in turned]
    named = f": {'; '.join(flips)}" if flips else ""
    where = _title(other, here).rpartition(", ")[0]
    return f"Of {len(decided)} hypotheses decided here, {', '.join(parts)} ({where}){named}."
