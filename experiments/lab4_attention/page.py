"""Question 4.2: attention written out against the fused forms of it, in time and in memory.

The fastest fused form is held against the fastest form that is written by hand, in the same dtype
at the same length, both as a tuning process found them; other processes confirm, and they are the
units.
"""

from collections.abc import Iterable, Sequence
from functools import partial
from itertools import product
from typing import Any

from experiments.lab4_attention import design
from madl.logbook.arms import TimedArm, timed_arm, value_at
from madl.logbook.charts import Chart, category, doubling, intervals, level, line, linear, log
from madl.logbook.claims import Contrast, compare
from madl.logbook.experiment import Experiment, Plan
from madl.logbook.numbers import (
    ExactValue,
    NumberFn,
    computed,
    contended_processes,
    exact,
    hours_of,
    value,
)
from madl.logbook.records import Params, Pending, Record, Records, Row, Scalar, none_if_pending
from madl.logbook.values import Estimate
from madl.machine import lint

FORMS = {
    "naive": "naive",
    "tuned": "tuned",
    "chunked": "tuned, in chunks",
    "tuned in FP32": "tuned, in FP32",
    "chunked in FP32": "tuned, in chunks, in FP32",
    "math": "SDPA math",
    "flash": "SDPA flash",
    "efficient": "SDPA efficient",
    "cudnn": "SDPA cuDNN",
    "flash in FP32": "SDPA flash, in FP32",
}
DTYPES = {"float32": "FP32", "bfloat16": "BF16", "float16": "FP16"}
TINY = {"batch": 2, "heads": 2, "length": 16}  # in smoke
QUICK_SITTINGS = design.CONFIRMING["cpu"][:2]
NO_KERNEL = "no kernel"
PROFILE: dict[str, Scalar] = {"kind": "profile", "device": "cpu"}
STEPS = ("first product", "scale", "softmax", "second product")  # of the naive form

page = Experiment(
    version=2,
    timed=lambda params: params["kind"] != "correct",
)


def limits(plan: Plan, device: str) -> dict[str, Scalar]:
    """Parameters of a device's cases: the limits of one call, and the time for a form."""
    choose, limit = plan.profile.choose, design.LIMIT_GIB[device]
    return {
        "device": device,
        "head_dim": design.HEAD_DIM,
        "limit_gb": choose(smoke=0.25, quick=limit) if device == "cpu" else limit,
        "limit_s": design.LIMIT_S,
        "budget_s": choose(smoke=0.0, quick=design.BUDGET_S),
    }


def timings(plan: Plan, device: str, process: int) -> Iterable[Params]:
    """Cases that time every form in one sitting: each dtype and length, and what goes beyond."""
    choose, shape, limit = plan.profile.choose, design.SHAPES[device], limits(plan, device)
    for dtype in choose(smoke=("bfloat16",), quick=design.DTYPES):
        base = {**limit, "dtype": dtype, "process": process}
        yield {"kind": "notebook", **base, **choose(smoke=TINY, quick=design.NOTEBOOK)}
        for length in choose(smoke=(64,), quick=design.LENGTHS[device]):
            yield {"kind": "time", **base, **shape, "length": length}
        if device == "cpu" and dtype in design.BEYOND_DTYPES:
            length = choose(smoke=64, quick=design.BEYOND_LENGTH)
            for kind in (design.CAUSAL, design.BACKWARD):
                yield {"kind": kind, **base, **shape, "length": length}


@page.tuning
def tuning(plan: Plan) -> Iterable[Params]:
    for process, device in product(design.TUNING, design.SHAPES):
        yield from timings(plan, device, process)


@page.cases
def cases(plan: Plan) -> Iterable[Params]:
    choose = plan.profile.choose
    for device, shape in design.SHAPES.items():
        checked = choose(smoke=TINY, quick=design.CHECKED)
        yield {"kind": "correct", "device": device, "head_dim": design.HEAD_DIM, **checked}
        longest = design.LONGEST[device]
        memory = {
            "longest": choose(smoke=128, quick=longest) if device == "cpu" else longest,
            "limit_s": design.MEMORY_LIMIT_S,
        }
        yield {"kind": "memory", **limits(plan, device), **shape, **memory}
    profiled = {**PROFILE, **limits(plan, "cpu"), **design.SHAPES["cpu"], "dtype": "float32"}
    length = choose(smoke=64, quick=design.PROFILED_LENGTH)
    for device, processes in design.CONFIRMING.items():
        for process in choose(smoke=processes[:1], quick=processes):
            if device == "cpu":
                yield {**profiled, "length": length, "process": process}
            yield from timings(plan, device, process)


