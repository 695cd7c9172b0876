"""What a call runs: kernels by the profiler, and those that inductor wrote by its code.

Units: calls of a kernel in one call of the model.
Not handled: operators that another backend than inductor fuses are what the profiler names them.
"""

import hashlib
import re
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

# Operators that make a tensor's description or its memory, or return their input as it is.
FREE = {
    *("empty", "empty_strided", "empty_like", "new_empty", "new_empty_strided", "resize_", "set_"),
    *("as_strided", "as_strided_", "view", "_unsafe_view", "reshape", "_reshape_alias", "flatten"),
    *("transpose", "t", "permute", "expand", "expand_as", "unsqueeze", "squeeze", "unflatten"),
    *("slice", "select", "split", "chunk", "unbind", "narrow", "detach", "alias", "contiguous"),
    *("to", "resolve_conj", "lift_fresh", "result_type", "dropout", "_nnpack_available"),
}
# Operators that are one piece of work, whatever they prepare inside.
WHOLE = {
    *("addmm", "mm", "bmm", "baddbmm", "convolution", "linear", "native_layer_norm"),
    *("native_batch_norm", "scaled_dot_product_attention", "add", "sub", "mul", "div"),
}


def kernels(fn: Callable[[], object], device: str) -> dict[str, int]:
    """What one call runs, by name: on CUDA its kernels, on a CPU the operators that compute."""
    activities = [ProfilerActivity.CPU]
    if device == "cuda":
        activities.append(ProfilerActivity.CUDA)
    with profile(activities=activities) as profiler:
        fn()
        if device == "cuda":
            torch.cuda.synchronize()
    events: Any = profiler.events()
    return dict(Counter(_cuda_kernels(events) if device == "cuda" else _computing(events)))


def _cuda_kernels(events: Any) -> list[str]:
    """Kernels alone: no copies, and no ranges that torch.compile names on the device's timeline."""
    on_device = [e for e in events if str(e.device_type).endswith("CUDA")]
    names = [e.name for e in on_device if not getattr(e, "is_user_annotation", False)]
    return [n for n in names if not n.startswith(("Memcpy", "Memset", "Torch-Compiled", "## "))]


def _computing(events: Any) -> list[str]:
    """Operators that compute: the innermost ones, except that a product or a norm is one."""
    found: list[str] = []

    def visit(event: Any) -> bool:
        """Whether anything was counted in here."""
        space, separator, name = event.name.partition("::")
        counted = [] if name in WHOLE else [c for c in event.cpu_children if visit(c)]
        inside = bool(counted)
        computes = bool(separator) and space.islower() and name not in FREE
        if computes and not inside:
            found.append(name)
        return inside or computes

    for event in events:
        if event.cpu_parent is None:
            visit(event)
    return found


# ---- what inductor wrote ------------------------------------------------------------------------

NOTES = re.compile(r"^\s*# .*$", re.MULTILINE)  # its numbering of graphs, and where code comes from


def wrappers(folder: Path) -> set[Path]:
    """The files of code that inductor has written so far, one a graph, kernels included."""
    return set(folder.rglob("*.py"))


def generated(files: Iterable[Path]) -> dict[str, Any]:
    """Kernels in these files by what they fuse, how often a call runs each, and a digest of all.

    The profiler does not see kernels that were generated for a CPU, so they are counted in the code
    that calls them. Two ways with one digest run equal code: its notes are not in it.
    """
    sources = sorted(NOTES.sub("", path.read_text("utf-8")) for path in files)
    called = [name for text in sources for name in re.findall(r"^ +(cpp_fused_\w+)\(", text, re.M)]
    return {
        "kernels": dict(Counter(re.sub(r"_\d+$", "", name) for name in called)),
        "code": hashlib.sha256("".join(sources).encode()).hexdigest()[:12] if sources else None,
    }
