"""How all benchmarks are called."""

import sys
from collections.abc import Callable

from madl.errors import MadlError


def call(main: Callable[[], None]) -> None:
    """Run a benchmark; what its user can mend is one line and no traceback."""
    try:
        main()
    except MadlError as error:
        sys.exit(f"Error: {error}")
