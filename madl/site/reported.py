"""Figures and claims that others report, read from `experiments/reported.toml`."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import NoneType
from typing import Any, Literal, get_args

from madl.running.project import Project, read_toml, toml_entry

CLAIMS = "against"  # the key of the rows of *Reported against measured*


@dataclass(frozen=True, slots=True, kw_only=True)
class Reported:
    """Figures that others report, shown on a page with their source; no verdict uses them."""

    source: str
    workload: str
    rows: Sequence[Mapping[str, Any]]  # texts and numbers by column

    def __post_init__(self) -> None:
        _check_texts(self, "source", "workload")
        if not self.rows:
            raise ValueError("there are no rows")
        for row in self.rows:
            if not row or not isinstance(row, dict):
                raise ValueError(f"{row!r} is not a row")
            for column, value in row.items():
                if isinstance(value, bool) or not isinstance(value, str | int | float):
                    raise ValueError(f"{column!r} is {value!r}, neither a text nor a number")


Outcome = Literal["does not hold", "holds in part", "holds"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Against:
    """A claim that others report, beside the sentence of a page that measured it."""

    stem: str
    by: str  # who reports it
    reported: str
    outcome: Outcome
    measured: str  # a template's text, which names the page's numbers
    figure: str = ""  # a chart of the page that shows the claim
    theirs: float | None = None  # the number that is reported …
    ours: str = ""  # … and the name of the page's number that it is held against
    toy: str = ""  # a drawing of the page, with which home opens …
    invites: str = ""  # … and what a reader can do with it

    def __post_init__(self) -> None:
        _check_texts(self, "stem", "by", "reported", "measured")
        if self.outcome not in (known := get_args(Outcome)):
            raise ValueError(f"outcome is {self.outcome!r}, not one of {', '.join(known)}")
        if type(self.theirs) not in (float, int, NoneType):
            raise ValueError(f"theirs is {self.theirs!r}, not a number")


def _check_texts(entry: object, *names: str) -> None:
    """Raises: ValueError: one of these fields is not a text, or is empty."""
    for name in names:
        value: object = getattr(entry, name)
        if not isinstance(value, str) or not value.strip():
            raise ValueError(f"{name} is {value!r}, not a text")


def figures(project: Project) -> Mapping[str, Reported]:
    """Stem of a page → the figures that others report.

    Raises:
        MadlError: the file is no TOML, or an entry of it is not what one must be.
    """
    reported: dict[str, Reported] = {}
    for stem, entry in _tables(project).items():
        if stem != CLAIMS:
            shape = "a table has source and workload, both texts, and rows, a list of tables"
            with toml_entry(f"experiments/reported.toml, {stem}", shape):
                reported[stem] = Reported(**entry)
                project.check_stem(stem)
    return reported


def claims(project: Project) -> list[Against]:
    """Claims that others report, each beside what a page measured.

    Raises:
        MadlError: a row lacks a text, or names no experiment.
    """
    rows: list[Against] = []
    shape = "a row has stem, by, reported, outcome and measured, all texts"
    for place, entry in enumerate(_tables(project).get(CLAIMS, ())):
        with toml_entry(f"experiments/reported.toml, {CLAIMS}, row {place + 1}", shape):
            rows.append(Against(**entry))
            project.check_stem(rows[-1].stem)
    return rows


def _tables(project: Project) -> dict[str, Any]:
    path = project.experiments / "reported.toml"
    return read_toml(path) if path.exists() else {}
