"""Every number format: its bits, its values, and what it loses of real weights and activations.

One case takes all presets at once, because the tensors are what takes time to get. The digest of
the formats' sources is a parameter, so a new or changed format is measured again.
"""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from madl.logbook import benchmarks, plots, stats
from madl.logbook.experiment import Claim, Context, Experiment, Figure, Params, Plan, Row
from madl.logbook.results import Pending, Records
from madl.training import baseline

ROOT = Path(__file__).parents[1]
PROBE_SENTENCES = 16
LINE_BITS = 6.0  # formats up to this width fit on a number line


def params(plan: Plan) -> Iterable[Params]:
    digest = hashlib.sha256()
    for path in sorted((ROOT / "madl" / "formats").glob("*.py")):
        digest.update(path.read_bytes())
    yield {**baseline.recipe_params(plan, 0), "formats": digest.hexdigest()[:12]}


def run(params: Params, ctx: Context) -> Mapping[str, Any]:
    from madl.compression.quantize import linear_layers
    from madl.formats import presets

    model = baseline.fine_tuned(params, ctx)
    validation = baseline.load_splits(params).validation
    batch = validation.batch(range(min(PROBE_SENTENCES, len(validation))))
    tensors = {
        "weights": [layer.weight.detach() for layer in linear_layers(model)],
        "inputs": linear_inputs(model, batch),
    }
    counts = {f"num_{part}": sum(x.numel() for x in found) for part, found in tensors.items()}
    described = {
        name: describe(preset)
        | {f"{part}_db": sqnr_db(preset, found) for part, found in tensors.items()}
        for name, preset in presets().items()
    }
    return {"formats": described, **counts}


def linear_inputs(model: Any, batch: Mapping[str, Any]) -> list[Any]:
    """What every Linear layer is given for this batch, without gradients."""
    import torch

    from madl.compression.quantize import linear_layers

    found: list[Any] = []
    hooks = [
        layer.register_forward_pre_hook(lambda _, arguments: found.append(arguments[0].detach()))
        for layer in linear_layers(model)
    ]
    with torch.no_grad():
        model.eval()(**batch)
    for hook in hooks:
        hook.remove()
    return found


def sqnr_db(number_format: Any, tensors: Iterable[Any]) -> float:
    """Signal to quantization noise over all values of these tensors, in decibels."""
    import math

    import torch

    signal = noise = 0.0
    for x in tensors:
        error = number_format.quantize(x).sub_(x)
        signal += float(torch.linalg.vector_norm(x, dtype=torch.float64)) ** 2
        noise += float(torch.linalg.vector_norm(error, dtype=torch.float64)) ** 2
    return 10 * math.log10(signal / noise) if noise else math.inf


def describe(number_format: Any) -> dict[str, Any]:
    """Facts of the format itself, from its values where they are finite and few."""
    values = number_format.values()
    positive = values[values > 0] if values is not None else None
    listed = values is not None and number_format.bits <= LINE_BITS
    return {
        "family": type(number_format).__module__.rpartition(".")[2],
        "bits": number_format.bits,
        "range": number_format.range,
        "num_values": None if values is None else len(values),
        "smallest": float(positive.min()) if positive is not None and len(positive) else None,
        "exact_in_bf16": number_format.exact_in_bf16,
        "values": values.tolist() if listed else None,
    }


# ---- claims -------------------------------------------------------------------------------------


def _formats(records: Records) -> dict[str, dict[str, Any]]:
    found = records.where(method=None)
    if not found:
        raise Pending("formats")
    return found[0].values["formats"]


def _num(records: Records, part: str) -> int:
    return records.where(method=None)[0].values[f"num_{part}"]


def best_at_8_bits(records: Records) -> Claim:
    """Which family keeps most of the weights at about eight bits, a scale counted in."""
    eight = {name: f for name, f in _formats(records).items() if 8 <= f["bits"] < 9}
    best = max(eight, key=lambda name: eight[name]["weights_db"])
    plain = eight["fixed(8,4)"]["weights_db"]
    text = (
        f"With about eight bits a value, {best} keeps the weights best: "
        f"{eight[best]['weights_db']:.1f} dB above its error, fixed(8,4) {plain:.1f} dB"
    )
    found = stats.counted(
        plain, eight[best]["weights_db"], _num(records, "weights"), unit=stats.Unit.DECIBEL
    )
    return found.improves(text)


def scale_beats_bits(records: Records) -> Claim:
    formats = _formats(records)
    four, eight = formats["mxint4"], formats["fixed(8,4)"]
    text = (
        f"A scale for each block is worth more than twice the bits: mxint4 ({four['bits']:g} bits) "
        f"keeps {four['weights_db']:.1f} dB of the weights, fixed(8,4) {eight['weights_db']:.1f} dB"
    )
    found = stats.counted(
        eight["weights_db"],
        four["weights_db"],
        _num(records, "weights"),
        unit=stats.Unit.DECIBEL,
    )
    return found.improves(text)


def inputs_are_harder(records: Records) -> Claim:
    mxint8 = _formats(records)["mxint8"]
    text = (
        f"Activations are harder than weights: mxint8 keeps {mxint8['inputs_db']:.1f} dB of the "
        f"inputs and {mxint8['weights_db']:.1f} dB of the weights"
    )
    found = stats.counted(
        mxint8["weights_db"],
        mxint8["inputs_db"],
        _num(records, "inputs"),
        unit=stats.Unit.DECIBEL,
    )
    return found.degrades(text)


# ---- figures and tables -------------------------------------------------------------------------

FAMILIES = {
    "fixed": ("fixed point, scaled integer", "first"),
    "minifloat": ("minifloat", "second"),
    "blocked": ("with a scale for each block", "third"),
    "log": ("logarithmic", "fourth"),
    "binary": ("binary, ternary", "chance"),
}


