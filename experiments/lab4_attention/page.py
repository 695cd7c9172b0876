"""Question 4.2: attention written out against the fused forms of it, in time and in memory.

The rival of a fused form is the fastest form that is written by hand, in the same dtype at the same
length, as a tuning process found it; other processes confirm, and they are the units.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import product
from typing import Any

from madl.logbook.arms import TimedArm, inside, timed
from madl.logbook.charts import Chart, doubling, level, line, linear, log
from madl.logbook.claims import Contrast, compare
from madl.logbook.experiment import Context, Experiment, Plan
from madl.logbook.numbers import Counted, contended, counted, value
from madl.logbook.records import Params, Pending, Record, Records, Row, Scalar, Values
from madl.logbook.stats import Estimate
from madl.machine import lint
from madl.machine.device import no_device

FORMS = {
    "naive": "naive",
    "tuned": "tuned",
    "cast": "tuned in FP32",
    "math": "SDPA math",
    "flash": "SDPA flash",
    "efficient": "SDPA efficient",
    "cudnn": "SDPA cuDNN",
}
WRITTEN = ("naive", "tuned", "cast")
FUSED = ("flash", "cudnn", "efficient")  # the first that a device has for a problem
DTYPES = {"float32": "FP32", "bfloat16": "BF16", "float16": "FP16"}
DEVICES = {"cpu": "CPU", "cuda": "CUDA GPU"}
HEAD_DIM = 64
SHAPES = {"cpu": {"batch": 1, "heads": 4}, "cuda": {"batch": 8, "heads": 8}}
NOTEBOOK = {"batch": 32, "heads": 8, "length": 128}  # the shape of the coursework's notebook
TINY = {"batch": 2, "heads": 2, "length": 16}
CONFIRMING, TUNING, AGAIN = (1, 2, 3, 4, 5), (0,), (1, 2)  # processes; again: in quick
LONGEST = 4096  # positions, timed on a CPU
NO_KERNEL = "no kernel"
APART: dict[str, Scalar] = {"kind": "profile", "device": "cpu"}

page = Experiment(
    title="Attention: fused against naive",
    timed=lambda params: params["kind"] in ("time", "notebook", "profile"),
)
page.unavailable(no_device)


# ---- cases --------------------------------------------------------------------------------------


def limits(plan: Plan, device: str) -> Params:
    """Of one call, and how long a round goes on: GiB and seconds."""
    choose = plan.profile.choose
    limit_gb = 16.0 if device == "cuda" else choose(smoke=0.25, quick=2.0)
    most = {"limit_gb": limit_gb, "limit_s": 1.0, "budget_s": choose(smoke=0.0, quick=0.05)}
    return {"device": device, "head_dim": HEAD_DIM, **most}


def timings(plan: Plan, processes: Sequence[int]) -> Iterable[Params]:
    """Every form at every length, a case a process."""
    choose = plan.profile.choose
    lengths = {
        "cpu": choose(smoke=(64,), quick=(128, 512, 1024, 2048, LONGEST)),
        "cuda": choose(smoke=(64,), quick=(512, 2048, 8192, 32768)),
    }
    dtypes = choose(smoke=("bfloat16",), quick=tuple(DTYPES))
    for process, (device, shape), dtype in product(processes, SHAPES.items(), dtypes):
        base = {**limits(plan, device), "dtype": dtype, "process": process}
        yield {"kind": "notebook", **base, **choose(smoke=TINY, quick=NOTEBOOK)}
        for length in lengths[device]:
            yield {"kind": "time", **base, **shape, "length": length}


@page.tuning
def tuning(plan: Plan) -> Iterable[Params]:
    yield from timings(plan, TUNING)


@page.cases
def cases(plan: Plan) -> Iterable[Params]:
    choose = plan.profile.choose
    processes = choose(smoke=CONFIRMING[:1], quick=CONFIRMING)
    for device, shape in SHAPES.items():
        base = limits(plan, device)
        small = {"batch": 2, "heads": 2, "length": choose(smoke=16, quick=200)}
        yield {"kind": "correct", "device": device, "head_dim": HEAD_DIM, **small}
        longest = 32768 if device == "cuda" else choose(smoke=128, quick=8192)
        yield {"kind": "memory", **base, **shape, "longest": longest, "limit_s": 3.0}
        apart = {"dtype": "float32", "length": choose(smoke=64, quick=2048)}
        for process in processes:
            yield {"kind": "profile", **base, **shape, **apart, "process": process}
    yield from timings(plan, processes)


@page.quick
def quick(params: Params) -> bool:
    """What the claims compare, in two processes, and that all forms agree."""
    if params["kind"] == "correct":
        return True
    claimed = params["kind"] == "time" and params["dtype"] != "float16"
    return claimed and params["length"] == LONGEST and params["process"] in AGAIN


@page.run
def run(params: Params, ctx: Context) -> Values:
    from experiments.lab4_attention import study

    return study.study(params)


# ---- arms ---------------------------------------------------------------------------------------


def arm(r: Records, form: str, **where: Scalar) -> TimedArm:
    """A form in all of these processes. Raises: Pending: it is missing in one of them."""
    found = r.all(**where)
    if any(form not in record.values["measurements"] for record in found):
        raise Pending(f"{form}, {where}")
    return timed(found, form, FORMS.get(form, form))


def ran(record: Record, forms: Sequence[str]) -> list[str]:
    """Those of these forms that did. Raises: Pending: none did."""
    if found := [form for form in forms if form in record.values["measurements"]]:
        return found
    raise Pending(f"{record.place}, any of {', '.join(forms)}")


def fused(r: Records, **where: Scalar) -> TimedArm:
    """The fused form of this device."""
    return arm(r, ran(r.all(**where)[0], FUSED)[0], **where)


def written(r: Records, **where: Scalar) -> TimedArm:
    """The strongest form written by hand: the fastest of the tuning process."""
    tried = ran(r.tuning.one(**where), WRITTEN)
    return arm(r, min(tried, key=lambda form: arm(r.tuning, form, **where).median_s), **where)


def longest(r: Records, **where: Scalar) -> dict[str, Scalar]:
    """The problem of the longest sequence that a written and a fused form held in tuning."""
    where = {"kind": "time", **where}
    for length in reversed(r.tuning.all(**where).each("length")):
        held = r.tuning.one(**where, length=length).values["measurements"].keys()
        if held & set(WRITTEN) and held & set(FUSED):
            return {**where, "length": length}
    raise Pending(f"a length that both hold, {where}")


def fused_against_written(r: Records, **where: Scalar) -> Contrast:
    return compare(fused(r, **where), written(r, **where))


# ---- claims -------------------------------------------------------------------------------------


@page.claim(primary=True)
def fused_is_faster_in_fp32(r: Records) -> Contrast:
    """In FP32 on a CPU, fused attention is faster than the fastest form written by hand, at the
    longest sequence that both hold."""
    return fused_against_written(r, **longest(r, device="cpu", dtype="float32"))


@page.claim(primary=True)
def fused_is_faster_in_bf16(r: Records) -> Contrast:
    """In BF16 on a CPU, fused attention is faster than the fastest form written by hand, at the
    longest sequence that both hold."""
    return fused_against_written(r, **longest(r, device="cpu", dtype="bfloat16"))


@page.claim
def fused_is_faster_in_fp16(r: Records) -> Contrast:
    """In FP16 on a CPU, fused attention is faster than the fastest form written by hand, at the
    longest sequence that both hold."""
    return fused_against_written(r, **longest(r, device="cpu", dtype="float16"))


@page.claim
def care_pays_in_fp32(r: Records) -> Contrast:
    """In FP32 on a CPU, the formula written with care is faster than the naive one, at the longest
    sequence of the first claim."""
    at = longest(r, device="cpu", dtype="float32")
    return compare(arm(r, "tuned", **at), arm(r, "naive", **at))


@page.claim
def fused_is_faster_on_cuda(r: Records) -> Contrast:
    """In FP16 on CUDA, fused attention is faster than the fastest form written by hand, at the
    longest sequence that both hold."""
    return fused_against_written(r, **longest(r, device="cuda", dtype="float16"))


# ---- numbers ------------------------------------------------------------------------------------


def over_naive(r: Records, dtype: str) -> Contrast:
    """Fused over naive at the notebook's shape on the CPU: the speed-up that reports give."""
    at: dict[str, Scalar] = {"kind": "notebook", "device": "cpu", "dtype": dtype}
    return compare(fused(r, **at), arm(r, "naive", **at))


