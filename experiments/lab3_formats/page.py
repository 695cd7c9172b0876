"""Question 3.2: every number format on every Linear layer, and searches over them.

As asked, a search a precision and one over all formats; their trials train. Without training, all
layers take one format, or a search gives each kind of layer its own within a budget of bits. A
format without a scale has the places (fraction widths or exponent biases) of least validation loss.

What is chosen, on the tuning seed and by validation, reaches `cases` as parameters: places, the
mix.

Units: bits per weight; losses in nats.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from functools import partial

from experiments.lab3_formats import design
from experiments.lab3_formats.design import BOTH, WEIGHTS, WITH_BYTES
from experiments.lab3_formats.placed import FP32, PlacedFormat
from experiments.lab3_formats.records import STEM, fp32, planned_formats, untrained
from madl.formats.presets import FAMILIES, PRESETS
from madl.logbook.arms import Arm, answers_changed, arm, beside
from madl.logbook.charts import Chart, doubling, level, line, linear, percent, points
from madl.logbook.claims import Contrast, compare
from madl.logbook.experiment import CONFIRMING_SEEDS, TUNING, TUNING_SEED, Experiment, Plan
from madl.logbook.numbers import (
    ExactValue,
    Sourced,
    computed,
    exact,
    of_all,
    percentage,
    sourced,
)
from madl.logbook.records import Params, Record, Records, Row
from madl.logbook.searches import highest_so_far
from madl.training import baseline, trial

page = Experiment()

ALL, MIX = "all formats", "mix"  # studies: as asked, a family's name or all; and within a budget
SMOKE_FORMATS = ("binary", "fixed(4,2)", "fixed(8,4)", "log(4)", "mxfp6-e2m3", "mxint4", "nvfp4")
QUICK_FORMATS = ("fixed(4,2)", "log(4)", "mxint4", "nvfp4")
NEAR = 0.01  # of accuracy, from FP32
LABELLED = ("nvfp4", "mxint4", "ternary(0.7)", "log(8)", "mxint8")


def placed(name: str) -> PlacedFormat:
    """A preset with the places that the design gives it: numbers, "best" or none."""
    return PlacedFormat(name, design.PLACES.get(name))


def offer(names: Iterable[str]) -> str:
    """These formats as the text in which a search is offered them."""
    return " ".join(str(placed(name)) for name in names)


@page.tuning
def tuning(plan: Plan) -> Iterable[Params]:
    choose, base = plan.profile.choose, baseline.drawn_params(plan, TUNING_SEED)
    names = choose(smoke=SMOKE_FORMATS, quick=tuple(PRESETS))
    yield {"part": "fp32", **base, "format": FP32}
    for name in names:
        yield {"part": "untrained", **base, **placed(name).params}
    search: Params = {"part": "search", "sampler": design.SAMPLER, **base}
    chosen_by = {"by": "validation_loss", "budget": design.BUDGET_BITS, "begin": True}
    trials = len(names) + choose(smoke=3, quick=design.TRIALS)
    yield {**search, "study": MIX, **chosen_by, "trials": trials, "offered": offer(names)}
    trained: Params = {
        **base,
        "by": "validation_accuracy",
        **trial.training_params(plan, design.RATE, design.TRIAL_SENTENCES),
    }
    yield {"part": "trained", **trained, "format": FP32}
    trials = choose(smoke=3, quick=design.ASKED_TRIALS)
    asked: Params = {**search, **trained, "trials": trials, "coin": True}
    for family, members in choose(smoke={ALL: names}, quick=families()).items():
        yield {**asked, "study": family, "offered": offer(members)}


def families() -> dict[str, tuple[str, ...]]:
    """Study → the presets that a search as asked for offers: those of a family, or all."""
    by_name = {f.name: tuple(preset.name for preset in f.formats.values()) for f in FAMILIES}
    return {**{name: by_name[name] for name in design.ASKED}, ALL: tuple(PRESETS)}


def singles(tuned: Records) -> dict[str, Record]:
    """Preset → its record on the tuning seed, for all layers."""
    by_name = {record.case.params["format"]: record for record in tuned.all(part="untrained")}
    return {name: by_name[name] for name in PRESETS if name in by_name}


def search_of(r: Records, study: str) -> Record:
    return r.tuning.single(part="search", study=study)


def mix_params(tuned: Records) -> Params:
    """The parameters of the mix that the search within the budget chose."""
    return {"mix": tuned.single(part="search", study=MIX).values["mix"]["formats"]}


@page.cases
def cases(plan: Plan) -> Iterable[Params]:
    tuned = plan.records(f"{STEM}{TUNING}")
    mix = mix_params(tuned)
    single = {
        name: PlacedFormat.read(record.values["formats"]).params
        for name, record in singles(tuned).items()
    }
    for seed in plan.seeds:
        base = baseline.drawn_params(plan, seed)
        yield {"part": "fp32", **base, "format": FP32}
        yield {"part": "untrained", **base, **mix}
        for formats in single.values():
            yield {"part": "untrained", **base, **formats, "operands": BOTH}
    base = baseline.drawn_params(plan, plan.seeds[0])
    for operands in (WEIGHTS, WITH_BYTES):
        for formats in single.values():
            yield {"part": "untrained", **base, **formats, "operands": operands}


@page.quick
def quick(params: Params) -> bool:
    is_shown = params.get("format") in (*QUICK_FORMATS, FP32) and params.get("operands") != WEIGHTS
    return params["seed"] == CONFIRMING_SEEDS[0] and is_shown


def mix(r: Records) -> Arm:
    """The models in the searched mix, as quantized."""
    where = {"part": "untrained", **mix_params(r.tuning)}
    return arm(r.of_experiment(STEM), "searched mix", **where)


def best_single(r: Records, *, least: float, below: float) -> Arm:
    """The models in the single format of so many bits that has the least validation loss.

    As quantized.
    """
    losses = {
        name: record.values["validation_loss"]
        for name, record in singles(r.tuning).items()
        if least <= record.values["bits"] < below
    }
    return untrained(r, min(losses, key=losses.__getitem__))


# Of six bits, a block's scale apart; and of no more bits than a mix may have.
six_bits = partial(best_single, least=design.RIVAL_BITS, below=design.RIVAL_BITS + 1)
within_budget = partial(best_single, least=0, below=math.nextafter(design.BUDGET_BITS, math.inf))


@page.claim(primary=True)
def four_bits_cost_nothing(r: Records) -> Contrast:
    """With weights and inputs of all Linear layers in NVFP4, as quantized, the model loses at most
    a point of accuracy against FP32."""
    return compare(untrained(r, design.FOUR_BITS), fp32(r)).no_worse()


@page.claim(primary=True)
def a_mix_beats_one_format(r: Records) -> Contrast:
    """A mix of formats beats one format: as quantized, a mix of at most 5 bits a weight that a
    search chose is more accurate than the single format of at most 5 bits of least validation loss
    on the tuning seed."""
    return compare(mix(r), within_budget(r))


@page.claim
def a_mix_beside_nvfp4(r: Records) -> Contrast:
    """As quantized, the mix of at most 5 bits a weight over NVFP4."""
    return compare(mix(r), untrained(r, design.FOUR_BITS))


@page.claim
def a_mix_beside_six_bits(r: Records) -> Contrast:
    """As quantized, the mix of at most 5 bits a weight over the single format of 6 bits of least
    validation loss on the tuning seed."""
    return compare(mix(r), six_bits(r))


@page.claim
def four_bits_of_mx(r: Records) -> Contrast:
    """MXFP4 less FP32, as quantized."""
    return compare(untrained(r, design.BESIDE), fp32(r))


@page.claim
def nvfp4_over_mxfp4(r: Records) -> Contrast:
    """Four bits, as quantized: NVFP4 over MXFP4."""
    return compare(untrained(r, design.FOUR_BITS), untrained(r, design.BESIDE))


@page.claim
def a_scale_for_each_block_helps(r: Records) -> Contrast:
    """Integers of four bits, as quantized: a power of two for each block over one fraction width
    for weights and one for inputs."""
    return compare(untrained(r, "mxint4"), untrained(r, "fixed(4,2)"))


@page.claim
def steps_beat_powers(r: Records) -> Contrast:
    """Eight bits and a scale for each 16 values, as quantized: even steps over powers of two."""
    even, powers = (untrained(r, f"block-{name},8,block=16)") for name in ("float(7", "log(8"))
    return compare(even, powers)


def bits_of(a: Arm) -> ExactValue:
    """The mean bits a weight of an arm, with its label in the unit."""
    return exact(round(a.mean("bits"), 2), a.records, f"bits ({a.label})")


def in_bits(bits: float) -> str:
    return f"{bits:g} {'bit' if bits == 1 else 'bits'}"


def changed_by(r: Records, preset: str) -> Sourced:
    """The share of FP32's answers that a format changes."""
    a, full = untrained(r, preset), fp32(r)
    return sourced(answers_changed(a, full), a, full)


