"""A toy whose cases start processes in all the ways that cases do, and how to run and stop it."""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

import cli
from tests.conftest import ROOT, TEMPLATE, TOY, Processes, skeleton, wait_for

DRAWS = 16  # cases of each way
GRACE_S = 2.0  # in which everything that a run has started ends with it

NEST = '''
"""A case that waits inside processes of its own, in each way that cases have them."""

import multiprocessing
import os
import subprocess
import sys
import tempfile
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from madl.logbook.experiment import Experiment
from madl.machine import fresh

import nest_wait

page = Experiment(title="Nest")
WAYS = os.environ["NEST_WAYS"].split()
DRAWS = int(os.environ["NEST_DRAWS"])

@page.cases
def cases(plan):
    return [{"way": way, "draw": draw, "seed": 0} for draw in range(DRAWS) for way in WAYS]

@page.quick
def quick(params):
    return True

@page.run
def run(params, ctx):
    argument = {"way": params["way"]}
    folder = ctx.artifact("weights", lambda made: (made.mkdir(), (made / "w").write_text("w")))
    assert (folder / "w").read_text() == "w"
    if params["way"] == "plain":
        return nest_wait.wait(argument)
    if params["way"] == "fresh":
        return fresh.call("nest_wait:wait", argument)
    if params["way"] == "pool":
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, "weights").write_text("w" * 1000)
            with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
                return pool.submit(nest_wait.wait, argument).result()
    code = "import nest_wait; nest_wait.wait({'way': 'shell'})"
    subprocess.run(f'"{sys.executable}" -c "{code}" & wait', shell=True, check=True)
    return {"waited": "shell"}
'''

WAIT = '''
"""What a case waits for: a file, or some seconds."""

import os
import time
from pathlib import Path

def wait(argument):
    """Say that we are here, and stay for `$NEST_S`."""
    Path(os.environ["NEST"], f"at-{os.getpid()}").write_text(argument["way"])
    time.sleep(float(os.environ["NEST_S"]))
    return {"waited": argument["way"]}
'''


def alive(mark: str) -> dict[int, str]:
    """Processes whose environment holds the mark, by what they are."""
    found: dict[int, str] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if mark.encode() in (folder / "environ").read_bytes():
                command = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode()
                if command:  # a zombie has none
                    found[int(folder.name)] = command[:160]
    return found


def is_one_line(stderr: str) -> bool:
    """Whether an error was said as it should be: once, on the last line, and nothing more."""
    errors = [line for line in stderr.splitlines() if line.startswith("Error: ")]
    return len(errors) == 1 and "Traceback" not in stderr and '  File "' not in stderr


def in_one_line(*arguments: str) -> Result:
    """A command in this process, none of whose mistakes may be more than a line."""
    done = CliRunner().invoke(cli.main, arguments, catch_exceptions=False)
    assert "Traceback" not in done.output
    assert '  File "' not in done.output
    assert "fault of the program" not in done.output, done.output
    assert done.exit_code in (0, 1), done.output
    return done


def python_of(minor: int) -> str:
    """A Python 3.`minor` that runs; the test is skipped where there is none."""
    found = [shutil.which(f"python3.{minor}")]
    found += [str(p) for p in Path.home().glob(f".pyenv/versions/3.{minor}.*/bin/python")]
    for python in filter(None, found):  # one on the PATH may be a shim with nothing behind it
        done = subprocess.run([python, "-c", "print(1)"], capture_output=True, check=False)
        if done.stdout.strip() == b"1":
            return python
    pytest.skip(f"there is no Python 3.{minor} here")


