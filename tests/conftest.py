"""Small real things for the tests: a toy logbook, a tiny model and a tiny data set."""

import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from madl.logbook.experiment import PROFILES, Context
from madl.logbook.records import Case, Params, Record, Run, Store
from madl.machine.device import no_device, num_cores
from madl.running.evidence import Evidence
from madl.running.plans import RunPlan
from madl.running.project import Project
from madl.site.cache import memoized

ROOT = Path(__file__).parents[1]

settings.register_profile("here", deadline=None)  # a machine that others use is no fault
settings.load_profile("here")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest go first, so that all workers end at about the same time."""
    longest = ("test_whole_run.py", "test_text.py", "test_a_scheduler_that_dies")
    items.sort(key=lambda item: not any(name in item.nodeid for name in longest))
    if why := no_device({"device": "cuda"}):
        for item in items:
            if item.get_closest_marker("cuda"):
                item.add_marker(pytest.mark.skip(reason=why))


@pytest.fixture(scope="session", autouse=True)
def no_wait_for_the_disk():
    """No test cuts the power, and a busy disk takes a second for what a rename does at once."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda handle: None)
        yield


@pytest.fixture(autouse=True)
def as_many_threads_as_before():
    """A run in this process takes all cores, and what is tested behind it would fight for them."""
    yield
    if (threads := os.environ.get("OMP_NUM_THREADS")) and (torch := sys.modules.get("torch")):
        torch.set_num_threads(int(threads))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """One more than cores, for some tests wait for what other processes do."""
    return num_cores() + 1


TOY = '''
"""A toy experiment: squares of numbers."""

import os
import time
from pathlib import Path

from madl.errors import MadlError
from madl.logbook.charts import Chart, line, linear
from madl.logbook.claims import contrast
from madl.logbook.experiment import Experiment
from madl.logbook.numbers import value
from madl.logbook.stats import mean
from madl.logbook.values import Unit

page = Experiment(title="Squares")

@page.cases
def cases(plan):
    return [{"x": x, "seed": 0} for x in range(plan.profile.choose(smoke=2, quick=4))]

@page.run
def run(params, ctx):
    log = Path(os.environ["TOY_LOG"])
    with log.open("a") as file:
        file.write(f"{params['x']}\\n")
    if params["x"] == int(os.environ.get("TOY_SLOW", -1)):
        time.sleep(60)
    if params["x"] == int(os.environ.get("TOY_FAIL", -1)):
        raise MadlError("the toy was told to fail")
    folder = ctx.artifact("squares", lambda path: path.mkdir())
    assert folder.is_dir()
    return {"square": params["x"] ** 2}

@page.quick
def quick(params):
    return True

@page.unavailable
def unavailable(params):
    return os.environ.get("TOY_MISSING") if params["x"] == 1 else None

@page.chart
def squares(r):
    rows = [{"x": x, "square": r.single(x=x).values["square"]} for x in (0, 1)]
    return Chart(rows, x=linear("x"), y=linear(label="square"), marks=[line("square")])

@page.table
def roots(r):
    return [{"square": one.values["square"], "root": one.case.params["x"]} for one in r.all()]

@page.claim(primary=True)
def grows(r):
    """One squared is more than a half."""
    one = r.single(x=1)
    weighed = [one.values["square"] - 0.5 + i / 100 for i in range(5)]
    return contrast(mean(weighed, unit=Unit.BITS, unit_name="scales"), [one])

page.numbers(
    one=value("square", x=1),
    many=lambda r: len(r.all()),
)
'''

TEMPLATE = """{% extends "page.md.j2" %}
{% block answer %}
{% claim "grows" %}
{% supported %}One squared is {{ one }}.
{% refuted %}One squared is only {{ one }}.
{% undecided %}One squared may be {{ one }}; we could have detected {{ smallest }}.
{% endclaim %}
{% endblock %}
{% block lead %}There are {{ many }} squares.{% endblock %}
{% block figure %}
{% call figure("squares", caption="They grow.") %}Squares{% endcall %}
{% endblock %}
{% block table %}{{ table("roots") }}{% endblock %}
{% block why %}They are products.{% endblock %}
{% block mislead %}Nothing.{% endblock %}
{% block method %}They are multiplied.{% endblock %}
"""

