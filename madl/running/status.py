"""How far a plan is on this machine: what is done, what cannot run here, what cannot be read."""

import contextlib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from madl.errors import MadlError
from madl.logbook import equivalences
from madl.logbook.records import RUNS_AGAIN, Pending
from madl.logbook.values import pluralize
from madl.running.evidence import Evidence, tolerant


def check_records(evidence: Evidence, names: Sequence[str]) -> None:
    """Raises: MadlError: records of these experiments' cases cannot be read; names them all."""
    damaged: dict[str, None] = {}  # what is wrong with each
    readable = tolerant(evidence.source, lambda error: damaged.setdefault(str(error)))
    evidence = replace(evidence, source=readable)
    for name in names:
        if evidence.is_ready(name):
            evidence.finished(name)
        elif damaged:  # perhaps only therefore, and its cases may be known all the same
            with contextlib.suppress(MadlError, Pending):
                evidence.finished(name)
    if damaged:
        problems = [line.removesuffix(f"; {RUNS_AGAIN}") for line in damaged]
        them, their = ("it", "its case") if len(problems) == 1 else ("them", "their cases")
        do = f"delete {them} and {their} will run again, or run with --force"
        raise MadlError("; ".join([*problems, do]))


def explain_idle(evidence: Evidence, names: Sequence[str]) -> Iterator[str]:
    """Lines that say why no case of these experiments ran: none can, or all have results."""
    complete: list[str] = []
    plan = evidence.plan
    unsuitable = {name: why for name in names if (why := plan.why_unsuitable(name))}
    yield from (f"{name}: {why}" for name, why in unsuitable.items())
    names = [name for name in names if name not in unsuitable]
    without = [name for name in names if evidence.is_ready(name) and not evidence.cases(name)]
    if without:
        yield f"{plan.why_no_case}: {', '.join(without)}"
    for name in (name for name in names if name not in without):
        records = evidence.finished(name) if evidence.is_ready(name) else []
        skipped = [record for record in records if record.status == "skipped"]
        for why, count in Counter(record.error for record in skipped).items():
            yield f"{name}: {pluralize(count, 'case')} not for this machine: {why}"
        if not skipped and evidence.is_complete(name):
            complete.append(name)
    if complete:
        yield f"already done: {', '.join(complete)}"


def counts(evidence: Evidence, name: str) -> dict[str, Any]:
    """Counts of an experiment's cases and its errors, as the command `status` prints them."""
    damaged: dict[str, None] = {}  # what is wrong with each
    source = tolerant(evidence.source, lambda error: damaged.setdefault(str(error)))
    evidence = replace(evidence, source=tolerant(evidence.source))
    plan, ready = evidence.plan, evidence.is_ready(name)
    needs = [] if ready else plan.project.load(name).needs
    records = [source(case) for case in evidence.cases(name)] if ready else []
    kept = [r for r in records if r and not evidence.is_outdated(r)]
    ok = [r for r in kept if r.status == "ok"]
    failed = [r for r in kept if r.status == "failed"]
    skipped = [r for r in kept if r.status == "skipped" and evidence.is_finished(r)]
    code = plan.project.code(name)
    return {
        "name": name,
        "ready": ready,
        "waits_for": [need for need in needs if not evidence.is_complete(need)],
        "cases": len(records),
        "ok": len(ok),
        "failed": len(failed),
        "skipped": len(skipped),
        "damaged": len(damaged),
        "left": len(records) - sum(map(len, (ok, failed, skipped, damaged))),
        "changed": sum(record.run.code != code for record in ok),
        "age": equivalences.age(plan.project.docs / "data", name, {r.run.code for r in ok}, code),
        "errors": [
            *filter(None, [plan.why_unsuitable(name)]),
            *sorted({record.error or "" for record in [*failed, *skipped]}),
            *damaged,
        ],
    }
