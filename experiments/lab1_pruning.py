"""Question 1.2: accuracy against sparsity, random and L1, before and after training on.

The model is the best one of the width study, by validation accuracy, found through its records.
Weights, inputs and both are pruned apart. Masks are drawn once and hold, in training and in
evaluation; the confounded variant of the course tool is one case, to show what it does. What zeros
cost in time and bytes is measured on one layer, in a case that runs alone.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from madl.logbook import plots, stats
from madl.logbook.experiment import Claim, Context, Experiment, Figure, Params, Plan, Row
from madl.logbook.results import Pending, Record, Records
from madl.training import baseline
from madl.training.baseline import accuracy, outcomes

METHODS = {"l1": "L1-norm", "random": "random"}
ROLES = {"l1": "first", "random": "second"}
HALF = 0.5  # the sparsity at which weights, inputs and both are held side by side
SAME_TIME = 0.05  # times closer than this count as the same
CHANCE = 0.5
TOGETHER = "weights of all layers together"  # ranked globally; "weights" ranks each layer alone
PARTS = ("weights", TOGETHER, "inputs", "both")
POINT_FIELDS = ("width", "frac_width", "tune_examples", "tune_learning_rate", "tune_batch_size")


def params(plan: Plan) -> Iterable[Params]:
    choose = plan.profile.choose
    sparsities = choose(
        smoke=(0.5,),
        quick=(0.1, 0.5, 0.7, 0.9),
        full=(0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9),
    )
    best = best_point(plan.records("lab1_quantization"))
    recovery = {
        "recovery_examples": choose(smoke=32, quick=128, full=1024),
        "recovery_learning_rate": 3e-5,
        "recovery_batch_size": 16,
    }
    for seed in range(plan.profile.seeds):
        base = {
            **baseline.recipe_params(plan, seed),
            **best,
            "test_examples": choose(smoke=64, quick=400, full=None),
        }
        if seed == 0:
            budget_s = choose(smoke=0.01, quick=0.2, full=1.0)
            cost = {"sparsities": " ".join(map(str, sparsities)), "budget_s": budget_s}
            yield {**base, "part": "cost", **cost}
        yield {**base, "part": "nothing", "sparsity": 0.0, **recovery}
        for sparsity in sparsities:
            for method in METHODS:
                point = {"pruning": method, "sparsity": sparsity}
                yield {**base, "part": "weights", **point, **recovery}
        for part in PARTS[1:]:
            for method in METHODS:
                yield {**base, "part": part, "pruning": method, "sparsity": HALF}
        yield {**base, "part": "inputs", "pruning": "fresh random", "sparsity": HALF}


def best_point(records: Records) -> dict[str, Any]:
    """The width study's best point on validation data, over its seeds; the narrower of equals."""
    points: dict[tuple[Any, ...], list[Record]] = {}
    for record in records:
        if "width" in record.case.params:
            key = tuple(record.case.params.get(field) for field in POINT_FIELDS)
            points.setdefault(key, []).append(record)

    def merit(key: tuple[Any, ...]) -> tuple[float, int]:
        found = points[key]
        return sum(r.values["validation_accuracy"] for r in found) / len(found), -key[0]

    best = max(points, key=merit)
    return {field: value for field, value in zip(POINT_FIELDS, best) if value is not None}