QUESTIONS = """
["9.1"]
stem = "toy"
title = "Squares"
text = "How do squares grow?"
asked = [{ counts = "numbers", x = [0, 1, 2] }]

["9.2"]
stem = "nothing"
title = "Nothing"
text = "Is there nothing?"
"""


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def skeleton(root: Path, name: str, page: str, template: str) -> Path:
    """A logbook of one page that answers no question."""
    for folder in (f"experiments/{name}", "templates", "docs/notes", "docs/data"):
        (root / folder).mkdir(parents=True)
    (root / "experiments" / "questions.toml").write_text("")
    (root / "experiments" / name / "page.py").write_text(page)
    (root / "experiments" / name / "page.md.j2").write_text(template)
    for one in ("page.md.j2", "evidence.html.j2", "index.md.j2", "ledger.md.j2"):
        shutil.copy(ROOT / "templates" / one, root / "templates")
    return root


DRAWN: dict[str, str] = {}  # by a digest of all that it is made of


def drawn_once(folder: Path | None, name: str, key: str, make: Callable[[], str]) -> str:
    """`memoized`, but a drawing that another test has made is not made again."""
    which = name + key
    return memoized(folder, name, key, lambda: DRAWN.get(which) or DRAWN.setdefault(which, make()))


@pytest.fixture
def toy(tmp_path, monkeypatch) -> Project:
    """A logbook of one experiment in a folder of its own; `$TOY_LOG` lists the executed cases."""
    for module in ("svg", "share"):
        monkeypatch.setattr(f"madl.site.{module}.memoized", drawn_once)
    root = skeleton(tmp_path / "toy", "toy", TOY, TEMPLATE)
    (root / "experiments" / "questions.toml").write_text(QUESTIONS)
    monkeypatch.setenv("TOY_LOG", str(tmp_path / "log"))
    monkeypatch.setenv("MADL_ROOT", str(root))
    (tmp_path / "log").touch()
    return Project(root)


@pytest.fixture
def plan(toy) -> RunPlan:
    return RunPlan(toy, PROFILES["full"], {})


def own(plan: RunPlan) -> Evidence:
    """This machine's evidence, as it is now."""
    return Evidence(plan=plan, source=plan.project.store.get)


def a_run(**changes) -> Run:
    return Run(
        **{
            "started": "2026-01-02T03:04:05+00:00",
            "commit": "abc",
            "dirty": False,
            "code": "def",
            "command": "cli.py all",
            "host": "a machine",
            "device": "cpu",
            "cpu": "a cpu",
            "threads": 1,
            "python": "3.11",
            "torch": "2.13",
            "cuda": None,
            "contention": 0.0,
            **changes,
        }
    )


def a_record(x: int = 1, **changes) -> Record:
    fields = {
        "case": Case(experiment="toy", params={"x": x, "seed": 0}),
        "status": "ok",
        "values": {"square": x * x},
        "seconds": 1.0,
        "run": a_run(),
        **changes,
    }
    return Record(**fields)


TORCH = '''
"""In the place of torch, which takes seconds to be imported and has no part in this."""

from types import SimpleNamespace

__version__ = "none"
Tensor = type("Tensor", (), {})  # scipy asks whether an array is one as soon as there is a torch
version = SimpleNamespace(cuda=None)
cuda = SimpleNamespace(is_available=lambda: False)
manual_seed = set_num_threads = lambda value: None
get_num_threads = lambda: 1
'''


@pytest.fixture
def no_torch(tmp_path: Path) -> Path:
    return without_torch(tmp_path)


def without_torch(folder: Path) -> Path:
    """A path of imports in the folder, on which torch is a module that does next to nothing."""
    (folder / "lib" / "torch").mkdir(parents=True)
    (folder / "lib" / "torch" / "__init__.py").write_text(TORCH)
    return folder / "lib"


GOOD = ["great", "lovely", "moving", "brilliant", "warm", "clever"]
BAD = ["dull", "awful", "clumsy", "boring", "cold", "stupid"]
FILLER = "the film has a plot and an actor with some music in every scene".split()  # noqa: SIM905


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory) -> Path:
    """A BERT of two small layers in the hub's layout, tokenizer included."""
    import torch
    from transformers import BertConfig, BertForSequenceClassification

    folder = tmp_path_factory.mktemp("tiny") / "bert"
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *sorted({*GOOD, *BAD, *FILLER})]
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=len(words),
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=64,
        max_position_embeddings=64,
    )
    BertForSequenceClassification(config).save_pretrained(folder)
    (folder / "vocab.txt").write_text("\n".join(words))
    settings = {"tokenizer_class": "BertTokenizer", "do_lower_case": True, "model_max_length": 64}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    return folder


