"""Question 4.1: why naive timing shows no speed-up from torch.compile, and what there is of one.

Every cell runs in a process of its own with empty compiler caches, so that its first call pays for
the whole compilation. The naive way is run as well, as a measurement like any other, and the linter
that reads the records has to find its mistakes.
"""

import importlib.util
import os
import shutil
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from madl.logbook import plots, stats
from madl.logbook.experiment import Claim, Context, Experiment, Figure, Params, Plan, Row
from madl.logbook.results import Pending, Record, Records
from madl.machine import lint
from madl.machine.device import no_device, num_cores

NETWORKS = {"resnet18": "ResNet-18", "bert": "BERT"}
DEVICES = {"cpu": "CPU", "cuda": "CUDA"}
DEFAULT = {"backend": "inductor", "mode": "default"}
NAIVE_CALLS = 5  # as in the course's notebook
SAME = 0.05  # medians closer than this count as the same
COMPILERS = ("g++", "clang++", "c++")


def params(plan: Plan) -> Iterable[Params]:
    choose = plan.profile.choose
    sizes = {
        "resnet18": choose(smoke=64, quick=224, full=224),
        "bert": choose(smoke=8, quick=32, full=32),
    }
    batches = {
        ("cpu", "resnet18"): choose(smoke=(1,), quick=(1,), full=(1, 8)),
        ("cpu", "bert"): choose(smoke=(2,), quick=(8,), full=(1, 8, 32)),
        ("cuda", "resnet18"): choose(smoke=(1,), quick=(1, 32, 128), full=(1, 32, 128)),
        ("cuda", "bert"): choose(smoke=(2,), quick=(1, 32, 128), full=(1, 32, 128)),
    }
    shared = {"budget_s": choose(smoke=0.02, quick=2.0, full=5.0)}
    for device in DEVICES:
        for network, size in sizes.items():
            for batch in batches[device, network]:
                base = {
                    "device": device,
                    "network": network,
                    "batch": batch,
                    "size": size,
                    **shared,
                }
                if network == "bert":
                    base |= {"model": plan.workload["model"]}
                for way in ways(plan, device, network):
                    yield {"kind": "cell", **base, **way}
        first = batches[device, "resnet18"][0]
        yield {
            **{"kind": "naive", "device": device, "network": "resnet18", "batch": first},
            **{"size": sizes["resnet18"], "naive_calls": NAIVE_CALLS, **shared, **naive_way(plan)},
        }
    lengths = choose(smoke="3 4", quick=LENGTHS, full=LENGTHS)
    yield {"kind": "shapes", "lengths": lengths}


LENGTHS = "11 13 17 19 23 29 31 37 41 43 47 53"


def ways(plan: Plan, device: str, network: str) -> list[dict[str, Any]]:
    """Backends, and inductor's modes; a short run on a CPU has time for few."""
    capture = {"backend": "aot_eager", "mode": "default"}
    if plan.profile.name == "smoke":
        return [capture]
    if device == "cpu" and plan.profile.name == "quick":
        return [DEFAULT, capture] if network == "resnet18" else [DEFAULT]
    modes = ("reduce-overhead", "max-autotune")
    found = [DEFAULT, capture, {"backend": "eager", "mode": "default"}]
    found += [{"backend": "inductor", "mode": mode} for mode in modes]
    if device == "cuda":
        found += [{"backend": b, "mode": "default"} for b in ("cudagraphs", "torch_tensorrt")]
    return found


def naive_way(plan: Plan) -> dict[str, Any]:
    return {"backend": "aot_eager", "mode": "default"} if plan.profile.name == "smoke" else DEFAULT


def unavailable(params: Params) -> str | None:
    """No device, no compiler, no such backend: why a case cannot run here."""
    reason = no_device(params)
    if reason:
        return reason
    if params.get("backend") == "torch_tensorrt" and not importlib.util.find_spec("torch_tensorrt"):
        return "Torch-TensorRT is not installed here"
    compilers = [os.environ.get("CXX"), *COMPILERS]
    if params.get("backend") == "inductor" and not any(shutil.which(c) for c in compilers if c):
        return "no C++ compiler here, which inductor needs"
    return None


