"""What the page of pruning tabulates, draws and counts of its records.

Units: shares 0…1 in charts, per cent in tables.
"""

from collections.abc import Sequence
from itertools import chain
from typing import Any

from madl.logbook.arms import Arm, TimedArm, arm, timed
from madl.logbook.claims import Fact
from madl.logbook.records import Params, Records, Row
from madl.logbook.stats import number, per_cent
from madl.training import baseline
from madl.training.sparsities import (
    HALF,
    METHODS,
    PARTS,
    asked,
    control,
    counted,
    curve,
    energy,
    own,
    products_left,
    pruned,
    run_at,
    shown,
    starting,
)

INPUTS = {  # what is removed of the inputs, by method
    "l1": "values below the layer's threshold",
    "l1 features": "features of the least L1 norm",
    "random": "random features",
    "fresh random": "random values, others at every forward",
}


def accuracy_rows(r: Records) -> list[dict[str, Any]]:
    """A row a part and sparsity, from nothing removed on: both methods, untrained and trained.

    Where one method was run alone, the row has nothing of the other.
    """
    rows: list[dict[str, Any]] = []
    for part in PARTS:
        of = {method: run_at(r, part, method) for method in METHODS}
        for at in sorted({0.0, *chain.from_iterable(of.values())}):
            row: dict[str, Any] = {"pruned": part, "removed": at}
            for method, name in METHODS.items():
                if at and at not in of[method]:
                    continue
                untrained = pruned(r, part, method, at, "before") if at else starting(r)
                row[f"{name}, untrained"] = untrained
                row[name] = pruned(r, part, method, at) if at else control(r)
            rows.append(row)
    return rows


def points(r: Records) -> list[Row]:
    """The same as a table, nothing removed once, with what L1 loses against the control."""
    rows: list[Row] = []
    for row in accuracy_rows(r):
        at = row["removed"]
        if not at and rows:
            continue
        difference: Any = row[METHODS["l1"]] - control(r) if at else ""
        named = {"pruned": row["pruned"] if at else "nothing", "removed": shown(at)}
        rows.append({**row, **named, "L1-norm − nothing removed": difference})
    return rows


def zeros(r: Records) -> list[Row]:
    """What the products see before training, by sparsity, from nothing removed on."""
    plain = arm(own(r), part="nothing")
    columns = {"zero weights": "weights", "zero inputs": "inputs", "both, products left": "both"}
    rows: list[Row] = []
    for at in (0.0, *asked(r)):
        row: dict[str, Any] = {"removed": shown(at)}
        for title, part in columns.items():
            what = "products" if part == "both" else part
            for method, name in METHODS.items():
                point = pruned(r, part, method, at, "before") if at else None
                share = counted(point or plain, "zeros", what)
                row[f"{title}: {name}"] = per_cent(share)
        rows.append(row)
    return rows


def kept_rows(r: Records) -> list[Row]:
    """Untrained models by what the masks of their weights keep."""
    return [
        {"kept": energy(one), name: one}
        for method, name in METHODS.items()
        for one in curve(r, "weights", method, "before")
    ]


def left_rows(r: Records) -> list[Row]:
    """L1-pruned models, trained on, by what is left to multiply."""
    found = {part: [pruned(r, part, "l1", at) for at in run_at(r, part, "l1")] for part in PARTS}
    return [{"left": products_left(one), part: one} for part, arms in found.items() for one in arms]


def _halved(r: Records) -> dict[str, Arm]:
    return {name: pruned(r, "inputs", how, HALF, "before") for how, name in INPUTS.items()}


def ways(r: Records) -> list[Row]:
    """Ways to remove half of the inputs, untrained."""
    return [
        {"removed": name, "zero inputs": per_cent(counted(one, "zeros", "inputs"))}
        | {"test accuracy": one}
        for name, one in _halved(r).items()
    ]


def _named(point: Params) -> str:
    return f"{shown(float(point['sparsity'] or 0))}, {METHODS[str(point['pruning'])]}"


def rates(r: Records) -> list[Row]:
    """What learning rates leave on validation, at the points that try them."""
    return [
        {"weights removed": _named(one.case.params)}
        | {
            rate: f"{per_cent(judged['validation_accuracy'])}, {number(judged['validation_loss'])}"
            for rate, judged in sorted(one.values["rates"].items(), key=lambda it: float(it[0]))
        }
        for one in own(r).all(part="rates")
    ]


