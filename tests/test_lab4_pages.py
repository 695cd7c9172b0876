"""4.3b: what is counted, on cases small enough to count by hand."""

import pytest
import torch

from experiments.lab4_decode import decode_loop
from experiments.lab4_decode import page as lab4_decode
from madl.logbook.charts import alt_text
from madl.logbook.records import Case, Records
from tests.conftest import a_record


@pytest.fixture(scope="module")
def decoded():
    return lab4_decode.run({"codes": 65536}, None)  # type: ignore[arg-type]


def test_the_loop_is_wrong_exactly_where_reading_it_says(decoded):
    """Exponent 0 doubles each value but zero; -128 gives zero; ±64 under 255 gives infinities."""
    assert decoded["wrong"] == {"all": 511, "lowest": 255, "zero": 254, "nan": 2, "elsewhere": 0}
    assert decoded["wrong_mantissas"]["0"] == [m for m in range(-128, 128) if m]
    assert decoded["wrong_mantissas"]["127"] == [-128]
    assert decoded["wrong_mantissas"]["255"] == [-64, 64]


def test_the_implicit_one_is_there_or_is_taken_off(decoded):
    scales = 254  # 1 … 254
    assert (decoded["with_one"], decoded["with_one_off"]) == (2 * 64 * scales, 0)
    assert (decoded["without_one"], decoded["without_one_off"]) == (127 * scales, 0)
    assert decoded["codec_wrong"] == 0
    half = decoded["steps"][128 + 32]
    assert (half["out"], half["bias"], half["result"]) == (1.5, 1.0, 0.5)


def test_the_page_of_the_loop_says_what_was_counted(decoded):
    case = Case(experiment="lab4_decode", params={"codes": 65536})
    records = Records([a_record(case=case, values=decoded)])
    assert lab4_decode.wrong_codes(records).text.startswith("The loop gives a wrong value for 511 ")
    assert len(lab4_decode.one(records).rows) == 256
    scales = [row["scale"] for row in lab4_decode.map_of_wrong(records).rows]
    assert scales == sorted(scales)
    worked = {row["mantissa"]: row for row in lab4_decode.examples(records)}
    assert (worked[64]["`bias`"], worked[32]["`bias`"]) == ("not needed", "1")
    assert {row["wrong codes"] for row in lab4_decode.wrong(records)} == {255, 254, 2}


def test_the_one_code_beyond_bf16_is_named(decoded):
    (beyond,) = decoded["beyond"]
    assert (beyond["mantissa"], beyond["scale"], beyond["truth"]) == (-128, 254, "-2^128")
    case = Case(experiment="lab4_decode", params={"codes": 65536})
    records = Records([a_record(case=case, values=decoded)])
    said = lab4_decode.codec_is_right(records).text
    assert "exact but on 1, −2¹²⁸ (mantissa −128, scale 254), which" in said
    meant = {row["scale"]: row["definition"] for row in lab4_decode.wrong(records)}
    assert (meant[127], meant[254], meant[0], meant[255]) == ("−2", "−2¹²⁸", "2⁻¹³³", "NaN")


def test_the_map_of_wrong_codes_says_mantissas_of_scales(decoded):
    case = Case(experiment="lab4_decode", params={"codes": 65536})
    said = alt_text(lab4_decode.map_of_wrong(Records([a_record(case=case, values=decoded)])))
    assert said.endswith("−128 at 0 to 64 at 255.")


def test_a_difference_is_seen():
    """The comparison behind all counts: NaN equals NaN, and −2^128 is an infinity."""
    a = torch.tensor([1.0, float("nan"), -float("inf"), 0.0, 2.0], dtype=torch.float64)
    b = torch.tensor([1.0, float("nan"), -(2.0**128), -1.0, float("nan")], dtype=torch.float64)
    assert decode_loop.differs(a, b).tolist() == [False, False, False, True, True]
