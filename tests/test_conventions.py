"""The rules of the architecture, held by machine."""

import ast
import functools
import graphlib
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from madl.running.project import Project
from madl.site.prose import typed_numbers
from tests.conftest import ROOT, python

PROJECT = Project()
NAMES = PROJECT.pages()
TEMPLATES = [*sorted((ROOT / "templates").glob("*.md.j2")), *(ROOT / "experiments").glob("*/*.j2")]
PAGES = sorted((ROOT / "experiments").glob("*/page.py"))


def sources(*folders: str) -> list[Path]:
    return [path for folder in folders for path in sorted((ROOT / folder).rglob("*.py"))]


@functools.cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def by_stem(path: Path) -> str:
    return path.parent.name


def template(name: str) -> str:
    text = (PROJECT.experiments / f"{name}" / "page.md.j2").read_text()
    return re.sub(r"\{#.*?#\}", "", text, flags=re.DOTALL)


def test_each_page_is_a_folder_with_its_template_whose_prose_holds_no_numbers():
    for path in PAGES:
        assert (path.parent / "page.md.j2").is_file(), path
    inside = (path for path in (ROOT / "experiments").iterdir() if path.name != "__pycache__")
    folders = {path for path in inside if any(path.glob("*.*"))}
    assert folders == {path.parent for path in PAGES}
    assert typed_numbers("It gains 3.1 points, 5% of all.\n") == ["3.1", "5%"]
    assert typed_numbers("# 1.2 Title\nFP32, L1 and `9` [x](y2.md) {{ f(3) }}\n") == []
    assert typed_numbers("ResNet-18 has 18 layers, rank-8 LoRA.\n") == ["18", "8"]
    found = {path: typed_numbers(path.read_text()) for path in TEMPLATES}
    assert {path: numbers for path, numbers in found.items() if numbers} == {}


@pytest.mark.parametrize("name", NAMES)
def test_a_template_prints_every_number_has_sentences_for_every_claim_and_does_not_branch(name):
    page, text = PROJECT.load(name), template(name)
    for number in page.made_numbers:
        assert re.search(rf"\{{\{{-?\s*{number}\b", text), number
    for claim in page.claims.values():
        is_said = f'claim "{claim.name}"' in text
        assert is_said or not claim.primary, claim.name
    for item, one in page.shown.items():
        call = "figure" if one.kind in ("chart", "drawing") else one.kind
        assert re.search(rf'\b(?:{call}|table)\("{item}"', text), item
    statements = set(re.findall(r"\{%-?\s*(\w+)", template(name)))
    assert statements <= {
        *("extends", "block", "endblock", "filter", "endfilter", "raw", "endraw"),
        *("claim", "supported", "refuted", "undecided", "disagree", "unmeasured", "endclaim"),
        *("call", "endcall"),
    }


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
def module_graph(*folders: str) -> dict[str, set[str]]:
    paths = {module_name(path): path for path in sources(*folders)}
    return {name: (imports(path) & paths.keys()) - {name} for name, path in paths.items()}


FOLDERS = ("madl", "kernels", "experiments", "benchmarks", "tests", "cli")

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
    for module, others in module_graph("madl").items():
        for other in others - {"madl"}:
            yield module, other


def test_inside_madl_imports_point_down_or_along_and_never_in_a_circle():
    every = module_graph("madl", "kernels", "experiments", "benchmarks")
    list(graphlib.TopologicalSorter(every).static_order())
    up = [(a, b) for a, b in arrows() if LEVEL[wing(a)] < LEVEL[wing(b)]]
    assert up == []
    wings: dict[str, set[str]] = {}
    for a, b in arrows():
        if wing(a) != wing(b):
            wings.setdefault(wing(a), set()).add(wing(b))
    list(graphlib.TopologicalSorter(wings).static_order())


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


EMPTY_NAMES = {"one", "found", "made", "what", "of", "said"}  # they say nothing of what they name


def bindings(tree: ast.AST) -> Iterator[str]:
    """The names that a file gives to values, parameters, functions and classes."""
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name, ctx=ast.Store()) | ast.arg(arg=name):
                yield name
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                yield name
            case ast.ExceptHandler(name=str(name)) | ast.MatchAs(name=str(name)):
                yield name
            case _:
                pass


def code() -> list[Path]:
    return [*sources("madl", "kernels", "experiments", "benchmarks", "templates"), ROOT / "cli.py"]


def test_names_are_nouns():
    empty = [
        f"{path.relative_to(ROOT)}: {name}"
        for path in code()
        for name in bindings(parsed(path))
        if name.strip("_") in EMPTY_NAMES
    ]
    assert len(empty) <= 5, empty


def is_claim(node: ast.AST) -> bool:
    decorators = node.decorator_list if isinstance(node, ast.FunctionDef) else []
    return any(ast.unparse(decorator).startswith("page.claim") for decorator in decorators)


def test_a_docstring_says_first_what_a_thing_is_or_does():
    kinds = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
    documented = [
        (path, ast.get_docstring(node) or "x")
        for path in code()
        for node in ast.walk(parsed(path))
        if isinstance(node, kinds) and not is_claim(node)  # a hypothesis, which is registered
    ]
    first_words = ("What", "Of", "That", "Which")
    wrong = [(path.name, text) for path, text in documented if text.split()[0] in first_words]
    assert wrong == []


