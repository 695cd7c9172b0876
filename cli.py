"""The command line: `python cli.py all` makes the logbook.

Results go to stdout, the log to stderr; exit status 1 means that a case failed, a question is open,
or something could not be read or written, 2 that the command was wrong, 130 that it was stopped.
Every command is a thin call into the library, and torch is imported only where a case runs.
"""

import sys

if sys.version_info < (3, 11):  # noqa: UP036 (before anything that needs it is imported)
    sys.exit(f"Error: Python 3.11 or newer is needed, and {sys.executable} is older; use another")


def _end(kind: type[BaseException], error: BaseException, trace: object) -> None:
    """Ctrl-C while modules are imported is no reason for a traceback."""
    if not issubclass(kind, KeyboardInterrupt):
        sys.__excepthook__(kind, error, trace)  # pyright: ignore[reportArgumentType]


sys.excepthook = _end

import ast
import functools
import io
import json
import logging
import os
import subprocess
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

ACTIVATE = (
    "activate the environment that `make logbook` makes (source .venv/bin/activate), or "
    "`pip install -r requirements.txt`"
)

try:
    import click

    from madl.errors import NO_ROOM, MadlError, WrongCommand
except ImportError as missing:
    sys.exit(f"Error: {missing}; {ACTIVATE}")

if TYPE_CHECKING:
    from madl.logbook.claims import Result
    from madl.logbook.records import Store
    from madl.running.plans import Options, StoredPlan
    from madl.running.project import Project
    from madl.running.queues import Progress
    from madl.site.report import Ledger

Command = TypeVar("Command", bound=Callable[..., Any])
log = logging.getLogger("madl")


class _Wrong(click.ClickException):
    exit_code = 2


class _Group(click.Group):
    """Errors that the user can fix become one line at this edge, and nowhere else."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except (click.exceptions.Exit, click.ClickException, click.Abort, BrokenPipeError):
            raise
        except Exception as error:
            log.debug("what went wrong, and where:", exc_info=error)
            told = _Wrong if isinstance(error, WrongCommand) else click.ClickException
            raise told(" ".join(_what_to_do(error).split())) from error
        except KeyboardInterrupt:
            from madl.machine.lifeline import STOPPED

            click.echo(f"\n{STOPPED}", err=True)
            sys.exit(130)


def _what_to_do(error: Exception) -> str:
    """An error in one line."""
    if isinstance(error, MadlError):
        return str(error)
    if isinstance(error, OSError) and error.errno in NO_ROOM:
        return (
            f"the disk is full ({error.filename or 'where .madl, docs or temporary files lie'}); "
            "free some space and run the same command again, finished cases are kept"
        )
    if isinstance(error, OSError) and error.filename:
        return (
            f"cannot use {error.filename} ({(error.strerror or str(error)).lower()}); see that it "
            "is there and may be written, then run the same command again"
        )
    if isinstance(error, OSError):
        return (
            f"a file or folder cannot be used ({(error.strerror or str(error)).lower()}); see that "
            "those given are ordinary ones, or run it as `cli.py -v …` to see which"
        )
    if isinstance(error, ModuleNotFoundError):
        return f"{error}; {ACTIVATE}"
    if isinstance(error, MemoryError):
        return "not enough memory; end other programs, or use fewer --jobs, and run it again"
    return (
        f"{type(error).__name__}: {error}; this is a fault of the program: run it as "
        "`cli.py -v …` to see where"
    )


def _stems(_: click.Context, __: click.Parameter, given: tuple[str, ...]) -> tuple[str, ...]:
    """Names of experiments, which the number of a question may stand for."""
    project = _project() if given else None
    return tuple(dict.fromkeys(project.stem_of(name) for name in given)) if project else ()


_option = functools.partial(click.option, show_default=True)
OPTIONS: Mapping[str, Callable[[Any], Any]] = {  # that several commands have, the same everywhere
    "stems": click.argument("stems", nargs=-1, metavar="[EXPERIMENT]...", callback=_stems),
    "profile": _option("--profile", default="quick", help="smoke, quick or full."),
    "seeds": _option(
        "--seeds", help="With --profile full: how many confirming seeds, 1 to 5.  [default: 5]"
    ),
    "workload": _option(
        "--workload",
        type=click.Choice(["snippets", "imdb", "imdb-openings"]),
        default="snippets",
        help="Model and data set of the run.",
    ),
    "model": _option("--model", help="Another model: a hub id, or a folder."),
    "dataset": _option("--dataset", help="Other data: a hub id, or a folder."),
    "text_column": _option(
        "--text-column", metavar="NAME", help="Of --dataset: the column of texts.  [default: found]"
    ),
    "label_column": _option(
        "--label-column", metavar="NAME", help="Of --dataset: the column of labels."
    ),
    "device": _option("--device", default="auto", help="auto, cpu or cuda."),
    "jobs": _option(
        "--jobs",
        type=click.IntRange(min=1),
        help="Cases side by side. [default: one a core, at most four]",
    ),
    "scheduler": _option(
        "--scheduler",
        metavar="ADDRESS",
        help="Cases run on Dask's workers: tcp://host:port, or its scheduler file.",
    ),
    "shard": _option("--shard", default="1/1", help="i/n: this machine's share."),
    "force": click.option("--force", is_flag=True, help="Run finished cases again."),
    "only": click.option(
        "--only",
        type=click.Choice(["claims", "cuda"]),
        help="Of full's cases those that primary claims read, or that need a CUDA GPU.",
    ),
    "as_json": click.option("--json", "as_json", is_flag=True, help="For programs."),
}


def _options(*names: str) -> Callable[[Command], Command]:
    def decorate(command: Command) -> Command:
        return functools.reduce(lambda made, name: OPTIONS[name](made), reversed(names), command)

    return decorate


PLAN = ("profile", "seeds", "workload", "model", "dataset", "text_column", "label_column")
RUN = ("stems", *PLAN, "device", "jobs", "scheduler", "shard", "force")


@click.group(cls=_Group, context_settings={"help_option_names": ["-h", "--help"]})
@click.option("-v", "--verbose", is_flag=True, help="Log more, tracebacks of failed cases too.")
def main(verbose: bool) -> None:
    """Answer the labs' questions from results measured on this machine."""
    for stream in (sys.stdout, sys.stderr):  # in the C locale, a dash is no reason to fail
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    logging.basicConfig(
        level=logging.DEBUG if verbose else logging.INFO, stream=sys.stderr, format="%(message)s"
    )
    for noisy in ("httpx", "urllib3", "filelock", "matplotlib", "fsspec", "datasets", "asyncio"):
        logging.getLogger(noisy).setLevel(logging.WARNING)


