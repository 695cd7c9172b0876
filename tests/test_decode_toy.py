"""The toy of 4.3b shows what is true of each of the 65,536 codes: every value, against torch's.

Floats hold every number here exactly.
"""

import json
import math
import re
import shutil
import subprocess

import pytest
import torch

from experiments.lab4_decode import page, study
from madl.logbook.records import Case, Records
from tests.conftest import ROOT, a_record

TOY = ROOT / "experiments" / "lab4_decode" / "explain.js"
RAISED = str.maketrans("⁻⁰¹²³⁴⁵⁶⁷⁸⁹", "-0123456789")


def same(a: float, b: float) -> bool:
    return a == b or (math.isnan(a) and math.isnan(b))


def read(text: str) -> float:
    """A number as the toy writes it: "−0.5", "101·2⁻¹³⁰", "∞"."""
    sign, text = (-1, text[1:]) if text[0] == "−" else (1, text)
    matched = re.fullmatch(r"(.*?)(?:·?2([⁻⁰-⁹¹²³]+))?", text)
    assert matched
    factor = {"∞": math.inf, "NaN": math.nan, "": 1.0}.get(matched[1]) or float(matched[1])
    return math.ldexp(sign * factor, int((matched[2] or "0").translate(RAISED)))


def test_values_are_exact_and_what_is_wrong_is_marked():
    if (node := shutil.which("node")) is None:
        pytest.skip("no node on the PATH, which runs the toy without a browser")
    case = Case(experiment="lab4_decode", params={"codes": page.CODES}, version=3)
    rows = page.loop(Records([a_record(case=case, values=study.study())]))
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
    pairs = [(mantissa, scale) for scale in range(256) for mantissa in range(-128, 128)]
    for (mantissa, scale), step, line in zip(pairs, steps, done.stdout.splitlines(), strict=True):
        shown = json.loads(line)
        meant = math.nan if scale == 255 else math.ldexp(mantissa, scale - 133)
        assert read(shown["mantissa"]) == mantissa
        assert all(map(same, map(read, shown["values"]), [meant, *step])), (mantissa, scale)
        assert shown["is_unused"] == (abs(mantissa) & 0x40 != 0)
        assert shown["is_wrong"] == (not same(step[2], meant))
