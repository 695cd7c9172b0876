"""4.3b: what the page counts of the 65,536 codes, and its toy, which shows each as it is.

Floats hold every number here exactly.
"""

import functools
import json
import math
import re
import shutil
import subprocess

import pytest
import torch

from experiments.lab4_decode import page, study
from madl.errors import MadlError
from madl.logbook.records import Records
from tests.conftest import ROOT
from tests.synthetic import kept_of

pytestmark = pytest.mark.outside


@pytest.fixture(scope="module")
def decoded():
    return study.run({"codes": 65536}, None)  # type: ignore[arg-type]


@pytest.fixture
def records(decoded):
    return Records([kept_of("lab4_decode", decoded, codes=65536)])


def test_the_loop_is_wrong_exactly_where_reading_it_says_and_the_page_shows_it(decoded, records):
    """Exponent 0 doubles each value but zero; -128 gives zero; ±64 under 255 gives infinities."""
    assert decoded["wrong"] == {"all": 511, "lowest": 255, "zero": 254, "nan": 2}
    scales = 254  # 1 … 254
    assert (decoded["with_one"], decoded["without_one"]) == (2 * 64 * scales, 127 * scales)
    half = decoded["steps"][128 + 32]
    assert (half["out"], half["bias"], half["result"]) == (1.5, 1.0, 0.5)
    assert len(page.one(records).rows) == 256
    wrong = [
        (row["where"], row["wrong codes"], row["such as"], row["loop"], row["definition"])
        for row in page.wrong(records)
    ]
    assert wrong == [
        ("mantissa −128", 255, "scale 127", "0", "−2"),
        ("scale 0", 254, "mantissa 1", "2⁻¹³²", "2⁻¹³³"),
        ("scale 255", 2, "mantissa 64", "∞", "NaN"),
    ]
    assert {row["where"] for row in page.loop(records)} == {"", *(row[0] for row in wrong)}


@pytest.mark.parametrize("name", ["definition", "as_bf16"])
def test_a_case_that_breaks_what_the_page_says_fails(monkeypatch, name):
    made = getattr(study, name)
    monkeypatch.setattr(study, name, lambda *of: made(*of) * 2)
    with pytest.raises(MadlError, match="codes, the first mantissa"):
        study.run({}, None)  # type: ignore[arg-type]


TOY = ROOT / "experiments" / "lab4_decode" / "explain.js"
RAISED = str.maketrans("⁻⁰¹²³⁴⁵⁶⁷⁸⁹", "-0123456789")


def same(a: float, b: float) -> bool:
    return a == b or (math.isnan(a) and math.isnan(b))


@functools.cache
def read(text: str) -> float:
    """A number as the toy writes it: "−0.5", "101·2⁻¹³⁰", "∞"."""
    sign, text = (-1, text[1:]) if text[0] == "−" else (1, text)
    matched = re.fullmatch(r"(.*?)(?:·?2([⁻⁰-⁹¹²³]+))?", text)
    assert matched
    factor = {"∞": math.inf, "NaN": math.nan, "": 1.0}.get(matched[1]) or float(matched[1])
    return math.ldexp(sign * factor, int((matched[2] or "0").translate(RAISED)))


def test_values_are_exact_and_what_is_wrong_is_marked(records):
    if (node := shutil.which("node")) is None:
        pytest.skip("no node on the PATH, which runs the toy without a browser")
    rows = page.loop(records)
    (panel,) = page._panels(rows)
    found = re.findall(r'(?:class="([^"]*)" )?data-f="([^"]*)"', panel.svg)
    done = subprocess.run(
        [node, str(ROOT / "tests" / "native" / "every_code.js"), str(TOY)],
        input=json.dumps({"rows": rows, "fields": [(name, look) for look, name in found]}),
        capture_output=True,
        text=True,
        check=True,
    )
    mantissas, scales = torch.arange(-128, 128).repeat(256, 1), torch.arange(256)[:, None]
    loop = study.coursework_loop(mantissas, scales)
    steps = zip(
        *(loop[s].bfloat16().double().flatten().tolist() for s in ("out", "bias", "result"))
    )
    listed = {(row["mantissa"], row["scale"]): i for i, row in enumerate(rows)}
    pairs = [(mantissa, scale) for scale in range(256) for mantissa in range(-128, 128)]
    for (mantissa, scale), step, line in zip(pairs, steps, done.stdout.splitlines(), strict=True):
        shown = json.loads(line)
        meant = math.nan if scale == 255 else math.ldexp(mantissa, scale - 133)
        assert read(shown["mantissa"]) == mantissa
        assert all(map(same, map(read, shown["values"]), [meant, *step])), (mantissa, scale)
        assert shown["is_unused"] == (abs(mantissa) & 0x40 != 0)
        assert shown["is_wrong"] == (not same(step[2], meant))
        assert shown["chosen"] == listed.get((mantissa, scale), "")