@main.command("all")
@_options(*RUN)
def all_(**given: Any) -> None:
    """Make the site of what there is, run what is left, and make it again."""
    asked = {name: given[name] for name in PLAN}
    work = _prepared(**given)
    problems = _site(asked) if given["profile"] != "smoke" else []
    ran, failed = _run(*work)
    if ran or given["profile"] == "smoke" or not (problems or _is_made(asked)):
        problems = _site(asked)
    _say(problems)
    sys.exit(1 if failed or problems else 0)


def _site(asked: Mapping[str, Any]) -> Sequence[str]:
    """Render, build and say where it is, one command at a time; returns what could not be made."""
    from filelock import FileLock

    project = _project()
    project.state.mkdir(parents=True, exist_ok=True)
    with FileLock(project.state / "site.lock"):
        summary, problems, is_built = _made(project, asked)
    click.echo(summary)
    first = project.root / "site" / "index.html"
    if is_built and first.is_file():
        click.echo(f"open {os.path.relpath(first)}")
    return problems


def _made(project: "Project", asked: Mapping[str, Any]) -> tuple[str, list[str], bool]:
    """What there is, in a line, what could not be made, and whether the site is of it; nothing is
    made while no file has changed since everything could be."""
    from madl.site import build

    before = build.state(project, asked)
    if (known := build.kept(project, before)) is not None:
        return known, [], True
    summary, problems = _rendered(**asked)
    # what was read may have changed meanwhile: that is not in the site
    state = before | {"docs": build.pages_state(project)}
    try:
        build.build(project)
    except MadlError as error:
        return summary, [*problems, str(error)], False
    if not problems:
        build.keep(project, state, summary)
    return summary, problems, True


def _is_made(asked: Mapping[str, Any]) -> bool:
    """Whether the site is of what there is."""
    from madl.site import build

    project = _project()
    return build.kept(project, build.state(project, asked)) is not None


@main.command()
@_options(*RUN, "only")
def run(**given: Any) -> None:
    """Run experiments, and what they need, without rendering."""
    _, failed = _run(*_prepared(**given))
    sys.exit(1 if failed else 0)


@main.command()
@_options(*PLAN)
@click.option("--build", "is_built", is_flag=True, help="Build the site of them, too.")
def report(is_built: bool, **given: Any) -> None:
    """Render pages, figures and the ledger from the records that are there."""
    if is_built:
        if not (root := _project().root).joinpath("mkdocs.yml").is_file():
            raise WrongCommand(f"there is no mkdocs.yml in {root}, which a site needs")
        problems = _site(given)
    else:
        summary, problems = _rendered(**given)
        click.echo(summary)
    _say(problems)
    sys.exit(1 if problems else 0)


