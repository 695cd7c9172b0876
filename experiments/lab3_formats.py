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

from madl.logbook import searches
from madl.logbook.arms import Arm, arm
from madl.logbook.charts import Chart, doubling, level, line, linear, percent, points
from madl.logbook.claims import Fact, Judged, above, compare
from madl.logbook.experiment import Context, Experiment, Plan
from madl.logbook.records import Params, Pending, Record, Records, Row, Values
from madl.logbook.stats import number, per_cent
from madl.training import baseline

page = Experiment(title="Mixed precision: every number format", needs=("baseline", "formats"))

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
MARGIN = 0.03  # accuracy that fewer bits may cost; much less, and 250 sentences would not see it
ZOOM = 0.04  # families whose best is this close to the best of all


@page.cases
def cases(plan: Plan) -> Iterable[Params]:
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


@page.run
def run(params: Params, ctx: Context) -> Values:
    model = baseline.fine_tuned(params, ctx)
    runs: Mapping[str, Callable[[Any, Params, Context], Values]] = {
        "fp32": run_fp32,
        "uniform": run_uniform,
        "family": run_search,
        "combined": run_search,
    }
    return runs[str(params["part"])](model, params, ctx)


def run_fp32(model: Any, params: Params, ctx: Context) -> Values:
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


def run_uniform(model: Any, params: Params, ctx: Context) -> Values:
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


