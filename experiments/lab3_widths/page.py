"""Question 3.1: a width and a fraction width for every layer, searched and by sensitivity.

Every Linear layer's weight, bias and input become fixed point; nothing is trained on. Within a
budget, the average of the widths on offer, a search looks for accuracy among what is asked for, and
"narrower": between two widths, set by hand, with the fraction widths that 1.1 chose at these.
Its rival is the best format for all layers on offer within it; narrower, of those around them too.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from experiments.lab3_widths import mixed_charts, mixed_facts, mixed_records
from experiments.lab3_widths.mixed_facts import bits, sampler_of
from experiments.lab3_widths.mixed_records import moved
from madl.logbook.arms import Arm, arm, best_of
from madl.logbook.charts import Chart
from madl.logbook.claims import Fact, Judged, compare
from madl.logbook.experiment import Context, Experiment, Plan
from madl.logbook.records import Params, Records, Row, Values
from madl.training import baseline, width_facts, widths
from madl.training.width_space import Space, kind, written

page = Experiment(
    title="Mixed precision: a width for every layer",
    needs=("baseline", "lab1_fractions", "lab1_quantization"),
)

ASKED, NARROWER = "as asked for", "narrower"
WIDE_SPACE = Space(widths=(8, 16, 32), fractions=(2, 4, 8))
NARROW, ENOUGH = widths.APART, 6  # bits of one format for all layers (1.1)
SAMPLERS = {"tpe": "TPE", "random": "Random"}
PROBE = 8  # bits: the one format that everybody compares with
ALIKE = "the best format for all layers"
FINEST, OTHERS = "16 8 8", "16 2 2, 8 8 8"  # of the asked; with less of one thing each
REPORTED, REVIEWS = (0.8792, 0.88), 25_000  # of one report, before and after; of IMDb's test split


@page.cases
def cases(plan: Plan) -> Iterable[Params]:
    choose, swept = plan.profile.choose, plan.records("lab1_fractions")
    known = {NARROW: NARROW, ENOUGH: choose(smoke=PROBE, quick=ENOUGH)}
    pairs = {end: widths.pair_of(widths.chosen(swept, "ptq", known[end])) for end in known}
    narrow, wide = ((end, *pair) for end, pair in pairs.items())
    spaces = {ASKED: WIDE_SPACE, NARROWER: Space.between(narrow, wide)}
    for seed in range(plan.profile.seeds):
        recipe = baseline.recipe_params(plan, seed)
        ends = {"narrow": written(narrow), "wide": written(wide)}
        path = {"space": NARROWER, **spaces[NARROWER].params(), **ends}
        yield {"part": "sensitivity", **path, "steps": choose(smoke=2, quick=6), **recipe}
        yield {"part": "blind", **path, "draws": choose(smoke=2, quick=5), **recipe}
        base = {**recipe, "trial_examples": choose(smoke=16, quick=96)}
        trials, studies, around = choose(smoke=(4, 2, False), quick=(40, 3, True))
        for name, space in spaces.items():
            offered = {"space": name, **space.params(), **base}
            for sampler in SAMPLERS:
                searched = {"sampler": sampler, "trials": trials, "studies": studies}
                yield {"part": "search", **searched, **offered}
            tested = "8 16" if name == ASKED else str(max(space.uniform())[0])
            everywhere = {"tested": tested, "around": around and name == NARROWER}
            yield {"part": "uniform", **everywhere, **offered}
        alone = {"space": ASKED, **WIDE_SPACE.params(), "base": FINEST, "others": OTHERS, **recipe}
        yield {"part": "alone", "sentences": choose(smoke=8, quick=64), **alone}


@page.run
def run(params: Params, ctx: Context) -> Values:
    from experiments.lab3_widths import mixed

    return mixed.run(params, ctx)


def searched(r: Records, space: str, sampler: str = "tpe") -> Arm:
    """Of the choices of several studies, the one that the whole validation split prefers."""
    return arm(r, f"{SAMPLERS[sampler]}, {space}", part="search", space=space, sampler=sampler)


def searches(r: Records) -> dict[str, dict[str, Arm]]:
    return {
        space: {title: searched(r, space, sampler) for sampler, title in SAMPLERS.items()}
        for space in (ASKED, NARROWER)
    }


def best_searches(r: Records) -> dict[str, Arm]:
    """In each space, of all samplers what validation prefers."""
    return {space: best_of(list(arms.values())) for space, arms in searches(r).items()}


def assembled(r: Records) -> Arm:
    return arm(r, "put together by sensitivity", part="sensitivity")


def blind(r: Records) -> Arm:
    """The same two formats in an order drawn at random, the best of several on validation."""
    return arm(r, "the same two formats in blind order", part="blind")


def on_trials(r: Records, space: str) -> Arm:
    """The formats for all layers, on a trial's sentences."""
    return arm(r, "one format", part="uniform", space=space)


