"""What the records of a search for a format for every layer hold, as pages read it.

A record of a search holds all of its studies, as lists of trials. A trial's `value` is its
accuracy, or below zero where its model is over the budget. A record of sensitivity holds, for every
layer, the change of each validation sentence's loss in whole ten-thousandths of a nat.

Shapes: a change is (seeds, sentences), in nats.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import fmean
from typing import Any

import numpy as np
from numpy.typing import NDArray

from madl.logbook import searches
from madl.logbook.arms import Arm
from madl.logbook.charts import Chart, category, cells, intervals, linear
from madl.logbook.records import Row
from madl.logbook.stats import Unit
from madl.training.width_space import block, kind, place

PARTS_OF_A_NAT = 10_000
Floats = NDArray[np.float64]


def within_budget(a: Arm) -> list[Any]:
    """All trials of a search whose model fits, of every study and seed."""
    every = [t for record in a.records for study in record.values["studies"] for t in study]
    return [trial for trial in every if trial["value"] >= 0]


def best_trial(a: Arm, head: int | None = None) -> float:
    """The best accuracy of them; with `head`, where that is the head's coarsest fraction width."""
    fitting = (one for one in within_budget(a) if head is None or one["head"] == head)
    return max((one["value"] for one in fitting), default=0.0)


def by_bits(models: Mapping[str, Sequence[Mapping[str, Any]]]) -> list[Row]:
    """Judged models as the points of a chart, a column a series, by ascending bits."""
    return [
        {"bits": one["bits"], name: one["validation_accuracy"]}
        for name, judged in models.items()
        for one in sorted(judged, key=lambda one: one["bits"])
    ]


def alike(a: Arm) -> list[float]:
    """What each format within the budget gives for all layers; on the sentences of a trial."""
    every = [record.values["trials"] for record in a.records]
    return [fmean(one["value"] for one in same) for same in zip(*every, strict=True)]


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


def agreeing(a: Arm) -> tuple[int, int]:
    """Of the first model: to how many layers all studies give the same width, and of how many."""
    values = a.records[0].values
    given = [{one["choices"][layer][0] for one in values["chosen"]} for layer in values["layers"]]
    return sum(len(widths) == 1 for widths in given), len(given)


# ---- sensitivity --------------------------------------------------------------------------------


def changes(a: Arm) -> dict[str, Floats]:
    """Of every layer alone, up where the loss rises."""
    every = [record.values["changes"] for record in a.records]
    return {layer: np.array([one[layer] for one in every]) / PARTS_OF_A_NAT for layer in every[0]}


def whole_evaluations(a: Arm) -> int:
    """Of a sentence by all blocks, as the order of the layers takes: what is reused is not run."""
    found = changes(a)
    blocks = 1 + max(block(layer) or 0 for layer in found)
    run = sum(blocks - (blocks if (i := block(layer)) is None else i) for layer in found)
    deciding = next(iter(found.values()))[0, ::2]
    return round(len(deciding) * run / blocks)


def moved(a: Arm, group: Callable[[str], str | None]) -> dict[str, Floats]:
    """The distance, up or down, by sentence: the mean over the layers of each group, and seeds.

    Layers whose group is None are left out.
    """
    found: dict[str, list[Floats]] = {}
    for layer, change in changes(a).items():
        if (name := group(layer)) is not None:
            found.setdefault(name, []).append(np.abs(change).mean(axis=0))
    return {name: np.mean(rows, axis=0) for name, rows in found.items()}


def by_half(a: Arm) -> tuple[Floats, Floats]:
    """How far layers of the first half of the blocks move each sentence's loss, and the others."""
    last = max(block(layer) or 0 for layer in changes(a))

    def half(layer: str) -> str | None:
        inside = block(layer)
        return None if inside is None else "first" if 2 * inside <= last else "second"

    found = moved(a, half)
    return found["first"], found["second"]


def rises(a: Arm) -> Chart:
    """How much each layer raises the mean loss, with its interval over the sentences."""
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
    """Blocks × kinds of layer, a map a title; the head's layers stand below, in the last column."""
    rows = [
        {"of": of, "block": place(x), "layer": "down" if block(x) is None else kind(x), "is": value}
        for of, x, value in values
    ]
    facet = "of" if len({row["of"] for row in rows}) > 1 else None
    return Chart(rows, x=category("layer"), y=category("block"), marks=[cells("is")], facet=facet)