@pytest.fixture(scope="session")
def tiny_dataset(tmp_path_factory) -> Path:
    import pyarrow as pa
    import pyarrow.parquet as pq

    folder = tmp_path_factory.mktemp("tiny") / "reviews"
    (folder / "plain_text").mkdir(parents=True)
    for seed, (split, count) in enumerate((("train", 400), ("test", 320))):
        rng = random.Random(seed)
        labels = [rng.randrange(2) for _ in range(count)]
        of = ((rng.sample(GOOD if label else BAD, 2), rng.randrange(3, 9)) for label in labels)
        texts = [" ".join(words + rng.choices(FILLER, k=k)) for words, k in of]
        path = folder / "plain_text" / f"{split}-00000-of-00001.parquet"
        pq.write_table(pa.table({"text": texts, "label": labels}), path)
    return folder


@pytest.fixture(scope="session")
def training(tiny_model, tiny_dataset) -> dict[str, object]:
    """Parameters of a case that trains the tiny model on a little of its data."""
    splits = ("train_examples", "validation_examples", "test_examples")
    return {
        **{"model": str(tiny_model), "dataset": str(tiny_dataset), "seed": 10},
        **dict.fromkeys((*splits, "max_length", "batch_size"), 32),
        **{"epochs": 1, "learning_rate": 5e-5},
    }


@pytest.fixture
def ctx(tmp_path) -> Context:
    return Context(device="cpu", store=Store(tmp_path))


def fine_tuned(params: Params, root: Path) -> tuple[Params, Store]:
    from madl.training import baseline

    store = Store(root)
    baseline.checkpoint(params, Context(device="cpu", store=store))
    return params, store


def supernet_of(started: tuple[Params, Store], ctx: Context):
    """The workbench of a search, in a store that begins with what is there already."""
    from madl.training.supernet import Supernet

    params, store = started
    shutil.copytree(store.root, ctx.store.root, dirs_exist_ok=True)
    return Supernet(dict(params), ctx)


def product(root: Path, *left_out: str) -> Path:
    """A copy of the whole product without what it makes, and without `left_out`."""
    ignored = shutil.ignore_patterns("__pycache__", "labs", "figures", "records", *left_out)
    for name in ("madl", "kernels", "experiments", "templates", "docs"):
        shutil.copytree(ROOT / name, root / name, ignore=ignored)
    for name in ("cli.py", "mkdocs.yml"):
        shutil.copy(ROOT / name, root)
    return root


@pytest.fixture(scope="session")
def logbook(tmp_path_factory, tiny_model, tiny_dataset):
    root = product(tmp_path_factory.mktemp("product"), "data")
    (root / "docs" / "data").mkdir()

    def call(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        workload = ("--model", str(tiny_model), "--dataset", str(tiny_dataset))
        profile = ("--profile", "smoke")
        environment = {"PYTHONPATH": "", **environment}
        return python("cli.py", *arguments, *profile, *workload, cwd=root, **environment)

    call.root = root
    call.first = call("all", "--jobs", "2")
    return call


class Processes:
    """Pythons in processes of their own, each in a group that ends with the test."""

    def __init__(self) -> None:
        self.started: list[subprocess.Popen[str]] = []

    def start(self, *arguments: object, **how: Any) -> subprocess.Popen[str]:
        command = [sys.executable, *map(str, arguments)]
        how |= {"text": True, "preexec_fn": hears_ctrl_c, "start_new_session": True}
        self.started.append(subprocess.Popen(command, **how))
        return self.started[-1]

    def end(self) -> None:
        for run in reversed(self.started):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(run.pid, signal.SIGKILL)
            run.communicate()


@pytest.fixture
def processes() -> Iterator[Processes]:
    made = Processes()
    yield made
    made.end()


def python(
    *arguments: str | Path, cwd: Path = ROOT, check: bool = False, **environment: str
) -> subprocess.CompletedProcess[str]:
    """This Python in a process of its own, which finds the repository."""
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=cwd,
        capture_output=True,
        text=True,
        check=check,
        env={**os.environ, "PYTHONPATH": str(ROOT), "NO_MKDOCS_2_WARNING": "1", **environment},
    )


def wait_for(condition: Callable[[], object]) -> None:
    end = time.monotonic() + 300
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.02)


def hears_ctrl_c() -> None:
    """For `preexec_fn`: a process in the background of a script ignores SIGINT from birth, and one
    started by nohup SIGHUP.
    """
    for ignored in (signal.SIGINT, signal.SIGHUP):
        signal.signal(ignored, signal.SIG_DFL)
