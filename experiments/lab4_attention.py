"""Question 4.2: attention written out against each fused form of it, in time and in memory.

Correct first: every form is held against float64 on random inputs. Then each form of one problem is
timed in turn with the others, so that their ratio holds; memory is taken apart from time, under a
limit that the written-out form runs into.
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from madl.logbook import stats
from madl.logbook.arms import TimedArm, timed
from madl.logbook.charts import Chart, doubling, line, log, points
from madl.logbook.claims import Fact, Judged, compare
from madl.logbook.experiment import Context, Experiment, Plan
from madl.logbook.records import Params, Pending, Record, Records, Row, Values
from madl.machine import lint
from madl.machine.device import no_device

page = Experiment(title="Attention: fused against naive", needs=("machine",), timed=True)
page.unavailable(no_device)

FORMS = {
    "naive": "naive",
    "math": "SDPA math",
    "flash": "SDPA flash",
    "efficient": "SDPA efficient",
    "cudnn": "SDPA cuDNN",
}
DTYPES = {"float32": "FP32", "bfloat16": "BF16", "float16": "FP16"}
DEVICES = {"cpu": "CPU", "cuda": "CUDA"}
FUSED = ("flash", "cudnn", "efficient")  # the first that a device has for a problem
HEAD_DIM = 64
COURSE = {"batch": 32, "heads": 8, "length": 128}  # the shape of the coursework's notebook


@page.cases
def cases(plan: Plan) -> Iterable[Params]:
    choose = plan.profile.choose
    shapes = {"cpu": {"batch": 1, "heads": 8}, "cuda": {"batch": 8, "heads": 8}}
    limits = {
        "cpu": choose(smoke=0.25, quick=0.5, full=6),
        "cuda": choose(smoke=1, quick=16, full=16),
    }
    lengths = {
        "cpu": choose(smoke=(32, 64), quick=(128, 512, 1024, 4096), full=POWERS[:8]),
        "cuda": choose(smoke=(64,), quick=(512, 2048, 8192, 16384), full=POWERS),
    }
    middle = {
        "cpu": choose(smoke=64, quick=512, full=1024),
        "cuda": choose(smoke=64, quick=4096, full=4096),
    }
    longest = {
        "cpu": choose(smoke=128, quick=8192, full=16384),
        "cuda": choose(smoke=256, quick=32768, full=65536),
    }
    budget_s = choose(smoke=0.01, quick=0.1, full=2.0)
    for device in DEVICES:
        yield {"kind": "correct", "device": device, "length": choose(smoke=16, quick=96, full=200)}
        base = {"kind": "memory", "device": device, **shapes[device], "limit_gb": limits[device]}
        yield {
            **base,
            "shortest": choose(smoke=16, quick=512, full=256),
            "longest": longest[device],
        }
        yield {
            **{"kind": "contrast", "device": device, **shapes[device], "budget_s": budget_s},
            **{
                "length": middle[device],
                "fused_dtype": "float16" if device == "cuda" else "float32",
            },
        }
        base = {**base, "kind": "time", "budget_s": budget_s}
        for length in lengths[device]:
            yield _timed(base, length)
        for dtype in DTYPES:
            yield _timed(base, middle[device], dtype=dtype)
        for mask in ("causal", "padding"):
            yield _timed(base, middle[device], mask=mask)
        yield _timed(base, 2 * middle[device], backward=True)
        if plan.profile.name != "smoke":
            for dtype in DTYPES:
                yield _timed({**base, **COURSE}, COURSE["length"], dtype=dtype)


POWERS = tuple(2**k for k in range(7, 16))


def _timed(base: Params, length: int, **changes: Any) -> Params:
    return {
        **base,
        "length": length,
        "dtype": "float32",
        "mask": "none",
        "backward": False,
        **changes,
    }


@page.run
def run(params: Params, ctx: Context) -> Values:
    if params["kind"] == "correct":
        from madl.execution import attention

        return attention.errors({**params, "head_dim": HEAD_DIM})
    if params["kind"] == "memory":
        from madl.machine import fresh

        sizes = _doubling(int(params["shortest"]), int(params["longest"]))
        extra = {"lengths": sizes, "head_dim": HEAD_DIM, "dtype": "float32"}
        return fresh.call("madl.execution.attention:peaks", {**params, **extra})
    if params["kind"] == "contrast":
        from madl.execution import attention

        return attention.contrast({**params, "head_dim": HEAD_DIM})
    return _time(params)


def _time(params: Params) -> Values:
    from madl.execution import attention

    problem = attention.Problem(
        batch=int(params["batch"]),
        heads=int(params["heads"]),
        length=int(params["length"]),
        head_dim=HEAD_DIM,
        dtype=str(params["dtype"]),
        mask=str(params["mask"]),
        backward=bool(params["backward"]),
    )
    limit_bytes = int(float(params["limit_gb"]) * 2**30)
    found = attention.timed(
        problem, str(params["device"]), budget_s=float(params["budget_s"]), limit_bytes=limit_bytes
    )
    moved = {form: problem.moved_bytes(fused=form not in ("naive", "math")) for form in FORMS}
    return {**found, "flops": problem.flops, "moved_bytes": moved}


def _doubling(start: int, stop: int) -> list[int]:
    return [start * 2**k for k in range((stop // start).bit_length())]


# ---- reading the records ------------------------------------------------------------------------


def place(record: Record) -> str:
    """The device; a borrowed GPU with its name."""
    return "CPU" if record.case.params["device"] == "cpu" else record.run.device


def is_course(record: Record) -> bool:
    return all(record.case.params[name] == value for name, value in COURSE.items())


def timings(r: Records, device: str, **where: Any) -> list[Record]:
    """What was timed of one device in its own shape, FP32 forward unless other is asked for.

    Shortest first. Raises: Pending: one is not there yet.
    """
    usual = {"dtype": "float32", "mask": "none", "backward": False}
    found = r.all(kind="time", device=device, **{**usual, **where})
    own = [record for record in found if not is_course(record)]
    return sorted(own, key=lambda record: record.case.params["length"])


def of_course(r: Records, device: str, dtype: str) -> Record:
    """The notebook's shape."""
    return r.one(kind="time", device=device, dtype=dtype, **COURSE)


