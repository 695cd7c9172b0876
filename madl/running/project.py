"""The folders of one logbook, its experiments and its questions, found as files on disk."""

import ast
import contextlib
import graphlib
import importlib
import importlib.util
import re
import sys
import tomllib
import traceback
from collections.abc import Generator, Iterable, Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cached_property
from pathlib import Path
from types import NoneType
from typing import Any

from madl.errors import MadlError, WrongCommand
from madl.files import read_text
from madl.logbook.experiment import TUNING, Asked, Experiment, Plan, Question
from madl.logbook.records import Case, Pending, Unusable
from madl.logbook.shapes import shown
from madl.machine import sources

QUESTIONS = "experiments/questions.toml"
AGAINST = "against"  # in reported.toml: rows of their own page
RESTORE = "restore it from the repository"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reported:
    """Others' figures beside one page: shown with their source, they decide nothing."""

    source: str
    workload: str
    rows: tuple[Mapping[str, str | int | float], ...]

    def __post_init__(self) -> None:
        _check_texts(self, "source", "workload")
        if not self.rows:
            raise ValueError("there are no rows")


@dataclass(frozen=True, slots=True, kw_only=True)
class Against:
    """What hand-written answers report, beside what a page measured of it."""

    stem: str
    by: str  # who reports it
    reported: str
    measured: str  # a template's text, which names the page's numbers
    figure: str = ""  # a chart of the page; its first without one
    place: int = 0  # in the file

    def __post_init__(self) -> None:
        _check_texts(self, "stem", "by", "reported", "measured")


def _check_texts(entry: object, *names: str) -> None:
    """Raises: ValueError: which of these fields is no text, or an empty one."""
    for name in names:
        value: object = getattr(entry, name)
        if not isinstance(value, str) or not value.strip():
            raise ValueError(f"{name} is {value!r}, not a text")


