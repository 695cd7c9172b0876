"""The folders of one logbook, its experiments and its questions, found as files on disk."""

import ast
import contextlib
import graphlib
import importlib
import importlib.util
import os
import re
import sys
import tomllib
import traceback
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import cached_property
from pathlib import Path
from types import NoneType
from typing import Any

from madl.errors import MadlError, WrongCommand
from madl.files import LIBRARY, read_text
from madl.logbook.experiment import TUNING, Experiment, Plan, Question, Requirement
from madl.logbook.records import Case, Params, Pending, Store, Unusable
from madl.logbook.shapes import shown
from madl.machine import device, sources

QUESTIONS = "experiments/questions.toml"
RESTORE = "restore it from the repository"
SITE_PAGES = ("ledger", "index", "reported")  # of the whole site; no experiment may be called so


def line_in(path: Path, error: BaseException) -> int | None:
    """The line of a file in which an error happened, the innermost; None if it was elsewhere."""
    if isinstance(error, SyntaxError) and error.filename == str(path):
        return error.lineno
    frames = traceback.extract_tb(error.__traceback__)
    return next((f.lineno for f in reversed(frames) if f.filename == str(path)), None)


@dataclass(frozen=True)
class Project:
    """One logbook: its folders, experiments and questions; by default, this repository's."""

    root: Path = LIBRARY
    _loaded: dict[str, Experiment] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )
    _codes: dict[str, str] = field(default_factory=dict, init=False, repr=False, compare=False)

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

    @property
    def store(self) -> Store:
        """This machine's records and artifacts."""
        return Store(self.state)

    @cached_property
    def site_name(self) -> str:
        """The site's name in `mkdocs.yml`; empty without one."""
        return self._setting("site_name")

    @property
    def site_url(self) -> str:
        """Where the site will be served: what `mkdocs.yml` says, or `SITE_URL` if it asks for that;
        empty where neither does.
        """
        url = self._setting("site_url")
        return os.environ.get("SITE_URL", "") if url.startswith("!ENV") else url

    def _setting(self, name: str) -> str:
        """The text of a setting in `mkdocs.yml`; empty without one."""
        path = self.root / "mkdocs.yml"
        text = path.read_text("utf-8") if path.is_file() else ""
        match = re.search(rf"^{name}:\s*(.+?)\s*(?: #.*)?$", text, re.MULTILINE)
        return match[1].strip("\"'") if match else ""

    @cached_property
    def questions(self) -> tuple[Question, ...]:
        """All questions of the coursework, answered or not.

        Raises:
            MadlError: `questions.toml` is not TOML, or an entry is no question.
        """
        entries = read_toml(self.experiments / "questions.toml")
        return tuple(_question(id, entry) for id, entry in entries.items())

    def code(self, name: str) -> str:
        """The digest of the sources that can change an experiment's results, at its first use."""
        if name not in self._codes:
            self._codes[name] = sources.digest(self.root, name)
        return self._codes[name]

    @cached_property
    def _stems(self) -> list[str]:
        return sorted(path.parent.name for path in self.experiments.glob("[!_.]*/page.py"))

    def names(self) -> list[str]:
        """Every experiment on disk, each after what it needs."""
        return list(self._in_order)

    def pages(self) -> list[str]:
        """The experiments that have a page: all but those of tuning seeds."""
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
        """The experiments that this one needs. Raises: MadlError: one of them is not there."""
        needs = self.load(name).needs
        for needed in needs:
            if needed.removesuffix(TUNING) not in self._stems:
                raise MadlError(f"{page_of(name)} needs {needed!r}; {self._known_stems(needed)}")
        return needs

    def _known_stems(self, name: str) -> str:
        """All experiments' names, for an error; before them the one that is probably meant."""
        close = get_close_matches(name, self._stems, n=1)
        hint = f"did you mean {close[0]}? " if close else ""
        return f"{hint}known: {', '.join(self._stems) or 'none'}"

    def check_stem(self, stem: str) -> None:
        """Raises: ValueError: there is no such experiment."""
        if stem not in self._stems:
            raise ValueError(f"there is no experiment {stem!r}")

    def stem_of(self, name: str) -> str:
        """The experiment that answers the question of this id ("1.2"); any other name as it is."""
        if name in self._stems:
            return name
        return next((q.stem for q in self.questions if q.id == name), name)

    def load(self, name: str) -> Experiment:
        """The experiment of this name, read from its file once, without the others.

        Raises:
            WrongCommand: there is no such experiment.
            MadlError: it cannot be loaded.
        """
        if name.removesuffix(TUNING) not in self._stems:
            numbers = ", ".join(q.id for q in self.questions if q.stem in self._stems)
            known = f"{self._known_stems(name)}; or by question: {numbers or 'none'}"
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
            MadlError: the page's function `cases` fails.
        """
        experiment = self.load(name)
        with self._located_errors(name, "its cases: "):
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
            MadlError: the page's function `unavailable` fails, or does not give a text.
        """
        if missing := device.no_device(case.params):
            return missing
        experiment = self.load(case.experiment)
        with self._located_errors(case.experiment, "why a case is unavailable: "):
            why: Any = experiment.why_unavailable(case.params)
            if why is None or isinstance(why, str):
                return why
            raise TypeError(f"{shown(why)} is neither a text nor None")

    def is_quick(self, case: Case) -> bool:
        """Whether the quick profile takes this case.

        Raises:
            MadlError: the page's function `quick` fails.
        """
        with self._located_errors(case.experiment, "which cases are quick: "):
            return bool(self.load(case.experiment).is_quick(case.params))

    def runs_alone(self, case: Case) -> bool:
        """Whether a case measures time. Raises: MadlError: the page's function `timed` fails."""
        with self._located_errors(case.experiment, "which cases are timed: "):
            return bool(self.load(case.experiment).runs_alone(case.params))

    def required_by(self, name: str, params: Params) -> Sequence[str]:
        """Abilities that the model must have for a case of these parameters.

        Raises:
            MadlError: the page's function `requires` fails.
        """
        with self._located_errors(name, "what a case requires: "):
            return self.load(name).required_by(params)

    @contextlib.contextmanager
    def _located_errors(self, stem: str, subject: str = "") -> Generator[None]:
        """Turn a failure inside the block into one line: a MadlError with page, line and `subject`.

        `Pending` and `Unusable` pass as they are.
        """
        path = self.experiments / stem.removesuffix(TUNING) / "page.py"
        try:
            yield
        except (Pending, Unusable):
            raise
        except MadlError as error:
            raise MadlError(f"{page_of(stem)}: {error}") from error
        except (Exception, SystemExit) as error:
            line = line_in(path, error)
            where = f", line {line}" if line else ""
            problem = f"{type(error).__name__}: {' '.join(str(error).split())}"
            raise MadlError(f"{page_of(stem)}{where}: {subject}{problem}") from error

    def _load(self, stem: str) -> Experiment:
        path = self.experiments / stem / "page.py"
        if not re.fullmatch(r"\w+", stem):
            raise MadlError(f"experiments/{stem}: a page's name has letters, digits and _ alone")
        folders = importlib.import_module("experiments").__path__
        if str(self.experiments) not in folders:  # the pages of another logbook
            folders.insert(0, str(self.experiments))
        spec = importlib.util.spec_from_file_location(f"experiments.{stem}.page", path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        self._check_imports(stem)
        sys.modules[spec.name] = module
        try:
            with self._located_errors(stem):
                spec.loader.exec_module(module)
        except MadlError:
            del sys.modules[spec.name]
            raise
        page = getattr(module, "page", None)
        if not isinstance(page, Experiment):
            raise MadlError(f"{page_of(stem)} declares no page; write `page = Experiment()`")
        if path.with_name("study.py").is_file():
            page.study = f"experiments.{stem}.study"
        _ = page.digests  # now: a file that is edited while its cases run has other lines
        return page

    def _check_imports(self, stem: str) -> None:
        """Raises: MadlError: a file of the page imports of another page more than its `records`."""
        for path in sorted((self.experiments / stem).glob("*.py")):
            for module in _imported(path, stem):
                package, other, *inside = [*module.split("."), stem][:3]
                if package == "experiments" and other != stem and inside != ["records"]:
                    raise MadlError(
                        f"experiments/{stem}/{path.name} imports {module}; of another page its "
                        "`records` alone may be imported"
                    )


def _imported(path: Path, stem: str) -> Iterator[str]:
    """The modules, or names in modules, that a page's file imports; none if it is no Python."""
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
    """The path of a page's file, for errors."""
    return f"experiments/{stem.removesuffix(TUNING)}/page.py"


def read_toml(path: Path) -> dict[str, Any]:
    """The content of a TOML file. Raises: MadlError: there is none, or it is not TOML."""
    try:
        return tomllib.loads(read_text(path, RESTORE))
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise MadlError(f"experiments/{path.name} is not TOML: {error}") from error


@contextlib.contextmanager
def toml_entry(where: str, shape: str) -> Generator[None]:
    """Turn a failure inside the block into a MadlError: the entry there is not of this shape."""
    try:
        yield
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise MadlError(f"{where}: {shape} ({error})") from error


def _question(id: str, entry: Any) -> Question:
    """The question of an entry. Raises: MadlError: the entry has a wrong field, or lacks one."""
    with toml_entry(f"{QUESTIONS}, {id}", "a question has stem, title, text, asked"):
        fields: dict[str, Any] = {**entry}
        requirements = _requirements(id, fields.pop("asked", []))
        for name, value in fields.items():
            if type(value) is not (bool if name == "beyond" else str):
                wrong = "neither true nor false" if name == "beyond" else "not a text"
                raise TypeError(f"{name} is {shown(value)}, {wrong}")
        return Question(id=id, requirements=requirements, **fields)


def _requirements(id: str, parts: Any) -> tuple[Requirement, ...]:
    """The requirements in an entry's `asked`.

    Raises:
        MadlError: not a list of tables of parameters, each with a list of values.
    """
    requirements: list[Requirement] = []
    for part in parts if isinstance(parts, list) else [parts]:  # pyright: ignore[reportUnknownVariableType]
        fields: dict[str, Any] = {**part} if isinstance(part, Mapping) else {}
        counts = fields.pop("counts", "combinations")
        if not fields or not all(isinstance(v, list) and v for v in fields.values()):
            raise MadlError(
                f"{QUESTIONS}, {id}: asked is a list of tables, each with lists of the values of "
                f'parameters, [{{ counts = "widths", width = [4, 8] }}]; got {part!r}'
            )
        values = {name: tuple(values) for name, values in fields.items()}
        requirements.append(Requirement(counts=str(counts), values=values))
    return tuple(requirements)
