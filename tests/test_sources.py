"""Which edits of the product's own files make its evidence old, and which do not."""

import ast
import shutil

import pytest

from madl.machine import sources, syntax
from tests.conftest import ROOT

TRAIN, ATTENTION = "madl/training/train.py", "experiments/lab4_attention/study.py"
PRUNE, PAGE = "madl/compression/prune.py", "experiments/lab4_attention/page.py"
DESIGN = "experiments/lab4_attention/design.py"
QUANTIZE, TILE = "kernels/mxint8_quantize.h", "kernels/linear_tile.h"
UNIT = "kernels/hardware/dot_int.v"
READERS = {  # an experiment whose results depend on each file
    TRAIN: "baseline",
    ATTENTION: "lab4_attention",
    PAGE: "lab4_attention",
    DESIGN: "lab4_attention",
    PRUNE: "lab1_pruning",
    QUANTIZE: "lab4_mxint8",
    TILE: "lab4_memory",
    UNIT: "lab4_hardware",
}

GROUPS = """    groups = _decay_groups(model, recipe.weight_decay)
    return torch.optim.AdamW(groups, lr"""
SCORES = """    lowest = scores.argsort(dim=-1, stable=True)[:, :num_removed]
    return torch.ones_like(scores, dtype=torch.bool).scatter_(-1, lowest, False)
"""
RANKS = SCORES.replace("lowest", "removed")
NORMAL = """    drawn = (torch.randn(shape, generator=generator, device=device) for _ in range(3))
    q, k, v = (t.to(problem.torch_dtype) for t in drawn)
"""
ALIKE = [
    (
        TRAIN,
        '"""AdamW over all parameters that require a gradient."""',
        '"""The optimizer of a training."""',
    ),
    (TRAIN, '    """AdamW over all parameters that require a gradient."""\n', ""),
    (TRAIN, "    loss.backward()\n", "    # gradients\n    loss.backward()  # of all\n"),
    (TRAIN, "    loss.backward()\n", "    loss.backward()\n\n"),
    (TRAIN, GROUPS, GROUPS.replace("groups", "parts").replace("_decay_parts", "_decay_groups")),
    (TRAIN, "loss: Tensor = model(**batch).loss", "loss = model(**batch).loss"),
    (TRAIN, "-> torch.optim.Optimizer:", "-> Any:"),
    (TRAIN, "step: int, total: int) -> float:", "step: float, total: float):"),
    (TRAIN, "[p for p in parameters if p.ndim > 1]", "[q for q in parameters if q.ndim > 1]"),
    (TRAIN, "max(total // 10, 1)", "max(\n        total // 10,\n        1,\n    )"),
    (
        PRUNE,
        "from collections.abc import Callable",
        "from collections.abc import Hashable, Callable",
    ),
    (PRUNE, SCORES, RANKS),
    (PRUNE, "Batch = Mapping", "# of a data set\nBatch = Mapping"),
    (ATTENTION, "except RuntimeError as failed:", "except RuntimeError as  failed :"),
    (ATTENTION, "# no such kernel here", "# it has none"),
    (ATTENTION, NORMAL, NORMAL.replace("drawn", "normal")),
    (PAGE, "def limits(plan", "# of a GPU\ndef limits(plan"),
    (QUANTIZE, "// Mantissas under that scale, as int8", "// Codes, as int8"),
    (
        QUANTIZE,
        "if (largest > kInfinity) return kNanScale;",
        "if (largest > kInfinity)\n    return kNanScale;",
    ),
    (TILE, "// 16 bytes, or zeros.\n", ""),
    (
        UNIT,
        "  wire [LANES*WIDTH-1:0] carries;\n",
        "  wire [LANES*WIDTH-1:0] carries;  // of each lane\n",
    ),
]