@main.command()
@_options(*PLAN, "as_json")
@click.option("--strict", is_flag=True, help="Exit with 1 if a question is not answered.")
def checklist(as_json: bool, strict: bool, **given: Any) -> None:
    """List every question: answered, partly, or open."""
    from madl.site import report as reports
    from madl.site.views import Problems, pages

    plan, _ = _plan(**given)
    problems = Problems()
    state = reports.ledger(plan.project, pages(plan, problems))
    if as_json:
        click.echo(json.dumps({"questions": state.rows}, indent=1))
    else:
        for row in state.rows:
            click.echo(f"{row['id']:<5} {row['status']:<9} {row['title']}")
            facts = "; ".join([row["stem"], *_of_question(row, given["profile"])])
            click.echo(textwrap.indent(textwrap.fill(facts, 64), " " * 16))
        click.echo(_summary(state))
    _say(problems.said)
    sys.exit(1 if problems.said or (strict and not state.is_complete) else 0)


def _of_question(row: Mapping[str, Any], profile: str) -> Iterator[str]:
    """Why a question is answered partly, and whose results its answer is made of."""
    from madl.site import home

    if row["status"] == "partly":
        yield from home.run_of_asked(row)
        if unmeasured := row["verdicts"].get("not measured"):
            yield f"{unmeasured} claim{'s' * (unmeasured > 1)} not measured"
        if profile == "smoke":
            yield "the smoke profile answers nothing"
    if row["evidence_of"]:
        yield f"published evidence of {row['evidence_of']}"


@main.command()
@_options("stems", *PLAN, "as_json")
def status(stems: tuple[str, ...], as_json: bool, **given: Any) -> None:
    """Show what is done, failed and left, and whether code has changed since."""
    from madl.running import plans

    plan, _ = _plan(**given)
    rows = [plans.state_of(plan, name) for name in plans.with_needs(plan, stems)]
    if as_json:
        click.echo(json.dumps({"experiments": rows}, indent=1))
    for row in () if as_json else rows:
        changed = f", {row['changed']} from older code" if row["changed"] else ""
        counts = f"{row['ok']} of {row['cases']} done, {row['failed']} failed, {row['left']} left"
        counts += f", {row['skipped']} not for this machine" if row["skipped"] else ""
        counts += f", {row['damaged']} damaged" if row["damaged"] else ""
        counts = counts if row["ready"] else "waits for " + ", ".join(row["waits_for"])
        click.echo(f"{row['name']:<22} {counts}{changed}")
        for error in row["errors"]:
            click.echo(f"{'':<22} {error}")
    sys.exit(1 if any(row["damaged"] for row in rows) else 0)


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
@_options("stems", *PLAN, "only")
def publish(stems: tuple[str, ...], **given: Any) -> None:
    """Put this machine's full results under docs/data, to be committed as evidence."""
    from madl.logbook import records as results
    from madl.running import plans

    asked = _plan(**given)[0]
    plan = asked if given["only"] else asked.whole
    if plan.profile.name == "smoke":
        raise WrongCommand("smoke's results are no evidence; publish those of --profile full")
    only = [f"--only {given['only']}"] if given["only"] else []
    command = " ".join(["python cli.py run", *stems, *only, plan.options])
    published = 0
    for name in plans.with_needs(plan, stems):
        records = plan.finished(name) if plan.is_ready(name) else []
        if records:
            path = plan.project.docs / "data" / f"{name}.jsonl"
            of = "" if plan.is_complete(name) else f"of {len(plan.cases(name))} "
            click.echo(f"{results.publish(records, path)} {of}records of {name} in {path}")
            published += 1
        elif name in stems and plan.is_ready(name) and not plan.cases(name):
            raise MadlError(f"{name} has no case of this choice, and so nothing to publish")
        elif name in stems:
            raise MadlError(f"{name} has no results to publish; run `{command}` first")
    if not published:
        raise MadlError(f"there are no results of these to publish; run `{command}` first")