def peaks(r: Records) -> dict[tuple[str, int], Any]:
    """Of one FP32 call on the CPU, by form and length."""
    every = r.one(kind="memory", device="cpu").values["peaks"]
    held = [x for x in every if x["dtype"] == "float32" and "peak_bytes" in x]
    return {(x["form"], x["length"]): x for x in held}


def peak(r: Records, form: str, part: str = "") -> Counted:
    """At the longest sequence that naive holds; with `part`, in units of that."""
    held, source = peaks(r), r.where(kind="memory", device="cpu")
    found = held.get((form, max((n for of, n in held if of == "naive"), default=0)))
    if found is None:
        raise Pending(f"the peak of {form}")
    size, unit = (found[part], "") if part else (1e6, "MB")
    return counted(found["peak_bytes"] / size, unit, of=source)


def positions(r: Records) -> Counted:
    """Of the first claim."""
    at = longest(r, device="cpu", dtype="float32")
    return counted(int(str(at["length"])), of=r.all(**at))


def share_of_naive(r: Records, *steps: str) -> Counted:
    """What these steps take alone, of a whole naive call."""
    whole = arm(r, "naive", **APART)
    taken = sum(arm(r, step, **APART).median_s for step in steps)
    return counted(100 * taken / whole.median_s, "%", of=whole.records)


