"""Every number format: its constants and values, and what it loses of real weights and inputs.

One case takes all presets at once. A format whose values lie where a fraction width or a bias puts
them is measured *moved* too: for weights and for inputs at the position that keeps other data of
the same kind best. The digest of the formats' sources is a parameter, so a changed one is measured
again. Units: signal to error in decibels.
"""

import hashlib
import math
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from madl.logbook import benchmarks
from madl.logbook.charts import Chart, linear, points
from madl.logbook.experiment import Context, Experiment, Plan
from madl.logbook.numbers import Counted, counted
from madl.logbook.records import Params, Pending, Records, Row, Values
from madl.logbook.stats import number, superscript
from madl.training import baseline
from madl.training.families import short

page = Experiment(title="Number formats")

ROOT = Path(__file__).parents[2]
DRAWN_BITS = 9  # below
PARTS = ("weights", "inputs")
NAMED = ("mxint8", "mxfp4-e2m1", "log(8)", "fixed(8,4)", "fixed(8) moved")  # in the chart
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
FAMILIES = {
    "binary": "binary, ternary",
    "fixed": "fixed, scaled",
    "log": "logarithmic",
    "minifloat": "floating",
    "blocked": "with a block's scale",
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


# ---- numbers ------------------------------------------------------------------------------------


def values(r: Records) -> Values:
    return r.of("formats").one().values


def db(r: Records, name: str, part: str = "weights") -> Counted:
    """Signal to error of a format."""
    return counted(round(values(r)["formats"][name][f"{part}_db"], 1), "dB", of=r.of("formats"))


def magnitude(r: Records, part: str, at: int) -> Counted:
    """A quantile of a part's magnitudes: 0 is the 5th percentile, 2 the 95th."""
    return counted(float(f"{values(r)['magnitudes'][part][at]:.1g}"), of=r.of("formats"))


page.numbers(
    mxint8=partial(db, name="mxint8"),
    mxfp4=partial(db, name="mxfp4-e2m1"),
    fixed_4=partial(db, name="fixed(4,2)"),
    fixed_4_moved=partial(db, name="fixed(4) moved"),
    fixed_8=partial(db, name="fixed(8,4)"),
    fixed_8_moved=partial(db, name="fixed(8) moved"),
    log_8=partial(db, name="log(8)"),
    block_log_8=partial(db, name="block-log(8,8,block=16)"),
    minifloat_8=partial(db, name="minifloat(8,4)"),
    minifloat_8_moved=partial(db, name="minifloat(8,4) moved"),
    small_weights=partial(magnitude, part="weights", at=0),
    large_weights=partial(magnitude, part="weights", at=2),
    small_inputs=partial(magnitude, part="inputs", at=0),
    large_inputs=partial(magnitude, part="inputs", at=2),
    num_weights=lambda r: counted(values(r)["num_weights"], of=r.of("formats")),
    num_inputs=lambda r: counted(values(r)["num_inputs"], of=r.of("formats")),
)


# ---- chart and tables ---------------------------------------------------------------------------


def every_format(r: Records) -> list[dict[str, Any]]:
    """Every format with its name, those that keep the weights best first."""
    every = [{"name": short(name), **f} for name, f in values(r)["formats"].items()]
    return sorted(every, key=lambda f: -f["weights_db"])


@page.chart
def error(r: Records) -> Chart:
    """Of weights, the narrower formats."""
    rows: list[Row] = [
        {
            "format": f["name"],
            "family": FAMILIES[family],
            "bits": f["bits"],
            "signal to error": f["weights_db"],
            "named": f["name"] if f["name"] in NAMED else None,
        }
        for family in FAMILIES
        for f in every_format(r)
        if f["family"] == family and f["bits"] < DRAWN_BITS
    ]
    return Chart(
        rows,
        x=linear("bits", "bits a value"),
        y=linear(label="signal to error", unit="dB", limits=(0, None)),
        marks=[points("signal to error", by="family", text="named")],
    )


@page.table
def formats(r: Records) -> Sequence[Row]:
    return [
        {
            "format": f"`{f['name']}`",
            "bits": f"{f['bits']:g}",
            "weights (dB)": f"{f['weights_db']:.1f}".replace("-", "−"),
            "inputs (dB)": f"{f['inputs_db']:.1f}".replace("-", "−"),
            "positive values": range_of(f),
            "constants": f["constants"],
            "source": source_of(f),
        }
        for f in every_format(r)
    ]


def range_of(f: Mapping[str, Any]) -> str:
    if f["is_scaled"]:
        return "scaled"
    if f["range"] is None:
        return "moved"
    return f"{brief(f['smallest'])} to {brief(f['range'][1])}"


def brief(value: float) -> str:
    """Three digits, with a power of two where the number would be long."""
    if 1e-3 <= value < 1e5:
        return number(float(value))
    mantissa, exponent = math.frexp(value)
    power = f"2{superscript(exponent - 1)}"
    return power if mantissa == 0.5 else f"{number(2 * mantissa)} · {power}"


def source_of(f: Mapping[str, Any]) -> str:
    source = SOURCES.get(f["kind"], "not stated")
    return source.replace("tensor", "channel") if "per row" in f["constants"] else source


COLUMNS = {  # of the benchmark, by what its work's title holds
    "in cache": "in cache",
    "(memory)": "in memory",
    "training step": "training step",
    "evaluation": "evaluation",
}
PLAIN, PEER = "plain torch (no compiler)", "peer of "


@page.table
def times(r: Records) -> Sequence[Row]:
    """Of the last published run of `benchmarks/formats.py`: copies of a tensor, steps of FP32."""
    made: dict[str, dict[str, str]] = {}
    for (title, _), arms in benchmarks.arms("formats").items():
        base = arms.get("copy") or arms.get("float32")
        column = next((name for held, name in COLUMNS.items() if held in title), None)
        for variant, a in arms.items():
            is_peer = variant.startswith(PEER)
            name, _, how = (variant, "", "") if is_peer else variant.partition(", ")
            if column is None or base is None or a is base or how not in ("", PLAIN):
                continue
            shown = f"`{short(name)}`" if not is_peer else name.partition(": ")[2]
            cells = made.setdefault(shown, {"variant": shown})
            cells[f"{column}, plain torch" if how else column] = f"{a / base:i}"
    if not made:
        raise Pending("a published run of the benchmark formats with its samples")
    columns = {column: "–" for cells in made.values() for column in cells}
    return [{**columns, **cells} for cells in made.values()]


@page.table
def benchmark_run(r: Records) -> Sequence[Row]:
    """Where and when."""
    return list(benchmarks.run_table("formats"))
