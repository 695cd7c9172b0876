"""Every number format: what it loses of real weights and inputs, and how the model then does.

One case takes all presets at once. A format whose values lie where a fraction width or a bias puts
them is measured *placed*, too: for weights and for inputs where it keeps other data of the same
kind best. The digest of the formats' sources is a parameter, so a changed one is measured again.
Accuracies are those of question 3.2. Units: signal to error in decibels.
"""

import hashlib
import math
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from experiments.lab3_formats.records import untrained
from madl.logbook import benchmarks
from madl.logbook.charts import Chart, linear, points
from madl.logbook.experiment import TUNING_SEED, Context, Experiment, Plan
from madl.logbook.numbers import Counted, counted
from madl.logbook.records import Params, Pending, Records, Row, Values
from madl.logbook.stats import number, superscript
from madl.training import baseline
from madl.training.families import NAMES, group_of, name_of

page = Experiment(title="Number formats", needs=("lab3_formats",))

STEM = "formats"
ROOT = Path(__file__).parents[2]
DRAWN_BITS = 9  # below
LABELLED = ("mxint8", "mxfp4-e2m1", "log(8)", "minifloat(6,3)", "fixed(8,4)")
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
    yield {**baseline.drawn_params(plan, TUNING_SEED), "formats": digest.hexdigest()[:12]}


@page.run
def run(params: Params, ctx: Context) -> Values:
    from experiments.formats import study

    return study.run(params, ctx)


# ---- numbers ------------------------------------------------------------------------------------


def values(r: Records) -> Values:
    return r.of(STEM).one().values


def db(r: Records, name: str, *, placed: bool = False, of: str = "weights") -> Counted:
    """Signal to error of the weights, or of the inputs."""
    found = values(r)["formats"][name]
    found = found["placed"] if placed else found
    return counted(round(found[f"{of}_db"], 1), "dB", of=r.of(STEM))


def magnitude(r: Records, part: str, at: int) -> Counted:
    """A quantile of a part's magnitudes: 0 is the 5th percentile, 2 the 95th."""
    return counted(float(f"{values(r)['magnitudes'][part][at]:.2g}"), of=r.of(STEM))


def how_many(r: Records, what: str) -> Counted:
    return counted(values(r)[what], of=r.of(STEM))


page.numbers(
    mxint8=partial(db, name="mxint8"),
    mxfp4=partial(db, name="mxfp4-e2m1"),
    fixed_4=partial(db, name="fixed(4,2)"),
    fixed_4_placed=partial(db, name="fixed(4,2)", placed=True),
    fixed_4_inputs=partial(db, name="fixed(4,2)", of="inputs"),
    log_8=partial(db, name="log(8)"),
    block_log_8=partial(db, name="block-log(8,8,block=16)"),
    fp8=partial(db, name="minifloat(8,4)"),
    fp8_placed=partial(db, name="minifloat(8,4)", placed=True),
    small_weights=partial(magnitude, part="weights", at=0),
    large_weights=partial(magnitude, part="weights", at=2),
    small_inputs=partial(magnitude, part="inputs", at=0),
    large_inputs=partial(magnitude, part="inputs", at=2),
    num_weights=partial(how_many, what="num_weights"),
    num_inputs=partial(how_many, what="num_inputs"),
)


# ---- chart and tables ---------------------------------------------------------------------------


def every_format(r: Records) -> list[tuple[str, Mapping[str, Any]]]:
    """Every format, placed where it can be, those that keep the weights best first."""
    every = {name: f | f.get("placed", {}) for name, f in values(r)["formats"].items()}
    return sorted(every.items(), key=lambda item: -item[1]["weights_db"])


@page.chart
def error(r: Records) -> Chart:
    """Of weights, the narrower formats."""
    found = dict(every_format(r))
    rows: list[Row] = [
        {
            "format": name_of(name),
            "formats": group_of(name),
            "bits": found[name]["bits"],
            "signal to error": found[name]["weights_db"],
            "named": name_of(name) if name in LABELLED else None,
        }
        for name in NAMES
        if found[name]["bits"] < DRAWN_BITS
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
            "format": name_of(name),
            "bits": f"{f['bits']:g}",
            "accuracy": f"{untrained(r, name)}",
            "weights (dB)": f"{f['weights_db']:.1f}".replace("-", "−"),
            "inputs (dB)": f"{f['inputs_db']:.1f}".replace("-", "−"),
        }
        for name, f in every_format(r)
    ]


@page.table
def definitions(r: Records) -> Sequence[Row]:
    """What each is in code, and where it comes from."""
    found = values(r)["formats"]
    return [
        {
            "format": name_of(name),
            "in code": f"`{name}`",
            "constants": found[name]["constants"],
            "positive values": range_of(found[name]),
            "placed at": found[name].get("placed", {}).get("at", ""),
            "source": source_of(found[name]),
        }
        for name in NAMES
    ]


def range_of(f: Mapping[str, Any]) -> str:
    """As it comes."""
    if f["range"] is None:
        return "scaled"
    return f"{brief(f['smallest'])} to {brief(f['range'][1])}"


def brief(value: float) -> str:
    """All digits where they are few; else three, with a power of two."""
    if 1e-3 <= value < 1e5:
        return f"{value:,.8g}"
    mantissa, exponent = math.frexp(value)
    power = f"2{superscript(exponent - 1)}"
    return power if mantissa == 0.5 else f"{number(2 * mantissa)} · {power}"


def source_of(f: Mapping[str, Any]) -> str:
    source = SOURCES.get(f["kind"], "not stated")
    if f["kind"] == "MXInt" and "width 8" not in f["constants"]:
        return "MXINT8's rule, narrower"  # OCP's only integer is MXINT8
    return source.replace("tensor", "channel") if "per row" in f["constants"] else source


def called(name: str) -> str:
    """A format's name; of another variant of the benchmark, its own."""
    return name_of(name) if name in NAMES else f"`{name}`"


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
    for title, arms in benchmarks.arms("formats").items():
        base = arms.get("copy") or arms.get("float32")
        column = next((name for held, name in COLUMNS.items() if held in title), None)
        for variant, a in arms.items():
            is_peer = variant.startswith(PEER)
            name, _, how = (variant, "", "") if is_peer else variant.partition(", ")
            if column is None or base is None or a is base or how not in ("", PLAIN):
                continue
            shown = called(name) if not is_peer else name.partition(": ")[2]
            cells = made.setdefault(shown, {"variant": shown})
            cells[f"{column}, plain torch" if how else column] = f"{a / base:i}"
    if not made:
        raise Pending("a published run of the benchmark formats with its samples")
    columns = {column: "–" for cells in made.values() for column in cells}
    return [{**columns, **cells} for cells in made.values()]


@page.table
def benchmark_run(r: Records) -> Sequence[Row]:
    """Where and when."""
    return benchmarks.run_table("formats")
