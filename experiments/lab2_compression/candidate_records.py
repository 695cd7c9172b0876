"""The candidates of question 2.2 in its records: studies, what each objective chooses, rows, facts.

A candidate is a shape with training sentences of its own, under three schedules. All models of the
full profile are given the same shapes, study by study.
Units: sizes in bits; accuracies as shares.
"""

from collections.abc import Sequence
from itertools import groupby
from statistics import fmean
from typing import Any

from madl.logbook import searches
from madl.logbook.arms import Arm, best_of
from madl.logbook.charts import Chart, line, linear, percent
from madl.logbook.claims import Fact
from madl.logbook.records import Record, Records, Row
from madl.logbook.stats import number, per_cent
from madl.training import baseline

NAME = "lab2_compression"
PLAIN, AFTER, BETWEEN = OBJECTIVES = ("plain", "compressed", "compressed and trained on")


def everyone(r: Records) -> list[Record]:
    """Every candidate, study by study in the order of its trials."""
    return sorted(r.of(NAME).all(), key=lambda one: (_study(one), one.case.params["trial"]))


def studies(r: Records) -> list[list[Record]]:
    return [list(found) for _, found in groupby(everyone(r), _study)]


def _study(record: Record) -> tuple[Any, Any]:
    return record.case.params["seed"], record.case.params["study"]


def models(r: Records) -> list[list[list[Record]]]:
    """The studies of each trained model."""
    return [list(found) for _, found in groupby(studies(r), lambda study: _study(study[0])[0])]


def judged(found: Sequence[Record], schedule: str, *, units: str = "") -> Arm:
    return Arm(label=schedule, records=tuple(found), within=(schedule,), units=units)


def candidates(r: Records, schedule: str) -> Arm:
    """Every candidate of every study under a schedule, on test."""
    return judged(everyone(r), schedule, units="candidates")


def validation(candidate: Record, schedule: str) -> float:
    """Its accuracy on validation under a schedule, which is what an objective is."""
    return candidate.values[schedule]["validation_accuracy"]


def best(found: Sequence[Record], objective: str) -> Record:
    """What a study under this objective chooses."""
    return best_of([judged([one], objective) for one in found]).records[0]


def chosen(r: Records, objective: str, schedule: str) -> Arm:
    """What each study under an objective chooses, under a schedule, on test."""
    return judged([best(found, objective) for found in studies(r)], schedule, units="studies")


def mbit(a: Arm) -> str:
    """How large the compressed Linear layers of these models are on average: "34.8 Mbit"."""
    return f"{number(_size(a.records) / 1e6)} Mbit"


def _size(found: Sequence[Record]) -> float:
    return fmean(one.values[AFTER]["linear_bits"] for one in found)


def same_choice(r: Records, objective: str) -> str:
    """In how many studies an objective chooses what the plain one does: "5 of 9 studies"."""
    every = studies(r)
    same = sum(best(found, objective) is best(found, PLAIN) for found in every)
    return f"{same} of {len(every)} studies"


def chosen_so_far(found: Sequence[Record], objective: str, schedule: str) -> list[float]:
    """After every trial, what the study would choose is worth under a schedule, on validation."""
    picked = [best(found[: i + 1], objective) for i in range(len(found))]
    return [validation(one, schedule) for one in picked]


def choices_over_trials(r: Records, objective: str, schedule: str) -> list[list[float]]:
    """`chosen_so_far` of each unit: of one model its studies, of several the mean of each's."""
    each = [[chosen_so_far(study, objective, schedule) for study in own] for own in models(r)]
    if len(each) == 1:
        return each[0]
    return [[fmean(at) for at in zip(*own, strict=True)] for own in each]


BEFORE = f"{PLAIN}, before compression"


def curves_chart(r: Records) -> Chart:
    """What two objectives would choose after each trial, in a panel for each schedule."""
    rows: list[Row] = []
    for schedule in (AFTER, BETWEEN):
        shown = {schedule: (schedule, schedule), PLAIN: (PLAIN, schedule), BEFORE: (PLAIN, PLAIN)}
        every = {name: choices_over_trials(r, *how) for name, how in shown.items()}
        panel = f"choices {schedule}"
        rows += [{"choices": panel, **row} for row in searches.mean_rows(every)]
    own = models(r)
    of = f"{len(own)} models" if len(own) > 1 else f"{len(own[0])} studies"
    return Chart(
        rows,
        x=linear("trial", "trials"),
        y=percent(f"validation accuracy of the choice, means of {of}"),
        marks=[line(name, markers=False) for name in (AFTER, BETWEEN, PLAIN, BEFORE)],
        facet="choices",
    )


# ---- rows ---------------------------------------------------------------------------------------


def _shape(candidate: Record) -> str:
    return " · ".join(map(str, candidate.values["point"]))


