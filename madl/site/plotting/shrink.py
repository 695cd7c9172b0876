"""Matplotlib's SVG made small: what is seen, in CSS variables, and what each point says.

A drawing keeps its text as text and its ids as its own, so that many can stand in one page.

Units: points of the drawing, to one decimal: a tenth of a pixel on a screen.
"""

import math
import re
from collections.abc import Sequence
from itertools import groupby, pairwise, takewhile
from typing import Any
from xml.etree import ElementTree
from xml.etree.ElementTree import Element, SubElement

from madl.site.plotting import labels
from madl.site.plotting.axes import FONT, Size
from madl.site.plotting.layout import Plot
from madl.site.plotting.palette import MARKERS, VARIABLES, Style, filled, variable
from madl.site.plotting.pen import Tag


def shrunk(plot: Plot, *, prefix: str, size: Size) -> str:
    """The drawing as an `svg` element; every id in it starts with the prefix.

    Titles stand in the wide drawing only: the narrow one has the same points in the same order,
    which is enough for the script, and phones have no pointer that could rest on one. A bare
    drawing has no places to point at.
    """
    root = ElementTree.fromstring(plot.svg)
    for node in root.iter():
        node.tag = node.tag.split("}")[-1]
    small = _Small(prefix, plot.tags, titled=size.wide, bare=size.bare)
    box = " ".join(short(edge) for edge in root.attrib["viewBox"].split())
    svg = Element("svg", {"class": size.name, "viewBox": box, "font-size": f"{FONT:g}"})
    svg.set("fill", "none")  # what is filled says so itself
    svg.set("aria-hidden", "true")
    svg.extend(_grouped(_merged(small.drawn(root))))
    if len(small.defs):
        svg.insert(0, small.defs)
    return ElementTree.tostring(svg, encoding="unicode").replace(" />", "/>")


class _Small:
    """Takes what is seen out of Matplotlib's groups, with short ids of this figure's own."""

    def __init__(self, prefix: str, tags: dict[str, Tag], *, titled: bool, bare: bool) -> None:
        self.prefix, self.tags, self.titled, self.bare = prefix, tags, titled, bare
        self.defs = Element("defs")
        self.clips: dict[str, Element] = {}
        self.known: dict[str, str] = {}

    def define(self, key: str, node: Element) -> str:
        """The id of something that is used by reference, written once."""
        if key not in self.known:
            self.known[key] = f"{self.prefix}{len(self.known)}"
            node.set("id", self.known[key])
            self.defs.append(node)
        return self.known[key]

    def drawn(self, root: Element) -> list[Element]:
        self.clips = {f"url(#{clip.attrib['id']})": clip for clip in root.iter("clipPath")}
        return [made for child in root for made in self.walk(child, "")]

    def walk(self, node: Element, gid: str) -> list[Element]:
        """The drawn things under a node, flat; tagged ones in groups."""
        if node.tag in ("metadata", "defs"):
            return []
        gid = node.get("id", gid) if node.tag == "g" else gid
        if node.tag == "g" and gid in self.tags and node.get("id") == gid:
            return self.tagged(node, self.tags[gid])
        if node.tag == "g":
            return [made for child in node for made in self.walk(child, gid)]
        if node.tag == "text":
            return [] if self.bare else [_text(node, gid)]
        made = self.path(node)
        return [made] if made is not None else []

    def path(self, node: Element, *, clip: bool = False) -> Element | None:
        style = _style_of(node)
        if style.get("fill") in ("none", None) and "stroke" not in style:
            return None
        shade = style.pop("opacity", None)  # apart: all else is the same in all cells of a map
        made = Element("path", {"d": _path(node.get("d", "")), "style": _css(style)})
        if shade is not None:
            made.set("opacity", _pointed(f"{float(shade):.2g}"))
        url = node.get("clip-path", "")
        if clip and url:
            made.set("clip-path", f"url(#{self.clip(url)})")
        return made

    def clip(self, url: str) -> str:
        [rect] = self.clips[url]
        for name in ("x", "y", "width", "height"):
            rect.set(name, short(rect.attrib[name]))
        return self.define(url, self.clips[url])

    def tagged(self, node: Element, tag: Tag) -> list[Element]:
        series = str(tag.series)
        uses = list(node.iter("use"))
        if uses:
            return [] if self.bare and tag.style is None else [self.corners(uses, tag)]
        drawn = list(node.iter("path"))
        made = [m for m in (self.path(n, clip=True) for n in drawn) if m is not None]
        if self.bare:
            return made
        for one in made:
            one.set("data-s", series)
        for one, title in zip(made, tag.titles, strict=bool(tag.titles)):
            one.set("class", "pt")
            if self.titled:
                SubElement(one, "title").text = title
        return made

    def corners(self, uses: list[Element], tag: Tag) -> Element:
        """The points of a series as the corners of a path: drawn by its markers, or only felt.

        The page's script puts a place to point at on each corner, so all are steps from the one
        before. Their titles stand in `data-t`: what all begin with, and after each bar one's rest.
        """
        places = [(_tenths(use.attrib["x"]), _tenths(use.attrib["y"])) for use in uses]
        steps = (f"{_number(x - x0)} {_number(y - y0)}" for (x0, y0), (x, y) in pairwise(places))
        start = f"M{_number(places[0][0])} {_number(places[0][1])}"
        path = f"{start}l{' '.join(steps)}".rstrip("l").replace(" -", "-")
        made = Element("path", {"d": path})
        if tag.style is not None:
            made.set("style", f"marker:url(#{self.marker(tag.style)})")
        if self.bare:
            return made
        made.set("data-s", str(tag.series))
        if tag.titles:
            made.set("class", "pts")
        if tag.titles and self.titled:
            begins = _beginning(tag.titles)
            rest = [title.removeprefix(begins) for title in tag.titles]
            made.set("data-t", "|".join(one.replace("|", "¦") for one in [begins, *rest]))
        return made

    def marker(self, style: Style) -> str:
        shape = {"d": MARKERS[style.marker or "o"], "style": filled(style)}
        made = Element("marker", {"overflow": "visible", "markerUnits": "userSpaceOnUse"})
        SubElement(made, "path", shape)
        return self.define(str(style), made)


