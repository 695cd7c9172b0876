"""What quantizing costs, as ratios: to a copy of the same tensor, and to the float32 step it joins.

    python cli.py bench formats [--budget-s 0.3] [--processes 5] [--publish]

Each table is of several fresh processes, in each of which all variants take turns
(`madl.machine.timing.compare`), correctness checked first: in one process alone a training step
takes up to a fifth more or less than in the next, by where its memory happens to lie. Peers beside
us: plain torch (our definition; also the path without a compiler), torch.compile of it,
torch.fake_quantize_*, torch's float8 casts, torchao's MX.

The limit, and what was predicted before the C++ was written. Fake quantization reads 4 bytes and
writes 4 bytes per value, as a copy does, so 1.0 is the floor wherever memory is the limit. Per
vector of 16 values a copy issues 2 instructions, fixed point adds 4, a minifloat 7, a block of 32
about 12 (its maximum, two multiplications by the scale). From memory, where a vector takes some 20
cycles per core, all of that hides: predicted 1.0-1.1 for every format. From cache, where a copy of
the vector takes about 4 cycles, it cannot: predicted 1.1, 1.3-1.5 and 2-2.5. A training step
quantizes three tensors per Linear, 1-2 % of the traffic of the step: predicted 1.02 for any format.

Targets: fixed point 1.2, minifloat 2.5, block formats 2.5 (without a compiler 4, 12, 12); QAT step
1.03; PTQ evaluation 1.03; with bf16 products on AMX 0.75 and 0.45, with AVX512_BF16 alone 0.90 and
0.65 (gradients take float32 products there).

A copy of a large tensor into fresh memory is mostly page faults, which would make every ratio 1:
freed pages are kept (`madl.machine.memory`), and no tensor is above the 32 MB that glibc keeps. But
for one, of what a user meets who quantizes a large tensor once: new memory each time, against a
copy into memory that is there. Clearing pages is a write of its own, so its limit is 1.5; target 2.
Torch's threads would spin for milliseconds, which costs as much per operation on a busy machine,
ours and theirs; here they sleep after some 50 µs (`madl.machine.device.wait_briefly`).
Not handled: other devices than the CPU.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import click

from madl.machine import device
from madl.machine.contention import ContentionMeter

device.wait_briefly()  # before torch is imported

import torch  # noqa: E402
import torch._dynamo  # noqa: E402
from torch import Tensor, nn  # noqa: E402

from benchmarks._command import budget, call, threads  # noqa: E402
from kernels import linear_bf16, round_to_grid  # noqa: E402
from madl.compression.quantize import Rule, quantize_  # noqa: E402
from madl.formats import presets  # noqa: E402
from madl.formats.base import NumberFormat  # noqa: E402
from madl.logbook import benchmarks  # noqa: E402
from madl.machine.memory import keep_freed_pages  # noqa: E402
from madl.machine.timing import PROCESSES, compare, over_processes  # noqa: E402

PEERS = ("torch", "torchao", "transformers")
Fns = Mapping[str, Callable[[], object]]

IN_CACHE = "864 × 384 (an activation, in cache)"
IN_MEMORY = "2560 × 2560 (memory)"
NEW_MEMORY = "4096 × 4096 (new memory)"
TRAINING = "training step, batch 32 × 27, AdamW"
EVALUATION = "evaluation, batch 32 × 27"
SHAPES = {IN_CACHE: (864, 384), IN_MEMORY: (2560, 2560), NEW_MEMORY: (4096, 4096)}
SAMPLES_OF = {TRAINING: 5, EVALUATION: 3}  # times the budget
FORMATS = (
    "fixed(8,4)",
    "minifloat(8,4,nan)",
    "log(8)",
    "block-float(7,8,block=16)",
    "mxint8",
    "mxfp8-e4m3",
)
PRODUCTS = "bfloat16 products"


@click.command(help=__doc__.splitlines()[0])
@budget(default=0.3, help="Seconds a variant and process.")
@click.option(  # an interval needs two
    "--processes", type=click.IntRange(min=2), default=PROCESSES, show_default=True
)
@threads
@click.option("--publish", is_flag=True, help="Write the table of the site.")
def main(budget_s: float, processes: int, threads: int, publish: bool) -> None:
    torch.set_num_threads(threads)
    print_machine()
    meter = ContentionMeter.start()
    rows: list[dict[str, Any]] = []
    for work in (IN_CACHE, IN_MEMORY, NEW_MEMORY, TRAINING, EVALUATION):
        asked = {"work": work, "threads": threads, "budget_s": budget_s}
        found = over_processes(
            "benchmarks.formats:in_process", asked, processes=processes, keep_caches=True
        )
        runs: dict[str, list[Any]] = found["measurements"]
        rows += benchmarks.timed(work, {n: [m["samples_s"] for m in ms] for n, ms in runs.items()})
        print_ratios(work, rows)
    contention = meter.share()
    print(f"\nshare of the machine that other processes used meanwhile: {contention}")
    if publish:
        machine = f"{device.host_label()}, {torch.get_num_threads()} threads"
        made = {"machine": machine, "peers": PEERS, "contention": contention}
        print(f"wrote {benchmarks.publish('formats', rows, **made)}")


def in_process(argument: dict[str, Any]) -> dict[str, Any]:
    """All variants of one work, in turn."""
    work: str = argument["work"]
    torch.set_num_threads(argument["threads"])
    torch._dynamo.config.recompile_limit = 64  # one compilation per format
    if work != NEW_MEMORY:
        keep_freed_pages()
    budget_s = argument["budget_s"] * SAMPLES_OF.get(work, 1)
    measured = compare(variants_of(work), budget_s=budget_s)
    return {"measurements": {name: m.to_json() for name, m in measured.items()}}


def variants_of(work: str) -> Fns:
    if work in SHAPES:
        x = torch.randn(SHAPES[work], generator=torch.Generator().manual_seed(0))
        return new_memory_fns(x) if work == NEW_MEMORY else tensor_fns(x)
    step = train_step if work == TRAINING else eval_step
    return {name: step(*variant) for name, variant in variants().items()}


def print_machine() -> None:
    route = round_to_grid.route()
    versions = {name: device.version(name) for name in PEERS}
    print(f"{device.cpu_name()}, {device.num_cores()} cores, {torch.get_num_threads()} threads")
    print(", ".join(f"{name} {version}" for name, version in versions.items()))
    print(f"path: {route.path} ({route.reason})")
    print(f"bfloat16 products: {linear_bf16.route().path} ({linear_bf16.route().reason})")


def tensor_fns(x: Tensor) -> dict[str, Callable[[], object]]:
    fns: dict[str, Callable[[], object]] = {"copy": x.clone}
    for name in FORMATS:
        number_format = presets()[name]
        _check(number_format, x)
        compiled = torch.compile(number_format.quantize_reference, dynamic=False)
        compiled(x)
        fns[name] = lambda f=number_format: f.quantize(x)
        fns[f"{name}, plain torch (no compiler)"] = lambda f=number_format: f.quantize_reference(x)
        fns[f"{name}, torch.compile of that"] = lambda f=compiled: f(x)
    return fns | peers(x)


def new_memory_fns(x: Tensor) -> Fns:
    there = torch.empty_like(x)
    formats = {name: presets()[name] for name in FORMATS}
    ours: Fns = {name: lambda f=f: f.quantize(x) for name, f in formats.items()}
    return {"copy": lambda: there.copy_(x), **ours, "peer of a copy: torch clone": x.clone}


def _check(number_format: NumberFormat, x: Tensor) -> None:
    ours, definition = number_format.quantize(x), number_format.quantize_reference(x)
    assert torch.equal(ours, definition), f"{number_format.name}: the fast path is wrong"


def peers(x: Tensor) -> dict[str, Callable[[], object]]:
    e4m3 = torch.float8_e4m3fn
    found: dict[str, Callable[[], object]] = {
        "peer of fixed: torch.fake_quantize_per_tensor": lambda: (
            torch.fake_quantize_per_tensor_affine(x, 0.0625, 0, -128, 127)
        ),
        "peer of minifloat: torch float8_e4m3fn and back": lambda: x.to(e4m3).float(),
    }
    try:
        from torchao.prototype.mx_formats.mx_tensor import to_dtype, to_mx
    except ImportError:
        return found

    def torchao_mx() -> Tensor:
        scale, data = to_mx(x, e4m3, 32)
        return to_dtype(data, scale, e4m3, 32, torch.float32)

    return found | {"peer of mxfp8: torchao to_mx, to_dtype": torchao_mx}


def variants() -> dict[str, tuple[NumberFormat | None, dict[str, Any]]]:
    """Name → format for weight, bias and input, and further parameters of the rule."""
    found: dict[str, tuple[NumberFormat | None, dict[str, Any]]] = {"float32": (None, {})}
    for name in ("fixed(8,4)", "minifloat(8,4,nan)", "block-float(7,8,block=16)", "mxint8"):
        found[name] = (presets()[name], {})
    for name in ("fixed(8,4)", "minifloat(8,4,nan)", "mxint8"):
        found[f"{name}, {PRODUCTS}"] = (presets()[name], {"products": "bfloat16"})
    return found


def print_ratios(work: str, rows: Sequence[Mapping[str, Any]]) -> None:
    """Of the rows of this work: each time over the first one's, with its interval."""
    arms = {r["variant"]: benchmarks.arm(r, contention=0.0) for r in rows if r["work"] == work}
    base, *others = arms.values()
    print(f"\n{work}: {base.label} takes {base}")
    for arm in others:
        print(f"  {arm.label:52s} {arm / base:i} {base.label}")


