"""The cost of quantizing, as ratios: to a copy of the tensor, and to the float32 step it joins.

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
the vector takes about 4 cycles, it cannot: predicted 1.1, 1.3-1.5 and 2-2.5. A scale that is a
float is divided and rounded once a block, some 20 instructions more: 3 for blocks of 16, 2.5 for
32; NVFP4's needs the tensor's largest value first, one more pass that reads: 1.5 from memory, 3.5
from cache. A training step quantizes three tensors per Linear, 1-2 % of the traffic of the step:
predicted 1.02 for any format.

Targets: fixed point 1.2, minifloat 2.5, block formats 2.5, with scales that are floats 3 (without a
compiler 4, 12, 12); QAT step 1.03; PTQ evaluation 1.03; with bf16 products on AMX 0.75 and 0.45,
with AVX512_BF16 alone 0.90 and 0.65 (gradients take float32 products there).

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

from benchmarks._command import budget, call, print_machine, threads  # noqa: E402
from kernels import linear_bf16, round_to_grid  # noqa: E402
from madl.compression.quantize import Rule, quantize_  # noqa: E402
from madl.formats import presets  # noqa: E402
from madl.logbook import benchmarks  # noqa: E402
from madl.machine.memory import keep_freed_pages  # noqa: E402
from madl.machine.timing import PROCESSES, compare, over_processes  # noqa: E402

PEERS = ("torch", "torchao", "transformers")
Fns = dict[str, Callable[[], object]]

IN_CACHE = "864 × 384 (an activation, in cache)"
IN_MEMORY = "2560 × 2560 (memory)"
NEW_MEMORY = "4096 × 4096 (new memory)"
TRAINING = "training step, batch 32 × 27, AdamW"
EVALUATION = "evaluation, batch 32 × 27"
SHAPES = {IN_CACHE: (864, 384), IN_MEMORY: (2560, 2560), NEW_MEMORY: (4096, 4096)}
BUDGETS = {TRAINING: 5, EVALUATION: 3}  # times the budget
FORMATS = (
    "fixed(8,4)",
    "minifloat(8,4,nan)",
    "log(8)",
    "block-float(7,8,block=16)",
    "mxint8",
    "mxfp8-e4m3",
    "mxfp4-e2m1(even)",
    "nvfp4",
    "int4(fp16,block=32)",
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
    print_machine(PEERS, {"rounding": round_to_grid.route(), PRODUCTS: linear_bf16.route()})
    meter = ContentionMeter.start()
    rows: list[dict[str, Any]] = []
    for work in (IN_CACHE, IN_MEMORY, NEW_MEMORY, TRAINING, EVALUATION):
        argument = {"work": work, "threads": threads, "budget_s": budget_s}
        runs: dict[str, list[Any]] = over_processes(
            "benchmarks.formats:in_process", argument, processes=processes, keep_caches=True
        )["measurements"]
        samples_s = {name: [m["samples_s"] for m in several] for name, several in runs.items()}
        new_rows = benchmarks.timed_rows(work, samples_s)
        rows += new_rows
        print_ratios(work, new_rows)
    contention = meter.share()
    print(f"\nshare of the machine that other processes used meanwhile: {contention}")
    if publish:
        machine = f"{device.host_label()}, {threads} threads"
        peers = {peer: device.version(peer) for peer in PEERS}
        path = benchmarks.publish(
            "formats", rows, machine=machine, peers=peers, contention=contention
        )
        print(f"wrote {path}")


def in_process(argument: dict[str, Any]) -> dict[str, Any]:
    """Time all variants of one work in this process, in turn."""
    work: str = argument["work"]
    torch.set_num_threads(argument["threads"])
    torch._dynamo.config.recompile_limit = 64  # one compilation per format
    if work != NEW_MEMORY:
        keep_freed_pages()
    budget_s = argument["budget_s"] * BUDGETS.get(work, 1)
    measured = compare(variants_of(work), budget_s=budget_s)
    return {"measurements": {name: m.to_json() for name, m in measured.items()}}


def variants_of(work: str) -> Fns:
    """The functions to time for one of the works, by variant; the first is the base."""
    if work in SHAPES:
        x = torch.randn(SHAPES[work], generator=torch.Generator().manual_seed(0))
        return new_memory_fns(x) if work == NEW_MEMORY else tensor_fns(x)
    step = train_step if work == TRAINING else eval_step
    return {name: step(rule) for name, rule in rules().items()}


def tensor_fns(x: Tensor) -> Fns:
    """A copy of x, each format's quantization in three ways, checked first, and peers."""
    fns: Fns = {"copy": x.clone}
    for name in FORMATS:
        number_format = presets.FORMATS[name]
        ours, definition = number_format.quantize(x), number_format.quantize_reference(x)
        assert torch.equal(ours, definition), f"{name}: the fast path is wrong"
        compiled = torch.compile(number_format.quantize_reference, dynamic=False)
        compiled(x)
        fns[name] = lambda f=number_format: f.quantize(x)
        fns[f"{name}, plain torch (no compiler)"] = lambda f=number_format: f.quantize_reference(x)
        fns[f"{name}, torch.compile of that"] = lambda f=compiled: f(x)
    return fns | peers(x)


