"""The rules of the architecture, held by machine."""

import ast
import functools
import graphlib
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from madl.running.project import Project

ROOT = Path(__file__).parents[1]
PROJECT = Project()
NAMES = PROJECT.pages()
PAGES = sorted((ROOT / "experiments").glob("*/page.py"))


def sources(*folders: str) -> list[Path]:
    return [path for folder in folders for path in sorted((ROOT / folder).rglob("*.py"))]


@functools.cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def by_stem(path: Path) -> str:
    return path.parent.name


# ---- pages --------------------------------------------------------------------------------------


def template(name: str) -> str:
    """Without its comments."""
    text = (PROJECT.experiments / f"{name}" / "page.md.j2").read_text()
    return re.sub(r"\{#.*?#\}", "", text, flags=re.DOTALL)


@pytest.mark.parametrize("name", NAMES)
def test_a_template_prints_every_number_and_has_sentences_for_every_primary_claim(name):
    page, text = PROJECT.load(name), template(name)
    for number in page.made_numbers:
        assert re.search(rf"\{{\{{-?\s*{number}\b", text), number
    for claim in page.claims.values():
        is_said = f'claim "{claim.name}"' in text
        assert is_said or not claim.primary, claim.name
    for item, one in page.shown.items():
        call = "figure" if one.kind in ("chart", "drawing") else one.kind
        assert re.search(rf'\b(?:{call}|table)\("{item}"', text), item


def test_each_question_belongs_to_one_stem_and_none_is_forgotten():
    ids = [question.id for question in PROJECT.questions]
    asked = [
        *("0.1", "0.2", "1.1", "1.2", "2.1", "2.2", "2.3", "3.1", "3.2"),
        *("4.1", "4.2", "4.3a", "4.3b", "4.3c", "4.3d", "4.4"),
    ]
    assert ids[: len(asked)] == asked
    assert all(id.startswith("5.") for id in ids[len(asked) :])  # a student's own, by `cli.py new`


# ---- imports ------------------------------------------------------------------------------------


@functools.cache
def imports(path: Path) -> set[str]:
    """Every module that a file imports, anywhere in it, for types only or not."""
    return imported(parsed(path))


def imported(tree: ast.AST) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "a relative import"
            found.add(str(node.module))
            found.update(f"{node.module}.{alias.name}" for alias in node.names)
    return found


def begins(module: str, *packages: str) -> bool:
    return any(module == package or module.startswith(f"{package}.") for package in packages)