def run(params: Params, ctx: Context) -> Mapping[str, Any]:
    from madl.compression import prune
    from madl.compression.quantize import linear_layers
    from madl.training import compressed
    from madl.training.train import train

    model = compressed.build(params, ctx)
    if params["part"] == "cost":
        return cost(linear_layers(model)[LAYER].weight, params, ctx.device)
    weights = [layer.weight.detach().clone() for layer in linear_layers(model)]
    sparsity, seed = float(params["sparsity"]), int(params["seed"])
    method, part = params.get("pruning"), params["part"]
    if part in ("weights", TOGETHER, "both"):
        scope = "global" if part == TOGETHER else "local"
        prune.prune_(model, sparsity=sparsity, method=method, scope=scope, seed=seed)
    if method == "fresh random":
        prune.fresh_random_inputs_(model, sparsity=sparsity)
    elif part in ("inputs", "both"):
        prune.prune_inputs_(model, sparsity=sparsity, method=method, seed=seed)
    masks = [layer.weight.detach() != 0 for layer in linear_layers(model)]
    values: dict[str, Any] = {
        "before": baseline.judge_on_test(model, params, ctx.device),
        "kept": prune.magnitude_share(weights, masks),
        "sparsity": prune.weight_sparsity(model),
        "num_weights": sum(weight.numel() for weight in weights),
    }
    if method == "fresh random":
        values["again"] = baseline.judge_on_test(model, params, ctx.device)
    if params.get("recovery_examples") is not None:
        examples = baseline.load_splits(params).train.first(int(params["recovery_examples"]))
        recipe = baseline.training_recipe(params, prefix="recovery_", epochs=1)
        train(model, examples, recipe, device=ctx.device)
        values |= {
            "after": baseline.judge_on_test(model, params, ctx.device),
            "sparsity_after": prune.weight_sparsity(model),
        }
    prune.fuse_masks_(model)
    if part == "nothing":
        values |= {"histogram": histogram(linear_layers(model)[LAYER].weight)}
    return {**values, "accuracy": values["before"]["accuracy"]}


LAYER = 4  # the first feed-forward matrix, the largest kind: whose histogram and cost are shown
BINS = 60


def histogram(weight: Any) -> dict[str, Any]:
    """Counts of one layer's magnitudes up to their 99.9th percentile, and the median."""
    import torch

    magnitude = weight.detach().abs().flatten()
    top = float(magnitude.quantile(0.999))
    counts = torch.histc(magnitude, bins=BINS, min=0.0, max=top)
    return {"counts": counts.tolist(), "top": top, "median": float(magnitude.median())}


def cost(weight: Any, params: Params, device: str) -> dict[str, Any]:
    """One layer's product, dense with zeros and as CSR, and its bytes, at every sparsity."""
    from madl.compression import prune

    weight = weight.detach().to(device)
    found: dict[str, Any] = {}
    for text in str(params["sparsities"]).split():
        (mask,) = prune.weight_masks([weight], sparsity=float(text), method="l1")
        found[text] = _cost_of(weight * mask, device, float(params["budget_s"] or 0))
    return found


def _cost_of(weight: Any, device: str, budget_s: float) -> dict[str, Any]:
    import zlib

    import torch
    import torch.nn.functional as F

    from madl.machine.timing import compare

    x = torch.randn(256, weight.shape[1], device=device)  # (tokens, in_features)
    full = torch.randn_like(weight)
    with torch.no_grad():
        sparse = weight.to_sparse_csr()
        assert torch.allclose(sparse @ x.T, F.linear(x, weight).T, atol=1e-3)
        timed = compare(
            {
                "dense": lambda: F.linear(x, full),
                "masked": lambda: F.linear(x, weight),
                "csr": lambda: sparse @ x.T,
            },
            device=device,
            budget_s=budget_s,
        )
    num_kept = int((weight != 0).sum())
    return {
        "samples_s": {name: measurement.samples_s for name, measurement in timed.items()},
        "dense_bytes": 4 * weight.numel(),
        # a value and a 32-bit column for each kept weight, and where each row starts
        "csr_bytes": 8 * num_kept + 4 * (weight.shape[0] + 1),
        "zip_bytes": len(zlib.compress(weight.cpu().numpy().tobytes(), 6)),
    }


# ---- reading the records ------------------------------------------------------------------------


def at(records: Records, **point: Any) -> Records:
    """All seeds of one point.

    Raises:
        Pending: a seed is missing.
    """
    seeds = len(records.where(part="nothing"))
    found = records.where(**point)
    if not found or len(found) != seeds:
        raise Pending(str(point))
    return found


def sparsities(records: Records) -> list[float]:
    return records.where(part="weights").each("sparsity")


# ---- claims -------------------------------------------------------------------------------------


def l1_wins(records: Records) -> Claim:
    l1 = at(records, part="weights", pruning="l1", sparsity=HALF)
    rand = at(records, part="weights", pruning="random", sparsity=HALF)
    text = (
        f"With {HALF:.0%} of the weights removed, L1-norm pruning leaves "
        f"{accuracy(l1, 'before'):.1%} and random pruning {accuracy(rand, 'before'):.1%}, "
        "before any further training"
    )
    return stats.compare(outcomes(rand, "before"), outcomes(l1, "before")).improves(text)


