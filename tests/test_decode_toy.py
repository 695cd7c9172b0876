"""The toy of 4.3b says what is true of each of the 65,536 codes: everything that it shows is read,
and held against the definition and the loop in torch.

Floats hold every number here exactly.
"""

import json
import math
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch

from experiments.lab4_decode import page, study
from madl.logbook.records import Case, Records
from tests.conftest import a_record

ROOT = Path(__file__).parents[1]
TOY = ROOT / "experiments" / "lab4_decode" / "explain.js"
STEPS = ("out", "bias", "result")
RAISED = str.maketrans("⁻⁰¹²³⁴⁵⁶⁷⁸⁹", "-0123456789")


@dataclass(frozen=True)
class Code:
    """A pair of mantissa and scale, the bits of the loop's steps on it, and what is shown of it."""

    mantissa: int
    scale: int
    bits: tuple[int, ...]  # of STEPS
    shown: dict[str, Any]

    @property
    def meant(self) -> float:
        return math.nan if self.scale == 255 else math.ldexp(self.mantissa, self.scale - 133)

    @property
    def steps(self) -> list[float]:
        return [value(bits) for bits in self.bits]

    @property
    def has_one(self) -> bool:
        return abs(self.mantissa) & 0x40 != 0

    @property
    def is_normal(self) -> bool:
        return 1 <= self.scale <= 254

    @property
    def is_right(self) -> bool:
        return same(self.steps[2], self.meant)

    def says_both(self, result: float, meant: float) -> bool:
        """Whether the toy says the loop's result and what is meant, which are two things."""
        return not self.is_right and same(result, self.steps[2]) and same(meant, self.meant)


def value(bits: int) -> float:
    """Of a BF16."""
    sign, exponent, fraction = 1 - (bits >> 15) * 2, bits >> 7 & 0xFF, bits & 0x7F
    if exponent == 255:
        return math.nan if fraction else sign * math.inf
    return sign * math.ldexp(fraction + 128 * (exponent > 0), max(exponent, 1) - 134)


def same(a: float, b: float) -> bool:
    return a == b or (math.isnan(a) and math.isnan(b))


def read(text: str) -> float:
    """A number as the toy writes it: "−0.5", "101·2⁻¹³⁰", "∞"."""
    sign, text = (-1, text[1:]) if text[0] == "−" else (1, text)
    matched = re.fullmatch(r"(.*?)(?:·?2([⁻⁰-⁹¹²³]+))?", text)
    assert matched
    factor = {"∞": math.inf, "NaN": math.nan, "": 1.0}.get(matched[1]) or float(matched[1])
    return math.ldexp(sign * factor, int((matched[2] or "0").translate(RAISED)))


@pytest.fixture(scope="module")
def codes() -> list[Code]:
    if (node := shutil.which("node")) is None:
        pytest.skip("no node on the PATH, which runs the toy without a browser")
    case = Case(experiment="lab4_decode", params={"codes": page.CODES}, version=3)
    rows = page.loop(Records([a_record(case=case, values=study.study())]))
    (panel,) = page._panels(rows)
    found = re.findall(r'(?:class="([^"]*)" )?data-f="([^"]*)"', panel.svg)
    given = {"rows": rows, "fields": [(name, look) for look, name in found]}
    done = subprocess.run(
        [node, str(ROOT / "tests" / "native" / "every_code.js"), str(TOY)],
        input=json.dumps(given),
        capture_output=True,
        text=True,
        check=True,
    )
    shown = [json.loads(line) for line in done.stdout.splitlines()]
    pairs = [(mantissa, scale) for scale in range(256) for mantissa in range(-128, 128)]
    mantissas, scales = torch.arange(-128, 128).repeat(256, 1), torch.arange(256)[:, None]
    loop = study.coursework_loop(mantissas, scales)
    bits = [
        (loop[step].bfloat16().view(torch.int16).int() & 0xFFFF).flatten().tolist()
        for step in STEPS
    ]
    return [
        Code(*pair, one, texts)
        for pair, one, texts in zip(pairs, zip(*bits, strict=True), shown, strict=True)
    ]


def test_cells_are_the_bits_and_what_is_not_there_is_marked(codes):
    for code in codes:
        magnitude = f"{abs(code.mantissa):08b}"
        lacks = code.is_normal and not code.has_one
        expected = [cells(int(code.mantissa < 0), *magnitude)]
        for step, bits in zip(STEPS, code.bits, strict=True):
            exponent, fraction = bits >> 7 & 0xFF, f"{bits & 0x7F:07b}"
            implied = "–" if exponent == 255 else int(exponent > 0)
            row = cells(bits >> 15, "", implied, *fraction).split(" ")
            row[1] = str(exponent)
            row[2] += "!" * (lacks and step != "result")
            expected.append(" ".join(row))
        for found, row, number in zip(code.shown["cells"], expected, [0, *code.steps], strict=True):
            if math.isnan(number):  # which NaN it is, is the machine's choice
                assert found.split(" ")[1:3] == ["255", "–"], code
                assert "1*" in found.split(" ")[3:], code
            else:
                assert found == row, code


def cells(*bits: int | str) -> str:
    """As they are shown: what is one is lit."""
    return " ".join(f"{bit}*" if str(bit) == "1" else str(bit) for bit in bits)


def test_values_are_exact_and_what_is_wrong_is_marked(codes):
    for code in codes:
        assert read(code.shown["mantissa"]) == code.mantissa
        numbers = [code.meant, *code.steps]
        assert all(map(same, map(read, code.shown["values"]), numbers)), code
        assert code.shown["rule"] == ("out" if code.has_one else "out - bias")
        assert code.shown["is_unused"] == code.has_one
        assert code.shown["is_wrong"] == (not code.is_right)
