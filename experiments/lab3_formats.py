"""Question 3.2: every number format on every Linear layer, one search a family, one over all.

Three kinds of case. A *uniform* case gives all layers one format, trains it on shortly where it
lost accuracy, and meets the test split once: the plain record of a format. A *family* case searches
among one family's formats and FP32 for each kind of layer; the *combined* one among all formats.
Searches score validation accuracy less a price on bits, without training, so a trial is a function
of its choices; what is random is the search and the choice of sentences.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import fmean
from typing import Any

from madl.logbook import plots, searches, stats
from madl.logbook.experiment import Claim, Context, Experiment, Figure, Params, Plan, Row
from madl.logbook.results import Pending, Record, Records
from madl.training import baseline
from madl.training.baseline import accuracy, outcomes

FP32 = "fp32"  # a layer that is left alone
FAMILIES: Mapping[str, tuple[str, ...]] = {
    "binary": ("binary",),
    "scaled binary": ("scaled-binary",),
    "residual sign": ("residual-sign(2)", "residual-sign(3)"),
    "ternary": ("ternary(0.7)",),
    "fixed point": ("fixed(4,2)", "fixed(8,4)", "fixed(16,8)"),
    "scaled integer": ("scaled(4,row)", "scaled(8,row)", "scaled(8,tensor)"),
    "logarithmic": ("log(4)", "log(8)"),
    "block log": ("block-log(4,8,block=16)", "block-log(8,8,block=16)"),
    "minifloat": (
        *("minifloat(4,2)", "minifloat(6,2)", "minifloat(6,3)", "minifloat(8,4)"),
        *("minifloat(8,4,nan)", "minifloat(8,5,ieee)"),
        *("minifloat(16,5,ieee)", "minifloat(16,8,ieee)"),
    ),
    "denormal": ("denormal(4,2)", "denormal(8,4)"),
    "block float": ("block-float(3,8,block=16)", "block-float(7,8,block=16)"),
    "block minifloat": ("block-minifloat(4,2,8,block=16)", "block-minifloat(8,4,8,block=16)"),
    "MX integer": ("mxint4", "mxint8"),
    "MX float": ("mxfp8-e4m3", "mxfp8-e5m2", "mxfp6-e3m2", "mxfp6-e2m3", "mxfp4-e2m1"),
}
NAMES = tuple(name for members in FAMILIES.values() for name in members)
SMOKE_NAMES = ("binary", "fixed(8,4)", "log(8)", "block-log(8,8,block=16)", "mxint8")
PRICE_PER_BIT = 0.001  # accuracy that one bit per weight has to bring
TRAIN_BELOW = 0.02  # validation accuracy lost that earns a format its short training
MARGIN = 0.03  # accuracies closer than this count as the same
ZOOM = 0.04  # families whose best is this close to the best of all

# Best accuracy of a search per precision in public reports, on BERT-tiny and IMDb.
REPORTED = {
    "block float": 0.8732,
    "minifloat": 0.8723,
    "fixed point": 0.8722,
    "block log": 0.8720,
    "denormal": 0.8717,
    "logarithmic": 0.8076,
    "binary": 0.514,
    "scaled binary": 0.510,
}


def params(plan: Plan) -> Iterable[Params]:
    choose = plan.profile.choose
    names = choose(smoke=SMOKE_NAMES, quick=NAMES, full=NAMES)
    families = choose(smoke=("binary", "MX integer"), quick=tuple(FAMILIES), full=tuple(FAMILIES))
    for seed in range(plan.profile.seeds):
        base = {
            **baseline.recipe_params(plan, seed),
            "test_examples": choose(smoke=32, quick=250, full=None),
            "probe_examples": choose(smoke=16, quick=64, full=500),
        }
        tune = {
            "tune_examples": choose(smoke=16, quick=64, full=1024),
            "tune_learning_rate": 5e-5,
            "tune_batch_size": 16,
        }
        yield {"part": "fp32", **base}
        search = {"sampler": "tpe", "price": PRICE_PER_BIT}
        trials = choose(smoke=2, quick=20, full=200)
        yield {"part": "combined", "trials": trials, **search, **base}
        trials = choose(smoke=2, quick=5, full=60)
        for family in families:
            yield {"part": "family", "family": family, "trials": trials, **search, **base}
        for name in names:
            yield {"part": "uniform", "format": name, **base, **tune}


def run(params: Params, ctx: Context) -> Mapping[str, Any]:
    model = baseline.fine_tuned(params, ctx)
    runs: Mapping[str, Callable[[Any, Params, Context], Mapping[str, Any]]] = {
        "fp32": run_fp32,
        "uniform": run_uniform,
        "family": run_search,
        "combined": run_search,
    }
    return runs[str(params["part"])](model, params, ctx)


def run_fp32(model: Any, params: Params, ctx: Context) -> Mapping[str, Any]:
    labels = baseline.load_splits(params).test.labels
    positive = sum(labels) / len(labels)
    return {
        **baseline.judge_on_test(model, params, ctx.device),
        "validation": _fp32_validation(model, params, ctx),
        "larger_class": max(positive, 1 - positive),
        "bits": 32.0,
    }


def _probe(params: Params) -> Any:
    return baseline.load_splits(params).validation.first(int(params["probe_examples"] or 0))


def _fp32_validation(model: Any, params: Params, ctx: Context) -> float:
    from madl.training import precision, search, train

    what = {**precision.of_experiment(params, ["probe_examples"]), "what": "fp32 validation"}

    def evaluate() -> Mapping[str, Any]:
        return {"accuracy": train.evaluate(model, _probe(params), device=ctx.device).accuracy}

    return float(search.remembered(ctx, what, evaluate)["accuracy"])


def run_uniform(model: Any, params: Params, ctx: Context) -> Mapping[str, Any]:
    """One format everywhere: after quantization, after a short training where it is needed."""
    from madl.compression.quantize import range_use
    from madl.formats import presets
    from madl.training import precision, train

    number_format = presets()[str(params["format"])]
    fp32 = _fp32_validation(model, params, ctx)
    everywhere = precision.uniform(model, number_format)
    ptq = precision.judge(model, everywhere, _probe(params), ctx.device).accuracy
    shares = range_use(model, baseline.load_splits(params).validation.batch(range(16)))
    qat = None
    if ptq < fp32 - TRAIN_BELOW:
        data = baseline.load_splits(params).train.first(int(params["tune_examples"] or 0))
        tuned = precision.trained_on(model, everywhere, data, params, ctx.device)
        qat = train.evaluate(tuned, _probe(params), device=ctx.device).accuracy
        model = tuned if qat > ptq else model
    return {
        "name": number_format.name,
        "bits": number_format.bits,
        "ptq_validation": ptq,
        "qat_validation": qat,
        "trained": qat is not None and qat > ptq,
        "validation": max(ptq, qat or 0.0),
        "shares": shares,
        **baseline.judge_on_test(model, params, ctx.device),
    }


def run_search(model: Any, params: Params, ctx: Context) -> Mapping[str, Any]:
    """A format for each kind of layer, out of one family or out of all."""
    from madl.training import precision, search

    names = FAMILIES.get(str(params.get("family")), NAMES)
    layers = precision.layer_names(model)
    space = dict.fromkeys(precision.kinds(layers), (FP32, *names))

    def objective(point: Mapping[str, Any]) -> tuple[float, Mapping[str, Any]]:
        formats = chosen(layers, point)
        accuracy = precision.judge(model, formats, _probe(params), ctx.device).accuracy
        bits = precision.mean_bits(model, formats)
        notes = {"validation": accuracy, "bits": bits, "choices": dict(point)}
        return accuracy - float(params["price"] or 0) * bits, notes

    trials = search.search(
        search.study_folder(ctx, params),
        space,
        objective,
        sampler=str(params["sampler"]),
        seed=int(params["seed"] or 0),
        trials=int(params["trials"] or 0),
    )
    best = max(trials, key=lambda trial: trial.value)
    values = {
        "trials": [{"score": trial.value, **trial.notes} for trial in trials],
        "best": {"score": best.value, **best.notes},
        "startup": search.STARTUP_TRIALS,
        "kinds": list(space),
    }
    if params["part"] == "combined":  # the only search whose model is reported
        precision.set_precision_(model, chosen(layers, best.point))
        values |= baseline.judge_on_test(model, params, ctx.device)
    return values


def chosen(layers: Iterable[str], point: Mapping[str, Any]) -> dict[str, Any]:
    """Layer → format, from the choice for its kind."""
    from madl.formats import presets
    from madl.training.precision import kind

    return {
        layer: None if point[kind(layer)] == FP32 else presets()[point[kind(layer)]]
        for layer in layers
    }


# ---- reading the records ------------------------------------------------------------------------


def _seeds(records: Records, **wanted: Any) -> Records:
    """One record a seed.

    Raises:
        Pending: a seed is missing.
    """
    found = records.where(**wanted)
    if not found or len(found) < len(records.where(method="fp32")):
        raise Pending(str(wanted))
    return Records(sorted(found, key=lambda record: record.case.params["seed"]))


def _fp32(records: Records) -> Records:
    return _seeds(records, part="fp32")


def _formats(records: Records) -> dict[str, Records]:
    """Name → its uniform models, one a seed."""
    names = dict.fromkeys(r.case.params["format"] for r in records.where(part="uniform"))
    if not names:
        raise Pending("no format is done")
    return {str(name): _seeds(records, part="uniform", format=name) for name in names}


def family_of(name: str) -> str:
    return next(family for family, members in FAMILIES.items() if name in members)


def _families(records: Records) -> dict[str, Records]:
    found = dict.fromkeys(r.case.params["family"] for r in records.where(part="family"))
    if not found:
        raise Pending("no family is done")
    return {str(name): _seeds(records, part="family", family=name) for name in found}


def _validation(records: Records) -> float:
    return fmean([record.values["validation"] for record in records])


def _bits(records: Records) -> float:
    return fmean([record.values["bits"] for record in records])


def _best(formats: Mapping[str, Records]) -> tuple[str, Records]:
    """What validation accuracy, less the price of the bits, prefers."""
    name = max(formats, key=lambda n: _validation(formats[n]) - PRICE_PER_BIT * _bits(formats[n]))
    return name, formats[name]


def _short_list(names: Iterable[str]) -> str:
    return ", ".join(short(name) for name in names)


def short(name: str) -> str:
    """A format's name without its block size, which is the same in all of a family."""
    return name.replace(",block=16", "")