def recovery_helps(records: Records) -> Claim:
    """Where L1 pruning has lost most, and training on can show what it brings."""
    lost = max(
        sparsities(records),
        key=lambda s: (
            accuracy(at(records, part="weights", pruning="l1", sparsity=s), "after")
            - accuracy(at(records, part="weights", pruning="l1", sparsity=s), "before")
        ),
    )
    l1 = at(records, part="weights", pruning="l1", sparsity=lost)
    text = (
        f"Training on brings an L1-pruned model back the most at {lost:.0%} sparsity: from "
        f"{accuracy(l1, 'before'):.1%} to {accuracy(l1, 'after'):.1%}"
    )
    return stats.compare(outcomes(l1, "before"), outcomes(l1, "after")).improves(text)


def random_recovers_less(records: Records) -> Claim:
    l1 = at(records, part="weights", pruning="l1", sparsity=HALF)
    rand = at(records, part="weights", pruning="random", sparsity=HALF)
    text = (
        f"After the same further training at {HALF:.0%} sparsity, L1-norm pruning has "
        f"{accuracy(l1, 'after'):.1%} and random pruning {accuracy(rand, 'after'):.1%}"
    )
    return stats.compare(outcomes(rand, "after"), outcomes(l1, "after")).improves(text)


def l1_keeps_magnitude(records: Records) -> Claim:
    l1 = at(records, part="weights", pruning="l1", sparsity=HALF)[0].values["kept"]["l2"]
    rand = at(records, part="weights", pruning="random", sparsity=HALF)[0].values["kept"]["l2"]
    text = (
        f"At {HALF:.0%} sparsity, L1-norm pruning keeps {l1:.1%} of the weights' squared "
        f"magnitude, random pruning {rand:.1%}"
    )
    return stats.counted(rand, l1, _num_weights(records)).improves(text)


def _num_weights(records: Records) -> int:
    return next(r.values["num_weights"] for r in records if "num_weights" in r.values)


def evaluation_repeats(records: Records) -> Claim:
    fresh = at(records, part="inputs", pruning="fresh random", sparsity=HALF)[0].values
    first, again = (stats.Outcomes.from_json(fresh[k]["outcomes"]) for k in ("before", "again"))
    changed = int((first.correct != again.correct).sum())
    text = (
        f"With a fresh random input mask at every forward, two evaluations of the same model "
        f"disagree on {changed} of {first.n:,} sentences"
    )
    return stats.counted(0.0, changed / first.n, first.n).improves(text)


def _product_ratio(records: Records, kind: str) -> tuple[float, stats.Comparison]:
    """At the highest sparsity: how much faster than the dense product of a full weight."""
    found = records.one(part="cost")
    most = max(found.values, key=float)
    samples = found.values[most]["samples_s"]
    return float(most), stats.ratio(
        samples["dense"], samples[kind], contention=found.run.contention
    )


def masked_is_as_slow(records: Records) -> Claim:
    most, ratio = _product_ratio(records, "masked")
    text = (
        f"At {most:.0%} sparsity, the dense product takes the same time with the masked weights, "
        f"to within {SAME_TIME:.0%}"
    )
    return ratio.within(SAME_TIME, text)


def csr_is_faster(records: Records) -> Claim:
    most, ratio = _product_ratio(records, "csr")
    text = f"At {most:.0%} sparsity, a sparse (CSR) product is faster than the dense one"
    return ratio.improves(text)


# ---- figures and tables -------------------------------------------------------------------------


def _point(row: dict[str, Any], column: str, records: Records, when: str) -> None:
    low, high = stats.accuracy_interval(outcomes(records, when))
    row |= {column: accuracy(records, when), f"{column} low": low, f"{column} high": high}


def accuracy_rows(records: Records) -> Sequence[Row]:
    rows: list[Row] = []
    whole = at(records, part="nothing")
    for sparsity in sparsities(records):
        row: dict[str, Any] = {"sparsity": sparsity}
        for method, title in METHODS.items():
            found = at(records, part="weights", pruning=method, sparsity=sparsity)
            for when in ("before", "after"):
                _point(row, f"{title}, {when}", found, when)
        rows.append({**row, "nothing pruned": accuracy(whole, "before")})
    return rows