def error_rows(records: Records) -> Sequence[Row]:
    return [
        {
            "format": name,
            "family": f["family"],
            "bits": f["bits"],
            "weights (dB)": round(f["weights_db"], 2),
            "inputs (dB)": round(f["inputs_db"], 2),
        }
        for name, f in sorted(_formats(records).items(), key=lambda item: item[1]["bits"])
        if f["bits"] <= MAX_DRAWN_BITS
    ]


MAX_DRAWN_BITS = 9.0
LABEL_GAP_BITS = 0.9


def draw_error(ax: Any, rows: Sequence[Row]) -> None:
    for family, (title, role) in FAMILIES.items():
        mine = [row for row in rows if row["family"] == family]
        style = plots.line(role, label=title, linestyle="", markersize=7)
        ax.plot(
            [row["bits"] for row in mine],
            [row["weights (dB)"] for row in mine],
            **style | {"marker": style["marker"] or "x"},
        )
    best: dict[float, Row] = {}
    for row in rows:
        if row["bits"] not in best or row["weights (dB)"] > best[row["bits"]]["weights (dB)"]:
            best[row["bits"]] = row
    front = [row for row in best.values() if _is_on_front(row, list(best.values()))]
    ax.plot(
        [row["bits"] for row in front],
        [row["weights (dB)"] for row in front],
        color=plots.color("fp32"),
        linewidth=1,
        zorder=1,
    )
    labelled = max(row["bits"] for row in front) + LABEL_GAP_BITS
    for row in sorted(front, key=lambda row: -row["bits"]):
        if labelled - row["bits"] < LABEL_GAP_BITS or row["family"] == "binary":
            continue  # its label would lie on its neighbour's, or beyond the axis
        labelled = row["bits"]
        ax.annotate(
            str(row["format"]).partition(",block")[0],
            (row["bits"], row["weights (dB)"]),
            xytext=(-7, 6),
            textcoords="offset points",
            ha="right",
            fontsize=9,
        )
    ax.margins(x=0.08, y=0.12)
    ax.set_xlabel("bits per value, with the block's scale")
    ax.set_ylabel("signal to error (dB)")
    plots.legend(ax)


def _is_on_front(row: Any, rows: Sequence[Any]) -> bool:
    return all(
        other["weights (dB)"] < row["weights (dB)"] for other in rows if other["bits"] < row["bits"]
    )


def error_alt(rows: Sequence[Row]) -> str:
    best = max(rows, key=lambda row: row["weights (dB)"])  # type: ignore[arg-type,return-value]
    return (
        f"Signal to error against bits for {len(rows)} formats; the highest is {best['format']} "
        f"with {best['weights (dB)']} dB at {best['bits']} bits."
    )


def line_rows(records: Records) -> Sequence[Row]:
    small = {name: f for name, f in _formats(records).items() if f["values"]}
    return [
        {"format": name, "value": value, "of the largest": value / max(f["values"])}
        for name, f in sorted(small.items(), key=lambda item: (item[1]["bits"], item[0]))
        for value in f["values"]
    ]


def draw_lines(ax: Any, rows: Sequence[Row]) -> None:
    names = list(dict.fromkeys(row["format"] for row in rows))
    for i, name in enumerate(names):
        values = [row["of the largest"] for row in rows if row["format"] == name]
        ax.hlines(i, -1, 1, color=plots.color("chance"), linewidth=0.6)
        ax.plot(values, [i] * len(values), "|", color=plots.color("first"), markersize=13)
    ax.set_yticks(range(len(names)), names)
    ax.set_ylim(len(names) - 0.4, -0.6)
    ax.grid(axis="y", visible=False)
    ax.set_xlabel("value ÷ largest value")


def line_alt(rows: Sequence[Row]) -> str:
    names = dict.fromkeys(row["format"] for row in rows)
    counts = ", ".join(f"{n} {sum(row['format'] == n for row in rows)} values" for n in names)
    return f"Number lines of the small formats: {counts}."


def formats_table(records: Records) -> Sequence[Row]:
    return [
        {
            "format": f"`{name}`",
            "bits": f["bits"],
            "values": "scaled" if f["num_values"] is None else f"{f['num_values']:,}",
            "smallest > 0": "" if f["smallest"] is None else f"{f['smallest']:.3g}",
            "largest": "" if f["range"] is None else f"{f['range'][1]:.4g}",
            "weights (dB)": f"{f['weights_db']:.1f}",
            "inputs (dB)": f"{f['inputs_db']:.1f}",
        }
        for name, f in sorted(_formats(records).items(), key=lambda item: item[1]["bits"])
    ]


def benchmark_table(records: Records) -> Sequence[Row]:
    """The last published run of `benchmarks/formats.py`."""
    return benchmarks.rows("formats")


def benchmark_run(records: Records) -> Sequence[Row]:
    return benchmarks.run_table("formats")


experiment = Experiment(
    title="Number formats",
    params=params,
    run=run,
    needs=("baseline",),
    claims={
        "best_at_8_bits": best_at_8_bits,
        "scale_beats_bits": scale_beats_bits,
        "inputs_are_harder": inputs_are_harder,
    },
    figures={
        "error": Figure(
            caption="What is left of the model's weights. The line joins the formats that no "
            "cheaper one reaches; the decibels count squared error against squared value.",
            rows=error_rows,
            draw=draw_error,
            alt=error_alt,
        ),
        "lines": Figure(
            caption="Where the small formats put their values: evenly, denser towards zero, or "
            "at powers of two.",
            rows=line_rows,
            draw=draw_lines,
            alt=line_alt,
        ),
    },
    tables={"formats": formats_table, "benchmark": benchmark_table, "benchmark_run": benchmark_run},
)