OTHERS = [
    (TRAIN, "EVALUATION_BATCH = 64", "EVALUATION_BATCH = 32"),
    (TRAIN, "model.parameters(), 1.0)", "model.parameters(), 1.5)"),
    (TRAIN, "bf16: bool = False", "bf16: bool = True"),
    (TRAIN, "p.ndim <= 1", "p.ndim < 1"),
    (TRAIN, "(step + 1) / warm_up", "(step - 1) / warm_up"),
    (TRAIN, "    optimizer.zero_grad(set_to_none=True)\n", ""),
    (PRUNE, '"2:4": 4}', '"2:4": 8}'),
    (PRUNE, "    seed: int = 0,\n    norms:", "    seed: int = 1,\n    norms:"),
    (DESIGN, 'TOLERANCE = {"float32": 1e-5', 'TOLERANCE = {"float32": 2e-5'),
    (ATTENTION, "torch.softmax(scores, dim=-1) @ v", "torch.softmax(scores, dim=1) @ v"),
    (QUANTIZE, "kNanScale = 255", "kNanScale = 254"),
    (QUANTIZE, "if (largest > kInfinity)", "if (largest >= kInfinity)"),
    (TILE, "kAhead = 4;", "kAhead = 3;"),
    (UNIT, ".ADDS(1)", ".ADDS(0)"),
]


@pytest.fixture(scope="module")
def tree(tmp_path_factory):
    root = tmp_path_factory.mktemp("tree")
    for name in sources.PACKAGES:
        shutil.copytree(
            ROOT / name, root / name, ignore=shutil.ignore_patterns("__pycache__", "cells")
        )
    return root


def digest_with(tree, name, old, new):
    path = tree / name
    text = path.read_text()
    assert old in text, (name, old)
    assert old != new
    try:
        path.write_text(text.replace(old, new, 1))
        if path.suffix == ".py":
            ast.parse(path.read_text())
        return sources.digest(tree, READERS[name])
    finally:
        path.write_text(text)


def test_a_logbook_elsewhere_depends_on_the_library_and_on_its_own_pages(tmp_path):
    study = tmp_path / "experiments" / "mine" / "study.py"
    study.parent.mkdir(parents=True)
    study.write_text("from madl.compression import quantize\n\nWIDTH = 4\n")
    study.with_name("page.py").write_text("")
    reached = sources.reached(tmp_path, "mine")
    assert {ROOT / "madl/compression/quantize.py", ROOT / "kernels/round_to_grid.cpp"} <= reached
    assert not any("madl/logbook" in str(path) for path in reached)
    as_page, as_module = sources.digest(tmp_path, "mine"), "experiments.mine.study"
    before = sources.digest_of_module(tmp_path, as_module)
    study.write_text(study.read_text().replace("4", "5"))
    assert sources.digest(tmp_path, "mine") != as_page
    assert sources.digest_of_module(tmp_path, as_module) != before
    baseline = "madl.training.baseline"
    assert sources.digest_of_module(tmp_path, baseline) == sources.digest_of_module(ROOT, baseline)


def test_a_module_s_digest_changes_with_what_it_imports(tree):
    path, module = tree / TRAIN, "madl.training.baseline"
    before, text = sources.digest_of_module(tree, module), path.read_text()
    for old, new, is_same in (
        (ALIKE[0][1], ALIKE[0][2], True),
        (OTHERS[0][1], OTHERS[0][2], False),
    ):
        path.write_text(text.replace(old, new))
        assert (sources.digest_of_module(tree, module) == before) is is_same
    path.write_text(text)
    assert sources.digest_of_module(tree, "madl.no_such") == sources.digest_of_module(tree, "json")


@pytest.fixture(scope="module")
def unedited(tree):
    return {name: sources.digest(tree, reader) for name, reader in READERS.items()}


@pytest.mark.parametrize(("name", "old", "new"), ALIKE)
def test_what_explains_or_lays_out_code_changes_no_digest(tree, unedited, name, old, new):
    assert digest_with(tree, name, old, new) == unedited[name]


