"""Every number format: its error on real weights and inputs, and the accuracy of the model in it.

One case measures all presets. A format with a fraction width or an exponent bias is measured twice:
as its preset has it, and *placed*: with the width or bias, one for weights and one for inputs, that
keeps other data of the same kind best. Accuracies are those of question 3.2. For each library that
has some of the formats, a case compares its results with ours.

Units: signal to error in decibels.
"""

import importlib.util
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from experiments.formats import design
from experiments.formats.design import QUANTILES
from experiments.lab3_formats.records import untrained
from madl.formats.presets import PRESETS
from madl.logbook import benchmarks
from madl.logbook.charts import Chart, linear, points
from madl.logbook.experiment import TUNING_SEED, Experiment, Plan
from madl.logbook.numbers import ExactValue, NumberFn, computed, exact
from madl.logbook.records import Params, Pending, Record, Records, Row, digest_of
from madl.logbook.values import number, per_cent, superscript
from madl.training import baseline

page = Experiment(title="Number formats", needs=("lab3_formats",))

STEM = "formats"
DRAWN_BITS = 9  # of a value, below
LABELLED = ("mxint8", "mxfp4-e2m1", "log(8)", "minifloat(6,3)", "fixed(8,4)")


@page.cases
def cases(plan: Plan) -> Iterable[Params]:
    formats = digest_of(dict.fromkeys(PRESETS))  # so a new one is measured
    yield {"part": "errors", **baseline.drawn_params(plan, TUNING_SEED), "formats": formats}
    values = plan.profile.choose(smoke=20_000, quick=design.COMPARED_VALUES)
    for library in design.LIBRARIES:
        yield {"part": "agreement", "library": library, "values": values, "seed": TUNING_SEED}


@page.unavailable
def without_library(params: Params) -> str | None:
    if params["part"] != "agreement":
        return None
    library = str(params["library"])
    module, how = design.LIBRARIES[library]
    if importlib.util.find_spec(module):
        return None
    return f"{library} is not installed: {how}"


def record_of(r: Records) -> Record:
    """The record of all presets' errors."""
    return r.of_experiment(STEM).single(part="errors")


def facts_of(r: Records) -> dict[str, dict[str, Any]]:
    """Preset → its facts and errors, as `study.measure_format` recorded them."""
    return record_of(r).values["formats"]


def signal_to_error(name: str, part: str = "weights", *, placed: bool = False) -> NumberFn:
    """A function that reads a format's signal to error in dB, on weights or on inputs."""

    def read(record: Record) -> float:
        facts = record.values["formats"][name]
        return round((facts["placed"] if placed else facts)[f"{part}_db"], 1)

    return computed(record_of, read, "dB")


def best_of_bits(bits: int) -> NumberFn:
    """A function that reads the largest signal to error of weights at so many bits, with whose.

    A format is placed if it can be; the bits of a block's scale are not counted.
    """

    def read(r: Records) -> ExactValue:
        of_bits = (item for item in placed_facts(r) if int(item[1]["bits"]) == bits)
        name, facts = next(of_bits)
        unit = f"dB ({PRESETS[name].title})"
        return exact(round(facts["weights_db"], 1), [record_of(r)], unit)

    return read


def magnitude(part: str, quantile: float) -> NumberFn:
    """A function that reads a quantile of the magnitudes of weights or of inputs, to two digits."""
    index = QUANTILES.index(quantile)
    return computed(
        record_of, lambda record: float(f"{record.values['magnitudes'][part][index]:.2g}")
    )


page.numbers(
    best_4=best_of_bits(4),
    best_8=best_of_bits(8),
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


def agreements(r: Records) -> list[tuple[str, dict[str, Any]]]:
    """(library with its version, a format that it shares with us) for every one that was run."""
    compared = [
        (f"{record.case.params['library']} {record.values['version']}".strip(), row)
        for record in r.of_experiment(STEM).where(part="agreement")
        for row in record.values["rows"]
    ]
    if not compared:
        raise Pending("a library to compare with")
    return compared


@page.table
def agreement(r: Records) -> Sequence[Row]:
    """By library and kind of format: values compared, and the results that differ, by what they
    are."""
    groups: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for library, row in agreements(r):
        groups.setdefault((library, row["group"]), []).append(row)
    return [
        {
            "library": library,
            "formats": f"{len(rows)} × {group}",
            "values": compared_in(rows),
            "not zero": per_cent(sum(row["nonzero"] for row in rows) / compared_in(rows)),
            "differing": differing(rows, ordinary=True),
            "and on special values": differing(rows, ordinary=False),
        }
        for (library, group), rows in groups.items()
    ]


def compared_in(rows: Sequence[Mapping[str, Any]]) -> int:
    """The number of results that were compared."""
    return sum(row["compared"] for row in rows)


def differing(rows: Sequence[Mapping[str, Any]], *, ordinary: bool) -> str:
    """Shares of the compared results that differ on ordinary or on special values, by reason."""
    compared, counts = compared_in(rows), dict[str, int]()
    for row in rows:
        for reason, count in row["why"].items():
            if (reason in design.ORDINARY) is ordinary:
                counts[reason] = counts.get(reason, 0) + count
    largest_first = sorted(counts.items(), key=lambda item: -item[1])
    texts = [f"{reason} {number(100 * count / compared)} %" for reason, count in largest_first]
    return ", ".join(texts) or "none"


@page.table
def disagreements(r: Records) -> Sequence[Row]:
    """An example of every reason for which a library's results differ from ours."""
    rows: dict[tuple[str, str, str], Row] = {}
    for library, row in agreements(r):
        for reason, example in row["examples"].items():
            value, ours, theirs = (example_text(x) for x in example)
            cells = {"format": row["format"], "value": value, "ours": ours, "theirs": theirs}
            rows.setdefault(
                (library, row["group"], reason), {"library": library, "on": reason, **cells}
            )
    return [*rows.values()]


@page.table
def public_bugs(r: Records) -> Sequence[Row]:
    """Faults of such rules that others have reported, with a link."""
    return [
        {"reported": fault, "where": f"https://github.com/{repository}/{number}"}
        for fault, repository, number in design.PUBLIC_BUGS
    ]


def example_text(value: float | None) -> str:
    """A value to four digits; None stands for NaN and infinity, which JSON does not have."""
    return "not finite" if value is None else f"{value:.4g}".replace("-", "−")


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