@page.quick
def quick(params: Params) -> bool:
    """The cases of the CPU's claims in two sittings, and the check that all forms agree."""
    longest = {"kind": "time", "length": design.LENGTHS["cpu"][-1]}
    return params["kind"] == "correct" or (
        longest.items() <= params.items()
        and params["dtype"] != "float16"
        and params["process"] in QUICK_SITTINGS
    )


def arm(r: Records, form: str, **where: Scalar) -> TimedArm:
    """The times of a form in the cases `where`. Raises: Pending: it is missing in one of them."""
    return timed_arm(r, form, FORMS.get(form, form), **where)


def fastest(r: Records, forms: Sequence[str], **where: Scalar) -> TimedArm:
    """The form among these that was the fastest in the tuning process.

    Raises:
        Pending: none of them ran there.
    """
    tuning = r.tuning.single(**where)
    ran = [form for form in forms if form in tuning.values["measurements"]]
    if not ran:
        raise Pending(f"{tuning.place}, any of {', '.join(forms)}")
    return arm(r, min(ran, key=lambda form: arm(r.tuning, form, **where).median_s), **where)


def fused(r: Records, **where: Scalar) -> TimedArm:
    """The fused form that was the fastest in the tuning process."""
    return fastest(r, design.FUSED, **where)


def written(r: Records, **where: Scalar) -> TimedArm:
    """The form written by hand that was the fastest in the tuning process."""
    return fastest(r, design.WRITTEN, **where)


def longest(r: Records, **where: Scalar) -> dict[str, Scalar]:
    """The parameters of the longest sequence that both a written and a fused form took in tuning.

    Raises:
        Pending: there is none.
    """
    where = {"kind": "time", **where}
    for length in reversed(r.tuning.all(**where).param_values("length")):
        ran = r.tuning.single(**where, length=length).values["measurements"].keys()
        if ran & set(design.WRITTEN) and ran & set(design.FUSED):
            return {**where, "length": length}
    raise Pending(f"a length that both hold, {where}")


def fused_against_written(r: Records, **where: Scalar) -> Contrast:
    return compare(fused(r, **where), written(r, **where))


def as_asked(kind: str = "notebook", dtype: str = design.ASKED_DTYPE) -> dict[str, Scalar]:
    """The parameters of the notebook's shape and data type, or of another kind, on the CPU."""
    return {"kind": kind, "device": "cpu", "dtype": dtype}


@page.claim(primary=True)
def fused_is_faster_as_asked(r: Records) -> Contrast:
    """On a CPU, at the notebook's shape in FP16, fused attention is faster than the fastest form
    written by hand."""
    return fused_against_written(r, **as_asked())


@page.claim(primary=True)
def fused_is_faster_in_fp32(r: Records) -> Contrast:
    """In FP32 on a CPU, fused attention is faster than the fastest form written by hand, at the
    longest sequence that both hold."""
    return fused_against_written(r, **longest(r, device="cpu", dtype="float32"))


@page.claim
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
def fused_is_faster_with_a_causal_mask(r: Records) -> Contrast:
    """In FP32 on a CPU, with a causal mask, fused attention is faster than the fastest form written
    by hand."""
    return fused_against_written(r, **as_asked(design.CAUSAL, "float32"))


@page.claim
def fused_is_faster_with_its_backward_pass(r: Records) -> Contrast:
    """In FP32 on a CPU, forward and backward, fused attention is faster than the fastest form
    written by hand that keeps what backward needs."""
    return fused_against_written(r, **as_asked(design.BACKWARD, "float32"))


@page.claim
def care_pays_in_fp32(r: Records) -> Contrast:
    """In FP32 on a CPU, the formula written with care is faster than the naive one, at the longest
    sequence that both a written and a fused form hold."""
    at = longest(r, device="cpu", dtype="float32")
    return compare(arm(r, "tuned", **at), arm(r, "naive", **at))


@page.claim(primary=True)
def fused_is_faster_on_cuda(r: Records) -> Contrast:
    """In FP16 on a CUDA GPU, fused attention is faster than the fastest form written by hand, at
    the longest sequence that both hold."""
    return fused_against_written(r, **longest(r, device="cuda", dtype="float16"))


def over_naive(r: Records, dtype: str) -> Contrast:
    """Fused over naive at the notebook's shape on the CPU: the speed-up that reports give."""
    at = as_asked(dtype=dtype)
    return compare(fused(r, **at), arm(r, "naive", **at))