def _beginning(titles: Sequence[str]) -> str:
    """The words that all titles begin with, in whole words; written once for all of them."""
    if len(titles) < 2:
        return ""
    alike = takewhile(lambda letters: len(set(letters)) == 1, zip(*titles))
    same = "".join(letters[0] for letters in alike)
    return same[: same.rfind(" ") + 1]


NUMBER = re.compile(r"-?\d*\.?\d+(?:e-?\d+)?")


def short(text: str) -> str:
    """Coordinates with one decimal, paths with no more blanks than they need."""
    rounded = NUMBER.sub(lambda found: _number(float(found[0])), text)
    return re.sub(r"\s*([A-Za-z])\s*", r"\1", " ".join(rounded.split())).replace(" -", "-")


def _tenths(text: str) -> float:
    return round(float(text), 1)


def _number(value: float) -> str:
    """With one decimal."""
    return _pointed(f"{round(value, 1) + 0.0:g}")


def _pointed(number: str) -> str:
    """Without a zero before the point."""
    return re.sub(r"^(-?)0\.", r"\1.", number)


def _path(d: str) -> str:
    """A path; one of straight lines as steps from point to point, without points on the way."""
    if re.search("[CQ]", d):
        return short(d)
    text = ""
    for run in d.split("M")[1:]:
        pairs = (pair.split() for pair in run.replace("z", "").split("L"))
        points = [(_tenths(x), _tenths(y)) for x, y in pairs]
        text += _steps(_straightened(points)) + ("z" if "z" in run else "")
    return text


