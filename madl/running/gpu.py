"""All that needs a CUDA GPU, in one folder, by one command that goes on where it was stopped.

A machine with a GPU may be lent for minutes, have no network and little installed. So the parts
are few and each is written when it is done: the tests marked `cuda`, the ceilings, the benchmark of
the kernels, and every case of a page whose device is CUDA, the longest last. A part runs in a
process of its own and is stopped when the call's time is over; it is what the next call begins
with. Only parts that are not done run.

In the folder: `records/` as in a store, `data/` as evidence to be put under `docs/data`,
`tests.txt`, `tests.json`, and `data/benchmarks/`.
Needs: torch, numpy, scipy, click, jinja2, filelock, safetensors and transformers; pytest for the
tests, nvcc or NVRTC or Triton for kernels of our own. A model's files must be in the cache already
where there is no network.
"""

import ast
import importlib.util
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from madl.errors import MadlError
from madl.files import write_atomically
from madl.logbook import records as results
from madl.logbook.records import Case, Store
from madl.logbook.stats import counted
from madl.machine import device, fresh, sources
from madl.running import runner, shards
from madl.running.pace import varying
from madl.running.plans import StoredPlan, without_values
from madl.running.project import Project

PAGES = (
    *("machine", "lab4_memory", "lab4_mxint8"),
    *("lab4_tiles", "lab4_attention", "lab4_compile"),
)
BENCHMARK = "mxint8_cuda"
CALL_S = 520.0  # of the ten minutes that a call may have: the rest is for ending
LEAST_S = 15.0  # nothing is begun with less
LEAST_CASE_S = 90.0  # of a call that has begun: what is stopped loses what it has done
PYTEST = ("-m", "pytest", "-m", "cuda", "-rfEs", "-W", "default", "-p", "no:cacheprovider")
ASKS = ("device", "what")  # the parameters that ask for a GPU

