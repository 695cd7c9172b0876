"""The folders of one logbook, its experiments and its questions, found as files on disk."""

import graphlib
import importlib.util
import sys
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cached_property
from pathlib import Path
from typing import Any

from madl.errors import MadlError
from madl.logbook.experiment import Asked, Experiment, Question


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
    def questions(self) -> tuple[Question, ...]:
        """The whole coursework, answered or not."""
        text = (self.experiments / "questions.toml").read_text("utf-8")
        return tuple(_question(id, entry) for id, entry in tomllib.loads(text).items())

    @cached_property
    def _loaded(self) -> dict[str, Experiment]:
        return {}

    @cached_property
    def _stems(self) -> list[str]:
        return sorted(path.stem for path in self.experiments.glob("[!_]*.py"))

    def names(self) -> list[str]:
        """Every experiment on disk, each after what it needs."""
        return list(self._in_order)

    @cached_property
    def _in_order(self) -> tuple[str, ...]:
        return tuple(self.with_needs(self._stems))

    def with_needs(self, names: Iterable[str]) -> list[str]:
        """These experiments and all that they need, each after what it needs."""
        needs: dict[str, tuple[str, ...]] = {}
        left = list(names)
        while left:
            if (name := left.pop()) not in needs:
                needs[name] = self.load(name).needs
                left += needs[name]
        ordered = {name: needs[name] for name in sorted(needs)}
        return list(graphlib.TopologicalSorter(ordered).static_order())

    def load(self, name: str) -> Experiment:
        """One experiment by name, without the others.

        Raises:
            MadlError: there is no such experiment, or it cannot be loaded.
        """
        if name not in self._stems:
            close = get_close_matches(name, self._stems, n=1)
            hint = f"did you mean {close[0]}? " if close else ""
            raise MadlError(
                f"unknown experiment {name!r}; {hint}known: {', '.join(self._stems) or 'none'}"
            )
        if name not in self._loaded:
            self._loaded[name] = self._load(name)
        return self._loaded[name]

    def _load(self, stem: str) -> Experiment:
        path = self.experiments / f"{stem}.py"
        spec = importlib.util.spec_from_file_location(f"experiments.{stem}", path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[spec.name] = module
        try:
            spec.loader.exec_module(module)
        except MadlError as error:
            raise MadlError(f"experiments/{stem}.py: {error}") from error
        page = getattr(module, "page", None)
        if not isinstance(page, Experiment):
            raise MadlError(
                f"experiments/{stem}.py declares no page; write `page = Experiment(title=…)`"
            )
        return page


def _question(id: str, entry: Mapping[str, Any]) -> Question:
    """Raises: MadlError: a field that a question does not have, or lacks."""
    fields = {**entry}
    parts: list[Mapping[str, Any]] = fields.pop("asked", [])
    asked = [
        Asked(
            counts=str(part.get("counts", "combinations")),
            values={key: tuple(values) for key, values in part.items() if key != "counts"},
        )
        for part in parts
    ]
    try:
        return Question(id=id, asked=tuple(asked), **fields)
    except TypeError as error:
        raise MadlError(
            f"experiments/questions.toml, {id}: a question has stem, title, text, asked ({error})"
        ) from error
