"""The command line: `python cli.py all` makes the logbook.

Results go to stdout, the log to stderr; exit status 1 means that a case failed, a question is open,
or something could not be read or written, 2 that the command was wrong, 130 that it was stopped.
Every command is a thin call into the library, and torch is imported only where a case runs.
"""

import sys

if sys.version_info < (3, 11):  # noqa: UP036 (before anything that needs it is imported)
    sys.exit(f"Error: Python 3.11 or newer is needed, and {sys.executable} is older; use another")


def _end(kind: type[BaseException], error: BaseException, trace: object) -> None:
    """Print the traceback of an error, but none after Ctrl-C while modules are imported."""
    if not issubclass(kind, KeyboardInterrupt):
        sys.__excepthook__(kind, error, trace)  # pyright: ignore[reportArgumentType]


sys.excepthook = _end

import ast
import functools
import io
import json
import logging
import math
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

    from madl import files
    from madl.errors import NO_MEMORY, NO_ROOM, MadlError, WrongCommand
except ImportError as missing:
    sys.exit(f"Error: {missing}; {ACTIVATE}")

if TYPE_CHECKING:
    from madl.running.plans import Options, RunPlan
    from madl.running.project import Project
    from madl.running.queues import Progress
    from madl.site.report import Ledger

Command = TypeVar("Command", bound=Callable[..., Any])
log = logging.getLogger("madl")


class _Wrong(click.ClickException):
    """Error in the command itself: exit status 2."""

    exit_code = 2


def _in_a_line(error: click.UsageError) -> click.ClickException:
    """Click's error without the usage above it; help, where that is what it prints, as it is."""
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        return error
    where = error.ctx.command_path if error.ctx else "cli.py"
    return _Wrong(f"{error.format_message().rstrip('.')} (see `python {where} -h`)")


class _Group(click.Group):
    """The commands; every error of one becomes one line here, and nowhere else."""

    def make_context(self, *args: Any, **kwargs: Any) -> click.Context:
        try:
            return super().make_context(*args, **kwargs)
        except click.UsageError as error:
            raise _in_a_line(error) from error

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except click.UsageError as error:
            raise _in_a_line(error) from error
        except (click.exceptions.Exit, click.ClickException, click.Abort, BrokenPipeError):
            raise
        except Exception as error:
            log.debug("what went wrong, and where:", exc_info=error)
            kind = _Wrong if isinstance(error, WrongCommand) else click.ClickException
            raise kind(" ".join(_error_message(error).split())) from error
        except KeyboardInterrupt:
            from madl.machine.lifeline import STOPPED

            click.echo(f"\n{STOPPED}", err=True)
            sys.exit(130)


def _error_message(error: Exception) -> str:
    """An error's problem, and what to do about it."""
    if isinstance(error, MadlError):
        return str(error)
    if isinstance(error, OSError):
        why = files.why(error)
        if error.errno in NO_ROOM:
            where = error.filename or "where .madl, docs or temporary files lie"
            return (
                f"the disk is full ({where}); free some space and run the same command again, "
                "finished cases are kept"
            )
        if error.filename:
            return (
                f"cannot use {error.filename} ({why}); see that it is there and may be written, "
                "then run the same command again"
            )
        return (
            f"a file or folder cannot be used ({why}); see that those given are ordinary ones, or "
            "run it as `cli.py -v …` to see which"
        )
    if isinstance(error, ModuleNotFoundError):
        return f"{error}; {ACTIVATE}"
    if isinstance(error, MemoryError):
        return NO_MEMORY
    return (
        f"{type(error).__name__}: {error}; this is a fault of the program: run it as "
        "`cli.py -v …` to see where"
    )


def _stems(_: click.Context, __: click.Parameter, given: tuple[str, ...]) -> tuple[str, ...]:
    """The experiments' names as given, but questions' ids ("1.2") replaced by names."""
    project = _project() if given else None
    return tuple(dict.fromkeys(project.stem_of(name) for name in given)) if project else ()


