"""Sentences that a template holds and the data choose: `claim` blocks and numbers.

    {% claim "training_on_wins_back_accuracy" %}
      {% supported %}At four bits, training on wins back {{ effect }}.
      {% refuted %}At four bits, training on costs {{ effect }}.
      {% undecided %}At four bits, training on changes accuracy by less than {{ smallest }}, the
      smallest effect that these models can show.
    {% endclaim %}

Inside a block `effect` is the effect without its sign, `smallest` the smallest effect that could
have been decided, `agree` how many units came out on the hypothesis' side ("all five models").
"""

import html
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from jinja2 import nodes
from jinja2.ext import Extension
from jinja2.parser import Parser

from madl.errors import MadlError
from madl.logbook.claims import Result
from madl.logbook.experiment import SAID
from madl.logbook.numbers import Number, magnitude
from madl.logbook.stats import Unit
from madl.site.markup import NOT_RUN, chip, inline, literal
from madl.site.views import View

VERDICTS = ("supported", "refuted", "undecided")
WORDS = ("none", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
STATES = {
    "worded after": "The hypothesis or its test was worded when these records were known.",
    "known": "An earlier run of the same cases was known when this was worded.",
}
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
            nodes.Output([_called("_pending_claim", name), _called("_mark", name)]),
        ]
        for verdict in reversed(VERDICTS):
            is_it = nodes.Compare(
                nodes.Getattr(nodes.Name("_found", "load"), "verdict", "load"),
                [nodes.Operand("eq", nodes.Const(verdict))],
            )
            body = [*bodies[verdict], nodes.Output([_called("_mark", name)])]
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
        used = {
            found.name for body in bodies["undecided"] for found in body.find_all(nodes.Name)
        } | {one.name for one in bodies["undecided"] if isinstance(one, nodes.Name)}
        if "smallest" not in used:
            parser.fail(
                f"claim {name!r}: the sentence for undecided says the smallest effect that could "
                "have been decided, {{ smallest }}",
                line,
            )


def _called(name: str, argument: nodes.Expr) -> nodes.Call:
    return nodes.Call(nodes.Name(name, "load"), [argument], [], None, None)


@dataclass(frozen=True)
class Spoken:
    """A result as the sentences of a `claim` block see it."""

    result: Result

    @property
    def verdict(self) -> str | None:
        return self.result.verdict

    @property
    def effect(self) -> str:
        """Without its sign, in its unit; a ratio below one as how many times it is less."""
        if self.result.contrast is None:
            return ""
        made = self.result.comparison
        return magnitude(abs(made.effect), made.unit)

    @property
    def smallest(self) -> str:
        if self.result.contrast is None:
            return ""
        made = self.result.comparison
        text = magnitude(self.result.smallest, made.unit)
        bare = text.partition("\u00a0")[0]
        return f"a factor of {bare}" if made.unit is Unit.TIMES else text

    @property
    def agree(self) -> str:
        return agreeing(self.result)


def agreeing(result: Result) -> str:
    """How many units lie on the side of the hypothesis: "all five models", "three of five"."""
    if result.contrast is None:
        return ""
    n, k, noun = result.comparison.units, result.agree, result.comparison.population
    if n < 2:
        return "one model" if noun == "models" else ""
    if k == n:
        return f"{'both' if n == 2 else f'all {in_words(n)}'} {noun}"
    if k == 0:
        return f"none of {in_words(n)} {noun}"
    return f"{in_words(k)} of {in_words(n)} {noun}"


def in_words(n: int) -> str:
    return WORDS[n] if n < len(WORDS) else str(n)


@dataclass(frozen=True)
class Printed:
    """A number as a template prints it: a link to its records that says interval and n."""

    number: Number | None  # None where a record is missing
    folder: str

    def __html__(self) -> str:
        return str(self)

    def __str__(self) -> str:
        return self._as("text")

    @property
    def precise(self) -> str:
        """With one more digit."""
        return self._as("precise")

    @property
    def plain(self) -> str:
        """Without a link, for alternative texts."""
        return self.number.text if self.number else NOT_RUN

    def _as(self, which: str) -> str:
        if (made := self.number) is None:
            return f'<span class="missing">({NOT_RUN})</span>'
        text = made.precise if which == "precise" else made.text
        drawn = (made.interval, made.n) if made.interval or made.n else ("exact",)
        of = " · ".join(part for part in (made.precise, *drawn) if part)
        return (
            f'<a class="n" href="{self.folder}/{made.name}.json" data-n="{html.escape(of)}">'
            f"{literal(html.escape(text))}</a>"
        )


def mark(result: Result) -> str:
    """The verdict as a small sign at the sentence's end, which leads to how sure it is."""
    assert result.verdict is not None
    return (
        f'<a class="mark {result.verdict.replace(" ", "-")}" href="#claim-{result.name}" '
        f'data-n="{result.verdict}: how sure" aria-label="{result.verdict}: how sure">'
        f"{MARKS[result.verdict]}</a>"
    )


