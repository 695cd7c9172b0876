"""The section *How sure*: each claim against what decides it, secondary comparisons, effects."""

from collections.abc import Mapping

from markupsafe import Markup

from madl.logbook.claims import Result
from madl.logbook.numbers import bracketed, singular
from madl.logbook.records import Row
from madl.logbook.stats import MODELS, SEEDS
from madl.logbook.values import Unit
from madl.running.views import View
from madl.site import intervals
from madl.site.markup import chip, html, inline, words
from madl.site.prose import agreement, signed, smallest_distance

EFFECTS = "effects.csv"  # the effects behind a page's claims, a line for each unit
STATES = {
    "worded after": "The hypothesis or its test was worded when these records were known.",
    "known": "An earlier run of the same cases was known when this was worded.",
}
OVERLAP = (
    ". Models train on draws of the same sentences, which overlap: intervals speak of other draws "
    "of these sentences, not of other data."
)


def claims_table(view: View, folder: str) -> Markup:
    """HTML of primary claims: verdict, hypothesis, and the effect drawn against what decides."""
    primary = [result for result in view.results.values() if result.primary]
    family = sum(result.contrast is not None for result in primary)
    rows = Markup().join(_claim_row(result, folder, family) for result in primary)
    if not rows or not unit_effects(view):
        return rows
    key = (
        '<p class="key">Shaded: where the hypothesis holds. Each small dot: <a href="{}/{}" '
        "download>{}</a>{}</p>\n"
    )
    populations = {r.comparison.population for r in primary if r.contrast}
    are_models = not populations.isdisjoint((MODELS, SEEDS))
    return rows + html(key, folder, EFFECTS, EFFECTS, OVERLAP * are_models)


def unit_effects(view: View) -> list[Row]:
    """A row for each unit of each claim: its effect, and how the claim is tested."""
    rows: list[Row] = []
    for result in view.results.values():
        if result.contrast is None or len(result.comparison.by_unit) < 2:
            continue
        comparison = result.comparison
        shown = comparison.unit.shown
        for number, effect in enumerate(comparison.by_unit, 1):
            rows.append(
                {
                    "claim": result.name,
                    "verdict": result.verdict or "secondary",
                    "level": result.level,
                    "tested against": f"{shown(result.boundary):.6g}",
                    "test": comparison.method,
                    "units": comparison.population,
                    "number": number,
                    f"effect ({comparison.unit})": round(shown(effect), 9),
                    "logarithm": round(effect, 9) if comparison.unit is Unit.TIMES else None,
                }
            )
    return rows


def _claim_row(result: Result, folder: str, family: int) -> Markup:
    """A claim of `claims_table`; `family`: how many claims Holm's method adjusts for."""
    row = '<div class="claim" id="claim-{}"><p class="hypothesis">{} {}</p>{}<p>{}</p></div>\n'
    name, hypothesis = Markup(result.name), inline(result.hypothesis)
    if result.contrast is None or result.verdict is None or result.p_adjusted is None:
        return html(row, name, chip("not measured"), hypothesis, "", inline(result.why))
    comparison = result.comparison
    facts = [f"{with_interval(result)}, the {100 * result.coverage:.3g} % interval"]
    if agree := agreement(result):
        facts.append(f"{agree} on the hypothesis’ side")
    if result.verdict == "undecided":
        far = smallest_distance(result)
        facts.append(f"a true effect {far} would be decided in four of five such studies")
    if comparison.unit is Unit.TIMES:
        noun = singular(comparison.population)
        facts.append(f"one more such {noun}: {bracketed(comparison.prediction, Unit.TIMES)}")
    if comparison.dropped:
        facts.append(f"{comparison.dropped} beside other work left out")
    holm = f" (Holm, of {family})" * (family > 1)
    test = '<a href="{}/{}.html">{}</a>, p {}{}'
    facts.append(html(test, folder, name, inline(comparison.method), _p(result.p_adjusted), holm))
    chips = chip(result.verdict)
    if (state := result.state) != "registered":
        chips += html(' <span title="{}">{}</span>', STATES[state], chip(state))
    told = Markup(" · ").join(map(words, filter(None, facts)))
    return html(row, name, chips, hypothesis, effect_drawn(result), told)


def secondary(results: Mapping[str, Result], folder: str) -> Markup:
    """An HTML table of the secondary comparisons: effect and interval, no verdict; "" of none."""
    table = (
        '<div class="register"><table><thead><tr><th>Comparison</th><th>Effect</th>'
        "<th>On its side</th></tr></thead><tbody>{}</tbody></table></div>\n"
    )
    row = '<tr><td>{}</td><td data-of="Effect">{}</td><td data-of="On its side">{}</td></tr>'
    rows = [
        html(row, inline(result.hypothesis), _linked_effect(result, folder), agreement(result))
        for result in results.values()
        if not result.primary
    ]
    return html(table, Markup().join(rows)) if rows else Markup()


def _linked_effect(result: Result, folder: str) -> Markup:
    """The effect with its interval, linked to its records; or why there is none."""
    if result.contrast is None:
        return inline(result.why)
    link = '<a href="{}/{}.html">{}</a>'
    return html(link, folder, Markup(result.name), with_interval(result))


def with_interval(result: Result) -> str:
    """The effect with its sign, and the interval that decides, in the reader's unit."""
    effect, unit = result.comparison.effect, result.comparison.unit
    return f"{signed(effect, unit, more=1)} {bracketed(result.interval, unit)}"


def _p(value: float) -> str:
    """A p value behind its sign: "= 0.03", "< 0.001"."""
    return "< 0.001" if value < 0.001 else f"= {value:.2g}"


def effect_drawn(result: Result) -> Markup:
    """The effect of a claim that was measured, with the interval that decides, drawn in HTML."""
    comparison = result.comparison
    return intervals.drawn(
        comparison.effect,
        result.interval,
        comparison.estimate().each,
        comparison.unit,
        words=with_interval(result),
        contrast=result.contrast,
    )


def evidence_drawn(view: View, name: str) -> Markup:
    """The number or claim of this name, drawn with its interval; "" where it is exact."""
    if (result := view.results.get(name)) and result.contrast:
        return effect_drawn(result)
    number = view.numbers.get(name)
    estimate = number.estimate if number else None
    if number is None or estimate is None or estimate.interval is None:
        return Markup()
    words = f"{number.precise} {number.interval}"
    return intervals.drawn(
        estimate.bare, estimate.interval, estimate.each, estimate.unit, words=words
    )