KEEPS, LOSES, GUESSES = "keeps", "loses", "not shown above guessing"


def effect(records: Records, found: Records) -> str:
    """What the tests say of a format: as good as FP32 as far as seen, worse, or no better than
    answering with the larger class."""
    found_outcomes, level = outcomes(found), _fp32(records)[0].values["larger_class"]
    if not all(_above(one, level) for one in found_outcomes):
        return GUESSES
    against = stats.compare(outcomes(_fp32(records)), found_outcomes)
    return LOSES if against.decided and against.evidence.effect < 0 else KEEPS


def _above(outcomes: stats.Outcomes, level: float) -> bool:
    above = stats.exceeds(outcomes, level)
    return above.decided and above.evidence.effect > 0


# ---- claims -------------------------------------------------------------------------------------


def fewest_bits(records: Records) -> Claim:
    """The narrowest format that validation holds for as good as FP32, judged on test."""
    formats = _formats(records)
    floor = fmean([r.values["validation"] for r in _fp32(records)]) - TRAIN_BELOW
    good = {name: found for name, found in formats.items() if _validation(found) >= floor}
    what = "The narrowest format that validation finds as good as FP32"
    if not good:
        what = "The format that comes closest to FP32"
        name = max(formats, key=lambda n: _validation(formats[n]))
        good = {name: formats[name]}
    name = min(good, key=lambda n: (_bits(good[n]), -_validation(good[n])))
    trained = " after a short training," if good[name][0].values["trained"] else ""
    text = (
        f"{what} is {short(name)} ({_bits(good[name]):g} bits a value):{trained} "
        f"{accuracy(good[name]):.1%} on test, within {100 * MARGIN:g} points of FP32 "
        f"({accuracy(_fp32(records)):.1%})"
    )
    return stats.compare(outcomes(_fp32(records)), outcomes(good[name])).within(MARGIN, text)