def histogram_rows(r: Records) -> list[Row]:
    """One layer's weights by magnitude, and what each method's mask kept of half of them.

    Of the first model.
    """
    found = {
        name: pruned(r, "weights", method, HALF).records[0].values["histogram"]
        for method, name in METHODS.items()
    }
    first = next(iter(found.values()))
    total, width = sum(first["all"]), first["top"] / len(first["all"])
    return [
        {"magnitude": (i + 0.5) * width, "all weights": count / total}
        | {f"kept by {name}": one["kept"][i] / total for name, one in found.items()}
        for i, count in enumerate(first["all"])
    ]


# ---- counted over all there is ------------------------------------------------------------------


def kept_at_half(r: Records) -> Fact:
    """How much of the weights' squared magnitude each method leaves."""
    kept = {
        name: per_cent(energy(pruned(r, "weights", method, HALF, "before")))
        for method, name in METHODS.items()
    }
    said = ", ".join(f"{name} {share}" for name, share in kept.items())
    return Fact(
        text=f"With half of the weights removed, the masks keep of their squared magnitude: {said}",
        of="all weights of the Linear layers",
    )


def larger_class(r: Records) -> float:
    """What always answering with the larger class gets on test."""
    share = float(baseline.fp32(r).value("positive_share"))
    return max(share, 1 - share)


def at_the_floor(r: Records) -> Fact:
    """Which ways to remove half of the inputs leave what guessing gets."""
    guessing, found = larger_class(r), _halved(r)
    floor = [name for name, one in found.items() if _holds(one, guessing)]
    named = f": {' and '.join(floor)}. At that floor nothing is left to tell ways apart by"
    return Fact(
        text=f"Always answering with the larger class is right for {per_cent(guessing)} of the "
        f"test sentences, and {len(floor)} of these {len(found)} ways leave an accuracy whose "
        f"interval holds that{named if floor else ''}",
        of="half of every layer's inputs, untrained",
    )


def _holds(one: Arm, share: float) -> bool:
    low, high = one.accuracy.interval or (share, share)
    return low <= share <= high


def fresh_masks_answer_anew(r: Records) -> Fact:
    """What a mask that is drawn at every forward does to an evaluation."""
    found = own(r).all(pruning="fresh random")
    changed, of = (sum(one.values[name] for one in found) for name in ("changed", "of"))
    return Fact(
        text="With a fresh random mask of the inputs at every forward, a model judged again "
        f"answers {changed:,} of the same {of:,} sentences otherwise",
        of=f"{of:,} validation sentences, judged twice",
    )


def draws_differ(r: Records) -> Fact:
    """How far the models of other random masks lie apart, on validation."""
    said: list[str] = []
    found = own(r).all(part="draws")
    for one in found:
        judged = sorted(draw["validation_accuracy"] for draw in one.values["draws"])
        at = shown(float(one.case.params["sparsity"] or 0))
        said.append(f"{per_cent(judged[0])} to {per_cent(judged[-1])} with {at} removed")
    return Fact(
        text="Other draws of the random mask of the weights give other models; before training, "
        f"their validation accuracy is {', '.join(said)}",
        of=f"{found[0].case.params['draws']} draws at each sparsity",
    )


# ---- one layer's cost ---------------------------------------------------------------------------


def timed_at(r: Records) -> list[str]:
    """The sparsities at which one layer's product was timed."""
    return sorted(own(r).one(part="cost").values["bytes"])


def product(r: Records, kind: str, at: str = "") -> TimedArm:
    """One layer's product: dense, inputs (pruned first), masked or csr."""
    return timed(own(r), f"{kind} {at}".strip(), part="cost")


def costs(r: Records) -> Sequence[Row]:
    dense = product(r, "dense")
    rows: list[Row] = []
    for at in timed_at(r):
        size = own(r).one(part="cost").values["bytes"][at]
        rows.append(
            {
                "removed": f"{shown(float(at))} of the weights",
                "dense": dense,
                "masked, speed": dense / product(r, "masked", at),
                "CSR, speed": dense / product(r, "csr", at),
                "CSR, bytes": f"{number(size['csr'] / size['dense'])} ×",
                "compressed, bytes": f"{number(size['zip'] / size['dense'])} ×",
            }
        )
    inputs = {"dense": dense, "masked, speed": dense / product(r, "inputs")}
    return [*rows, {"removed": "half of the inputs", **inputs}]
