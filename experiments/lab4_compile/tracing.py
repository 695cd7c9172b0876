"""How many graphs torch.compile makes: of new sizes, and of functions that leave torch.

Nothing is timed and nothing compiled: the graphs are counted by a backend that runs them as they
are. It runs in a process of its own; arguments and results are JSON.
"""

import contextlib
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import Tensor, nn

Json = Mapping[str, Any]


def study_shapes(argument: Json) -> dict[str, Any]:
    """How many graphs a sequence of new shapes makes, by how sizes are treated; what breaks one.

    The graphs are counted by a backend that only counts, so nothing but tracing is paid for.
    """
    torch.set_num_threads(int(argument["threads"]))
    torch.manual_seed(0)
    sizes = [int(size) for size in argument["sizes"]]
    model = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 2)).eval()
    return {
        "sizes": sizes,
        "limit": int(torch._dynamo.config.recompile_limit),  # pyright: ignore
        "graphs": {
            name: _graphs_by_call(model, sizes, dynamic)
            for name, dynamic in (("static", False), ("automatic", None), ("dynamic", True))
        },
        "breaks": {name: _explained(fn) for name, fn in EXAMPLES.items()},
    }


def _graphs_by_call(model: nn.Module, sizes: Sequence[int], dynamic: bool | None) -> list[int]:
    """Graphs made so far, after each call."""
    torch._dynamo.reset()
    made: list[int] = []
    counting = _Counting()
    compiled: Any = torch.compile(model, backend=counting, dynamic=dynamic)
    with torch.no_grad(), _no_warnings():
        for size in sizes:
            compiled(torch.randn(size, 16))
            made.append(counting.graphs)
    return made


class _Counting:
    """A backend that runs a graph as it is and counts it."""

    def __init__(self) -> None:
        self.graphs = 0

    def __call__(self, graph: Any, inputs: list[Tensor]) -> Callable[..., Any]:
        self.graphs += 1
        return graph.forward


def _whole(x: Tensor) -> Tensor:
    return torch.relu(x @ x.T) + 1


def _branches_on_data(x: Tensor) -> Tensor:
    y = x @ x.T
    return torch.relu(y) if y.sum() > 0 else y - 1  # Python must know the value to go on


def _leaves_torch(x: Tensor) -> Tensor:
    y = torch.relu(x @ x.T)
    return y + float(y.max())


EXAMPLES: Mapping[str, Callable[[Tensor], Tensor]] = {
    "tensor operations only": _whole,
    "an `if` on a tensor's value": _branches_on_data,
    "a tensor turned into a Python number": _leaves_torch,
}


def _explained(fn: Callable[[Tensor], Tensor]) -> dict[str, Any]:
    """What `torch._dynamo.explain` says: graphs, breaks, and the first reason."""
    torch._dynamo.reset()
    with _no_warnings():
        found: Any = torch._dynamo.explain(fn)(torch.ones(4, 4))
    reasons = [str(reason.reason).splitlines()[0] for reason in found.break_reasons]
    return {
        "graphs": int(found.graph_count),
        "breaks": int(found.graph_break_count),
        "why": reasons[0] if reasons else "",
    }


def _no_warnings() -> AbstractContextManager[object]:
    stack = contextlib.ExitStack()
    stack.enter_context(warnings.catch_warnings())
    warnings.simplefilter("ignore")
    return stack
