"""Every number format: its constants and values, and what it loses of real weights and inputs.

One case takes all presets at once, because the tensors are what takes time to get. A format whose
values lie where a fraction width or a bias puts them is measured *moved* too: for weights and for
inputs at the position that keeps other data of the same kind best. So is what is called the best of
its bits chosen on other data than it is shown on, within three classes: formats with a scale from
the data, moved ones, whose position the data choose once, and formats as they come. The digest of
the formats' sources is a parameter, so a new or changed format is measured again.
"""

import hashlib
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from experiments.formats import format_times
from madl.logbook import searches
from madl.logbook.charts import Chart, line, linear, points
from madl.logbook.claims import Fact
from madl.logbook.drawing import Panel
from madl.logbook.experiment import Context, Experiment, Plan
from madl.logbook.number_line import number_lines
from madl.logbook.records import Params, Records, Row, Values
from madl.logbook.stats import number, superscript
from madl.training import baseline
from madl.training.families import short

page = Experiment(title="Number formats", needs=("baseline",))

ROOT = Path(__file__).parents[2]
DRAWN_BITS = 8
LOW, HIGH = -12, 8  # exponents of the drawn values
PARTS = ("weights", "inputs")
SOURCES = {
    "Binary": "arXiv:1602.02830",
    "ResidualSign": "arXiv:1711.01243; one level, arXiv:1603.05279",
    "Ternary": "arXiv:1605.04711",
    "FixedPoint": "two's complement",
    "ScaledInteger": "`torch.fake_quantize_per_tensor_affine`",  # of a row: per channel
    "Logarithmic": "arXiv:1603.01025",
    "Minifloat": "IEEE 754; OCP FP8 1.0",
    "DenormalMinifloat": "Minifloat without an implicit one",
    "BlockFloat": "MSFP, NeurIPS 2020",
    "BlockMinifloat": "Fox et al., ICLR 2021",
    "BlockLog": "Logarithmic under a shared bias",
    "MXInt": "OCP MX 1.0",
    "MXFloat": "OCP MX 1.0",
}


@page.cases
def cases(plan: Plan) -> Iterable[Params]:
    digest = hashlib.sha256()  # of every byte, comments too: a changed one is another case
    for path in sorted((ROOT / "madl" / "formats").glob("*.py")):
        digest.update(path.read_bytes())
    yield {**baseline.recipe_params(plan, 0), "formats": digest.hexdigest()[:12]}


@page.run
def run(params: Params, ctx: Context) -> Values:
    from experiments.formats import study
    from madl.training import format_errors

    model = baseline.fine_tuned(params, ctx)
    data = format_errors.tensors(model, baseline.load_splits(params))
    counts = {f"num_{part}": sum(x.numel() for x in data[part]) for part in PARTS}
    return {
        "formats": study.measured(data),
        "magnitudes": study.magnitudes(data),
        **counts,
    }


# ---- reading the record -------------------------------------------------------------------------


def _values(r: Records) -> Values:
    return r.of("formats").one().values


def _formats(r: Records) -> list[dict[str, Any]]:
    """Every format with its name, by ascending bits, those that keep the weights best first."""
    found = [{"name": short(name), **f} for name, f in _values(r)["formats"].items()]
    return sorted(found, key=lambda f: (f["bits"], -f["weights_db"]))


CLASSES = {
    "with a scale": "with a scale from the data",
    "moved": "at a position from the data",
    "as it comes": "as they come",
}


def _class(f: Mapping[str, Any]) -> str:
    """Which of the three it is: what the data give it."""
    if f["is_scaled"]:
        return "with a scale"
    return "moved" if f["name"].endswith(" moved") else "as it comes"


def _best(formats: Iterable[Mapping[str, Any]], part: str, of: str) -> Mapping[str, Any] | None:
    """Which of that class keeps the choosing data best; where a format comes is a position too."""
    every = {f["name"]: f for f in formats}
    found = [
        f
        for name, f in every.items()
        if _class(f) == of or (of == "moved" and _moved(name) in every)
    ]
    return max(found, key=lambda f: f[f"choosing {part}_db"], default=None)


def _moved(name: str) -> str:
    """The same format moved: a fraction width is fixed point's only position, and in its name."""
    return re.sub(r"(fixed.*),.*", r"\1)", name) + " moved"


def _near(r: Records, bits: int) -> list[dict[str, Any]]:
    """Formats of so many bits, or a scale's share more."""
    return [f for f in _formats(r) if bits <= f["bits"] < bits + 1]


def _best_at(r: Records, bits: int) -> Fact:
    said: list[str] = []
    for part in PARTS:
        best = {of: _best(_near(r, bits), part, of) for of in CLASSES}
        shown = [
            f"{number(f[f'{part}_db'])} dB {CLASSES[of]} (`{f['name']}`, {number(f['bits'])} bits)"
            for of, f in best.items()
            if f is not None
        ]
        said.append(f"{part} lie above their error by {', '.join(shown)}")
    return Fact(
        text=f"At {bits} bits a value, and up to half of one more for a block's scale, with the "
        f"formats that other data prefer, {'; '.join(said)}",
        of=f"{len(_near(r, bits))} formats, {_values(r)['num_weights']:,} weights, "
        f"{_values(r)['num_inputs']:,} inputs",
    )