def asked_ms(r: Records, form: str) -> ExactValue:
    """Milliseconds of a call at the notebook's shape in FP16: of this form, or of the fastest
    "fused" or "written" one."""
    fastest_of = {"fused": fused, "written": written}.get(form, partial(arm, form=form))
    a = fastest_of(r, **as_asked())
    return exact(1e3 * a.median_s, a.records, "ms")


def peaks(r: Records, device: str = "cpu") -> dict[tuple[str, int], Any]:
    """(form, length) → the record's row on the memory of one FP32 call."""
    record = r.single(kind="memory", device=device)
    return {
        (peak["form"], peak["length"]): peak
        for peak in record.values["peaks"]
        if peak["dtype"] == "float32" and "peak_bytes" in peak
    }


def naive_length(r: Records) -> int:
    """The longest sequence whose memory naive was measured at, on the CPU."""
    return max((length for form, length in peaks(r) if form == "naive"), default=0)


def peak(r: Records, form: str, part: str = "") -> ExactValue:
    """A form's peak memory at naive's longest sequence, in MB, or over a `part` of its row."""
    by_problem, source = peaks(r), r.where(kind="memory", device="cpu")
    longest = naive_length(r)
    if (peak := by_problem.get((form, longest))) is None:
        raise Pending(f"the peak of {form}")
    size, unit = (peak[part], "") if part else (1e6, "MB")
    return exact(peak["peak_bytes"] / size, source, unit)


def fused_share(r: Records) -> ExactValue:
    """Fused attention's peak memory at naive's longest sequence, in % of naive's."""
    ours, naive = (peak(r, form) for form in ("flash", "naive"))
    return exact(100 * ours.value / naive.value, r.where(kind="memory", device="cpu"), "%")


def positions(r: Records) -> ExactValue:
    """The longest sequence in FP32 that both a written and a fused form hold on the CPU."""
    where = longest(r, device="cpu", dtype="float32")
    return exact(where["length"], r.all(**where))


def share_of_naive(r: Records, *steps: str) -> ExactValue:
    """The time of these steps of a naive call, in % of all its steps, each timed alone."""
    every = {step: arm(r, step, **PROFILE).median_s for step in STEPS}
    share = sum(every[step] for step in steps) / sum(every.values())
    return exact(100 * share, r.all(**PROFILE), "%")


def profiled(*path: str, unit: str, size: float = 1e6) -> NumberFn:
    """A function that reads a value of the profile by its path of keys, in units of `size`."""
    return computed(profiles, lambda records: value_at(records[0], path) / size, unit)


def profiles(r: Records) -> Sequence[Record]:
    return r.all(**PROFILE)


def mistaken_share(r: Records) -> ExactValue:
    """The share of all timings in which the linter finds a mistake beside naive, in %."""
    records = [record for record in r if "measurements" in record.values]
    mistaken = [
        bool(lint.mistakes(run, against=runs.get("naive", run)))
        for runs in (record.values["measurements"] for record in records)
        for run in runs.values()
    ]
    return exact(100 * sum(mistaken) / max(len(mistaken), 1), records, "%")


def parameter(name: str, kind: str) -> NumberFn:
    """A function that reads a parameter of the cases of a kind on the CPU."""
    return computed(
        lambda r: r.all(kind=kind, device="cpu")[0], lambda record: record.case.params[name]
    )


page.numbers(
    batch=parameter("batch", kind="time"),
    heads=parameter("heads", kind="time"),
    notebook_batch=parameter("batch", kind="notebook"),
    notebook_heads=parameter("heads", kind="notebook"),
    notebook_positions=parameter("length", kind="notebook"),
    apart=parameter("length", kind="profile"),
    beyond_length=parameter("length", kind=design.CAUSAL),
    contended=contended_processes,
    naive_asked=partial(asked_ms, form="naive"),
    fused_asked=partial(asked_ms, form="fused"),
    written_asked=partial(asked_ms, form="written"),
    flash_asked=partial(asked_ms, form="flash"),
    over_naive_fp32=partial(over_naive, dtype="float32"),
    over_naive_bf16=partial(over_naive, dtype="bfloat16"),
    over_naive_fp16=partial(over_naive, dtype="float16"),
    positions=positions,
    chunk=lambda r: exact(design.CHUNK),
    at_length=lambda r: exact(naive_length(r), r.where(kind="memory", device="cpu")),
    limit=lambda r: exact(design.LIMIT_S, unit="s"),
    memory_limit=lambda r: exact(design.MEMORY_LIMIT_S, unit="s"),
    hours=lambda r: hours_of(r.where(device="cpu", kind="time")),
    naive_peak=partial(peak, form="naive"),
    tuned_peak=partial(peak, form="tuned"),
    chunked_peak=partial(peak, form="chunked"),
    fused_peak=partial(peak, form="flash"),
    fused_share=fused_share,
    naive_scores=partial(peak, form="naive", part="score_bytes"),
    tuned_scores=partial(peak, form="tuned", part="score_bytes"),
    wrong_on_ones=value("scales", "ones", unit="%", factor=100, kind="correct", device="cpu"),
    wrong_on_random=value("scales", "random", unit="%", factor=100, kind="correct", device="cpu"),
    in_between=lambda r: share_of_naive(r, "scale", "softmax"),
    naive_faults=profiled("fault_bytes", "naive", unit="MB"),
    tuned_faults=profiled("fault_bytes", "tuned", unit="MB"),
    operations=profiled("flops", unit="G", size=1e9),
    exponentials=profiled("exponentials", unit="M"),
    linted=mistaken_share,
)