def tuning_share(r: Records, name: str, share: str, *, as_it_comes: bool = False) -> ExactValue:
    """A share from the tuning record of a format: placed, or at the places that the preset has."""
    record = singles(r.tuning)[name]
    values = record.values["as it comes"] if as_it_comes else record.values
    return percentage(values[share], [record])


def highest(search: Record) -> float:
    """The highest validation accuracy of a search."""
    return max(search.values["tried"])


def best_of_all(r: Records) -> ExactValue:
    """The highest validation accuracy of a search in one family, with that family in the unit."""
    best = max((search_of(r, name) for name in design.ASKED), key=highest)
    return exact(round(100 * highest(best), 1), [best], f"% ({best.case.params['study']})")


def on_validation(record: Record) -> ExactValue:
    """The validation accuracy of a record in per cent."""
    return exact(round(100 * record.values["validation_accuracy"], 1), [record], "%")


def trained_alike(r: Records) -> float:
    """The validation accuracy of FP32 everywhere, trained like a trial."""
    return r.tuning.single(part="trained").values["validation_accuracy"]


def near_full(r: Records) -> list[Record]:
    """The searches as asked for that end within `NEAR` of FP32 trained like a trial."""
    return [search for search in searches(r) if highest(search) > trained_alike(r) - NEAR]