def longest_of_both(r: Records, device: str) -> Record:
    """The longest sequence that the naive form still reaches."""
    both = [x for x in timings(r, device) if "naive" in x.values["measurements"]]
    if not both:
        raise Pending(f"{device}, naive")
    return both[-1]


def arm(record: Record, form: str) -> TimedArm:
    """Raises: Pending: the form did not run there."""
    return timed(Records([record]), form, FORMS.get(form, form))


def fused_of(forms: Iterable[str]) -> str:
    """The fused form among these. Raises: Pending: there is none."""
    found = [form for form in FUSED if form in forms]
    if not found:
        raise Pending("a fused form")
    return found[0]


def both(record: Record) -> tuple[TimedArm, TimedArm]:
    """The naive and the fused form, timed in turn in one process."""
    return arm(record, "naive"), arm(record, fused_of(record.values["measurements"]))


def forms_in(*found: Mapping[str, Any]) -> dict[str, str]:
    """The forms that ran in any of these, in their order."""
    return {form: title for form, title in FORMS.items() if any(form in one for one in found)}


def _ran(r: Records, kind: str) -> Records:
    """All that ran of one kind, on whatever device. Raises: Pending: nothing did."""
    if not (found := r.where(kind=kind)):
        raise Pending(kind)
    return found


def peaks(record: Record) -> dict[str, dict[int, int]]:
    """Peak bytes by form and length, where a form ran."""
    ran: dict[str, dict[int, int]] = {}
    for row in record.values["peaks"]:
        if "peak_bytes" in row:
            ran.setdefault(row["form"], {})[row["length"]] = row["peak_bytes"]
    return ran


CEILING = {"float32": "fp32", "bfloat16": "bf16", "float16": "fp16"}


def ceilings(r: Records, device: str) -> Mapping[str, float]:
    """What this device reached at most: products a second by dtype, bytes a second of a copy."""
    values = r.of("machine").one(device=device).values
    fastest = {name: min(m["samples_s"]) for name, m in values["measurements"].items()}
    return {name: values["amount"][name] / s for name, s in fastest.items()}


# ---- claims -------------------------------------------------------------------------------------


def _faster(record: Record) -> Judged:
    p, (naive, fused) = record.case.params, both(record)
    mode = "forward and backward" if p["backward"] else "forward"
    problem = f"{DTYPES[str(p['dtype'])]} {mode}, batch {p['batch']}, {p['length']:,} positions"
    where = f"on the {place(record)} ({problem})"
    times = f"{fused} a call, naive {naive}"
    return compare(fused, naive).judge(
        supported=f"Fused attention is {naive / fused} as fast as naive {where}: {times}",
        refuted=f"Fused attention is slower than naive and takes {fused / naive} the time {where}: "
        f"{times}",
        undecided=f"Nothing shows that fused attention is faster or slower than naive {where}: "
        f"{naive / fused:i} as fast",
    )


