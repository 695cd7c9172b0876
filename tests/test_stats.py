"""Comparisons: right error rates under the null, the stated power, agreement with references."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom, binomtest, nct, norm, t, ttest_1samp, ttest_ind, ttest_rel

from madl.logbook import power, stats
from madl.logbook.claims import contrast
from madl.logbook.values import Outcomes, Unit
from tests import nulls, synthetic
from tests.nulls import in_errors


def verdict(comparison, question=lambda one: one) -> str:
    """What a claim alone on its page would say of this comparison: by default, that A is better."""
    return nulls.verdict(question(contrast(comparison, [])))


def decided(comparison) -> bool:
    return verdict(comparison) != "undecided"


def two_models(rng, n, difference=0.0, discordant=0.1):
    made = synthetic.two_models(rng, n, difference=difference, discordant=discordant)
    return tuple(Outcomes(right, "x") for right in made)


def methods(rng, seeds, n, effect=0.0, seed_sd=0.4):
    """Correctness of two methods: examples of different difficulty, seeds that differ as models."""
    difficulty = rng.normal(1.5, 2.0, (seeds, n))
    results = []
    for shift in (0.0, effect):
        by_seed = rng.normal(shift, seed_sd, (seeds, 1))
        logits = difficulty + by_seed + rng.normal(0, 0.7, (seeds, n))
        correct = rng.random((seeds, n)) < 1 / (1 + np.exp(-logits))
        results.append([[Outcomes(row, f"fold {i}")] for i, row in enumerate(correct)])
    return results


def false_positives(decide, repeats=1500):
    return sum(decide(np.random.default_rng(i)) for i in range(repeats)) / repeats


def models(n, discordant):
    return lambda rng: stats.compare(*([[o]] for o in two_models(rng, n, discordant=discordant)))


def seeds(count, seed_sd):
    return lambda rng: stats.compare(*methods(rng, count, 400, seed_sd=seed_sd))


def losses(rng):
    """Without a rise; few sentences lose much, and models differ."""
    by_model, by_sentence = rng.normal(0, 0.05, (5, 1)), rng.exponential(1, (5, 300)) - 1
    change = by_model + by_sentence + rng.normal(0, 0.5, (5, 300))
    return stats.compare_values(
        change, np.zeros_like(change), unit=Unit.NATS, unit_name=stats.MODELS
    )


@pytest.mark.parametrize(
    ("made", "repeats", "scatter"),
    [
        *((models(*one), 1500, 0) for one in ((200, 0.05), (2000, 0.03), (2000, 0.1))),
        *(
            (seeds(*one), 1500, 0.01)
            for one in ((2, 0.4), (3, 0.05), (5, 0.0), (5, 0.4), (10, 0.4))
        ),
        (losses, 1500, 0.01),  # what so many draws scatter
    ],
)
def test_what_is_equal_is_called_different_in_at_most_5_percent(made, repeats, scatter):
    assert false_positives(lambda rng: decided(made(rng)), repeats) <= stats.ALPHA + scatter


def test_a_difference_between_methods_is_found_from_five_seeds_and_one_says_nothing():
    def decide(rng):
        a, b = methods(rng, 5, 2000, effect=0.6, seed_sd=0.1)
        return verdict(stats.compare(b, a)) == "supported"

    assert false_positives(decide, 200) > 0.9

    def decide(rng):
        a, b = methods(rng, 1, 2000, seed_sd=0.4)
        return decided(stats.compare(a, b))

    assert false_positives(decide, 300) > 0.2


def exact_power(effect, discordant, n):
    """Chance that McNemar's exact test decides a true difference of this size, on n examples."""
    total = 0.0
    for m in range(int(binom.ppf(1e-6, n, discordant)), int(binom.isf(1e-6, n, discordant)) + 1):
        reject = int(binom.ppf(stats.ALPHA / 2, m, 0.5))
        while reject >= 0 and 2 * binom.cdf(reject, m, 0.5) > stats.ALPHA:
            reject -= 1
        towards = (discordant + effect) / (2 * discordant)
        tails = binom.cdf(reject, m, towards) + binom.sf(m - reject - 1, m, towards)
        total += float(binom.pmf(m, n, discordant)) * float(tails)
    return total