@dataclass(frozen=True)
class Project:
    """The folders of one logbook; the product's own unless `root` says otherwise."""

    root: Path = Path(__file__).resolve().parents[2]

    @property
    def experiments(self) -> Path:
        return self.root / "experiments"

    @property
    def templates(self) -> Path:
        return self.root / "templates"

    @property
    def docs(self) -> Path:
        return self.root / "docs"

    @property
    def state(self) -> Path:
        return self.root / ".madl"

    @cached_property
    def site_name(self) -> str:
        """The site's name in `mkdocs.yml`; none without one."""
        path = self.root / "mkdocs.yml"
        text = path.read_text("utf-8") if path.is_file() else ""
        found = re.search(r"^site_name:\s*(.+?)\s*$", text, re.MULTILINE)
        return found[1].strip("\"'") if found else ""

    @cached_property
    def questions(self) -> tuple[Question, ...]:
        """The whole coursework, answered or not.

        Raises:
            MadlError: `questions.toml` is not TOML, or an entry is no question.
        """
        entries = _toml(self.experiments / "questions.toml")
        return tuple(_question(id, entry) for id, entry in entries.items())

    @cached_property
    def reported(self) -> Mapping[str, Reported]:
        """What others reported, by stem.

        Raises:
            MadlError: the file is no TOML, or an entry of it is not what one must be.
        """
        tables = {stem: one for stem, one in self._told.items() if stem != AGAINST}
        return {stem: self._reported(stem, entry) for stem, entry in tables.items()}

    @cached_property
    def against(self) -> tuple[Against, ...]:
        """What hand-written answers report, beside what was measured of it.

        Raises:
            MadlError: a row lacks a text, or names no experiment.
        """
        made: list[Against] = []
        for place, entry in enumerate(self._told.get(AGAINST, ())):
            try:
                made.append(Against(**entry, place=place))
                if made[-1].stem not in self._stems:
                    raise ValueError(f"there is no experiment {made[-1].stem!r}")
            except (TypeError, ValueError) as error:
                raise MadlError(
                    f"experiments/reported.toml, {AGAINST}, row {place + 1}: a row has stem, by, "
                    f"reported and measured, all texts ({error})"
                ) from error
        return tuple(made)

    @cached_property
    def _told(self) -> dict[str, Any]:
        path = self.experiments / "reported.toml"
        return _toml(path) if path.exists() else {}

    def _reported(self, stem: str, entry: Any) -> Reported:
        try:
            if stem not in self._stems:
                raise ValueError("there is no such experiment")
            fields: dict[str, Any] = {**entry, "rows": tuple(map(_row, entry["rows"]))}
            return Reported(**fields)
        except (KeyError, TypeError, ValueError) as error:
            raise MadlError(
                f"experiments/reported.toml, {stem}: a table has source and workload, both texts, "
                f"and rows, a list of tables ({error})"
            ) from error

    @cached_property
    def _loaded(self) -> dict[str, Experiment]:
        return {}

    def code(self, name: str) -> str:
        """The digest of the sources that could change a result of it, as they were first found."""
        if name not in self._codes:
            self._codes[name] = sources.digest(self.root, name)
        return self._codes[name]

    @cached_property
    def _codes(self) -> dict[str, str]:
        return {}

    @cached_property
    def _stems(self) -> list[str]:
        return sorted(path.parent.name for path in self.experiments.glob("[!_.]*/page.py"))

    def names(self) -> list[str]:
        """Every experiment on disk, each after what it needs."""
        return list(self._in_order)

    def pages(self) -> list[str]:
        """Those that have a page: all but the tuning of one."""
        return [name for name in self._in_order if name in self._stems]

    @cached_property
    def _in_order(self) -> tuple[str, ...]:
        return tuple(self.with_needs(self._stems))

    def with_needs(self, names: Iterable[str]) -> list[str]:
        """These experiments and all that they need, each after what it needs."""
        needs: dict[str, tuple[str, ...]] = {}
        left = list(names)
        while left:
            if (name := left.pop()) not in needs:
                needs[name] = self._needs(name)
                left += needs[name]
        ordered = {name: needs[name] for name in sorted(needs)}
        try:
            return list(graphlib.TopologicalSorter(ordered).static_order())
        except graphlib.CycleError as error:
            circle = " needs ".join(reversed(error.args[1]))
            raise MadlError(f"experiments need each other in a circle: {circle}") from error

    def _needs(self, name: str) -> tuple[str, ...]:
        needs = self.load(name).needs
        for needed in needs:
            if needed.removesuffix(TUNING) not in self._stems:
                raise MadlError(f"{page_of(name)} needs {needed!r}; {self._known(needed)}")
        return needs

    def _known(self, name: str) -> str:
        close = get_close_matches(name, self._stems, n=1)
        hint = f"did you mean {close[0]}? " if close else ""
        return f"{hint}known: {', '.join(self._stems) or 'none'}"

    def stem_of(self, name: str) -> str:
        """The experiment that answers the question of this number; any other name as it is."""
        if name in self._stems:
            return name
        return next((q.stem for q in self.questions if q.id == name), name)

    def load(self, name: str) -> Experiment:
        """One experiment by name, without the others.

        Raises:
            WrongCommand: there is no such experiment.
            MadlError: it cannot be loaded.
        """
        if name.removesuffix(TUNING) not in self._stems:
            numbers = ", ".join(q.id for q in self.questions if q.stem in self._stems)
            known = f"{self._known(name)}; or by question: {numbers or 'none'}"
            raise WrongCommand(f"unknown experiment {name!r}; {known}")
        if name not in self._loaded:
            page = self._load(stem := name.removesuffix(TUNING))
            self._loaded[stem] = page
            if tuned := page.tuned_by:
                self._loaded[f"{stem}{TUNING}"] = tuned
                page.needs = (*page.needs, f"{stem}{TUNING}")
        if name not in self._loaded:
            raise WrongCommand(f"{page_of(name)} declares no tuning")
        return self._loaded[name]

    def cases(self, name: str, plan: Plan) -> list[Case]:
        """The cases of an experiment under this plan.

        Raises:
            MadlError: its function that says so fails.
        """
        experiment = self.load(name)
        with self._named(name, "its cases: "):
            cases = experiment.planned(name, plan)
            for case in cases:
                params: Mapping[str, Any] = case.params
                for parameter, value in params.items():
                    if not isinstance(value, str | int | float | NoneType):
                        raise TypeError(f"the parameter {parameter} is {shown(value)}")
            return cases

    def why_unavailable(self, case: Case) -> str | None:
        """Why a case cannot run on this machine, or None.

        Raises:
            MadlError: the experiment's function that says so fails, or says no text.
        """
        experiment = self.load(case.experiment)
        with self._named(case.experiment, "why a case is unavailable: "):
            why: Any = experiment.why_unavailable(case.params)
            if why is None or isinstance(why, str):
                return why
            raise TypeError(f"{shown(why)} is neither a text nor None")

    def is_quick(self, case: Case) -> bool:
        """Whether the quick profile takes it.

        Raises:
            MadlError: the experiment's function that says so fails.
        """
        with self._named(case.experiment, "which cases are quick: "):
            return bool(self.load(case.experiment).is_quick(case.params))

    @contextlib.contextmanager
    def _named(self, stem: str, what: str = "") -> Generator[None]:
        """A failure in an experiment's file, in one line: where, and in what."""
        path = self.experiments / stem.removesuffix(TUNING) / "page.py"
        try:
            yield
        except (Pending, Unusable):
            raise
        except MadlError as error:
            raise MadlError(f"{page_of(stem)}: {error}") from error
        except (Exception, SystemExit) as error:
            frames = traceback.extract_tb(error.__traceback__)
            lines = [frame.lineno for frame in frames if frame.filename == str(path)]
            if isinstance(error, SyntaxError) and error.filename == str(path):
                lines = [error.lineno]
            where = f", line {lines[-1]}" if lines else ""
            said = " ".join(str(error).split())
            raise MadlError(
                f"{page_of(stem)}{where}: {what}{type(error).__name__}: {said}"
            ) from error

    def _load(self, stem: str) -> Experiment:
        path = self.experiments / stem / "page.py"
        found = importlib.import_module("experiments").__path__
        if str(self.experiments) not in found:  # the pages of another logbook
            found.insert(0, str(self.experiments))
        spec = importlib.util.spec_from_file_location(f"experiments.{stem}.page", path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[spec.name] = module
        self._check_imports(stem)
        try:
            with self._named(stem):
                spec.loader.exec_module(module)
        except MadlError:
            del sys.modules[spec.name]
            raise
        page = getattr(module, "page", None)
        if not isinstance(page, Experiment):
            raise MadlError(f"{page_of(stem)} declares no page; write `page = Experiment(title=…)`")
        _ = page.digests  # now: a file that is edited while its cases run has other lines
        return page

    def _check_imports(self, stem: str) -> None:
        """Raises: MadlError: a file of the page imports what is another page's own."""
        for path in sorted((self.experiments / stem).glob("*.py")):
            for module in _imported(path, stem):
                package, other, *inside = [*module.split("."), stem][:3]
                if package == "experiments" and other != stem and inside != ["records"]:
                    raise MadlError(
                        f"experiments/{stem}/{path.name} imports {module}; of another page its "
                        "`records` alone may be imported"
                    )


def _imported(path: Path, stem: str) -> Iterator[str]:
    """The modules, or names in modules, that a file of this page imports; none of one that is no
    Python, which is said where it is loaded.
    """
    try:
        tree = ast.parse(path.read_bytes())
    except (SyntaxError, ValueError, RecursionError):
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = ["experiments", stem][: 3 - node.level] if node.level else []
            module = [*above, *filter(None, [node.module])]
            yield from (".".join([*module, alias.name]) for alias in node.names)


def page_of(stem: str) -> str:
    """Where a page is written, for errors."""
    return f"experiments/{stem.removesuffix(TUNING)}/page.py"


def _toml(path: Path) -> dict[str, Any]:
    """Raises: MadlError: no such file, or no TOML."""
    try:
        return tomllib.loads(read_text(path, RESTORE))
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise MadlError(f"experiments/{path.name} is not TOML: {error}") from error


def _row(row: Any) -> Mapping[str, str | int | float]:
    """Raises: ValueError: it is not a table of texts and numbers."""
    if not isinstance(row, dict) or not row:
        raise ValueError(f"{row!r} is not a row")
    cells: dict[str, Any] = row
    for column, value in cells.items():
        if isinstance(value, bool) or not isinstance(value, str | int | float):
            raise ValueError(f"{column!r} is {value!r}, neither a text nor a number")
    return cells


def _question(id: str, entry: Any) -> Question:
    """Raises: MadlError: a field that a question does not have, or lacks."""
    try:
        fields: dict[str, Any] = {**entry}
        asked = _asked(id, fields.pop("asked", []))
        kinds = {name: bool if name == "beyond" else str for name in fields}
        if others := [name for name, kind in kinds.items() if type(fields[name]) is not kind]:
            what = "neither true nor false" if others[0] == "beyond" else "not a text"
            raise TypeError(f"{others[0]} is {shown(fields[others[0]])}, {what}")
        return Question(id=id, asked=asked, **fields)
    except TypeError as error:
        raise MadlError(
            f"{QUESTIONS}, {id}: a question has stem, title, text, asked ({error})"
        ) from error


def _asked(id: str, parts: Any) -> tuple[Asked, ...]:
    """Raises: MadlError: not a list of tables of parameters, each with a list of values."""
    found: list[Asked] = []
    for part in parts if isinstance(parts, list) else [parts]:  # pyright: ignore[reportUnknownVariableType]
        fields: dict[str, Any] = {**part} if isinstance(part, Mapping) else {}
        counts = fields.pop("counts", "combinations")
        if not fields or not all(isinstance(v, list) and v for v in fields.values()):
            raise MadlError(
                f"{QUESTIONS}, {id}: asked is a list of tables, each with lists of the values of "
                f'parameters, [{{ counts = "widths", width = [4, 8] }}]; got {part!r}'
            )
        values = {name: tuple(values) for name, values in fields.items()}
        found.append(Asked(counts=str(counts), values=values))
    return tuple(found)
