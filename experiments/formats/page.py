"""Every number format: its error on real weights and inputs, and the accuracy of the model in it.

One case measures all presets. A format with a fraction width or an exponent bias is measured twice:
as its preset has it, and *placed*: with the width or bias, one for weights and one for inputs, that
keeps other data of the same kind best. Accuracies are those of question 3.2.

Units: signal to error in decibels.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from experiments.formats.design import QUANTILES
from experiments.lab3_formats.records import untrained
from madl.formats.presets import PRESETS
from madl.logbook import benchmarks
from madl.logbook.charts import Chart, linear, points
from madl.logbook.experiment import TUNING_SEED, Experiment, Plan
from madl.logbook.numbers import NumberFn, computed
from madl.logbook.records import Params, Pending, Record, Records, Row, digest_of
from madl.logbook.values import number, superscript
from madl.training import baseline

page = Experiment(title="Number formats", needs=("lab3_formats",))

STEM = "formats"
DRAWN_BITS = 9  # of a value, below
LABELLED = ("mxint8", "mxfp4-e2m1", "log(8)", "minifloat(6,3)", "fixed(8,4)")


@page.cases
def cases(plan: Plan) -> Iterable[Params]:
    formats = digest_of(dict.fromkeys(PRESETS))  # so a new one is measured
    yield {**baseline.drawn_params(plan, TUNING_SEED), "formats": formats}


def record_of(r: Records) -> Record:
    """The record of the page's only case."""
    return r.of_experiment(STEM).single()


def facts_of(r: Records) -> dict[str, dict[str, Any]]:
    """Preset → its facts and errors, as `study.measure_format` recorded them."""
    return record_of(r).values["formats"]


def signal_to_error(name: str, part: str = "weights", *, placed: bool = False) -> NumberFn:
    """A function that reads a format's signal to error in dB, on weights or on inputs."""

    def read(record: Record) -> float:
        facts = record.values["formats"][name]
        return round((facts["placed"] if placed else facts)[f"{part}_db"], 1)

    return computed(record_of, read, "dB")


def magnitude(part: str, quantile: float) -> NumberFn:
    """A function that reads a quantile of the magnitudes of weights or of inputs, to two digits."""
    index = QUANTILES.index(quantile)
    return computed(
        record_of, lambda record: float(f"{record.values['magnitudes'][part][index]:.2g}")
    )


page.numbers(
    mxint8=signal_to_error("mxint8"),
    mxfp4=signal_to_error("mxfp4-e2m1"),
    fixed_4=signal_to_error("fixed(4,2)"),
    fixed_4_placed=signal_to_error("fixed(4,2)", placed=True),
    fixed_4_inputs=signal_to_error("fixed(4,2)", "inputs"),
    log_8=signal_to_error("log(8)"),
    block_log_8=signal_to_error("block-log(8,8,block=16)"),
    fp8=signal_to_error("minifloat(8,4)"),
    fp8_placed=signal_to_error("minifloat(8,4)", placed=True),
    small_weights=magnitude("weights", 0.05),
    large_weights=magnitude("weights", 0.95),
    small_inputs=magnitude("inputs", 0.05),
    large_inputs=magnitude("inputs", 0.95),
    num_weights=computed(record_of, lambda record: record.values["num_weights"]),
    num_inputs=computed(record_of, lambda record: record.values["num_inputs"]),
)


def placed_facts(r: Records) -> list[tuple[str, Mapping[str, Any]]]:
    """List of (preset, facts), with errors as placed where it can be; least weight error first."""
    placed = {name: facts | facts.get("placed", {}) for name, facts in facts_of(r).items()}
    return sorted(placed.items(), key=lambda item: -item[1]["weights_db"])


@page.chart
def error(r: Records) -> Chart:
    """Signal to error of the weights against bits, in formats of fewer than `DRAWN_BITS`."""
    facts = dict(placed_facts(r))
    rows: list[Row] = [
        {
            "format": PRESETS[name].title,
            "formats": PRESETS[name].family.group,
            "bits": facts[name]["bits"],
            "signal to error": facts[name]["weights_db"],
            "named": PRESETS[name].title if name in LABELLED else None,
        }
        for name in PRESETS
        if facts[name]["bits"] < DRAWN_BITS
    ]
    return Chart(
        rows,
        x=linear("bits", "bits a value"),
        y=linear(label="signal to error", unit="dB", limits=(0, None)),
        marks=[points("signal to error", by="formats", text="named")],
    )


@page.table
def formats(r: Records) -> Sequence[Row]:
    return [
        {
            "format": PRESETS[name].title,
            "bits": f"{facts['bits']:g}",
            "accuracy": f"{untrained(r, name)}",
            "weights (dB)": f"{facts['weights_db']:.1f}".replace("-", "−"),
            "inputs (dB)": f"{facts['inputs_db']:.1f}".replace("-", "−"),
        }
        for name, facts in placed_facts(r)
    ]


@page.table
def definitions(r: Records) -> Sequence[Row]:
    """The name of each format in code, its constants and its source."""
    facts = facts_of(r)
    return [
        {
            "format": PRESETS[name].title,
            "in code": f"`{name}`",
            "constants": facts[name]["constants"],
            "positive values": range_text(facts[name]),
            "placed at": facts[name].get("placed", {}).get("at", ""),
            "source": PRESETS[name].source,
        }
        for name in PRESETS
    ]


def range_text(facts: Mapping[str, Any]) -> str:
    """The range of a preset's positive values in words; "scaled" where it has no fixed one."""
    if facts["range"] is None:
        return "scaled"
    return f"{brief(facts['smallest'])} to {brief(facts['range'][1])}"


def brief(value: float) -> str:
    """A value as text: all its digits from 0.001 to 100,000; else three, times a power of two."""
    if 1e-3 <= value < 1e5:
        return f"{value:,.8g}"
    mantissa, exponent = math.frexp(value)
    power = f"2{superscript(exponent - 1)}"
    return power if mantissa == 0.5 else f"{number(2 * mantissa)} · {power}"


def variant_name(name: str) -> str:
    """The title of a variant of the benchmark: the preset's, or else the variant's name as code."""
    return PRESETS[name].title if name in PRESETS else f"`{name}`"


COLUMNS = {  # of the benchmark, by what its work's title holds
    "in cache": "in cache",
    "(memory)": "in memory",
    "training step": "training step",
    "evaluation": "evaluation",
}
PLAIN, PEER = "plain torch (no compiler)", "peer of "


@page.table
def times(r: Records) -> Sequence[Row]:
    """Times in the published run of `benchmarks/formats.py`, over that of a copy or of FP32."""
    rows: dict[str, dict[str, str]] = {}
    for work, arms in benchmarks.arms("formats").items():
        base = arms.get("copy") or arms.get("float32")
        column = next((name for part, name in COLUMNS.items() if part in work), None)
        for variant, a in arms.items():
            is_peer = variant.startswith(PEER)
            name, _, path = (variant, "", "") if is_peer else variant.partition(", ")
            if column is None or base is None or a is base or path not in ("", PLAIN):
                continue
            title = variant_name(name) if not is_peer else name.partition(": ")[2]
            cells = rows.setdefault(title, {"variant": title})
            cells[f"{column}, plain torch" if path else column] = f"{a / base:i}"
    if not rows:
        raise Pending("a published run of the benchmark formats with its samples")
    columns = {column: "–" for cells in rows.values() for column in cells}
    return [{**columns, **cells} for cells in rows.values()]


@page.table
def benchmark_run(r: Records) -> Sequence[Row]:
    """The machine, the peer libraries and the date of the published run of the benchmark."""
    return benchmarks.run_table("formats")