@page.claim(headline=True)
def bf16_faster(r: Records) -> Judged:
    """In BF16 too, fused attention is faster than naive at the notebook's shape on this CPU."""
    return _faster(of_course(r, "cpu", "bfloat16"))


@page.claim(headline=True)
def cpu_faster(r: Records) -> Judged:
    """On the CPU, fused attention is faster in FP32 at the longest sequence that naive reaches."""
    return _faster(longest_of_both(r, "cpu"))


@page.claim(headline=True)
def cuda_faster(r: Records) -> Judged:
    """On CUDA, fused attention is faster in FP32 at the longest sequence that naive reaches."""
    return _faster(longest_of_both(r, "cuda"))


@page.claim
def training_faster(r: Records) -> Judged:
    """On the CPU, fused attention is faster in FP32 with the backward pass as well."""
    return _faster(timings(r, "cpu", backward=True)[-1])


def _contrast(r: Records, *variants: str) -> list[TimedArm]:
    """Variants that took turns on the CPU."""
    return [timed(r, variant, kind="contrast", device="cpu") for variant in variants]


@page.claim
def fp16_slower(r: Records) -> Judged:
    """On this CPU, naive attention is slower in FP16 than in FP32."""
    wide, half = _contrast(r, "naive float32", "naive float16")
    where = f"on this CPU at {_contrasted(r)} positions"
    return compare(wide, half).judge(
        supported=f"Naive attention takes {half / wide} the time in FP16 {where}: {half} a call, "
        f"{wide} in FP32",
        refuted=f"Naive attention is {wide / half} as fast in FP16 {where}: {half} a call, {wide} "
        "in FP32",
        undecided=f"Nothing shows that naive attention is faster or slower in FP16 {where}: "
        f"{half / wide:i} the time of FP32",
    )


@page.claim
def causal_saves(r: Records) -> Judged:
    """On this CPU, the fused form is faster with a causal mask than without one."""
    whole, causal = _contrast(r, "fused all", "fused causal")
    where = f"on this CPU at {_contrasted(r)} positions"
    return compare(causal, whole).judge(
        supported=f"A causal mask makes fused attention {whole / causal} as fast {where}: {causal} "
        f"a call, {whole} without a mask",
        refuted=f"Fused attention is slower with a causal mask {where}: {causal} a call, {whole} "
        "without a mask",
        undecided=f"Nothing shows that a causal mask makes fused attention faster or slower "
        f"{where}: {whole / causal:i} as fast",
    )


def _contrasted(r: Records) -> str:
    return f"{r.one(kind='contrast', device='cpu').case.params['length']:,}"


# ---- facts --------------------------------------------------------------------------------------


@page.fact
def memory_grows(r: Records) -> Fact:
    said: list[str] = []
    for record in _ran(r, "memory"):
        by_form = peaks(record)
        fused = fused_of(by_form)
        short, long = sorted(set(by_form["naive"]) & set(by_form[fused]))[-2:]
        naive, flash = (
            f"{stats.number(by_form[form][long] / by_form[form][short])} times, to "
            f"{stats.number(by_form[form][long] / 1e6)} MB"
            for form in ("naive", fused)
        )
        said.append(
            f"On the {place(record)}, from {short:,} to {long:,} positions, peak memory grows "
            f"{naive}, in the naive form and {flash}, in the fused one"
        )
    return Fact(text="; ".join(said), of="every allocation of one call")


@page.fact
def naive_runs_out(r: Records) -> Fact:
    record = r.one(kind="memory", device="cpu")
    tried: list[Mapping[str, Any]] = record.values["peaks"]
    ran_out = [x["length"] for x in tried if x["form"] == "naive" and x.get("missing") == SHORT]
    by_form = peaks(record)
    fused = max(by_form[fused_of(by_form)])
    how = f"runs out of memory at {ran_out[0]:,} positions" if ran_out else "does not run out"
    limit = record.case.params["limit_gb"]
    return Fact(
        text=f"With {limit:g} GiB to spare, naive attention {how}; the fused form runs at "
        f"{fused:,}, the longest reached",
        of=f"{len(tried)} calls under the limit",
    )


SHORT = "out of memory"


