"""The command line: `python cli.py all && mkdocs build` makes the logbook.

Results go to stdout, the log to stderr; exit status 1 means that a case failed or a question is
open, 2 that the command was wrong, 130 that it was stopped. Every command is a thin call into the
library, and torch is imported only where a case runs.
"""

import errno
import json
import logging
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from madl.errors import MadlError

if TYPE_CHECKING:
    from madl.logbook.records import Store
    from madl.running.plans import StoredPlan
    from madl.running.project import Project
    from madl.running.runner import Progress
    from madl.site.report import Ledger

Command = TypeVar("Command", bound=Callable[..., Any])
log = logging.getLogger("madl")


class _Group(click.Group):
    """Errors that the user can fix become one line at this edge, and nowhere else."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except MadlError as error:
            raise click.ClickException(str(error)) from error
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                raise click.ClickException(
                    f"the disk is full ({error.filename or '.madl'}); free some space and run the "
                    "same command again, finished cases are kept"
                ) from error
            raise
        except KeyboardInterrupt:
            click.echo("\nstopped; run the same command again to go on", err=True)
            sys.exit(130)


def _options(*chosen: str) -> Callable[[Command], Command]:
    """The common options, by name; the same everywhere they appear."""
    known = {
        "stems": click.argument("stems", nargs=-1, metavar="[EXPERIMENT]..."),
        "profile": click.option(
            "--profile", default="quick", show_default=True, help="smoke, quick or full."
        ),
        "workload": click.option(
            "--workload",
            type=click.Choice(["snippets", "imdb"]),
            default="snippets",
            show_default=True,
            help="Model and data set of the run.",
        ),
        "model": click.option("--model", help="Another model: a hub id, or a folder."),
        "dataset": click.option("--dataset", help="Other data: a hub id, or a folder."),
        "device": click.option(
            "--device", default="auto", show_default=True, help="auto, cpu or cuda."
        ),
        "jobs": click.option(
            "--jobs",
            type=click.IntRange(min=1),
            help="Cases side by side. [default: one a core, at most four]",
        ),
        "executor": click.option(
            "--executor",
            type=click.Choice(["processes", "inline", "dask"]),
            default="processes",
            show_default=True,
            help="Where cases run.",
        ),
        "scheduler": click.option(
            "--scheduler",
            metavar="ADDRESS",
            help="Dask's: tcp://host:port, or its scheduler file.",
        ),
        "shard": click.option(
            "--shard", default="1/1", show_default=True, help="i/n: this machine's share."
        ),
        "force": click.option("--force", is_flag=True, help="Run finished cases again."),
        "as_json": click.option("--json", "as_json", is_flag=True, help="For programs."),
    }

    def decorate(command: Command) -> Command:
        for name in reversed(chosen):
            command = known[name](command)
        return command

    return decorate


PLAN = ("profile", "workload", "model", "dataset")
RUN = ("stems", *PLAN, "device", "jobs", "executor", "scheduler", "shard", "force")


@click.group(cls=_Group, context_settings={"help_option_names": ["-h", "--help"]})
@click.option("-v", "--verbose", is_flag=True, help="Log more, tracebacks of failed cases too.")
def main(verbose: bool) -> None:
    """Answer the labs' questions from results measured on this machine."""
    logging.basicConfig(
        level=logging.DEBUG if verbose else logging.INFO, stream=sys.stderr, format="%(message)s"
    )
    for noisy in ("httpx", "urllib3", "filelock", "matplotlib", "fsspec", "datasets", "asyncio"):
        logging.getLogger(noisy).setLevel(logging.WARNING)


@main.command("all")
@_options(*RUN)
def all_(**given: Any) -> None:
    """Run what is left, then render every page."""
    failed = _run(**given)
    _report(**{name: given[name] for name in PLAN})
    sys.exit(1 if failed else 0)


@main.command()
@_options(*RUN)
def run(**given: Any) -> None:
    """Run experiments, and what they need, without rendering."""
    sys.exit(1 if _run(**given) else 0)