def test_a_difference_of_a_given_size_is_found_as_often_as_the_exact_test_can():
    effect, discordant, n = 0.02, 0.06, 2000
    found = false_positives(
        lambda rng: (
            verdict(stats.compare(*([[o]] for o in two_models(rng, n, effect, discordant)[::-1])))
            == "supported"
        )
    )
    assert found == pytest.approx(exact_power(effect, discordant, n), abs=0.03)


@given(st.integers(0, 60), st.integers(0, 60), st.integers(120, 3000))
def test_the_interval_holds_the_effect_and_stays_in_bounds(only_a, only_b, n):
    low, high = stats.paired_interval(only_a, only_b, n)
    assert -1 <= low <= (only_a - only_b) / n <= high <= 1
    assert low < high


def test_the_interval_is_tangos_and_covers_as_often_as_it_says():
    low, high = stats.paired_interval(8, 2, 30)
    for bound in (low, high):
        z = _tango_score(8, 2, 30, bound)
        assert abs(z) == pytest.approx(1.95996, abs=1e-4)
    rng = np.random.default_rng(0)
    covered = 0
    for _ in range(1000):
        only_a, only_b, _rest = rng.multinomial(500, [0.03, 0.05, 0.92])
        low, high = stats.paired_interval(only_b, only_a, 500)
        covered += low <= 0.02 <= high
    assert covered / 1000 == pytest.approx(0.95, abs=0.02)


def _tango_score(b, c, n, delta):
    """Slow reference: the restricted maximum likelihood found by search, not by formula."""
    grid = np.linspace(1e-9, (1 - abs(delta)) / 2 + 1e-9, 400_001)
    q = grid + max(-delta, 0)  # P(only A)
    p = q + delta  # P(only B)
    with np.errstate(divide="ignore", invalid="ignore"):
        likelihood = b * np.log(p) + c * np.log(q) + (n - b - c) * np.log(1 - p - q)
    q = q[np.nanargmax(likelihood)]
    return (b - c - n * delta) / np.sqrt(n * (2 * q + delta - delta**2))


@given(st.integers(0, 200), st.integers(0, 200))
def test_zero_is_tested_by_mcnemars_exact_test_and_the_interval_agrees(only_a, only_b):
    total = only_a + only_b
    exact = binomtest(only_a, total).pvalue if total else 1.0
    score = 2 * norm.sf(abs(only_a - only_b) / total**0.5) if total else 1.0
    tails = stats.paired_tails(only_a, only_b, 1000, 0.0)
    assert min(1.0, 2 * min(tails)) == pytest.approx(max(exact, score))


def test_two_sides_on_the_margin_are_called_close_in_at_most_5_percent():
    def decide(rng):
        worse, better = two_models(rng, 2000, difference=0.03)
        made = stats.compare([[worse]], [[better]])
        return verdict(made, lambda one: one.no_worse(0.03)) == "supported"

    assert false_positives(decide, 800) <= stats.ALPHA + 0.01


@pytest.mark.parametrize(("a", "b"), [(0.79, 0.8), (0.52, 0.5), (0.82, 0.8), (0.5, 0.5)])
def test_effects_that_all_lie_on_the_boundary_decide_nothing(a, b):
    made = contrast(stats.paired_mean([a, a], [b, b], unit=Unit.POINTS, unit_name="models"), [])
    asked = replace(made, boundary=round(a - b, 2))
    assert asked.p_values() == (1.0, 1.0)
    assert asked.holds(a - b) == (a < b)  # a loss of just the margin is no worse than it


