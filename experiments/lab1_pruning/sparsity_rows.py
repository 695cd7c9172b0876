"""What the page of pruning tabulates, draws and counts of its records.

Units: shares 0…1 in charts, per cent in tables.
"""

from collections.abc import Sequence
from itertools import chain
from typing import Any

from experiments.lab1_pruning.sparsities import (
    ALONE,
    BY,
    HALF,
    METHODS,
    PARTS,
    asked,
    control,
    counted,
    curve,
    energy,
    free,
    how,
    own,
    pairs_alike,
    products_left,
    pruned,
    removed,
    run_at,
    shown,
    starting,
    tried,
    whole,
)
from madl.logbook.arms import Arm, TimedArm, arm, best_of, of_models, timed, versus
from madl.logbook.claims import Fact
from madl.logbook.records import Params, Record, Records, Row
from madl.logbook.stats import Interval, listed, number, per_cent
from madl.training import baseline, widths

RATE = "recovery_learning_rate"
FLOAT32_BITS = 32

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


def alike(r: Records) -> list[Row]:
    """Pairs of sparsities at which both methods keep as much, untrained."""
    return [
        {
            "removed by L1-norm": removed(a),
            "kept": per_cent(energy(a)),
            "test accuracy": a,
            "removed at random": removed(b),
            "kept at random": per_cent(energy(b)),
            "test accuracy at random": b,
            "L1-norm − random": a - b,
        }
        for a, b in pairs_alike(r)
    ]


def left_rows(r: Records) -> list[Row]:
    """L1-pruned models, trained on, by what is left to multiply."""
    found = {part: [pruned(r, part, "l1", at) for at in run_at(r, part, "l1")] for part in PARTS}
    return [{"left": products_left(one), part: one} for part, arms in found.items() for one in arms]


def _halved(r: Records) -> dict[str, Arm]:
    return {name: pruned(r, "inputs", way, HALF, "before") for way, name in INPUTS.items()}


def ways(r: Records) -> list[Row]:
    """Ways to remove half of the inputs, untrained."""
    return [
        {"removed": name, "zero inputs": per_cent(counted(one, "zeros", "inputs"))}
        | {"test accuracy": one}
        for name, one in _halved(r).items()
    ]


def _named(point: Params, of: str = "") -> str:
    return f"{shown(float(point['sparsity'] or 0))} {of}{BY[str(point['pruning'])]}"


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
        method: per_cent(energy(pruned(r, "weights", method, HALF, "before"))) for method in METHODS
    }
    return Fact(
        text=f"With half of the weights removed, an L1-norm mask keeps {kept['l1']} of their "
        f"squared magnitude, a random one {kept['random']}",
        of=f"all weights of the Linear layers, {models(starting(r))}",
    )


def at_the_floor(r: Records) -> Fact:
    """Which ways to remove half of the inputs leave what guessing gets."""
    guessing, found = baseline.larger_class(r), _halved(r)
    floor = [name for name, one in found.items() if _holds(one, guessing)]
    named = f": {' and '.join(floor)}. At that floor nothing is left to tell ways apart by"
    return Fact(
        text=f"Always answering with the larger class is right for {per_cent(guessing)} of the "
        f"test sentences, and {len(floor)} of these {len(found)} ways leave an accuracy whose "
        f"interval holds that{named if floor else ''}",
        of="half of every layer's inputs, untrained",
    )


def _holds(one: Arm, share: float) -> bool:
    return _interval(one, share).holds(share)


def which_model(r: Records) -> Fact:
    """Which of the width study's models is pruned."""
    base = starting(r)
    is_trained = "tune_examples" in base.records[0].case.params
    made = "trained on in it (QAT)" if is_trained else "quantized and not trained on (PTQ)"
    return Fact(
        text="The model that is pruned is the fine-tuned one in this format, "
        f"{made}: {base} on test",
        of=models(base),
    )


def told_from_guessing(r: Records) -> Fact:
    """Up to which sparsity something is left, by part and method."""
    guessing, count = baseline.larger_class(r), 0
    said: list[str] = []
    for part in PARTS:
        last: list[str] = []
        for method, by in BY.items():
            arms = [pruned(r, part, method, at) for at in run_at(r, part, method)]
            above = [one for one in arms if _interval(one, guessing).low > guessing]
            last.append(f"{removed(above[-1])} {by} ({above[-1]})" if above else f"none {by}")
            count += len(arms)
        said.append(f"of {_of(part)} {listed(last)}")
    return Fact(
        text=f"Always answering with the larger class is right for {per_cent(guessing)} of the "
        "test sentences. The highest sparsity at which the interval of the accuracy, after "
        "training on, lies above that: "
        f"{'; '.join(said)}",
        of=f"{count} points, {models(control(r))}; intervals not corrected for their number",
    )


def _of(part: str) -> str:
    return f"the {part}" if part in ALONE else part


def _interval(one: Arm, share: float) -> Interval:
    return one.accuracy.interval or Interval(share, share)


def free_by_validation(r: Records) -> Fact:
    """Which L1 sparsity validation calls free, and what that one has on test."""
    n = baseline.fp32(r).value("num_validation")
    said = [_free_of(r, part, n) for part in ALONE]
    return Fact(
        text="Call a sparsity free if validation finds it no worse, by no answer at all, than "
        "nothing removed, each trained on or not as validation prefers. By L1-norm, "
        f"{'; '.join(said)}",
        of=f"{n:,} validation sentences, {models(whole(r))}; on these same answers the model with "
        "nothing removed is the best of all that the width study tried",
    )


