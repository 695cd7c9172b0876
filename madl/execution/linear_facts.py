"""What is counted of MXINT8 on both sides, as facts of the page of 4.3a: gates, bytes, errors."""

from collections.abc import Iterable, Mapping
from typing import Any

from madl.execution.linear_times import (
    BITS,
    DYNAMIC,
    FP32,
    MIB,
    MXINT8,
    VARIANTS,
    layer_case,
    most,
    num_rows,
    num_weights,
    reached,
    read_rate,
    said,
    shape,
    strongest,
    times,
    weight_bytes,
)
from madl.hardware import compared, counts
from madl.hardware.synthesis import PERIODS
from madl.logbook.claims import Fact
from madl.logbook.records import Records
from madl.logbook.stats import number

Unit = Mapping[str, Any]


def fewer_gates(r: Records) -> Fact:
    """bf16's unit beside MXINT8's, with and without its quantizer, at any speed."""
    mx, bf16 = (counts.transistors(r, **unit) for unit in (compared.MXINT8, compared.BF16))
    periods = " or ".join(map(str, PERIODS))
    return Fact(
        text=f"In gates, a dot product of {counts.LANES} pairs takes {mx:,} transistors with "
        f"MXINT8 on both sides and {bf16:,} in bf16. Over units without pipelines and units with "
        f"the registers for a result every {periods} FO4 (delays of an inverter that drives four "
        f"like it), bf16 takes {_times_as_many(r, compared.BF16, compared.MXINT8)} as many where "
        "MXINT8's inputs come quantized, and "
        f"{_times_as_many(r, compared.BF16, compared.QUANTIZING)} where its unit quantizes bf16 "
        "inputs itself",
        of=_checked(r, compared.MXINT8, compared.QUANTIZING, compared.BF16),
    )


def weights_alone(r: Records) -> Fact:
    """MXINT8 on one side only."""
    return Fact(
        text="With MXINT8 weights and bf16 inputs, a dot product takes "
        f"{_times_as_many(r, compared.MIXED, compared.BF16)} as many transistors as with bf16 on "
        "both sides, over the same pipelines",
        of=_checked(r, compared.MIXED, compared.BF16),
    )


def fewer_bytes(r: Records) -> Fact:
    record = layer_case(r)
    t = times(record, 1)
    fp32 = strongest(t, FP32)
    dense, packed = (weight_bytes(record, v) / MIB for v in (FP32, MXINT8))
    return Fact(
        text=f"The weight of {shape(record)} is {number(dense)} MiB in FP32 and {number(packed)} "
        f"MiB in MXINT8, {number(BITS[FP32] / BITS[MXINT8])} times smaller; with one row the "
        f"layer is {fp32 / t[MXINT8]} as fast as {fp32.label}",
        of=f"{num_weights(record):,} weights",
    )


def rates_with_one_row(r: Records) -> Fact:
    """How fast weights are read, beside what a copy reaches."""
    record = layer_case(r)
    t = times(record, 1)
    rates = {v: read_rate(record, t[v], v) / 1e9 for v in VARIANTS}
    (slow, least), *_, (fast, highest) = sorted(rates.items(), key=lambda item: item[1])
    return Fact(
        text=f"With one row, the weights are read at {number(least)} GB/s ({said(slow)}) to "
        f"{number(highest)} GB/s ({said(fast)}); a copy too large for the caches reads and writes "
        f"{number(reached(r, 'copy') / 1e9)} GB/s together",
        of="medians of one layer's times and of one machine's copies",
    )


def errors_of_a_layer(r: Records) -> Fact:
    record = layer_case(r)
    rows = num_rows(record)
    mx, torch_s = (
        " and ".join(f"{record.values['error_db'][f'{v} {n}']:.1f}" for n in (rows[0], rows[-1]))
        for v in (MXINT8, DYNAMIC)
    )
    outputs = int(record.case.params["out"] or 0)
    return Fact(
        text=f"With {rows[0]} and {rows[-1]} rows of inputs, the layer's results in MXINT8, which "
        f"has a scale for every 32 values, are {mx} dB above their error, and in torch's INT8 "
        f"{torch_s} dB",
        of=f"{outputs * rows[0]:,} and {outputs * most(r):,} outputs of one layer, normal weights "
        "and inputs",
    )


def _times_as_many(r: Records, a: Unit, b: Unit) -> str:
    """Transistors of A over those of B: the range over pipelines, and none."""
    sizes = [[counts.transistors(r, **unit) for unit in (a, b)]]
    sizes += [[counts.pipelined(r, period, **unit) for unit in (a, b)] for period in PERIODS]
    ratios = [x / y for x, y in sizes]
    return f"{number(min(ratios))} to {number(max(ratios))} times"


def _checked(r: Records, *units: Unit) -> str:
    """Cells of each, and how many of their results were simulated; one that differs fails."""
    made = [counts.gates(r, **unit) for unit in units]
    cells = "; ".join(f"{one.values['cells']:,} of {counts.label_of(one)}" for one in made)
    return f"cells by {_tools(one.values['tool'] for one in made)}: {cells}; {_simulated(r, units)}"


def _simulated(r: Records, units: Iterable[Unit]) -> str:
    kept = r.of(counts.EXPERIMENT).where(kind="simulation", lanes=counts.LANES)
    kept = kept.without("window").without("specials")
    found = [kept.where(**unit).one().values for unit in units]
    vectors, wrong = (sum(one[key] for one in found) for key in ("vectors", "mismatches"))
    return f"{vectors:,} results simulated, {wrong:,} unlike those computed in Python"


def _tools(names: Iterable[str]) -> str:
    return " and ".join(dict.fromkeys(names))
