"""Question 4.2: attention written out against each fused form of it, in time and in memory.

Correct first: every form is held against float64 on random inputs. Then each form of one problem is
timed in turn with the others, so that their ratio holds; memory is taken apart from time, under a
limit that the written-out form runs into.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from madl.logbook import plots, stats
from madl.logbook.experiment import Claim, Context, Experiment, Figure, Params, Plan, Row
from madl.logbook.results import Pending, Record, Records
from madl.machine import lint
from madl.machine.device import no_device

FORMS = {
    "naive": "naive",
    "math": "SDPA math",
    "flash": "SDPA flash",
    "efficient": "SDPA efficient",
    "cudnn": "SDPA cuDNN",
}
ROLES = dict(zip(FORMS, ("second", "third", "first", "fourth", "control")))
DTYPES = {"float32": "FP32", "bfloat16": "BF16", "float16": "FP16"}
DEVICES = {"cpu": "CPU", "cuda": "CUDA"}
FUSED = ("flash", "cudnn", "efficient")  # the first that a device has for a problem
HEAD_DIM = 64
COURSE = {"batch": 32, "heads": 8, "length": 128}  # the shape of the coursework's notebook


def params(plan: Plan) -> Iterable[Params]:
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


def run(params: Params, ctx: Context) -> Mapping[str, Any]:
    if params["kind"] == "correct":
        from madl import attention

        return attention.errors({**params, "head_dim": HEAD_DIM})
    if params["kind"] == "memory":
        from madl.machine import fresh

        sizes = _doubling(int(params["shortest"]), int(params["longest"]))
        extra = {"lengths": sizes, "head_dim": HEAD_DIM, "dtype": "float32"}
        return fresh.call("madl.attention:peaks", {**params, **extra})
    if params["kind"] == "contrast":
        from madl import attention

        return attention.contrast({**params, "head_dim": HEAD_DIM})
    return _time(params)


def _time(params: Params) -> Mapping[str, Any]:
    from madl import attention

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


def timings(records: Records, device: str, **where: Any) -> Records:
    """Cases of one device that were timed, in the default shape unless another is asked for."""
    usual = {"dtype": "float32", "mask": "none", "backward": False}
    found = records.where(kind="time", device=device, **{**usual, **where})
    if not found:
        raise Pending(f"{device} {where}")
    return found


def by_length(records: Records, device: str) -> Records:
    """The default problem as the sequence grows, shortest first."""
    found = [r for r in timings(records, device) if not is_course(r)]
    return Records(sorted(found, key=lambda r: r.case.params["length"]))


def is_course(record: Record) -> bool:
    return all(record.case.params[name] == value for name, value in COURSE.items())


def longest_of_both(records: Records, device: str) -> Record:
    """The longest sequence that the naive form still reaches."""
    both = [r for r in by_length(records, device) if "naive" in r.values["measurements"]]
    if not both:
        raise Pending(device)
    return both[-1]


def samples(record: Record, form: str) -> list[float]:
    """Raises: Pending: the form did not run on this device."""
    found = record.values["measurements"].get(form)
    if found is None:
        raise Pending(f"{form}: {record.values['missing'].get(form)}")
    return found["samples_s"]


def median(values: Sequence[float]) -> float:
    ordered = sorted(values)
    return (ordered[(len(ordered) - 1) // 2] + ordered[len(ordered) // 2]) / 2


def contention(*records: Record) -> float:
    every = (m for r in records for m in r.values["measurements"].values())
    return max(m["contention"] or 0.0 for m in every)


def fused_of(forms: Iterable[str]) -> str:
    """The fused form among these.

    Raises:
        Pending: there is none.
    """
    found = [form for form in FUSED if form in forms]
    if not found:
        raise Pending("no fused form")
    return found[0]


def both_times(record: Record) -> tuple[float, float]:
    """Medians of the naive and of the fused form, in milliseconds."""
    fused = fused_of(record.values["measurements"])
    naive, fast = (1e3 * median(samples(record, form)) for form in ("naive", fused))
    return naive, fast


def speedup(record: Record) -> stats.Comparison:
    """The fused form over the naive one."""
    fused = samples(record, fused_of(record.values["measurements"]))
    return stats.ratio(samples(record, "naive"), fused, contention=contention(record))


def machine_name(records: Records, device: str) -> str:
    """The device; a borrowed GPU with its name and date."""
    if device == "cpu":
        return DEVICES[device]
    found = records.where(kind="time", device=device)
    return f"{found[0].run.device}, {found[0].run.started[:10]}" if found else DEVICES[device]


def article(name: str) -> str:
    return f"the {name}" if name in DEVICES.values() else name


def ceilings(records: Records, device: str) -> Mapping[str, float]:
    """What this device reached at most: products a second by dtype, bytes a second of a copy."""
    for record in records:
        if record.case.experiment == "machine" and record.case.params.get("device") == device:
            fastest = {n: min(m["samples_s"]) for n, m in record.values["measurements"].items()}
            return {name: record.values["amount"][name] / s for name, s in fastest.items()}
    raise Pending(f"ceilings of {device}")


CEILING = {"float32": "fp32", "bfloat16": "bf16", "float16": "fp16"}


def roof(limits: Mapping[str, float], intensity: float, dtype: str) -> float:
    """Operations a second that memory and arithmetic allow at most."""
    return min(limits[CEILING[dtype]], intensity * limits["copy"])


# ---- claims -------------------------------------------------------------------------------------


def _fused_is_faster(device: str) -> Any:
    def claim(records: Records) -> Claim:
        """At the longest sequence that the naive form still reaches."""
        record = longest_of_both(records, device)
        slow, fast = both_times(record)
        fused = FORMS[fused_of(record.values["measurements"])]
        text = (
            f"On {article(machine_name(records, device))}, FP32, "
            f"{record.case.params['length']:,} positions: fused attention ({fused}) takes "
            f"{fast:.3g} ms, naive {slow:.3g} ms"
        )
        return speedup(record).improves(text)

    return claim


def _memory_grows(device: str) -> Any:
    def claim(records: Records) -> Claim:
        peaks = _peaks(records, device)
        fast = fused_of(form for form in FORMS if peaks[form])
        both = sorted(set(peaks["naive"]) & set(peaks[fast]))
        if len(both) < 2:
            raise Pending(device)
        short, long = both[-2:]
        naive, fused = (peaks[form][long] / peaks[form][short] for form in ("naive", fast))
        text = (
            f"{DEVICES[device]}: from {short:,} to {long:,} positions, peak memory grows "
            f"{naive:.2f} times in the naive form (to {peaks['naive'][long] / 1e6:,.0f} MB) and "
            f"{fused:.2f} times in the fused one (to {peaks[fast][long] / 1e6:,.3g} MB)"
        )
        return stats.counted(naive, fused, 2, unit=stats.Unit.TIMES).degrades(text)

    return claim


def _peaks(records: Records, device: str) -> dict[str, dict[int, int]]:
    """Peak bytes by form and length, where a form ran."""
    rows = records.one(kind="memory", device=device).values["peaks"]
    ran = [row for row in rows if "peak_bytes" in row]
    return {
        form: {row["length"]: row["peak_bytes"] for row in ran if row["form"] == form}
        for form in FORMS
    }


def naive_runs_out(records: Records) -> Claim:
    record = records.one(kind="memory", device="cpu")
    limit = record.case.params["limit_gb"]
    short = [row for row in record.values["peaks"] if row.get("missing") == "out of memory"]
    ran_out = {row["form"]: row["length"] for row in short}
    if "naive" not in ran_out:
        raise Pending("the naive form did not run out")
    peaks = _peaks(records, "cpu")
    longest = max(peaks[fused_of(form for form in FORMS if peaks[form])])
    text = (
        f"With {limit:g} GiB to spare, naive attention runs out of memory at "
        f"{ran_out['naive']:,} positions; the fused form runs at {longest:,}, the longest tried"
    )
    positions = stats.Unit.POSITIONS
    return stats.counted(ran_out["naive"], longest, 2, unit=positions).improves(text)


def all_are_correct(records: Records) -> Claim:
    correct = records.where(kind="correct")
    found = [e for r in correct for e in r.values["errors"] if "error" in e]
    if not found:
        raise Pending("correct")
    tolerance = correct[0].values["tolerance"]
    wrong = [e for e in found if e["error"] > tolerance[e["dtype"]]]
    text = (
        f"On random inputs, {len(found) - len(wrong)} of {len(found)} combinations of form, "
        f"dtype, mask and pass agree with float64 to their dtype's rounding"
    )
    return stats.none_of(len(wrong), len(found), text)


def ones_prove_nothing(records: Records) -> Claim:
    scales = records.where(kind="correct")
    if not scales:
        raise Pending("correct")
    found = scales[0].values["scales"]
    ones = max(e["all ones"] for e in found.values())
    drawn = min(e["random"] for e in found.values())
    text = (
        f"With a wrong scale, all-ones inputs give an error of {ones:.0e} and random inputs at "
        f"least {drawn:.0%} of the largest output"
    )
    return stats.counted(ones, drawn, len(found), unit=stats.Unit.PERCENT).improves(text)


def _contrast(records: Records, a: str, b: str) -> tuple[float, float, stats.Comparison]:
    """Two of the variants that took turns: medians in milliseconds, and B against A."""
    record = records.one(kind="contrast", device="cpu")
    before, after = samples(record, a), samples(record, b)
    compared = stats.ratio(before, after, contention=contention(record))
    return 1e3 * median(before), 1e3 * median(after), compared


def fp16_is_slow(records: Records) -> Claim:
    wide, half, compared = _contrast(records, "naive float32", "naive float16")
    length = records.one(kind="contrast", device="cpu").case.params["length"]
    text = (
        f"On this CPU, naive attention over {length:,} positions takes {half:.3g} ms in FP16 and "
        f"{wide:.3g} ms in FP32"
    )
    return compared.degrades(text)


def bf16_reverses(records: Records) -> Claim:
    """Where the product has fast instructions, a fused form has to have them too."""
    found = [r for r in timings(records, "cpu", dtype="bfloat16") if is_course(r)]
    if not found:
        raise Pending("the notebook's shape")
    slow, fast = both_times(found[0])
    text = (
        f"At the notebook's shape in BF16 on this CPU, fused attention takes {fast:.3g} ms, more "
        f"than the naive form's {slow:.3g} ms"
    )
    return speedup(found[0]).degrades(text)


def causal_saves(records: Records) -> Claim:
    whole, causal, compared = _contrast(records, "fused all", "fused causal")
    length = records.one(kind="contrast", device="cpu").case.params["length"]
    text = (
        f"With a causal mask the fused form takes {causal:.3g} ms and without one {whole:.3g} ms, "
        f"at {length:,} positions"
    )
    return compared.improves(text)


def training_too(records: Records) -> Claim:
    record = timings(records, "cpu", backward=True)[0]
    slow, fast = both_times(record)
    text = (
        f"Forward and backward at {record.case.params['length']:,} positions on the CPU: fused "
        f"{fast:.3g} ms, naive {slow:.3g} ms"
    )
    return speedup(record).improves(text)


def closer_to_roof(records: Records) -> Claim:
    record = longest_of_both(records, "cpu")
    limits = ceilings(records, "cpu")
    fused = fused_of(record.values["measurements"])
    shares = [_share(record, form, limits) for form in ("naive", fused)]
    text = (
        f"At {record.case.params['length']:,} positions in FP32 the fused form reaches "
        f"{shares[1]:.0%} of the rate at which this processor multiplies large matrices, the naive "
        f"one {shares[0]:.0%}"
    )
    return speedup(record).improves(text)


def _share(record: Record, form: str, limits: Mapping[str, float]) -> float:
    """Of the arithmetic ceiling."""
    rate = record.values["flops"] / median(samples(record, form))
    return rate / limits[CEILING[str(record.case.params["dtype"])]]


# ---- figures and tables -------------------------------------------------------------------------


def time_rows(records: Records) -> Sequence[Row]:
    rows: list[Row] = []
    for device in DEVICES:
        if not records.where(kind="time", device=device):
            continue
        for record in by_length(records, device):
            row: dict[str, Any] = {"device": device, "positions": record.case.params["length"]}
            for form, title in FORMS.items():
                found = record.values["measurements"].get(form)
                row[title] = 1e3 * median(found["samples_s"]) if found else None
            rows.append(row)
    return rows


def draw_time(ax: Any, rows: Sequence[Row]) -> None:
    devices = list(dict.fromkeys(str(row["device"]) for row in rows))
    for device in devices:
        mine = [row for row in rows if row["device"] == device]
        for form, title in FORMS.items():
            label = title if len(devices) == 1 else f"{title}, {DEVICES[device]}"
            plots.curve(ax, mine, "positions", title, ROLES[form], label=label)
            if device == "cuda" and ax.lines:
                ax.lines[-1].set_markerfacecolor("none")
    ax.set_yscale("log")
    plots.doubling_axis(ax, sorted({float(row["positions"]) for row in rows}), "positions")  # type: ignore[arg-type]
    ax.set_ylabel("time of one call (ms)")
    plots.legend(ax)


def time_alt(rows: Sequence[Row]) -> str:
    points = "; ".join(
        f"{DEVICES[str(row['device'])]}, {row['positions']} positions: "
        + ", ".join(f"{t} {row[t]:.3g} ms" for t in FORMS.values() if row[t] is not None)
        for row in rows
    )
    return f"Time of one attention by length. {points}."


def memory_rows(records: Records) -> Sequence[Row]:
    device = "cuda" if records.where(kind="memory", device="cuda") else "cpu"
    peaks = _peaks(records, device)
    record = records.one(kind="memory", device=device)
    lengths = sorted({length for by in peaks.values() for length in by})
    return [
        {
            "device": DEVICES[device],
            "positions": length,
            "limit (MB)": float(record.case.params["limit_gb"]) * 2**30 / 1e6,
            **{
                title: peaks[form][length] / 1e6 if length in peaks[form] else None
                for form, title in FORMS.items()
            },
        }
        for length in lengths
    ]


def draw_memory(ax: Any, rows: Sequence[Row]) -> None:
    for form, title in FORMS.items():
        plots.curve(ax, rows, "positions", title, ROLES[form], label=title)
    plots.level(ax, float(rows[0]["limit (MB)"]), "chance", label="limit")  # type: ignore[arg-type]
    ax.set_yscale("log")
    plots.doubling_axis(ax, [float(row["positions"]) for row in rows], "positions")  # type: ignore[arg-type]
    ax.set_ylabel("peak memory of one call (MB)")
    plots.legend(ax)


def memory_alt(rows: Sequence[Row]) -> str:
    points = "; ".join(
        f"{row['positions']}: "
        + ", ".join(f"{t} {row[t]:.3g}" for t in FORMS.values() if row[t] is not None)
        for row in rows
    )
    return f"Peak memory of one call in MB, by positions, on {rows[0]['device']}. {points}."


def roof_rows(records: Records) -> Sequence[Row]:
    """One point a form and length, FP32 forward; the roof over it from the measured ceilings."""
    rows: list[Row] = []
    for device in DEVICES:
        try:
            found, limits = by_length(records, device), ceilings(records, device)
        except Pending:
            continue
        for record in found:
            for form, title in FORMS.items():
                if form not in record.values["measurements"]:
                    continue
                flops, moved = record.values["flops"], record.values["moved_bytes"][form]
                rate = flops / median(samples(record, form))
                bound = roof(limits, flops / moved, "float32")
                rows.append(
                    {
                        "device": DEVICES[device],
                        "form": title,
                        "positions": record.case.params["length"],
                        "operations a byte": flops / moved,
                        "Gop/s": rate / 1e9,
                        "roof (Gop/s)": bound / 1e9,
                        "product (Gop/s)": limits["fp32"] / 1e9,
                        "copy (GB/s)": limits["copy"] / 1e9,
                    }
                )
    if not rows:
        raise Pending("no ceiling is measured")
    return rows


def draw_roof(ax: Any, rows: Sequence[Row]) -> None:
    every = [float(row["operations a byte"]) for row in rows]  # type: ignore[arg-type]
    span = [min(every) / 2 * (4 * max(every) / min(every)) ** (k / 60) for k in range(61)]
    for device in dict.fromkeys(row["device"] for row in rows):
        mine = [row for row in rows if row["device"] == device]
        top, slope = float(mine[0]["product (Gop/s)"]), float(mine[0]["copy (GB/s)"])  # type: ignore[arg-type]
        ax.plot(
            span, [min(top, slope * x) for x in span], **plots.line("fp32", label=f"{device} roof")
        )
    role = {title: ROLES[form] for form, title in FORMS.items()}
    for title in dict.fromkeys(str(row["form"]) for row in rows):
        mine = [row for row in rows if row["form"] == title]
        look = plots.line(role[title], label=title, linestyle="none", markersize=7)
        ax.plot([r["operations a byte"] for r in mine], [r["Gop/s"] for r in mine], **look)
    ax.set_xscale("log")
    ax.set_yscale("log")
    ax.set_xlabel("operations a byte moved, counted")
    ax.set_ylabel("Gop/s")
    plots.legend(ax)


def roof_alt(rows: Sequence[Row]) -> str:
    points = "; ".join(
        f"{row['device']} {row['form']}, {row['positions']} positions: {row['Gop/s']:.3g} of "
        f"{row['roof (Gop/s)']:.3g} Gop/s"
        for row in rows
    )
    return f"Rate against the roof. {points}."


def cells_table(records: Records) -> Sequence[Row]:
    """Every timed problem, a column a form; what did not run says why."""
    by_length(records, "cpu")  # pending without it
    rows: list[Row] = []
    for device in DEVICES:
        found = records.where(kind="time", device=device)
        if not found:
            rows.append({"device": DEVICES[device], **dict.fromkeys(COLUMNS)})
        usual = sorted((r for r in found if not is_course(r)), key=_order)
        rows += [_cell_row(records, record) for record in usual]
    return rows


def _order(record: Record) -> tuple[Any, ...]:
    params = record.case.params
    plain = params["mask"] == "none" and not params["backward"]
    return not plain or params["dtype"] != "float32", params["backward"], params["length"]


COLUMNS = ("problem", *FORMS.values())


def _cell_row(records: Records, record: Record) -> Row:
    p = record.case.params
    mask = "" if p["mask"] == "none" else f", {p['mask']}"
    problem = f"{DTYPES[str(p['dtype'])]}, {p['length']:,}{mask}"
    return {
        "device": machine_name(records, str(p["device"])),
        "problem": problem + (", and backward" if p["backward"] else ""),
        **{title: _cell(record, form) for form, title in FORMS.items()},
    }


def _cell(record: Record, form: str) -> str:
    measurements = record.values["measurements"]
    if form not in measurements:
        missing = record.values["missing"].get(form, "")
        return "–" if NO_KERNEL.search(missing) else missing
    ms = f"{1e3 * median(samples(record, form)):.3g} ms"
    if form == "naive" or "naive" not in measurements:
        return ms
    low, high = stats.ratio_interval(samples(record, "naive"), samples(record, form))
    crowded = ", contended" if contention(record) > stats.CONTENDED else ""
    return f"{ms} ({low:.2f} to {high:.2f} ×{crowded})"


NO_KERNEL = re.compile("[Nn]o (viable|available)|not (support|compiled)")


def dtype_table(records: Records) -> Sequence[Row]:
    """The notebook's shape: the speed-up that a report gives depends on the dtype it used."""
    by_length(records, "cpu")  # pending without it
    rows: list[Row] = []
    for device in DEVICES:
        found = [r for r in records.where(kind="time", device=device) if is_course(r)]
        if not found:
            rows.append(
                {
                    "device": DEVICES[device],
                    **dict.fromkeys(("dtype", "naive", "fused", "speed-up")),
                }
            )
        for record in found:
            fused = samples(record, fused_of(record.values["measurements"]))
            naive = samples(record, "naive")
            low, high = stats.ratio_interval(naive, fused)
            rows.append(
                {
                    "device": machine_name(records, device),
                    "dtype": DTYPES[str(record.case.params["dtype"])],
                    "naive": f"{1e3 * median(naive):.3g} ms",
                    "fused": f"{1e3 * median(fused):.3g} ms",
                    "speed-up": f"{low:.2f} to {high:.2f} ×",
                }
            )
    return rows