def test_samples_that_change_part_by_part_widen_the_interval():
    """Five places in memory, each with its own ratio: neighbouring samples are no new units."""
    rng = np.random.default_rng(0)
    ratios = np.repeat([1.00, 1.10, 1.05, 0.98, 1.12], 20)
    fast = 1 + 0.001 * rng.standard_normal(100)
    low, high = quiet([list(fast * ratios)], [list(fast)]).interval
    shuffled = rng.permutation(100)
    narrow = quiet([list((fast * ratios)[shuffled])], [list(fast[shuffled])]).interval
    assert high - low > 1.5 * (narrow.high - narrow.low)
    assert low < 0.0 < high


def quiet(baseline, candidate):
    return stats.ratio(baseline, candidate, contention=[0.0] * len(baseline))


@pytest.mark.parametrize("processes", [1, 5])
def test_the_interval_of_a_ratio_holds_the_truth_as_often_as_it_says(processes):
    rng = np.random.default_rng(1)
    held = 0
    for _ in range(300):
        place = np.repeat(rng.normal(np.log(1.2), 0.03, 5), 4)  # each part is elsewhere
        slow, fast = np.exp(place) * (1 + 0.01 * rng.standard_normal(20)), np.ones(20)
        samples = [list(part) for part in np.split(slow, processes)]
        low, high = quiet(samples, [list(part) for part in np.split(fast, processes)]).interval
        held += low <= np.log(1.2) <= high
    assert held >= 275


def test_a_ratio_of_interleaved_samples_cancels_drift_and_drops_a_contended_process():
    rng = np.random.default_rng(0)
    drift = np.linspace(1, 3, 60)
    slow, fast = drift * rng.normal(2, 0.02, 60), drift * rng.normal(1, 0.01, 60)
    made = quiet([list(slow)], [list(fast)])
    assert verdict(made) == "supported"
    assert np.exp(made.effect) == pytest.approx(2.0, abs=0.15)
    samples = list(np.random.default_rng(0).normal(1, 0.1, 40))
    assert verdict(quiet([samples], [samples])) == "undecided"
    contended = stats.ratio([*SLOW[:4], [9.0] * 20], FAST, contention=[0.0] * 4 + [0.9])
    assert contended.effect == quiet(SLOW[:4], FAST[:4]).effect


FAST = [list(1 + 0.01 * np.random.default_rng(i).standard_normal(20)) for i in range(5)]
SLOW = [[2 * sample for sample in one[::-1]] for one in FAST]


@pytest.mark.parametrize(
    ("contention", "units", "dropped", "blocked"),
    [
        ((0.0, 0.1, 0.0, 0.2, 0.0), 5, 0, ""),
        ((0.0, 0.5, 0.0, 0.9, 0.0), 3, 2, ""),
        ((0.0, 0.5, 0.5, 0.9, 0.0), 2, 3, ""),
        ((0.0, 0.5, 0.5, 0.9, 0.3), 5, 0, "contended"),
        ((0.0, None, 0.5, 0.0, 0.0), 5, 0, "unknown load"),
        ((0.0,), 5, 0, ""),  # parts of the one process that there is
        ((0.5,), 5, 0, "contended"),
    ],
)
def test_contended_processes_are_dropped_one_by_one(contention, units, dropped, blocked):
    count = len(contention)
    made = stats.ratio(SLOW[:count], FAST[:count], contention=contention)
    assert (made.units, made.dropped, made.blocked) == (units, dropped, blocked)
    assert np.exp(made.effect) == pytest.approx(2, abs=0.05)
    assert verdict(made) == ("undecided" if blocked else "supported")
    assert verdict(made, lambda one: one.more_than(9)) == ("undecided" if blocked else "refuted")


def test_the_paired_mean_is_scipys_paired_t_test_and_units_that_all_agree_decide():
    rng = np.random.default_rng(0)
    a = rng.normal(0, 1, 300)
    b = a + rng.normal(0.1, 0.5, 300)
    found = stats.paired_mean(list(b), list(a), unit=Unit.NATS, unit_name="test sentences")
    expected = ttest_rel(b, a)
    assert 2 * min(found.tails(0.0)) == pytest.approx(expected.pvalue)
    assert tuple(found.interval) == pytest.approx(tuple(expected.confidence_interval()))
    assert verdict(found) == "supported"
    found = stats.paired_mean([1.0, 2.0, 3.0], [0.5, 1.5, 2.5], unit=Unit.NATS, unit_name="studies")
    assert verdict(found) == "supported"