@page.fact
def eight_bits(r: Records) -> Fact:
    return _best_at(r, 8)


@page.fact
def four_bits(r: Records) -> Fact:
    return _best_at(r, 4)


# ---- figures and tables -------------------------------------------------------------------------

FAMILIES = {
    "fixed": "fixed point, scaled integer",
    "minifloat": "minifloat",
    "blocked": "with a scale for each block",
    "log": "logarithmic",
    "binary": "binary, ternary",
}


@page.chart(
    caption="How far the model's weights, and the inputs of its layers, lie above the error that a "
    "format makes in them, in decibels of squared value over squared error, for the narrower "
    "formats. The line joins the formats that lie above all of as few bits on other data of the "
    "same kind."
)
def error(r: Records) -> Chart:
    drawn = [f for f in _formats(r) if f["bits"] < DRAWN_BITS + 1]
    rows: list[Row] = []
    for part in PARTS:
        chosen = [f[f"choosing {part}_db"] for f in drawn]
        on_front = searches.front([f["bits"] for f in drawn], chosen)
        rows += [
            {
                "data": part,
                "format": f["name"],
                "family": FAMILIES.get(f["family"], f["family"]),
                "bits": f["bits"],
                "signal to error": f[f"{part}_db"],
                "front": f[f"{part}_db"] if i in on_front else None,
            }
            for i, f in enumerate(drawn)
        ]
    return Chart(
        rows,
        x=linear("bits", "bits a value, with a block's scale"),
        y=linear(label="signal to error", unit="dB", limits=(0, None)),
        marks=[
            line("front", "best for its bits", markers=False, like="FP32"),
            points("signal to error", by="family"),
        ],
        facet="data",
    )


BANDS = "where most of the model's values lie"


def _panels(rows: Sequence[Row]) -> list[Panel]:
    sets: dict[str, dict[str, list[float]]] = {}
    for row in rows:
        sets.setdefault(str(row["group"]), {}).setdefault(str(row["set"]), []).append(row["value"])
    bands = {name: (min(values), max(values)) for name, values in sets.pop(BANDS).items()}
    return [
        Panel(
            title=group,
            svg=number_lines(of, bands, low=LOW, high=HIGH, label=f"Number lines, {group}"),
            folded=i > 0,
        )
        for i, (group, of) in enumerate(sets.items())
    ]


@page.drawing(
    caption="A tick is a positive value of a format that takes no scale from the data, on a scale "
    "of powers of two; narrow ones are drawn moved, too, to where the data put them. The shaded "
    "ranges hold nine tenths of the weights' and inputs' magnitudes.",
    panels=_panels,
    alt=lambda rows: f"{len({row['set'] for row in rows}) - len(PARTS)} number lines of formats",
)
def lines(r: Records) -> Sequence[Row]:
    bands = _values(r)["magnitudes"]
    rows: list[Row] = [
        {"group": BANDS, "set": part, "value": value}
        for part in PARTS
        for value in (bands[part][0], bands[part][-1])
    ]
    for f in _formats(r):
        group = "four bits and fewer" if f["bits"] <= 4 else f"{f['bits']:g} bits"
        sets = f.get("moved", {}) if f["bits"] <= 4 else {}
        for name, values in {f["name"]: f["values"] or (), **sets}.items():
            rows += [{"group": group, "set": name, "value": value} for value in values]
    return rows


@page.table
def by_width(r: Records) -> Sequence[Row]:
    """The best of each whole number of bits, of the three classes."""
    rows: list[Row] = []
    for bits in sorted({int(f["bits"]) for f in _formats(r)}):
        for part in PARTS:
            row: dict[str, Any] = {"bits": bits, "of": part}
            for of in CLASSES:
                best = _best(_near(r, bits), part, of)
                row[of] = f"`{best['name']}`" if best else "there is none"
                row[f"{of}, dB"] = number(best[f"{part}_db"]) if best else "–"
            rows.append(row)
    return rows


@page.table
def formats(r: Records) -> Sequence[Row]:
    return [
        {
            "format": f"`{f['name']}`",
            "bits": int(f["bits"]) if f["bits"] % 1 == 0 else f["bits"],
            "constants": f["constants"],
            "positive values": _magnitudes(f),
            "weights (dB)": f["weights_db"],
            "inputs (dB)": f["inputs_db"],
            "source": _source(f),
        }
        for f in _formats(r)
    ]


def _magnitudes(f: Mapping[str, Any]) -> str:
    if f["is_scaled"]:
        return "scaled by the data"
    if f["range"] is None:
        return "moved"
    return f"{_short(f['smallest'])} to {_short(f['range'][1])}"


def _short(value: float) -> str:
    """Three digits, with a power of two where the number would be long."""
    if 1e-3 <= value < 1e5:
        return number(float(value))
    mantissa, exponent = math.frexp(value)
    power = f"2{superscript(exponent - 1)}"
    return power if mantissa == 0.5 else f"{number(2 * mantissa)} · {power}"


def _source(f: Mapping[str, Any]) -> str:
    found = SOURCES.get(f["kind"], "not stated")
    return found.replace("tensor", "channel") if "per row" in f["constants"] else found


# ---- the last published run of benchmarks/formats.py --------------------------------------------


page.table(format_times.tensor_times)
page.table(format_times.peer_times)
page.table(format_times.model_times)
page.table(format_times.benchmark_run)