def num_near(r: Records) -> ExactValue:
    """How many of the families' searches end near FP32."""
    of_families = [s for s in near_full(r) if s.case.params["study"] != ALL]
    return exact(len(of_families), searches(r))


def in_full_precision(r: Records, select: Callable[[Iterable[int]], int]) -> ExactValue:
    """How many kinds of layers its best trial leaves in FP32, of the search that `select` picks."""
    counts = (s.values["best"]["formats"].split().count(FP32) for s in searches(r))
    return exact(select(counts), searches(r))


page.numbers(
    fp32=of_all(fp32),
    four_bits=of_all(untrained, preset=design.FOUR_BITS),
    beside=of_all(untrained, preset=design.BESIDE),
    four_bits_changed=of_all(changed_by, preset=design.FOUR_BITS),
    beside_changed=of_all(changed_by, preset=design.BESIDE),
    over_all=computed(partial(search_of, study=ALL), lambda s: round(100 * highest(s), 1), "%"),
    highest=best_of_all,
    near=num_near,
    trained_alike=lambda r: on_validation(r.tuning.single(part="trained")),
    as_it_was=lambda r: on_validation(r.tuning.single(part="fp32")),
    fewest_in_full=partial(in_full_precision, select=min),
    most_in_full=partial(in_full_precision, select=max),
    kinds=computed(partial(search_of, study=ALL), lambda record: len(record.values["roles"])),
    mix=of_all(mix),
    mix_bits=lambda r: exact(round(mix(r).mean("bits"), 1), mix(r).records, "bits"),
    over_four=a_mix_beside_nvfp4,
    over_six=a_mix_beside_six_bits,
    rival=six_bits,
    rival_bits=lambda r: bits_of(six_bits(r)),
    single=of_all(within_budget),
    single_bits=lambda r: bits_of(within_budget(r)),
    num_formats=lambda r: exact(len(planned_formats(r)), r.of_experiment(STEM)),
    fixed_4=partial(untrained, preset="fixed(4,2)"),
    log_4=partial(untrained, preset="log(4)"),
    mxint4=partial(untrained, preset="mxint4"),
    block_float_8=partial(untrained, preset="block-float(7,8,block=16)"),
    log_8=partial(untrained, preset="log(8)"),
    block_log_8=partial(untrained, preset="block-log(8,8,block=16)"),
    log_4_zeroed=partial(tuning_share, name="log(4)", share="weight_zeroed", as_it_comes=True),
    log_4_placed_zeroed=partial(tuning_share, name="log(4)", share="weight_zeroed"),
    fixed_8=partial(tuning_share, name="fixed(8,4)", share="validation_accuracy"),
    fixed_8_as_it_comes=partial(
        tuning_share, name="fixed(8,4)", share="validation_accuracy", as_it_comes=True
    ),
    asked_trials=lambda r: exact(len(search_of(r, ALL).values["tried"]), searches(r)),
    rate=lambda r: exact(design.RATE, searches(r)),
    trials=computed(partial(search_of, study=MIX), lambda record: len(record.values["tried"])),
    budget=lambda r: exact(design.BUDGET_BITS, [search_of(r, MIX)], "bits"),
)


def searches(r: Records) -> list[Record]:
    """The searches as asked for."""
    return [search_of(r, study) for study in (*design.ASKED, ALL)]


@page.chart
def curves(r: Records) -> Chart:
    """The highest validation accuracy so far of every search as asked for."""
    return curves_of(r, searches(r))