def errors_table(records: Records) -> Sequence[Row]:
    """The largest error of each form and dtype over the masks."""
    rows: list[Row] = []
    for record in records.where(kind="correct"):
        for form, title in FORMS.items():
            row: dict[str, Any] = {
                "device": DEVICES[str(record.case.params["device"])],
                "form": title,
            }
            for dtype, name in DTYPES.items():
                mine = [
                    e for e in record.values["errors"] if e["form"] == form and e["dtype"] == dtype
                ]
                found = [e["error"] for e in mine if "error" in e]
                row[name] = f"{max(found):.1e}" if found else "–"
            rows.append(row)
        chosen = record.values["chosen"]
        rows.append(
            {
                "device": DEVICES[str(record.case.params["device"])],
                "form": "chosen when free",
                **{name: FORMS.get(chosen[d], chosen[d]) for d, name in DTYPES.items()},
            }
        )
    return rows


def scales_table(records: Records) -> Sequence[Row]:
    found = records.where(kind="correct")
    if not found:
        raise Pending("correct")
    return [
        {"mistake": name, **{f"error, {kind} inputs": f"{e:.1e}" for kind, e in by.items()}}
        for name, by in found[0].values["scales"].items()
    ]


def lint_table(records: Records) -> Sequence[Row]:
    """The linter on every timing of the page: which checks fail, in how many of them."""
    found: dict[str, list[bool]] = {}
    timed = [r for kind in ("time", "contrast") for r in records.where(kind=kind)]
    for record in timed:
        both = record.values["measurements"]
        for form, measurement in both.items():
            other = both["naive"] if form != "naive" and "naive" in both else both.get(FUSED[0])
            for finding in lint.lint(measurement, against=other):
                found.setdefault(finding.check, []).append(finding.passed)
    return [
        {"check": check, "timings": len(marks), "fail": sum(not passed for passed in marks)}
        for check, marks in found.items()
    ]


