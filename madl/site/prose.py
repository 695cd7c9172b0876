"""Sentences that a template holds and the data choose: `claim` blocks and numbers.

    {% claim "training_on_wins_back_accuracy" %}
      {% supported %}At four bits, training on wins back {{ effect }}.
      {% refuted %}At four bits, training on costs {{ effect }}.
      {% undecided %}At four bits, training on changes accuracy by less than {{ smallest }}, the
      smallest effect that these models can show.
    {% endclaim %}

Inside a block `effect` is the effect without its sign, from the least to the largest of all runs
where its times were measured again; `smallest` the smallest effect that could
have been decided, `agree` how many units came out on the hypothesis' side ("all five models").
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from jinja2 import nodes
from jinja2.ext import Extension
from jinja2.parser import Parser
from markupsafe import Markup

from madl.errors import MadlError
from madl.logbook.claims import Result
from madl.logbook.experiment import SAID
from madl.logbook.numbers import Number, magnitude
from madl.logbook.records import Record
from madl.logbook.stats import Unit, counted
from madl.site.markup import NOT_RUN, chip, html, inline, words
from madl.site.views import View

VERDICTS = ("supported", "refuted", "undecided")
WORDS = ("none", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
STATES = {
    "worded after": "The hypothesis or its test was worded when these records were known.",
    "known": "An earlier run of the same cases was known when this was worded.",
}
CASES = "cases.zip"  # beside what is made of them: records, a line of JSON each
MARKS = {"supported": "✓", "refuted": "✗", "undecided": "?", "not measured": "…"}


class Claims(Extension):
    """The `claim` tag; each of the three verdicts has its sentence, and the test chooses one."""

    tags = {"claim"}  # noqa: RUF012 (as jinja2 has it)

    def parse(self, parser: Parser) -> nodes.Node:
        line = next(parser.stream).lineno
        name = parser.parse_expression()
        said = name.value if isinstance(name, nodes.Const) else "?"
        ends = tuple(f"name:{one}" for one in (*VERDICTS, "endclaim"))
        parser.parse_statements(ends)
        bodies: dict[str, list[nodes.Node]] = {}
        while (verdict := parser.stream.current.value) != "endclaim":
            next(parser.stream)
            if verdict in bodies:
                parser.fail(f"claim {said!r} has two sentences for {verdict!r}; keep one", line)
            parser.stream.expect("block_end")
            bodies[verdict] = parser.subparse(ends)
        next(parser.stream)
        self._check(parser, line, str(said), bodies)
        value = nodes.Name("_judged", "load")
        found = nodes.Call(value, [name], [], None, None)
        judged = nodes.Name("_found", "store")
        node: list[nodes.Node] = [
            nodes.Output([_called("_pending_claim", name), _called("_mark", name), _SPACE]),
        ]
        for verdict in reversed(VERDICTS):
            is_it = nodes.Compare(
                nodes.Getattr(nodes.Name("_found", "load"), "verdict", "load"),
                [nodes.Operand("eq", nodes.Const(verdict))],
            )
            body = [*bodies[verdict], nodes.Output([_called("_mark", name), _SPACE])]
            node = [nodes.If(is_it, body, [], node)]
        names = [nodes.Name(one, "store") for one in SAID]
        values = [
            nodes.Getattr(nodes.Call(value, [name], [], None, None), one, "load") for one in SAID
        ]
        return nodes.With([judged, *names], [found, *values], node).set_lineno(line)

    def _check(
        self, parser: Parser, line: int, name: str, bodies: Mapping[str, list[nodes.Node]]
    ) -> None:
        missing = [one for one in VERDICTS if one not in bodies]
        if missing:
            parser.fail(f"claim {name!r} has no sentence for {', '.join(missing)}; write one", line)
        used = {one.name for body in bodies["undecided"] for one in body.find_all(nodes.Name)}
        if "smallest" not in used:
            parser.fail(
                f"claim {name!r}: the sentence for undecided says the smallest effect that could "
                "have been decided, {{ smallest }}",
                line,
            )


_SPACE = nodes.TemplateData(" ")  # before the next sentence


def _called(name: str, argument: nodes.Expr) -> nodes.Call:
    return nodes.Call(nodes.Name(name, "load"), [argument], [], None, None)


@dataclass(frozen=True)
class Spoken:
    """A result as the sentences of a `claim` block see it."""

    result: Result
    again: Sequence[float] = ()  # effects of further runs

    @property
    def verdict(self) -> str | None:
        return self.result.verdict

    @property
    def effect(self) -> str:
        """Without its sign, in its unit; a ratio below one as how many times it is less."""
        if self.result.contrast is None:
            return ""
        made = self.result.comparison
        runs = [made.effect, *self.again]
        low, high = sorted([min(runs), max(runs)], key=abs)
        ends = (low, high) if low * high > 0 else (made.effect,)
        return span([abs(end) for end in ends], made.unit)

    @property
    def smallest(self) -> str:
        if self.result.contrast is None:
            return ""
        made = self.result.comparison
        text = magnitude(self.result.smallest, made.unit)
        return f"a factor of {_bare(text)}" if made.unit is Unit.TIMES else text

    @property
    def agree(self) -> str:
        return agreeing(self.result)


def _again(view: View, name: str) -> Sequence[float]:
    """The effects of a claim's further runs."""
    return view.again[name]["effects"] if name in view.again else ()