def formats(r: Records) -> dict[str, Arm]:
    return {space: on_trials(r, space) for space in (ASKED, NARROWER)}


def uniform(r: Records, space: str) -> list[Arm]:
    """One format for all layers: at each tested width, what validation prefers."""
    a = on_trials(r, space)
    return [replace(a, within=("at", width)) for width in a.param("tested").split()]


# ---- claims and facts ---------------------------------------------------------------------------

for counted in (
    *(mixed_facts.spaces, mixed_facts.ends, mixed_facts.blind_orders, mixed_facts.kinds),
    *(mixed_facts.rival_formats, mixed_facts.coarse_heads, mixed_facts.furthest),
    mixed_facts.agreed,
):
    page.fact(counted)


@page.claim(headline=True)
def asked_search_pays(r: Records) -> Judged:
    """As asked for, what a search finds is better than the best format on offer for all layers."""
    return _search_pays(r, ASKED)


@page.claim
def narrow_search_pays(r: Records) -> Judged:
    """At five bits a weight, what a search finds is better than one format for all layers."""
    return _search_pays(r, NARROWER)


def _search_pays(r: Records, space: str) -> Judged:
    a = best_searches(r)[space]
    rival = "the best format on offer for all layers" if space == ASKED else ALIKE
    return _pays(a, best_of(uniform(r, space)), f"what {sampler_of(a)} finds", rival)


@page.claim
def assembly_pays(r: Records) -> Judged:
    """At five bits a weight, a model put together by sensitivity is better than one for all."""
    a = assembled(r)
    return _pays(a, best_of(uniform(r, NARROWER)), f"a model {a.label}")


@page.claim
def assembly_beats_search(r: Records) -> Judged:
    """At five bits, a model put together by sensitivity is better than what a search finds."""
    a, b = assembled(r), best_searches(r)[NARROWER]
    return _pays(a, b, f"a model {a.label}", f"what {sampler_of(b)} finds")


@page.claim(headline=True)
def order_pays(r: Records) -> Judged:
    """At five bits, the order by sensitivity is better than the best of several blind ones."""
    rival = f"that of {blind(r).param('draws')} with {blind(r).label} that validation prefers"
    return _pays(assembled(r), blind(r), f"a model {assembled(r).label}", rival)


def _pays(a: Arm, b: Arm, named: str, rival: str = ALIKE) -> Judged:
    budget = f"Within a budget of {mixed_facts.budget(a)} bits a weight"
    said = f"{budget}, {named} takes {bits(a)} bits and has {a} on test"
    other = f"{rival} at {bits(b)} bits, {b}"
    return compare(a, b).judge(
        supported=f"{said}: {a - b} above {mixed_facts.rival(b, other)}",
        refuted=f"{budget}, {named} has only {a} on test at {bits(a)} bits, {b - a} below "
        f"{mixed_facts.rival(b, other)}",
        undecided=f"{said}, against {mixed_facts.rival(b, other)}: {width_facts.apart(a, b)}, "
        "which is not decided",
    )


@page.claim
def early_layers_matter_more(r: Records) -> Judged:
    """A narrow layer in the first half of the blocks moves a loss further than in the second."""
    halves = mixed_records.by_half(assembled(r))
    here, there = "in the first half of the blocks", "in the second"
    return mixed_facts.further(assembled(r), *halves, here, there)


@page.claim
def one_kind_stands_out(r: Records) -> Judged:
    """The kind of layer that moves losses most on half of the sentences leads on the others too."""
    found = moved(assembled(r), kind)
    first, second, *_ = sorted(found, key=lambda name: -float(found[name][::2].mean()))
    here = f"where it is the {first}, on sentences that did not choose that"
    there = f"in the mean of the layers of the next kind, {second}"
    one, other = (found[name][1::2] for name in (first, second))
    return mixed_facts.further(assembled(r), one, other, here, there)