@main.command()
@_options("stems", *PLAN)
@click.option(
    "--repeat",
    "times",
    type=click.IntRange(min=2),
    help="Instead, run what measures time so often, and show which verdicts changed.",
)
@click.option(
    "--publish",
    "is_kept",
    is_flag=True,
    help="With --repeat: keep the counts under docs/data, for the machine's page.",
)
def doctor(stems: tuple[str, ...], times: int | None, is_kept: bool, **given: Any) -> None:
    """Show what this machine can do, and which questions a model and data can answer."""
    from madl.machine import device

    if times is not None:
        _repeat(stems, times, is_kept, **given)
        return
    if is_kept:
        raise WrongCommand("--publish keeps what --repeat counts; give --repeat, too")
    if stems:
        raise WrongCommand(f"only --repeat is of experiments; give it, or leave out {stems[0]}")
    for what, found in device.diagnose().items():
        click.echo(f"{what:<12} {found}")
    for line in _examination(_plan(**given)[0]):
        click.echo(line)


def _repeat(stems: tuple[str, ...], times: int, is_kept: bool, **given: Any) -> None:
    from madl.logbook import benchmarks
    from madl.machine import device, lifeline
    from madl.site import replication

    device.wait_briefly()
    plan, store = _plan(**given)
    plan = plan.whole
    found: list[dict[str, Result]] = []
    with lifeline.guarded(store.root / "tmp"):
        for results in replication.repeat(plan, store, stems, times):
            found.append(results)
            log.info("run %d of %d done", len(found), times)
    rows = replication.counts(plan, found)
    for row in rows:
        counted = ", ".join(f"{row[n]} × {n}" for n in benchmarks.OUTCOMES if n in row)
        click.echo(f"{row['claim']:<45} {counted}; {', '.join(map(str, row['effects']))}")
    flips = sum(map(replication.changed, rows))
    click.echo(f"{flips} of {len(rows)} verdicts on times changed in {times} runs")
    if is_kept:
        click.echo(f"kept in {replication.publish(plan, rows, times)}")


@main.command()
@click.argument("stem")
def new(stem: str) -> None:
    """Write a page of your own, to be changed: it runs and renders as it is."""
    from madl.running.new import create

    project = _project()
    id, paths = create(project, stem)
    for path in paths:
        click.echo(path.relative_to(project.root))
    click.echo(f"question {id}; next: python cli.py all {stem} --profile smoke")


@main.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.argument("name", required=False)
@click.argument("arguments", nargs=-1)
def bench(name: str | None, arguments: tuple[str, ...]) -> None:
    """Run a benchmark of benchmarks/, with what follows its name; without a name, list them."""
    project = _project()
    scripts = {path.stem: path for path in sorted((project.root / "benchmarks").glob("[!_]*.py"))}
    if name is None:
        for known, path in scripts.items():
            said = ast.get_docstring(ast.parse(path.read_bytes())) or ""
            click.echo(f"{known:<12} {said.partition(chr(10))[0]}".rstrip())
        if not scripts:
            click.echo("no benchmarks")
        return
    if name not in scripts:
        raise WrongCommand(f"unknown benchmark {name!r}; known: {', '.join(scripts) or 'none'}")
    from madl.machine import lifeline

    with lifeline.guarded(project.state / "tmp"):
        places = dict.fromkeys((str(project.root), str(Path(__file__).parent)))
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(places)}
        sys.exit(subprocess.call([sys.executable, str(scripts[name]), *arguments], env=environment))


def _project() -> "Project":
    from madl.running.project import Project

    root = os.environ.get("MADL_ROOT")
    project = Project(Path(root).resolve()) if root else Project()
    if not project.experiments.is_dir():
        mend = "unset MADL_ROOT, or set it" if root else "restore them, or set MADL_ROOT"
        raise WrongCommand(f"{project.root} has no experiments; {mend} to the folder of a logbook")
    return project


def _plan(
    *,
    profile: str,
    seeds: str | None,
    workload: str,
    model: str | None,
    dataset: str | None,
    text_column: str | None,
    label_column: str | None,
    only: str | None = None,
) -> "tuple[StoredPlan, Store]":
    from madl.logbook.records import Store
    from madl.running import plans
    from madl.training import workloads

    if only and profile == "smoke":
        raise WrongCommand("--only is of full's cases; leave out --profile smoke")
    project = _project()
    columns = {"text_column": text_column, "label_column": label_column}
    chosen = workloads.resolve(workload, model=model, dataset=dataset, **columns)
    store = Store(project.state)
    known, num_seeds = plans.profile_named(profile), plans.parse_seeds(seeds, profile)
    plan = plans.StoredPlan(project, store, known, chosen.params(), num_seeds)
    if only == "claims":
        from madl.site import replication

        return replication.claimed(plan), store
    if only == "cuda" or known.name == "quick":
        quick = plans.profile_named("quick")
        plan = plans.Sample(project, store, quick, plan.workload, num_seeds, only=only)
    return plan, store


