"""What the records of a search for a format for every layer hold, as pages read it.

A record of a search holds all of its studies, as lists of trials. A trial's `value` is its
accuracy, or below zero where its model is over the budget. A record of sensitivity holds, for every
layer, the change of each validation sentence's loss in whole ten-thousandths of a nat.

Shapes: a change is (seeds, sentences), in nats.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import combinations
from statistics import fmean
from typing import Any

import numpy as np
from numpy.typing import NDArray

from madl.logbook import searches, stats
from madl.logbook.arms import Arm, inside
from madl.logbook.charts import Chart, category, cells, intervals, linear
from madl.logbook.records import Record, Row
from madl.logbook.stats import Estimate, Unit
from madl.training.width_space import Choices, block, kind, place

PARTS_OF_A_NAT = 10_000
FULL_BITS = 32  # of a model that is not quantized
Floats = NDArray[np.float64]


def within_budget(a: Arm) -> list[Any]:
    """All trials of a search whose model fits, of every study and seed."""
    every = [t for record in a.records for study in record.values["studies"] for t in study]
    return [trial for trial in every if trial["value"] >= 0]


def best_trial(a: Arm, head: int | None = None) -> float:
    """The best accuracy of them; with `head`, where that is the head's coarsest fraction width."""
    fitting = (one for one in within_budget(a) if head is None or one["head"] == head)
    return max((one["value"] for one in fitting), default=0.0)


def bits(record: Record, within: Sequence[str | int]) -> float:
    """Of a weight, of a model that this page or 1.1 judged."""
    judged = inside(record, within)
    return judged.get("bits", record.case.params.get("width", FULL_BITS))


def num_trials(a: Arm) -> int:
    """Of every study and seed."""
    return sum(len(study) for record in a.records for study in record.values["studies"])


def on_validation(share: float, sentences: int) -> Estimate:
    """An accuracy on the whole validation split, with its interval."""
    return Estimate(share, stats.wilson(share, sentences), Unit.PERCENT, sentences)


def by_bits(models: Mapping[str, Sequence[Mapping[str, Any]]], sentences: int) -> list[Row]:
    """Judged models as the points of a chart, a column a series, by ascending bits."""
    return [
        {"bits": one["bits"], name: on_validation(one["validation_accuracy"], sentences)}
        for name, judged in models.items()
        for one in sorted(judged, key=lambda one: one["bits"])
    ]


def alike(a: Arm) -> list[float]:
    """What each format on offer within the budget gives for all layers; on a trial's sentences."""
    every = [[one["value"] for one in tried if one["offered"]] for tried in a.each("trials")]
    return [fmean(same) for same in zip(*every, strict=True)]


def tried_on_all(a: Arm) -> list[tuple[float, float]]:
    """Of each format on offer that all models tried on all of validation, the means over models.

    Its accuracy on a trial's sentences, and on all.
    """

    def of_model(values: Any) -> dict[tuple[int, ...], tuple[float, float]]:
        judged = [one for at in values["at"].values() for one in at["judged"]]
        every = {tuple(one["choice"]): one["validation_accuracy"] for one in judged}
        tried = {tuple(one["choice"]): one["value"] for one in values["trials"] if one["offered"]}
        return {choice: (tried[choice], every[choice]) for choice in tried if choice in every}

    models = [of_model(record.values) for record in a.records]
    shared = [choice for choice in models[0] if all(choice in one for one in models)]
    return [
        (fmean(one[choice][0] for one in models), fmean(one[choice][1] for one in models))
        for choice in shared
    ]


def best_alike(a: Arm) -> float:
    """For each model the best format on offer for all layers, on a trial's sentences: the mean."""
    return fmean(max(alike(one)) for one in a.models)


def best_on_both(a: Arm) -> tuple[float, float] | None:
    """The same of those that were tried on all of validation, and its accuracy there.

    None: of some model none was.
    """
    tried = [tried_on_all(one) for one in a.models]
    if not all(tried):
        return None
    best = [max(one, key=lambda both: both[0]) for one in tried]
    return fmean(here for here, _ in best), fmean(there for _, there in best)


def so_far(a: Arm) -> list[list[float]]:
    """The best so far of every study of one model; of several, their means. NaN: nothing fits."""

    def best(study: Sequence[Any]) -> list[float]:
        reached = searches.best_so_far([trial["value"] for trial in study])
        return [value if value >= 0 else math.nan for value in reached]

    models = [[best(study) for study in record.values["studies"]] for record in a.records]
    return models[0] if len(models) == 1 else [np.mean(one, axis=0).tolist() for one in models]


def curve_rows(arms: Mapping[str, Arm], **same: Any) -> list[Row]:
    """A row a trial: the mean best so far of each search with its interval, and what is `same`."""
    found = searches.mean_rows({title: so_far(a) for title, a in arms.items()})
    return [{**row, **same} for row in found]


def on_all(a: Arm) -> float:
    """On all of validation: the mean over what the studies chose."""
    return fmean(fmean(x["validation_accuracy"] for x in chosen) for chosen in a.each("chosen"))


def chosen(a: Arm) -> list[list[Choices]]:
    """Of each model: what its studies chose, a choice a layer each."""
    return [[one["choices"] for one in studies] for studies in a.each("chosen")]


