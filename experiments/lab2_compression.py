"""Question 2.2: compression inside the search objective, at equal total training.

Three objectives over the same sub-networks: accuracy before compression; accuracy after half of the
weights are pruned and the rest quantized; the same, with half of the training after compression
instead of before it. Each trains on the same number of sentences in all. What a search chooses is
compressed and judged on test sentences, so that all are compared as what would be deployed.
"""

from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean
from typing import Any

from madl.logbook import searches, stats
from madl.logbook.arms import Arm, arm
from madl.logbook.charts import Chart, log
from madl.logbook.claims import Judged, compare, contrast
from madl.logbook.experiment import Context, Experiment, Plan
from madl.logbook.records import Params, Record, Records, Row, Values
from madl.training import baseline

page = Experiment(title="Compression-aware search", needs=("baseline",))

PLAIN, AFTER, TRAINED = "plain", "compressed", "compressed and trained on"
MODELS = {  # title → objective of the search, what its choice is taken as, note of its size
    "FP32": (PLAIN, "fp32", "fp32_bits"),
    "compressed": (AFTER, "compressed", "linear_bits"),
    "compressed, trained on": (TRAINED, "compressed", "linear_bits"),
    "FP32's choice, compressed": (PLAIN, "compressed", "linear_bits"),
}


@page.cases
def cases(plan: Plan) -> Iterable[Params]:
    choose = plan.profile.choose
    for seed in range(plan.profile.seeds):
        base = {
            **baseline.recipe_params(plan, seed),
            "test_examples": choose(smoke=64, quick=500, full=None),
            "space": choose(smoke="compact", quick="compact", full="coarse"),
            "weights": "inherited",
            "trial_examples": choose(smoke=32, quick=64, full=512),
            "trial_learning_rate": 1e-4,
            "trial_batch_size": 16,
            "choose_examples": choose(smoke=32, quick=128, full=500),
            "width": 8,
            "frac_width": 6,
            "sparsity": 0.5,
        }
        yield {**base, "part": "unequal"}
        for study in range(choose(smoke=2, quick=8, full=20)):
            search = {
                "sampler": "tpe",
                "study": study,
                "trials": choose(smoke=4, quick=20, full=40),
            }
            for objective in (PLAIN, TRAINED, AFTER):  # side by side, those that share no trial
                yield {**base, "part": "study", "objective": objective, **search}


EXTRA = ("width", "frac_width", "sparsity")


@page.run
def run(params: Params, ctx: Context) -> Values:
    from madl.training.search import num_points, search, settings, study_folder
    from madl.training.supernet import Supernet, space

    net = Supernet(params, ctx)
    choices = space(net.config, str(params["space"]), pooler=False)
    if params["part"] == "unequal":
        return _unequal(net, {name: values[-1] for name, values in choices.items()})
    objective = str(params["objective"])

    def evaluate(point: Params) -> tuple[float, Mapping[str, Any]]:
        notes = _trained_on(net, point) if objective == TRAINED else _trained_before(net, point)
        return notes["fp32" if objective == PLAIN else "compressed"], notes

    trials = search(
        study_folder(ctx, params),
        choices,
        evaluate,
        sampler=str(params["sampler"]),
        seed=int(params["study"]),
        trials=int(params["trials"]),
    )
    best = max(trials, key=lambda trial: trial.value)
    return {
        "names": list(choices),
        "points": [list(trial.point.values()) for trial in trials],
        "values": [trial.value for trial in trials],
        "notes": {key: [trial.notes[key] for trial in trials] for key in best.notes},
        "num_points": num_points(choices),
        "settings": settings(str(params["sampler"])),
        "judged": _judged(net, best.point, trained_on=objective == TRAINED),
        "accuracy": best.value,
    }