def agreeing(result: Result) -> str:
    """How many units lie on the side of the hypothesis: "all five models", "three of five"."""
    if result.contrast is None:
        return ""
    made = result.comparison
    n, k = len(made.by_unit), result.agree
    noun = made.population if n == made.units else "models"  # sentences are of models
    if n < 2:
        return "one model" if noun == "models" else ""
    if k == n:
        return f"{'both' if n == 2 else f'all {in_words(n)}'} {noun}"
    if k == 0:
        return f"none of {in_words(n)} {noun}"
    return f"{in_words(k)} of {in_words(n)} {noun}"


def span(ends: Sequence[float], unit: Unit, *, more: int = 0) -> str:
    """From the first to the last of these, once where they read alike: "1.4 to 1.9 ×"."""
    *others, last = dict.fromkeys(magnitude(end, unit, more=more) for end in ends)
    return " to ".join([*map(_bare, others), last])


def _bare(text: str) -> str:
    """Without its unit."""
    return text.partition("\u00a0")[0]


def in_words(n: int) -> str:
    return WORDS[n] if n < len(WORDS) else str(n)


@dataclass(frozen=True)
class Printed:
    """A number as a template prints it: a link to its records that says interval and n."""

    number: Number | None  # None where a record is missing
    folder: str

    def __html__(self) -> str:
        return self._as("text")

    def __str__(self) -> str:
        return self._as("text")

    @property
    def precise(self) -> Markup:
        """With one more digit."""
        return self._as("precise")

    @property
    def plain(self) -> str:
        """Without a link, for alternative texts."""
        return self.number.text if self.number else NOT_RUN

    def _as(self, which: str) -> Markup:
        if (made := self.number) is None:
            return html('<span class="missing">({})</span>', NOT_RUN)
        text = made.precise if which == "precise" else made.text
        drawn = (made.interval, made.n) if made.interval or made.n else ("exact",)
        of = " · ".join(part for part in (made.precise, *drawn) if part)
        link = '<a class="n" href="{}/{}.html" data-n="{}">{}</a>'
        return html(link, self.folder, Markup(made.name), of, text)


def mark(result: Result) -> Markup:
    """The verdict as a small sign at the sentence's end, which leads to how sure it is."""
    assert result.verdict is not None
    kind, says = result.verdict.replace(" ", "-"), f"{result.verdict}: how sure"
    link = '<a class="mark {}" href="#claim-{}" data-n="{}" aria-label="{}">{}</a>'
    return html(link, kind, Markup(result.name), says, says, MARKS[result.verdict])


def sure(view: View, folder: str) -> str:
    """A row a primary claim: hypothesis, effect against zero and margin, verdict, each unit."""
    primary = [one for one in view.results.values() if one.primary]
    family = sum(one.contrast is not None for one in primary)
    rows = [_sure_row(one, _again(view, one.name), folder, family) for one in primary]
    return _register("register claims", ("Hypothesis", "Effect, its own interval", "Verdict"), rows)


def _register(look: str, heads: Sequence[str], rows: Sequence[Markup]) -> Markup:
    """A table of claims; nothing where there are none."""
    head = Markup().join(html("<th>{}</th>", one) for one in heads)
    table = '<div class="{}"><table><thead><tr>{}</tr></thead><tbody>{}</tbody></table></div>\n'
    return html(table, look, head, Markup().join(rows)) if rows else Markup()


def _sure_row(one: Result, again: Sequence[float], folder: str, family: int) -> Markup:
    row = '<tr id="claim-{}"><td>{}</td><td>{}</td><td>{}</td></tr>'
    name, said = Markup(one.name), inline(one.hypothesis)
    if one.contrast is None or one.verdict is None:
        return html(row, name, said, inline(one.why), chip("not measured"))
    made = one.comparison
    lines = [with_interval(one), agreeing(one).capitalize()]
    if made.these is not None:
        lines.append(f"these {made.population} alone: {_bracketed(made.these.interval, made.unit)}")
    if one.verdict == "undecided":
        lines.append(f"{Spoken(one).smallest} would be decided in four of five such studies")
    if again:
        ends = span([min(again), max(again)], made.unit, more=1)
        lines.append(f"{counted(len(again), 'more run')}: {ends}")
    if made.dropped:
        lines.append(f"{made.dropped} beside other work left out")
    where, of = '<a href="{}/{}.html">{}</a>, p {}{}', f" (Holm, of {family})" * (family > 1)
    lines.append(html(where, folder, name, inline(made.method), _p(one.p_adjusted), of))
    effect = Markup("<br>").join(map(words, filter(None, lines)))
    effect = html("{}<small>{}</small>", bar_of(one), effect)
    verdict = chip(one.verdict)
    if one.state != "registered":
        state = '{}<br><span title="{}">{}</span>'
        verdict = html(state, verdict, STATES.get(one.state, one.state), chip(one.state))
    return html(row, name, said, effect, verdict)


