"""What is counted of MXINT8 on both sides, as facts of the page of 4.3a: gates, bytes, errors.

A fact that sets times beside each other says of how many processes they are; claims decide.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from madl.execution.linear_times import (
    BF16,
    BITS,
    DYNAMIC,
    FP32,
    MIB,
    MXINT8,
    layer_case,
    layer_cases,
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
from madl.hardware import compared, counts, unit_records
from madl.logbook.arms import TimedArm
from madl.logbook.claims import Fact, compare
from madl.logbook.records import Record, Records, Row
from madl.logbook.stats import counted, number

Unit = Mapping[str, Any]

# ---- gates --------------------------------------------------------------------------------------


def fewer_gates(r: Records) -> Fact:
    """bf16's unit beside MXINT8's, with and without its quantizer, and how exact they are."""
    mx, bf16 = (counts.transistors(r, **unit) for unit in (compared.MXINT8, compared.BF16))
    own, finer = (_exactness(r, unit) for unit in (compared.MXINT8, compared.BF16))
    return Fact(
        text=f"In gates, a dot product of {counts.LANES} pairs takes {mx:,} transistors with "
        f"MXINT8 on both sides and {bf16:,} in bf16; in one stage, or cut by registers into stages "
        f"of one delay, bf16 takes {_times_as_many(r, compared.BF16, compared.MXINT8)} as many "
        "where MXINT8's inputs come quantized, and "
        f"{_times_as_many(r, compared.BF16, compared.QUANTIZING)} where its unit quantizes bf16 "
        f"inputs itself. On rows of the model's tensors bf16's results are {finer} (decibels) "
        f"above their error and MXINT8's {own}, so they are not equally exact: floats that nearly "
        "are stand below the table of gates",
        of=_checked(r, compared.MXINT8, compared.QUANTIZING, compared.BF16),
    )


def floats_as_exact(r: Records) -> Fact:
    """The floats whose results are nearest to as exact as MXINT8's, beside both of its units."""
    floats = counts.nearest_errors(r, (*compared.SHORTER, compared.BF16), compared.MXINT8)
    names = (f"{counts.side_of(counts.gates(r, **u))} ({_exactness(r, u)})" for u in floats)
    bare, quantizing = (
        " and ".join(_times_as_many(r, unit, other) for unit in floats)
        for other in (compared.MXINT8, compared.QUANTIZING)
    )
    return Fact(
        text=f"Of the floats with bf16's exponents {' and '.join(names)} come nearest to MXINT8's "
        f"{_exactness(r, compared.MXINT8)}; they take {bare} as many transistors where MXINT8's "
        f"inputs come quantized, {quantizing} where its unit quantizes bf16 inputs itself, what "
        "rounds their own inputs not counted",
        of=_checked(r, compared.MXINT8, compared.QUANTIZING, *floats),
    )


def weights_alone(r: Records) -> Fact:
    """MXINT8 on one side only."""
    return Fact(
        text="With MXINT8 weights and bf16 inputs, a dot product takes "
        f"{_times_as_many(r, compared.MIXED, compared.BF16)} as many transistors as with bf16 on "
        "both sides, in one stage or cut by registers into stages of one delay",
        of=_checked(r, compared.MIXED, compared.BF16),
    )


def gate_rows(r: Records) -> list[Row]:
    """The compared units, and how far the results of each are above their error."""
    made = r.of(counts.EXPERIMENT).where(kind="gates", gate_set="cells", lanes=counts.LANES)
    errors = {counts.label_of(one): unit_records.error_cell(r, one) for one in made}
    return [{**row, unit_records.ERROR: errors[row["unit"]]} for row in counts.gate_rows(r)]


def _exactness(r: Records, unit: Unit) -> str:
    return f"{number(counts.error_db(r, **unit))} dB"


def _times_as_many(r: Records, a: Unit, b: Unit) -> str:
    """Transistors of A over those of B: the range over pipelines, and none."""
    return f"{counts.ratio_range(r, a, b)} times"


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


# ---- layers on a CPU ----------------------------------------------------------------------------


def timed_layers(r: Records) -> Fact:
    """What a large Linear and the default model are."""
    large, small = layer_cases(r)
    model = r.one(what="evaluation").case.params["model"]
    return Fact(
        text=f"A large Linear here is {shape(large)}, the largest of DeBERTa-xlarge, the "
        "coursework's model. The default model is the classifier of all labs, a fine-tuned "
        f"`{model}`; its largest Linear is {shape(small)}",
        of=f"{num_weights(large):,} and {num_weights(small):,} weights",
    )


def few_and_many_rows(r: Records) -> Fact:
    """MXINT8 beside the faster FP32 and the faster BF16 in the larger layer."""
    record = layer_case(r)
    found: list[str] = []
    for rows in (1, most(r)):
        t = times(record, rows)
        rivals = " and ".join(_as_fast(t, rival) for rival in (FP32, BF16))
        found.append(f"with {counted(rows, 'row')} {rivals}")
    return Fact(
        text=f"On this CPU ({record.run.cpu}), in {shape(record)}, MXINT8 is {'; '.join(found)}",
        of=f"{_processes(record)}; the faster of weights as torch keeps them and prepacked ones",
    )


def most_rows_beside_bf16(r: Records) -> Fact:
    """The same beside BF16 alone, in both layers."""
    rows, layers = most(r), layer_cases(r)
    found = [f"{_as_fast(times(one, rows), BF16)} in {shape(one)}" for one in layers]
    return Fact(
        text=f"With {counted(rows, 'row')}, on this CPU ({layers[0].run.cpu}), MXINT8 is "
        f"{' and '.join(found)}",
        of=f"{_processes(layers[0])}; the faster of weights as torch keeps them and prepacked ones",
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
    rates = {v: read_rate(record, t[v], v) / 1e9 for v in t}
    (slow, least), *_, (fast, highest) = sorted(rates.items(), key=lambda item: item[1])
    return Fact(
        text=f"With one row, the weights are read at {number(least)} GB/s ({said(slow)}) to "
        f"{number(highest)} GB/s ({said(fast)}); a copy too large for the caches reads and writes "
        f"{number(reached(r, 'copy') / 1e9)} GB/s together",
        of="means over processes of one layer's medians, and the median of one machine's copies",
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


def _as_fast(t: dict[str, TimedArm], rival: str) -> str:
    """MXINT8 beside the stronger of a rival's two, and whether the machine was quiet."""
    ours, other = t[MXINT8], strongest(t, rival)
    is_disturbed = bool(compare(ours, other).comparison.blocked)
    beside = " (undecided for want of a quiet machine)" * is_disturbed
    return f"{other / ours:i} as fast as {other.label}{beside}"


def _processes(record: Record) -> str:
    return f"intervals from between {record.case.params['processes']} processes"