def profiled(r: Records, *, path: Sequence[str], unit: str, size: float = 1e6) -> Counted:
    """What a case that takes the forms apart kept under these names, each within the one before."""
    found = r.all(**APART)
    return counted(inside(found[0], path) / size, unit, of=found)


def failing_checks(r: Records) -> Counted:
    """Timings of the page in which the linter finds a mistake, each held against naive."""
    found = [x for x in r if "measurements" in x.values]
    runs = [(x.values["measurements"], form) for x in found for form in x.values["measurements"]]
    bad = sum(bool(lint.mistakes(m[form], against=m.get("naive", m[form]))) for m, form in runs)
    return counted(100 * bad / max(len(runs), 1), "%", of=found)


def apart(r: Records) -> Counted:
    """Positions at which the forms are taken apart."""
    found = r.all(**APART)
    return counted(found[0].case.params["length"], of=found)


def shape(r: Records, kind: str, name: str) -> Counted:
    """Of the calls on the CPU."""
    record = r.all(kind=kind, device="cpu")[0]
    return counted(record.case.params[name], of=[record])


page.numbers(
    batch=partial(shape, kind="time", name="batch"),
    heads=partial(shape, kind="time", name="heads"),
    notebook_batch=partial(shape, kind="notebook", name="batch"),
    fp16=fused_is_faster_in_fp16,
    apart=apart,
    contended=contended,
    over_naive_fp32=partial(over_naive, dtype="float32"),
    over_naive_bf16=partial(over_naive, dtype="bfloat16"),
    over_naive_fp16=partial(over_naive, dtype="float16"),
    positions=positions,
    tuned_peak=partial(peak, form="tuned"),
    fused_peak=partial(peak, form="flash"),
    naive_scores=partial(peak, form="naive", part="score_bytes"),
    tuned_scores=partial(peak, form="tuned", part="score_bytes"),
    wrong_on_ones=value("scales", "ones", unit="%", factor=100, kind="correct", device="cpu"),
    wrong_on_random=value("scales", "random", unit="%", factor=100, kind="correct", device="cpu"),
    in_between=lambda r: share_of_naive(r, "scale", "softmax"),
    naive_faults=partial(profiled, path=("fault_bytes", "naive"), unit="MB"),
    tuned_faults=partial(profiled, path=("fault_bytes", "tuned"), unit="MB"),
    operations=partial(profiled, path=("flops",), unit="G", size=1e9),
    exponentials=partial(profiled, path=("exponentials",), unit="M"),
    linted=failing_checks,
)


# ---- charts and tables --------------------------------------------------------------------------


def or_none(make: Callable[..., Any], *args: Any, **where: Scalar) -> Any:
    """What it makes; None where records are missing."""
    try:
        return make(*args, **where)
    except Pending:
        return None


def timed_problems(r: Records) -> list[dict[str, Any]]:
    """What ran, as parameters, in the order of devices, dtypes and lengths."""
    order = [*DEVICES, *DTYPES]
    found = {(x.case.params["device"], x.case.params["dtype"], x.case.params["length"]) for x in r}
    places = sorted(found, key=lambda x: (order.index(str(x[0])), order.index(str(x[1])), x[2]))
    return [{"kind": "time", "device": a, "dtype": b, "length": c} for a, b, c in places]


def speed_up_of(r: Records, **at: Scalar) -> Estimate:
    return written(r, **at) / fused(r, **at)


