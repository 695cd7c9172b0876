"""An MXINT8 Linear on the CPU against what else multiplies in eight bits.

    python cli.py bench mxint8 [--budget-s 0.2]

Each table is one interleaved run by the clock of question 4.3a, weights in the caches: a call that
is not timed before each sample, as many calls a sample of all (`madl.machine.timing.compare`),
results checked first. Peers: the page's own (torch in FP32 and BF16, also prepacked; torch's
dynamic INT8 as it comes and by oneDNN), torchao's dynamic INT8 compiled, and ONNX Runtime's
MatMulNBits with eight bits and accuracy level 4, which quantizes the input too; the last two where
installed.

The limits. A byte dot product (vpdpbusd) does four times FP32's multiply-adds. A group of 32 costs
eight of them and, on the same two ports, one shift of the sum by the scales (vscalefps): at most 89
% of that peak. With one row the weight is read once, 1.03 bytes a value: half of BF16's time at the
same bandwidth. With AMX and a dozen rows or more, weights are decoded to BF16, once for all rows,
and multiplied at BF16's rate (`kernels/linear_mxint8_amx.h`); INT8 with one scale a tensor has
twice that.

Waiting threads sleep after some 50 µs, ONNX Runtime's at once: spinning ones would take the cores
from the variant that is timed next. Freed pages are kept. A busy machine shows in the last line.
Not handled: GPUs.
"""

import functools
from collections.abc import Callable, Mapping

import click

from madl.machine import device
from madl.machine.contention import ContentionMeter

device.wait_briefly()  # before torch is imported

import torch  # noqa: E402
import torch.nn.functional as F  # noqa: E402
from torch import Tensor, nn  # noqa: E402

from benchmarks._command import budget, call, threads  # noqa: E402
from experiments.lab4_mxint8 import study  # noqa: E402
from experiments.lab4_mxint8.page import BF16, LAYERS, MXINT8, ROWS  # noqa: E402
from kernels import mxint8  # noqa: E402
from madl.machine.memory import keep_freed_pages  # noqa: E402
from madl.machine.timing import compare  # noqa: E402

PEERS = ("torch", "torchao", "onnxruntime")
Call = Callable[[], object]
Fns = Mapping[str, Call]


@click.command(help=__doc__.splitlines()[0])
@budget(default=0.2, help="Seconds a variant.")
@threads
def main(budget_s: float, threads: int) -> None:
    torch.set_num_threads(threads)
    keep_freed_pages()
    print_machine()
    meter = ContentionMeter.start()
    with torch.inference_mode():
        print_tables(budget_s)
    share = meter.share()
    print(f"\nothers used {'?' if share is None else f'{share:.0%}'} of the machine")


def print_machine() -> None:
    print(f"{device.cpu_name()}, {device.num_cores()} cores, {torch.get_num_threads()} threads")
    print(", ".join(f"{name} {device.version(name)}" for name in PEERS))
    for route in (mxint8.linear_route(), mxint8.route()):
        print(f"path: {route.path} ({route.reason})")


def print_tables(budget_s: float) -> None:
    """Speed-up of ours over each peer, by rows."""
    for title, (num_in, num_out) in LAYERS.items():
        print(f"\nLinear {num_in} → {num_out}, {title}: times as fast as …")
        torch.manual_seed(0)
        layer = nn.Linear(num_in, num_out)
        for rows in map(int, ROWS.split()):
            fns = linear_fns(layer, torch.randn(rows, num_in))
            before = {name: functools.partial(study.warm, fn) for name, fn in fns.items()}
            measured = compare(fns, budget_s=budget_s, inside=before)
            times_s = {name: m.median_s for name, m in measured.items()}
            rate = 2 * rows * num_in * num_out / times_s[MXINT8] / 1e9
            print(f"  {rows} rows: {1e6 * times_s[MXINT8]:.0f} µs, {rate:.0f} Gop/s")
            for name in fns:
                if name != MXINT8:
                    print(f"    {name:44s} {times_s[name] / times_s[MXINT8]:6.2f}")


def linear_fns(layer: nn.Linear, x: Tensor) -> dict[str, Call]:
    """What computes the right result here; ours has to."""
    made: dict[str, Callable[[], Fns]] = {
        variant: functools.partial(of_page, variant, layer, x) for variant in study.variants()
    }
    made["torchao"] = functools.partial(torchao_dynamic, layer, x)
    made["ONNX Runtime"] = functools.partial(onnx_runtime, layer, x)
    exact = F.linear(x.double(), layer.weight.double(), layer.bias.double())
    found: dict[str, Call] = {}
    for name, make in made.items():
        try:
            for variant, fn in make().items():
                y = fn()
                assert isinstance(y, Tensor)
                if not study.error_db(y, exact) > study.LEAST_DB:  # which no NaN is
                    raise study.Wrong(f"only {study.error_db(y, exact):.0f} dB from exact")
                found[variant] = fn
        except (AttributeError, RuntimeError, study.Wrong) as error:
            if name == MXINT8:
                raise
            print(f"  {name} is not timed: {error}")
    return found


def of_page(variant: str, layer: nn.Linear, x: Tensor) -> Fns:
    model = study.prepared(nn.Sequential(layer), variant)
    return {variant: functools.partial(model, x.bfloat16() if variant.startswith(BF16) else x)}


def torchao_dynamic(layer: nn.Linear, x: Tensor) -> Fns:
    """Compiled, with weights that may be rearranged: its eager path on CPUs dequantizes."""
    import copy

    try:
        from torchao.quantization import Int8DynamicActivationInt8WeightConfig, quantize_
    except ImportError:
        return {}
    model = nn.Sequential(copy.deepcopy(layer))
    quantize_(model, Int8DynamicActivationInt8WeightConfig())
    torch.compiler.reset()  # a compilation for each shape, none that fits all
    compiled = torch.compile(model, options={"freezing": True})
    return {"torchao dynamic INT8, compiled": lambda: compiled(x)}


def onnx_runtime(layer: nn.Linear, x: Tensor) -> Fns:
    """MatMulNBits: blocks of 32 with a float scale each; level 4 multiplies bytes."""
    try:
        import onnx
        import onnxruntime
        from onnx import TensorProto, helper, numpy_helper
    except ImportError:
        return {}
    num_in, num_out, block = layer.in_features, layer.out_features, 32
    blocks = layer.weight.detach().view(num_out, num_in // block, block)
    scales = blocks.abs().amax(-1) / 127
    codes = (blocks / scales[..., None]).round().clamp(-127, 127).add(128).to(torch.uint8)
    tensors = {"codes": codes.numpy(), "scales": scales.numpy(), "bias": layer.bias.numpy()}
    node = helper.make_node(
        "MatMulNBits",
        ["x", "codes", "scales", "", "", "bias"],
        ["y"],
        domain="com.microsoft",
        **{"K": num_in, "N": num_out, "bits": 8, "block_size": block, "accuracy_level": 4},
    )
    graph = helper.make_graph(
        [node],
        "linear",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [None, num_in])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [None, num_out])],
        [numpy_helper.from_array(value, name) for name, value in tensors.items()],
    )
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=10)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    session = onnxruntime.InferenceSession(model.SerializeToString(), options)
    given = {"x": x.numpy()}
    assert onnx.__version__
    return {
        "ONNX Runtime MatMulNBits-8, level 4": lambda: torch.from_numpy(session.run(None, given)[0])
    }


if __name__ == "__main__":
    call(main)
