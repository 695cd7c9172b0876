"""What quantizing costs, as ratios: to a copy of the same tensor, and to the float32 step it joins.

    python benchmarks/formats.py [tensor] [model] [--budget-s 0.5] [--threads 2]

Each table is one interleaved run (`madl.machine.timing.compare`), correctness checked first. Peers
beside us: plain torch (our definition; also the path without a compiler), torch.compile of it,
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
freed pages are kept (`madl.machine.memory`), and no tensor is above the 32 MB that glibc keeps.
Torch's threads would spin for milliseconds, which costs as much per operation on a busy machine,
ours and theirs; here they sleep after some 50 µs (`madl.machine.device.wait_briefly`).
Not handled: other devices than the CPU.
"""

import argparse
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from madl.machine import device
from madl.machine.contention import ContentionMeter

device.wait_briefly()  # before torch is imported

import torch  # noqa: E402
import torch._dynamo  # noqa: E402
from torch import Tensor, nn  # noqa: E402

from kernels import linear_bf16, round_to_grid  # noqa: E402
from madl.compression.quantize import Rule, quantize_  # noqa: E402
from madl.formats import presets  # noqa: E402
from madl.formats.base import NumberFormat  # noqa: E402
from madl.logbook import benchmarks  # noqa: E402
from madl.machine.memory import keep_freed_pages  # noqa: E402
from madl.machine.timing import Measurement, compare  # noqa: E402

PEERS = ("torch", "torchao", "transformers")
Fns = Mapping[str, Callable[[], object]]

TENSORS = {"864 × 384 (an activation, in cache)": (864, 384), "2560 × 2560 (memory)": (2560, 2560)}
FORMATS = (
    "fixed(8,4)",
    "minifloat(8,4,nan)",
    "log(8)",
    "block-float(7,8,block=16)",
    "mxint8",
    "mxfp8-e4m3",
)
PRODUCTS = "bfloat16 products"
BATCH, LENGTH = 32, 27


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("parts", nargs="*", metavar="PART", help="tensor, model (default: both)")
    parser.add_argument("--budget-s", type=float, default=0.3, help="seconds per variant")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--publish", action="store_true", help="write the table of the site")
    arguments = parser.parse_args()
    if unknown := set(arguments.parts) - {"tensor", "model"}:
        parser.error(f"unknown part {', '.join(sorted(unknown))}; known: tensor, model")
    torch.set_num_threads(arguments.threads)
    keep_freed_pages()
    torch._dynamo.config.recompile_limit = 64  # one compilation per format
    print_machine()
    meter = ContentionMeter.start()
    rows: list[dict[str, Any]] = []
    for part in arguments.parts or ("tensor", "model"):
        rows += {"tensor": tensor_tables, "model": model_tables}[part](arguments.budget_s)
    conclude("formats", rows, PEERS, meter, is_published=arguments.publish)


def conclude(
    name: str,
    rows: Sequence[Mapping[str, Any]],
    peers: Sequence[str],
    meter: ContentionMeter,
    *,
    is_published: bool,
) -> None:
    """Say how busy the machine was, and keep the rows if they are wanted."""
    contention = meter.share()
    print(f"\nshare of the machine that other processes used meanwhile: {contention}")
    if is_published:
        machine = f"{device.host_label()}, {torch.get_num_threads()} threads"
        path = benchmarks.publish(name, rows, machine=machine, peers=peers, contention=contention)
        print(f"wrote {path}")


def print_machine() -> None:
    route = round_to_grid.route()
    versions = {name: device.version(name) for name in PEERS}
    print(f"{device.cpu_name()}, {device.num_cores()} cores, {torch.get_num_threads()} threads")
    print(", ".join(f"{name} {version}" for name, version in versions.items()))
    print(f"path: {route.path} ({route.reason})")
    print(f"bfloat16 products: {linear_bf16.route().path} ({linear_bf16.route().reason})")


def tensor_tables(budget_s: float) -> list[dict[str, Any]]:
    """Time of a fake quantization ÷ time of `clone`, which allocates its result as we do."""
    rows: list[dict[str, Any]] = []
    for title, shape in TENSORS.items():
        x = torch.randn(shape, generator=torch.Generator().manual_seed(0))
        measured = compare(tensor_fns(x), budget_s=budget_s)
        copy_s = measured["copy"].median_s
        print(f"\n{title}: copy {8 * x.numel() / copy_s / 1e9:.0f} GB/s read and written")
        for name, measurement in measured.items():
            print(f"  {name:52s} {measurement.median_s / copy_s:8.2f} × copy")
        rows += benchmarks.timed(title, samples_of(measured))
    return rows


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


def model_tables(budget_s: float) -> list[dict[str, Any]]:
    """A MiniLM-L6-shaped classifier: a training step and an evaluation, ÷ the same in float32."""
    train = compare({k: train_step(*v) for k, v in variants().items()}, budget_s=budget_s * 5)
    rows = print_ratios(f"training step, batch {BATCH} × {LENGTH}, AdamW", train)
    evaluate = compare({k: eval_step(*v) for k, v in variants().items()}, budget_s=budget_s * 3)
    return rows + print_ratios(f"evaluation, batch {BATCH} × {LENGTH}", evaluate)


def variants() -> dict[str, tuple[NumberFormat | None, dict[str, Any]]]:
    """Name → format for weight, bias and input, and further parameters of the rule."""
    found: dict[str, tuple[NumberFormat | None, dict[str, Any]]] = {"float32": (None, {})}
    for name in ("fixed(8,4)", "minifloat(8,4,nan)", "block-float(7,8,block=16)", "mxint8"):
        found[name] = (presets()[name], {})
    for name in ("fixed(8,4)", "minifloat(8,4,nan)", "mxint8"):
        found[f"{name}, {PRODUCTS}"] = (presets()[name], {"products": "bfloat16"})
    return found


def print_ratios(
    title: str, measured: Mapping[str, Measurement], **more: Any
) -> list[dict[str, Any]]:
    """Say them, and give the rows that are kept."""
    base_s = measured["float32"].median_s
    print(f"\n{title}: float32 takes {base_s * 1e3:.0f} ms")
    for name, measurement in measured.items():
        route = f" ({linear_bf16.route().path})" if name.endswith(PRODUCTS) else ""
        print(f"  {name + route:52s} {measurement.median_s / base_s:8.3f} × float32")
    return benchmarks.timed(title, samples_of(measured), **more)


def samples_of(measured: Mapping[str, Measurement]) -> dict[str, list[float]]:
    return {name: measurement.samples_s for name, measurement in measured.items()}


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
    tokens = torch.randint(1000, 20000, (BATCH, LENGTH), generator=generator)
    labels = torch.randint(0, 2, (BATCH,), generator=generator)
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
    main()