@pytest.mark.parametrize(("name", "old", "new"), OTHERS)
def test_what_can_change_a_result_changes_the_digest(tree, unedited, name, old, new):
    assert digest_with(tree, name, old, new) != unedited[name]


def bare(text):
    return syntax.written(syntax.bare(ast.parse(text)))


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ("def f(a):\n x = a\n return x", "def f(b):\n x = b\n return x"),  # given by name
        ("def f():\n global x\n x = 1", "def f():\n global y\n y = 1"),
        ("def f():\n import os\n return os", "def f():\n import re\n return re"),
        ("class C:\n x = 1", "class C:\n y = 1"),
        ("class C:\n x: int\n y: int", "class C:\n y: int\n x: int"),
        ("def f(x, y):\n u, v = x, y\n return u", "def f(x, y):\n u, v = x, y\n return v"),
        ("def f(v):\n x = 1\n return lambda x: x", "def f(v):\n x = 1\n return lambda y: x"),
        (
            "def f():\n x = 1\n class C:\n  x = 2\n  y = x",
            "def f():\n x = 1\n class C:\n  z = 2\n  y = x",
        ),
        ("print('a # b')", "print('a # c')"),
        ("f'{x=}'", "f'{y=}'"),
    ],
)
def test_names_that_others_see_and_what_is_computed_with_them_count(a, b):
    assert bare(a) != bare(b)


def test_strings_of_cpp_keep_what_looks_like_a_comment():
    assert syntax.native('f("a // b");') != syntax.native('f("a // c");')
    assert syntax.native("#define A 1\n#define B 2") != syntax.native("#define A 1 #define B 2")
    assert syntax.native("a / b /* c */ / d") == syntax.native("a/b/d")
    assert syntax.native("int ab;") != syntax.native("int a b;")


def test_sources_are_followed_once_until_one_is_edited_or_added(tree, monkeypatch):
    followed: list[object] = []
    closure = sources._closure

    def counted(*files):
        followed.append(files)
        return closure(*files)

    monkeypatch.setattr(sources, "_closure", counted)
    page = tree / "experiments" / "lab4_attention" / "page.py"
    before = {sources.digest(tree, "lab4_attention") for _ in range(3)}
    assert len(before) == 1
    count = len(followed)
    page.write_text(page.read_text() + "\n")
    assert {sources.digest(tree, "lab4_attention")} == before
    assert len(followed) == count + 1
    (page.parent / "added.py").write_text("")
    sources.digest(tree, "lab4_attention")
    assert len(followed) == count + 2


EVERY_STATEMENT = '''
import os
from os import path
x: int = 1
y: int
del x
def f(a, *b, c=1, **d) -> int:
    """Says what it does."""
    global z
    n = 1
    def g():
        nonlocal n
        n += 1
        return n
    for i in b:
        continue
    while a:
        break
    else:
        pass
    if a:
        assert a
    try:
        raise a
    except ValueError as e:
        print(e)
    finally:
        print(n)
    try:
        f()
    except* OSError:
        pass
    with a as k:
        pass
    match a:
        case [1, *rest] if rest:
            pass
async def h(a):
    async for i in a:
        pass
    async with a:
        await a
class C:
    v: int = 2
'''


def test_every_kind_of_statement_has_lines_that_can_change():
    kinds = {type(node) for node in ast.walk(ast.parse(EVERY_STATEMENT))}
    assert {kind for kind in ast.stmt.__subclasses__() if kind.__name__ != "TypeAlias"} <= kinds
    num_lines = len(EVERY_STATEMENT.splitlines())
    assert syntax.changed_lines(EVERY_STATEMENT, EVERY_STATEMENT) == (set(), set())
    removed, added = syntax.changed_lines("", EVERY_STATEMENT)
    assert removed == set()
    assert added <= set(range(2, num_lines + 1))
    assert len(added) > 35