def build_model(number_format: NumberFormat | None, rule: Mapping[str, Any]) -> nn.Module:
    from transformers import BertConfig, BertForSequenceClassification

    torch.manual_seed(0)
    config = BertConfig(num_hidden_layers=6, hidden_size=384, intermediate_size=1536)
    model = BertForSequenceClassification(config)
    if number_format is not None:
        quantize_(model, [Rule.uniform(number_format, **rule)])
    return model


def batch() -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(1)
    tokens = torch.randint(1000, 20000, (32, 27), generator=generator)
    labels = torch.randint(0, 2, (32,), generator=generator)
    return {"input_ids": tokens, "attention_mask": torch.ones_like(tokens), "labels": labels}


def train_step(number_format: NumberFormat | None, rule: Mapping[str, Any]) -> Callable[[], object]:
    model, inputs = build_model(number_format, rule).train(), batch()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, fused=True)

    def step() -> None:
        optimizer.zero_grad()
        model(**inputs).loss.backward()
        optimizer.step()

    return step


def eval_step(number_format: NumberFormat | None, rule: Mapping[str, Any]) -> Callable[[], object]:
    model, inputs = build_model(number_format, rule).eval(), batch()

    @torch.no_grad()
    def step() -> object:
        return model(**inputs).logits

    return step


if __name__ == "__main__":
    call(main)