_option = functools.partial(click.option, show_default=True)
OPTIONS: Mapping[str, Callable[[Any], Any]] = {  # that several commands have, the same everywhere
    "stems": click.argument("stems", nargs=-1, metavar="[EXPERIMENT]...", callback=_stems),
    "profile": _option(
        "--profile",
        type=click.Choice(["smoke", "quick", "full"]),
        default="quick",
        help="How much is run.",
    ),
    "seeds": _option(
        "--seeds",
        type=click.IntRange(1, 5),
        help="Of the full profile: how many confirming seeds.  [default: 5]",
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
    "force": click.option("--force", is_flag=True, help="Run finished cases again."),
    "only": click.option(
        "--only",
        type=click.Choice(["claims", "cuda"]),
        help="Of full's cases those that primary claims read, or that need a CUDA GPU.",
    ),
    "as_json": click.option("--json", "as_json", is_flag=True, help="For programs."),
}


def _options(*names: str) -> Callable[[Command], Command]:
    """A decorator that adds these options of `OPTIONS` to a command."""

    def decorate(command: Command) -> Command:
        return functools.reduce(
            lambda command, name: OPTIONS[name](command), reversed(names), command
        )

    return decorate


WORKLOAD = ("workload", "model", "dataset", "text_column", "label_column")
PLAN = ("profile", "seeds", *WORKLOAD)
RUN = ("stems", *PLAN, "device", "jobs", "scheduler", "force")


@click.group(cls=_Group, context_settings={"help_option_names": ["-h", "--help"]})
@click.option("-v", "--verbose", is_flag=True, help="Log more, tracebacks of failed cases too.")
def main(verbose: bool) -> None:
    """Answer the labs' questions from measured results, and repeat them on this machine."""
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
    work = _validate_run(**given)
    problems = _site(asked) if given["profile"] != "smoke" else []
    ran, failed = _run(*work)
    if ran or given["profile"] == "smoke" or not (problems or _is_up_to_date(asked)):
        problems = _site(asked)
    _say(problems)
    sys.exit(1 if failed or problems else 0)


def _site(asked: Mapping[str, Any]) -> Sequence[str]:
    """Make the site and print where it is; return what could not be made. One process at a time."""
    from filelock import FileLock

    project = _project()
    project.state.mkdir(parents=True, exist_ok=True)
    with FileLock(project.state / "site.lock"):
        summary, problems, is_built = _render_and_build(project, asked)
    click.echo(summary)
    first = project.root / "site" / "index.html"
    if is_built and first.is_file():
        click.echo(f"open {os.path.relpath(first)}")
    return problems


def _render_and_build(project: "Project", asked: Mapping[str, Any]) -> tuple[str, list[str], bool]:
    """Make the site, unless nothing has changed since all of it was made.

    Returns a summary, what could not be made, and whether there is a site of all this.
    """
    from madl.site import build

    inputs = build.inputs_digest(project, asked)
    if (known := build.known_summary(project, inputs)) is not None:
        return known, [], True
    summary, problems = _rendered(**asked)
    # what was read may have changed meanwhile: that is not in the site
    pages = build.pages_digest(project)
    try:
        build.build(project)
    except MadlError as error:
        return summary, [*problems, str(error)], False
    if not problems:
        build.keep_summary(project, inputs, pages, summary)
    return summary, problems, True


def _is_up_to_date(asked: Mapping[str, Any]) -> bool:
    """Whether the site was made of the present code, templates, options and records."""
    from madl.site import build

    project = _project()
    return build.known_summary(project, build.inputs_digest(project, asked)) is not None


@main.command()
@_options(*RUN, "only")
@click.option(
    "--within",
    "minutes",
    metavar="MINUTES",
    type=click.FloatRange(min=0, min_open=True),
    help="With --only cuda: so long, those worth most first, as experiments/gpu.toml ranks them.",
)
@click.option(
    "--pack",
    type=click.Path(dir_okay=False, path_type=Path),
    help="With --within: put the records into this .tgz file after each group of cases.",
)
def run(minutes: float | None, pack: Path | None, **given: Any) -> None:
    """Run experiments, and what they need, without rendering."""
    if minutes is None:
        if pack is not None:
            raise WrongCommand("--pack goes with --within MINUTES; give that, too")
        _, failed = _run(*_validate_run(**given))
    else:
        failed = _run_within(minutes, pack, **given)
    sys.exit(1 if failed else 0)


def _run_within(minutes: float, pack: Path | None, **given: Any) -> int:
    """Run the GPU cases worth most, for so many minutes; return how many failed."""
    from madl.running import within

    if given["only"] != "cuda" or given["stems"] or given["scheduler"]:
        raise WrongCommand("--within goes with --only cuda, and with no experiments or Dask")
    if not math.isfinite(minutes):
        raise WrongCommand(f"--within {minutes} is no time; give minutes, such as 10")
    plan, _, options = _validate_run(**given)
    events = within.run(plan, plan.project.store, options, minutes=minutes, pack=pack)
    return _tallied(events)[1]


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
    from madl.running.pages import pages
    from madl.running.views import Problems
    from madl.site import report as reports
    from madl.site.page import PageCalls

    plan, problems = _plan(**given), Problems()
    planned = pages(plan, plan.project.store, problems)
    calls = {page.name: PageCalls(plan.project, page) for page in planned}
    state = reports.ledger(plan.project, calls)
    if as_json:
        click.echo(json.dumps({"questions": state.rows}, indent=1))
    else:
        for row in state.rows:
            click.echo(f"{row['id']:<5} {row['status']:<9} {row['title']}")
            facts = "; ".join([row["stem"], *_question_facts(row, given["profile"])])
            click.echo(textwrap.indent(textwrap.fill(facts, 64), " " * 16))
        click.echo(_summary(state))
    _say(problems.lines)
    sys.exit(1 if problems.lines or (strict and not state.is_complete) else 0)


def _question_facts(row: Mapping[str, Any], profile: str) -> Iterator[str]:
    """Why a question is answered in part, and whose published results its answer uses."""
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
    from madl.running import status
    from madl.running.evidence import Evidence

    plan = _plan(**given)
    evidence = Evidence(plan=plan, source=plan.project.store.get)
    rows = [status.counts(evidence, name) for name in plan.with_needs(stems)]
    if as_json:
        click.echo(json.dumps({"experiments": rows}, indent=1))
    for row in () if as_json else rows:
        changed = f", {row['changed']} {row['age']}" if row["changed"] else ""
        counts = f"{row['ok']} of {row['cases']} done, {row['failed']} failed, {row['left']} left"
        counts += f", {row['skipped']} not for this machine" if row["skipped"] else ""
        counts += f", {row['damaged']} damaged" if row["damaged"] else ""
        counts = counts if row["ready"] else "waits for " + ", ".join(row["waits_for"])
        click.echo(f"{row['name']:<22} {counts}{changed}")
        for error in row["errors"]:
            click.echo(f"{'':<22} {error}")
    sys.exit(1 if any(row["damaged"] for row in rows) else 0)


@main.command()
@_options("stems")
@click.option(
    "--cases",
    "num_cases",
    type=click.IntRange(min=1),
    default=5,
    show_default=True,
    help="Cases to draw of each experiment; one of each kind at least is drawn.",
)
def verify(stems: tuple[str, ...], num_cases: int) -> None:
    """Show whether code that has changed still gives the values of the evidence.

    Some cases that earlier code has done are executed twice by that code and once by today's, and
    compared to the digit. What comes out is kept in docs/data/equivalences.
    """
    from madl.machine import lifeline
    from madl.running import verify as verifying

    project = _project()
    outcomes: list[bool] = []
    with lifeline.guarded(project.state / "tmp"):
        for state in verifying.earlier_states(project, stems or project.names()):
            codes = f"{state.experiment}, code {state.code} → {project.code(state.experiment)}"
            try:
                equivalence = verifying.verify(project, state, num_cases=num_cases)
            except MadlError as error:
                click.echo(f"{codes}: {error}")
                outcomes.append(False)
            else:
                click.echo(f"{codes}: {equivalence.told}")
                outcomes.append(equivalence.holds)
    sys.exit(0 if all(outcomes) else 1)


@main.command()
@_options("as_json")
def formats(as_json: bool) -> None:
    """List the number formats with their bits and range."""
    from madl.formats.presets import FORMATS

    if as_json:
        rows = [{"name": f.name, "bits": f.bits, "range": f.range} for f in FORMATS.values()]
        click.echo(json.dumps({"formats": rows}, indent=1))
        return
    for f in FORMATS.values():
        where = "{:.6g} … {:.6g}".format(*f.range) if f.range else "scaled by the data"
        click.echo(f"{f.name:<28} {f.bits:>6g} bits  {where}")


@main.command()
@_options("stems", "seeds", *WORKLOAD, "only")
def publish(stems: tuple[str, ...], **given: Any) -> None:
    """Put this machine's full results under docs/data, to be committed as evidence."""
    from madl.logbook import records as results
    from madl.running.evidence import Evidence

    plan = _plan(**given)
    only = [f"--only {given['only']}"] if given["only"] else []
    command = " ".join(["python cli.py run", *stems, *only, plan.options])
    published = 0
    evidence = Evidence(plan=plan, source=plan.project.store.get)
    for name in plan.with_needs(stems):
        is_ready = evidence.is_ready(name)
        records = evidence.finished(name) if is_ready else []
        if records:
            path = plan.project.docs / "data" / f"{name}.jsonl"
            planned = "" if evidence.is_complete(name) else f"of {len(evidence.cases(name))} "
            click.echo(f"{results.publish(records, path)} {planned}records of {name} in {path}")
            published += 1
        elif name in stems and is_ready and not evidence.cases(name):
            raise MadlError(f"{name} has no case of this choice, and so nothing to publish")
        elif name in stems:
            raise MadlError(f"{name} has no results to publish; run `{command}` first")
    if not published:
        raise MadlError(f"there are no results of these to publish; run `{command}` first")


@main.command()
@_options(*WORKLOAD)
def doctor(**given: Any) -> None:
    """Show what this machine can do, and which questions a model and data can answer."""
    from madl.machine import device

    for subject, finding in device.diagnose().items():
        click.echo(f"{subject:<12} {finding}")
    for line in _examination(_plan(**given)):
        click.echo(line)


@main.command()
@_options("stems", "seeds", *WORKLOAD)
@_option("--times", type=click.IntRange(min=1), default=1, help="How many further sittings.")
@click.option(
    "--publish",
    "is_kept",
    is_flag=True,
    help="Put all sittings of this machine under docs/data, to be committed.",
)
def repeat(stems: tuple[str, ...], times: int, is_kept: bool, **given: Any) -> None:
    """Measure claims on times in further sittings, which then count with the others."""
    from madl.logbook import records
    from madl.machine import device
    from madl.running import caches, sittings
    from madl.site import replication

    plan = _plan(**given)
    store = plan.project.store
    _check_forced_kernels()
    caches.redirect(plan.project.state)
    device.wait_briefly()
    views = sittings.add_sittings(plan, store, stems, times)
    for view in views:
        for claim, outcome in replication.outcomes(view).items():
            click.echo(f"{claim:<45} {outcome}")
        if is_kept:
            path = plan.project.docs / "data" / f"{view.name}.jsonl"
            count = records.publish(sittings.times_of(view), path)
            click.echo(f"{count} records of {view.name} in {path}")


@main.command()
@click.argument("stem")
def new(stem: str) -> None:
    """Write a page of your own, to be changed: it runs and renders as it is."""
    from madl.running.new import create

    project = _project()
    id, paths = create(project, stem)
    for path in paths:
        click.echo(path.relative_to(project.root))
    click.echo(f"question {id}; next: python cli.py all {stem}")


@main.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.argument("name", required=False)
@click.argument("arguments", nargs=-1)
def bench(name: str | None, arguments: tuple[str, ...]) -> None:
    """Run a benchmark of benchmarks/, with what follows its name; without a name, list them."""
    project = _project()
    scripts = {path.stem: path for path in sorted((project.root / "benchmarks").glob("[!_]*.py"))}
    if name is None:
        for known, path in scripts.items():
            docstring = ast.get_docstring(ast.parse(path.read_bytes())) or ""
            click.echo(f"{known:<12} {docstring.partition(chr(10))[0]}".rstrip())
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
    """The logbook at `$MADL_ROOT`, or this one. Raises: WrongCommand: there is none."""
    from madl.running.project import Project

    root = os.environ.get("MADL_ROOT")
    project = Project(Path(root).resolve()) if root else Project()
    if not project.experiments.is_dir():
        mend = "unset MADL_ROOT, or set it" if root else "restore them, or set MADL_ROOT"
        raise WrongCommand(f"{project.root} has no experiments; {mend} to the folder of a logbook")
    return project


def _plan(
    *,
    profile: str = "full",
    seeds: int | None = None,
    workload: str,
    model: str | None,
    dataset: str | None,
    text_column: str | None,
    label_column: str | None,
    only: str | None = None,
) -> "RunPlan":
    from madl.logbook.experiment import CONFIRMING_SEEDS, PROFILES
    from madl.running import plans, samples
    from madl.training import workloads

    if only and profile == "smoke":
        raise WrongCommand("--only is of full's cases; leave out --profile smoke")
    if seeds and profile != "full":
        raise WrongCommand("--seeds is of the full profile; leave it out, or use --profile full")
    project = _project()
    columns = {"text_column": text_column, "label_column": label_column}
    chosen = workloads.resolve(workload, model=model, dataset=dataset, **columns)
    num_seeds = seeds or len(CONFIRMING_SEEDS)
    plan = plans.RunPlan(project, PROFILES[profile], chosen.params(), num_seeds)
    if only == "claims":
        return samples.claimed_cases(plan, project.store)
    if only == "cuda" or profile == "quick":
        return samples.quick_sample(plan, project.store.get, only)
    return plan


def _validate_run(
    *,
    stems: tuple[str, ...],
    device: str,
    jobs: int | None,
    scheduler: str | None,
    force: bool,
    **given: Any,
) -> "tuple[RunPlan, tuple[str, ...], Options]":
    """The plan, experiments and options of a run.

    Raises:
        MadlError: something is wrong with the command, the model or the data.
    """
    from madl.machine import device as machine
    from madl.running import caches, plans

    plan = _plan(**given)
    _check_forced_kernels()
    for stem in stems:
        plan.project.load(stem)
    _check_jobs_option(jobs, scheduler, device)
    caches.redirect(plan.project.state)
    machine.wait_briefly()
    for line in _examination(plan):
        log.info("%s", line)
    if scheduler is not None:  # each worker has its own devices
        return plan, stems, plans.Options(device=device, force=force, scheduler=scheduler)
    chosen, why = machine.resolve(device)
    log.info("device %s (%s)", chosen, why)
    if chosen == "cuda" and jobs is not None and jobs > 1:
        log.info("cases take turns on a GPU: --jobs %d is of no effect", jobs)
    jobs = 1 if chosen == "cuda" else jobs or min(machine.num_cores(), 4)
    return plan, stems, plans.Options(device=chosen, jobs=jobs, force=force)


def _examination(plan: "RunPlan") -> Iterator[str]:
    """Lines about a model and data that the user brings, and which questions they can answer.

    Raises:
        WrongCommand: nothing can be done with them.
    """
    from madl.machine import device
    from madl.training import examination

    if not examination.is_needed(plan.workload):
        return
    device.needs_torch()
    facts = examination.examined(plan.project.state, plan.workload)
    yield f"{'model':<10} {facts.model}"
    yield f"{'data':<10} {facts.data}"
    yield from (f"{'changed':<10} {change}" for change in facts.changes)
    by_answer: dict[str, list[str]] = {}
    for question in plan.project.questions:
        if question.stem in plan.project.pages():
            partly = plan.why_partly(question)
            answer = f"in part: {partly}" if partly else "can be answered"
            answer = plan.why_unsuitable(question.stem) or answer
            by_answer.setdefault(answer, []).append(question.id)
    yield from (f"{', '.join(ids)}: {answer}" for answer, ids in by_answer.items())


def _run(plan: "RunPlan", stems: tuple[str, ...], options: "Options") -> tuple[int, int]:
    """Execute what is left, showing progress; return how many cases ran and how many failed."""
    from madl.running import pace, runner

    if plan.profile.name == "quick" and (advice := pace.full_run_advice(plan, options.jobs)):
        log.info("%s", advice)
    return _tallied(runner.run(plan, plan.project.store, stems, options))


def _tallied(events: "Iterator[Progress]") -> tuple[int, int]:
    """Show cases as they end; return how many ran and how many failed."""
    from madl.running.console import show

    statuses = [event.record.status for event in show(events)]
    log.info("%d cases run, %d failed", len(statuses), statuses.count("failed"))
    return len(statuses), statuses.count("failed")


def _check_forced_kernels() -> None:
    """Raises: WrongCommand: the environment forces a path of the kernels that there is not."""
    if os.environ.keys() & {"MADL_KERNELS", "MADL_CUDA_KERNELS"}:
        from kernels import build, build_cuda

        try:
            build.forced_path()
            build_cuda.forced_path()
        except ValueError as error:
            raise WrongCommand(str(error)) from error


def _check_jobs_option(jobs: int | None, scheduler: str | None, device: str) -> None:
    """Raises: WrongCommand: `--jobs` where something else says how many cases run at once."""
    if scheduler is not None and jobs is not None:
        raise WrongCommand("Dask's workers are the jobs; leave out --jobs, or --scheduler")
    if device == "cuda" and jobs not in (None, 1):
        raise WrongCommand("cases take turns on a GPU; leave out --jobs, or --device cuda")


def _rendered(**given: Any) -> tuple[str, list[str]]:
    """Write pages and figures; return a line of summary, and what could not be read or made."""
    from madl.site import report as reports

    plan = _plan(**given)
    state = reports.write(plan, plan.project.store)
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
