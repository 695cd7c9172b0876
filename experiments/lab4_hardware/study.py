"""What a case runs: a unit's gates, or its simulation and what that says of the unit.

Two oracles. The *definition* (`reference`) is compared bit for bit. Accumulator and *exact dot
product* of the codes' values, which are those of `madl.formats`, hold the result to the
definition's bound. Rows of a model then show how far a unit's results lie from unrounded ones.
"""

import math
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from experiments.lab4_hardware import dyadic, simulation, synthesis, tools, units
from experiments.lab4_hardware.operands import Unit
from experiments.lab4_hardware.reference import Expected, expected, signed
from experiments.lab4_hardware.simulation import Vector
from experiments.lab4_hardware.stimuli import Chain, alone, any_codes, corners, of_rows
from madl.errors import MadlError
from madl.logbook.experiment import Context
from madl.logbook.records import Params, Values
from madl.training import baseline
from madl.training.data import Encoded
from madl.training.format_errors import SENTENCES, linear_calls

Pair = tuple[Tensor, Tensor]  # an output's weights, what the layer is given for a token


def run(params: Params, ctx: Context) -> Values:
    """A case: the gates of a unit, or its simulation."""
    unit = units.named(str(params["unit"]))
    if params["kind"] == "gates":
        ctx.artifact(f"started-{tools.yosys_version().replace(' ', '-')}", tools.first_start)
        return synthesis.synthesize(unit)
    num_random = params["num_random"]
    assert isinstance(num_random, int)
    found = verify(unit, num_random=num_random, rows=rows_of_model(params, ctx))
    if found["mismatches"] or found["beyond_bound"]:
        raise MadlError(
            f"the Verilog of {params['unit']} gives {found['mismatches']} results with wrong bits "
            f"and {found['beyond_bound']} beyond its bound: {found['first_mismatch']}"
        )
    return {**found, "tool": f"{tools.yosys_version()}, CXXRTL"}


# ---- the verdict on a unit ----------------------------------------------------------------------


def verify(unit: Unit, *, num_random: int, rows: Sequence[Pair]) -> dict[str, Any]:
    """Simulate a unit and count the results that are not what they must be.

    `mismatches`: not the definition's code. `beyond_bound`: further from accumulator and exact dot
    product than the bound. `error_db`: of the finished rows, against their exact dot products.
    """
    chains = [*alone(corners(unit)), *alone(any_codes(unit, num_random, 0)), *of_rows(unit, rows)]
    vectors: list[Vector] = []
    wants: list[Expected] = []
    finished: list[int] = []  # of each chain, its last vector
    for chain in chains:
        acc = [0]
        for vector in chain.vectors:
            vectors.append({"acc": acc, **vector})
            wants.append(expected(unit, vectors[-1]))
            acc = [wants[-1].code]
        finished.append(len(vectors) - 1)
    results = simulation.simulate(unit, vectors)
    wrong = [i for i, (got, want) in enumerate(zip(results, wants)) if got != want.code]
    return {
        "vectors": len(vectors),
        "mismatches": len(wrong),
        "first_mismatch": f"got {results[wrong[0]]:#x} for {vectors[wrong[0]]}" if wrong else None,
        "finite": sum(want.exact is not None for want in wants),
        "beyond_bound": sum(map(lambda got, want: beyond(unit, got, want), results, wants)),
        "rows": len(rows),
        "error_db": error_db(unit, [results[i] for i in finished], chains),
    }


def beyond(unit: Unit, got: int, want: Expected) -> bool:
    """Whether a result lies further off than the bound."""
    if want.exact is None:
        return False
    value = value_of(unit, got)
    return value is None or abs(value - want.exact) > want.bound


def error_db(unit: Unit, results: Sequence[int], chains: Sequence[Chain]) -> float | None:
    """Signal to error of finished rows in decibels; None without rows.

    Raises:
        MadlError: a result that is no number, or no error at all.
    """
    signal = noise = 0.0
    for code, chain in zip(results, chains, strict=True):
        if chain.dot is None:
            continue
        value = value_of(unit, code)
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
    """What a result means, None for NaN."""
    if unit.is_integer:
        return Fraction(signed(code))
    number = dyadic.from_fp32(code)
    return None if number is None else dyadic.fraction(number)


# ---- rows of a model's own tensors ---------------------------------------------------------------


def rows_of_model(params: Params, ctx: Context) -> list[Pair]:
    """`params["rows"]` rows of the fine-tuned model, made once."""
    count = params["rows"]
    assert isinstance(count, int)
    made = baseline.checkpoint(params, ctx)

    def build(folder: Path) -> None:
        validation = baseline.load_splits(params).validation
        pairs = sampled(baseline.fine_tuned(params, ctx), validation, count)
        folder.mkdir()
        torch.save(pairs, folder / "rows.pt")

    folder = ctx.artifact(f"dot-rows-{made.name}-{count}", build)
    return torch.load(folder / "rows.pt", weights_only=True)


def sampled(model: nn.Module, data: Encoded, count: int) -> list[Pair]:
    """From all calls of Linear layers in turn: any output, and any token that is no padding."""
    generator = torch.Generator().manual_seed(0)

    def any_below(size: int) -> int:
        return int(torch.randint(size, (), generator=generator))

    batch = data.batch(range(min(SENTENCES, len(data))))
    kept = batch["attention_mask"].bool()
    layers = [
        (layer.weight.detach(), x[kept] if x.dim() == 3 else x)
        for layer, x in linear_calls(model, batch)
        if layer.weight.shape[1] % units.LANES == 0
    ]
    pairs = (layers[index % len(layers)] for index in range(count))
    return [(w[any_below(len(w))].clone(), x[any_below(len(x))].clone()) for w, x in pairs]