@page.chart
def curves_near(r: Records) -> Chart:
    """The same of the searches that end near FP32."""
    return curves_of(r, near_full(r), beside=curves(r))


def curves_of(r: Records, shown: Sequence[Record], *, beside: Chart | None = None) -> Chart:
    studies = [str(search.case.params["study"]) for search in shown]
    so_far = [highest_so_far(search.values["tried"]) for search in shown]
    return Chart(
        [
            {"trial": i + 1, **dict(zip(studies, values, strict=True))}
            for i, values in enumerate(zip(*so_far, strict=True))
        ],
        x=linear("trial", "trials"),
        y=percent("highest validation accuracy so far"),
        marks=[
            level(trained_alike(r), "FP32 everywhere"),
            *(line(study, markers=False) for study in studies),
        ],
        beside=beside,
    )


@page.chart
def accuracy(r: Records) -> Chart:
    """Test accuracy of every format on all layers, as quantized, against its bits."""
    tuned = singles(r.tuning)
    rows: list[Row] = [
        {
            "format": PRESETS[name].title,
            "formats": PRESETS[name].family.group,
            "bits": PRESETS[name].format.bits,
            "validation": tuned[name].values["validation_accuracy"],
            "test accuracy": untrained(r.and_further, name),
            "named": PRESETS[name].title if name in LABELLED else None,
        }
        for name in planned_formats(r)
    ]
    return Chart(
        rows,
        x=doubling("bits", label="bits per value"),
        y=percent("test accuracy"),
        marks=[
            level(fp32(r.and_further), "FP32"),
            points("test accuracy", by="formats", text="named"),
        ],
        beside=curves(r),
    )


LABELLED_ZEROS = ("log(4)", "log(8)", "fixed(8,4)")


@page.chart
def zeros(r: Records) -> Chart:
    """Validation accuracy against weights rounded to zero, by format; placed ones unplaced, too."""
    rows: list[Row] = []
    for name, record in singles(r.tuning).items():
        states = {"": record.values, " as it comes": record.values.get("as it comes")}
        rows += [
            {
                "format": PRESETS[name].title + state,
                "formats": PRESETS[name].family.group,
                "zeroed": values["weight_zeroed"],
                "validation accuracy": values["validation_accuracy"],
                "named": PRESETS[name].title + state if name in LABELLED_ZEROS else None,
            }
            for state, values in states.items()
            if values
        ]
    full = r.tuning.single(part="fp32").values["validation_accuracy"]
    return Chart(
        rows,
        x=percent("weights rounded to zero", column="zeroed"),
        y=percent("validation accuracy"),
        marks=[level(full, "FP32"), points("validation accuracy", by="formats", text="named")],
        beside=curves(r),
    )


@page.table
def every_format(r: Records) -> Sequence[Row]:
    """A row for each format, the narrow ones first: accuracy, loss, and answers changed by which
    operands take it."""
    first, every = r.where(seed=CONFIRMING_SEEDS[0]), r.and_further
    titles = {WEIGHTS: "W", WITH_BYTES: "W + A8"}
    rows: list[Row] = []
    for name in sorted(planned_formats(r), key=lambda name: PRESETS[name].format.bits):
        models = untrained(every, name)
        alone = {
            title: answers_changed(untrained(first, name, operands), fp32(first))
            for operands, title in titles.items()
        }
        rows.append(
            {
                "format": f"{PRESETS[name].title}, {in_bits(PRESETS[name].format.bits)}",
                "accuracy": models,
                "loss": models.loss,
                "changed, W + A": answers_changed(models, beside(fp32(every), models)),
                **alone,
            }
        )
    return rows


@page.table
def places(r: Records) -> Sequence[Row]:
    """The places of the formats without a scale, for weights and for inputs, and how chosen."""
    return [
        {
            "format": PRESETS[name].title,
            "counts": PRESETS[name].format.place_field.replace("_", " "),
            "weights, inputs": PlacedFormat.read(record.values["formats"]).at.replace(",", ", "),
            "chosen": "1.1's" if name in design.FIXED_POINTS else "by loss",
            "loss, validation": f"{record.values['validation_loss']:.3f}",
        }
        for name, record in singles(r.tuning).items()
        if name in design.PLACES
    ]


@page.table
def taken(r: Records) -> Sequence[Row]:
    """The format that the mix within the budget gives each kind of layer."""
    values = search_of(r, MIX).values
    plain = {"output": "attention's output"}
    return [
        {"layers": plain.get(role, role), "format": PRESETS[PlacedFormat.read(text).name].title}
        for role, text in zip(values["roles"], values["mix"]["formats"].split(), strict=True)
    ]


page.power(design.TRUTHS)