@main.command()
@_options(*PLAN)
def report(**given: Any) -> None:
    """Render pages, figures and the ledger from the records that are there."""
    _report(**given)


@main.command()
@_options(*PLAN, "as_json")
@click.option("--strict", is_flag=True, help="Exit with 1 if a question is not answered.")
def checklist(as_json: bool, strict: bool, **given: Any) -> None:
    """List every question: answered, partly, or open."""
    from madl.site import report as reports
    from madl.site.views import pages

    plan, _ = _plan(**given)
    state = reports.ledger(plan.project, pages(plan))
    if as_json:
        click.echo(json.dumps({"questions": state.rows}, indent=1))
    else:
        for row in state.rows:
            click.echo(f"{row['id']:<5} {row['status']:<9} {row['title']}")
        click.echo(_summary(state))
    sys.exit(1 if strict and not state.is_complete else 0)


@main.command()
@_options("stems", *PLAN, "as_json")
def status(stems: tuple[str, ...], as_json: bool, **given: Any) -> None:
    """Show what is done, failed and left, and whether code has changed since."""
    from madl.running import plans

    plan, store = _plan(**given)
    rows = [plans.state_of(plan, store, name) for name in plans.with_needs(plan.project, stems)]
    if as_json:
        click.echo(json.dumps({"experiments": rows}, indent=1))
        return
    for row in rows:
        changed = f", {row['changed']} from older code" if row["changed"] else ""
        counts = f"{row['ok']} of {row['cases']} done, {row['failed']} failed, {row['left']} left"
        counts += f", {row['skipped']} not for this machine" if row["skipped"] else ""
        click.echo(f"{row['name']:<22} {counts}{changed}")
        for error in row["errors"]:
            click.echo(f"{'':<22} {error}")


@main.command()
@_options("as_json")
def formats(as_json: bool) -> None:
    """List the number formats with their bits and range."""
    from madl.formats import presets

    known = presets().values()
    if as_json:
        rows = [{"name": f.name, "bits": f.bits, "range": f.range} for f in known]
        click.echo(json.dumps({"formats": rows}, indent=1))
        return
    for f in known:
        where = "{:.6g} … {:.6g}".format(*f.range) if f.range else "scaled by the data"
        click.echo(f"{f.name:<28} {f.bits:>6g} bits  {where}")


@main.command()
@_options("stems", *PLAN)
def publish(stems: tuple[str, ...], **given: Any) -> None:
    """Put this machine's records under docs/data, to be committed as evidence."""
    from madl.logbook import records as results
    from madl.running import plans

    plan, _ = _plan(**given)
    for name in plans.with_needs(plan.project, stems):
        records = plan.finished(name) if plan.is_ready(name) else []
        if records:
            path = plan.project.docs / "data" / f"{name}.jsonl"
            click.echo(f"{results.publish(records, path)} records of {name} in {path}")


@main.command()
@_options("stems", *PLAN)
@click.option(
    "--repeat",
    "times",
    type=click.IntRange(min=2),
    help="Instead, run what measures time so often, and show which verdicts changed.",
)
def doctor(stems: tuple[str, ...], times: int | None, **given: Any) -> None:
    """Show what this machine can do and what is missing for the rest."""
    from madl.machine import device

    if times is not None:
        _repeat(stems, times, **given)
        return
    for what, found in device.diagnose().items():
        click.echo(f"{what:<12} {found}")


def _repeat(stems: tuple[str, ...], times: int, **given: Any) -> None:
    from madl.machine import device
    from madl.site import repeats

    device.wait_briefly()
    plan, store = _plan(**given)
    found: list[repeats.Verdicts] = []
    for verdicts in repeats.repeat(plan, store, repeats.timed_stems(plan, stems), times):
        found.append(verdicts)
        log.info("run %d of %d done", len(found), times)
    flips = repeats.flips(found)
    for name, counts in flips.items():
        click.echo(f"{name:<40} {', '.join(f'{n} × {v}' for v, n in counts.items())}")
    click.echo(f"{len(flips)} of {len(found[0])} verdicts changed in {times} runs")