def _free_of(r: Records, part: str, n: int) -> str:
    arms, base = tried(r, part), whole(r)
    count = len(base.records)
    answers = f"{count} × {n:,}" if count > 1 else f"{n:,}"
    if found := free(r, part):
        said = f"of the {part} {removed(found)} is the highest free one ({how(found)})"
    else:
        found = best_of(arms)
        missing = round(count * n * (base.validation - found.validation))
        said = (
            f"of the {part} none of {len(arms)} sparsities is free: the best, {removed(found)} "
            f"({how(found)}), misses by {missing:,} of {answers} validation answers"
        )
    return f"{said}; on test it has {found}, {found - base:+i} against nothing removed"


def training_on(r: Records) -> Fact:
    """At how many points training on raises test accuracy, and where it costs most."""
    pairs = [
        (row[name], row[f"{name}, untrained"])
        for row in accuracy_rows(r)
        for name in METHODS.values()
        if row["removed"] and name in row
    ]
    made = [versus(after, before) for after, before in pairs]
    up, down = (sum(sign * one.effect > 0 for one in made) for sign in (1, -1))
    around_zero = sum(one.interval.holds(0) for one in made)
    after, before = pairs[min(range(len(made)), key=lambda i: made[i].effect)]
    return Fact(
        text=f"Of all {len(made)} points, training on raises test accuracy at {up} and lowers it "
        f"at {down}; zero lies inside {around_zero} of the intervals. It costs most with "
        f"{removed(after)} of {_of(after.param('part'))} removed {BY[after.param('pruning')]}: "
        f"{before} before, {after} after, {after - before:+i}",
        of=f"{models(after)}; the intervals are not corrected for their number",
    )


def models(a: Arm) -> str:
    """Of what a number is: "the mean of 3 models"."""
    return of_models(a, "the mean of {} models", "1 model")


def rates_tried(r: Records) -> Fact:
    """Where learning rates were tried, and what validation prefers there."""
    found = own(r).all(part="rates")
    said = [
        f"with {_named(one.case.params, 'of the weights removed ')} (validation prefers "
        f"{_best_rate(one)}{', the highest tried' * _is_highest(one)})"
        for one in found
    ]
    taken = widths.power(control(r).param(RATE))
    return Fact(
        text=f"All points train on at one learning rate, {taken}. Others were tried in the first "
        f"model {listed(said)}, not at the {shown(HALF)} at which methods are held side by side",
        of=f"{len(found)} points, {baseline.fp32(r).value('num_validation'):,} validation "
        "sentences, 1 model",
    )


def _best_rate(one: Record) -> str:
    rates = (
        Arm(label=rate, records=(one,), within=("rates", rate)) for rate in one.values["rates"]
    )
    return best_of(list(rates)).label


def _is_highest(one: Record) -> bool:
    return _best_rate(one) == max(one.values["rates"], key=float)


def fresh_masks_answer_anew(r: Records) -> Fact:
    """What a mask that is drawn at every forward does to an evaluation."""
    found = own(r).all(pruning="fresh random")
    changed = listed([f"{one.values['changed']:,}" for one in found])
    judged = f"{len(found)} models" if len(found) > 1 else "a model"
    again = "answer" if len(found) > 1 else "answers"
    (of,) = {one.values["of"] for one in found}
    at = shown(float(found[0].case.params["sparsity"] or 0))
    return Fact(
        text=f"With a fresh random mask of the inputs at every forward, {judged} judged again "
        f"{again} {changed} of the same {of:,} sentences otherwise",
        of=f"{of:,} validation sentences, judged twice with {at} of the inputs removed, untrained",
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
        text="Other draws of the random mask of the weights give other models; before training, in "
        f"the first model, their validation accuracy is {listed(said)}",
        of=f"{found[0].case.params['draws']} draws at each sparsity, "
        f"{baseline.fp32(r).value('num_validation'):,} validation sentences, 1 model",
    )


# ---- one layer's cost ---------------------------------------------------------------------------


def timed_at(r: Records) -> list[str]:
    """The sparsities at which one layer's product was timed."""
    return sorted(own(r).one(part="cost").values["bytes"])


def product(r: Records, kind: str, at: str = "") -> TimedArm:
    """One layer's product: dense, inputs (pruned first), masked or csr."""
    return timed(own(r), f"{kind} {at}".strip(), part="cost")


def layer_timed(r: Records) -> Fact:
    """Its shape and what it multiplies."""
    (size, *_), runs = own(r).one(part="cost").values["bytes"].values(), product(r, "dense").runs
    tokens, features = map(int, str(runs[0]["subject"]["shape"]).split("×"))
    rows = size["dense"] // (FLOAT32_BITS // 8 * features)
    width = control(r).param("width")
    return Fact(
        text=f"The layer is the first feed-forward matrix, {rows:,} × {features:,} weights, and "
        f"multiplies {tokens:,} tokens at once, with {runs[0]['threads']} threads. As an array in "
        f"the model's {width} bits it takes {number(width / FLOAT32_BITS)} × the bytes of the "
        "dense one, with no weight removed",
        of=f"one layer of the first model, in {len(runs)} processes",
    )


def speed_and_accuracy(r: Records) -> Fact:
    """What CSR's speed is worth: how accurate the model is at each sparsity that was timed."""
    at, dense = timed_at(r), product(r, "dense")
    speeds = [f"{dense / product(r, 'csr', one)}" for one in at]
    left = [f"{pruned(r, 'weights', 'l1', float(one))}" for one in at]
    chance = per_cent(baseline.larger_class(r))
    return Fact(
        text=f"With {listed([shown(float(one)) for one in at])} of its weights zero, the layer's "
        f"CSR product is {listed(speeds)} as fast as the dense one. With as many of all layers' "
        f"weights removed by L1-norm, trained on, the model has {listed(left)} on test (the larger "
        f"class: {chance})",
        of=f"{len(at)} sparsities; {len(dense.runs)} processes, {models(control(r))}",
    )


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
