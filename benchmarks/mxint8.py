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
from collections.abc import Callable

import click

from madl.machine import device
from madl.machine.contention import ContentionMeter

device.wait_briefly()  # before torch is imported

import torch  # noqa: E402
import torch.nn.functional as F  # noqa: E402
from torch import Tensor, nn  # noqa: E402

from benchmarks._command import budget, call, print_machine, threads  # noqa: E402
from experiments.lab4_mxint8 import study  # noqa: E402
from experiments.lab4_mxint8.design import BF16, LAYERS, LEAST_DB, MXINT8, ROWS  # noqa: E402
from kernels import mxint8  # noqa: E402
from madl.machine.memory import keep_freed_pages  # noqa: E402
from madl.machine.timing import compare  # noqa: E402

PEERS = ("torch", "torchao", "onnxruntime")
Call = Callable[[], Tensor]


@click.command(help=__doc__.splitlines()[0])
@budget(default=0.2, help="Seconds a variant.")
@threads
def main(budget_s: float, threads: int) -> None:
    torch.set_num_threads(threads)
    keep_freed_pages()
    print_machine(PEERS, {"linear": mxint8.linear_route(), "quantize": mxint8.route()})
    meter = ContentionMeter.start()
    with torch.inference_mode():
        print_tables(budget_s)
    share = meter.share()
    print(f"\nothers used {'?' if share is None else f'{share:.0%}'} of the machine")


def print_tables(budget_s: float) -> None:
    """Print our time for each layer and number of rows, and our speed-up over each peer."""
    for title, (num_in, num_out) in LAYERS.items():
        print(f"\nLinear {num_in} → {num_out}, {title}: times as fast as …")
        torch.manual_seed(0)
        layer = nn.Linear(num_in, num_out)
        for rows in map(int, ROWS.split()):
            calls = right_calls(layer, torch.randn(rows, num_in))
            before = {name: functools.partial(study.warm_caches, fn) for name, fn in calls.items()}
            measured = compare(calls, budget_s=budget_s, inside=before)
            times_s = {name: m.median_s for name, m in measured.items()}
            ours_s = times_s.pop(MXINT8)
            rate = 2 * rows * num_in * num_out / ours_s / 1e9
            print(f"  {rows} rows: {1e6 * ours_s:.0f} µs, {rate:.0f} Gop/s")
            for name, time_s in times_s.items():
                print(f"    {name:44s} {time_s / ours_s:6.2f}")


def right_calls(layer: nn.Linear, x: Tensor) -> dict[str, Call]:
    """The calls to time, by variant: those that are installed and compute the right result here.

    Raises:
        WrongResult: ours does not.
    """
    makers: dict[str, Callable[[], Call | None]] = {
        variant: functools.partial(page_variant, variant, layer, x) for variant in study.variants()
    }
    makers["torchao dynamic INT8, compiled"] = functools.partial(torchao_dynamic, layer, x)
    makers["ONNX Runtime MatMulNBits-8, level 4"] = functools.partial(onnx_runtime, layer, x)
    exact = F.linear(x.double(), layer.weight.double(), layer.bias.double())
    calls: dict[str, Call] = {}
    for name, make in makers.items():
        try:
            if (fn := make()) is None:
                continue
            if not (error := study.error_db(fn(), exact)) > LEAST_DB:  # which no NaN is
                raise study.WrongResult(f"only {error:.0f} dB from exact")
            calls[name] = fn
        except (AttributeError, RuntimeError, study.WrongResult) as error:
            if name == MXINT8:
                raise
            print(f"  {name} is not timed: {error}")
    return calls


def page_variant(variant: str, layer: nn.Linear, x: Tensor) -> Call:
    """A call of the layer, converted to this variant of the page."""
    model = study.convert(nn.Sequential(layer), variant)
    return functools.partial(model, x.bfloat16() if variant.startswith(BF16) else x)


def torchao_dynamic(layer: nn.Linear, x: Tensor) -> Call | None:
    """torchao's dynamic INT8 of the layer; None if torchao is not installed.

    It is compiled with frozen weights: the eager path on CPUs dequantizes.
    """
    import copy

    from torch._inductor import config as inductor

    try:
        from torchao.quantization import Int8DynamicActivationInt8WeightConfig, quantize_
    except ImportError:
        return None
    model = nn.Sequential(copy.deepcopy(layer))
    quantize_(model, Int8DynamicActivationInt8WeightConfig())
    torch.compiler.reset()  # a compilation for each shape, none that fits all
    inductor.freezing = True  # as an option of torch.compile it comes too late
    return functools.partial(torch.compile(model), x)


def onnx_runtime(layer: nn.Linear, x: Tensor) -> Call | None:
    """ONNX Runtime's MatMulNBits of the layer; None if it is not installed.

    Blocks of 32 have a float scale each; accuracy level 4 multiplies bytes.
    """
    try:
        import onnxruntime
        from onnx import TensorProto, helper, numpy_helper
    except ImportError:
        return None
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
    inputs = {"x": x.numpy()}
    return lambda: torch.from_numpy(session.run(None, inputs)[0])


if __name__ == "__main__":
    call(main)