def new_memory_fns(x: Tensor) -> Fns:
    """A copy of x into existing memory, and each format's quantization into new memory."""
    there = torch.empty_like(x)
    formats = {name: presets.FORMATS[name] for name in FORMATS}
    ours: Fns = {name: lambda f=f: f.quantize(x) for name, f in formats.items()}
    return {"copy": lambda: there.copy_(x), **ours, "peer of a copy: torch clone": x.clone}


def peers(x: Tensor) -> Fns:
    """Other libraries' quantizations of x, by name; torchao's if it is installed."""
    e4m3 = torch.float8_e4m3fn
    fns: Fns = {
        "peer of fixed: torch.fake_quantize_per_tensor": lambda: (
            torch.fake_quantize_per_tensor_affine(x, 0.0625, 0, -128, 127)
        ),
        "peer of minifloat: torch float8_e4m3fn and back": lambda: x.to(e4m3).float(),
    }
    try:
        from torchao.prototype.mx_formats.mx_tensor import to_dtype, to_mx
    except ImportError:
        return fns

    def torchao_mx() -> Tensor:
        scale, data = to_mx(x, e4m3, 32)
        return to_dtype(data, scale, e4m3, 32, torch.float32)

    return fns | {"peer of mxfp8: torchao to_mx, to_dtype": torchao_mx}


def rules() -> dict[str, Rule | None]:
    """How every Linear is quantized, by the variant's name; None: not at all."""
    rules: dict[str, Rule | None] = {"float32": None}
    for name in ("fixed(8,4)", "minifloat(8,4,nan)", "block-float(7,8,block=16)", "mxint8"):
        rules[name] = Rule.uniform(presets.FORMATS[name])
    for name in ("fixed(8,4)", "minifloat(8,4,nan)", "mxint8"):
        rules[f"{name}, {PRODUCTS}"] = Rule.uniform(presets.FORMATS[name], products="bfloat16")
    return rules


def print_ratios(work: str, rows: Sequence[Mapping[str, Any]]) -> None:
    """Print the first variant's time, and the others' over it with their intervals."""
    base, *others = (benchmarks.arm(row, contention=0.0) for row in rows)
    print(f"\n{work}: {base.label} takes {base}")
    for arm in others:
        print(f"  {arm.label:52s} {arm / base:i} {base.label}")


def build_model(rule: Rule | None) -> nn.Module:
    """A random BERT of 6 layers, its Linears quantized by the rule."""
    from transformers import BertConfig, BertForSequenceClassification

    torch.manual_seed(0)
    config = BertConfig(num_hidden_layers=6, hidden_size=384, intermediate_size=1536)
    model = BertForSequenceClassification(config)
    if rule is not None:
        quantize_(model, [rule])
    return model


def batch() -> dict[str, Tensor]:
    """Tokens and masks (32, 27), labels (32)."""
    generator = torch.Generator().manual_seed(1)
    tokens = torch.randint(1000, 20000, (32, 27), generator=generator)
    labels = torch.randint(0, 2, (32,), generator=generator)
    return {"input_ids": tokens, "attention_mask": torch.ones_like(tokens), "labels": labels}


def train_step(rule: Rule | None) -> Callable[[], object]:
    """A function that takes one training step of a new model."""
    model, inputs = build_model(rule).train(), batch()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, fused=True)

    def step() -> None:
        optimizer.zero_grad()
        model(**inputs).loss.backward()
        optimizer.step()

    return step


def eval_step(rule: Rule | None) -> Callable[[], object]:
    """A function that evaluates a new model on one batch."""
    model, inputs = build_model(rule).eval(), batch()
    return torch.no_grad()(lambda: model(**inputs).logits)


if __name__ == "__main__":
    call(main)