@page.fact
def narrow_layers(r: Records) -> Fact:
    found = best_searches(r)[NARROWER]
    others = {blind(r).label: blind(r), ALIKE: best_of(uniform(r, NARROWER))}
    others[f"what {sampler_of(found)} finds"] = found
    return mixed_facts.which_are_narrow(assembled(r), others)


@page.fact
def rivals(r: Records) -> Fact:
    return mixed_facts.rivals(searches(r), formats(r))


@page.fact
def over_trials(r: Records) -> Fact:
    return mixed_facts.over_trials(searches(r), formats(r))


@page.fact
def eight_bits(r: Records) -> Fact:
    return mixed_facts.eight_bits(widths.ptq(r, PROBE), uniform(r, ASKED)[0], baseline.fp32(r))


@page.fact
def evaluations(r: Records) -> Fact:
    return mixed_facts.evaluations(searches(r), best_searches(r), assembled(r))


@page.fact
def apart(r: Records) -> Fact:
    return mixed_facts.apart(*REPORTED, REVIEWS)


# ---- figures and tables -------------------------------------------------------------------------


@page.chart(
    caption="The best accuracy within the budget after each trial, once every study has one: a "
    "mean with its interval. Shaded: both draw the same at random. One format: for each model the "
    "best on offer for all layers, on a trial's sentences; the findings' rival: on all of them."
)
def curves(r: Records) -> Chart:
    rows: list[Row] = []
    for space in (ASKED, NARROWER):
        same = {"space": space, "one format": mixed_records.best_alike(on_trials(r, space))}
        rows += mixed_records.curve_rows(searches(r)[space], **same)
    return mixed_charts.best_so_far(rows, searched(r, ASKED), (*SAMPLERS.values(), "one format"))


@page.chart(
    caption="The bits of each layer, of the first trained model; as asked for, also how many of "
    "them lie behind the point. The head: pooler and classifier, one layer each."
)
def choices(r: Records) -> Chart:
    return mixed_charts.choices_map(*best_searches(r).values(), assembled(r))


@page.chart(
    caption="How far one layer alone moves a sentence's loss, up or down, in thousandths of a nat: "
    "the mean over validation sentences and trained models. As asked for, among layers of the "
    "finest format that the budget allows everywhere; narrower, a narrow layer among wide ones."
)
def sensitivity(r: Records) -> Chart:
    return mixed_charts.moved_map(arm(r, part="alone"), assembled(r))


@page.chart(
    caption="Narrower: how much each narrow layer among wide ones raises the mean loss of the "
    "trained models, with its interval over sentences. Where that holds zero, nothing shows that "
    "the layer does harm by itself."
)
def rises(r: Records) -> Chart:
    return mixed_records.rises(assembled(r))


@page.chart(
    caption="Accuracy on the whole validation split at the bits that a model takes, with its "
    "interval; all of the first trained model. By sensitivity: from right to left, more layers are "
    "narrow. Points: what a study chose, or an order drawn blindly."
)
def front(r: Records) -> Chart:
    wide = mixed_charts.wide_points(r, PROBE)
    shown = {
        "one format": [*wide, *on_trials(r, NARROWER).first.value("at").values()],
        "by sensitivity": assembled(r).first.value("path"),
        "blind order": blind(r).first.value("tried"),
        **{name: a.first.value("chosen") for name, a in searches(r)[NARROWER].items()},
    }
    return mixed_charts.front(shown, searched(r, NARROWER).value("sentences"), SAMPLERS.values())


@page.table
def agreements(r: Records) -> Sequence[Row]:
    return mixed_charts.agreements(searches(r))


@page.table
def models(r: Records) -> Sequence[Row]:
    """Every model that met the test split, here or on the page of 1.1."""
    named = [("", "FP32", baseline.fp32(r)), ("", "one format", widths.ptq(r, PROBE))]
    for space, arms in searches(r).items():
        named += [(space, name, a) for name, a in arms.items()]
        named += [(space, "one format", a) for a in uniform(r, space)]
        if space == ASKED:
            unasked = best_of(mixed_charts.wide_formats(r, WIDE_SPACE.budget))
            named.append(("", f"one format within {WIDE_SPACE.budget:.1f} bits", unasked))
    named += [(NARROWER, a.label, a) for a in (assembled(r), blind(r))]
    return [mixed_charts.model_row(*one) for one in named]
