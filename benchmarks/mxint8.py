"""An MXINT8 Linear on the CPU against what else multiplies in eight bits.

    python cli.py bench mxint8 [--budget-s 0.2] [--publish]

Each table is one interleaved run (`madl.machine.timing.compare`), results checked first. Peers:
torch in FP32 and BF16, torch's dynamic INT8 as it comes and by oneDNN, torchao's dynamic INT8
compiled, ONNX Runtime's MatMulNBits with eight bits and accuracy level 4 (which quantizes the input
too); the last two where installed.

The limit, and what was predicted before the C++ was written. A byte dot product (vpdpbusd) of this
machine's two cores does 933 Gop/s, four times FP32's 233. A group of 32 costs eight of them and, on
the same two ports, one shift of the sum by the scales (vscalefps): 89 % of the peak, 829 Gop/s, is
the most that this layout allows, 3.6 times the peak of FP32. With one row the weight is read
once, 1.03 bytes a value instead of 4: 3.9 times at the same bandwidth, more where the weight then
fits a cache.

Where AMX multiplies, the limit is twice VNNI's rate (`kernels/linear_mxint8_amx.h`); a product in
BF16 has no scales beside it and reaches more with many rows.

Targets: over FP32 at 1, 4, 16, 64, 256 rows 7, 9, 4.5, 3.6, 3.2; over BF16 6, 4, 2.2, 1.6, 1.4.

Waiting threads sleep after some 50 µs, ONNX Runtime's at once: spinning ones would take the cores
from the variant that is timed next. Freed pages are kept. A busy machine shows in the last line.
Not handled: GPUs.
"""

import argparse
from collections.abc import Callable, Mapping
from typing import Any

from madl.machine import device
from madl.machine.contention import ContentionMeter

device.wait_briefly()  # before torch is imported

import torch  # noqa: E402
import torch.nn.functional as F  # noqa: E402
from torch import Tensor, nn  # noqa: E402

from benchmarks._command import call, seconds, whole  # noqa: E402
from benchmarks.formats import conclude  # noqa: E402
from experiments.lab4_mxint8.study import dynamic_int8  # noqa: E402
from kernels import mxint8  # noqa: E402
from madl.compression.pack import MXInt8Linear  # noqa: E402
from madl.logbook import benchmarks  # noqa: E402
from madl.machine.memory import keep_freed_pages  # noqa: E402
from madl.machine.timing import Measurement, compare  # noqa: E402

LAYERS = {"the coursework's model": (1024, 4096), "the default model": (384, 1536)}
ROWS = (1, 4, 16, 64, 256)
TARGETS = {"torch FP32": (7, 9, 4.5, 3.6, 3.2), "torch BF16": (6, 4, 2.2, 1.6, 1.4)}
PEERS = ("torch", "torchao", "onnxruntime")
OURS = "MXINT8"
Fns = Mapping[str, Callable[[], object]]
Rows = list[dict[str, Any]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--budget-s", type=seconds, default=0.2, help="seconds per variant")
    parser.add_argument("--threads", type=whole, default=torch.get_num_threads())
    parser.add_argument("--publish", action="store_true", help="write the table of the site")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    keep_freed_pages()
    print_machine()
    meter = ContentionMeter.start()
    with torch.inference_mode():
        rows = linear_tables(arguments.budget_s)
    conclude("mxint8", rows, PEERS, meter, is_published=arguments.publish)


def print_machine() -> None:
    print(f"{device.cpu_name()}, {device.num_cores()} cores, {torch.get_num_threads()} threads")
    print(", ".join(f"{name} {device.version(name)}" for name in PEERS))
    for route in (mxint8.linear_route(), mxint8.route()):
        print(f"path: {route.path} ({route.reason})")


def linear_tables(budget_s: float) -> Rows:
    """Speed-up of ours over each peer, by rows."""
    found: Rows = []
    for title, (num_in, num_out) in LAYERS.items():
        print(f"\nLinear {num_in} → {num_out}, {title}: times as fast as …")
        torch.manual_seed(0)
        layer = nn.Linear(num_in, num_out)
        for i, rows in enumerate(ROWS):
            x = torch.randn(rows, num_in)
            fns = linear_fns(layer, x)
            measured = compare(fns, budget_s=budget_s)
            times_s = {name: m.median_s for name, m in measured.items()}
            rate = 2 * rows * num_in * num_out / times_s[OURS] / 1e9
            print(f"  {rows} rows: {1e6 * times_s[OURS]:.0f} µs, {rate:.0f} Gop/s")
            for name in list(fns)[1:]:
                goal = f"  (target {TARGETS[name][i]})" if name in TARGETS else ""
                print(f"    {name:44s} {times_s[name] / times_s[OURS]:6.2f}{goal}")
            found += benchmarks.timed(
                f"{num_in} → {num_out}", samples_of(measured), part="linear", rows=rows
            )
    return found


def linear_fns(layer: nn.Linear, x: Tensor) -> dict[str, Callable[[], object]]:
    ours = MXInt8Linear.from_linear(layer)
    half, x_half = nn.Linear(layer.in_features, layer.out_features).bfloat16(), x.bfloat16()
    half.load_state_dict(layer.state_dict())
    fns: dict[str, Callable[[], object]] = {
        OURS: lambda: ours(x),
        "torch FP32": lambda: layer(x),
        "torch BF16": lambda: half(x_half),
        **torch_dynamic(layer, x),
        **torchao_dynamic(layer, x),
        **onnx_runtime(layer, x),
    }
    exact = F.linear(x.double(), layer.weight.double(), layer.bias.double())
    for name, fn in list(fns.items()):
        y = fn()
        assert isinstance(y, Tensor)
        error = float((y.double() - exact).norm() / exact.norm())
        if not error < 0.03:  # which no NaN is
            said = f"{name} is wrong: relative error {error:.3f}"
            assert name != OURS, said
            print(f"  {said}; not timed")
            del fns[name]
    return fns


def torch_dynamic(layer: nn.Linear, x: Tensor) -> Fns:
    as_it_comes, by_onednn = (dynamic_int8(nn.Sequential(layer), one) for one in (None, "onednn"))
    return {
        "torch dynamic INT8": lambda: as_it_comes(x),
        "torch dynamic INT8, oneDNN": lambda: by_onednn(x),
    }


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


def samples_of(measured: Mapping[str, Measurement]) -> dict[str, list[list[float]]]:
    """Of the one process that there is."""
    return {name: [measurement.samples_s] for name, measurement in measured.items()}


if __name__ == "__main__":
    call(main)