@page.fact
def roof_share(r: Records) -> Fact:
    record = longest_of_both(r, "cpu")
    top = ceilings(r, "cpu")["fp32"]
    naive, fused = (
        stats.per_cent(record.values["flops"] / one.median_s / top) for one in both(record)
    )
    return Fact(
        text=f"At {record.case.params['length']:,} positions in FP32 the fused form reaches "
        f"{fused} of the rate at which this CPU multiplies large matrices, the naive one {naive}",
        of="medians over the best product of another process",
    )


@page.fact
def all_are_correct(r: Records) -> Fact:
    found = [(x, e) for x in _ran(r, "correct") for e in x.values["errors"] if "error" in e]
    right = sum(e["error"] <= x.values["tolerance"][e["dtype"]] for x, e in found)
    return Fact(
        text=f"On random inputs, {right} of {len(found)} combinations agree with float64 to their "
        "dtype's rounding",
        of=f"{len(found)} combinations of device, form, dtype, mask and pass",
    )


@page.fact
def ones_prove_nothing(r: Records) -> Fact:
    found = _scales(r)
    ones = max(e["all ones"] for e in found.values())
    drawn = min(e["random"] for e in found.values())
    return Fact(
        text=f"With a wrong scale, inputs of ones give an error of {ones:.0e} of the largest "
        f"output at most, random inputs one of {stats.per_cent(drawn)} at least",
        of=f"{len(found)} wrong scales",
    )


def _scales(r: Records) -> Mapping[str, Mapping[str, float]]:
    return r.one(kind="correct", device="cpu").values["scales"]


@page.fact
def linted(r: Records) -> Fact:
    """Two forms that are equally fast have no effect that could exceed the spread."""
    failed: Counter[str] = Counter()
    count = 0
    for record in _ran(r, "time"):
        run = record.values["measurements"]
        fused = next((form for form in FUSED if form in run), "")
        for form in run:
            other = "naive" if form != "naive" else fused
            failed.update(lint.mistakes(run[form], against=run.get(other)))
            count += 1
    said = ", ".join(f"{check} ({n})" for check, n in failed.most_common()) or "none"
    return Fact(
        text=f"The measurement linter's checks that a timing of this page fails: {said}",
        of=f"{len(lint.CHECKS) + 1} checks of {count} timings",
    )


# ---- charts and tables --------------------------------------------------------------------------


def _by_device(rows: Sequence[Row]) -> str | None:
    return "device" if len({row["device"] for row in rows}) > 1 else None


def _devices(r: Records, kind: str) -> list[str]:
    """Those that ran; no other has rows."""
    ran = {str(record.case.params["device"]) for record in _ran(r, kind)}
    return [device for device in DEVICES if device in ran]


@page.chart(
    caption="Time of one call, FP32, forward. A line ends before the length at which the form runs "
    "out of memory. The SDPA forms' time includes the switch that allows one backend only."
)
def time(r: Records) -> Chart:
    found = [x for device in _devices(r, "time") for x in timings(r, device)]
    forms = forms_in(*(x.values["measurements"] for x in found))
    rows: list[Row] = []
    for x in found:
        ran = {t: arm(x, f) if f in x.values["measurements"] else None for f, t in forms.items()}
        rows.append({"device": place(x), "positions": x.case.params["length"], **ran})
    return Chart(
        rows,
        x=doubling("positions"),
        y=log(label="time of one call", unit="ms"),
        marks=[line(title) for title in forms.values()],
        facet=_by_device(rows),
    )


@page.chart(
    caption="Peak memory of one call beyond what was held before, FP32, forward. A line ends "
    "before the length at which the form runs out under the limit."
)
def memory(r: Records) -> Chart:
    found = {place(record): (record, peaks(record)) for record in _ran(r, "memory")}
    forms = forms_in(*(by_form for _, by_form in found.values()))
    rows: list[Row] = [
        {
            "device": device,
            "positions": length,
            "limit": float(record.case.params["limit_gb"]) * 2**30,
            **{title: by_form.get(form, {}).get(length) for form, title in forms.items()},
        }
        for device, (record, by_form) in found.items()
        for length in sorted({length for sizes in by_form.values() for length in sizes})
    ]
    return Chart(
        rows,
        x=doubling("positions"),
        y=log(label="peak memory of one call", unit="MB", factor=1e-6),
        marks=[*(line(title) for title in forms.values()), line("limit", markers=False)],
        facet=_by_device(rows),
    )