def _straightened(points: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """Without the points that lie on the line from the one kept before to the one after."""
    kept, between = points[:1], list[tuple[float, float]]()
    for here, after in pairwise(points[1:]):
        between.append(here)
        if not all(_is_on_the_way(point, kept[-1], after) for point in between):
            kept.append(here)
            between.clear()
    return kept + points[1:][-1:]


def _is_on_the_way(
    point: tuple[float, float], start: tuple[float, float], end: tuple[float, float]
) -> bool:
    (x, y), (x0, y0), (x1, y1) = point, start, end
    area = abs((x - x0) * (y1 - y0) - (x1 - x0) * (y - y0))
    forward = (x - x0) * (x1 - x) + (y - y0) * (y1 - y) >= 0
    return forward and area <= 0.1 * math.hypot(x1 - x0, y1 - y0)


def _steps(points: list[tuple[float, float]]) -> str:
    text = f"M{_number(points[0][0])} {_number(points[0][1])}"
    for (x0, y0), (x1, y1) in pairwise(points):
        dx, dy = _number(x1 - x0), _number(y1 - y0)
        text += f"h{dx}" if dy == "0" else f"v{dy}" if dx == "0" else f"l{dx} {dy}"
    return text.replace(" -", "-")


def _style_of(node: Element) -> dict[str, str]:
    pairs = (part.split(":", 1) for part in node.get("style", "").split(";") if ":" in part)
    return {name.strip(): value.strip() for name, value in pairs}


DROPPED = {"stroke-linejoin", "stroke-linecap", "stroke-dashoffset", "stroke-miterlimit"}


def _css(style: dict[str, str]) -> str:
    kept = {name: _pointed(value) for name, value in style.items() if name not in DROPPED}
    if kept.get("fill") == "none":
        del kept["fill"]
    if "stroke-dasharray" in kept:
        kept["stroke-dasharray"] = short(kept["stroke-dasharray"].replace(",", " "))
    return ";".join(f"{name}:{VARIABLES.get(value, value)}" for name, value in kept.items())


def _text(node: Element, gid: str) -> Element:
    style, transform = _style_of(node), node.get("transform", "")
    made = Element("text")
    moved = re.fullmatch(r"translate\((\S+) (\S+)\)", transform)
    if moved:
        anchor, x = labels.anchored(gid) or ("start", moved[1])
        place = (x, moved[2])
    else:
        anchor, place = style.get("text-anchor", "start"), (node.attrib["x"], node.attrib["y"])
    made.set("x", short(place[0]))
    made.set("y", short(place[1]))
    if anchor != "start":
        made.set("text-anchor", anchor)
    size = style.get("font-size", "").removesuffix("px")
    if size and float(size) != FONT:
        made.set("font-size", short(size))
    color = VARIABLES.get(style.get("fill", ""), "")
    if color and color != variable("ink"):
        made.set("style", f"fill:{color}")
    if transform.startswith("rotate") and not transform.startswith(("rotate(-0 ", "rotate(0 ")):
        made.set("transform", f"rotate({' '.join(short(v) for v in transform[7:-1].split())})")
    made.text = node.text
    return made


def _merged(nodes: list[Element]) -> list[Element]:
    """Lines that look the same and mean nothing apart, such as those of the grid, as one path."""
    found: list[Element] = []
    seen: dict[tuple[str | None, ...], Element] = {}
    for node in nodes:
        look = node.get("style"), node.get("opacity")
        if node.tag != "path" or "data-s" in node.attrib:
            found.append(node)
        elif look in seen:
            seen[look].set("d", seen[look].attrib["d"] + node.attrib["d"])
        else:
            seen[look] = node
            found.append(node)
    return found


ALIKE = {"text": ("text-anchor", "font-size"), "path": ("class", "data-s", "style", "clip-path")}


def _grouped(nodes: list[Element]) -> list[Element]:
    """Neighbours of the same look in a group that has it, so that it is written once."""
    found: list[Element] = []
    for look, run in groupby(nodes, key=_look):
        same = list(run)
        if len(same) < 2 or not look[1:]:
            found += same
            continue
        group = Element("g", dict(look[1:]))
        if group.get("class") == "pt":
            group.set("class", "pts")  # as the page's script calls what has points
        for one in same:
            for name, _ in look[1:]:
                del one.attrib[name]
        group.extend(same)
        found.append(group)
    return found


def _look(node: Element) -> tuple[Any, ...]:
    names = () if node.get("class") == "pts" else ALIKE.get(node.tag, ())
    return (node.tag, *((name, node.attrib[name]) for name in names if name in node.attrib))
