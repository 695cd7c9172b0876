"""Beside accuracy: answers that change, against FP32 of the same seed and between two seeds."""

from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any, cast

import numpy as np

from madl.logbook.arms import Arm
from madl.logbook.charts import Chart, category, intervals, percent
from madl.logbook.records import Record
from madl.site import answers
from tests.synthetic import EXAMPLES, evidence, judgement, kept_of, read


def model(method: str, seed: int, wrong: range, width: int = 8, **further: Any) -> Record:
    """A model of this seed that is wrong on these sentences of its own fold."""
    correct = ~np.isin(np.arange(EXAMPLES), wrong)
    kept = judgement(correct, examples=f"fold {seed}") | further
    own = {"method": method, "seed": seed, "width": width}
    return kept_of("baseline" if method == "fp32" else "mine", kept, **own)


def chosen(wrong: range) -> dict[str, Any]:
    correct = ~np.isin(np.arange(EXAMPLES), wrong)
    return {"choosing": judgement(correct, examples="choosing")}


FP32 = [
    model("fp32", 10, range(0, 100), **chosen(range(0, 100))),
    model("fp32", 11, range(0, 200), **chosen(range(100, 300))),
]
QAT = [model("qat", 10, range(100, 200)), model("qat", 11, range(0, 300))]


def view(*arms: Arm, further: Iterable[Record] = ()) -> Any:
    rows = [{"model": arm.label, "accuracy": arm} for arm in arms]
    chart = Chart(rows, x=percent("accuracy"), y=category("model"), marks=[intervals("accuracy")])
    return SimpleNamespace(
        name="mine",
        experiment=SimpleNamespace(needs=("baseline",)),
        shown={"accuracy": chart},
        results={},
        records_of=lambda name: list(read(*FP32)) if name == "baseline" else [],
        further=further,
    )


def arm(label: str, records: list[Record]) -> Arm:
    return Arm(label=label, records=tuple(read(*records)))


def test_equally_right_models_differ_in_their_answers_and_two_seeds_on_what_chooses():
    first, second = answers.rows(cast("Any", view(arm("FP32", FP32), arm("QAT", QAT))))
    assert (first["model"], first["of models"]) == ("QAT", 2)
    assert first[answers.CHANGED].startswith("7.5 %")  # of 2,000: 200 of seed 10, 100 of seed 11
    assert first["loss"] == "0.500"
    assert second[answers.CHANGED] == "15.0 %"
    assert "another seed" in second["model"]


def test_arms_of_one_label_are_told_apart_by_what_differs_and_a_part_of_one_is_left_out():
    narrow, wide = (
        [model("qat", seed, range(9), width=width) for seed in (10, 11)] for width in (4, 8)
    )
    arms = [arm("QAT", narrow), arm("QAT", narrow[:1]), arm("QAT", wide), arm("PTQ", wide)]
    *told, _ = answers.rows(cast("Any", view(*arms)))
    assert [row["model"] for row in told] == ["QAT, width 4", "QAT, width 8", "PTQ"]


def test_without_the_fp32_model_of_a_seed_nothing_is_said_of_it():
    other = model("qat", 12, range(5))
    assert answers.rows(cast("Any", view(arm("QAT", [other])))) == []
    (row, _) = answers.rows(cast("Any", view(arm("QAT", [*QAT, other]))))
    assert row["of models"] == 2
    fp32 = [model("fp32", 12, range(0))]
    (row, _) = answers.rows(cast("Any", view(arm("QAT", [*QAT, other]), further=fp32)))
    assert row["of models"] == 3


def test_what_a_published_claim_compares_has_its_row():
    told = {page.name: {row["model"] for row in answers.rows(page.view)} for page in evidence()}
    assert {"PTQ at 8 bits", "QAT at 4 bits"} <= told["lab1_quantization"]
    assert sum(map(bool, told.values())) >= 8  # 3.2 has a column for each of its operands
