"""Question 4.4's cases: a unit's gates, what they switch, or its simulation and the verdict on it.

There are two references. Results equal the *definition* (`reference`) bit for bit. And they are
within its bound of accumulator and *exact dot product* of the codes' values, which are those of
`madl.formats`. Rows of a model then show how far a unit's results lie from unrounded ones.
"""

import itertools
import math
from collections.abc import Iterable, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from experiments.lab4_hardware import dyadic, simulation, switching, synthesis, tools, units
from experiments.lab4_hardware.operands import Unit
from experiments.lab4_hardware.reference import ExpectedResult, expected_result, signed
from experiments.lab4_hardware.simulation import Vector
from experiments.lab4_hardware.stimuli import (
    Chain,
    corner_vectors,
    random_vectors,
    row_chains,
    single_chains,
)
from madl.errors import MadlError
from madl.logbook.experiment import Context
from madl.logbook.records import Params, Values
from madl.training import baseline
from madl.training.data import Encoded
from madl.training.format_errors import SENTENCES, linear_calls

Pair = tuple[Tensor, Tensor]  # an output's weights, what the layer is given for a token


def run(params: Params, ctx: Context) -> Values:
    """Count the gates of a unit, or what they switch, or simulate it."""
    unit = units.unit_named(str(params["unit"]))
    if params["kind"] in ("gates", "switching"):
        ctx.artifact(f"started-{tools.yosys_version().replace(' ', '-')}", tools.first_start)
    match params["kind"]:
        case "gates":
            return synthesis.synthesize(unit)
        case "switching":
            return switch(unit, rows_of_model(params, ctx))
        case _:
            return simulate(unit, params, ctx)


def simulate(unit: Unit, params: Params, ctx: Context) -> Values:
    """Simulate a unit; raises a MadlError where a result has wrong bits."""
    values = verify(unit, num_random=params["num_random"], rows=rows_of_model(params, ctx))
    if values["mismatches"] or values["beyond_bound"]:
        raise MadlError(
            f"the Verilog of {params['unit']} gives {values['mismatches']} results with wrong bits "
            f"and {values['beyond_bound']} beyond its bound: {values['first_mismatch']}"
        )
    return {**values, "tool": f"{tools.yosys_version()}, CXXRTL"}


# ---- what its gates switch ----------------------------------------------------------------------


def switch(unit: Unit, rows: Sequence[Pair]) -> Values:
    """The load that a unit's gates switch for a result, over rows of a model one after the other.

    Raises:
        MadlError: the gates give other bits than the definition.
    """
    vectors, wants = with_results(unit, row_chains(unit, rows))
    _, flat = synthesis.mapped(unit)
    bits = switching.signals(flat, unit, vectors)
    results = switching.results(flat, bits)
    if wrong := sum(got != want.code for got, want in zip(results, wants, strict=True)):
        raise MadlError(f"the gates of {unit.top} give {wrong} of {len(wants)} results other bits")
    load = switching.switched(flat, bits)
    return {"vectors": len(vectors), "switched": load, "tool": tools.yosys_version()}


def with_results(unit: Unit, chains: Iterable[Chain]) -> tuple[list[Vector], list[ExpectedResult]]:
    """The vectors of all chains, each with its accumulator, and what each must give."""
    vectors: list[Vector] = []
    wants: list[ExpectedResult] = []
    for chain in chains:
        acc = [0]
        for vector in chain.vectors:
            vectors.append({"acc": acc, **vector})
            wants.append(expected_result(unit, vectors[-1]))
            acc = [wants[-1].code]
    return vectors, wants


# ---- the verdict on a unit ----------------------------------------------------------------------


def verify(unit: Unit, *, num_random: int, rows: Sequence[Pair]) -> dict[str, Any]:
    """Simulate a unit and count the results that are not what they must be.

    `mismatches`: not the definition's code. `beyond_bound`: further from accumulator and exact dot
    product than the bound. `error_db`: signal to error of the rows, held against unrounded ones.
    """
    single = [*corner_vectors(unit), *random_vectors(unit, num_random, 0)]
    chains = [*single_chains(single), *row_chains(unit, rows)]
    vectors, wants = with_results(unit, chains)
    results = simulation.simulate(unit, vectors)
    wrong = [i for i, (got, want) in enumerate(zip(results, wants)) if got != want.code]
    return {
        "vectors": len(vectors),
        "mismatches": len(wrong),
        "first_mismatch": f"got {results[wrong[0]]:#x} for {vectors[wrong[0]]}" if wrong else None,
        "finite": sum(want.exact is not None for want in wants),
        "beyond_bound": sum(map(lambda got, want: beyond(unit, got, want), results, wants)),
        "rows": len(rows),
        "error_db": error_db(unit, results, chains),
    }


def beyond(unit: Unit, got: int, want: ExpectedResult) -> bool:
    """Whether a result is further from the exact one than the bound."""
    if want.exact is None:
        return False
    value = value_of(unit, got)
    return value is None or abs(value - want.exact) > want.bound


def error_db(unit: Unit, results: Sequence[int], chains: Sequence[Chain]) -> float | None:
    """Signal to error of finished rows in decibels, of all vectors' results; None without rows.

    Raises:
        MadlError: a result that is no number, or no error at all.
    """
    signal = noise = 0.0
    ends = itertools.accumulate(len(chain.vectors) for chain in chains)
    for end, chain in zip(ends, chains, strict=True):
        if chain.dot is None:
            continue
        value = value_of(unit, results[end - 1])
        if value is None:
            raise MadlError(f"{unit.top} gives NaN for finite rows")
        signal += chain.dot**2
        noise += (float(value * dyadic.fraction(chain.row_scale)) - chain.dot) ** 2
    if not signal:
        return None
    if not noise:
        raise MadlError(f"{unit.top} makes no error at all, which has no decibels")
    return 10 * math.log10(signal / noise)


def value_of(unit: Unit, code: int) -> Fraction | None:
    """The value of a result's code, None for NaN."""
    if unit.is_integer:
        return Fraction(signed(code))
    number = dyadic.from_fp32(code)
    return None if number is None else dyadic.fraction(number)


# ---- rows of a model's own tensors ---------------------------------------------------------------


def rows_of_model(params: Params, ctx: Context) -> list[Pair]:
    """As many pairs of an output's weights and a token's inputs as `params["rows"]`, made once."""
    count, checkpoint = params["rows"], baseline.checkpoint(params, ctx)

    def build(folder: Path) -> None:
        validation = baseline.load_splits(params).validation
        pairs = sample_pairs(baseline.fine_tuned(params, ctx), validation, count)
        folder.mkdir()
        torch.save(pairs, folder / "rows.pt")

    folder = ctx.artifact(f"dot-rows-{checkpoint.name}-{count}", build)
    return torch.load(folder / "rows.pt", weights_only=True)


def sample_pairs(model: nn.Module, data: Encoded, count: int) -> list[Pair]:
    """Pairs of an output's weights and a token's inputs, both at random, from layers in turn.

    The layers are the model's Linear ones; no token is padding.
    """
    generator = torch.Generator().manual_seed(0)

    def any_below(size: int) -> int:
        return int(torch.randint(size, (), generator=generator))

    batch = data.batch(range(min(SENTENCES, len(data))))
    layers = [
        (layer.weight.detach(), x)
        for layer, x in linear_calls(model, batch)
        if layer.weight.shape[1] % units.LANES == 0
    ]
    pairs = (layers[index % len(layers)] for index in range(count))
    return [(w[any_below(len(w))].clone(), x[any_below(len(x))].clone()) for w, x in pairs]
