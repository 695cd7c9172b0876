"""A finding in HTML: the sentence with its verdict, which opens its evidence in place.

Texts come from records, which other people's machines may have written: `inline` makes HTML of them
in which backticks are the only markup, and where Markdown is read, `literal` keeps it from seeing
any in that HTML.
"""

import html
import re
from collections.abc import Sequence

from madl.logbook.arms import Arm, TimedArm
from madl.logbook.claims import Evidence, Fact, Finding, shown_margin, with_unit
from madl.logbook.records import Case
from madl.logbook.stats import Unit, numbers

NOT_RUN = "not run here"
VERDICTS = ("refuted", "undecided", "not measured", "supported")  # as a checker wants to see them


def inline(text: str) -> str:
    """Text as HTML on one line: escaped, with `code` in backticks."""
    escaped = html.escape(" ".join(text.split()), quote=False)
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", escaped)


def literal(made: str) -> str:
    """HTML in whose text Markdown, and its tables and attribute lists, see nothing but text."""
    parts = re.split(r"(<[^>]*>)", made)
    parts[::2] = [re.sub(r"[\\`*_{}\[\]|!~^]", _entity, text) for text in parts[::2]]
    return "".join(parts)


def _entity(found: re.Match[str]) -> str:
    return f"&#{ord(found[0])};"


def chip(kind: str, label: str = "") -> str:
    """A verdict, or a status, as a small label; without a style sheet it is still a word."""
    return f'<span class="chip {kind.replace(" ", "-")}">{label or kind}</span>'


def finding(
    made: Finding,
    *,
    again: str = "",
    otherwise: tuple[str, str] | None = None,
    level: str = "",
    records: str = "records",
) -> str:
    """The sentence and its chip; opened, what decided it, with links to the records.

    `again` says what other runs of the same found, `otherwise` what other data or machines did
    (see `elsewhere`). `records` is the folder of the page's own.
    """
    rows = _rows(made, again, otherwise, records)
    body = "".join(f"<div><dt>{title}</dt><dd>{text}</dd></div>" for title, text in rows)
    bar = effect_bar(made.evidence) if made.evidence else ""
    # what the search leaves out ends at the first end of an element of its name: a section, no div
    return (
        f'<details class="finding {level}" id="claim-{made.name}">'
        f"<summary>{said(made, otherwise)}</summary>"
        f"<section data-search-exclude>{bar}<dl>{body}</dl></section></details>\n"
    )


def said(made: Finding | Fact, otherwise: tuple[str, str] | None = None) -> str:
    """The sentence and its chips, without the evidence: for lists of pages."""
    known = verdict(made)
    label = "hypothesis refuted" if known == "refuted" else known  # the sentence itself is true
    late = isinstance(made, Finding) and made.worded_after
    chips = [chip(known, label), *([chip("worded after these data")] if late else [])]
    chips += [chip("elsewhere", otherwise[0])] if otherwise else []
    return " ".join([inline(sentence(made)), *chips])


def verdict(made: Finding | Fact) -> str:
    """A finding's verdict; of a fact, that it is one."""
    return "fact" if isinstance(made, Fact) else made.verdict


def sentence(made: Finding | Fact) -> str:
    """What was found, or why it was not, with its full stop; code in backticks."""
    if isinstance(made, Finding) and made.verdict == "not measured":
        return f"Not measured ({made.text}): {made.hypothesis}"
    text = made.text.strip()
    return text if text.endswith(".") else f"{text}."


def _rows(
    made: Finding, again: str, otherwise: tuple[str, str] | None, records: str
) -> list[tuple[str, str]]:
    when = "" if made.worded_after else ", registered in these records"
    rows = [(f"Hypothesis{when}", inline(made.hypothesis))]
    evidence = made.evidence
    if evidence is None:
        return rows
    rows += [
        ("Effect", f"{html.escape(effect(evidence))}, against {against(evidence)}"),
        ("Of", html.escape(evidence.drawn)),
        ("Test", f"{html.escape(evidence.test)}; {p_values(evidence)}"),
    ]
    if evidence.needed:
        rows.append(("What would decide", html.escape(evidence.needed)))
    if again:
        rows.append(("Run again", html.escape(again)))
    if otherwise:
        rows.append((otherwise[0].capitalize(), html.escape(otherwise[1])))
    if made.worded_after:
        rows.append(
            (
                "Registered",
                "not with all of these records: the hypothesis or its test was worded later",
            )
        )
    linked = linked_cases(made)
    shown = "".join(f' <a href="{records}/{case.key}.json">{case.key}</a>' for case in linked)
    if shown:
        more = len(made.cases) - len(linked)
        rows.append(("Records", shown.strip() + (f" and {more} more" if more > 0 else "")))
    return rows


MAX_LINKS = 12


def linked_cases(made: Finding) -> Sequence[Case]:
    """Those of a finding's cases whose records its page links."""
    return made.cases[:MAX_LINKS]


def effect(evidence: Evidence) -> str:
    """The effect with its interval, in the reader's unit, at most three significant digits."""
    unit = evidence.unit
    sign = unit is not Unit.TIMES
    shown = [unit.shown(value) for value in (evidence.effect, *evidence.interval)]
    value, low, high = numbers(shown, sign=sign, places=2 if unit is Unit.POINTS else None)
    return f"{with_unit(value, unit)} [{low}, {high}]"


