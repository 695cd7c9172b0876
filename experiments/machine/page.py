"""What the machine can do at most, to hold speeds of the other pages against."""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import chain
from statistics import median

from madl.logbook import benchmarks, stats
from madl.logbook.arms import timed
from madl.logbook.charts import Chart, category, intervals, log
from madl.logbook.experiment import Context, Experiment, Plan
from madl.logbook.numbers import Counted, counted
from madl.logbook.records import Params, Pending, Record, Records, Row, Values
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
            "budget_s": choose(smoke=0.05, quick=5.0),
        }


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
    measured = compare(work, device=device, budget_s=float(params["budget_s"]))
    return {
        "measurements": {name: m.to_json() for name, m in measured.items()},
        "amount": {
            **{"copy": 8.0 * len(source), "read": 4.0 * len(source)},
            "cached": CACHED_COPIES * 8.0 * len(near),
            **dict.fromkeys(("fp32 part", "fp16"), 2.0 * small**3),
            **dict.fromkeys(("fp32", "bf16", "int8"), 2.0 * n**3),
        },
    }


# Each kind of work: its title, its unit, and the parameter that says how large it is.
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
    """Billions of operations or bytes a second, of each sample."""
    samples = chain.from_iterable(timed(Records([record]), work).samples_s)
    return [record.values["amount"][work] / seconds / 1e9 for seconds in samples]


def reached(r: Records, work: str, of: Callable[[Sequence[float]], float] = max) -> Counted:
    """The fastest sample on the CPU: a ceiling is what was reached, not what is usual."""
    record = r.one(device="cpu")
    return counted(of(rates(record, work)), WORK[work][1], of=[record])


def verdicts(r: Records) -> tuple[int, int, int]:
    """On times, of the last `cli.py doctor --repeat N --publish`: all, alike in every run, and
    turned into their opposite."""
    rows, runs = (benchmarks.read("repeats")[name] for name in ("rows", "runs"))
    found = [[row.get(name, 0) for name in ("supported", "refuted", "undecided")] for row in rows]
    opposite = sum(supported > 0 < refuted for supported, refuted, _ in found)
    return len(rows), sum(runs in counts for counts in found), opposite


page.numbers(
    **{work: partial(reached, work=work) for work in ("fp32", "bf16", "fp16", "int8")},
    **{work: partial(reached, work=work) for work in ("copy", "cached")},
    fp32_part=partial(reached, work="fp32 part"),
    usual_copy=partial(reached, work="copy", of=median),
    repeats=lambda r: int(benchmarks.read("repeats")["runs"]),
    verdicts=lambda r: verdicts(r)[0],
    steady=lambda r: verdicts(r)[1],
    opposite=lambda r: verdicts(r)[2],
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


@page.table
def again_on(r: Records) -> Sequence[Row]:
    return benchmarks.run_table("repeats")


@page.table
def again(r: Records) -> Sequence[Row]:
    """Every claim on times: how often each outcome came out, the least and the largest effect."""
    return [
        {
            "hypothesis": row["hypothesis"].rstrip("."),
            **{name: row.get(name, 0) for name in benchmarks.OUTCOMES},
            "effects": " to ".join(stats.number(f(row["effects"])) for f in (min, max)) + " ×",
        }
        for row in benchmarks.read("repeats")["rows"]
    ]
