"""Runs with a time limit, for a borrowed GPU: the groups of cases that are worth most come first.

`experiments/gpu.toml` ranks the groups. One is begun only where all of it fits in what is left
of the time, and a case only where another one as long as the last would fit.
"""

import contextlib
import io
import logging
import tarfile
import time
from collections.abc import Generator, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from madl.errors import MadlError
from madl.files import read_text, write_atomically
from madl.logbook.records import Case, Scalar, Store, decode
from madl.logbook.values import pluralize
from madl.running import runner
from madl.running.evidence import Evidence
from madl.running.pace import in_words
from madl.running.plans import Options, RunPlan, explicit_plan
from madl.running.project import read_toml, toml_entry
from madl.running.queues import Progress, cases_left
from madl.running.status import check_records

log = logging.getLogger(__name__)
SHAPE = "a group has decides, seconds, and cases, a table of parameters"


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Cases that decide something together, and the seconds that each takes, about."""

    decides: str
    case_s: float
    cases: tuple[Case, ...]


def groups(plan: RunPlan, store: Store) -> list[Group]:
    """All cases of the plan, grouped and ordered by `gpu.toml`: each in the first group that fits.

    Raises:
        MadlError: the file is no TOML, an entry of it is no group, or a case fits none.
    """
    evidence = Evidence(plan=plan, source=store.get)
    left = {case.key: case for name in plan.with_needs(()) for case in evidence.cases(name)}
    path = plan.project.experiments / "gpu.toml"
    entries: Any = read_toml(path).get("group", []) if path.exists() else []
    if not isinstance(entries, list):
        raise MadlError(f"{path}: group is no list of tables; write each as [[group]]")
    ranked: list[Group] = []
    for place, entry in enumerate(cast("list[Mapping[str, Any]]", entries), 1):
        with toml_entry(f"experiments/gpu.toml, group {place}", SHAPE):
            ranked.append(_group(entry, left.values()))
        for case in ranked[-1].cases:
            del left[case.key]
    for case in left.values():
        params = ", ".join(f"{name} {value}" for name, value in case.params.items())
        name = case.experiment
        raise MadlError(f"experiments/gpu.toml has no group for {name}, {params}; add one")
    return ranked


def _group(entry: Mapping[str, Any], cases: Iterable[Case]) -> Group:
    wanted: Mapping[str, Any] = dict(entry["cases"])
    fitting = tuple(case for case in cases if _fits(case, wanted))
    return Group(decides=str(entry["decides"]), case_s=float(entry["seconds"]), cases=fitting)


def _fits(case: Case, wanted: Mapping[str, Any]) -> bool:
    """Whether the case has each of these parameters, with the value or one of the list."""
    params: Mapping[str, Scalar] = {"experiment": case.experiment, **case.params}
    return all(
        name in params and params[name] in (values if isinstance(values, list) else [values])
        for name, values in wanted.items()
    )


def run(
    plan: RunPlan, store: Store, options: Options, *, minutes: float, pack: Path | None = None
) -> Iterator[Progress]:
    """Execute what is left, group after group, until the time is over; yield each finished case.

    After each group all records are put into the tar file `pack`.

    Raises:
        MadlError: as `groups` and `runner.run`.
    """
    until = time.monotonic() + 60 * minutes
    if pack is not None:  # a file that cannot be written is said now
        pack_records(store, pack)
    evidence = Evidence(plan=plan, source=store.get)
    if not options.force:
        check_records(evidence, plan.with_needs(()))
    ranked = groups(plan, store)
    left = {
        case.key for name in plan.with_needs(()) for case in cases_left(evidence, name, options)
    }
    if not left:  # which says why
        yield from runner.run(plan, store, (), options)
    for group in ranked:
        cases = [case for case in group.cases if case.key in left]
        needs_s, left_s = group.case_s * len(cases), until - time.monotonic()
        if not group.cases:
            log.info("no case of it is known: %s; first run what its page needs", group.decides)
        if not cases:
            continue
        work = f"{group.decides}: {pluralize(len(cases), 'case')}, about {in_words(needs_s)}"
        if needs_s > left_s:
            log.info("left out for want of time: %s", work)
            continue
        log.info("%s; %s left", work, in_words(left_s))
        names = sorted({case.experiment for case in cases})
        events = runner.run(explicit_plan(plan, group.cases), store, names, options)
        try:
            yield from _while_there_is_time(events, until)
        finally:  # after Ctrl-C, too
            if pack is not None:
                pack_records(store, pack)


def _while_there_is_time(events: Generator[Progress], until: float) -> Iterator[Progress]:
    """Pass events on, until another case as long as the last would end late, or a case fails, so
    that its group cannot become whole."""
    with contextlib.closing(events):
        for event in events:
            yield event
            is_late = time.monotonic() + event.record.seconds > until
            if event.done < event.total and (is_late or event.record.status == "failed"):
                why = "no time" if is_late else "a case failed"
                log.info("the rest of it is left out: %s", why)
                return


def pack_records(store: Store, path: Path) -> None:
    """Write all records but those of failures into a tar file, replaced as a whole.

    `tar -xzf PATH -C .madl` takes them in where another checkout of the same project is.
    """
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w:gz") as archive:
        for file in sorted((store.root / "records").glob("*/*.json")):
            with contextlib.suppress(MadlError):  # one that cannot be read is told elsewhere
                if decode(read_text(file, ""), str(file)).status != "failed":
                    archive.add(file, file.relative_to(store.root))
    write_atomically(path, content.getvalue())