@page.chart
def speed_up(r: Records) -> Chart:
    rows: dict[tuple[str, int], dict[str, Any]] = {}
    for at in timed_problems(r.where(kind="time")):
        device, length = DEVICES[at["device"]], at["length"]
        start = {"device": device, "positions": length, **dict.fromkeys(DTYPES.values())}
        row = rows.setdefault((device, length), start)
        row[DTYPES[at["dtype"]]] = or_none(speed_up_of, r, **at)
    several = len({device for device, _ in rows}) > 1
    return Chart(
        list(rows.values()),
        x=doubling("positions"),
        y=linear(label="speed-up over the fastest written form", unit="×"),
        marks=[*(line(title) for title in DTYPES.values()), level(1.0, "as fast")],
        facet="device" if several else None,
    )


@page.chart
def memory(r: Records) -> Chart:
    """In FP32 on the CPU."""
    held = peaks(r)
    forms = list(dict.fromkeys(form for form, _ in held))
    rows = [
        {"positions": n, **{FORMS[x]: held.get((x, n), {}).get("peak_bytes") for x in forms}}
        for n in sorted({n for _, n in held})
    ]
    y = log(label="peak memory of one call", unit="MB", factor=1e-6)
    return Chart(rows, x=doubling("positions"), y=y, marks=[line(FORMS[form]) for form in forms])


@page.table
def forms(r: Records) -> Sequence[Row]:
    """Each form at the longest sequence of each dtype, and why one did not run."""
    rows: list[Row] = []
    for device, form in product(DEVICES, FORMS):
        cells = {
            title: or_none(at_longest, r, form, device=device, dtype=dtype)
            for dtype, title in DTYPES.items()
        }
        if any(cell not in (None, NO_KERNEL) for cell in cells.values()):
            rows.append({"device": DEVICES[device], "form": FORMS[form], **cells})
    ran = {row["device"] for row in rows}
    nothing = dict.fromkeys(DTYPES.values())
    return rows + [
        {"device": x, "form": "all", **nothing} for x in DEVICES.values() if x not in ran
    ]


def at_longest(r: Records, form: str, **where: Scalar) -> TimedArm | str:
    return time_or_why(r, form, **longest(r, **where))


def time_or_why(r: Records, form: str, **at: Scalar) -> TimedArm | str:
    """Raises: Pending: a process is missing."""
    why = [x.values["missing"][form] for x in r.all(**at) if form in x.values["missing"]]
    return why[0] if why else arm(r, form, **at)


@page.table
def notebook(r: Records) -> Sequence[Row]:
    """At the notebook's shape on the CPU: one call, three dtypes, two baselines."""
    rows: list[Row] = []
    for dtype, title in DTYPES.items():
        at: dict[str, Scalar] = {"kind": "notebook", "device": "cpu", "dtype": dtype}
        ours, naive, rival = fused(r, **at), arm(r, "naive", **at), written(r, **at)
        row: dict[str, Any] = {"dtype": title, "fused": ours, "over naive": naive / ours}
        rows.append({**row, "fastest written": rival.label, "over it": rival / ours})
    return rows


SCORE_PASSES = {  # reads, writes, lines read before they are written, new pages cleared
    "naive": 3 + 3 + 3 + 3,
    "tuned": 2 + 2 + 1,
    "flash": 0,
}
COPY_PASSES = 3  # read, write, and the lines read before they are written


@page.table
def bounds(r: Records) -> Sequence[Row]:
    """What each form must do in FP32 on the CPU, and how long that takes at the least."""
    values = r.all(**APART)[0].values
    product_s, copy_s = (arm(r, name, **APART).median_s for name in ("product", "copy"))
    products_ms = 1e3 * product_s * values["flops"] / values["product_flops"]
    a_byte_s = copy_s / (COPY_PASSES * values["score_bytes"])
    rows: list[Row] = []
    for form, passes in SCORE_PASSES.items():
        moved = passes * values["score_bytes"] + 4 * values["tensor_bytes"]
        rows.append(
            {
                "form": FORMS[form],
                "moves (MB)": moved / 1e6,
                "moving, at least (ms)": 1e3 * moved * a_byte_s,
                "products, at least (ms)": products_ms,
                "measured": arm(r, form, **APART),
            }
        )
    return rows


@page.table
def times(r: Records) -> Sequence[Row]:
    """All forms at all lengths."""
    rows: list[Row] = []
    for at in timed_problems(r.where(kind="time")):
        problem = f"{DEVICES[at['device']]}, {DTYPES[at['dtype']]}, {at['length']:,}"
        cells = {title: or_none(time_or_why, r, form, **at) for form, title in FORMS.items()}
        rows.append({"problem": problem, **cells})
    return rows
