"""What the machine can do at most: the ceilings that every speed on the other pages is held to."""

from collections.abc import Callable, Iterable, Sequence

from madl.logbook import benchmarks
from madl.logbook.arms import timed
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


@page.run
def run(params: Params, ctx: Context) -> Values:
    import torch

    from madl.machine.timing import compare

    device, n, small = str(params["device"]), int(params["matrix_size"]), int(params["slow_size"])
    a = torch.randn(n, n, device=device)
    half = a.to(torch.bfloat16)
    slow = a[:small, :small].contiguous().to(torch.float16)  # few CPUs multiply these
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


# Each kind of work: its title, its unit, and the parameter that says how large it is.
WORK = {
    "copy": ("copy, read + write", "GB/s", "{copy_mb:,} MB"),
    "cached": ("copy within the cache", "GB/s", "{cached_kb:,} kB"),
    "fp32": ("FP32 matrix product", "Gop/s", "{matrix_size:,} square"),
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
        device, is_cpu = record.case.params["device"], record.case.params["device"] == "cpu"
        for name, (title, unit, size) in WORK.items():
            arm, amount = timed(r, name, device=device), record.values["amount"][name] / 1e9
            fastest = min(min(samples) for samples in arm.samples_s)
            rows.append(
                {
                    "device": "CPU" if is_cpu else record.run.device,
                    "work": title,
                    "size": size.format(**record.case.params),
                    "unit": unit,
                    "reached": amount / fastest,
                    "median": amount / arm.median_s,
                    "samples": sum(len(samples) for samples in arm.samples_s),
                }
            )
    return rows


@page.chart(
    caption="The fastest of all samples of each matrix product. The axis is logarithmic: equal "
    "distances are equal factors. Sizes differ; they are in the table."
)
def products(r: Records) -> Chart:
    return Chart(
        [row for row in ceilings(r) if row["unit"] == "Gop/s"],
        x=log("reached", "reached", "Gop/s"),
        y=category("work"),
        marks=[intervals("reached", by="device")],
    )


# ---- the last published `cli.py doctor --repeat N --publish` ------------------------------------


@page.fact
def repeated(r: Records) -> Fact:
    changed = benchmarks.rows("repeats")
    opposite = sum("supported" in row and "refuted" in row for row in changed)
    runs, verdicts = (benchmarks.counted("repeats", name) for name in ("runs", "verdicts"))
    return Fact(
        text=f"All that measures time was run {runs} times: {verdicts - len(changed)} of the "
        f"{verdicts} verdicts on those pages came out the same every time, "
        f"{len(changed) - opposite} were decided in some runs only, and {opposite} turned into "
        "their opposite",
        of=f"{runs} runs of every timed case, one after the other",
    )


@page.table
def turned(r: Records) -> Sequence[Row]:
    """The verdicts that changed, with how often each came out."""
    names = ("supported", "undecided", "refuted", "not measured")
    return [
        {"claim": row["claim"], **{name: row.get(name, 0) for name in names}}
        for row in benchmarks.rows("repeats")
    ] or [{"claim": "none changed"}]


@page.table
def repeats_run(r: Records) -> Sequence[Row]:
    return benchmarks.run_table("repeats")
