"""What a page shows of the searches for a format for every layer: maps, curves, and a table's rows.

Every function takes arms; see `mixed_records` for what these hold. Units: bits per weight.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from experiments.lab3_widths import mixed_records as records
from experiments.lab3_widths.mixed_facts import Spaces, bits, budget, change, others, over_budget
from madl.logbook.arms import Arm, of_models
from madl.logbook.charts import Chart, line, linear, percent, points, span
from madl.logbook.records import Records, Row
from madl.logbook.stats import per_cent
from madl.training import widths

DEALS = 400  # blind ones, whose middle 95 % are given


def best_so_far(rows: Sequence[Row], a: Arm, names: Iterable[str]) -> Chart:
    """The curves of `mixed_records.curve_rows`, a space beside the other; one of the searches."""
    startup = a.value("settings")["startup_trials"]
    over = of_models(a, "{} models", f"{a.param('studies')} studies of a model")
    return Chart(
        rows,
        x=linear("trial", "trials"),
        y=percent(f"best validation accuracy, mean of {over}"),
        marks=[
            span(0.5, startup + 0.5, "drawn at random"),
            *(line(name, markers=False) for name in names),
        ],
        facet="space",
    )


def agreements(spaces: Spaces) -> list[Row]:
    """To how many layers all studies on a model give the same; a row a search, models added up."""
    return [
        {
            "space": space,
            "search": name,
            "layers": len(a.value("layers")) * len(a.records),
            **_agreed(a, "same width", 0),
            **_agreed(a, "same fraction width", 1),
        }
        for space, arms in spaces.items()
        for name, a in arms.items()
    ]


def _agreed(a: Arm, what: str, part: int) -> Row:
    given = records.chosen(a)
    same, by_chance = map(sum, zip(*(records.agreeing(one, part) for one in given)))
    dealer = np.random.default_rng(0)
    deals = [sum(records.dealt(one, part, dealer) for one in given) for _ in range(DEALS)]
    low, high = np.quantile(deals, (0.025, 0.975))
    return {
        what: same,
        f"{what}, by chance": f"{by_chance:.1f} ({low:.0f} to {high:.0f})",
        f"{what} on all models": f"{records.agreeing_on_all(a, part)} of {len(given[0][0])}",
    }


def choices_map(asked: Arm, *others: Arm) -> Chart:
    """The first model's width of each layer; as asked for, also the bits behind the point."""
    shown = [(f"{a.label}: bits", a, 0) for a in (asked, *others)]
    shown.insert(1, (f"{asked.label}: behind the point", asked, 1))
    every = [(title, a.first.value("choices").items(), i) for title, a, i in shown]
    return records.layer_map(
        (title, x, choice[i]) for title, given, i in every for x, choice in given
    )


def front(
    judged: Mapping[str, Sequence[Mapping[str, Any]]], sentences: int, samplers: Iterable[str]
) -> Chart:
    """Validation accuracy against bits: lines, and points of what each sampler found."""
    found = [*samplers, "blind order"]
    lines = [line(name) for name in judged if name not in found]
    return Chart(
        records.by_bits(judged, sentences),
        x=linear("bits", "bits per weight"),
        y=percent("validation accuracy"),
        marks=[*lines, *map(points, found)],
    )


def moved_map(alone: Arm, sensitive: Arm) -> Chart:
    """How far each layer alone moves a loss: by each format as asked for, and narrower."""
    sides: list[tuple[Arm, tuple[str, ...]]] = [(alone, ("alone", x)) for x in others(alone)]
    rows = [
        (f"{a.param('space')}: {change(a, path[-1]) if path else 'narrow'}", layer, moves)
        for a, path in (*sides, (sensitive, ()))
        for layer, moves in records.thousandths(a, *path).items()
    ]
    return records.layer_map(rows)


def wide_points(r: Records, most: float) -> list[Mapping[str, Any]]:
    """The first models of these, at their bits."""
    found = wide_formats(r, most)
    return [{"bits": a.param("width"), **a.records[0].values} for a in found]


def wide_formats(r: Records, most: float) -> list[Arm]:
    """One format for all layers of up to so many bits, as 1.1 chose and judged them."""
    return [widths.ptq(r, x) for x in r.where(method="qat").each("width") if x <= most]


def model_row(space: str, name: str, a: Arm) -> Row:
    """A row of the table of models that met the test split."""
    counted = "studies" in a.records[0].values
    return {
        "space": space,
        "model": name + _formats_of(a),
        "budget, bits": budget(a) if space else "",
        "bits a weight": bits(a),
        "trials over it": over_budget(a) if counted else "",
        "validation": per_cent(a.validation),
        "test": a,
    }


def _formats_of(a: Arm) -> str:
    """What all layers take, where models differ with how many; nothing of a mixed model."""
    counts = Counter(name for one in a.models if (name := _format_of(one)))
    if len(counts) < 2:
        return "".join(f", {name}" for name in counts)
    return ", " + ", ".join(f"{name} ({n} of {len(a.records)})" for name, n in counts.most_common())


def _format_of(a: Arm) -> str:
    """Of one model, as this page and 1.1 say it."""
    params = a.records[0].case.params
    if a.within:
        width, weights, inputs = a.value("choice")
    elif "frac_width" in params:
        width, weights, inputs = (
            params[name] for name in ("width", "frac_width", "input_frac_width")
        )
    else:
        return ""
    formats = dict.fromkeys((f"fixed({width},{weights})", f"fixed({width},{inputs})"))
    return " and for inputs ".join(formats)