def test_seeds_with_their_own_examples_are_compared_by_the_paired_t_test():
    sides = methods(np.random.default_rng(0), 5, 400, effect=1.0)
    made = stats.compare(*sides)
    shares = [[outcomes._correct.mean() for (outcomes,) in side] for side in sides]
    expected = ttest_rel(*shares)
    assert 2 * min(made.tails(0.0)) == pytest.approx(expected.pvalue)
    assert tuple(made.interval) == pytest.approx(tuple(expected.confidence_interval()))
    assert made.by_unit == pytest.approx(np.subtract(*shares))
    assert (made.population, made.units, made.method) == ("models", 5, "paired t")
    assert f"{stats.accuracy(sides[0])}" == f"{100 * np.mean(shares[0]):.1f} %"


@pytest.mark.parametrize("units", [3, 6, 10])
def test_one_more_unit_lies_in_the_prediction_interval_95_times_in_100(units):
    rng, held = np.random.default_rng(0), 0
    for _ in range(2000):
        *values, one_more = rng.normal(0.3, 0.1, units + 1)
        low, high = stats.mean(values, unit=Unit.TIMES, unit_name="sittings").prediction
        held += low <= one_more <= high
    assert held / 2000 == pytest.approx(0.95, abs=0.015)


# ---- power --------------------------------------------------------------------------------------


@given(st.floats(1.0, 60), st.sampled_from([0.05, 0.05 / 3, 0.005]), st.floats(0.5, 0.95))
def test_the_smallest_effect_that_can_be_decided_is_that_of_noncentral_t(freedom, level, chance):
    needed = power.errors_needed(freedom, level, chance)
    critical = t.isf(level / 2, freedom)
    assert nct.sf(critical, freedom, needed) == pytest.approx(chance, abs=1e-6)


@pytest.mark.parametrize("units", [3, 5])
@pytest.mark.parametrize("level", [stats.ALPHA, stats.ALPHA / 3])
def test_the_smallest_effect_is_decided_in_80_percent_of_draws(units, level):
    rng = np.random.default_rng(0)
    values = rng.normal(0, 1, units)
    values *= 0.02 / values.std(ddof=1)
    smallest = stats.mean(list(values), unit=Unit.NATS, unit_name="studies").smallest(level)
    drawn = rng.normal(smallest, 0.02, (8000, units))
    tested = ttest_1samp(drawn, 0.0, axis=1)
    found = ((tested.pvalue <= level) & (tested.statistic > 0)).mean()
    assert found == pytest.approx(0.8, abs=0.015)


def test_the_power_of_a_design_is_what_it_finds():
    scatter, units, effect = 0.02, 5, 0.03
    said = power.design_power(effect, scatter=scatter, units=units)

    def decide(rng):
        values = list(rng.normal(effect, scatter, units))
        return verdict(stats.mean(values, unit=Unit.POINTS, unit_name="models")) == "supported"

    assert false_positives(decide, 1500) == pytest.approx(said, abs=0.03)
    assert power.design_power(0.08, scatter=scatter, units=units) > 0.99
    with pytest.raises(ValueError, match="two or more units, which scatter"):
        power.design_power(0.08, scatter=0.0, units=units)


def test_power_rises_with_the_effect_and_with_many_units_it_is_the_normal_distribution_s():
    a, b = methods(np.random.default_rng(0), 5, 400)
    for made in (stats.compare(a, b), stats.compare(a[:1], b[:1])):
        distances = [in_errors(made, effect) for effect in (0.0, 0.01, 0.03, 0.1)]
        powers = [power.power_at(one, made.freedom, stats.ALPHA) for one in distances]
        assert powers == sorted(powers)
        assert powers[0] == pytest.approx(stats.ALPHA / 2)
        smallest = in_errors(made, made.smallest(0.01))
        assert power.power_at(smallest, made.freedom, 0.01) == pytest.approx(0.8)
    expected = norm.isf(0.025) + norm.ppf(0.8)
    assert power.errors_needed(np.inf) == pytest.approx(expected)
    assert power.errors_needed(9e3) == pytest.approx(expected, abs=1e-3)