def timed_problems(r: Records) -> list[dict[str, Any]]:
    """The parameters (device, dtype, length) of every problem that was timed, in that order."""
    order = [*design.SHAPES, *DTYPES]
    names = ("device", "dtype", "length")
    problems = {tuple(record.case.params[name] for name in names) for record in r}
    places = sorted(problems, key=lambda x: (order.index(x[0]), order.index(x[1]), x[2]))
    return [{"kind": "time", **dict(zip(names, place))} for place in places]


def speed_up_of(r: Records, **at: Scalar) -> Estimate:
    """The speed of the fastest fused form over that of the fastest written one."""
    return written(r, **at) / fused(r, **at)


@page.chart
def asked(r: Records) -> Chart:
    """A call at the notebook's shape on the CPU: naive, the fastest written and fused forms."""
    rows: list[Row] = []
    for dtype in dict.fromkeys((design.ASKED_DTYPE, *DTYPES)):
        at = as_asked(dtype=dtype)
        arms = (arm(r, "naive", **at), written(r, **at), fused(r, **at))
        for a in {a.label: a for a in arms}.values():
            title = DTYPES[dtype]
            rows.append({"form": f"{title}, {a.label}", "dtype": title, "a call": a})
    return Chart(
        rows,
        x=log("a call", "a call", "ms"),
        y=category("form"),
        marks=[intervals("a call", by="dtype")],
    )


@page.chart
def speed_up(r: Records) -> Chart:
    rows: dict[tuple[str, int], dict[str, Any]] = {}
    for at in timed_problems(r.where(kind="time")):
        device, length = r.place(at["device"]), at["length"]
        start = {"device": device, "positions": length, **dict.fromkeys(DTYPES.values())}
        row = rows.setdefault((device, length), start)
        row[DTYPES[at["dtype"]]] = none_if_pending(speed_up_of, r, **at)
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
    """Peak memory of one FP32 call, by form and length."""
    by_device = {device: none_if_pending(peaks, r, device) or {} for device in design.SHAPES}
    drawn = {form for by_problem in by_device.values() for form, _ in by_problem}
    forms = [form for form in FORMS if form in drawn]
    rows = [
        {"device": r.place(device), "positions": length}
        | {FORMS[form]: by_problem.get((form, length), {}).get("peak_bytes") for form in forms}
        for device, by_problem in by_device.items()
        for length in sorted({length for _, length in by_problem})
    ]
    return Chart(
        rows,
        x=doubling("positions"),
        y=log(label="peak memory of one call", unit="MB", factor=1e-6),
        marks=[line(FORMS[form]) for form in forms],
        facet="device" if all(by_device.values()) else None,
    )


@page.table
def devices(r: Records) -> Sequence[Row]:
    """Fused against written, on each device at the longest sequence of each dtype."""
    rows: list[Row] = []
    nothing = dict.fromkeys(("positions", "fused", "fastest written", "speed-up"))
    for device in design.SHAPES:
        pairs = {
            title: none_if_pending(against, r, device, dtype) for dtype, title in DTYPES.items()
        }
        by_dtype = {title: row for title, row in pairs.items() if row} or {"all": nothing}
        rows += [{"on": r.place(device), "dtype": title, **row} for title, row in by_dtype.items()]
    return rows


def against(r: Records, device: str, dtype: str) -> Row:
    """The fastest fused and written forms at the longest sequence of a dtype, and their ratio."""
    at = longest(r, device=device, dtype=dtype)
    ours, rival = fused(r, **at), written(r, **at)
    return {
        "positions": at["length"],
        "fused": ours.label,
        "fastest written": rival.label,
        "speed-up": rival / ours,
    }