State = Literal["done", "failed", "left", "not run here"]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What has become of a part, and why where that needs saying."""

    part: str
    state: State
    why: str = ""

    def __str__(self) -> str:
        return f"{self.part}: {self.state}" + (f" ({self.why})" if self.why else "")


def is_for_gpu(case: Case) -> bool:
    return any(case.params.get(name) == "cuda" for name in ASKS)


def why_no_gpu() -> str | None:
    return device.no_device({"device": "cuda"})


class Gpu:
    """The parts of one folder. Their order is fixed: what was stopped comes first next time."""

    def __init__(self, project: Project, plan: StoredPlan, folder: Path) -> None:
        self.project, self.plan, self.folder = project, plan, folder
        self.store = Store(folder)
        pages = [name for name in PAGES if name in project.names()]
        self.pages = {name: [*filter(is_for_gpu, plan.cases(name))] for name in pages}

    def run(self, seconds: float = CALL_S) -> Iterator[Outcome]:
        """Do what is left, as far as the time goes; each part is told when it has ended.

        Raises:
            MadlError: another call is at work on this folder.
        """
        with shards.at_work(self.folder / "shards", shards.WHOLE):
            yield from self._run(seconds)

    def _run(self, seconds: float) -> Iterator[Outcome]:
        end = time.monotonic() + seconds
        again = [part for part in self._parts() if self.outcome(part).state == "failed"]
        left = [part for part in self._parts() if self.outcome(part).state == "left"]
        for part in [*left, *again]:  # what failed is tried again, after all else
            given = end - time.monotonic()
            has_whole_call = given > 0.9 * seconds
            goes_on = has_whole_call or part == "benchmark"  # which keeps each of its works
            if given < (LEAST_S if goes_on else LEAST_CASE_S):
                continue
            self._do(part, given, has_whole_call=has_whole_call)
            self._publish()
            yield self.outcome(part)

    def outcomes(self) -> list[Outcome]:
        """Every part, and every page that has nothing for a GPU."""
        found = [self.outcome(part) for part in self._parts()]
        empty = [name for name, cases in self.pages.items() if not cases]
        return [*found, *(Outcome(name, "not run here", "has no CUDA cases") for name in empty)]

    # ---- the parts ------------------------------------------------------------------------------

    def _parts(self) -> "list[str | Case]":
        ceilings = self.pages.get("machine", [])
        rest = [case for name, cases in self.pages.items() if name != "machine" for case in cases]
        return ["tests", *ceilings, "benchmark", *rest]

    def outcome(self, part: "str | Case") -> Outcome:
        if isinstance(part, Case):
            return self._of_case(part)
        return self._of_tests() if part == "tests" else self._of_benchmark()

    def _do(self, part: "str | Case", seconds: float, *, has_whole_call: bool) -> None:
        if isinstance(part, Case):
            self._run_case(part, seconds, has_whole_call=has_whole_call)
        elif part == "tests":
            self._run_tests(seconds, has_whole_call=has_whole_call)
        else:
            self._run_benchmark(seconds)

    def _publish(self) -> None:
        for name, cases in self.pages.items():
            found = [self.store.get(case) for case in cases]
            good = [record for record in found if record and record.status == "ok"]
            if good:
                results.publish(good, self.folder / "data" / f"{name}.jsonl")

    # ---- cases ----------------------------------------------------------------------------------

    def _of_case(self, case: Case) -> Outcome:
        names = [name for name in varying(self.pages[case.experiment]) if name in case.params]
        shown = (f"{name}={case.params[name]}" for name in names)
        label = " ".join([case.experiment, *shown])
        record = self.store.get(case)
        if record and record.status == "ok":
            return Outcome(label, "done", str(record.values.get("failed", "")))
        why = self.project.load(case.experiment).why_unavailable(case.params) or why_no_gpu()
        if why:
            return Outcome(label, "not run here", why)
        return Outcome(label, "failed", record.error or "") if record else Outcome(label, "left")

    def _run_case(self, case: Case, seconds: float, *, has_whole_call: bool) -> None:
        argument = {
            "root": str(self.project.root),
            "store": str(self.folder.resolve()),
            "experiment": case.experiment,
            "params": dict(case.params),
            "version": case.version,
        }
        try:
            fresh.call(f"{__name__}:run_case", argument, timeout_s=seconds)
        except MadlError as error:
            if "took longer" in str(error) and not has_whole_call:
                return  # the next call gives it all its time
            root = self.project.root
            self.store.put(without_values(root, "cuda", case, "failed", str(error)))

    # ---- tests ----------------------------------------------------------------------------------

    def _of_tests(self) -> Outcome:
        label, known = "pytest -m cuda", _read(self.folder / "tests.json")
        code = sources.digest_of_all(self.project.root)
        if known.get("code") == code and known.get("status") == 0:
            return Outcome(label, "done", str(known["said"]))
        if why := why_no_gpu() or _missing("pytest"):
            return Outcome(label, "not run here", why)
        if known.get("code") == code:
            return Outcome(label, "failed", str(known["said"]))
        return Outcome(label, "left")

    def _run_tests(self, seconds: float, *, has_whole_call: bool) -> None:
        files, needs = cuda_tests(self.project.root / "tests")
        command = [sys.executable, *PYTEST, *map(str, files)]
        said = self.folder / "tests.txt"
        status = _ended(
            command, seconds, said, self.project.root, PYTEST_DISABLE_PLUGIN_AUTOLOAD="1"
        )
        if status is None and not has_whole_call:
            return  # the next call gives them all its time
        lines = said.read_text(errors="replace").strip().splitlines() or ["no output"]
        end = lines[-1].strip("= ") if status is not None else f"took longer than {seconds:.0f} s"
        text = "; ".join([end, *needs])
        code = sources.digest_of_all(self.project.root)
        found = {"code": code, "status": status, "said": text}
        write_atomically(self.folder / "tests.json", json.dumps(found) + "\n")

    # ---- the benchmark --------------------------------------------------------------------------

    def _benchmark_file(self) -> Path:
        return self.folder / "data" / "benchmarks" / f"{BENCHMARK}.json"

    def _of_benchmark(self) -> Outcome:
        label, known = f"bench {BENCHMARK}", _read(self._benchmark_file())
        if known.get("left") == [] and not known.get("error"):
            return Outcome(label, "done", f"{len(known['rows'])} rows")
        if why := why_no_gpu():
            return Outcome(label, "not run here", why)
        failed: dict[str, str] = known.get("failed", {})
        if known.get("error") or (failed and len(failed) == len(known["left"])):
            first = next((f"{work}: {why}" for work, why in failed.items()), "")
            return Outcome(label, "failed", str(known.get("error") or first))
        return Outcome(label, "left", f"{len(known['left'])} works" if known else "")

    def _run_benchmark(self, seconds: float) -> None:
        path, script = self._benchmark_file(), self.project.root / "benchmarks" / f"{BENCHMARK}.py"
        command = [sys.executable, str(script), "--resume", str(path.resolve())]
        command += ["--seconds", f"{max(seconds - LEAST_S, 1.0):.0f}"]
        said, root = self.folder / "benchmark.txt", self.project.root
        status = _ended(command, seconds, said, root, PYTHONPATH=str(root))
        if status:
            lines = said.read_text(errors="replace").strip().splitlines() or ["no output"]
            known = {"rows": [], "left": ["all"], **_read(path), "error": lines[-1]}
            write_atomically(path, json.dumps(known, indent=1) + "\n")


def publish(folder: Path, into: Path) -> Iterator[str]:
    """Merge a folder's evidence into `docs/data`, beside other machines'; what, and how much.

    Raises:
        MadlError: there is none, or it cannot be read or written.
    """
    data = folder / "data"
    files = sorted(data.glob("*.jsonl"))
    if not files:
        raise MadlError(f"{data} has no evidence; run `cli.py gpu {folder}` where a GPU is")
    for path in files:
        count = results.publish([*results.read_published(path)], into / path.name)
        yield f"{path.name}: {counted(count, 'record')}"
    for path in sorted(data.glob("benchmarks/*.json")):
        write_atomically(into / "benchmarks" / path.name, path.read_text("utf-8"))
        yield f"benchmarks/{path.name}"


def run_case(argument: Mapping[str, Any]) -> dict[str, Any]:
    """One case into the store, in this process; as `fresh.call` wants it."""
    names = ("experiment", "params", "version")
    case = Case(**{name: argument[name] for name in names})
    runner.start_process(device.num_cores())
    store = Store(Path(argument["store"]))
    record = runner.execute(Path(argument["root"]), store, "cuda", 1, case)
    store.put(record)
    return {"status": record.status}


def cuda_tests(folder: Path) -> tuple[list[Path], list[str]]:
    """The files with tests for a GPU that can be imported here, and why the others cannot."""
    files: list[Path] = []
    needs: list[str] = []
    for path in sorted(folder.glob("test_*.py")):
        text = path.read_text("utf-8")
        if "pytest.mark.cuda" not in text:
            continue
        missing = [why for name in _imported(text) if (why := _missing(name))]
        if missing:
            needs.append(f"{path.name} not run here: {missing[0]}")
        else:
            files.append(path)
    return files, needs


def _imported(text: str) -> list[str]:
    """The packages that a file imports at its top."""
    found: list[str] = []
    for node in ast.parse(text).body:
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.append(node.module)
    return [name.partition(".")[0] for name in found]


def _missing(package: str) -> str | None:
    try:
        found = importlib.util.find_spec(package)
    except (ImportError, ValueError):
        found = None
    return None if found else f"{package} is not installed here"


def _read(path: Path) -> dict[str, Any]:
    """What an earlier call left, or nothing."""
    try:
        return json.loads(path.read_text("utf-8"))
    except (OSError, ValueError):
        return {}


def _ended(
    command: list[str], seconds: float, said: Path, root: Path, **environment: str
) -> int | None:
    """A program's exit status, what it writes going to a file; None if its time was over."""
    said.parent.mkdir(parents=True, exist_ok=True)
    with said.open("w") as file:
        program = subprocess.Popen(
            command,
            cwd=root,
            stdout=file,
            stderr=subprocess.STDOUT,
            env={**os.environ, **environment},
            start_new_session=True,
        )
        try:
            return program.wait(seconds)
        except subprocess.TimeoutExpired:
            return None
        finally:
            with suppress(OSError):  # all that it has started, too
                os.killpg(program.pid, signal.SIGKILL)
            program.wait()