def sure(results: Mapping[str, Result], folder: str) -> str:
    """A row a primary claim: hypothesis, effect against zero and margin, verdict, each unit."""
    rows = "".join(_sure_row(one, folder) for one in results.values() if one.primary)
    if not rows:
        return ""
    head = "<th>Hypothesis</th><th>Effect</th><th>Verdict</th>"
    return (
        f'<div class="register claims"><table><thead><tr>{head}</tr></thead>'
        f"<tbody>{rows}</tbody></table></div>\n"
    )


def _sure_row(one: Result, folder: str) -> str:
    said = inline(one.hypothesis)
    if one.contrast is None or one.verdict is None:
        cells = (said, inline(one.why), chip("not measured"))
        return f'<tr id="claim-{one.name}">{"".join(f"<td>{cell}</td>" for cell in cells)}</tr>'
    made = one.comparison
    lines = [with_interval(one), agreeing(one).capitalize()]
    if made.these is not None:
        lines.append(f"these {made.population} alone: {_bracketed(made.these.interval, made.unit)}")
    if one.verdict == "undecided":
        lines.append(f"smallest effect that could have been decided: {Spoken(one).smallest}")
    if made.dropped:
        lines.append(f"{made.dropped} beside other work left out")
    where = f'<a href="{folder}/{one.name}.json">{inline(made.method)}</a>'
    lines.append(f"{where}, p {_p(one.p_adjusted)}")
    bar = bar_of(one)
    said = f'<span title="{STATES.get(one.state, one.state)}">{chip(one.state)}</span>'
    state = "" if one.state == "registered" else f"<br>{said}"
    return (
        f'<tr id="claim-{one.name}"><td>{said}</td>'
        f"<td>{bar}<small>{'<br>'.join(line for line in lines if line)}</small></td>"
        f"<td>{chip(one.verdict)}{state}</td></tr>"
    )


def secondary(results: Mapping[str, Result], folder: str) -> str:
    """The other comparisons: effect and interval, no verdict."""
    rows = [one for one in results.values() if not one.primary]
    if not rows:
        return ""
    cells = "".join(
        f"<tr><td>{inline(one.hypothesis)}</td><td>{_linked(one, folder)}</td>"
        f"<td>{agreeing(one)}</td></tr>"
        for one in rows
    )
    head = "<th>Comparison</th><th>Effect</th><th>On its side</th>"
    return (
        f'<div class="register"><table><thead><tr>{head}</tr></thead>'
        f"<tbody>{cells}</tbody></table></div>\n"
    )


def _linked(one: Result, folder: str) -> str:
    if one.contrast is None:
        return inline(one.why)
    return f'<a href="{folder}/{one.name}.json">{with_interval(one)}</a>'


def with_interval(one: Result) -> str:
    """The effect with its sign and interval, in the reader's unit."""
    unit = one.comparison.unit
    sign = "+" if one.comparison.effect > 0 and unit is not Unit.TIMES else ""
    text = magnitude(one.comparison.effect, unit, more=1)
    return f"{sign}{text} {_bracketed(one.comparison.interval, unit)}"


def _bracketed(interval: tuple[float, float], unit: Unit) -> str:
    ends = (re.sub(r"\u00a0.*", "", magnitude(value, unit, more=1)) for value in interval)
    return f"[{', '.join(ends)}]"


def _p(value: float | None) -> str:
    if value is None:
        return "unknown"
    return "&lt; 0.001" if value < 0.001 else f"= {value:.2g}"


def bar_of(one: Result) -> str:
    """The interval as a bar against zero and the margins: which side of the line the data lie."""
    (low, high), effect = one.comparison.interval, one.comparison.effect
    marks = [0.0, *one.boundaries]
    left, right = min(low, effect, *marks), max(high, effect, *marks)
    room = (right - left) * 0.06 or 1.0
    left, right = left - room, right + room

    def x(value: float) -> str:
        return f"{320 * (value - left) / (right - left):.1f}"

    lines = "".join(
        f'<line class="{name}" x1="{x(value)}" x2="{x(value)}" y1="3" y2="25"/>'
        for name, value in [("zero", 0.0), *(("margin", b) for b in one.boundaries if b)]
    )
    return (
        '<svg class="effect" viewBox="0 0 320 28" role="img" aria-label="'
        f'{html.escape(with_interval(one), quote=True)}">{lines}'
        f'<line class="interval" x1="{x(low)}" x2="{x(high)}" y1="14" y2="14"/>'
        f'<circle cx="{x(effect)}" cy="14" r="5"/></svg>'
    )


def judged(results: Mapping[str, Result], template: str) -> Callable[[str], Spoken]:
    """What a `claim` block asks: a result that has a verdict.

    Raises:
        MadlError: there is no such claim, or it is a secondary comparison.
    """

    def find(name: str) -> Spoken:
        if name not in results:
            known = ", ".join(one.name for one in results.values() if one.primary)
            raise MadlError(f"{template} names an unknown claim {name!r}; known: {known or 'none'}")
        if not results[name].primary:
            raise MadlError(
                f"{template} asks for a verdict of {name!r}, a secondary comparison; print it as a "
                "number, or declare @page.claim(primary=True)"
            )
        return Spoken(results[name])

    return find


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