@main.command(context_settings={"ignore_unknown_options": True})
@click.argument("name", required=False)
@click.argument("arguments", nargs=-1)
def bench(name: str | None, arguments: tuple[str, ...]) -> None:
    """Run a benchmark of benchmarks/; without a name, list them."""
    project = _project()
    scripts = {path.stem: path for path in sorted((project.root / "benchmarks").glob("[!_]*.py"))}
    if name is None:
        click.echo("\n".join(scripts) or "no benchmarks")
        return
    if name not in scripts:
        raise MadlError(f"unknown benchmark {name!r}; known: {', '.join(scripts) or 'none'}")
    environment = {**os.environ, "PYTHONPATH": str(project.root)}
    sys.exit(subprocess.call([sys.executable, str(scripts[name]), *arguments], env=environment))


def _project() -> "Project":
    from madl.running.project import Project

    root = os.environ.get("MADL_ROOT")
    return Project(Path(root).resolve()) if root else Project()


def _plan(
    *, profile: str, workload: str, model: str | None, dataset: str | None
) -> "tuple[StoredPlan, Store]":
    from madl.logbook.records import Store
    from madl.running.plans import StoredPlan, profile_named
    from madl.training import workloads

    project = _project()
    chosen = workloads.resolve(workload, model=model, dataset=dataset)
    store = Store(project.state)
    return StoredPlan(project, store, profile_named(profile), chosen.params()), store


def _run(
    *,
    stems: tuple[str, ...],
    device: str,
    jobs: int | None,
    executor: str,
    scheduler: str | None,
    shard: str,
    force: bool,
    **given: Any,
) -> int:
    """Run and show; returns how many cases failed."""
    from madl.machine import device as machine
    from madl.running import plans, runner

    plan, store = _plan(**given)
    share = plans.parse_shard(shard)
    for stem in stems:
        plan.project.load(stem)
    machine.wait_briefly()
    if (executor == "dask") != (scheduler is not None):
        raise MadlError("--executor dask and --scheduler ADDRESS go together; see docs/usage.md")
    if scheduler is not None:  # each worker has its own devices
        options = plans.Options(device=device, force=force, shard=share, scheduler=scheduler)
    else:
        chosen, why = machine.resolve(device)
        log.info("device %s (%s)", chosen, why)
        workers = 1 if executor == "inline" else jobs or min(machine.num_cores(), 4)
        jobs = 1 if chosen == "cuda" else workers
        options = plans.Options(device=chosen, jobs=jobs, force=force, shard=share)
    failed = done = 0
    for progress in _shown(runner.run(plan, store, stems, options)):
        done += 1
        failed += progress.record.status == "failed"
    log.info("%d cases run, %d failed", done, failed)
    return failed


def _shown(events: "Iterator[Progress]") -> "Iterator[Progress]":
    """On a terminal a bar with the time left, else one plain line for each finished case."""
    if not sys.stderr.isatty():
        for event in events:
            log.info(_line(event))
            yield event
        return
    from madl.running.console import progress_bar

    yield from progress_bar(events, _line)


def _line(event: "Progress") -> str:
    record = event.record
    accuracy = record.values.get("accuracy")
    gave = record.error or (f"accuracy {accuracy:.3f}" if accuracy is not None else record.status)
    place = f"[{event.done}/{event.total}] {record.case.experiment} {event.label}".rstrip()
    return f"{place}  {gave}  {record.seconds:.0f} s, {event.left_s:.0f} s left"


def _report(**given: Any) -> None:
    from madl.site import report as reports

    plan, store = _plan(**given)
    state = reports.write(plan, store)
    click.echo(_summary(state))


def _summary(state: "Ledger") -> str:
    counts = ", ".join(f"{state.count(s)} {s}" for s in ("answered", "partly", "open"))
    return f"{len(state.rows)} questions: {counts}"


if __name__ == "__main__":
    main()
