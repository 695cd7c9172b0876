"""What the machine can do at most: the ceilings that every speed on the other pages is held to."""

from collections.abc import Callable, Iterable, Sequence
from statistics import median

from madl.execution.ceilings import rates
from madl.logbook import benchmarks, stats
from madl.logbook.charts import Chart, category, intervals, log
from madl.logbook.claims import Fact
from madl.logbook.experiment import Context, Experiment, Plan
from madl.logbook.records import Params, Pending, Records, Row, Values
from madl.machine.device import no_device

page = Experiment(title="The machine", timed=True)
page.unavailable(no_device)

CACHED_COPIES = 50  # in a row: the first of them finds the cache as the others left it


@page.cases
def cases(plan: Plan) -> Iterable[Params]:
    choose = plan.profile.choose
    for device, scale in (("cpu", 1), ("cuda", 4)):
        matrix_size = scale * choose(smoke=128, quick=2048)
        yield {
            "device": device,
            "matrix_size": matrix_size,
            "slow_size": matrix_size if device == "cuda" else choose(smoke=64, quick=512),
            "copy_mb": scale * choose(smoke=1, quick=256),
            "cached_kb": scale * choose(smoke=64, quick=4096),
            "budget_s": choose(smoke=0.05, quick=1.0, full=5.0),
        }


@page.quick
def quick(params: Params) -> bool:
    return params["device"] == "cpu"


@page.run
def run(params: Params, ctx: Context) -> Values:
    import torch

    from madl.machine.timing import compare

    device, n, small = str(params["device"]), int(params["matrix_size"]), int(params["slow_size"])
    a = torch.randn(n, n, device=device)
    half = a.to(torch.bfloat16)
    part = a[:small, :small].contiguous()
    slow = part.to(torch.float16)  # few CPUs multiply these
    codes = torch.randint(-128, 128, (n, n), device=device, dtype=torch.int8)
    columns = codes.t() if device == "cuda" else codes  # what each has a kernel for
    source = torch.ones(int(params["copy_mb"]) * 250_000, device=device)
    near = torch.ones(int(params["cached_kb"]) * 250, device=device)
    target, near_target = torch.empty_like(source), torch.empty_like(near)
    work: dict[str, Callable[[], object]] = {
        "copy": lambda: target.copy_(source),
        "read": lambda: source.sum(),
        "cached": lambda: [near_target.copy_(near) for _ in range(CACHED_COPIES)],
        "fp32": lambda: torch.mm(a, a),
        "fp32 part": lambda: torch.mm(part, part),
        "fp16": lambda: torch.mm(slow, slow),
        "bf16": lambda: torch.mm(half, half),
        "int8": lambda: torch._int_mm(codes, columns),
    }
    timed = compare(work, device=device, budget_s=float(params["budget_s"]))
    return {
        "measurements": {name: m.to_json() for name, m in timed.items()},
        "amount": {
            "copy": 8.0 * len(source),
            "cached": CACHED_COPIES * 8.0 * len(near),
            "read": 4.0 * len(source),
            **dict.fromkeys(("fp32 part", "fp16"), 2.0 * small**3),
            **dict.fromkeys(("fp32", "bf16", "int8"), 2.0 * n**3),
        },
    }


# Each kind of work: its title, its unit, and the parameter that says how large it is.
WORK = {
    "copy": ("copy, read + write", "GB/s", "{copy_mb:,} MB"),
    "read": ("sum, read", "GB/s", "{copy_mb:,} MB"),
    "cached": ("copy within the cache", "GB/s", "{cached_kb:,} kB"),
    "fp32": ("FP32 matrix product", "Gop/s", "{matrix_size:,} square"),
    "fp32 part": ("FP32 matrix product", "Gop/s", "{slow_size:,} square"),
    "fp16": ("FP16 matrix product", "Gop/s", "{slow_size:,} square"),
    "bf16": ("BF16 matrix product", "Gop/s", "{matrix_size:,} square"),
    "int8": ("INT8 matrix product", "Gop/s", "{matrix_size:,} square"),
}


@page.table
def ceilings(r: Records) -> Sequence[Row]:
    """The fastest sample: a ceiling is what was reached, not what is usual."""
    if not r:
        raise Pending("no device is measured")
    rows: list[Row] = []
    for record in r:
        is_cpu = record.case.params["device"] == "cpu"
        for name, (title, unit, size) in WORK.items():
            reached = [rate / 1e9 for rate in rates(record, name)]
            rows.append(
                {
                    "device": "CPU" if is_cpu else record.run.device,
                    "work": title,
                    "size": size.format(**record.case.params),
                    "unit": unit,
                    "reached": max(reached),
                    "median": median(reached),
                    "samples": len(reached),
                }
            )
    return rows


@page.chart(
    caption="The fastest of all samples of each matrix product, by number format and size. The "
    "axis is logarithmic: equal distances are equal factors."
)
def products(r: Records) -> Chart:
    rows = [row for row in ceilings(r) if row["unit"] == "Gop/s"]
    return Chart(
        [{**row, "work": f"{row['work']}, {row['size']}"} for row in rows],
        x=log("reached", "reached", "Gop/s"),
        y=category("work"),
        marks=[intervals("reached", by="device")],
    )


# ---- the last published `cli.py doctor --repeat N --publish` ------------------------------------


@page.fact
def repeated(r: Records) -> Fact:
    rows = again(r)
    runs, profile = (benchmarks.kept("repeats", what) for what in ("runs", "profile"))
    decided = ("supported", "refuted")
    steady = [row for row in rows if any(row[name] == runs for name in decided)]
    opposite = sum(all(row[name] for name in decided) for row in rows)
    some = sum(any(row[name] for name in decided) for row in rows) - len(steady) - opposite
    return Fact(
        text=f"Of {len(rows)} verdicts on times, {len(steady)} were decided alike in each of "
        f"{runs} runs, {some} in some of them only, {len(rows) - len(steady) - some - opposite} "
        f"in none, and {opposite} turned into their opposite",
        of=f"{runs} runs of every timed case of the {profile} profile, one after the other, on "
        + benchmarks.machine("repeats"),
    )


@page.table
def again(r: Records) -> Sequence[Row]:
    """Every claim on times: how often each outcome came out, the least and the largest effect."""
    return [
        {
            "hypothesis": row["hypothesis"].rstrip("."),
            **{name: row.get(name, 0) for name in benchmarks.OUTCOMES},
            "effects": " to ".join(stats.number(f(row["effects"])) for f in (min, max)) + " ×",
        }
        for row in benchmarks.rows("repeats")
    ]


@page.table
def repeats_run(r: Records) -> Sequence[Row]:
    return benchmarks.run_table("repeats")[:-1]  # how busy each run was, its outcomes say
