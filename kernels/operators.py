"""Torch operators that C++ computes on a CPU, and what else they need: a shape to trace with.

The C++ side is `operators.cpp`; it is built at the first use of one of them (`build.load`).
"""

from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

import torch
from torch import Tensor

from kernels.build import Route

_P = ParamSpec("_P")
_R = TypeVar("_R")

_library = torch.library.Library("madl", "FRAGMENT")


def define(
    schema: str,
    *,
    route: Callable[[], Route],
    check: Callable[..., None],
    fake: Callable[..., Tensor],
    in_torch: Callable[..., Tensor] | None = None,
) -> Callable[..., Tensor]:
    """The operator of that schema, one of `operators.cpp`, as a function.

    `route` builds the C++. `check` raises ValueError for arguments that do not fit, and says why:
    C++ only refuses them. `fake` gives an empty result while tracing. `in_torch`, where there is
    one, computes without C++.
    """
    name = schema.partition("(")[0]
    _library.define(schema)
    operator: Callable[..., Tensor] = getattr(torch.ops.madl, name).default

    def before_cpp(x: Tensor, *rest: Any) -> Tensor:
        check(x, *rest)
        if x.is_cpu and route().library is not None:
            return operator(x, *rest)  # C++ has it now
        if in_torch is not None:
            return in_torch(x, *rest)
        raise RuntimeError(
            f"madl::{name} needs its C++ ({route().reason}); trace the model anew with "
            "MADL_KERNELS=torch to be free of it"
        )

    def checked(*arguments: Any) -> Tensor:
        try:
            return operator(*arguments)
        except RuntimeError:
            check(*arguments)
            raise

    _library.impl(name, before_cpp, "CompositeExplicitAutograd")
    torch.library.register_fake(f"madl::{name}", fake, lib=_library)
    return checked


def constant_in_traces(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """Let `torch.compile` call the function while it traces, and not look inside.

    This is what `torch.compiler.assume_constant_result` sets; that one imports torch._dynamo, which
    takes a second, in programs that compile nothing.
    """
    function._dynamo_marked_constant = True  # type: ignore[attr-defined]
    return function