def secondary(results: Mapping[str, Result], folder: str) -> str:
    """The other comparisons: effect and interval, no verdict."""
    row = "<tr><td>{}</td><td>{}</td><td>{}</td></tr>"
    rows = [
        html(row, inline(one.hypothesis), _linked(one, folder), agreeing(one))
        for one in results.values()
        if not one.primary
    ]
    return _register("register", ("Comparison", "Effect", "On its side"), rows)


def _linked(one: Result, folder: str) -> Markup:
    if one.contrast is None:
        return inline(one.why)
    return html('<a href="{}/{}.html">{}</a>', folder, Markup(one.name), with_interval(one))


def with_interval(one: Result) -> str:
    """The effect with its sign and interval, in the reader's unit."""
    unit = one.comparison.unit
    sign = "+" if one.comparison.effect > 0 and unit is not Unit.TIMES else ""
    text = magnitude(one.comparison.effect, unit, more=1)
    return f"{sign}{text} {_bracketed(one.comparison.interval, unit)}"


def _bracketed(interval: tuple[float, float], unit: Unit) -> str:
    ends = (_bare(magnitude(value, unit, more=1)) for value in interval)
    return f"[{', '.join(ends)}]"


def _p(value: float | None) -> str:
    if value is None:
        return "unknown"
    return "< 0.001" if value < 0.001 else f"= {value:.2g}"


def bar_of(one: Result) -> Markup:
    """The interval as a bar against zero and the margins: which side of the line the data lie."""
    (low, high), effect = one.comparison.interval, one.comparison.effect
    marks = [0.0, *one.boundaries]
    left, right = min(low, effect, *marks), max(high, effect, *marks)
    room = (right - left) * 0.06 or 1.0
    left, right = left - room, right + room

    def x(value: float) -> str:
        return f"{320 * (value - left) / (right - left):.1f}"

    line = '<line class="{}" x1="{}" x2="{}" y1="{}" y2="{}"/>'
    lines = Markup().join(
        html(line, name, x(value), x(value), 3, 25)
        for name, value in [("zero", 0.0), *(("margin", b) for b in one.boundaries if b)]
    )
    return html(
        '<svg class="effect" viewBox="0 0 320 28" role="img" aria-label="{}">{}{}'
        '<circle cx="{}" cy="14" r="5"/></svg>',
        with_interval(one),
        lines,
        html(line, "interval", x(low), x(high), 14, 14),
        x(effect),
    )


def judged(view: View, template: str) -> Callable[[str], Spoken]:
    """What a `claim` block asks: a result that has a verdict.

    Raises:
        MadlError: there is no such claim, or it is a secondary comparison.
    """
    results = view.results

    def find(name: str) -> Spoken:
        if name not in results:
            known = ", ".join(one.name for one in results.values() if one.primary)
            raise MadlError(f"{template} names an unknown claim {name!r}; known: {known or 'none'}")
        if not results[name].primary:
            raise MadlError(
                f"{template} asks for a verdict of {name!r}, a secondary comparison; print it as a "
                "number, or declare @page.claim(primary=True)"
            )
        return Spoken(results[name], _again(view, name))

    return find


def records_behind(view: View) -> list[Record]:
    """The records that some number or claim of the page is made of."""
    linked = {key for twin in behind(view).values() for key in twin["records"]}
    return [record for record in view.stored if record.case.key in linked]


def behind(view: View) -> dict[str, dict[str, Any]]:
    """What a number or a claim is made of, by its name: its value, and the keys of its records."""
    numbers = {name: made for name, made in view.numbers.items() if made is not None}
    results = {n: one for n, one in view.results.items() if one.contrast is not None}
    return {
        name: {
            "value": made.precise,
            "interval": made.interval,
            "n": made.n,
            "records": [case.key for case in made.cases],
        }
        for name, made in numbers.items()
    } | {
        name: {
            "hypothesis": one.hypothesis,
            "verdict": one.verdict,
            "effect": with_interval(one),
            "p": one.p_adjusted,
            "records": [case.key for case in one.cases],
        }
        for name, one in results.items()
    }
