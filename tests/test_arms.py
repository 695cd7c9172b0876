"""Arms: chosen on validation, sealed on test, compared only where they can be paired."""

import math
from dataclasses import replace
from statistics import fmean

import numpy as np
import pytest

from madl.errors import MadlError
from madl.logbook.arms import Arm, arm, beside, speed_up, timed_arm, versus
from madl.logbook.charts import plain
from madl.logbook.claims import compare
from madl.logbook.records import Pending, sealed
from madl.logbook.values import Estimate
from madl.machine import lint
from tests.conftest import a_record
from tests.synthetic import a_measurement, a_process, an_arm, judgement, model, read, samples


def width(bits: int, correct: int, *, seed: int = 0, **kept):
    return model(correct, params={"width": bits, "seed": seed}, **kept)


LUCKY = (width(4, 1900, validation=0.7), width(8, 1500, validation=0.8))  # 4 is better on test


def test_an_arm_has_every_seed_of_one_configuration_or_none():
    with pytest.raises(MadlError, match=r"several configurations fit .*; also give width"):
        arm(read(*LUCKY), method="a")
    twice = [replace(LUCKY[0].case, experiment=name) for name in ("one", "other")]
    with pytest.raises(MadlError, match=r"of several experiments; begin with r\.of_experiment"):
        arm(read(*(replace(LUCKY[0], case=case) for case in twice)), width=4)
    missing = [width(16, 0).case]
    with pytest.raises(Pending):
        arm(read(*LUCKY, missing=missing), method="a")
    assert arm(read(*LUCKY, missing=missing), width=4).param("width") == 4
    seeds = [width(4, 1500, seed=s, validation=v) for s, v in enumerate((0.95, 0.5))]
    assert arm(read(*seeds), width=4).mean("validation_accuracy") == 0.725


@pytest.mark.parametrize(
    "choose",
    [
        lambda r, arms: max(arms, key=lambda a: a.accuracy),
        lambda r, arms: sorted(arms, key=lambda a: a.accuracy),
        lambda r, arms: max(arms),
        lambda r, arms: min(arms, key=lambda a: a.outcomes),
        lambda r, arms: min(arms, key=lambda a: a - arms[0]),
        lambda r, arms: max(r, key=lambda record: record.values["accuracy"]),
        lambda r, arms: max(r, key=lambda record: record.values["outcomes"]),
        lambda r, arms: min(r, key=lambda record: record.values["loss"]),
        lambda r, arms: arms[0].accuracy > 0.5,
        lambda r, arms: arms[0].accuracy == arms[1].accuracy,
        lambda r, arms: float(arms[0].accuracy),
        lambda r, arms: float(arms[0]),
        lambda r, arms: fmean(a.accuracy for a in arms),
        lambda r, arms: sum(a.accuracy for a in arms),
        lambda r, arms: np.argmax([a.accuracy for a in arms]),
        lambda r, arms: arms[0].accuracy - 0.1,
        lambda r, arms: {a.accuracy: a for a in arms},
    ],
)
def test_nothing_is_chosen_by_the_test_split(choose):
    records = read(*LUCKY)
    with pytest.raises(TypeError, match="a test value chooses nothing: .*on the tuning seed"):
        choose(records, [arm(records, width=bits) for bits in (4, 8)])


def test_what_was_judged_is_sealed_however_deep_it_lies():
    record = a_record(values={"models": [{"after": judgement(1500)}], "accuracy": 0.5})
    values = sealed(record).values
    assert f"{values['models'][0]['after']['accuracy']}" == "75.0 %"
    assert isinstance(values["models"][0]["after"]["loss"], Estimate)
    assert values["accuracy"] == 0.5  # judged on what is no test split


def test_seeds_are_paired_in_order_however_the_records_lie():
    first, second = 1000, 1200
    there = [model(correct, params={"seed": s}) for s, correct in enumerate((first, second))]
    a, b = arm(read(*there)), arm(read(*reversed(there)))
    assert [record.case.params["seed"] for record in b.records] == [0, 1]
    paired = versus(a, b)
    assert paired.effect == 0
    assert paired.error < 0.001
    swapped = read(model(second), model(first, params={"seed": 1}))
    assert versus(a, Arm(label="swapped", records=tuple(swapped))).error > 0.01


def test_a_model_meets_every_model_of_its_seed():
    single = arm(read(*(model(1700 + 20 * s, params={"seed": s}) for s in (0, 1))), method="a")
    several = read(*(model(1600 + 10 * i, params={"seed": s}) for s in (1, 0) for i in range(3)))
    orders = Arm(label="orders", records=tuple(several), units="orders")
    repeated = beside(single, orders)
    assert repeated.units == "orders"
    assert [record.case.params["seed"] for record in repeated.records] == [1, 1, 1, 0, 0, 0]
    paired = versus(repeated, orders)
    assert paired.population == "seeds"
    assert paired.by_unit == pytest.approx((0.055, 0.045))