# ---- groups -------------------------------------------------------------------------------------


def some(*correct: int) -> list[Outcomes]:
    """Models of a hundred examples, of which the first so many are right."""
    return [Outcomes(np.arange(100) < count, "x") for count in correct]


def test_the_models_of_a_group_are_averaged():
    a, b = [some(80, 60), some(70, 70)], [some(60, 60), some(60, 40)]
    made = stats.compare(a, b, unit_name="studies")
    assert made.effect == pytest.approx(0.15)  # 10 and 20 points
    assert made.by_unit == pytest.approx((0.1, 0.2))
    assert (made.population, made.units) == ("studies", 2)
    assert (stats.accuracy(a).n, stats.accuracy(a).seeds) == (100, 2)


def test_holm_multiplies_by_what_is_left_and_never_falls():
    adjusted = stats.holm({"a": 0.01, "b": 0.04, "c": 0.03})
    assert adjusted == pytest.approx({"a": 0.03, "b": 0.06, "c": 0.06})
    assert stats.holm({"a": 0.9, "b": 0.8}) == {"a": 1.0, "b": 1.0}


@given(st.lists(st.floats(0, 1), min_size=1, max_size=12))
def test_holm_keeps_the_order_and_only_raises(p_values):
    named = {str(i): p for i, p in enumerate(p_values)}
    adjusted = stats.holm(named)
    assert all(p <= adjusted[name] <= 1 for name, p in named.items())
    ordered = sorted(named, key=lambda name: named[name])
    assert [adjusted[n] for n in ordered] == sorted(adjusted[n] for n in ordered)


# ---- values of sentences ------------------------------------------------------------------------


def test_values_of_zero_and_one_are_compared_as_outcomes_are():
    a, b = methods(np.random.default_rng(0), 4, 200, effect=1.0)
    sides = [[[float(x) for x in one._correct] for (one,) in side] for side in (a, b)]
    made = stats.compare_values(*sides, unit=Unit.NATS, unit_name=stats.MODELS)
    plain = stats.compare(a, b)
    assert (made.effect, made.error, made.by_unit) == (plain.effect, plain.error, plain.by_unit)
    assert made.unit is Unit.NATS


def test_what_does_not_fit_together_is_not_compared():
    a, b = Outcomes(np.ones(100, bool), "x"), Outcomes(np.ones(100, bool), "y")
    of = {"unit": Unit.NATS, "unit_name": stats.MODELS}
    for compared, why in (
        (lambda: stats.compare([[a]], [[b]]), "different examples"),
        (lambda: stats.compare([[a]], [[a], [a]]), "need the same models on both sides"),
        (lambda: stats.compare([[a], [a]], [[b], [b]]), "different examples"),
        (lambda: stats.compare([[a, a], [a]], [[a], [a]], unit_name="studies"), "the same studies"),
        (lambda: stats.compare([], []), "need the same models"),
        (lambda: stats.compare_values([[1.0, 2.0]], [[1.0]], **of), "the same units and examples"),
    ):
        with pytest.raises(ValueError, match=why):
            compared()


def test_two_comparisons_differ_by_welchs_t():
    rng = np.random.default_rng(0)
    a, b = rng.normal(0.05, 0.01, 5), rng.normal(0.02, 0.03, 10)
    sides = [stats.mean(list(x), unit=Unit.POINTS, unit_name="models") for x in (a, b)]
    made, expected = stats.difference(*sides), ttest_ind(a, b, equal_var=False)
    assert 2 * min(made.tails(0.0)) == pytest.approx(expected.pvalue)
    assert tuple(made.interval) == pytest.approx(tuple(expected.confidence_interval()))
    exact = stats.difference(sides[0], stats.compare([[some(80)[0]]], [[some(70)[0]]]))
    assert sides[0].freedom < exact.freedom < np.inf
