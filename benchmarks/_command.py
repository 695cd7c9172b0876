"""How all benchmarks are called: what they share of their options, and one line at an early end."""

import functools
import sys

import click

from madl.errors import MadlError

STOPPED = 130  # the exit status of what Ctrl-C ends

budget = functools.partial(
    click.option,
    "--budget-s",
    type=click.FloatRange(min=0, min_open=True),
    show_default=True,
)


def _torchs() -> int:
    import torch

    return torch.get_num_threads()


threads = click.option("--threads", type=click.IntRange(min=1), default=_torchs, help="Of torch.")


def call(main: click.Command) -> None:
    """Run a benchmark; what its user can mend, and Ctrl-C, is one line and no traceback."""
    try:
        main(standalone_mode=False)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except click.Abort:
        print("stopped; nothing is published", file=sys.stderr)
        sys.exit(STOPPED)
    except MadlError as error:
        sys.exit(f"Error: {error}")