OF_SEED_7 = Arm(label="QAT", records=tuple(read(model(9), model(9, params={"seed": 7}))))


@pytest.mark.parametrize(
    ("other", "why"),
    [
        (OF_SEED_7, "other seeds, 0, 1 and 0, 7"),
        (an_arm("QAT", 1500, 1500, examples="validation"), "different examples"),
    ],
)
def test_what_cannot_be_paired_is_one_line_that_names_both(other, why):
    with pytest.raises(MadlError) as caught:
        versus(an_arm("PTQ", 1400, 1450), other)
    assert str(caught.value).startswith("PTQ and QAT cannot be compared: ")
    assert why in str(caught.value)


def processes(count: int, **medians_s: float):
    return read(
        *(
            a_process(
                i,
                **{
                    name: a_measurement(samples(median * (1 + 0.02 * i), seed=10 * i + k))
                    for k, (name, median) in enumerate(medians_s.items())
                },
            )
            for i in range(count)
        )
    )


@pytest.mark.parametrize("count", [1, 5])
def test_a_ratio_is_the_quotient_of_the_printed_times(count):
    records = processes(count, eager=0.030, compiled=0.020)
    eager, compiled = timed_arm(records, "eager"), timed_arm(records, "compiled")
    assert plain(eager / compiled) == pytest.approx(eager.median_s / compiled.median_s)
    assert math.exp(speed_up(compiled, over=eager).effect) == pytest.approx(plain(eager / compiled))
    assert plain(eager.time) == pytest.approx(1e3 * eager.median_s)
    low, high = eager.time.interval
    assert low < 1e3 * eager.median_s < high
    if count == 5:  # processes are the units, of a time and of a ratio
        made = speed_up(compiled, over=eager)
        assert (made.population, made.units, made.dropped) == ("processes", 5, 0)
        assert len(eager.samples_s) == eager.time.n == 5
        assert f"{eager}" == "31.1 ms"
        assert [case.params["process"] for case in eager.cases] == [0, 1, 2, 3, 4]


def test_a_time_is_of_one_processor():
    """Two kinds may share a name, as those with and without matrix units do."""
    first, second = (a_process(i, a=a_measurement([1e-3] * 3)) for i in range(2))
    other = replace(second, run=replace(second.run, cpu="Some Processor (AMX)"))
    with pytest.raises(MadlError, match=r"a was timed on .* and on Some Processor \(AMX\): time"):
        timed_arm(read(first, other), "a")


def disturbed(a: tuple[float | None, ...], b: tuple[float | None, ...]):
    """Two variants, 30 and 10 ms a call, 90 where their process was disturbed."""

    def measured(median_s: float, share: float | None, seed: int):
        slow = 0.09 if share and share > lint.CONTENDED else median_s
        return a_measurement(samples(slow, seed=seed), contention=share)

    records = read(
        *(
            a_process(i, a=measured(0.03, x, 2 * i), b=measured(0.01, y, 2 * i + 1))
            for i, (x, y) in enumerate(zip(a, b))
        )
    )
    return timed_arm(records, "a"), timed_arm(records, "b")


def test_a_process_that_disturbed_either_side_is_dropped_from_both_or_nothing_is_decided():
    slow, fast = disturbed((0.0, 0.0, 0.4, 0.0), (0.3, 0.0, 0.0, 0.0))
    made = speed_up(fast, over=slow)
    assert (made.units, made.dropped, made.blocked) == (2, 2, "")
    assert math.exp(made.effect) == pytest.approx(3, rel=0.02)
    assert f"{slow}, {fast}" == "30.0 ms, 9.97 ms"
    assert slow.time.n == 3
    for shares, why in (((0.5, 0.0), "contended"), ((0.0, None, 0.0), "unknown load")):
        slow, fast = disturbed(shares, (0.0,) * len(shares))
        made = speed_up(fast, over=slow)
        assert (made.blocked, made.units) == (why, len(shares))
        assert compare(fast, slow).p_values() == (1.0, 1.0)


def test_units_of_several_models_a_seed_are_seeds():
    several = [model(1500, params={"draw": i, "seed": s}) for s in (0, 1) for i in (0, 1)]
    names = [Arm(label="", records=read(*some)).unit_name for some in (several[::2], several)]
    assert names == ["models", "seeds"]