def module_name(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


@functools.cache
def module_graph() -> dict[str, set[str]]:
    """Every module of madl, and those of madl that it imports."""
    paths = {module_name(path): path for path in sources("madl")}
    return {name: (imports(path) & paths.keys()) - {name} for name, path in paths.items()}


# From the ground up: a wing imports what lies below it, and its own layer without a circle.
LAYERS = (
    {"errors", "files", "assets"},
    {"formats"},
    {"compression", "machine"},
    {"logbook", "execution", "training"},
    {"running"},
    {"site"},
)
LEVEL = {wing: level for level, layer in enumerate(LAYERS) for wing in layer}


def wing(module: str) -> str:
    return module.split(".")[1]


def arrows() -> Iterator[tuple[str, str]]:
    for module, others in module_graph().items():
        for other in others - {"madl"}:
            yield module, other


def test_no_module_imports_what_imports_it():
    list(graphlib.TopologicalSorter(module_graph()).static_order())


def test_inside_madl_imports_point_down_or_along():
    up = [(a, b) for a, b in arrows() if LEVEL[wing(a)] < LEVEL[wing(b)]]
    assert up == []


FORBIDDEN = {
    "madl/logbook": (
        *("torch", "transformers", "kernels", "madl.training", "madl.execution"),
        *("madl.running", "madl.site"),
    ),
    "madl": ("experiments", "cli"),
    "kernels": ("madl", "experiments", "cli"),
    "experiments": ("madl.site", "madl.running", "cli"),
}


@pytest.mark.parametrize("folder", FORBIDDEN)
def test_imports_point_one_way(folder):
    wrong = [
        f"{path.name} imports {module}"
        for path in sources(folder)
        for module in imports(path)
        if begins(module, *FORBIDDEN[folder])
    ]
    assert wrong == []


def pages_of(module: str) -> set[str]:
    """Which page a module is of."""
    return {module.split(".")[1]} if module.count(".") > 1 else set()


@functools.cache
def whole_graph() -> dict[str, set[str]]:
    """Every module of the repository but tests, and what it imports, anywhere in it."""
    paths = sources("madl", "experiments", "kernels", "benchmarks")
    named = {module_name(path): path for path in [*paths, ROOT / "cli.py"]}
    return {name: (imports(path) & named.keys()) - {name} for name, path in named.items()}


def reached(start: str) -> set[str]:
    found, left = set[str](), [start]
    while left:
        if (name := left.pop()) not in found:
            found.add(name)
            left += whole_graph()[name]
    return found


ENGINE = ("cli", "benchmarks", "madl.site", "madl.running", "madl.logbook", "madl.machine")


def test_a_module_of_madl_is_of_two_pages_or_of_the_engine():
    users: dict[str, set[str]] = {}
    for start in whole_graph():
        if pages_of(start) or begins(start, *ENGINE):
            who = next(iter(pages_of(start))) if begins(start, "experiments") else "engine"
            for module in reached(start):
                users.setdefault(module, set()).add(who)
    alone = {
        module: who
        for module, who in users.items()
        if begins(module, "madl") and len(who) == 1 and "engine" not in who
    }
    assert {m: w for m, w in alone.items() if not m.endswith("__init__")} == {}


HEAVY = ("torch", "transformers", "optuna", "datasets", "kernels")


def test_what_renders_pages_loads_no_torch():
    """Also not by way of something else: every module is imported, every experiment loaded."""
    wings = ("madl/logbook", "madl/running", "madl/site")
    modules = [module_name(path) for path in sources(*wings) if path.stem != "hooks"]
    code = (
        "import importlib, sys\n"
        f"for name in {modules}: importlib.import_module(name)\n"
        "from madl.running.project import Project\n"
        "Project().names()\n"
        f"print(sorted(set(sys.modules) & set({HEAVY})))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert done.stdout.strip() == "[]", done.stderr


@pytest.mark.parametrize("path", PAGES, ids=by_stem)
def test_experiments_import_torch_only_where_a_case_runs(path):
    top = [node for node in parsed(path).body if isinstance(node, ast.Import | ast.ImportFrom)]
    found = imported(ast.Module(top, type_ignores=[]))
    assert not [name for name in found if begins(name, *HEAVY, "madl.formats", "madl.compression")]


# ---- experiments --------------------------------------------------------------------------------

# Not ours to rename: a named tuple's public API, and what torch and transformers have no public
# name for.
NOT_PRIVATE = {"_fields", "_replace", "_asdict", "_int_mm", "_attn_implementation"}
OF_TIMES = {"lab4_compile"}  # pages that compute with ratios of times, which no test split gave
OF_TEST_VALUES = {"effect", "interval_at", "tails", "columns"}  # numbers to choose by
UNSEALING = ("charts.plain", "charts.interval_of", "charts.data_rows", "charts.estimated")


@pytest.mark.parametrize("path", PAGES, ids=by_stem)
def test_experiments_read_nothing_private(path):
    read = {node.attr for node in ast.walk(parsed(path)) if isinstance(node, ast.Attribute)}
    private = {name for name in read if name.startswith("_") and not name.endswith("__")}
    assert private <= NOT_PRIVATE


@pytest.mark.parametrize("path", PAGES, ids=by_stem)
def test_experiments_reach_test_values_through_arms_only(path):
    tree = parsed(path)
    for node in ast.walk(tree):
        if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
            assert node.slice.value != "outcomes", f"line {node.lineno}: use arm(…) or best(…)"
        if isinstance(node, ast.Attribute) and by_stem(path) not in OF_TIMES:
            assert node.attr not in OF_TEST_VALUES, f"line {node.lineno}: .{node.attr}"
            if node.attr == "interval" and isinstance(node.value, ast.Attribute):
                assert node.value.attr != "accuracy", f"line {node.lineno}: .accuracy.interval"
    assert not [name for name in imported(tree) if name.endswith(UNSEALING)]


# ---- everywhere ---------------------------------------------------------------------------------


NOT_OURS = {".git", ".madl", ".venv", "site", "node_modules"}


def texts() -> Iterator[tuple[Path, str]]:
    """Every file of the repository that is text, what is generated or installed left out."""
    for folder, folders, files in os.walk(ROOT):
        folders[:] = [name for name in folders if name not in NOT_OURS and "cache" not in name]
        for name in files:
            path = Path(folder, name)
            data = path.read_bytes()
            if b"\0" not in data[:1024]:
                yield path, data.decode(errors="ignore")


def test_nothing_names_a_registry_s_host_or_a_folder_outside_the_repository():
    hosts = ("pypi" + ".org", "pythonhosted" + ".org", "huggingface" + ".co")
    outside = ("/work/" + "shared", "../" + "shared")
    found = [
        (str(path.relative_to(ROOT)), banned)
        for path, text in texts()
        for banned in (*hosts, *outside)
        if banned in text
    ]
    assert found == []
