"""What all benchmarks are called with: numbers that can be, and one line where one ends early."""

import argparse
import math
import sys
from collections.abc import Callable

from madl.errors import MadlError

STOPPED = 130  # the exit status of what Ctrl-C ends


def whole(text: str) -> int:
    """A whole number from 1 on."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"a whole number from 1 on; got {text}")
    return int(text)


def seconds(text: str) -> float:
    """A number of seconds above 0."""
    try:
        found = float(text)
    except ValueError:
        found = math.nan
    if not 0 < found < math.inf:
        raise argparse.ArgumentTypeError(f"a number of seconds above 0; got {text}")
    return found


def call(main: Callable[[], None]) -> None:
    """Run a benchmark; what its user can mend, and Ctrl-C, is one line and no traceback."""
    try:
        main()
    except KeyboardInterrupt:
        print("stopped; nothing is published", file=sys.stderr)
        sys.exit(STOPPED)
    except MadlError as error:
        sys.exit(f"Error: {error}")