def draw_accuracy(ax: Any, rows: Sequence[Row]) -> None:
    plots.level(ax, CHANCE, "chance")
    plots.level(ax, rows[0]["nothing pruned"], "fp32", label="nothing pruned")  # type: ignore[arg-type]
    for method, title in METHODS.items():
        for when, style in (("before", "--"), ("after", "-")):
            column = f"{title}, {when}"
            plots.curve(ax, rows, "sparsity", column, ROLES[method], label=column)
            ax.lines[-1].set_linestyle(style)
            ax.lines[-1].set_markerfacecolor(
                "none" if when == "before" else plots.color(ROLES[method])
            )
    ax.set_xlabel("sparsity of the weights (%)")
    ax.xaxis.set_major_formatter(lambda value, _: f"{100 * value:g}")
    plots.percent_axis(ax, "test accuracy")
    ax.set_ylim(0.43, 0.9)
    plots.legend(ax)


def accuracy_alt(rows: Sequence[Row]) -> str:
    points = "; ".join(
        f"{row['sparsity']:.0%}: "
        + ", ".join(
            f"{title} {row[f'{title}, before']:.1%} then {row[f'{title}, after']:.1%}"
            for title in METHODS.values()
        )
        for row in rows
    )
    return f"Test accuracy before and after training on, by sparsity. {points}."


def accuracy_table(records: Records) -> Sequence[Row]:
    rows: list[Row] = []
    for sparsity in sparsities(records):
        row: dict[str, Any] = {"sparsity": f"{sparsity:.0%}"}
        for method, title in METHODS.items():
            found = at(records, part="weights", pruning=method, sparsity=sparsity)
            row[title] = f"{accuracy(found, 'before'):.1%}"
            row[f"{title}, trained on"] = f"{accuracy(found, 'after'):.1%}"
            row[f"{title}, zeros counted"] = f"{found[0].values['sparsity_after']:.2%}"
        rows.append(row)
    return rows


def parts_rows(records: Records) -> Sequence[Row]:
    rows: list[Row] = []
    for part in PARTS:
        row: dict[str, Any] = {"pruned": part}
        for method, title in METHODS.items():
            found = at(records, part=part, pruning=method, sparsity=HALF)
            _point(row, title, found, "before")
        rows.append(row)
    return rows


def draw_parts(ax: Any, rows: Sequence[Row]) -> None:
    for shift, (method, title) in zip((-0.2, 0.2), METHODS.items()):
        heights = [row[title] for row in rows]
        below = [row[title] - row[f"{title} low"] for row in rows]  # type: ignore[operator]
        above = [row[f"{title} high"] - row[title] for row in rows]  # type: ignore[operator]
        ax.bar(
            [i + shift for i in range(len(rows))],
            heights,
            width=0.36,
            color=plots.color(ROLES[method]),
            label=title,
            yerr=[below, above],
            ecolor=plots.color("fp32"),
            capsize=4,
            hatch="" if method == "l1" else "//",
            edgecolor=plots.color("fp32"),
            linewidth=0.6,
        )
    plots.level(ax, CHANCE, "chance")
    names = [
        str(row["pruned"]).replace(" of all ", ",\nall ").replace(" tog", "\ntog") for row in rows
    ]
    ax.set_xticks(range(len(rows)), names)
    ax.grid(axis="x", visible=False)
    plots.percent_axis(ax, "test accuracy")
    ax.set_ylim(0, 1)
    plots.legend(ax)


def parts_alt(rows: Sequence[Row]) -> str:
    points = "; ".join(
        f"{row['pruned']}: " + ", ".join(f"{t} {row[t]:.1%}" for t in METHODS.values())
        for row in rows
    )
    return f"Accuracy with half of the weights, the inputs or both removed. {points}."