def _compress(net: Any, model: Any) -> None:
    from madl.compression.prune import prune_
    from madl.compression.quantize import Rule, quantize_
    from madl.formats.fixed import FixedPoint

    number_format = FixedPoint(
        width=int(net.params["width"]), frac_width=int(net.params["frac_width"])
    )
    exact = number_format.exact_in_bf16
    rule = Rule.uniform(number_format, products="bfloat16" if exact else "float32")
    quantize_(model, [rule])
    prune_(model, sparsity=float(net.params["sparsity"]), method="l1")


def _bits(model: Any) -> dict[str, float]:
    from madl.compression.size import linear_bits, other_bits

    return {"linear_bits": linear_bits(model), "other_bits": other_bits(model)}


def _build_trained_before(net: Any, point: Params) -> tuple[Any, dict[str, Any]]:
    """All training, then compression; with what was measured in between."""
    model = net.build(point)
    net.train(model, net.trial_examples)
    before = {"fp32": net.accuracy(model), "fp32_bits": _bits(model)["linear_bits"]}
    return model, before


def _build_trained_on(net: Any, point: Params, *, times: int = 1) -> Any:
    """Half of the training, compression, the other half; `times` as much in all."""
    model = net.build(point)
    examples = net.trial_examples
    if times == 1:
        half = len(examples) // 2
        first, second = examples.first(half), _after(examples, half)
    else:
        first = second = examples
    net.train(model, first)
    _compress(net, model)
    net.train(model, second, quantized=True)
    return model


def _after(examples: Any, count: int) -> Any:
    from dataclasses import replace

    return replace(examples, token_ids=examples.token_ids[count:], labels=examples.labels[count:])


def _trained_before(net: Any, point: Params) -> dict[str, Any]:
    def evaluate() -> dict[str, Any]:
        model, before = _build_trained_before(net, point)
        _compress(net, model)
        accuracy = net.accuracy(model, quantized=True)
        return {**before, "compressed": accuracy, **_bits(model)}

    return net.remember("trained before", point, evaluate, *EXTRA)


def _trained_on(net: Any, point: Params) -> dict[str, Any]:
    def evaluate() -> dict[str, Any]:
        model = _build_trained_on(net, point)
        return {"compressed": net.accuracy(model, quantized=True), **_bits(model)}

    return net.remember("trained on", point, evaluate, *EXTRA)


def _judged(net: Any, point: Params, *, trained_on: bool) -> dict[str, Any]:
    """The compressed model on test sentences, and what it was before that, where it was whole."""

    def evaluate() -> dict[str, Any]:
        judge = lambda model: baseline.judge_on_test(model, net.params, net.ctx.device)  # noqa: E731
        if trained_on:
            return {"compressed": judge(_build_trained_on(net, point))}
        model, _ = _build_trained_before(net, point)
        whole = judge(model)
        _compress(net, model)
        return {"fp32": whole, "compressed": judge(model)}

    what = "test, trained on" if trained_on else "test, trained before"
    return net.remember(what, point, evaluate, *EXTRA, "test_examples")


def _unequal(net: Any, point: Params) -> dict[str, Any]:
    """The largest sub-network with the training of a trial, and with twice that."""
    twice = net.remember(
        "test, twice",
        point,
        lambda: baseline.judge_on_test(
            _build_trained_on(net, point, times=2), net.params, net.ctx.device
        ),
        *EXTRA,
        "test_examples",
    )
    after = _judged(net, point, trained_on=False)["compressed"]
    return {"after": after, "twice": twice, "accuracy": twice["accuracy"]}


# ---- reading the records ------------------------------------------------------------------------


def studies(r: Records, objective: str) -> Records:
    return r.all(part="study", objective=objective)


def chosen(r: Records, title: str) -> Arm:
    """What the studies of a search chose, on test."""
    objective, what, _ = MODELS[title]
    return searches.chosen(studies(r, objective), title, "judged", what)


def chosen_so_far(objective_values: Sequence[float], shown: Sequence[float]) -> list[float]:
    """After every trial, what the point that the search would choose then is worth as `shown`."""
    best = 0
    found: list[float] = []
    for i, value in enumerate(objective_values):
        best = i if value > objective_values[best] else best
        found.append(shown[best])
    return found


