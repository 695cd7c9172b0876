"""The machine's ceilings, to hold speeds of the other pages against."""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import chain
from statistics import median

from experiments.machine import design
from madl.logbook.arms import timed_arm
from madl.logbook.charts import Chart, category, intervals, log
from madl.logbook.experiment import Context, Experiment, Plan
from madl.logbook.numbers import ExactValue, exact
from madl.logbook.records import Params, Pending, Record, Records, Row, Values

page = Experiment(title="The machine", timed=True)


@page.cases
def cases(plan: Plan) -> Iterable[Params]:
    choose = plan.profile.choose
    for device, scale in (("cpu", 1), ("cuda", design.GPU_SCALE)):
        matrix_size = scale * choose(smoke=128, quick=design.MATRIX_SIZE)
        slow_size = choose(smoke=64, quick=design.SLOW_MATRIX_SIZE)
        yield {
            "device": device,
            "matrix_size": matrix_size,
            "slow_size": matrix_size if device == "cuda" else slow_size,
            "copy_mb": scale * choose(smoke=1, quick=design.COPY_MB),
            "cached_kb": scale * choose(smoke=64, quick=design.CACHED_KB),
            "budget_s": choose(smoke=0.05, quick=design.BUDGET_S),
        }


@page.run
def run(params: Params, ctx: Context) -> Values:
    """Time copies and products on a device; `amount` has the bytes or operations of each."""
    import torch

    from madl.machine.timing import compare

    device, n, small = str(params["device"]), int(params["matrix_size"]), int(params["slow_size"])
    a = torch.randn(n, n, device=device)
    half = a.to(torch.bfloat16)
    part = a[:small, :small].contiguous()
    slow = part.to(torch.float16)  # few CPUs multiply these
    codes = torch.randint(-128, 128, (n, n), device=device, dtype=torch.int8)
    columns = codes.t() if device == "cuda" else codes  # as its kernel takes them
    source = torch.ones(int(params["copy_mb"]) * 250_000, device=device)
    near = torch.ones(int(params["cached_kb"]) * 250, device=device)
    target, near_target = torch.empty_like(source), torch.empty_like(near)
    work: dict[str, Callable[[], object]] = {
        "copy": lambda: target.copy_(source),
        "read": lambda: source.sum(),
        "cached": lambda: [near_target.copy_(near) for _ in range(design.CACHED_COPIES)],
        "fp32": lambda: torch.mm(a, a),
        "fp32 part": lambda: torch.mm(part, part),
        "fp16": lambda: torch.mm(slow, slow),
        "bf16": lambda: torch.mm(half, half),
        "int8": lambda: torch._int_mm(codes, columns),
    }
    times = compare(work, device=device, budget_s=float(params["budget_s"]))
    return {
        "measurements": {name: time.to_json() for name, time in times.items()},
        "amount": {
            **{"copy": 8.0 * len(source), "read": 4.0 * len(source)},
            "cached": design.CACHED_COPIES * 8.0 * len(near),
            **dict.fromkeys(("fp32 part", "fp16"), 2.0 * small**3),
            **dict.fromkeys(("fp32", "bf16", "int8"), 2.0 * n**3),
        },
    }


# The title of each kind of work, its unit, and the parameter that says how large it is.
WORK = {
    "copy": ("copy, read + write", "GB/s", "{copy_mb:,} MB"),
    "read": ("sum, read", "GB/s", "{copy_mb:,} MB"),
    "cached": ("copy within the cache", "GB/s", "{cached_kb:,} kB"),
    "fp32": ("FP32 product", "Gop/s", "{matrix_size:,} square"),
    "fp32 part": ("FP32 product", "Gop/s", "{slow_size:,} square"),
    "fp16": ("FP16 product", "Gop/s", "{slow_size:,} square"),
    "bf16": ("BF16 product", "Gop/s", "{matrix_size:,} square"),
    "int8": ("INT8 product", "Gop/s", "{matrix_size:,} square"),
}


def rates(record: Record, work: str) -> list[float]:
    """The rate of each sample, in billions of operations or bytes a second."""
    samples = chain.from_iterable(timed_arm(Records([record]), work).samples_s)
    return [record.values["amount"][work] / seconds / 1e9 for seconds in samples]


def rate(r: Records, work: str, select: Callable[[Sequence[float]], float] = max) -> ExactValue:
    """A rate on the CPU; by default the fastest sample's, since a ceiling is asked for."""
    record = r.single(device="cpu")
    return exact(select(rates(record, work)), [record], WORK[work][1])


page.numbers(
    **{work: partial(rate, work=work) for work in ("fp32", "bf16", "fp16", "int8")},
    **{work: partial(rate, work=work) for work in ("copy", "cached")},
    fp32_part=partial(rate, work="fp32 part"),
    usual_copy=partial(rate, work="copy", select=median),
)


@page.table
def ceilings(r: Records) -> Sequence[Row]:
    if not r:
        raise Pending("no device is measured")
    rows: list[Row] = []
    for record in r:
        is_cpu = record.case.params["device"] == "cpu"
        for name, (title, unit, size) in WORK.items():
            rows.append(
                {
                    "work": title,
                    "size": size.format(**record.case.params),
                    "unit": unit,
                    "reached": max(rates(record, name)),
                    "median": median(rates(record, name)),
                    "device": record.run.cpu if is_cpu else record.run.device,
                }
            )
    return rows


@page.chart
def products(r: Records) -> Chart:
    rows = [row for row in ceilings(r) if row["unit"] == "Gop/s"]
    return Chart(
        [{**row, "work": f"{row['work'].split()[0]}, {row['size']}"} for row in rows],
        x=log("reached", "reached", "Gop/s"),
        y=category("work", "product, size"),
        marks=[intervals("reached", by="device")],
    )
