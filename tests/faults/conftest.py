"""A toy whose cases start processes in all the ways that cases do, and what to stop it with."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.conftest import hears_ctrl_c

ROOT = Path(__file__).parents[2]
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


@page.cases
def cases(plan):
    return [{"way": way, "seed": seed} for seed in range(2) for way in WAYS]


@page.run
def run(params, ctx):
    argument = {"way": params["way"]}
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
    return {"waited": 1}
'''

WAIT = '''
import os
import time
from pathlib import Path


def wait(argument):
    """Until told to go; a minute at most."""
    end = time.monotonic() + 60
    Path(os.environ["NEST"], f"at-{os.getpid()}").write_text(argument["way"])
    while not Path(os.environ["NEST"], "go").exists() and time.monotonic() < end:
        time.sleep(0.02)
    return {"waited": 1}
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


def wait_for(condition: Callable[[], object], seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.02)


class Nest:
    """The toy in a folder of its own, and runs of it."""

    def __init__(self, root: Path, at: Path) -> None:
        self.root, self.at = root, at
        self.mark = f"NEST={at}"
        self.started: list[subprocess.Popen[str]] = []

    def environment(self) -> dict[str, str]:
        paths = [str(self.root / "lib"), str(ROOT), os.environ.get("PYTHONPATH", "")]
        return {
            **os.environ,
            "MADL_ROOT": str(self.root),
            "NEST": str(self.at),
            "PYTHONPATH": os.pathsep.join(filter(None, paths)),
        }

    def run(self, *arguments: str, ways: str = "plain fresh pool shell") -> subprocess.Popen[str]:
        run = subprocess.Popen(
            [sys.executable, str(ROOT / "cli.py"), "run", *arguments],
            env={**self.environment(), "NEST_WAYS": ways},
            stderr=subprocess.PIPE,
            text=True,
            preexec_fn=hears_ctrl_c,
            start_new_session=True,
        )
        self.started.append(run)
        return run

    def waiting(self) -> dict[str, list[int]]:
        """Processes that are inside a case now, by the way of their case."""
        found: dict[str, list[int]] = {}
        for path in self.at.glob("at-*"):
            if (way := path.read_text()) and Path(f"/proc/{path.name[3:]}").exists():
                found.setdefault(way, []).append(int(path.name[3:]))
        return found

    def left(self) -> dict[int, str]:
        return alive(self.mark)

    def records(self) -> list[Path]:
        return list((self.root / ".madl").glob("records/*/[!.]*.json"))

    def temporaries(self) -> list[Path]:
        return [path for path in (self.root / ".madl" / "tmp").glob("[!.]*") if path.is_dir()]

    def close(self) -> None:
        for pid in self.left():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for run in self.started:
            run.wait()
            assert run.stderr is not None
            run.stderr.close()


@pytest.fixture
def nest(tmp_path: Path) -> Iterator[Nest]:
    """The toy with the processes, ready to run."""
    root, at = tmp_path / "a nest ü", tmp_path / "at"
    for folder in ("experiments", "templates", "docs", "lib"):
        (root / folder).mkdir(parents=True)
    at.mkdir()
    (root / "experiments" / "nest.py").write_text(NEST)
    (root / "experiments" / "questions.toml").write_text("")
    (root / "templates" / "nest.md.j2").write_text("")
    (root / "lib" / "nest_wait.py").write_text(WAIT)
    made = Nest(root, at)
    yield made
    made.close()