def _works(records: Records, family: str) -> Claim:
    """Whether a family that others called ineffective classifies at all."""
    formats = {n: f for n, f in _formats(records).items() if n in FAMILIES[family]}
    if not formats:
        raise Pending(family)
    name, found = _best(formats)
    level = _fp32(records)[0].values["larger_class"]
    text = (
        f"The {family} format {short(name)} is effective: {accuracy(found):.1%} on test, where "
        f"the larger class alone gives {level:.1%} and FP32 {accuracy(_fp32(records)):.1%}"
    )
    return stats.exceeds(outcomes(found)[0], level).improves(text)


def log_works(records: Records) -> Claim:
    return _works(records, "logarithmic")


def block_log_works(records: Records) -> Claim:
    return _works(records, "block log")


def one_bit_fails(records: Records) -> Claim:
    formats = {n: f for n, f in _formats(records).items() if f[0].values["bits"] <= 1}
    if not formats:
        raise Pending("no format of one bit")
    name = max(formats, key=lambda n: _validation(formats[n]))
    text = (
        f"One bit for weights and inputs alike is not enough: the better of those formats, {name}, "
        f"has {accuracy(formats[name]):.1%} on test, FP32 {accuracy(_fp32(records)):.1%}"
    )
    found = stats.compare(outcomes(_fp32(records)), outcomes(formats[name]))
    return found.degrades(text)


