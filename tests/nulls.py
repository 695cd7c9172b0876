"""Data on which a claim must lose, win, or say nothing: made from its own records.

A claim that is supported by records without an effect is no claim. The **null** of a record set
exchanges the two sides of whole units: seed by seed the models of A and B (of one seed alone, its
sentences), process by process the times of the variants that took turns. So models, studies and
sittings scatter as they did. A claim with a margin gets, on top, a worse side that is worse by the
margin. **Planted** data have a clear effect, in the claim's favour or against it. What claims
choose by (validation) stays as it is, so a claim chooses as it does on the real data.

Losses of sentences, and studies, have the signs of their units exchanged.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from madl.logbook.arms import Arm, TimedArm
from madl.logbook.claims import Claim, Contrast
from madl.logbook.power import power_at
from madl.logbook.records import Record, Records
from madl.logbook.stats import Comparison, mean
from madl.logbook.values import ALPHA, Outcomes, Unit

PLANTED = 0.15  # points of accuracy
PLANTED_RATIO = 1.0  # log of the ratio of times
Path = tuple[Any, ...]  # into a record's values
Place = tuple[int, Path]  # which record, and where in it


class World:
    """Sealed records whose outcomes and samples can be set; all else is shared.

    Times are those of a quiet machine: what a crowded one leaves undecided is no test of a claim.
    """

    def __init__(self, records: Records) -> None:
        self.original = Records(map(_calm, records), records.missing, tuning=records.tuning)
        self.outcomes: dict[Place, Outcomes] = {}
        self.samples: dict[Place, list[float]] = {}
        for i, record in enumerate(records):
            for path, leaf in _leaves(record.values, ()):
                if isinstance(leaf, Outcomes):
                    self.outcomes[i, path] = leaf
                else:
                    self.samples[i, path] = leaf
        self._by_key = {record.case.key: i for i, record in enumerate(records)}

    def with_changes(self, changes: Mapping[Place, NDArray[Any]]) -> Records:
        """The records with these outcomes and samples."""
        values = {i: self.original[i].values for i, _ in changes}
        for (i, path), new in changes.items():
            if (i, path) in self.outcomes:
                outcomes = Outcomes(new, self.outcomes[i, path].examples)
                values[i] = _put(values[i], path, outcomes)
                values[i] = _put(values[i], (*path[:-1], "accuracy"), outcomes.accuracy)
            else:
                values[i] = _put(values[i], path, [float(sample) for sample in new])
        found = [
            replace(record, values=values[i]) if i in values else record
            for i, record in enumerate(self.original)
        ]
        return Records(found, self.original.missing, tuning=self.original.tuning)

    def places(self, arm: Arm | TimedArm | None) -> list[Place]:
        """Where an arm's outcomes or samples stand."""
        assert arm is not None
        found: list[Place] = []
        for case in dict.fromkeys(case.key for case in arm.cases):
            i = self._by_key[case]
            if isinstance(arm, Arm):
                found.append((i, (*arm.within, "outcomes")))
            else:
                found += [
                    place
                    for place in self.samples
                    if place[0] == i and place[1][: len(arm.within)] == arm.within
                ]
        return found

    def correct(self, place: Place) -> NDArray[np.bool_]:
        return self.outcomes[place]._correct


def _calm(record: Record) -> Record:
    values: Any = record.values
    for path, _ in _leaves(values, ()):
        if path[-1] == "samples_s":
            values = _put(values, (*path[:-1], "contention"), 0.0)
    return replace(record, values=values, run=replace(record.run, contention=0.0))


def _leaves(values: Any, path: Path) -> Iterator[tuple[Path, Any]]:
    """Every set of outcomes and every list of samples among the values."""
    if isinstance(values, Outcomes):
        yield path, values
    elif isinstance(values, Mapping):
        for name, value in values.items():  # pyright: ignore[reportUnknownVariableType]
            yield from _leaves(value, (*path, name))
    elif isinstance(values, list) and values:
        if isinstance(values[0], float) and "samples_s" in path[-2:]:
            yield path, values
        elif isinstance(values[0], Mapping | list):
            for i, value in enumerate(values):  # pyright: ignore[reportUnknownVariableType]
                yield from _leaves(value, (*path, i))


def _put(values: Any, path: Path, leaf: Any) -> Any:
    """The values with another leaf; what is not on the way is shared."""
    if not path:
        return leaf
    changed: Any = list(values) if isinstance(values, list) else dict(values)  # pyright: ignore[reportUnknownVariableType]
    name, *rest = path
    changed[name] = _put(changed[name] if rest else None, tuple(rest), leaf)
    return changed


# ---- the two tests ------------------------------------------------------------------------------


def verdict(one: Contrast) -> str:
    """A claim's, alone on its page."""
    for_it, against = one.p_values()
    if min(for_it, against) > ALPHA:
        return "undecided"
    return "supported" if for_it <= against else "refuted"


def null_wins(claim: Claim, records: Records, *, times: int, seed: int = 0) -> int:
    """On how many of so many data sets without an effect the claim is supported."""
    generator, world = np.random.default_rng(seed), World(records)
    one = claim.test(world.original)

    def again() -> str:
        if one.a is None:
            return _redrawn(one, generator, one.boundary)
        return verdict(claim.test(world.with_changes(_null(world, one, generator))))

    return sum(again() == "supported" for _ in range(times))