def front_rows(r: Records) -> list[Row]:
    """Every candidate under the two schedules that compress; of several models their mean."""

    def drawn(one: Record) -> tuple[Any, ...]:
        return one.case.params["study"], one.case.params["trial"], _shape(one)

    alike = [list(found) for _, found in groupby(sorted(everyone(r), key=drawn), drawn)]
    return [
        {
            "schedule": schedule,
            "shape": _shape(found[0]),
            "size": fmean(one.values[schedule]["linear_bits"] for one in found),
            "test accuracy": judged(found, schedule),
            "validation": fmean(validation(one, schedule) for one in found),
        }
        for found in alike
        for schedule in (AFTER, BETWEEN)
    ]


def choices(r: Records) -> list[Row]:
    """What the studies of the first trained model chose."""
    return [
        {
            "study": str(i),
            "objective": objective,
            "shape": _shape(one := best(found, objective)),
            "Linear, Mbit": one.values[PLAIN]["linear_bits"] / 1e6,
            "compressed, Mbit": one.values[AFTER]["linear_bits"] / 1e6,
            "validation": per_cent(validation(one, objective)),
            **{f"test, {schedule}": judged([one], schedule) for schedule in (AFTER, BETWEEN)},
        }
        for i, found in enumerate(models(r)[0], 1)
        for objective in OBJECTIVES
    ]


def by_model(r: Records) -> list[Row]:
    """A row for each trained model and objective: the mean of what its studies chose."""
    rows: list[Row] = []
    for own in models(r):
        for objective in OBJECTIVES:
            found = [best(study, objective) for study in own]
            tests = {f"test, {s}": judged(found, s, units="studies") for s in (AFTER, BETWEEN)}
            row = {"model": f"seed {_study(found[0])[0]}", "objective": objective}
            rows.append({**row, "compressed, Mbit": _size(found) / 1e6, **tests})
    return rows


# ---- facts --------------------------------------------------------------------------------------


def training_is_equal(r: Records) -> Fact:
    every = [one.values for one in everyone(r)]
    amounts = {(values["steps"], values["rates"], values["rates_undivided"]) for values in every}
    assert len(amounts) == 1, amounts
    steps, rates, undivided = amounts.pop()
    return Fact(
        text=f"Every schedule takes {steps} steps whose learning rates add up to {number(rates)} "
        f"times the highest; as many steps of one undivided schedule would add up to "
        f"{number(undivided)} times",
        of=f"{len(every)} candidates under three schedules each",
    )


def drawn(r: Records) -> Fact:
    """How long a study is, how many there are, and how many shapes they drew."""
    own, every = models(r), everyone(r)
    shapes = {_shape(one) for one in every}
    draws = {(one.case.params["study"], one.case.params["trial"], _shape(one)) for one in every}
    same = "" if len(own) == 1 else f", with the same draws for each of {len(own)} models"
    return Fact(
        text=f"A search is a study of {len(own[0][0])} random draws, of which it chooses one. It "
        f"scores each “{PLAIN}”, without compression; “{AFTER}”, right after compression; or "
        f"“{BETWEEN}”, with half of the same training before compression and half after it. There "
        f"are {len(own[0])} studies on a model{same}: {len(draws)} draws, {len(shapes)} distinct "
        "shapes",
        of=f"{len(studies(r))} studies, {len(every)} candidates, each scored by {len(OBJECTIVES)} "
        "objectives",
    )


def choices_coincide(r: Records) -> Fact:
    said = " and ".join(f"of “{o}” in {same_choice(r, o)}" for o in (AFTER, BETWEEN))
    return Fact(
        text=f"The candidate that the plain objective chooses is also the choice {said}",
        of=f"{len(everyone(r))} candidates, on validation",
    )


def ranks_agree(r: Records) -> Fact:
    """How alike candidates rank without compression and with it, model by model."""
    every = [[one for study in own for one in study] for own in models(r)]

    def rank(schedule: str) -> str:
        pairs = (([validation(one, o) for one in own] for o in (PLAIN, schedule)) for own in every)
        return ", ".join(number(searches.rank_correlation(*sides)) for sides in pairs)

    several = f" in models 1 to {len(every)}" if len(every) > 1 else ""
    return Fact(
        text="Between a candidate's accuracy without compression and what compression leaves of "
        f"it, the rank correlation{several} is {rank(AFTER)}; with half of the training after "
        f"compression {rank(BETWEEN)}",
        of=f"{len(every[0])} candidates of a model, on "
        f"{baseline.fp32(r).value('num_validation'):,} validation sentences, Spearman's",
    )


def largest(r: Records) -> Fact:
    """What the candidates' own training costs where the least is cut."""
    size = max(one.values[PLAIN]["linear_bits"] for one in everyone(r))
    found = [one for one in everyone(r) if one.values[PLAIN]["linear_bits"] == size]
    after, before = fmean(validation(one, PLAIN) for one in found), baseline.fp32(r).validation
    ends = [max(sizes) for sizes in zip(*(one.values["point"] for one in everyone(r)), strict=True)]
    every = ", each the largest that was drawn" if found[0].values["point"] == ends else ""
    return Fact(
        text=f"The largest shape drawn ({_shape(found[0])}{every}; {number(size / 1e6)} Mbit) has "
        f"{per_cent(after)} on validation after a candidate's training without compression; the "
        f"model that all are cut from has {per_cent(before)} without that training",
        of=f"candidates of this shape: {len(found)}",
    )
