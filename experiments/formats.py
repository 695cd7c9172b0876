"""Every number format: its bits, its values, and what it loses of real weights and activations.

One case takes all presets at once, because the tensors are what takes time to get. The digest of
the formats' sources is a parameter, so a new or changed format is measured again.
"""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from madl.logbook import benchmarks
from madl.logbook.charts import Chart, category, line, linear, points
from madl.logbook.claims import Fact
from madl.logbook.experiment import Context, Experiment, Plan
from madl.logbook.records import Params, Records, Row, Values
from madl.logbook.stats import number
from madl.training import baseline

page = Experiment(title="Number formats", needs=("baseline",))

ROOT = Path(__file__).parents[1]
PROBE_SENTENCES = 16
LINE_BITS = 6.0  # formats up to this width fit on a number line


@page.cases
def cases(plan: Plan) -> Iterable[Params]:
    digest = hashlib.sha256()
    for path in sorted((ROOT / "madl" / "formats").glob("*.py")):
        digest.update(path.read_bytes())
    yield {**baseline.recipe_params(plan, 0), "formats": digest.hexdigest()[:12]}


@page.run
def run(params: Params, ctx: Context) -> Values:
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


# ---- facts --------------------------------------------------------------------------------------


def _values(r: Records) -> Values:
    return r.of("formats").one().values


def _formats(r: Records) -> list[dict[str, Any]]:
    """Every format with its name, by ascending bits."""
    found = _values(r)["formats"]
    return sorted(({"name": name, **f} for name, f in found.items()), key=lambda f: f["bits"])


def _is_scaled(f: Mapping[str, Any]) -> bool:
    """It takes a scale from the data, so it has no values of its own."""
    return f["num_values"] is None


def _best(formats: Iterable[Mapping[str, Any]], *, scaled: bool) -> Mapping[str, Any] | None:
    """Which of those with a scale from the data, or without one, keeps the weights best."""
    found = [f for f in formats if _is_scaled(f) is scaled]
    return max(found, key=lambda f: f["weights_db"], default=None)


def _best_at(r: Records, bits: int) -> Fact:
    near = [f for f in _formats(r) if bits <= f["bits"] < bits + 1]
    best, fixed = _best(near, scaled=True), _best(near, scaled=False)
    assert best is not None
    assert fixed is not None
    return Fact(
        text=f"Of {len(near)} formats with {bits} bits, or a scale's share more, `{best['name']}` "
        f"keeps the weights best, {best['weights_db']:.1f} dB above its error; of those that take "
        f"no scale from the data, `{fixed['name']}` does, {fixed['weights_db']:.1f} dB",
        of=f"{_values(r)['num_weights']:,} weights",
    )


@page.fact
def eight_bits(r: Records) -> Fact:
    return _best_at(r, 8)


@page.fact
def four_bits(r: Records) -> Fact:
    return _best_at(r, 4)


@page.fact
def inputs_and_weights(r: Records) -> Fact:
    formats = _formats(r)
    scaled = [f for f in formats if _is_scaled(f)]
    fixed = [f for f in formats if not _is_scaled(f)]
    worse, fixed_worse = (
        sum(f["inputs_db"] < f["weights_db"] for f in group) for group in (scaled, fixed)
    )
    return Fact(
        text=f"{worse} of {len(scaled)} formats that take a scale from the data lose more of the "
        f"inputs than of the weights; of those whose values are fixed beforehand, {fixed_worse} of "
        f"{len(fixed)} do",
        of=f"{len(formats)} formats, {_values(r)['num_weights']:,} weights, "
        f"{_values(r)['num_inputs']:,} inputs",
    )


# ---- charts and tables --------------------------------------------------------------------------

FAMILIES = {
    "fixed": "fixed point, scaled integer",
    "minifloat": "minifloat",
    "blocked": "with a scale for each block",
    "log": "logarithmic",
    "binary": "binary, ternary",
}
MAX_DRAWN_BITS = 9.0


def front(formats: Sequence[Mapping[str, Any]]) -> list[str]:
    """Those that keep more of the weights than any format of no more bits, by ascending bits."""
    found: list[str] = []
    highest = float("-inf")
    for f in sorted(formats, key=lambda f: (f["bits"], -f["weights_db"])):
        if f["weights_db"] > highest:
            found.append(f["name"])
            highest = f["weights_db"]
    return found