def histogram_rows(records: Records) -> Sequence[Row]:
    found = at(records, part="nothing")[0].values["histogram"]
    width = found["top"] / len(found["counts"])
    total = sum(found["counts"])
    return [
        {
            "magnitude": (i + 0.5) * width,
            "share of weights": count / total,
            "kept by L1-norm": count / total * min(max((i + 1) - found["median"] / width, 0), 1),
            "kept by random": count / total * (1 - HALF),
        }
        for i, count in enumerate(found["counts"])
    ]


def draw_histogram(ax: Any, rows: Sequence[Row]) -> None:
    xs = [row["magnitude"] for row in rows]
    ax.plot(
        xs, [row["share of weights"] for row in rows], **plots.line("fp32", label="all weights")
    )
    for method, title in METHODS.items():
        ys = [row[f"kept by {title}"] for row in rows]
        ax.plot(xs, ys, **plots.line(ROLES[method], marker="", label=f"kept by {title}"))
        ax.fill_between(xs, ys, color=plots.color(ROLES[method]), alpha=0.15, linewidth=0)
    ax.set_xlabel("magnitude of the weight")
    plots.percent_axis(ax, "share of the weights in a bin")
    plots.legend(ax)


def histogram_alt(rows: Sequence[Row]) -> str:
    middle = rows[len(rows) // 2]["magnitude"]
    return (
        f"Magnitudes of one layer's weights up to {rows[-1]['magnitude']:.3f}; most lie below "
        f"{middle:.3f}. L1-norm pruning keeps the right half, random pruning half of each bin."
    )


def cost_table(records: Records) -> Sequence[Row]:
    rows: list[Row] = []
    for sparsity, found in sorted(records.one(part="cost").values.items()):
        row: dict[str, Any] = {"sparsity": f"{float(sparsity):.0%}"}
        for name, title in (("masked", "time, masked"), ("csr", "time, CSR")):
            ratio = stats.ratio_interval(found["samples_s"][name], found["samples_s"]["dense"])
            row[f"{title} ÷ dense"] = f"{ratio.low:.2f} to {ratio.high:.2f}"
        for name, title in (("csr", "CSR"), ("zip", "compressed")):
            row[f"bytes, {title} ÷ dense"] = f"{found[f'{name}_bytes'] / found['dense_bytes']:.2f}"
        rows.append(row)
    return rows


REPORTED = {
    0.1: ("85.9%", "84.1%"),
    0.3: ("85.4%", "80.7%"),
    0.5: ("84.1%", "73.4%"),
    0.6: ("82.7%", "52.3%"),
    0.7: ("80.2%", "50.5%"),
    0.8: ("74.2%", "50.1%"),
    0.9: ("52.6%", "50.1%"),
}


def reported_table(records: Records) -> Sequence[Row]:
    return [
        {"sparsity": f"{sparsity:.0%}", "L1-norm": l1, "random": rand}
        for sparsity, (l1, rand) in REPORTED.items()
    ]


experiment = Experiment(
    title="Sparsity: random and L1-norm pruning",
    params=params,
    run=run,
    needs=("baseline", "lab1_quantization"),
    timed=lambda params: params["part"] == "cost",
    claims={
        "l1_wins": l1_wins,
        "recovery_helps": recovery_helps,
        "random_recovers_less": random_recovers_less,
        "l1_keeps_magnitude": l1_keeps_magnitude,
        "evaluation_repeats": evaluation_repeats,
        "masked_is_as_slow": masked_is_as_slow,
        "csr_is_faster": csr_is_faster,
    },
    figures={
        "accuracy": Figure(
            caption="Where each method falls off before any further training (open markers), and "
            "what the same short training brings back (filled). The axis is cut below chance.",
            rows=accuracy_rows,
            draw=draw_accuracy,
            alt=accuracy_alt,
        ),
        "histogram": Figure(
            caption="One layer's weights by magnitude, and what is left of them when half are "
            "removed: L1 takes the small ones, random takes its share of the large ones too.",
            rows=histogram_rows,
            draw=draw_histogram,
            alt=histogram_alt,
        ),
        "parts": Figure(
            caption="Half of the weights, half of each layer's inputs, or half of both removed, "
            "without further training.",
            rows=parts_rows,
            draw=draw_parts,
            alt=parts_alt,
        ),
    },
    tables={"accuracy_table": accuracy_table, "cost": cost_table, "reported": reported_table},
)