class Nest(Processes):
    """The toy in a folder of its own, and runs of it."""

    def __init__(self, root: Path, at: Path, lib: Path) -> None:
        super().__init__()
        self.root, self.at, self.lib = root, at, lib
        self.mark = f"NEST={at}"

    def environment(self, ways: str, seconds: float) -> dict[str, str]:
        paths = [str(self.lib), str(ROOT)]
        return {
            **os.environ,
            "MADL_ROOT": str(self.root),
            "NEST": str(self.at),
            "NEST_WAYS": ways,
            "NEST_S": str(seconds),
            "NEST_DRAWS": str(DRAWS),
            "PYTHONPATH": os.pathsep.join(paths),
        }

    def run(
        self, *arguments: str, ways: str = "plain fresh pool shell", seconds: float = 60
    ) -> subprocess.Popen[str]:
        how = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE}
        command = (ROOT / "cli.py", "run", "--device", "cpu", *arguments)
        return self.start(*command, env=self.environment(ways, seconds), **how)

    def waiting(self) -> list[int]:
        """Processes that are inside a case now."""
        pids = [int(path.name[3:]) for path in self.at.glob("at-*")]
        return [pid for pid in pids if Path(f"/proc/{pid}/cmdline").exists()]

    def wait_until_inside(self, run: subprocess.Popen[str], cases: int = 1) -> None:
        """Until so many cases are inside; a run that ended before it says why."""
        wait_for(lambda: len(self.waiting()) >= cases or run.poll() is not None)
        assert run.poll() is None, run.communicate()[1]

    def left(self) -> dict[int, str]:
        return alive(self.mark)

    def records(self) -> dict[Path, bytes]:
        found = (self.root / ".madl").glob("records/*/*.json")
        return {path: path.read_bytes() for path in found if not path.name.startswith(".")}

    def temporaries(self) -> list[Path]:
        """What a run has put down for a while, and should have taken away."""
        state = self.root / ".madl"
        folders = [path for path in (state / "tmp").glob("[!.]*") if path.is_dir()]
        return [*folders, *state.glob("records/*/.*"), *state.glob("artifacts/.*")]

    def end(self) -> None:
        for pid in self.left():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        super().end()


@pytest.fixture
def nest(tmp_path: Path, no_torch: Path) -> Iterator[Nest]:
    """The toy with the processes, ready to run, in a folder with an awkward name."""
    at = tmp_path / "at"
    at.mkdir()
    root = skeleton(tmp_path / "a nest ü", "nest", NEST, "# {{ title() }}\n{{ provenance() }}")
    (no_torch / "nest_wait.py").write_text(WAIT)
    made = Nest(root, at, no_torch)
    yield made
    made.end()


ARTIFACT = 'lambda path: (path.mkdir(), (path / "weights").write_bytes(b"w" * 300_000))'
TEMPORARY = """
    import tempfile
    with tempfile.TemporaryFile() as file:
        file.write(b"t" * 300_000)
        file.flush()
    folder ="""


Done = subprocess.CompletedProcess[str]
DEVICE = dict.fromkeys(("run", "all"), ("--device", "cpu"))


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """The toy in an awkward folder, with a large artifact and a large temporary file."""
    text = TOY.replace("lambda path: path.mkdir()", ARTIFACT)
    text = text.replace("    folder =", TEMPORARY, 1)
    root = skeleton(tmp_path / "a toy | `ü`", "toy", text, TEMPLATE)
    shutil.copy(ROOT / "mkdocs.yml", root)
    return root


class Calls:
    def __init__(self, root: Path, lib: Path, folder: Path) -> None:
        self.root, self.lib, self.folder = root, lib, folder

    def start(self, *arguments: str, **more: str) -> subprocess.Popen[str]:
        environment = {
            **os.environ,
            "MADL_ROOT": str(self.root),
            "TOY_LOG": str(self.folder / "log"),
            "HOME": str(self.folder / "home"),
            "PYTHONPATH": str(self.lib),
        }
        return subprocess.Popen(
            [sys.executable, str(ROOT / "cli.py"), *arguments, *DEVICE.get(arguments[0], ())],
            env=environment | more,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="surrogateescape",
        )

    def __call__(self, *arguments: str, **more: str) -> Done:
        run = self.start(*arguments, **more)
        try:
            stdout, stderr = run.communicate(timeout=120)
            return Done(run.args, run.returncode, stdout, stderr)
        finally:
            run.kill()

    def run_and_report(self) -> None:
        for command in (("run", "--jobs", "1"), ("report",)):
            done = self(*command)
            assert done.returncode == 0, done.stderr


@pytest.fixture
def call(root: Path, tmp_path: Path, no_torch: Path) -> Calls:
    return Calls(root, no_torch, tmp_path)