@page.chart(
    caption="Rate of the products against the work for each byte that must move, FP32, forward, a "
    "point a length. Left of the bend the measured copy limits, right of it the measured product. "
    "Bytes are counted as if no cache kept scores; the math backend's own passes are not counted, "
    "so it has no points."
)
def roof(r: Records) -> Chart:
    rows: list[Row] = []
    for device in _devices(r, "time"):
        limits, found = ceilings(r, device), timings(r, device)
        dots = [_dot(x, form) for x in found for form in x.values["measurements"] if form != "math"]
        most = max(dot["operations a byte"] for dot in dots)
        bend, slope = limits["fp32"] / limits["copy"], limits["copy"] / 1e9
        line_at = {"device": place(found[0]), "form": None, "rate": None}
        rows += [
            {**line_at, "operations a byte": x, "roof": min(x, bend) * slope}
            for x in (1.0, bend, 2 * most)
        ]
        rows += dots
    return Chart(
        rows,
        x=log("operations a byte", "operations a byte moved, counted"),
        y=log(label="rate", unit="Gop/s"),
        marks=[line("roof", markers=False), points("rate", by="form")],
        facet=_by_device(rows),
    )


def _dot(record: Record, form: str) -> dict[str, Any]:
    flops = record.values["flops"]
    return {
        "device": place(record),
        "form": FORMS[form],
        "positions": record.case.params["length"],
        "operations a byte": flops / record.values["moved_bytes"][form],
        "rate": flops / arm(record, form).median_s / 1e9,
    }


@page.table
def cells(r: Records) -> Sequence[Row]:
    """Every timed problem of a device's own shape, a column a form; what did not run says why."""
    found = [x for x in _ran(r, "time") if not is_course(x)]
    forms = forms_in(*(x.values["measurements"] for x in found))
    return [_cell_row(x, forms) for x in sorted(found, key=_order)]


def _order(record: Record) -> tuple[Any, ...]:
    p = record.case.params
    plain = p["mask"] == "none" and not p["backward"]
    return p["device"], not plain or p["dtype"] != "float32", p["backward"], p["length"]


def _cell_row(record: Record, forms: Mapping[str, str]) -> Row:
    p, ran = record.case.params, record.values["measurements"]
    mask = "" if p["mask"] == "none" else f", {p['mask']}"
    problem = f"{place(record)}, {DTYPES[str(p['dtype'])]}, {p['length']:,}{mask}"
    cells = {title: _cell(record, form) for form, title in forms.items()}
    ratio = both(record) if "naive" in ran else None
    return {
        "problem": problem + (", and backward" if p["backward"] else ""),
        **cells,
        "fused over naive": ratio[0] / ratio[1] if ratio else "–",
    }


def _cell(record: Record, form: str) -> TimedArm | str:
    if form in record.values["measurements"]:
        return arm(record, form)
    missing = record.values["missing"].get(form, "")
    return "–" if NO_KERNEL.search(missing) else missing


NO_KERNEL = re.compile("[Nn]o (viable|available)|not (support|compiled)")


@page.table
def dtypes(r: Records) -> Sequence[Row]:
    """The notebook's shape: the speed-up that a report gives depends on the dtype it used."""
    rows: list[Row] = []
    for device in _devices(r, "time"):
        for dtype, name in DTYPES.items():
            record = of_course(r, device, dtype)
            naive, fused = both(record)
            timed_here = {"naive": naive, "fused": fused, "fused over naive": naive / fused}
            rows.append({"device": place(record), "dtype": name, **timed_here})
    return rows


@page.table
def errors(r: Records) -> Sequence[Row]:
    """The largest error of each form and dtype over the masks, and the form chosen when free."""
    rows: list[Row] = []
    for record in _ran(r, "correct"):
        ran = [e for e in record.values["errors"] if "error" in e]
        for form, title in FORMS.items():
            mine = {
                d: [e["error"] for e in ran if (e["form"], e["dtype"]) == (form, d)] for d in DTYPES
            }
            if any(mine.values()):
                worst = {n: f"{max(mine[d]):.1e}" if mine[d] else "–" for d, n in DTYPES.items()}
                rows.append({"device": place(record), "form": title, **worst})
        chosen = {
            name: FORMS.get(record.values["chosen"][d], "another") for d, name in DTYPES.items()
        }
        rows.append({"device": place(record), "form": "chosen when free", **chosen})
    return rows


@page.table
def scales(r: Records) -> Sequence[Row]:
    return [
        {"mistake": name, **{f"error, {kind} inputs": f"{e:.1e}" for kind, e in by_kind.items()}}
        for name, by_kind in _scales(r).items()
    ]
