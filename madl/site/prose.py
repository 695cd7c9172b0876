"""`claim` blocks and numbers: a template holds the sentences, and the data choose among them.

    {% claim "training_on_wins_back_accuracy" %}
      {% supported %}At four bits, training on wins back {{ effect }}.
      {% refuted %}At four bits, training on costs {{ effect }}.
      {% undecided %}At four bits, we could not tell whether training on helps; we could have
      detected {{ smallest }}.
      {% disagree %}Training on gives {{ here }} here, {{ elsewhere }} on {{ place }}.
    {% endclaim %}

Inside a block `effect` is the effect without its sign; `smallest` the smallest effect that could
have been decided; `agree` how many units came out on the hypothesis' side ("all five models"). The
fourth sentence replaces the verdict's if the effect on another machine or other data differs from
the page's: `here` and `elsewhere` are both effects with their signs, `place` is the other data's or
model's name or "another machine". `{% unmeasured %}` speaks where nothing was measured; without it
the hypothesis does.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from jinja2 import nodes
from jinja2.ext import Extension
from jinja2.parser import Parser
from markupsafe import Markup

from madl.errors import MadlError
from madl.logbook import charts
from madl.logbook.claims import Result
from madl.logbook.experiment import CLAIM_VARIABLES
from madl.logbook.numbers import Number, magnitude
from madl.logbook.values import Unit
from madl.running.pages import Page
from madl.running.views import NOT_RUN
from madl.site.disagreements import OtherRun, disagreement
from madl.site.markup import html, inline

VERDICTS = ("supported", "refuted", "undecided")
UNMEASURED, DISAGREE = "unmeasured", "disagree"
WORDS = ("none", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
MARKS = {  # of verdicts: decided, or not
    **dict.fromkeys(("supported", "refuted"), "✓ decided"),
    **{"undecided": "? undecided", "not measured": "… not measured"},
}
BLOCK = "_claim_block"  # the function `claim_block` in a template's context
_FIELDS = "_claim"  # its result, inside a block


class Claims(Extension):
    """Jinja's tag `claim`: it prints the sentence of the claim's verdict, one of the three in it.

    A claim that was not measured prints its hypothesis, or the body of `unmeasured`.
    """

    tags = {"claim"}  # noqa: RUF012 (as jinja2 has it)

    def parse(self, parser: Parser) -> nodes.Node:
        """The syntax tree of a `claim` block: an `if` for each verdict."""
        line = next(parser.stream).lineno
        argument = parser.parse_expression()
        name = str(argument.value) if isinstance(argument, nodes.Const) else "?"
        bodies = self._bodies(parser, name, line)
        end = nodes.Output([_field("mark"), nodes.TemplateData(" ")])  # before the next sentence
        chosen: list[nodes.Node] = [nodes.Output([_field("hypothesis")]), end]
        chosen = bodies.get(UNMEASURED, chosen)
        for verdict in VERDICTS:
            is_it = nodes.Compare(_field("verdict"), [nodes.Operand("eq", nodes.Const(verdict))])
            chosen = [nodes.If(is_it, [*bodies[verdict], end], [], chosen)]
        if DISAGREE in bodies:
            chosen = [nodes.If(_field("disagrees"), [*bodies[DISAGREE], end], [], chosen)]
        names: list[nodes.Node] = [nodes.Name(variable, "store") for variable in CLAIM_VARIABLES]
        inner = nodes.With(names, [_field(variable) for variable in CLAIM_VARIABLES], chosen)
        fields = nodes.Call(nodes.Name(BLOCK, "load"), [argument], [], None, None)
        return nodes.With([nodes.Name(_FIELDS, "store")], [fields], [inner]).set_lineno(line)

    def _bodies(self, parser: Parser, name: str, line: int) -> Mapping[str, list[nodes.Node]]:
        """The sentence of each verdict, as nodes of Jinja's syntax tree.

        Raises:
            TemplateSyntaxError: there are words before the first verdict, a verdict has no sentence
                or two, or undecided's does not say that `smallest` could have been detected.
        """
        ends = tuple(f"name:{tag}" for tag in (*VERDICTS, DISAGREE, UNMEASURED, "endclaim"))
        before = nodes.Output(parser.parse_statements(ends))
        if any(node.data.strip() for node in before.find_all(nodes.TemplateData)):
            parser.fail(
                f"claim {name!r} has words before its first verdict; move them above it", line
            )
        bodies: dict[str, list[nodes.Node]] = {}
        while (verdict := parser.stream.current.value) != "endclaim":
            next(parser.stream)
            if verdict in bodies:
                parser.fail(f"claim {name!r} has two sentences for {verdict!r}; keep one", line)
            parser.stream.expect("block_end")
            bodies[verdict] = parser.subparse(ends)
        next(parser.stream)
        if missing := ", ".join(verdict for verdict in VERDICTS if verdict not in bodies):
            parser.fail(f"claim {name!r} has no sentence for {missing}; write one", line)
        undecided = nodes.Output(bodies["undecided"])
        names = {node.name for node in undecided.find_all(nodes.Name)}
        text = " ".join(node.data for node in undecided.find_all(nodes.TemplateData))
        if "smallest" not in names or "detected" not in text:
            parser.fail(
                f"claim {name!r}: the sentence for undecided says the smallest effect that could "
                'have been detected, "we could have detected {{ smallest }}": it bounds nothing',
                line,
            )
        return bodies


def _field(key: str) -> nodes.Expr:
    """The expression by which a block reads a field of its claim."""
    return nodes.Getitem(nodes.Name(_FIELDS, "load"), nodes.Const(key), "load")


def claim_block(page: Page, template: str, name: str, *, marked: bool = True) -> dict[str, Any]:
    """The fields of a primary claim for its block: `CLAIM_VARIABLES`, its verdict and mark, its
    hypothesis, and whether its runs disagree.

    Raises:
        MadlError: there is no such claim, or it is a secondary comparison.
    """
    view = page.view
    result = view.results.get(name)
    if result is None:
        known = ", ".join(other.name for other in view.results.values() if other.primary)
        raise MadlError(f"{template} names an unknown claim {name!r}; known: {known or 'none'}")
    if not result.primary:
        raise MadlError(
            f"{template} asks for a verdict of {name!r}, a secondary comparison; print it as a "
            "number, or declare @page.claim(primary=True)"
        )
    fields: dict[str, Any] = dict.fromkeys(CLAIM_VARIABLES, "") | {
        "verdict": result.verdict,
        "disagrees": False,
        "mark": mark(result) if marked else "",
        "hypothesis": html("Not measured here yet: {} ", inline(result.hypothesis)),
    }
    if result.contrast is None:
        return fields
    effect, least = effect_size(result), smallest_effect(result)
    here = signed(result.comparison.effect, result.comparison.unit)
    fields |= {"effect": effect, "here": here, "smallest": least, "agree": agreement(result)}
    if run := disagreement(page, name):
        elsewhere = signed(run.other.comparison.effect, run.other.comparison.unit)
        fields |= {"disagrees": True, "elsewhere": elsewhere, "place": run.place}
        fields["mark"] = mark(result, run) if marked else ""
    return fields


def effect_size(result: Result) -> str:
    """The effect without its sign, as text: "1.9 ×", also where B is that much faster than A."""
    return magnitude(abs(result.comparison.effect), result.comparison.unit)


def smallest_effect(result: Result) -> str:
    """The smallest effect that could have been decided, beyond a margin if the hypothesis has one:
    "1.2 points", "a factor of 1.3"."""
    return _sized(_margin(result) + result.smallest, result.comparison.unit)


def smallest_distance(result: Result) -> str:
    """How far from what it is tested against an effect could have been decided: "0.2 points from
    the margin", or "of 1.2 points" if the hypothesis has none."""
    least = _sized(result.smallest, result.comparison.unit)
    return f"{least} from the margin" if _margin(result) else f"of {least}"