def _prepared(
    *,
    stems: tuple[str, ...],
    device: str,
    jobs: int | None,
    scheduler: str | None,
    shard: str,
    force: bool,
    **given: Any,
) -> "tuple[StoredPlan, Store, tuple[str, ...], Options]":
    """What a run needs, once all that can be wrong with the command is known to be right."""
    from madl.machine import device as machine
    from madl.running import homes, plans

    plan, store = _plan(**given)
    share = plans.parse_shard(shard)
    _see_that_paths_exist()
    for stem in stems:
        plan.project.load(stem)
    _see_that_jobs_count(jobs, scheduler, device)
    homes.keep_with(store.root)
    machine.wait_briefly()
    for line in _examination(plan):
        log.info("%s", line)
    if scheduler is not None:  # each worker has its own devices
        options = plans.Options(device=device, force=force, shard=share, scheduler=scheduler)
        return plan, store, stems, options
    chosen, why = machine.resolve(device)
    log.info("device %s (%s)", chosen, why)
    if chosen == "cuda" and jobs is not None and jobs > 1:
        log.info("cases take turns on a GPU: --jobs %d is of no effect", jobs)
    jobs = 1 if chosen == "cuda" else jobs or min(machine.num_cores(), 4)
    return plan, store, stems, plans.Options(device=chosen, jobs=jobs, force=force, shard=share)


def _examination(plan: "StoredPlan") -> Iterator[str]:
    """A table: another's model and data, and which questions they can answer.

    Raises:
        WrongCommand: nothing can be done with them.
    """
    from madl.machine import device
    from madl.training import examination

    if not examination.is_needed(plan.workload):
        return
    device.needs_torch()
    seen = examination.examined(plan.project.state, plan.workload)
    yield f"{'model':<10} {seen.model}"
    yield f"{'data':<10} {seen.data}"
    yield from (f"{'changed':<10} {change}" for change in seen.changes)
    by_answer: dict[str, list[str]] = {}
    for question in plan.project.questions:
        if question.stem in plan.project.pages():
            partly = plan.why_partly(question)
            answer = f"in part: {partly}" if partly else "can be answered"
            answer = plan.why_unsuitable(question.stem) or answer
            by_answer.setdefault(answer, []).append(question.id)
    yield from (f"{', '.join(ids)}: {answer}" for answer, ids in by_answer.items())


def _run(
    plan: "StoredPlan", store: "Store", stems: tuple[str, ...], options: "Options"
) -> tuple[int, int]:
    """Run and show; returns how many cases ran, and how many of them failed."""
    from madl.running import pace, plans, runner

    if plan.profile.name == "quick" and not plans.is_published(plan):
        log.info("%s", pace.how_to_make_whole(plan, options.jobs))
    failed = done = 0
    for progress in _shown(runner.run(plan, store, stems, options)):
        done += 1
        failed += progress.record.status == "failed"
    log.info("%d cases run, %d failed", done, failed)
    return done, failed


def _see_that_paths_exist() -> None:
    """Raises: WrongCommand: the environment forces a path of the kernels that there is not."""
    if os.environ.keys() & {"MADL_KERNELS", "MADL_CUDA_KERNELS"}:
        from kernels import build, build_cuda

        try:
            build.check_forced()
            build_cuda.forced_path()
        except ValueError as error:
            raise WrongCommand(str(error)) from error


def _see_that_jobs_count(jobs: int | None, scheduler: str | None, device: str) -> None:
    """Raises: WrongCommand: `--jobs` where something else says how many cases run at once."""
    if scheduler is not None and jobs is not None:
        raise WrongCommand("Dask's workers are the jobs; leave out --jobs, or --scheduler")
    if device == "cuda" and jobs not in (None, 1):
        raise WrongCommand("cases take turns on a GPU; leave out --jobs, or --device cuda")


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
    return f"{place}  {gave}  {record.seconds:.0f} s, {event.left}"


def _rendered(**given: Any) -> tuple[str, list[str]]:
    """Render; returns what there is, in a line, and what could not be read or made."""
    from madl.site import report as reports

    state = reports.write(*_plan(**given))
    return _summary(state), state.problems


def _say(problems: Sequence[str]) -> None:
    for problem in problems:
        click.echo(f"Error: {problem}", err=True)


def _summary(state: "Ledger") -> str:
    counts = ", ".join(f"{state.count(s)} {s}" for s in ("answered", "partly", "open"))
    return f"{len(state.rows)} questions: {counts}"


if __name__ == "__main__":
    try:
        main()
    except SystemExit as ended:
        if ended.code == 130:  # at once: a library that was interrupted may wait at the end
            sys.stdout.flush()
            os._exit(130)
        raise