def run(params: Params, ctx: Context) -> Mapping[str, Any]:
    from madl.machine import fresh

    argument = {**params, "threads": num_cores()}
    if params["kind"] == "naive":
        return fresh.call("madl.compiling:measure_naively", argument)
    if params["kind"] == "shapes":
        sizes = [int(size) for size in str(params["lengths"]).split()]
        return fresh.call("madl.compiling:study_shapes", {**argument, "sizes": sizes})
    return fresh.call("madl.compiling:measure", argument)


# ---- reading the records ------------------------------------------------------------------------


def cells(records: Records, **where: Any) -> Records:
    """The cells that ran, those whose backend failed among them."""
    return records.where(kind="cell", **where)


def cell(records: Records, network: str, device: str = "cpu", **way: Any) -> Record:
    """The first batch size of this network under the default compiler, or another way.

    Raises:
        Pending: it is not there, or its backend failed.
    """
    there = cells(records, network=network, device=device, **{**DEFAULT, **way})
    found = [r for r in there if "measurements" in r.values]
    if not found:
        raise Pending(f"{network} on {device}")
    return min(found, key=lambda r: r.case.params["batch"])


def samples(record: Record, variant: str) -> list[float]:
    return record.values["measurements"][variant]["samples_s"]


def contention(record: Record) -> float:
    """The more contended of the two variants."""
    both = record.values["measurements"].values()
    return max(m["contention"] or 0.0 for m in both)


def speedup(record: Record) -> stats.Comparison:
    eager, compiled = samples(record, "eager"), samples(record, "compiled")
    return stats.ratio(eager, compiled, contention=contention(record))


def times(record: Record) -> tuple[float, float]:
    """Medians of eager and compiled, in milliseconds."""
    eager, compiled = (1e3 * median(samples(record, v)) for v in ("eager", "compiled"))
    return eager, compiled