def scale_rescues_eight_bits(records: Records) -> Claim:
    """The same eight bits with the binary point fixed, and with a scale from the data."""
    plain = _seeds(records, part="uniform", format="fixed(8,4)")
    scaled = _seeds(records, part="uniform", format="mxint8")
    text = (
        f"A scale from the data is what eight bits need: mxint8 has {accuracy(scaled):.1%} on "
        f"test, fixed(8,4){_how(plain)} {accuracy(plain):.1%}"
    )
    return stats.compare(outcomes(plain), outcomes(scaled)).improves(text)


def _how(found: Records) -> str:
    return " after its short training" if found[0].values["trained"] else ""


def combined_beats_uniform(records: Records) -> Claim:
    combined = _seeds(records, part="combined")
    name, found = _best(_formats(records))
    bits = fmean([r.values["best"]["bits"] for r in combined])
    text = (
        f"What one search over all formats found ({bits:.1f} bits, {accuracy(combined):.1%} on "
        f"test) is more accurate than the best uniform format, {short(name)} "
        f"({_bits(found):g} bits, {accuracy(found):.1%})"
    )
    return stats.compare(outcomes(found), outcomes(combined)).improves(text)


# ---- figures and tables -------------------------------------------------------------------------


def curve_rows(records: Records) -> Sequence[Row]:
    found = {
        family: [[t["score"] for t in r.values["trials"]] for r in of_family]
        for family, of_family in _families(records).items()
    }
    return [
        {"trial": row["trial"], **{family: row[family] for family in found}}
        for row in searches.curve_rows(found)
    ]


def zoom_rows(records: Records) -> Sequence[Row]:
    """The families that end near the best one."""
    rows = curve_rows(records)
    ends = {family: rows[-1][family] for family in rows[-1] if family != "trial"}
    best = max(float(end) for end in ends.values() if end is not None)
    good = [family for family, end in ends.items() if end is not None and end >= best - ZOOM]
    return [{"trial": row["trial"], **{family: row[family] for family in good}} for row in rows]


ROLE_CYCLE = ("first", "second", "third", "fourth")


def draw_curves(ax: Any, rows: Sequence[Row]) -> None:
    families = [name for name in rows[0] if name != "trial"]
    families.sort(key=lambda name: -float(rows[-1][name] or 0))
    for i, family in enumerate(families):
        style = plots.line(ROLE_CYCLE[i % len(ROLE_CYCLE)], markersize=3, linewidth=1.3)
        ax.plot(
            [row["trial"] for row in rows], [row[family] for row in rows], **style | {"label": None}
        )
    ends = {family: float(rows[-1][family] or 0) for family in families}
    if min(ends.values()) > max(ends.values()) - ZOOM:  # a zoom: from where the lowest one ends
        ax.set_ylim(min(ends.values()) - ZOOM / 4, max(ends.values()) + ZOOM / 4)
    ax.set_xlim(0.8, len(rows) * 1.45)
    ax.set_xticks(ticks(len(rows)))
    ax.set_xlabel("trials")
    plots.percent_axis(ax, "best score so far")
    label_ends(ax, ends, len(rows))