@page.table
def forms(r: Records) -> Sequence[Row]:
    """Each form at the longest sequence of each dtype, and why one did not run."""
    rows: list[Row] = []
    for device, form in product(design.SHAPES, FORMS):
        cells = {
            title: none_if_pending(at_longest, r, form, device=device, dtype=dtype)
            for dtype, title in DTYPES.items()
        }
        if any(cell not in (None, NO_KERNEL) for cell in cells.values()):
            rows.append({"device": r.place(device), "form": FORMS[form], **cells})
    return rows


def at_longest(r: Records, form: str, **where: Scalar) -> TimedArm | str:
    """The times of a form at the longest sequence, or why it did not run."""
    return time_or_reason(r, form, **longest(r, **where))


def time_or_reason(r: Records, form: str, **at: Scalar) -> TimedArm | str:
    """The times of a form, or why it did not run. Raises: Pending: a process is missing."""
    missing = [record.values["missing"] for record in r.all(**at)]
    reasons = [reason[form] for reason in missing if form in reason]
    if not reasons:
        return arm(r, form, **at)
    same, _, other = reasons[0].rpartition(" ")
    return f"{same} {FORMS.get(other, other)}" if same == "the same as" else reasons[0]


@page.table
def beyond(r: Records) -> Sequence[Row]:
    """Fused against written with a causal mask, and with the backward pass, on the CPU."""
    titles = {design.CAUSAL: "causal mask", design.BACKWARD: "forward and backward"}
    rows: list[Row] = []
    for (kind, title), dtype in product(titles.items(), design.BEYOND_DTYPES):
        at = as_asked(kind, dtype)
        ours, rival = fused(r, **at), written(r, **at)
        rows.append(
            {
                "what": f"{title}, {DTYPES[dtype]}",
                "fused": ours,
                "fastest written": f"{rival.label}, {rival}",
                "speed-up": f"{rival / ours:i}",
            }
        )
    return rows


@page.table
def notebook(r: Records) -> Sequence[Row]:
    """The fastest fused form at the notebook's shape, over naive and over the fastest written."""
    rows: list[Row] = []
    for device, (dtype, title) in product(design.SHAPES, DTYPES.items()):
        at: dict[str, Scalar] = {"kind": "notebook", "device": device, "dtype": dtype}
        if row := none_if_pending(over_both, r, **at):
            rows.append({"on": r.place(device), "dtype": title, **row})
    return rows


def over_both(r: Records, **at: Scalar) -> Row:
    """The fastest fused form's time, and its speed over naive and over the fastest written form."""
    ours, naive, rival = fused(r, **at), arm(r, "naive", **at), written(r, **at)
    return {
        "fused": ours,
        "speed-up over naive": naive / ours,
        "fastest written": rival.label,
        "speed-up over it": rival / ours,
    }


SCORE_PASSES = {  # reads, writes, lines read before they are written, new pages cleared
    "naive": 3 + 3 + 3 + 3,
    "tuned": 2 + 2 + 1,
    "chunked": 0,
    "flash": 0,
}
COPY_PASSES = 3  # read, write, and the lines read before they are written


@page.table
def bounds(r: Records) -> Sequence[Row]:
    """Least times of each form's work in FP32 on the CPU, by traffic and by products."""
    values = profiles(r)[0].values
    product_s, copy_s = (arm(r, name, **PROFILE).median_s for name in ("product", "copy"))
    products_ms = 1e3 * product_s * values["flops"] / values["product_flops"]
    a_byte_s = copy_s / (COPY_PASSES * values["score_bytes"])
    moved = {
        form: passes * values["score_bytes"] + 4 * values["tensor_bytes"]
        for form, passes in SCORE_PASSES.items()
    }
    return [
        {
            "form": FORMS[form],
            "moves (MB)": num_bytes / 1e6,
            "moving, about (ms)": 1e3 * num_bytes * a_byte_s,
            "products, at least (ms)": products_ms,
            "measured": arm(r, form, **PROFILE),
        }
        for form, num_bytes in moved.items()
    ]


@page.table
def times(r: Records) -> Sequence[Row]:
    """The times of the naive and of the fastest forms at all lengths."""
    rows: list[Row] = []
    for at in timed_problems(r.where(kind="time")):
        problem = f"{r.place(at['device'])}, {DTYPES[at['dtype']]}, {at['length']:,}"
        row: dict[str, Any] = {"problem": problem}
        row["naive"] = none_if_pending(time_or_reason, r, "naive", **at)
        for title, fastest_of in (("fastest written", written), ("fused", fused)):
            a = none_if_pending(fastest_of, r, **at)
            row |= {title: a and a.label, f"{title}, a call": a}
        rows.append(row)
    return rows
