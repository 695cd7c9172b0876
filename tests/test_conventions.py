"""The rules of the architecture, held by machine."""

import ast
import re
from pathlib import Path

import pytest

from madl.running.project import Project

ROOT = Path(__file__).parents[1]
PROJECT = Project()
NAMES = PROJECT.names()


def template(name: str) -> str:
    return (PROJECT.templates / f"{name}.md.j2").read_text()


def imports(path: Path) -> set[str]:
    """Every module that a file imports, anywhere in it."""
    return imported(ast.parse(path.read_text()))


def imported(tree: ast.AST) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module)
            found.update(f"{node.module}.{alias.name}" for alias in node.names)
    return found


def sources(*folders: str) -> list[Path]:
    return [path for folder in folders for path in sorted((ROOT / folder).rglob("*.py"))]


@pytest.mark.parametrize("name", NAMES)
def test_each_experiment_has_its_template(name):
    assert template(name)


@pytest.mark.parametrize("path", sorted((ROOT / "templates").glob("*.j2")), ids=lambda p: p.stem)
def test_each_template_has_its_experiment(path):
    name = path.name.removesuffix(".md.j2")
    assert name in NAMES or name in ("experiment", "index", "ledger")


@pytest.mark.parametrize("name", NAMES)
def test_each_claim_figure_and_table_is_used_exactly_once(name):
    experiment, text = PROJECT.load(name), template(name)
    for call, known in (
        ("claim", experiment.claims),
        ("figure", experiment.figures),
        ("table", experiment.tables),
        ("output", experiment.outputs),
    ):
        for item in known:
            uses = len(re.findall(rf'\b{call}\("{item}"\)', text))
            assert uses == 1, f"{call} {item} is used {uses} times"


def prose(text: str) -> str:
    """A template without its calls, comments, code spans, links and headings."""
    text = re.sub(r"\{\{.*?\}\}|\{%.*?%\}|\{#.*?#\}", "", text, flags=re.DOTALL)
    text = re.sub(r"```.*?```|`[^`]*`|\]\([^)]*\)", "", text, flags=re.DOTALL)
    return "\n".join(line for line in text.splitlines() if not line.startswith("#"))


@pytest.mark.parametrize("path", sorted((ROOT / "templates").glob("*.j2")), ids=lambda p: p.stem)
def test_prose_holds_no_numbers(path):
    """A digit is allowed inside a name only: FP32, L1, MXINT8."""
    assert re.findall(r"(?<![A-Za-z0-9])\d[\d.,]*%?", prose(path.read_text())) == []


@pytest.mark.parametrize("name", NAMES)
def test_captions_and_titles_hold_no_numbers(name):
    experiment = PROJECT.load(name)
    for text in (experiment.title, *(f.caption for f in experiment.figures.values())):
        assert re.findall(r"(?<![A-Za-z0-9])\d[\d.,]*%?", text) == []


def test_each_question_belongs_to_one_stem_and_none_is_forgotten():
    ids = [question.id for question in PROJECT.questions]
    assert ids == [
        *("0.1", "0.2", "1.1", "1.2", "2.1", "2.2", "2.3", "3.1", "3.2"),
        *("4.1", "4.2", "4.3a", "4.3b", "4.3c", "4.3d", "4.4"),
    ]


FORBIDDEN = {
    "madl/logbook": ("torch", "madl.formats", "madl.compression", "madl.training", "kernels"),
    "madl/machine": ("madl.logbook", "madl.formats", "madl.compression", "madl.training"),
    "madl/formats": ("madl.logbook", "madl.compression", "madl.training", "madl.machine"),
    "madl/compression": ("madl.logbook", "madl.training"),
    "kernels": ("madl",),
    "madl": ("experiments", "cli"),
}


@pytest.mark.parametrize("folder", FORBIDDEN)
def test_imports_point_one_way(folder):
    allowed = {("runner.py", "torch")}  # inside the function that prepares a process
    for path in sources(folder):
        for module in imports(path):
            for banned in FORBIDDEN[folder]:
                wrong = module == banned or module.startswith(f"{banned}.")
                assert not wrong or (path.name, banned) in allowed, f"{path} imports {module}"


@pytest.mark.parametrize("path", sources("experiments"), ids=lambda p: p.stem)
def test_experiments_import_torch_only_where_a_case_runs(path):
    top = ast.Module(
        [n for n in ast.parse(path.read_text()).body if isinstance(n, ast.Import | ast.ImportFrom)],
        type_ignores=[],
    )
    heavy = ("torch", "transformers", "optuna", "madl.formats", "madl.compression", "kernels")
    assert not [name for name in imported(top) if name.startswith(heavy)]


@pytest.mark.parametrize(
    "path", sources("madl", "experiments", "kernels", "tests", "benchmarks"), ids=str
)
def test_every_module_says_what_it_is_for(path):
    text = path.read_text()
    assert not text.strip() or ast.get_docstring(ast.parse(text))


def test_the_log_is_the_library_s_only_output():
    for path in sources("madl", "experiments"):
        calls = [n for n in ast.walk(ast.parse(path.read_text())) if isinstance(n, ast.Call)]
        assert not [c for c in calls if isinstance(c.func, ast.Name) and c.func.id == "print"], path


def test_time_is_read_by_the_clock_alone():
    """Durations of results come from `machine.timing` or the runner, not from an experiment."""
    for path in sources("experiments"):
        assert "time" not in imports(path), path


def test_there_is_one_broad_catch():
    broad = [
        (path.name, handler.lineno)
        for path in [*sources("madl", "experiments"), ROOT / "cli.py"]
        for handler in ast.walk(ast.parse(path.read_text()))
        if isinstance(handler, ast.ExceptHandler)
        and (handler.type is None or getattr(handler.type, "id", "") == "Exception")
    ]
    assert [name for name, _ in broad] == ["runner.py", "data.py"], broad


def test_no_registry_host_is_named_in_the_repository():
    hosts = ("pypi" + ".org", "pythonhosted" + ".org", "huggingface" + ".co")
    for path in [*ROOT.glob("*"), *sources("madl", "experiments", "tests")]:
        if path.is_file():
            text = path.read_text(errors="ignore")
            assert not [host for host in hosts if host in text], path
