"""What the machine can do at most: the ceilings that every speed on the other pages is held to."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from madl.logbook import plots
from madl.logbook.experiment import Context, Experiment, Figure, Params, Plan, Row
from madl.logbook.results import Pending, Record, Records
from madl.machine.device import no_device

CACHED_COPIES = 50  # in a row: the first of them finds the cache as the others left it


def params(plan: Plan) -> Iterable[Params]:
    choose = plan.profile.choose
    for device, scale in (("cpu", 1), ("cuda", 4)):
        yield {
            "device": device,
            "matrix_size": scale * choose(smoke=128, quick=2048, full=2048),
            "slow_size": scale * choose(smoke=64, quick=512, full=512),
            "copy_mb": scale * choose(smoke=1, quick=256, full=256),
            "cached_kb": scale * choose(smoke=64, quick=4096, full=4096),
            "budget_s": choose(smoke=0.05, quick=1.0, full=5.0),
        }


def run(params: Params, ctx: Context) -> Mapping[str, Any]:
    import torch

    from madl.machine.timing import compare

    device, n, small = str(params["device"]), int(params["matrix_size"]), int(params["slow_size"])
    a = torch.randn(n, n, device=device)
    half = a.to(torch.bfloat16)
    slow = a[:small, :small].contiguous().to(torch.float16)  # few processors multiply these
    codes = torch.randint(-128, 128, (n, n), device=device, dtype=torch.int8)
    source = torch.ones(int(params["copy_mb"]) * 250_000, device=device)
    near = torch.ones(int(params["cached_kb"]) * 250, device=device)
    target, near_target = torch.empty_like(source), torch.empty_like(near)
    work: dict[str, Callable[[], object]] = {
        "copy": lambda: target.copy_(source),
        "cached": lambda: [near_target.copy_(near) for _ in range(CACHED_COPIES)],
        "fp32": lambda: torch.mm(a, a),
        "fp16": lambda: torch.mm(slow, slow),
        "bf16": lambda: torch.mm(half, half),
        "int8": lambda: torch._int_mm(codes, codes),
    }
    timed = compare(work, device=device, budget_s=float(params["budget_s"]))
    return {
        "measurements": {name: m.to_json() for name, m in timed.items()},
        "amount": {
            "copy": 8.0 * len(source),
            "cached": CACHED_COPIES * 8.0 * len(near),
            "fp16": 2.0 * small**3,
            **dict.fromkeys(("fp32", "bf16", "int8"), 2.0 * n**3),
        },
    }


TITLES = {
    "copy": "copy, read + write",
    "cached": "copy within the cache",
    "fp32": "FP32 matrix product",
    "fp16": "FP16 matrix product",
    "bf16": "BF16 matrix product",
    "int8": "INT8 matrix product",
}


def ceilings(records: Records) -> Sequence[Row]:
    """Best of the medians' samples: a ceiling is what was reached, not what is usual."""
    if not records:
        raise Pending("no device is measured")
    return [row for record in records for row in _reached(record)]


def _reached(record: Record) -> Sequence[Row]:
    values, params = record.values, record.case.params
    device = "CPU" if params["device"] == "cpu" else record.run.device
    rows: list[Row] = []
    for name, title in TITLES.items():
        samples = values["measurements"][name]["samples_s"]
        rate = values["amount"][name] / 1e9
        middle = sorted(samples)[len(samples) // 2]
        rows.append(
            {
                "device": device,
                "work": title,
                "unit": "GB/s" if name in ("copy", "cached") else "Gop/s",
                "reached": round(rate / min(samples), 1),
                "median": round(rate / middle, 1),
                "samples": len(samples),
            }
        )
    return rows


def draw_ceilings(ax: Any, rows: Sequence[Row]) -> None:
    rates = [row for row in rows if row["unit"] == "Gop/s"]
    several = len({row["device"] for row in rates}) > 1
    names = [str(row["work"]).split()[0] for row in rates]
    if several:
        names = [f"{name}, {str(row['device']).split()[0]}" for name, row in zip(names, rates)]
    bars = ax.barh(names, [row["reached"] for row in rates], color=plots.color("first"), height=0.6)
    ax.bar_label(bars, [f"{row['reached']:,.3g}" for row in rates], padding=4)
    ax.invert_yaxis()
    if several:
        ax.set_xscale("log")
    ax.margins(x=0.15)
    ax.grid(axis="y", visible=False)
    ax.set_xlabel("Gop/s reached by a large matrix product")


def ceilings_alt(rows: Sequence[Row]) -> str:
    said = (f"{r['device']}, {r['work']}: {r['reached']} {r['unit']}" for r in rows)
    return "; ".join(said) + "."


experiment = Experiment(
    title="The machine",
    params=params,
    run=run,
    timed=True,
    unavailable=no_device,
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