def noted(record: Record, name: str) -> float:
    """A note of the trial that a study chose."""
    return chosen_so_far(record.values["values"], record.values["notes"][name])[-1]


def tried(records: Records) -> dict[tuple[Any, ...], dict[str, Any]]:
    """Every sub-network that these studies came by, once: point → notes."""
    seen: dict[tuple[Any, ...], dict[str, Any]] = {}
    for record in records:
        for i, point in enumerate(record.values["points"]):
            notes = {key: column[i] for key, column in record.values["notes"].items()}
            seen[tuple(point)] = notes
    return seen


# ---- claims -------------------------------------------------------------------------------------


@page.claim(headline=True)
def training_on_helps_a_shape(r: Records) -> Judged:
    """At equal total training, a sub-network is better if half of it comes after compression."""
    seeds = r.each("seed")
    models = [_same_shapes(r, seed) for seed in seeds]
    means = [(fmean(a for a, _ in pairs), fmean(b for _, b in pairs)) for pairs in models]
    after, before = zip(*(models[0] if len(seeds) == 1 else means))
    drawn = "sub-networks of 1 model" if len(seeds) == 1 else "trained models"
    made = contrast(
        stats.paired_mean(after, before, unit=stats.Unit.POINTS, drawn=drawn),
        r.where(part="study"),
    )
    gap, numbers = made.comparison.estimate(), [stats.per_cent(fmean(x)) for x in (after, before)]
    count = studies(r, TRAINED)[0].case.params["choose_examples"]
    said = f"On {count} validation sentences, moving half of the training behind the compression"
    same = f"the same sub-networks: {numbers[0]} after {numbers[1]}, with equal training in all"
    return made.judge(
        supported=f"{said} gains {gap} over {same}",
        refuted=f"{said} changes accuracy by {gap:+} over {same}",
        undecided=f"On {count} validation sentences nothing shows that moving half of the training "
        f"behind the compression changes the accuracy of {same}, {gap:+i}",
    )


def _same_shapes(r: Records, seed: int) -> list[tuple[float, float]]:
    """What each sub-network that was trained both ways is worth: trained on, and not."""
    one = r.where(seed=seed)
    after = tried(studies(one, TRAINED))
    before = {**tried(studies(one, PLAIN)), **tried(studies(one, AFTER))}
    both = [point for point in after if point in before]
    return [(after[point]["compressed"], before[point]["compressed"]) for point in both]


@page.claim(headline=True)
def training_on_helps_a_search(r: Records) -> Judged:
    """On test, a search with training after compression chooses better than one without it."""
    a, b = chosen(r, "compressed, trained on"), chosen(r, "compressed")
    said = "On test sentences what the search with training after compression chose is"
    return searches.compare_chosen(a, b).judge(
        supported=f"{said} {a - b} better than what the search without it chose: {a} against {b}",
        refuted=f"{said} {b - a} worse than what the search without it chose: {a} against {b}",
        undecided="On test sentences nothing shows that the search with training after compression "
        f"chooses better or worse than the one without it: {a - b:+i}",
    )


@page.claim(headline=True)
def aware_helps(r: Records) -> Judged:
    """On test, a search that compresses chooses better than one that ignores compression."""
    a, b = chosen(r, "compressed"), chosen(r, "FP32's choice, compressed")
    said = "On test sentences what a search that compresses chose is"
    rival = "than the FP32 search's choices, compressed afterwards"
    return searches.compare_chosen(a, b).judge(
        supported=f"{said} {a - b} better {rival}: {a} against {b}",
        refuted=f"{said} {b - a} worse {rival}: {a} against {b}",
        undecided="On test sentences nothing shows that a search that compresses chooses better or "
        f"worse models {rival}: {a - b:+i}",
    )