def reported(_: Records) -> Sequence[Row]:
    """Figures of public reports and of the coursework's own outputs, at the notebook's shape."""
    return [
        {"figure": "fused over naive, FP16, CPU", "reported": "1.15 to 117 ×"},
        {"figure": "fused over naive, FP16, CUDA", "reported": "1.8 to 4.6 ×"},
        {"figure": "one report, CPU", "reported": ".0136 → .0061 s"},
        {"figure": "one report, CUDA", "reported": ".0128 → .0008 to .0031 s"},
    ]


experiment = Experiment(
    title="Attention: fused against naive",
    params=params,
    run=run,
    claims={
        "cpu_faster": _fused_is_faster("cpu"),
        "cuda_faster": _fused_is_faster("cuda"),
        "cpu_memory": _memory_grows("cpu"),
        "cuda_memory": _memory_grows("cuda"),
        "naive_runs_out": naive_runs_out,
        "training_too": training_too,
        "causal_saves": causal_saves,
        "closer_to_roof": closer_to_roof,
        "all_are_correct": all_are_correct,
        "ones_prove_nothing": ones_prove_nothing,
        "fp16_is_slow": fp16_is_slow,
        "bf16_reverses": bf16_reverses,
    },
    figures={
        "time": Figure(
            caption="Time grows with the square of the length in every form, for all do the same "
            "products; the written-out forms also carry every score to memory and back.",
            rows=time_rows,
            draw=draw_time,
            alt=time_alt,
        ),
        "memory": Figure(
            caption="The written-out forms hold every score: memory grows with the square of the "
            "length, up to the limit. The fused form holds a tile of them.",
            rows=memory_rows,
            draw=draw_memory,
            alt=memory_alt,
        ),
        "roof": Figure(
            caption="The fused form does more work for each byte it moves, so the memory's roof "
            "stops it later; a point above the slanted roof works from the cache.",
            rows=roof_rows,
            draw=draw_roof,
            alt=roof_alt,
        ),
    },
    tables={
        "cells": cells_table,
        "dtypes": dtype_table,
        "errors": errors_table,
        "scales": scales_table,
        "lint": lint_table,
        "reported": reported,
    },
    needs=("machine",),
    timed=True,
    unavailable=no_device,
)