def planted(claim: Claim, records: Records, *, favourable: bool, seed: int = 0) -> str:
    """The verdict on data with a clear effect."""
    generator, world = np.random.default_rng(seed), World(records)
    one = claim.test(world.original)
    if one.a is None:
        return _redrawn(one, generator, _planted_effect(one, favourable=favourable))
    changes = _exchanged(world, one, generator)
    _plant(world, changes, one, generator, favourable=favourable)
    _level(world, changes, one)
    return verdict(claim.test(world.with_changes(changes)))


# ---- units redrawn ------------------------------------------------------------------------------


def _redrawn(one: Contrast, generator: Generator, effect: float) -> str:
    """The verdict where the units' effects are exchanged at random, and shifted."""
    made = one.comparison
    each = np.array(made.by_unit)
    drawn = generator.choice((-1.0, 1.0), len(each)) * (each - each.mean()) + effect
    again = mean(list(drawn), unit=made.unit, unit_name=made.population)
    return verdict(replace(one, comparison=again))


def _planted_effect(one: Contrast, *, favourable: bool) -> float:
    clear = 20 * one.comparison.error + 1e-9
    return one.boundary + (clear if favourable else -clear)


def in_errors(made: Comparison, distance: float) -> float:
    """A distance from the boundary, in standard errors."""
    if not made.error:
        return math.copysign(math.inf, distance) if distance else 0.0
    return distance / made.error


def power_of(contrast: Contrast, effect: float, level: float = ALPHA) -> float:
    """Chance that the contrast supports its hypothesis at this level, if the truth is `effect`.

    For designs: `contrast` of the tuning seeds, `level` that of Holm's hardest test.
    """
    made = contrast.comparison
    return power_at(in_errors(made, effect - contrast.boundary), made.freedom, level)


# ---- records without an effect ------------------------------------------------------------------

Changes = dict[Place, NDArray[Any]]


def _null(world: World, one: Contrast, generator: Generator) -> Changes:
    changes = _exchanged(world, one, generator)
    if one.boundary < 0:
        _worsen(world, changes, one.a, -one.boundary, generator, one.comparison.unit)
    elif one.boundary > 0:
        _worsen(world, changes, one.b, one.boundary, generator, one.comparison.unit)
    return changes


def _exchanged(world: World, one: Contrast, generator: Generator) -> Changes:
    """A's and B's models change places by seed; variants that took turns change them by process."""
    changes: Changes = {place: world.correct(place) for place in world.outcomes}
    by_seed: dict[Any, list[tuple[Place, Place]]] = {}
    for a, b in zip(world.places(one.a), world.places(one.b)):
        if a in world.outcomes:
            by_seed.setdefault(world.original[a[0]].case.params.get("seed"), []).append((a, b))
    if [len(pairs) for pairs in by_seed.values()] == [1]:  # of two models, sentences are the units
        ((a, b),) = by_seed.popitem()[1]
        swap = generator.random(len(changes[a])) < 0.5
        sides = world.correct(a), world.correct(b)
        changes |= {a: np.where(swap, *sides), b: np.where(swap, *sides[::-1])}
    for pairs in by_seed.values():
        if generator.random() < 0.5:
            for a, b in pairs:
                changes |= {a: world.correct(b), b: world.correct(a)}
    took_turns: dict[tuple[Any, ...], list[Place]] = {}
    for (i, path), samples in world.samples.items():
        took_turns.setdefault((i, _turns_at(path), len(samples)), []).append((i, path))
    for places in took_turns.values():
        times = np.array([world.samples[place] for place in places])  # (variants, samples)
        changes |= dict(zip(places, generator.permutation(times)))
    return changes


def _turns_at(path: Path) -> Path:
    """Where a variant's samples lie, without its name: those it took turns with lie there too."""
    if isinstance(path[-2], int):  # …, variant, process, "samples_s"
        return (*path[:-3], path[-2])
    return path[:-2]


# ---- records with an effect ---------------------------------------------------------------------


def _plant(
    world: World, changes: Changes, one: Contrast, generator: Generator, *, favourable: bool
) -> None:
    unit, margin = one.comparison.unit, abs(one.boundary)
    for target, source in zip(world.places(one.a), world.places(one.b)):
        changes[target] = changes[source].copy()
    if unit is Unit.TIMES:  # of a: the claim may take the fastest of several for b
        size = margin + PLANTED_RATIO
        _worsen(world, changes, one.a, -size if favourable else size, generator, unit)
        return
    _worsen(world, changes, one.b if favourable else one.a, margin + PLANTED, generator, unit)


def _level(world: World, changes: Changes, one: Contrast) -> None:
    """Variants that are not compared take B's time: a claim may ask for the fastest of several."""
    if one.comparison.unit is not Unit.TIMES or one.b is None:
        return
    named = {place for arm in (one.a, one.b) for place in world.places(arm)}
    for i, path in world.places(one.b):
        for place in world.samples:
            if place not in named and (place[0], _turns_at(place[1])) == (i, _turns_at(path)):
                changes[place] = changes[i, path].copy()


def _worsen(
    world: World,
    changes: Changes,
    arm: Arm | TimedArm | None,
    by: float,
    generator: Generator,
    unit: Unit,
) -> None:
    """Make a side less accurate by so many points, or slower by that log ratio."""
    for place in world.places(arm):
        if unit is Unit.TIMES:
            changes[place] = changes[place] * math.exp(by)
            continue
        correct = changes[place].copy()
        right = np.flatnonzero(correct)
        wrong = generator.choice(right, min(round(by * len(correct)), len(right)), replace=False)
        correct[wrong] = False
        changes[place] = correct