@page.claim
def compression_costs(r: Records) -> Judged:
    """On test, the FP32 search's choice is better than the compressed and trained-on one's."""
    a, b = chosen(r, "FP32"), chosen(r, "compressed, trained on")
    small, large = (
        fmean(noted(record, MODELS[one.label][2]) for record in one.records) for one in (b, a)
    )
    said = f"With {stats.per_cent(small / large)} of the bits in their Linear layers, compressed "
    said += "and trained-on choices"
    return searches.compare_chosen(a, b).judge(
        supported=f"{said} are {a - b} worse on test sentences than those in FP32: {b} after {a}",
        refuted=f"{said} are {b - a} better on test sentences than those in FP32: {b} after {a}",
        undecided=f"{said} cannot be told from those in FP32 on test sentences: {b} and {a}, "
        f"{b - a:+i}",
    )


@page.claim
def twice_is_better(r: Records) -> Judged:
    """As much training again after compression makes the largest sub-network better."""
    a, b = arm(r, "twice", "twice", part="unequal"), arm(r, "after", "after", part="unequal")
    said = "On test sentences the compressed largest sub-network"
    none = "On test sentences nothing shows that as much training again, after compression, changes"
    return compare(a, b).judge(
        supported=f"{said} gains {a - b} by as much training again: {a} after {b}",
        refuted=f"{said} loses {b - a} by as much training again: {a} after {b}",
        undecided=f"{none} the compressed largest sub-network: {a - b:+i}",
    )


# ---- figures and tables -------------------------------------------------------------------------


@page.chart(
    caption="What each search would choose after so many trials, on the validation sentences that "
    "it chooses by. The comparison that counts is between compressed models. Mean over studies "
    "with its interval; the axis is cut."
)
def curves(r: Records) -> Chart:
    rows = searches.mean_rows({title: _curve(r, title) for title in MODELS})
    return searches.curves_chart(rows, accuracy="validation accuracy of the choice")


def _curve(r: Records, title: str) -> list[list[float]]:
    objective, note, _ = MODELS[title]
    return searches.of_units(
        studies(r, objective),
        lambda record: chosen_so_far(record.values["values"], record.values["notes"][note]),
    )


@page.chart(
    caption="Every sub-network that a search came by, of the first trained model, and the front of "
    "those that no smaller one reaches. Maxima of noisy values make a front: it lies too high."
)
def front(r: Records) -> Chart:
    rows: list[Row] = []
    for title, (objective, value, size) in MODELS.items():
        if (objective, value) == (PLAIN, "compressed"):
            continue  # the same sub-networks as those of the search that compresses
        rows += [
            {
                "model": title,
                "size": notes[size] / 1e6,
                "validation accuracy": notes[value],
                "shape": shape(point),
            }
            for point, notes in tried(studies(r, objective).where(seed=0)).items()
        ]
    return searches.front_chart(
        rows,
        size=log("size", "size of the Linear layers", "Mbit"),
        value="validation accuracy",
        by="model",
    )


FIELDS = {
    "num_hidden_layers": "layers",
    "num_attention_heads": "heads",
    "hidden_size": "width",
    "intermediate_size": "FFN",
}


def shape(point: Iterable[Any]) -> str:
    return " · ".join(map(str, point))


@page.table
def choices(r: Records) -> Sequence[Row]:
    """Every model that a study on the first trained model chose."""
    rows: list[Row] = []
    for title, (objective, what, size) in MODELS.items():
        found: dict[str, list[Record]] = {}
        for record in studies(r, objective).where(seed=0):
            found.setdefault(shape(_point(record)), []).append(record)
        for point, same in found.items():
            bits, others = noted(same[0], size), noted(same[0], "other_bits")
            rows.append(
                {
                    "choice": title,
                    shape(FIELDS[name] for name in same[0].values["names"]): point,
                    "studies": len(same),
                    "validation": stats.per_cent(noted(same[0], what)),
                    "test": Arm(label=title, records=(same[0],), within=("judged", what)),
                    "Linear, Mbit": bits / 1e6,
                    "in all, Mbit": (bits + others) / 1e6,
                }
            )
    return rows


def _point(record: Record) -> Sequence[Any]:
    return record.values["points"][record.values["values"].index(max(record.values["values"]))]