def against(evidence: Evidence) -> str:
    """What the effect is held against, in words."""
    unit, edges = evidence.unit, evidence.boundaries
    if len(edges) == 2:
        return f"±{shown_margin(edges[1], unit)}"
    if edges[0] == 0:
        return "no correlation" if unit is Unit.CORRELATION else "no difference"
    sign = "−" if edges[0] < 0 else ""
    return f"{sign}{shown_margin(abs(edges[0]), unit)}"


def p_values(evidence: Evidence) -> str:
    """The test's own p value, and after the correction for the page's other claims."""
    if evidence.is_blocked:
        return "not done, for what else ran meanwhile"
    own, family = _p(evidence.p), _p(evidence.p_adjusted)
    alone = "alone and" if own == family else f"alone, p {family}"
    return f"p {own} {alone} with the page's other claims (Holm)"


def _p(value: float | None) -> str:
    if value is None:
        return "unknown"
    return (
        "&lt; 0.001" if value < 0.001 else f"= {value:.3f}" if value < 0.0995 else f"= {value:.2f}"
    )


def effect_bar(evidence: Evidence) -> str:
    """The interval as a bar against zero and the margins: which side of the line the data lie."""
    low, high = evidence.interval
    marks = [0.0, *evidence.boundaries]
    left, right = min(low, evidence.effect, *marks), max(high, evidence.effect, *marks)
    room = (right - left) * 0.06 or 1.0
    left, right = left - room, right + room

    def x(value: float) -> str:
        return f"{320 * (value - left) / (right - left):.1f}"

    lines = "".join(
        f'<line class="{name}" x1="{x(value)}" x2="{x(value)}" y1="3" y2="25"/>'
        for name, value in [("zero", 0.0), *(("margin", b) for b in evidence.boundaries if b)]
    )
    return (
        '<svg class="effect" viewBox="0 0 320 28" role="img" aria-label="'
        f'{html.escape(f"effect {effect(evidence)}", quote=True)}">{lines}'
        f'<line class="interval" x1="{x(low)}" x2="{x(high)}" y1="14" y2="14"/>'
        f'<circle cx="{x(evidence.effect)}" cy="14" r="5"/></svg>'
    )


def effect_figure(evidence: Evidence, sides: tuple[Arm | TimedArm, Arm | TimedArm] | None) -> str:
    """The effect bar between the names of what was compared, A against B, and how to read it."""
    for_it, against_it = "larger", "smaller"
    if sides is not None:
        better = "faster" if evidence.unit is Unit.TIMES else "better"
        for_it, against_it = (f"{better}: {inline(side.label.rstrip(','))}" for side in sides)
    dashed = f"; dashed: {html.escape(against(evidence))}" if any(evidence.boundaries) else ""
    return (
        f'<figure class="compared"><p><span>← {against_it}</span> <span>{for_it} →</span></p>'
        f"{effect_bar(evidence)}<figcaption>{html.escape(effect(evidence))}; upright line: no "
        f"difference{dashed}</figcaption></figure>"
    )


def fact(made: Fact) -> str:
    """A fact, and of how many it speaks."""
    of = f' <span class="of">({inline(made.of)})</span>' if made.of else ""
    return f'<p class="fact">{inline(sentence(made))}{of}</p>\n'


def register(findings: Sequence[Finding]) -> str:
    """Every claim of a page in a table: hypothesis, verdict, effect; what is doubtful first."""
    ordered = sorted(findings, key=lambda f: VERDICTS.index(f.verdict))
    doubtful = [f for f in ordered if f.verdict != "supported"]
    parts: list[str] = []
    if doubtful:
        parts.append(f'<div class="register claims">{_register_table(doubtful)}</div>\n')
    supported = [f for f in ordered if f.verdict == "supported"]
    if supported:
        noun = "claim" if len(supported) == 1 else "claims"
        parts.append(
            f'<details class="register claims"><summary>{len(supported)} supported {noun}</summary>'
            f"{_register_table(supported)}</details>\n"
        )
    return "\n".join(parts)


def _register_table(findings: Sequence[Finding]) -> str:
    rows = "".join(_register_row(one) for one in findings)
    head = "<th>Verdict</th><th>Hypothesis</th><th>Effect</th><th>p (Holm)</th>"
    return f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"


def _register_row(made: Finding) -> str:
    evidence = made.evidence
    shown = html.escape(effect(evidence)) if evidence else "–"
    if evidence and evidence.part:  # which of several comparisons this is
        shown += f"<br><small>{html.escape(evidence.part)}</small>"
    tested = evidence if evidence and not evidence.is_blocked else None
    p = _p(tested.p_adjusted).removeprefix("= ") if tested else "–"
    link = f'<a href="#claim-{made.name}">{inline(made.hypothesis)}</a>'
    needed = evidence.needed if evidence else ""
    needed = f"<br><small>{html.escape(needed)}</small>" if needed else ""
    return (
        f"<tr><td>{chip(made.verdict)}</td><td>{link}{needed}</td><td>{shown}</td><td>{p}</td></tr>"
    )
