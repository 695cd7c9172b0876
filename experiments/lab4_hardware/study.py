"""The verdict on a unit: its simulation against the definition, the formats, and unrounded values
of a model's own tensors.

Two oracles. The *definition* (`reference`) is compared bit for bit. The *exact dot product* of the
formats' own values, as `madl.formats` rounds them, holds the result to the definition's bound.
"""

import math
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import torch
from torch import nn

from experiments.lab4_hardware import dyadic, simulation
from experiments.lab4_hardware.dyadic import NAN, Number
from experiments.lab4_hardware.operands import Unit
from experiments.lab4_hardware.reference import Expected, expected, place_of
from experiments.lab4_hardware.stimuli import Piece, Stimulus, from_rows, stimuli
from madl.compression.quantize import linear_layers
from madl.errors import MadlError
from madl.logbook.experiment import Context
from madl.logbook.records import Params
from madl.training import baseline
from madl.training.data import Encoded
from madl.training.format_errors import SENTENCES, linear_inputs


def verify(unit: Unit, *, num_random: int, seed: int, rows: Sequence[Piece] = ()) -> dict[str, Any]:
    """Simulate a unit and count the results that are not what they must be.

    `mismatches`: not the definition's code. `beyond_bound`: further from the exact dot product than
    the bound. `from_format`: results whose exact value was computed from the format's own values.
    `correctly_rounded`: share of finite results that are the exact dot product, rounded once.
    `rows` are pieces of unrounded rows; `error_db`: the unit's results for them,
    signal to error in decibels, against their exact dot products.
    """
    given = list(stimuli(unit, num_random=num_random, seed=seed))
    first = len(given)
    given += from_rows(unit, rows)
    results = simulation.simulate(unit, [s.vector for s in given])
    wants = [expected(unit, s.vector) for s in given]
    wrong = [i for i, (got, want) in enumerate(zip(results, wants)) if got != want.code]
    checks = [
        _against_format(unit, got, want, stimulus)
        for got, want, stimulus in zip(results, wants, given)
        if want.exact is not None and want.code != NAN
    ]
    found = {
        "vectors": len(given),
        "mismatches": len(wrong),
        "first_mismatch": _describe(given[wrong[0]], results[wrong[0]], wants[wrong[0]])
        if wrong
        else None,
        "finite": len(checks),
        "from_format": sum(s.exact is not None for s in given),
        "beyond_bound": sum(not inside for inside, _ in checks),
        "correctly_rounded": sum(rounded for _, rounded in checks) / max(len(checks), 1),
    }
    if not rows:
        return found
    error = error_db(unit, results[first:], given[first:], rows)
    return {**found, "rows": len(rows), "error_db": error}


def verified(unit: Unit, **how: Any) -> dict[str, Any]:
    """What `verify` finds of a unit that is right.

    Raises:
        MadlError: a wrong bit, or a result beyond its bound.
    """
    found = verify(unit, **how)
    if found["mismatches"] or found["beyond_bound"]:
        raise MadlError(
            f"the Verilog of {unit.name} gives {found['mismatches']} results with wrong bits and "
            f"{found['beyond_bound']} beyond its bound: {found['first_mismatch']}"
        )
    return found


def error_db(
    unit: Unit, results: Sequence[int], given: Sequence[Stimulus], rows: Sequence[Piece]
) -> float:
    """Signal to error of a unit's results for unrounded rows, in decibels.

    Raises:
        MadlError: a result that is no number, or no error at all.
    """
    exact = [piece.dot(unit.lanes) for piece in rows]
    values = [value_of(unit, code, one.row_scales) for code, one in zip(results, given)]
    if None in values:
        raise MadlError(f"{unit.name} gives NaN for finite values")
    noise = sum((float(value or 0) - wanted) ** 2 for value, wanted in zip(values, exact))
    if not noise:
        raise MadlError(f"{unit.name} makes no error at all, which has no decibels")
    return 10 * math.log10(sum(wanted**2 for wanted in exact) / noise)


def value_of(unit: Unit, code: int, row_scales: Sequence[Number] = ()) -> Fraction | None:
    """What a result means in its formats' values, None for NaN."""
    if not unit.integers:
        number = dyadic.from_fp32(code)
        return None if number is None else dyadic.fraction(number)
    bits = unit.result_bits // unit.integers
    sums = [code >> (i * bits) & ((1 << bits) - 1) for i in range(unit.integers)]
    signed = [one - (1 << bits) if one >> (bits - 1) else one for one in sums]
    scales = row_scales or [(1, place_of(unit))] * unit.integers
    return dyadic.fraction(dyadic.total([(n * p, e) for n, (p, e) in zip(signed, scales)]))


def _against_format(unit: Unit, got: int, want: Expected, s: Stimulus) -> tuple[bool, bool]:
    """Whether a result is within the bound, and whether it is the exact one rounded once."""
    exact, value = want.exact if s.exact is None else s.exact, value_of(unit, got, s.row_scales)
    assert exact is not None
    if value is None:
        return False, False
    if unit.integers:
        return value == exact, value == exact
    rounded = dyadic.to_fp32(exact.numerator, -(exact.denominator.bit_length() - 1))
    return abs(value - exact) <= want.bound, got == rounded


def _describe(stimulus: Stimulus, got: int, want: Expected) -> str:
    return f"got {got:#x}, expected {want.code:#x} for {dict(stimulus.vector)}"[:400]


# ---- rows of a model's own tensors ---------------------------------------------------------------


def rows_of_model(params: Params, ctx: Context, *, lanes: int) -> list[Piece]:
    """`params["rows"]` rows of the fine-tuned model, made once."""
    count = params["rows"]
    assert isinstance(count, int)
    made = baseline.checkpoint(params, ctx)

    def build(folder: Path) -> None:
        validation = baseline.load_splits(params).validation
        pieces = sampled(baseline.fine_tuned(params, ctx), validation, lanes=lanes, count=count)
        folder.mkdir()
        torch.save([(one.a, one.b, one.start) for one in pieces], folder / "rows.pt")

    folder = ctx.artifact(f"whole-dot-rows-{made.name}-{count}x{lanes}", build)
    found = torch.load(folder / "rows.pt", weights_only=True)
    return [Piece(a=a, b=b, start=start) for a, b, start in found]


def sampled(model: nn.Module, data: Encoded, *, lanes: int, count: int) -> Sequence[Piece]:
    """From all Linear layers in turn: any output, any token that is no padding, any piece."""
    generator = torch.Generator().manual_seed(0)

    def any_below(size: int) -> int:
        return int(torch.randint(size, (), generator=generator))

    batch = data.batch(range(min(SENTENCES, len(data))))
    kept = batch["attention_mask"].bool()
    pairs = [
        (layer.weight.detach(), x[kept] if x.dim() == 3 else x)
        for layer, x in zip(linear_layers(model), linear_inputs(model, batch), strict=True)
        if layer.weight.shape[1] % lanes == 0
    ]
    found: list[Piece] = []
    for index in range(count):
        weight, x = pairs[index % len(pairs)]
        start = lanes * any_below(weight.shape[1] // lanes)
        a, b = weight[any_below(len(weight))], x[any_below(len(x))]
        found.append(Piece(a=a.clone(), b=b.clone(), start=start))
    return found