@page.chart(
    caption="How far the model's weights lie above the error that a format makes in them, in "
    "decibels of squared value over squared error. The line joins the formats that no other one of "
    "so few bits reaches."
)
def error(r: Records) -> Chart:
    drawn = [f for f in _formats(r) if f["bits"] <= MAX_DRAWN_BITS]
    best = front(drawn)
    rivals = (_best((f for f in drawn if int(f["bits"]) == b), scaled=False) for b in (4, 6, 8))
    named = {*best, *(f["name"] for f in rivals if f)}
    rows = [
        {
            "format": f["name"],
            "family": FAMILIES[f["family"]],
            "bits": f["bits"],
            "weights (dB)": f["weights_db"],
            "inputs (dB)": f["inputs_db"],
            "front": f["weights_db"] if f["name"] in best else None,
            "label": f["name"] if f["name"] in named else None,
        }
        for f in drawn
    ]
    return Chart(
        rows,
        x=linear("bits", "bits a value, with a block's scale"),
        y=linear(label="signal to error", unit="dB"),
        marks=[
            line("front", "best for its bits", markers=False, like="FP32"),
            points("weights (dB)", by="family", text="label"),
        ],
    )


@page.chart(
    caption="Every value of the small formats whose values are fixed beforehand, over its largest."
)
def lines(r: Records) -> Chart:
    rows = [
        {"format": f["name"], "value": value, "of the largest": value / max(f["values"])}
        for f in _formats(r)
        if f["values"]
        for value in f["values"]
    ]
    return Chart(
        rows,
        x=linear("of the largest", "value over the largest value"),
        y=category("format"),
        marks=[points("format", "a value")],
    )


@page.table
def by_width(r: Records) -> Sequence[Row]:
    """The best of each whole number of bits, with a scale from the data and without."""
    formats = _formats(r)
    rows: list[Row] = []
    for bits in sorted({int(f["bits"]) for f in formats}):
        near = [f for f in formats if int(f["bits"]) == bits]
        row: dict[str, Any] = {"bits": bits, "formats": len(near)}
        for scaled, said in ((False, "values fixed"), (True, "scale from the data")):
            best = _best(near, scaled=scaled)
            row[f"best, {said}"] = f"`{best['name']}`" if best else "there is none"
            row[f"{said} (dB)"] = number(best["weights_db"]) if best else "–"
        rows.append(row)
    return rows


@page.table
def formats(r: Records) -> Sequence[Row]:
    return [
        {
            "format": f"`{f['name']}`",
            "bits": f["bits"],
            "values": "scaled" if _is_scaled(f) else f"{f['num_values']:,}",
            "smallest > 0": "scaled" if f["smallest"] is None else f"{f['smallest']:.3g}",
            "largest": "scaled" if f["range"] is None else f"{f['range'][1]:.4g}",
            "weights (dB)": f["weights_db"],
            "inputs (dB)": f["inputs_db"],
        }
        for f in _formats(r)
    ]


# ---- the last published run of benchmarks/formats.py --------------------------------------------

HOW = {"": "here", "plain torch (no compiler)": "plain torch", "torch.compile of that": "compiled"}


def _pivoted(*, of: str, first: str, peers: bool = False) -> list[Row]:
    """A row a variant, a column for each work and way to do it, of times that are `× of`."""
    made: dict[str, dict[str, Any]] = {}
    for row in benchmarks.rows("formats"):
        variant = row["variant"]
        is_peer = variant.startswith("peer of")
        if not row["time"].endswith(f"× {of}") or variant == of or is_peer is not peers:
            continue
        name, _, how = (variant, "", "") if peers else variant.partition(", ")
        work = row["work"].partition(" (")[2].rstrip(")") or row["work"].partition(",")[0]
        column = work if peers else f"{work}: {HOW.get(how, how)}"
        cells = made.setdefault(name, {first: name.removeprefix("peer of ")})
        cells[column] = row["time"].removesuffix(f" {of}")
    return list(made.values())


@page.table
def tensor_times(r: Records) -> Sequence[Row]:
    return _pivoted(of="copy", first="format")


@page.table
def peer_times(r: Records) -> Sequence[Row]:
    return _pivoted(of="copy", first="peer", peers=True)


@page.table
def model_times(r: Records) -> Sequence[Row]:
    return _pivoted(of="float32", first="format")


@page.table
def benchmark_run(r: Records) -> Sequence[Row]:
    return benchmarks.run_table("formats")
