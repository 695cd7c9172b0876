"""What the machine can do at most: the ceilings that every speed on the other pages is held to."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from madl.logbook.experiment import Context, Experiment, Figure, Params, Plan, Row
from madl.logbook.results import Records


def params(plan: Plan) -> Iterable[Params]:
    size = plan.profile.choose(smoke=128, quick=2048, full=2048)
    megabytes = plan.profile.choose(smoke=1, quick=256, full=256)
    seconds = plan.profile.choose(smoke=0.05, quick=1.0, full=5.0)
    yield {"matrix_size": size, "copy_mb": megabytes, "budget_s": seconds}


def run(params: Params, ctx: Context) -> Mapping[str, Any]:
    import torch

    from madl.machine.timing import compare

    n, megabytes = int(params["matrix_size"]), int(params["copy_mb"])
    a = torch.randn(n, n, device=ctx.device)
    half = a.to(torch.bfloat16)
    codes = torch.randint(-128, 128, (n, n), device=ctx.device, dtype=torch.int8)
    source = torch.ones(megabytes * 250_000, device=ctx.device)
    target = torch.empty_like(source)
    work: dict[str, Callable[[], object]] = {
        "copy": lambda: target.copy_(source),
        "fp32": lambda: torch.mm(a, a),
        "bf16": lambda: torch.mm(half, half),
        "int8": lambda: torch._int_mm(codes, codes),
    }
    timed = compare(work, device=ctx.device, budget_s=float(params["budget_s"]))
    return {
        "measurements": {name: m.to_json() for name, m in timed.items()},
        "amount": {
            "copy": 8.0 * len(source),
            **dict.fromkeys(("fp32", "bf16", "int8"), 2.0 * n**3),
        },
    }


TITLES = {
    "copy": "copy, read + write",
    "fp32": "FP32 matrix product",
    "bf16": "BF16 matrix product",
    "int8": "INT8 matrix product",
}


def ceilings(records: Records) -> Sequence[Row]:
    """Best of the medians' samples: a ceiling is what was reached, not what is usual."""
    values = records.one().values
    rows: list[Row] = []
    for name, title in TITLES.items():
        samples = values["measurements"][name]["samples_s"]
        rate = values["amount"][name] / 1e9
        middle = sorted(samples)[len(samples) // 2]
        rows.append(
            {
                "work": title,
                "unit": "GB/s" if name == "copy" else "Gop/s",
                "reached": round(rate / min(samples), 1),
                "median": round(rate / middle, 1),
                "samples": len(samples),
            }
        )
    return rows


def draw_ceilings(ax: Any, rows: Sequence[Row]) -> None:
    from madl.logbook import plots

    rates = [row for row in rows if row["unit"] == "Gop/s"]
    names = [str(row["work"]).split()[0] for row in rates]
    bars = ax.barh(names, [row["reached"] for row in rates], color=plots.color("first"), height=0.6)
    ax.bar_label(bars, [f"{row['reached']:.0f}" for row in rates], padding=4)
    ax.invert_yaxis()
    ax.margins(x=0.15)
    ax.grid(axis="y", visible=False)
    ax.set_xlabel("Gop/s reached by a large matrix product")


def ceilings_alt(rows: Sequence[Row]) -> str:
    return "; ".join(f"{row['work']}: {row['reached']} {row['unit']}" for row in rows) + "."


experiment = Experiment(
    title="The machine",
    params=params,
    run=run,
    timed=True,
    figures={
        "ceilings": Figure(
            caption="Narrower operands multiply faster where the processor has instructions for "
            "them, and not where it does not.",
            rows=ceilings,
            draw=draw_ceilings,
            alt=ceilings_alt,
        )
    },
)