def test_what_is_imported_from_a_file_of_the_repository_is_there():
    """Also in a benchmark or inside a function, which no test imports."""
    paths = sources("madl", "kernels", "experiments", "benchmarks", "templates")
    nodes = [node for path in [*paths, ROOT / "cli.py"] for node in ast.walk(parsed(path))]
    ours = [n for n in nodes if isinstance(n, ast.ImportFrom) and begins(str(n.module), *FOLDERS)]
    ours = [n for n in ours if n.module != "experiments.STEM.design"]  # of a page to be
    for statement in sorted({ast.unparse(node) for node in ours}):
        exec(statement, {})


DESIGNS = sorted((ROOT / "experiments").glob("*/design.py"))


@pytest.mark.parametrize("path", DESIGNS, ids=by_stem)
def test_a_design_imports_nothing_but_the_standard_library(path):
    assert {module.split(".")[0] for module in imports(path)} <= sys.stdlib_module_names


def test_no_study_and_nothing_that_it_reaches_imports_a_page():
    """So what a page shows and says is no part of what a case measures."""
    importers = [
        str(path.relative_to(ROOT))
        for path in sources("madl", "kernels", "experiments")
        if any(re.match(r"experiments\.\w+\.page\b", module) for module in imports(path))
    ]
    assert importers == []


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
    done = python("-c", code)
    assert done.stdout.strip() == "[]", done.stderr


@pytest.mark.parametrize("path", PAGES, ids=by_stem)
def test_experiments_import_torch_only_where_a_case_runs_and_read_nothing_private(path):
    top = [node for node in parsed(path).body if isinstance(node, ast.Import | ast.ImportFrom)]
    found = imported(ast.Module(top, type_ignores=[]))
    found = [name for name in found if not begins(name, "madl.compression.roles")]  # names alone
    assert not [name for name in found if begins(name, *HEAVY, "madl.compression")]
    read = {node.attr for node in ast.walk(parsed(path)) if isinstance(node, ast.Attribute)}
    private = {name for name in read if name.startswith("_") and not name.endswith("__")}
    assert private <= NOT_PRIVATE


# Not ours to rename: a named tuple's public API, and what torch and transformers have no public
# name for.
NOT_PRIVATE = {"_fields", "_replace", "_asdict", "_int_mm", "_attn_implementation"}
OF_TEST_VALUES = {"effect", "interval_at", "tails", "plain"}  # numbers to choose by
UNSEALING = ("charts.plain", "charts.interval_of", "charts.data_rows", "charts.estimated")


@pytest.mark.parametrize("path", PAGES, ids=by_stem)
def test_experiments_reach_test_values_through_arms_only(path):
    tree = parsed(path)
    for node in ast.walk(tree):
        if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
            assert node.slice.value != "outcomes", f"line {node.lineno}: use arm(…)"
        if isinstance(node, ast.Attribute):
            assert node.attr not in OF_TEST_VALUES, f"line {node.lineno}: .{node.attr}"
            if node.attr == "interval" and isinstance(node.value, ast.Attribute):
                assert node.value.attr != "accuracy", f"line {node.lineno}: .accuracy.interval"
    assert not [name for name in imported(tree) if name.endswith(UNSEALING)]


def test_every_module_says_what_it_is_for_and_speaks_by_the_log_and_the_clock_alone():
    for path in sources("madl", "experiments", "kernels", "tests", "benchmarks"):
        assert not parsed(path).body or ast.get_docstring(parsed(path)), path
    for path in sources("madl", "experiments"):
        calls = [node for node in ast.walk(parsed(path)) if isinstance(node, ast.Call)]
        assert not [c for c in calls if isinstance(c.func, ast.Name) and c.func.id == "print"], path
    for path in PAGES:
        assert "time" not in imports(path), path


def test_nothing_names_a_registry_s_host_or_a_folder_outside_the_repository():
    banned = ["pypi" + ".org", "pythonhosted" + ".org", "huggingface" + ".co"]
    banned += ["/work/" + "shared", "../" + "shared"]
    not_ours = {".git", ".madl", ".venv", "site", "node_modules"}
    for folder, folders, files in os.walk(ROOT):
        folders[:] = [name for name in folders if name not in not_ours and "cache" not in name]
        for path in (Path(folder, name) for name in files):
            data = path.read_bytes()
            found = [one for one in banned if b"\0" not in data[:1024] and one.encode() in data]
            assert found == [], path


def test_what_depends_on_outside_programs_is_run_without_them_too():
    """Such a file is marked, for `make bare`; the run of everything takes minutes, and is not."""
    asks = r"from tests\.machine import|\bcompilers\b|shutil\.which|\bbuild_cuda\b"
    asking = {
        path for path in (ROOT / "tests").glob("test_*.py") if re.search(asks, path.read_text())
    }
    asking -= {ROOT / "tests" / "test_whole_run.py", Path(__file__)}
    marks = r"^pytestmark = .*\bpytest\.mark\.outside\b"
    marked = {path for path in asking if re.search(marks, path.read_text(), re.M)}
    assert len(asking) > 6
    assert asking == marked


READ = r"(?:environ(?:\.\w+)?[\[(]|getenv\()\s*[\"']([A-Z_]+)"


def test_every_environment_variable_and_program_that_is_asked_for_is_documented():
    text = "\n".join(path.read_text() for path in sources("madl", "kernels", "experiments"))
    text += (ROOT / "cli.py").read_text()
    named = {*re.findall(READ, text), *re.findall(r"which\([\"']([\w+-]+)", text)}
    usage = (ROOT / "docs" / "usage.md").read_text()
    assert {"MADL_CACHE", "nvcc"} <= named
    assert {name for name in named if f"`{name}`" not in usage} == set()