def _margin(result: Result) -> float:
    assert result.contrast is not None
    return abs(result.contrast.boundary)


def _sized(effect: float, unit: Unit) -> str:
    """An effect without its sign: "1.2 points", "a factor of 1.3"."""
    text = magnitude(effect, unit)
    return f"a factor of {text.split()[0]}" if unit is Unit.TIMES else text


def signed(effect: float, unit: Unit, *, more: int = 0) -> str:
    """An effect with its sign, as text: "+1.2 points", "1.9 ×"."""
    return "+" * (effect > 0 and unit is not Unit.TIMES) + magnitude(effect, unit, more=more)


def agreement(result: Result) -> str:
    """How many units lie on the hypothesis' side: "all five models", "three of five models"."""
    if result.contrast is None:
        return ""
    comparison = result.comparison
    n, k = len(comparison.by_unit), result.agree
    # sentences are of models
    noun = comparison.population if n == comparison.units else "models"
    if n < 2:
        return "one model" if noun == "models" else ""
    if k == n:
        return f"{'both' if n == 2 else f'all {in_words(n)}'} {noun}"
    return f"{in_words(k)} of {in_words(n)} {noun}"


def in_words(n: int) -> str:
    """A count in words, "three"; from ten on in digits."""
    return WORDS[n] if n < len(WORDS) else str(n)


