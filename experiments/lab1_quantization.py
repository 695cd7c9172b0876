"""Question 1.1: accuracy against fixed-point width, after quantization and after training on.

Every Linear layer's weight, bias and input take the same format `fixed(width, frac_width)`. Two
rules give the fraction width: half of the width, or a fixed four bits. The rule of a curve's point
is chosen on validation data. QAT trains on from the fine-tuned model, so its control is the same
training without quantization.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from madl.logbook import plots, stats
from madl.logbook.experiment import Claim, Context, Experiment, Figure, Params, Plan, Row
from madl.logbook.results import Pending, Records
from madl.training import baseline
from madl.training.baseline import outcomes

RULES: Mapping[str, Callable[[int], int]] = {
    "half the width": lambda width: width // 2,
    "fixed at 4": lambda width: 4,
}
HALF, FIXED = RULES
PROBE_SENTENCES = 64  # whose activations are counted
PROBE_WIDTH = 8  # the width that the coursework starts from
MARGIN = 0.02  # accuracies closer than this count as the same
CHANCE = 0.5
FAR_FROM_CHANCE = 0.1  # an accuracy closer to chance than this has not come back

# BERT-tiny on IMDb in four public reports: lowest and highest accuracy, (width, frac_width) → …
REPORTED = {
    (4, 2): ((0.500, 0.500), (0.500, 0.500)),
    (4, 3): ((0.578, 0.578), (0.814, 0.814)),
    (6, 3): ((0.635, 0.689), (0.823, 0.830)),
    (8, 2): ((0.500, 0.500), (0.500, 0.500)),
    (8, 4): ((0.733, 0.823), (0.833, 0.841)),
    (12, 6): ((0.809, 0.835), (0.835, 0.842)),
    (16, 8): ((0.814, 0.836), (0.835, 0.842)),
    (32, 16): ((0.814, 0.836), (0.835, 0.842)),
}
REPORTED_MODEL, REPORTED_DATASET = "bert-tiny", "imdb"


def params(plan: Plan) -> Iterable[Params]:
    choose = plan.profile.choose
    half = choose(
        smoke=(4, 8), quick=(4, 6, 8, 10, 16, 32), full=(4, 5, 6, 7, 8, 9, 10, 12, 16, 24, 32)
    )
    fixed = choose(smoke=(8,), quick=(6, 16, 32), full=(4, 6, 10, 12, 16, 32))
    fixed_qat = choose(smoke=(), quick=(6,), full=(4, 6, 10, 16))
    points = {HALF: half, FIXED: fixed}
    qat_points = {HALF: half, FIXED: fixed_qat}
    tune = {
        "tune_examples": choose(smoke=32, quick=512, full=1024),
        "tune_learning_rate": 3e-5,
        "tune_batch_size": 16,
    }
    for seed in range(plan.profile.seeds):
        base = baseline.recipe_params(plan, seed)
        base["choosing_examples"] = choose(smoke=None, quick=300, full=None)
        yield {"method": "control", **base, **tune}
        for method, curves in (("qat", qat_points), ("ptq", points)):
            for rule, widths in curves.items():
                for width in widths:
                    point = {"width": width, "frac_width": RULES[rule](width)}
                    yield {"method": method, **base, **point, **(tune if method == "qat" else {})}


def run(params: Params, ctx: Context) -> Mapping[str, Any]:
    from madl.compression.quantize import linear_layers, range_use
    from madl.training import compressed

    model = compressed.build(params, ctx)
    validation = baseline.load_splits(params).validation
    shares: dict[str, float] = {}
    if params["method"] == "ptq":
        shares = range_use(model, validation.batch(range(min(PROBE_SENTENCES, len(validation)))))
    return {
        **baseline.judge(model, params, ctx.device),
        "shares": shares,
        "num_weights": sum(layer.weight.numel() for layer in linear_layers(model)),
        "tune_losses": compressed.tuning_losses(params, ctx),
    }


# ---- reading the records ------------------------------------------------------------------------


def at(records: Records, method: str, width: int | None = None, rule: str | None = None) -> Records:
    """All seeds of one point: of a rule, or of the rule that validation data prefers.

    Raises:
        Pending: a seed is missing.
    """
    found = records.where(method=method)
    seeds = len(records.where(method="fp32"))
    if width is not None:
        found = found.where(width=width)
        fractions = [RULES[rule](width)] if rule else found.each("frac_width")
        candidates = [found.where(frac_width=frac) for frac in fractions]
        found = max(candidates, key=_validation_accuracy, default=Records())
    if not found or len(found) != seeds:
        raise Pending(f"{method} at width {width}")
    return found


def _validation_accuracy(records: Records) -> float:
    return sum(r.values["validation_accuracy"] for r in records) / max(len(records), 1)


def _mean(name: str, records: Records) -> float:
    return sum(record.values[name] for record in records) / len(records)


def _measured(row: dict[str, Any], column: str, records: Callable[[], Records]) -> None:
    """Add accuracy and interval to a row; a point nobody measured stays empty."""
    try:
        found = records()
    except Pending:
        row |= {column: None, f"{column} low": None, f"{column} high": None}
        return
    low, high = stats.accuracy_interval(outcomes(found))
    row |= {column: _mean("accuracy", found), f"{column} low": low, f"{column} high": high}


# ---- claims -------------------------------------------------------------------------------------


def _compare(base: Records, other: Records) -> stats.Comparison:
    return stats.compare(outcomes(base), outcomes(other))


def ptq_collapses(records: Records) -> Claim:
    width = min(records.each("width"))
    ptq, fp32 = at(records, "ptq", width), at(records, "fp32")
    text = (
        f"At {width} bits, the best fraction width leaves {_mean('accuracy', ptq):.1%} after PTQ, "
        f"where FP32 has {_mean('accuracy', fp32):.1%} and guessing {CHANCE:.0%}"
    )
    return _compare(fp32, ptq).degrades(text)


def ptq_is_enough(records: Records) -> Claim:
    """The smallest width from which every PTQ point is shown to be within MARGIN of FP32."""
    fp32 = at(records, "fp32")
    enough: Claim | None = None
    for width in reversed(records.where(method="ptq").each("width")):
        claim = _compare(fp32, at(records, "ptq", width)).within(
            MARGIN, f"From {width} bits on, PTQ stays within {MARGIN * 100:g} points of FP32"
        )
        if claim.verdict != "supported":
            return enough or claim
        enough = claim
    if enough is None:
        raise Pending("no PTQ point")
    return enough


def weights_vanish(records: Records) -> Claim:
    width = min(records.where(method="ptq").each("width"))
    record = at(records, "ptq", width, HALF)[0]
    shares = record.values["shares"]
    text = (
        f"At {width} bits with half of them behind the point, {shares['weight_zeroed']:.1%} of the "
        f"weights become zero and {shares['weight_saturated']:.1%} are beyond the range: the step "
        "is too coarse, not the range too small"
    )
    result = stats.counted(
        shares["weight_saturated"], shares["weight_zeroed"], record.values["num_weights"]
    )
    return result.improves(text)


def qat_has_a_floor(records: Records) -> Claim:
    """The widest point that QAT leaves far from FP32."""
    lost = [
        width
        for width in records.where(method="qat").each("width")
        if _mean("accuracy", at(records, "qat", width)) < (CHANCE + FAR_FROM_CHANCE)
    ]
    if not lost:
        width = min(records.where(method="qat").each("width"))
        text = f"At {width} bits QAT stays far from FP32"
    else:
        width = max(lost)
        text = f"At {width} bits and below, the same training does not bring the accuracy back"
    return _compare(at(records, "fp32"), at(records, "qat", width)).degrades(text)


def qat_recovers(records: Records) -> Claim:
    ptq, qat = at(records, "ptq", PROBE_WIDTH), at(records, "qat", PROBE_WIDTH)
    text = (
        f"At {PROBE_WIDTH} bits, QAT brings accuracy from {_mean('accuracy', ptq):.1%} to "
        f"{_mean('accuracy', qat):.1%}"
    )
    return _compare(ptq, qat).improves(text)


def _best_qat(records: Records) -> tuple[int, Records]:
    points = [(w, at(records, "qat", w)) for w in records.where(method="qat").each("width")]
    if not points:
        raise Pending("no QAT point")
    return max(points, key=lambda point: _validation_accuracy(point[1]))


def qat_beats_fp32(records: Records) -> Claim:
    width, qat = _best_qat(records)
    text = f"QAT at its best width ({width} bits) is more accurate than FP32"
    return _compare(at(records, "fp32"), qat).improves(text)


def qat_beats_control(records: Records) -> Claim:
    width, qat = _best_qat(records)
    text = f"QAT at its best width ({width} bits) is more accurate than FP32 trained as long"
    return _compare(at(records, "control"), qat).improves(text)


def rule_matters(records: Records) -> Claim:
    width = max(records.where(method="ptq", frac_width=4).each("width"))
    fixed, half = at(records, "ptq", width, FIXED), at(records, "ptq", width, HALF)
    text = (
        f"At {width} bits, half of them behind the point give {_mean('accuracy', half):.1%} after "
        f"PTQ; four behind the point give {_mean('accuracy', fixed):.1%}, because more integer "
        "bits do not make the step finer"
    )
    return _compare(fixed, half).improves(text)


# ---- figures and tables -------------------------------------------------------------------------


def accuracy_rows(records: Records) -> Sequence[Row]:
    rows: list[Row] = []
    for width in records.each("width"):
        row: dict[str, Any] = {"width": width}
        for method in ("ptq", "qat"):
            _measured(row, method.upper(), lambda m=method, w=width: at(records, m, w))
        _measured(row, "FP32", lambda: at(records, "fp32"))
        _measured(row, "control", lambda: at(records, "control"))
        rows.append(row | _reported(records, width))
    return rows


def _reported(records: Records, width: int) -> dict[str, Any]:
    """The others' range at this width, where their workload is ours."""
    first = records[0].case.params
    same = REPORTED_MODEL in str(first["model"]) and REPORTED_DATASET in str(first["dataset"])
    ranges = REPORTED.get((width, width // 2))
    if not same or ranges is None:
        return {}
    (low, high), _ = ranges
    return {"reported PTQ low": low, "reported PTQ high": high}


def draw_accuracy(ax: Any, rows: Sequence[Row]) -> None:
    reported = [row for row in rows if "reported PTQ low" in row]
    if reported:
        ax.fill_between(
            [row["width"] for row in reported],
            [row["reported PTQ low"] for row in reported],
            [row["reported PTQ high"] for row in reported],
            color=plots.color("reference"),
            alpha=0.25,
            label="PTQ, other reports",
        )
    plots.level(ax, CHANCE, "chance")
    for column, role in (("FP32", "fp32"), ("control", "control")):
        if rows[0][column] is not None:
            plots.level(ax, rows[0][column], role)
    plots.curve(ax, rows, "width", "PTQ", "ptq")
    plots.curve(ax, rows, "width", "QAT", "qat")
    plots.doubling_axis(ax, [row["width"] for row in rows], "fixed-point width (bits)")
    plots.percent_axis(ax, "test accuracy")
    ax.set_ylim(0.45, 0.9)
    plots.legend(ax)


def accuracy_alt(rows: Sequence[Row]) -> str:
    points = "; ".join(
        f"{row['width']} bits: PTQ {_percent(row['PTQ'])}, QAT {_percent(row['QAT'])}"
        for row in rows
    )
    return f"Test accuracy against width. {points}. FP32 {_percent(rows[0]['FP32'])}."


def _percent(value: Any) -> str:
    return "not measured" if value is None else f"{value:.1%}"


def accuracy_table(records: Records) -> Sequence[Row]:
    """The curves in numbers, with the rule that validation data chose for each point."""
    rows: list[Row] = []
    for width in records.each("width"):
        row: dict[str, Any] = {"width": width}
        for method in ("ptq", "qat"):
            try:
                found = at(records, method, width)
            except Pending:
                row |= {f"{method.upper()}": None, f"{method.upper()} fraction": None}
                continue
            low, high = stats.accuracy_interval(outcomes(found))
            row[method.upper()] = f"{_mean('accuracy', found):.1%} [{low:.1%},\u00a0{high:.1%}]"
            row[f"{method.upper()} fraction"] = found[0].case.params["frac_width"]
        rows.append(row)
    return rows


def rules_rows(records: Records) -> Sequence[Row]:
    rows: list[Row] = []
    for width in records.where(method="ptq").each("width"):
        row: dict[str, Any] = {"width": width}
        for rule in RULES:
            _measured(row, rule, lambda w=width, r=rule: at(records, "ptq", w, r))
        rows.append(row)
    return rows


def draw_rules(ax: Any, rows: Sequence[Row]) -> None:
    plots.level(ax, CHANCE, "chance")
    for rule, role in zip(RULES, ("first", "second")):
        plots.curve(ax, rows, "width", rule, role, label=f"fraction {rule}")
    plots.doubling_axis(ax, [row["width"] for row in rows], "fixed-point width (bits)")
    plots.percent_axis(ax, "test accuracy after PTQ")
    ax.set_ylim(0.45, 0.9)
    plots.legend(ax)


def rules_alt(rows: Sequence[Row]) -> str:
    points = "; ".join(
        f"{row['width']} bits: " + ", ".join(f"{rule} {_percent(row[rule])}" for rule in RULES)
        for row in rows
    )
    return f"PTQ accuracy against width for two fraction-width rules. {points}."


SHARES = {
    "weights rounded to zero": ("weight_zeroed", "first"),
    "inputs rounded to zero": ("input_zeroed", "second"),
    "weights beyond the range": ("weight_saturated", "third"),
    "inputs beyond the range": ("input_saturated", "fourth"),
}


def shares_rows(records: Records) -> Sequence[Row]:
    rows: list[Row] = []
    for width in records.where(method="ptq").each("width"):
        try:
            found = at(records, "ptq", width, HALF)
        except Pending:
            continue
        shares = {title: found[0].values["shares"][name] for title, (name, _) in SHARES.items()}
        rows.append({"width": width, **shares})
    if not rows:
        raise Pending("no PTQ point")
    return rows


def draw_shares(ax: Any, rows: Sequence[Row]) -> None:
    for title, (_, role) in SHARES.items():
        plots.curve(ax, rows, "width", title, role, label=title)
    plots.doubling_axis(ax, [row["width"] for row in rows], "fixed-point width (bits)")
    plots.percent_axis(ax, "share of values")
    ax.set_ylim(-0.03, 1.03)
    plots.legend(ax)


def shares_alt(rows: Sequence[Row]) -> str:
    points = "; ".join(
        f"{row['width']} bits: " + ", ".join(f"{title} {row[title]:.1%}" for title in SHARES)
        for row in rows
    )
    return f"Share of values that a width loses, fraction half the width. {points}."


def gain_rows(records: Records) -> Sequence[Row]:
    rows: list[Row] = []
    for width in records.where(method="qat").each("width"):
        row: dict[str, Any] = {"width": width}
        for base in ("fp32", "control"):
            try:
                result = stats.compare(
                    outcomes(at(records, base)), outcomes(at(records, "qat", width))
                )
            except Pending:
                continue
            low, high = result.evidence.interval
            column = f"QAT − {plots.ROLES[base].label}"
            row |= {column: result.evidence.effect, f"{column} low": low, f"{column} high": high}
        if len(row) == 7 and row["width"] >= PROBE_WIDTH:  # below, the collapse hides the scale
            rows.append(row)
    if not rows:
        raise Pending("no QAT point")
    return rows


def draw_gain(ax: Any, rows: Sequence[Row]) -> None:
    positions = range(len(rows))
    for shift, base in ((-0.12, "fp32"), (0.12, "control")):
        column = f"QAT − {plots.ROLES[base].label}"
        middle = [row[column] for row in rows]
        below = [row[column] - row[f"{column} low"] for row in rows]
        above = [row[f"{column} high"] - row[column] for row in rows]
        ax.errorbar(
            [p + shift for p in positions],
            middle,
            yerr=[below, above],
            color=plots.color("ptq" if base == "fp32" else "control"),
            fmt="o" if base == "fp32" else "D",
            capsize=4,
            linewidth=1.8,
            label=column,
        )
    ax.axhline(0, color=plots.color("chance"), linewidth=1)
    ax.set_xticks(list(positions), [str(row["width"]) for row in rows])
    ax.set_xlabel("fixed-point width (bits)")
    ax.set_ylabel("difference in accuracy (points)")
    ax.yaxis.set_major_formatter(lambda value, _: f"{100 * value:+g}")
    plots.legend(ax)


def gain_alt(rows: Sequence[Row]) -> str:
    columns = [f"QAT − {plots.ROLES[base].label}" for base in ("fp32", "control")]
    points = "; ".join(
        f"{row['width']} bits: " + ", ".join(f"{c} {100 * row[c]:+.1f} points" for c in columns)
        for row in rows
    )
    return f"Accuracy of QAT minus two baselines, with intervals. {points}."


def reported_table(records: Records) -> Sequence[Row]:
    def span(pair: tuple[float, float]) -> str:
        low, high = pair
        return f"{low:.1%}" if low == high else f"{low:.1%} to {high:.1%}"

    return [
        {"width": width, "fraction": frac, "PTQ": span(ptq), "QAT": span(qat)}
        for (width, frac), (ptq, qat) in REPORTED.items()
    ]


experiment = Experiment(
    title="Fixed-point width: PTQ and QAT",
    params=params,
    run=run,
    needs=("baseline",),
    claims={
        "ptq_is_enough": ptq_is_enough,
        "ptq_collapses": ptq_collapses,
        "qat_recovers": qat_recovers,
        "qat_has_a_floor": qat_has_a_floor,
        "weights_vanish": weights_vanish,
        "qat_beats_fp32": qat_beats_fp32,
        "qat_beats_control": qat_beats_control,
        "rule_matters": rule_matters,
    },
    figures={
        "accuracy": Figure(
            caption="Where a curve leaves the FP32 line, the format has run out of bits. "
            "Bands are intervals of the test accuracy; the axis is cut below chance.",
            rows=accuracy_rows,
            draw=draw_accuracy,
            alt=accuracy_alt,
        ),
        "rules": Figure(
            caption="With the fraction width fixed, the bits that a wider format adds extend its "
            "range and leave its step as it is.",
            rows=rules_rows,
            draw=draw_rules,
            alt=rules_alt,
        ),
        "shares": Figure(
            caption="What a narrow format loses first: values too small for its step, "
            "or values too large for its range.",
            rows=shares_rows,
            draw=draw_shares,
            alt=shares_alt,
        ),
        "gain": Figure(
            caption="The same models against two baselines. Only the second comparison gives both "
            "sides the same training. Narrower widths are left out, they would set the scale.",
            rows=gain_rows,
            draw=draw_gain,
            alt=gain_alt,
        ),
    },
    tables={"accuracy_table": accuracy_table, "reported": reported_table},
)
