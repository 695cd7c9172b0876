"""The reference of commands in docs/usage.md, as click tells it.

python -m tests.commands    writes it anew
"""

import click

import cli
from tests.conftest import ROOT

USAGE = ROOT / "docs" / "usage.md"
HEADING = "## Every command and option\n"


def reference() -> str:
    """The help of every command, in the order of `cli.py --help`."""
    parts = [HEADING, "As `--help` prints it. Written by `python -m tests.commands`.\n"]
    for name, command in sorted(cli.main.commands.items()):
        context = click.Context(command, info_name=f"cli.py {name}", max_content_width=88)
        context.terminal_width = 88
        context.help_option_names = ["-h", "--help"]
        parts.append(f"### {name}\n\n```text\n{command.get_help(context)}\n```\n")
    return "\n".join(parts)


def with_reference(usage: str) -> str:
    """The page with the reference as its last section."""
    return f"{usage.partition(HEADING)[0].rstrip()}\n\n{reference()}"


if __name__ == "__main__":
    USAGE.write_text(with_reference(USAGE.read_text("utf-8")), "utf-8")
