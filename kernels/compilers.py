"""The C++ compilers of this machine: `CXX`, or those that usually are there. Imports no torch."""

import functools
import logging
import os
import shutil
from collections.abc import Iterator

log = logging.getLogger(__name__)

NAME = "C++ compiler"
USUAL = ("g++", "clang++", "c++")
NO_COMPILER = "no C++ compiler here: install g++ or clang++, or name one with CXX"


def cpp() -> Iterator[str]:
    """The paths of the C++ compilers here, in the order to try; of `CXX` alone, if it is set."""
    own = os.environ.get("CXX")
    yield from filter(None, map(shutil.which, [own] if own else USUAL))


@functools.cache
def warn_missing() -> None:
    """Log, once in a process, that torch computes in the place of C++."""
    log.warning("torch computes in the place of C++: %s", NO_COMPILER)