@dataclass(frozen=True)
class NumberLink:
    """A number as a template prints it: a link to its records that says interval and n."""

    number: Number | None  # None where a record is missing
    folder: str

    def __html__(self) -> str:
        return self._link(self.number.text if self.number else "")

    __str__ = __html__

    @property
    def precise(self) -> Markup:
        """The link, its number with one more digit."""
        return self._link(self.number.precise if self.number else "")

    @property
    def signed(self) -> Markup:
        """The link, its number with a plus if it is above zero, as a change has it; of times, the
        ratio.

        A change that cannot be told from none has its interval beside it.
        """
        if (number := self.number) is None:
            return self._link("")
        is_ratio = number.estimate is not None and number.estimate.unit is Unit.TIMES
        is_something = any(digit in number.text for digit in "123456789")
        is_more = number.value > 0 and is_something and not is_ratio
        ends = charts.interval_of(number.estimate)
        none = 1.0 if is_ratio else 0.0
        is_open = ends is not None and ends.low <= none <= ends.high
        return self._link("+" * is_more + number.text + f" {number.interval}" * is_open)

    @property
    def plain(self) -> str:
        """The number's text without the link, for alternative texts."""
        return self.number.text if self.number else NOT_RUN

    def _link(self, text: str) -> Markup:
        if (number := self.number) is None:
            return html('<span class="missing">({})</span>', NOT_RUN)
        facts = [number.precise, number.interval, number.n]
        if not (number.interval or number.n):
            facts.append("exact")
        hover = " · ".join(filter(None, facts))
        link = '<a class="n" href="{}/{}.html" data-n="{}">{}</a>'
        return html(link, self.folder, Markup(number.name), hover, text)


def mark(result: Result, elsewhere: OtherRun | None = None) -> Markup:
    """Whether the claim was decided, or that it came out otherwise elsewhere, as a small label that
    leads to the claim's row in the table of claims.
    """
    assert result.verdict is not None
    kind, sign, here = result.verdict.replace(" ", "-"), MARKS[result.verdict], ""
    if elsewhere:
        is_size = elsewhere.other.verdict == result.verdict
        kind, sign, here = "disagree", "≠ size differs" if is_size else "≠ runs disagree", " here"
    says = f"{sign}: {result.verdict}{here}, how sure"
    link = '<a class="mark {}" href="#claim-{}" data-n="{}" aria-label="{}">{}</a>'
    return html(link, kind, Markup(result.name), says, says, sign)


def typed_numbers(text: str) -> list[str]:
    """The numbers typed in a template's prose: outside calls, comments, code, links, headings.

    A digit is allowed inside a name only: FP32, L1, MXINT8, ResNet-18.
    """
    text = re.sub(r"\{\{.*?\}\}|\{%.*?%\}|\{#.*?#\}", "", text, flags=re.DOTALL)
    text = re.sub(r"```.*?```|`[^`]*`|\]\([^)]*\)", "", text, flags=re.DOTALL)
    lines = "\n".join(line for line in text.splitlines() if not line.startswith("#"))
    lines = re.sub(r"\b[A-Z]\w*-\d+\b", "", lines)
    return re.findall(r"(?<![A-Za-z0-9])\d[\d.,]*%?", lines)
