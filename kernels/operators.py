"""Torch operators that C++ computes on a CPU, and what else they need: a shape to trace with.

The C++ side is `operators.cpp`; it is built at the first use of one of them (`build.load`).
"""

from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

import torch

from kernels.build import Route

_P = ParamSpec("_P")
_R = TypeVar("_R")

_library = torch.library.Library("madl", "FRAGMENT")


def define(
    schema: str, *, fake: Callable[..., Any], first: Callable[..., Any]
) -> torch._ops.OpOverload:
    """The operator of that schema, one of `operators.cpp`.

    `fake` gives an empty result while tracing. `first` computes as long as C++ does not: it builds
    it, then calls the operator again.
    """
    name = schema.partition("(")[0]
    _library.define(schema)
    _library.impl(name, first, "CompositeExplicitAutograd")
    torch.library.register_fake(f"madl::{name}", fake, lib=_library)
    return getattr(torch.ops.madl, name).default


def constant_in_traces(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """Let `torch.compile` call the function while it traces, and not look inside.

    This is what `torch.compiler.assume_constant_result` sets; that one imports torch._dynamo, which
    takes a second, in programs that compile nothing.
    """
    function._dynamo_marked_constant = True  # type: ignore[attr-defined]
    return function


def needs_cpp(name: str, route: Route) -> RuntimeError:
    """For an operator without a definition in torch."""
    return RuntimeError(
        f"madl::{name} needs its C++ ({route.reason}); trace the model anew with "
        "MADL_KERNELS=torch to be free of it"
    )
