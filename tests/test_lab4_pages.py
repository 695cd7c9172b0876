"""4.3b: what is counted, on cases small enough to count by hand."""

import re

import pytest
import torch

from experiments.lab4_decode import page as lab4_decode
from experiments.lab4_decode import study as decode_study
from madl.errors import MadlError
from madl.logbook.records import Case, Records
from tests.conftest import a_record


@pytest.fixture(scope="module")
def decoded():
    return lab4_decode.run({"codes": 65536}, None)  # type: ignore[arg-type]


def test_the_loop_is_wrong_exactly_where_reading_it_says(decoded):
    """Exponent 0 doubles each value but zero; -128 gives zero; ±64 under 255 gives infinities."""
    assert decoded["wrong"] == {"all": 511, "lowest": 255, "zero": 254, "nan": 2}


def test_every_code_has_its_leading_one_or_not(decoded):
    scales = 254  # 1 … 254
    assert (decoded["with_one"], decoded["without_one"]) == (2 * 64 * scales, 127 * scales)
    half = decoded["steps"][128 + 32]
    assert (half["out"], half["bias"], half["result"]) == (1.5, 1.0, 0.5)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("definition", "the codec of this repository differs on 65,024 codes, the first mantissa"),
        ("as_bf16", "`out` is off with bit six set on 32,512 codes, the first mantissa -127"),
    ],
)
def test_a_case_that_breaks_what_the_page_says_fails_in_a_line(monkeypatch, name, said):
    made = getattr(decode_study, name)
    monkeypatch.setattr(decode_study, name, lambda *of: made(*of) * 2)
    with pytest.raises(MadlError, match=re.escape(said)):
        decode_study.study()


def test_the_page_of_the_loop_shows_what_was_counted(decoded):
    case = Case(experiment="lab4_decode", params={"codes": 65536}, version=3)
    records = Records([a_record(case=case, values=decoded)])
    assert len(lab4_decode.one(records).rows) == 256
    wrong = {row["where"]: row for row in lab4_decode.wrong(records)}
    assert [row["wrong codes"] for row in wrong.values()] == [255, 254, 2]
    shown = {
        where: (row["such as"], row["loop"], row["definition"]) for where, row in wrong.items()
    }
    assert shown == {
        "mantissa −128": ("scale 127", "0", "−2"),
        "scale 0": ("mantissa 1", "2⁻¹³²", "2⁻¹³³"),
        "scale 255": ("mantissa 64", "∞", "NaN"),
    }
    causes = {row["where"] for row in lab4_decode.loop(records)}
    assert causes == {"", *wrong}


def test_a_difference_is_seen():
    """The comparison behind all counts: NaN equals NaN, and −2^128 is an infinity."""
    a = torch.tensor([1.0, float("nan"), -float("inf"), 0.0, 2.0], dtype=torch.float64)
    b = torch.tensor([1.0, float("nan"), -(2.0**128), -1.0, float("nan")], dtype=torch.float64)
    assert decode_study.differs(a, b).tolist() == [False, False, False, True, True]