def ticks(num_trials: int) -> list[int]:
    """A few whole trials."""
    return list(range(1, num_trials + 1, max(num_trials // 6, 1)))


def label_ends(ax: Any, ends: Mapping[str, float], x: float) -> None:
    """Names at the right ends of curves, pushed apart until none lies on another."""
    low, high = ax.get_ylim()
    gap = (high - low) * LABEL_HEIGHT
    for i, (name, place) in enumerate(spread(ends, gap).items()):
        ax.annotate(
            name,
            (x, ends[name]),
            xytext=(x * 1.06, place),
            fontsize=8,
            va="center",
            color=plots.color(ROLE_CYCLE[i % len(ROLE_CYCLE)]),
            arrowprops={"arrowstyle": "-", "linewidth": 0.5, "color": plots.color("chance")},
        )
    places = spread(ends, gap).values()
    ax.set_ylim(min(low, min(places) - gap), max(high, max(places) + gap))


LABEL_HEIGHT = 0.062  # of the axis, at the narrow size


def spread(values: Mapping[str, float], gap: float) -> dict[str, float]:
    """The same values moved as little as keeps neighbours `gap` apart, the highest first."""
    ordered = sorted(values, key=lambda name: -values[name])
    places: dict[str, float] = {}
    ceiling = float("inf")
    for name in ordered:
        places[name] = min(values[name], ceiling)
        ceiling = places[name] - gap
    up = fmean([values[name] - places[name] for name in ordered])  # centre the stack again
    return {name: place + up for name, place in places.items()}


def curve_alt(rows: Sequence[Row]) -> str:
    ends = {name: rows[-1][name] for name in rows[-1] if name != "trial"}
    said = "; ".join(f"{name} {end:.1%}" for name, end in ends.items() if end is not None)
    return f"Best score so far after {len(rows)} trials, one curve a family: {said}."


def front_rows(records: Records) -> Sequence[Row]:
    """Every format on all layers; the mixed model of the combined search beside them."""
    rows: list[dict[str, Any]] = [
        {
            "format": name,
            "family": family_of(name),
            "bits": _bits(found),
            "test accuracy": accuracy(found),
            "trained": bool(found[0].values["trained"]),
        }
        for name, found in _formats(records).items()
    ]
    try:
        combined = _seeds(records, part="combined")
    except Pending:
        return rows
    bits = fmean([r.values["best"]["bits"] for r in combined])
    mixed = {"format": MIXED, "family": MIXED, "bits": bits, "trained": False}
    return [*rows, {**mixed, "test accuracy": accuracy(combined)}]


MIXED = "combined search"
GROUPS = {
    "fixed, scaled": (("fixed point", "scaled integer"), "first"),
    "floating": (("minifloat", "denormal"), "second"),
    "with a block's scale": (
        ("block float", "block minifloat", "MX integer", "MX float"),
        "third",
    ),
    "logarithmic": (("logarithmic", "block log"), "fourth"),
    "binary, ternary": (("binary", "scaled binary", "residual sign", "ternary"), "chance"),
    MIXED: ((MIXED,), "fp32"),
}


def draw_front(ax: Any, rows: Sequence[Row]) -> None:
    _draw_groups(ax, rows, "bits")
    front = on_front(rows)
    ax.plot(
        [row["bits"] for row in front],
        [row["test accuracy"] for row in front],
        color=plots.color("fp32"),
        linewidth=1,
        zorder=1,
    )
    labelled = 0.0  # the bits of the last one that got a name
    for row in front:
        bits = float(row["bits"] or 0)
        has_room = LABEL_GAP * labelled < bits <= LABEL_UP_TO
        if has_room and float(row["test accuracy"] or 0) > CHANCE + 0.1:
            labelled = bits
            ax.annotate(
                short(str(row["format"])),
                (row["bits"], row["test accuracy"]),
                xytext=(-4, 7),
                textcoords="offset points",
                ha="right" if bits < LABEL_LEFT_OF else "center",
                fontsize=8,
            )
    plots.doubling_axis(ax, (1, 2, 4, 8, 16), "bits per value")
    ax.margins(x=0.09, y=0.12)
    plots.legend(ax)


CHANCE = 0.5
LABEL_GAP = 1.35  # a label has room where the bits grow by this factor
LABEL_LEFT_OF, LABEL_UP_TO = 7.0, 9.0  # bits


def _draw_groups(ax: Any, rows: Sequence[Row], x: str) -> None:
    for title, (families, role) in GROUPS.items():
        mine = [row for row in rows if row["family"] in families]
        if not mine:
            continue
        style = plots.line(role, label=title, linestyle="", markersize=7)
        ax.plot(
            [row[x] for row in mine],
            [row["test accuracy"] for row in mine],
            **style | {"marker": style["marker"] or ("*" if title == MIXED else "x")},
        )
    plots.percent_axis(ax, "test accuracy")


def on_front(rows: Sequence[Row]) -> list[Row]:
    """Those that nothing as narrow beats, from the narrowest on, each better than the last."""
    front: list[Row] = []
    for row in sorted(rows, key=lambda r: (float(r["bits"] or 0), -float(r["test accuracy"] or 0))):
        if not front or float(row["test accuracy"] or 0) > float(front[-1]["test accuracy"] or 0):
            front.append(row)
    return front


def front_alt(rows: Sequence[Row]) -> str:
    points = "; ".join(
        f"{row['format']} {row['bits']:g} bits {row['test accuracy']:.1%}" for row in on_front(rows)
    )
    return f"Test accuracy against bits of {len(rows)} models; on the front: {points}."


def why_rows(records: Records) -> Sequence[Row]:
    """Accuracy against what a format leaves of the inputs, which the formats page measures."""
    measured = next((r.values["formats"] for r in records if "formats" in r.values), None)
    if measured is None:
        raise Pending("formats")
    return [
        {
            "format": name,
            "family": family_of(name),
            "inputs (dB)": round(measured[name]["inputs_db"], 2),
            "test accuracy": accuracy(found),
        }
        for name, found in _formats(records).items()
        if name in measured and measured[name]["inputs_db"] < MAX_DB
    ]


MAX_DB = 45.0  # beyond, nothing changes any more


def draw_why(ax: Any, rows: Sequence[Row]) -> None:
    _draw_groups(ax, rows, "inputs (dB)")
    ax.set_xlabel("signal to error of the layers' inputs (dB)")
    plots.legend(ax)


def why_alt(rows: Sequence[Row]) -> str:
    ordered = sorted(rows, key=lambda row: float(row["inputs (dB)"] or 0))
    ends = [f"{r['format']} {r['inputs (dB)']} dB {r['test accuracy']:.1%}" for r in ordered]
    return f"Test accuracy against the inputs' signal to error: {ends[0]}, …, {ends[-1]}."


def formats_table(records: Records) -> Sequence[Row]:
    formats = _formats(records)
    return [_format_row(records, name, formats[name]) for name in sorted(formats, key=_order)]


def models_table(records: Records) -> Sequence[Row]:
    """The best trial on the sentences that chose it, and on those that did not."""
    name, found = _best(_formats(records))
    combined = _seeds(records, part="combined")
    best = [record.values["best"] for record in combined]
    rows = [
        ("FP32", _bits(_fp32(records)), _validation(_fp32(records)), _fp32(records)),
        (f"`{short(name)}` everywhere", _bits(found), _validation(found), found),
        (MIXED, fmean([b["bits"] for b in best]), fmean([b["validation"] for b in best]), combined),
    ]
    return [_model_row(*row) for row in rows]


def _model_row(title: str, bits: float, validation: float, found: Records) -> Row:
    low, high = stats.accuracy_interval(outcomes(found))
    return {
        "model": title,
        "bits": f"{bits:.3g}",
        "validation": f"{validation:.1%}",
        "test": f"{accuracy(found):.1%} [{low:.1%},\u00a0{high:.1%}]",
    }


def _order(name: str) -> int:
    return NAMES.index(name)


def _format_row(records: Records, name: str, found: Records) -> Row:
    low, high = stats.accuracy_interval(outcomes(found))
    values = found[0].values
    trained = [r.values["qat_validation"] for r in found]
    return {
        "format": f"`{short(name)}`",
        "bits": _bits(found),
        "PTQ, validation": f"{fmean([r.values['ptq_validation'] for r in found]):.1%}",
        "trained on, validation": "" if None in trained else f"{fmean(trained):.1%}",
        "test": f"{accuracy(found):.1%} [{low:.1%},\u00a0{high:.1%}]",
        "inputs zeroed": f"{values['shares']['input_zeroed']:.0%}",
        "against FP32": effect(records, found),
    }


def choices_table(records: Records) -> Sequence[Row]:
    """Which kind of layer took which format in the best model of the combined search."""
    combined = _seeds(records, part="combined")
    return [
        {
            "layers": kind,
            **{
                _seed_title(record, combined): short(record.values["best"]["choices"][kind])
                for record in combined
            },
        }
        for kind in combined[0].values["kinds"]
    ]


def _seed_title(record: Record, combined: Records) -> str:
    return "format" if len(combined) == 1 else f"format, seed {record.case.params['seed']}"


def combined_rows(records: Records) -> Sequence[Row]:
    combined = _seeds(records, part="combined")
    curves = {MIXED: [[t["score"] for t in r.values["trials"]] for r in combined]}
    best = fmean(
        [max(t["score"] for t in r.values["trials"]) for r in _families(records)[_winner(records)]]
    )
    startup = combined[0].values["startup"]
    return [
        {**row, f"best of {_winner(records)}": best, "at random": int(row["trial"] or 0) <= startup}
        for row in searches.curve_rows(curves)
    ]


def _winner(records: Records) -> str:
    families = _families(records)
    scores = {n: fmean([r.values["best"]["score"] for r in families[n]]) for n in families}
    return max(scores, key=lambda n: scores[n])


def draw_combined(ax: Any, rows: Sequence[Row]) -> None:
    (level,) = [name for name in rows[0] if name.startswith("best of ")]
    plots.level(ax, float(rows[0][level] or 0), "control", label=level)
    startup = sum(bool(row["at random"]) for row in rows)
    searches.draw_curves(ax, rows, {MIXED: "first"}, accuracy="best score so far", startup=startup)


def combined_alt(rows: Sequence[Row]) -> str:
    return (
        f"Best score so far of the combined search: {rows[-1][MIXED]:.1%} after {len(rows)} trials."
    )


def reported_table(records: Records) -> Sequence[Row]:
    return [{"precision": name, "best reported": f"{best:.1%}"} for name, best in REPORTED.items()]


experiment = Experiment(
    title="Mixed precision: every number format",
    params=params,
    run=run,
    needs=("baseline", "formats"),
    claims={
        "fewest_bits": fewest_bits,
        "scale_rescues_eight_bits": scale_rescues_eight_bits,
        "log_works": log_works,
        "block_log_works": block_log_works,
        "one_bit_fails": one_bit_fails,
        "combined_beats_uniform": combined_beats_uniform,
    },
    figures={
        "curves": Figure(
            caption="One search a family: each kind of layer takes a format of the family or stays "
            "in FP32, at the price of its bits. A family whose curve stays low has no format that "
            "most layers can bear.",
            rows=curve_rows,
            draw=draw_curves,
            alt=curve_alt,
        ),
        "zoom": Figure(
            caption="The families that end near the best one. Differences of a point are a "
            "sentence or two of the validation split: the order of these curves is not a finding.",
            rows=zoom_rows,
            draw=draw_curves,
            alt=curve_alt,
        ),
        "front": Figure(
            caption="Every format on all layers, trained on shortly where it had lost accuracy. "
            "The line joins the models that nothing as narrow beats.",
            rows=front_rows,
            draw=draw_front,
            alt=front_alt,
        ),
        "why": Figure(
            caption="What a format leaves of the layers' inputs says what it leaves of the "
            "accuracy, whatever its family.",
            rows=why_rows,
            draw=draw_why,
            alt=why_alt,
        ),
        "combined": Figure(
            caption="One search over all formats, against the best that a search of one family "
            "found. In the shaded part TPE draws at random.",
            rows=combined_rows,
            draw=draw_combined,
            alt=combined_alt,
        ),
    },
    tables={
        "formats": formats_table,
        "choices": choices_table,
        "models": models_table,
        "reported": reported_table,
    },
)