def median(values: Sequence[float]) -> float:
    ordered = sorted(values)
    return (ordered[(len(ordered) - 1) // 2] + ordered[len(ordered) // 2]) / 2


def first_calls(record: Record) -> tuple[float, float]:
    eager, compiled = (
        record.values["measurements"][v]["first_call_s"] for v in ("eager", "compiled")
    )
    return eager, compiled


def pays_after(record: Record) -> tuple[float, stats.Interval] | None:
    eager, compiled = first_calls(record)
    return stats.break_even(
        [compiled - eager], samples(record, "eager"), samples(record, "compiled")
    )


def naive(records: Records, device: str = "cpu") -> Record:
    return records.one(kind="naive", device=device)


def naive_ratio(record: Record) -> float:
    """Mean over mean, as the course's notebook prints it."""
    eager, compiled = (samples(record, v) for v in ("eager", "compiled"))
    return (sum(eager) / len(eager)) / (sum(compiled) / len(compiled))


def named(record: Record) -> str:
    """The way of a cell, in a few words."""
    backend, mode = record.case.params["backend"], record.case.params["mode"]
    return f"{backend}, {mode}" if backend == "inductor" else str(backend)


def place(record: Record) -> str:
    """The device; a borrowed GPU with its name and date."""
    if record.case.params["device"] == "cpu":
        return DEVICES["cpu"]
    return f"{record.run.device}, {record.run.started[:10]}"


# ---- claims -------------------------------------------------------------------------------------


def _faster(network: str, device: str = "cpu", **way: Any) -> Any:
    def claim(records: Records) -> Claim:
        record = cell(records, network, device, **way)
        eager, compiled = times(record)
        batch = record.case.params["batch"]
        text = (
            f"On the {'CPU' if device == 'cpu' else record.run.device}, {NETWORKS[network]} "
            f"(batch {batch}) takes {compiled:.3g} ms a call compiled, {eager:.3g} ms in eager mode"
        )
        return speedup(record).improves(text)

    return claim


def naive_misleads(records: Records) -> Claim:
    wrong, right = naive(records), cell(records, "resnet18")
    ratio = naive_ratio(wrong)
    eager, compiled = times(right)
    calls = len(samples(wrong, "eager"))
    text = (
        f"Timed naively, as the mean of {calls} calls with the first among them, compiled "
        f"ResNet-18 is {speed(ratio)} than eager mode; with the first call apart it takes "
        f"{compiled / eager:.0%} of eager mode's time"
    )
    crowded = max(contention(wrong), contention(right))
    compared = stats.counted(
        eager / compiled, ratio, calls, unit=stats.Unit.TIMES, contention=crowded
    )
    return compared.degrades(text)


def speed(ratio: float) -> str:
    return f"{ratio:.3g} times faster" if ratio >= 1 else f"{1 / ratio:.3g} times slower"


def _pays_back(network: str) -> Any:
    def claim(records: Records) -> Claim:
        record = cell(records, network)
        first, calls = first_calls(record)[1], pays_after(record)
        text = f"The first call of compiled {NETWORKS[network]} takes {first:.3g} s, "
        if calls is None:
            text += "and no number of calls is shown to pay for it"
        else:
            number, interval = calls
            text += (
                f"which is paid for after {rounded(number)} calls "
                f"[{rounded(interval.low)}, {rounded(interval.high)}]"
            )
        return speedup(record).improves(text)

    return claim


def rounded(calls: float) -> str:
    """Two significant digits: a first call was timed once."""
    return f"{float(f'{calls:.2g}'):,.0f}"


def fewer_passes(records: Records) -> Claim:
    record = cell(records, "resnet18")
    before, after = num_kernels(record)
    text = f"A call of ResNet-18 runs {before} operators in eager mode and {after} kernels compiled"
    return stats.counted(before, after, before, unit=stats.Unit.KERNELS).degrades(text)


def num_kernels(record: Record) -> tuple[int, int]:
    found = record.values["kernels"]
    generated = (
        sum(record.values["generated"].values()) if record.case.params["device"] == "cpu" else 0
    )
    return sum(found["eager"].values()), sum(found["compiled"].values()) + generated


def capture_alone(records: Records) -> Claim:
    record = cell(records, "resnet18", backend="aot_eager")
    text = (
        f"Capturing ResNet-18's graph without generating code for it leaves the time of a call "
        f"the same, to within {SAME:.0%}"
    )
    return speedup(record).within(SAME, text)


def linter_finds(records: Records) -> Claim:
    found = {name: sum(not passed for passed in marks) for name, marks in _marks(records).items()}
    n = len(lint.CHECKS) + 1
    text = (
        f"Of {n} checks on a record, the naive timing of the compiled model fails "
        f"{found['naive']} and the one on this page {found['right']}"
    )
    return stats.counted(found["right"] / n, found["naive"] / n, n).improves(text)


def _marks(records: Records) -> dict[str, list[bool]]:
    return {
        name: [finding.passed for finding in _findings(record)]
        for name, record in (("naive", naive(records)), ("right", cell(records, "resnet18")))
    }


def _findings(record: Record) -> list[lint.Finding]:
    both = record.values["measurements"]
    return lint.lint(both["compiled"], against=both["eager"])


def sizes_recompile(records: Records) -> Claim:
    values = records.one(kind="shapes").values
    static, automatic = values["graphs"]["static"][-1], values["graphs"]["automatic"][-1]
    count = len(values["sizes"])
    text = (
        f"For {count} batch sizes in a row, `dynamic=False` compiles {static} graphs and then "
        f"leaves the rest to eager mode (the limit is {values['limit']}); left alone, "
        f"torch.compile makes {automatic}"
    )
    return stats.counted(automatic, static, count, unit=stats.Unit.GRAPHS).improves(text)


WHOLE = "tensor operations only"


def data_breaks(records: Records) -> Claim:
    found = records.one(kind="shapes").values["breaks"]
    whole = found[WHOLE]
    others = [example for name, example in found.items() if name != WHOLE]
    breaks = sum(example["breaks"] for example in others)
    text = (
        f"Each of {len(others)} small functions that need a tensor's value in Python breaks its "
        f"graph, {breaks} times in all; one of tensor operations alone has {whole['breaks']} breaks"
    )
    return stats.counted(whole["breaks"], breaks, len(found), unit=stats.Unit.GRAPHS).improves(text)


def graphs_pay(records: Records) -> Claim:
    """On CUDA a small batch is bound by launches, which a CUDA graph replays as one."""
    plain = cell(records, "bert", "cuda")
    graphed = cell(records, "bert", "cuda", mode="reduce-overhead")
    before, after = (1e3 * median(samples(r, "compiled")) for r in (plain, graphed))
    text = (
        f"At batch {plain.case.params['batch']}, CUDA graphs bring BERT's compiled call from "
        f"{before:.3g} to {after:.3g} ms"
    )
    pairs = list(zip(samples(plain, "compiled"), samples(graphed, "compiled")))  # two processes
    crowded = max(contention(plain), contention(graphed))
    return stats.ratio([a for a, _ in pairs], [b for _, b in pairs], contention=crowded).improves(
        text
    )


# ---- figures and tables -------------------------------------------------------------------------

CALLS = tuple(round(10 ** (k / 8)) for k in range(8, 49))  # ten to a million
TOP = 3.0  # where the axis is cut: the first calls are hundreds of times slower


def total_rows(records: Records) -> Sequence[Row]:
    """Time of all calls so far, compiled over eager."""
    rows: list[dict[str, Any]] = [{"calls": calls} for calls in CALLS]
    for network, title in NETWORKS.items():
        record = cell(records, network)
        first, later = first_calls(record), [ms / 1e3 for ms in times(record)]
        for row in rows:
            eager, compiled = (f + (row["calls"] - 1) * each for f, each in zip(first, later))
            row[title] = compiled / eager
    return rows


def draw_total(ax: Any, rows: Sequence[Row]) -> None:
    plots.level(ax, 1.0, "chance", label="eager mode")
    for role, title in zip(("first", "second"), NETWORKS.values()):
        look = plots.line(role, marker="", label=f"{title}, compiled")
        ax.plot([row["calls"] for row in rows], [row[title] for row in rows], **look)
    ax.set_xscale("log")
    ax.set_ylim(0, TOP)
    ax.set_xlabel("calls of the model")
    ax.set_ylabel("total time ÷ eager mode's (axis cut)")
    plots.legend(ax)


def total_alt(rows: Sequence[Row]) -> str:
    points = "; ".join(
        f"{row['calls']:,} calls: "
        + ", ".join(f"{title} {row[title]:.3g}" for title in NETWORKS.values())
        for row in rows[::8]
    )
    return f"Total time of the compiled model as a multiple of eager mode's. {points}."


def cells_table(records: Records) -> Sequence[Row]:
    rows = [_cell_row(record) for record in cells(records)]
    if not cells(records, device="cuda"):
        blank = dict.fromkeys(list(rows[0])[3:])
        rows += [{"model": t, "batch": None, "device": "CUDA", **blank} for t in NETWORKS.values()]
    return rows


def _cell_row(record: Record) -> dict[str, Any]:
    params = record.case.params
    row: dict[str, Any] = {
        "model": NETWORKS[str(params["network"])],
        "batch": params["batch"],
        "device": place(record),
        "compiler": named(record),
    }
    if "failed" in record.values:
        return {**row, "first call": record.values["failed"], **dict.fromkeys(LAST, "–")}
    interval = stats.ratio_interval(samples(record, "eager"), samples(record, "compiled"))
    eager, compiled = times(record)
    calls = pays_after(record)
    busy = " (contended)" if contention(record) > stats.CONTENDED else ""
    return {
        **row,
        "first call": f"{first_calls(record)[1]:.3g} s",
        "later calls, eager → compiled": f"{eager:.3g} → {compiled:.3g} ms{busy}",
        "speed-up": f"{interval.low:.2f} to {interval.high:.2f}",
        "pays after": "not shown" if calls is None else f"{rounded(calls[0])} calls",
    }


LAST = ("later calls, eager → compiled", "speed-up", "pays after")


def naive_table(records: Records) -> Sequence[Row]:
    naive(records), cell(records, "resnet18")  # pending without them, whatever else is there
    rows: list[Row] = []
    for device in DEVICES:
        for title, wrong in (("naive", True), ("this page", False)):
            row: dict[str, Any] = {"device": DEVICES[device], "timing": title}
            try:
                record = naive(records, device) if wrong else cell(records, "resnet18", device)
            except Pending:
                rows.append({**row, "eager": None, "compiled": None, "speed-up": None})
                continue
            eager, compiled = (samples(record, v) for v in ("eager", "compiled"))
            middle = (lambda v: sum(v) / len(v)) if wrong else median
            a, b = middle(eager), middle(compiled)
            rows.append(
                {
                    **row,
                    "eager": f"{1e3 * a:.3g} ms",
                    "compiled": f"{1e3 * b:.4g} ms",
                    "speed-up": f"{a / b:.3g} ×",
                }
            )
    return rows


def lint_table(records: Records) -> Sequence[Row]:
    wrong, right = _findings(naive(records)), _findings(cell(records, "resnet18"))
    return [
        {"check": w.check, "naive timing": _mark(w), "this page's timing": _mark(r)}
        for w, r in zip(wrong, right)
    ]


def _mark(finding: lint.Finding) -> str:
    return f"{'✓' if finding.passed else '✗'} {finding.why}"


def every_record(records: Records) -> Sequence[Row]:
    """The linter on every cell of the page."""
    return [
        {
            "model": NETWORKS[str(record.case.params["network"])],
            "batch": record.case.params["batch"],
            "device": DEVICES[str(record.case.params["device"])],
            "compiler": named(record),
            "contended": f"{contention(record):.0%}",
            "checks that fail": ", ".join(f.check for f in _findings(record) if not f.passed)
            or "none",
        }
        for record in cells(records)
        if "measurements" in record.values
    ]


def kernels_table(records: Records) -> Sequence[Row]:
    """What ResNet-18's call runs before and after, by name."""
    record = cell(records, "resnet18")
    found, generated = record.values["kernels"], record.values["generated"]
    before, after = found["eager"], {**found["compiled"], **generated}
    rows: list[Row] = [
        {"runs": f"`{name}`", "eager": before.get(name, 0), "compiled": after.get(name, 0)}
        for name in [*before, *(n for n in after if n not in before)]
    ]
    return rows


def graphs_rows(records: Records) -> Sequence[Row]:
    values = records.one(kind="shapes").values
    return [
        {"call": i + 1, "size": size, **{name: made[i] for name, made in values["graphs"].items()}}
        for i, size in enumerate(values["sizes"])
    ]


def draw_graphs(ax: Any, rows: Sequence[Row]) -> None:
    for role, name in zip(("second", "first", "third"), ("static", "automatic", "dynamic")):
        calls = [row["call"] for row in rows]
        ax.plot(calls, [row[name] for row in rows], **plots.line(role, label=name))
    ax.set_xlabel("call, each with a new batch size")
    ax.set_ylabel("graphs compiled so far")
    plots.legend(ax)


def graphs_alt(rows: Sequence[Row]) -> str:
    last = rows[-1]
    return (
        f"After {len(rows)} sizes: static {last['static']} graphs, automatic {last['automatic']}, "
        f"dynamic {last['dynamic']}."
    )


def breaks_table(records: Records) -> Sequence[Row]:
    found = records.one(kind="shapes").values["breaks"]
    return [
        {
            "function has": name,
            "graphs": e["graphs"],
            "breaks": e["breaks"],
            "torch says": e["why"] or "–",
        }
        for name, e in found.items()
    ]


def reported(_: Records) -> Sequence[Row]:
    """Public reports and the coursework's own outputs: ResNet-18 on their machines."""
    return [
        {"figure": "speed-up of later calls, CPU", "reported": "1.2 to 1.9 ×"},
        {"figure": "speed-up of later calls, CUDA", "reported": "0.86 to 1.33 ×"},
        {"figure": "first call", "reported": "3 to 11 s"},
        {"figure": "one report, CPU", "reported": "2.52 → 1.70 s"},
        {"figure": "one report, CUDA", "reported": ".075 → .066 s"},
    ]


experiment = Experiment(
    title="torch.compile: when does it pay?",
    params=params,
    run=run,
    claims={
        "naive_misleads": naive_misleads,
        "resnet_faster": _faster("resnet18"),
        "bert_faster": _faster("bert"),
        "resnet_pays": _pays_back("resnet18"),
        "bert_pays": _pays_back("bert"),
        "fewer_passes": fewer_passes,
        "capture_alone": capture_alone,
        "linter_finds": linter_finds,
        "sizes_recompile": sizes_recompile,
        "data_breaks": data_breaks,
        "cuda_faster": _faster("resnet18", "cuda"),
        "graphs_pay": graphs_pay,
    },
    figures={
        "total": Figure(
            caption="The first call pays for the compilation. Where a line falls below eager "
            "mode's, it has paid; it ends at what a later call saves.",
            rows=total_rows,
            draw=draw_total,
            alt=total_alt,
        ),
        "graphs": Figure(
            caption="A graph made for one size serves no other; one made for any size serves all.",
            rows=graphs_rows,
            draw=draw_graphs,
            alt=graphs_alt,
        ),
    },
    tables={
        "cells": cells_table,
        "naive": naive_table,
        "lint": lint_table,
        "records": every_record,
        "kernels": kernels_table,
        "breaks": breaks_table,
        "reported": reported,
    },
    timed=True,
    unavailable=unavailable,
)
