"""The command line of all benchmarks: options, a header about the machine, errors as one line."""

import functools
import sys
from collections.abc import Mapping, Sequence

import click
import torch

from kernels.build import Route
from madl.errors import MadlError
from madl.machine import device

STOPPED = 130  # the exit status of what Ctrl-C ends

budget = functools.partial(
    click.option,
    "--budget-s",
    type=click.FloatRange(min=0, min_open=True),
    show_default=True,
)
threads = click.option(
    "--threads", type=click.IntRange(min=1), default=torch.get_num_threads, help="Of torch."
)


def print_machine(peers: Sequence[str], routes: Mapping[str, Route]) -> None:
    """Print the processor, the peers' versions, and the path by which each kernel is computed."""
    print(f"{device.cpu_name()}, {device.num_cores()} cores, {torch.get_num_threads()} threads")
    print(", ".join(f"{peer} {device.version(peer)}" for peer in peers))
    for kernel, route in routes.items():
        print(f"{kernel}: {route.path} ({route.reason})")


def call(main: click.Command, *, stopped: str = "nothing is published") -> None:
    """Run a benchmark; a mistake of its user, or Ctrl-C, prints one line and no traceback.

    `stopped` says what Ctrl-C leaves behind.
    """
    try:
        main(standalone_mode=False)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except click.Abort:
        print(f"stopped; {stopped}", file=sys.stderr)
        sys.exit(STOPPED)
    except MadlError as error:
        sys.exit(f"Error: {error}")