def run_search(model: Any, params: Params, ctx: Context) -> Values:
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

    trials, best = search.of_case(ctx, params, space, objective)
    values: dict[str, Any] = {
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


def fp32(r: Records) -> Arm:
    return arm(r, "FP32", part="fp32")


def uniform(r: Records) -> dict[str, Arm]:
    """Every format that is planned, in the order of `NAMES` → its model.

    Raises:
        Pending: none is planned.
    """
    planned = set(r.each("format"))
    found = {
        name: arm(r, short(name), part="uniform", format=name) for name in NAMES if name in planned
    }
    if not found:
        raise Pending("uniform")
    return found


def combined(r: Records) -> Arm:
    return arm(r, MIXED, part="combined")


MIXED = "all formats"


def families(r: Records) -> dict[str, Arm]:
    """Family → its search."""
    planned = set(r.each("family"))
    found = {name: arm(r, name, part="family", family=name) for name in FAMILIES if name in planned}
    if not found:
        raise Pending("family")
    return found


def family_of(name: str) -> str:
    return next(family for family, members in FAMILIES.items() if name in members)


def mean_of(a: Arm, name: str) -> float:
    """A plain value of the model that each seed's case reports, averaged."""
    return fmean(record.values.get("best", record.values)[name] for record in a.records)


def score(a: Arm) -> float:
    """What a search is told of a model."""
    return mean_of(a, "validation") - PRICE_PER_BIT * mean_of(a, "bits")


def best_of(formats: Mapping[str, Arm], names: Iterable[str] = NAMES) -> Arm:
    """Of these formats, what validation accuracy less the price of the bits prefers.

    Raises:
        Pending: none of them is planned.
    """
    among = [formats[name] for name in names if name in formats]
    if not among:
        raise Pending("formats")
    return max(among, key=score)


def said(a: Arm) -> str:
    """A format with its bits and how it came to its accuracy."""
    trained = ", trained on" if any(record.values["trained"] for record in a.records) else ""
    bits = mean_of(a, "bits")
    return f"{a.label} ({number(bits)} bit{'s' if bits != 1 else ''}{trained})"


def short(name: str) -> str:
    """A format's name without its block size, which is the same in all of a family."""
    return name.replace(",block=16", "")


# ---- claims and facts ---------------------------------------------------------------------------


@page.claim(headline=True)
def fewest_bits(r: Records) -> Judged:
    """The narrowest format that validation finds as good as FP32 keeps FP32's accuracy on test,
    within a margin."""
    full, formats = fp32(r), uniform(r)
    floor = mean_of(full, "validation") - TRAIN_BELOW
    good = [one for one in formats.values() if mean_of(one, "validation") >= floor]
    good = good or [max(formats.values(), key=lambda one: mean_of(one, "validation"))]
    found = min(good, key=lambda one: (mean_of(one, "bits"), -mean_of(one, "validation")))
    what = f"The narrowest format that validation finds as good as FP32, {said(found)},"
    margin, on_test = f"{100 * MARGIN:g} points", f"{found} on test, FP32 {full}"
    return (
        compare(found, full)
        .no_worse(MARGIN)
        .judge(
            supported=f"{what} loses less than {margin}: {on_test}",
            refuted=f"{what} loses more than {margin}: {on_test}",
            undecided=f"{what} has {on_test}: {found - full:+i}, which does not settle whether it "
            f"loses more than {margin}",
        )
    )


@page.claim
def scale_helps(r: Records) -> Judged:
    """At eight bits, the best format with a scale from the data is more accurate than the best
    format without one."""
    eights = {n: a for n, a in uniform(r).items() if 8 <= mean_of(a, "bits") < 9}
    scaled = best_of(eights, [name for name in eights if family_of(name) in SCALED])
    plain = best_of(eights, [name for name in eights if family_of(name) not in SCALED])
    pair = f"{said(scaled)} {scaled} on test, {said(plain)} {plain}"
    return compare(scaled, plain).judge(
        supported=f"At eight bits a scale from the data adds {scaled - plain}: {pair}",
        refuted=f"At eight bits a scale from the data costs {plain - scaled}: {pair}",
        undecided="Nothing shows that eight bits need a scale from the data, if the format is the "
        f"best of its kind: {pair}, {scaled - plain:+i}",
    )


SCALED = (
    *("scaled integer", "block log", "block float", "block minifloat", "MX integer", "MX float"),
)


def _works(r: Records, family: str) -> Judged:
    """Whether a family that others called ineffective classifies at all, with every seed."""
    found, level = best_of(uniform(r), FAMILIES[family]), fp32(r).value("larger_class")
    on_test = f"{said(found)} classifies {found:i} of the test sentences correctly"
    answering = f"always answering with the larger class gives {per_cent(level)}"
    return above(found, level).judge(
        supported=f"{on_test}; {answering}",
        refuted=f"{on_test}, fewer than guessing: {answering}",
        undecided=f"{on_test}, which cannot be told from guessing: {answering}",
    )


@page.claim
def log_works(r: Records) -> Judged:
    """The best logarithmic format classifies: it beats always answering with the larger class."""
    return _works(r, "logarithmic")


@page.claim
def block_log_works(r: Records) -> Judged:
    """The best block-logarithmic format beats always answering with the larger class."""
    return _works(r, "block log")


@page.claim(headline=True)
def log_costs(r: Records) -> Judged:
    """The best format whose values are powers of two alone is less accurate than FP32."""
    found = best_of(uniform(r), [*FAMILIES["logarithmic"], *FAMILIES["block log"]])
    return _costs(r, found, "The best of the logarithmic formats")


@page.claim
def one_bit_costs(r: Records) -> Judged:
    """The best format of one bit for weights and inputs alike is less accurate than FP32."""
    formats = uniform(r)
    ones = [name for name, found in formats.items() if mean_of(found, "bits") <= 1]
    return _costs(r, best_of(formats, ones), "The best format of one bit")


def _costs(r: Records, found: Arm, what: str) -> Judged:
    full = fp32(r)
    on_test = f"{found} on test, FP32 {full}"
    return compare(full, found).judge(
        supported=f"{what}, {said(found)}, loses {full - found} against FP32: {on_test}",
        refuted=f"{what}, {said(found)}, gains {found - full} over FP32: {on_test}",
        undecided=f"Nothing shows that {what[0].lower()}{what[1:]}, {said(found)}, loses against "
        f"FP32: {on_test}, {found - full:+i}",
    )


@page.claim(headline=True)
def combined_beats_uniform(r: Records) -> Judged:
    """What one search over all formats finds is more accurate than the best format for all."""
    formats, mixed = uniform(r), combined(r)
    alike = best_of(formats)
    what = f"What one search over all formats finds in {mixed.param('trials')} trials"
    bits = f"{number(mean_of(mixed, 'bits'))} bits"
    best = f"the best of {len(formats)} formats given to all layers, {said(alike)}: {alike}"
    return compare(mixed, alike).judge(
        supported=f"{what} ({bits}) reaches {mixed} on test, {mixed - alike} above {best}",
        refuted=f"{what} ({bits}) reaches {mixed} on test, {alike - mixed} below {best}",
        undecided=f"{what} ({bits}, {mixed} on test) cannot be told from {best}, "
        f"{mixed - alike:+i}",
    )


@page.fact
def ends(r: Records) -> Fact:
    found = families(r)
    low, high = min(found.values(), key=score), max(found.values(), key=score)
    trials, probe = low.param("trials"), low.param("probe_examples")
    return Fact(
        text=f"The best scores of the families' searches go from {per_cent(score(low))} "
        f"({low.label}) to {per_cent(score(high))} ({high.label}); the search over all formats "
        f"ends at {per_cent(score(combined(r)))}, a model left in FP32 at "
        f"{per_cent(score(fp32(r)))}",
        of=f"{len(found)} families of {trials} trials, on {probe} validation sentences",
    )


@page.fact
def training(r: Records) -> Fact:
    models = [record.values for one in uniform(r).values() for record in one.records]
    tried = [values for values in models if values["qat_validation"] is not None]
    helped = sum(values["trained"] for values in tried)
    return Fact(
        text=f"Right after quantization {len(tried)} uniform models have lost more than "
        f"{100 * TRAIN_BELOW:g} points on validation and are trained on; {helped} of them are "
        "better for it",
        of=f"{len(models)} models, a format each",
    )


# ---- figures and tables -------------------------------------------------------------------------


def _curves(r: Records, names: Iterable[str], **limits: Any) -> Chart:
    """A small chart a family."""
    found = families(r)
    rows = [
        {"family": name, **row}
        for name in names
        for row in searches.curve_rows({BEST: [_scores(record) for record in found[name].records]})
    ]
    return Chart(
        rows,
        x=linear("trial", "trials"),
        y=percent("best score so far, validation", **limits),
        marks=[level(score(fp32(r)), "FP32"), line(BEST)],
        facet="family",
    )


BEST = "best so far"


def _scores(record: Record) -> list[float]:
    return [trial["score"] for trial in record.values["trials"]]


@page.chart(
    caption="One search a family: each kind of layer takes a format of the family or stays in "
    "FP32, at the price of its bits. The dashed line is the score of a model that is all FP32."
)
def curves(r: Records) -> Chart:
    return _curves(r, families(r))


@page.chart(
    caption="The families that end near the best one, on a finer scale. A step as small as one "
    "sentence of the validation split is not a difference between families."
)
def zoom(r: Records) -> Chart:
    found = families(r)
    low = max(map(score, found.values())) - ZOOM
    good = [name for name, one in found.items() if score(one) >= low]
    return _curves(r, good, limits=(100 * (low - ZOOM), None))


@page.chart(
    caption="One search over all formats, beside the end of the best search of one family. In the "
    "shaded part TPE draws at random."
)
def combined_curve(r: Records) -> Chart:
    mixed, found = combined(r), families(r)
    best = max(found.values(), key=score)
    rows = searches.curve_rows({MIXED: [_scores(record) for record in mixed.records]})
    return searches.curves_chart(
        rows,
        accuracy="best score so far, validation",
        startup=min(mixed.value("startup"), len(rows)),
        levels=[
            level(score(fp32(r)), "FP32"),
            level(score(best), f"best family: {best.label}"),
        ],
    )


GROUPS = {
    "fixed, scaled": ("fixed point", "scaled integer"),
    "floating": ("minifloat", "denormal"),
    "with a block's scale": ("block float", "block minifloat", "MX integer", "MX float"),
    "logarithmic": ("logarithmic", "block log"),
    "binary, ternary": ("binary", "scaled binary", "residual sign", "ternary"),
}


def group_of(name: str) -> str:
    return next(group for group, members in GROUPS.items() if family_of(name) in members)


@page.chart(
    caption="Every format on all layers, trained on shortly where it had lost accuracy, and the "
    "model of the search over all formats. The line joins those that none of as few bits reaches "
    "on validation."
)
def front(r: Records) -> Chart:
    drawn = [*((group_of(name), one) for name, one in uniform(r).items()), (MIXED, combined(r))]
    rows = [
        {
            "format": one.label,
            "formats": group,
            "bits": mean_of(one, "bits"),
            "validation": mean_of(one, "validation"),
            "test accuracy": one,
        }
        for group, one in drawn
    ]
    on_front = searches.front([row["bits"] for row in rows], [row["validation"] for row in rows])
    return searches.front_chart(
        [{**row, "named": row["format"] if i in on_front else None} for i, row in enumerate(rows)],
        size=doubling("bits", label="bits per value"),
        value="test accuracy",
        by="formats",
        front_by="validation",
        common=True,
        text="named",
        levels=[level(fp32(r))],
    )


@page.chart(
    caption="A point is a format on all layers. Were the error of the inputs all that counts, the "
    "points would lie on one rising curve, whatever the family."
)
def why(r: Records) -> Chart:
    measured = r.of("formats").one().values["formats"]
    rows = [
        {
            "format": one.label,
            "formats": group_of(name),
            "inputs (dB)": measured[name]["inputs_db"],
            "test accuracy": one,
        }
        for name, one in uniform(r).items()
        if name in measured and measured[name]["inputs_db"] < MAX_DB
    ]
    return Chart(
        rows,
        x=linear("inputs (dB)", "signal to error of the layers' inputs", "dB"),
        y=percent("test accuracy"),
        marks=[level(fp32(r)), points("test accuracy", by="formats")],
    )


MAX_DB = 45.0  # beyond, nothing changes any more


@page.table
def every_format(r: Records) -> Sequence[Row]:
    full = fp32(r)
    return [
        {
            "format": f"`{one.label}`",
            "bits": mean_of(one, "bits"),
            "validation": per_cent(mean_of(one, "ptq_validation")),
            "trained on": _trained(one),
            "inputs zeroed": per_cent(
                fmean(record.values["shares"]["input_zeroed"] for record in one.records)
            ),
            "test": one,
            "against FP32": one - full,
        }
        for one in uniform(r).values()
    ]


def _trained(one: Arm) -> str:
    found = [record.values["qat_validation"] for record in one.records]
    return "–" if None in found else per_cent(fmean(found))


@page.table
def models(r: Records) -> Sequence[Row]:
    """The best trial on the sentences that chose it, and on those that did not."""
    alike = best_of(uniform(r))
    found = {
        "FP32": fp32(r),
        f"`{alike.label}` everywhere": alike,
        "found by the search over all": combined(r),
    }
    return [
        {
            "model": name,
            "bits": mean_of(one, "bits"),
            "validation": per_cent(mean_of(one, "validation")),
            "test": one,
        }
        for name, one in found.items()
    ]


@page.table
def choices(r: Records) -> Sequence[Row]:
    """Which kind of layer took which format in the best model of the combined search."""
    found = combined(r)
    taken = {
        record.case.params["seed"]: record.values["best"]["choices"] for record in found.records
    }
    return [
        {"layers": kind, **{f"seed {seed}": f"`{short(t[kind])}`" for seed, t in taken.items()}}
        for kind in found.value("kinds")
    ]
