"""Torch operators that C++ computes on a CPU, with the shape rules that tracing needs.

The C++ side is `operators.cpp`; it is built at the first use of one of them (`build.load`).
"""

from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

import torch
from torch import Tensor

from kernels.build import Route

_P = ParamSpec("_P")
_R = TypeVar("_R")

library = torch.library.Library("madl", "FRAGMENT")  # what is registered goes with it


def define(
    schema: str,
    *,
    check: Callable[..., None],
    empty: Callable[..., _R],
    route: Callable[[], Route] | None = None,
    in_torch: Callable[..., _R] | None = None,
) -> Callable[..., _R]:
    """Define a torch operator by its schema; returns the function that calls it.

    `check` raises ValueError for arguments that do not fit, and says why: C++ only refuses them.
    `empty` makes a result without values, to trace with. `route` builds the operator's C++, one of
    `operators.cpp`; `in_torch`, where there is one, computes without it.
    """
    name = schema.partition("(")[0]
    library.define(schema)
    operator: Callable[..., _R] = getattr(torch.ops.madl, name).default

    def before_cpp(x: Tensor, *rest: Any) -> _R:
        """Compute until C++ takes over: build it and call it, or compute in torch."""
        check(x, *rest)
        if route and x.is_cpu and route().library is not None:
            return operator(x, *rest)  # C++ has it now
        if in_torch is not None:
            return in_torch(x, *rest)
        raise RuntimeError(
            f"madl::{name} needs its C++ ({route and route().reason}); trace the model anew with "
            "MADL_KERNELS=torch to be free of it"
        )

    def traced(*arguments: Any) -> _R:
        check(*arguments)
        return empty(*arguments)

    def checked(*arguments: Any) -> _R:
        try:
            return operator(*arguments)
        except RuntimeError:
            check(*arguments)
            raise

    library.impl(name, before_cpp, "CompositeExplicitAutograd")
    torch.library.register_fake(f"madl::{name}", traced, lib=library)
    return checked


def constant_in_traces(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """Decorate a function so that `torch.compile` calls it while it traces, and takes the result.

    This is what `torch.compiler.assume_constant_result` sets; that one imports torch._dynamo, which
    takes a second, in programs that compile nothing.
    """
    function._dynamo_marked_constant = True  # type: ignore[attr-defined]
    return function