def agreeing(given: Sequence[Choices], part: int = 0) -> tuple[int, float]:
    """To how many layers all of these give the same width, or other part of a choice.

    And to how many one would expect it if each had dealt its values to layers blindly.
    """
    every = [[one[layer][part] for layer in given[0]] for one in given]
    same = sum(len(set(values)) == 1 for values in zip(*every, strict=True))
    first, *rest = map(Counter, every)
    blind = (math.prod((n, *(one[value] for one in rest))) for value, n in first.items())
    return same, sum(blind) / len(every[0]) ** len(rest)


def agreeing_on_all(a: Arm, part: int = 0) -> int:
    """To how many layers all studies on all models give the same."""
    return agreeing([choices for one in chosen(a) for choices in one], part)[0]


def dealt(given: Sequence[Choices], part: int, dealer: np.random.Generator) -> int:
    """To how many layers all give the same once each has dealt its values to layers blindly."""
    every = np.array([[choice[part] for choice in one.values()] for one in given])
    return int((np.ptp(dealer.permuted(every, axis=1), axis=0) == 0).sum())


# ---- sensitivity --------------------------------------------------------------------------------


def changes(a: Arm, *within: str) -> dict[str, Floats]:
    """Of every layer alone, up where the loss rises; `within` leads to it where there are more."""
    path = within or ("changes",)
    every = [inside(record, path) for record in a.records]
    return {layer: np.array([one[layer] for one in every]) / PARTS_OF_A_NAT for layer in every[0]}


def evaluations(a: Arm) -> int:
    """Of a sentence by all blocks: for the layers one by one, and for models on all of validation.

    Of one trained model, the mean over them. Blocks that are not run again are left out.
    """
    found = changes(a)
    blocks = 1 + max(block(layer) or 0 for layer in found)
    run = sum(blocks - (blocks if (i := block(layer)) is None else i) for layer in found)
    sentences = next(iter(found.values())).shape[1]
    return round(sentences * (1 + run / blocks + fmean(map(len, a.each("path")))))


def search_evaluations(a: Arm) -> int:
    """Of a sentence, for trials within the budget and what studies chose: the mean over models."""
    fitting = len(within_budget(a)) / len(a.records)
    return round(fitting * a.param("trial_examples")) + a.param("studies") * a.value("sentences")


def moved(a: Arm, group: Callable[[str], str | None], *within: str) -> dict[str, Floats]:
    """The distance, up or down, by sentence: the mean over the layers of each group, and seeds.

    Layers whose group is None are left out.
    """
    found: dict[str, list[Floats]] = {}
    for layer, change in changes(a, *within).items():
        if (name := group(layer)) is not None:
            found.setdefault(name, []).append(np.abs(change).mean(axis=0))
    return {name: np.mean(rows, axis=0) for name, rows in found.items()}


def thousandths(a: Arm, *within: str) -> dict[str, int]:
    """Of a nat: how far each layer alone moves a loss, the mean over sentences and models."""
    found = moved(a, lambda layer: layer, *within)
    return {layer: round(1e3 * float(by.mean())) for layer, by in found.items()}


def order(a: Arm, *within: str) -> list[str]:
    """Its layers by how far each alone moves a loss, the furthest first."""
    moves = moved(a, lambda layer: layer, *within)
    return sorted(moves, key=lambda layer: -float(moves[layer].mean()))


def same_changes(a: Arm, *within: str) -> list[tuple[str, str]]:
    """Pairs of layers that change each sentence's loss by the same, on each model; not by none."""
    found = changes(a, *within)
    return [
        (one, two)
        for one, two in combinations(found, 2)
        if found[one].any() and np.array_equal(found[one], found[two])
    ]


def by_half(a: Arm) -> tuple[Floats, Floats]:
    """How far layers of the first half of the blocks move each sentence's loss, and the others."""
    is_early = early(a)

    def half(layer: str) -> str | None:
        return None if block(layer) is None else "first" if is_early(layer) else "second"

    found = moved(a, half)
    return found["first"], found["second"]


def early(a: Arm) -> Callable[[str], bool]:
    """Whether a layer stands in the first half of the blocks."""
    last = max(block(layer) or 0 for layer in changes(a))
    return lambda layer: (i := block(layer)) is not None and 2 * i <= last


def rises(a: Arm) -> Chart:
    """How much each layer raises the mean loss of the models, with its interval over sentences."""
    rows = [
        {
            "block": place(layer),
            "kind": "head" if block(layer) is None else kind(layer),
            "rise": searches.mean_estimate(change.mean(axis=0).tolist(), Unit.NATS),
        }
        for layer, change in changes(a).items()
    ]
    across = linear(label="rise of the loss", unit="nats")
    return Chart(rows, x=across, y=category("block"), marks=[intervals("rise")], facet="kind")


def layer_map(values: Iterable[tuple[str, str, int]]) -> Chart:
    """Blocks × kinds of layer, a map a title; the head's layers stand below, in their column."""
    rows = [
        {"of": of, "block": place(x), "layer": "head" if block(x) is None else kind(x), "is": value}
        for of, x, value in values
    ]
    facet = "of" if len({row["of"] for row in rows}) > 1 else None
    return Chart(
        rows,
        x=category("layer"),
        y=category("block"),
        marks=[cells("is", "each layer")],
        facet=facet,
    )
