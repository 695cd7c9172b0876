"""Errors that the user can fix: their message says how."""

import errno

NO_ROOM = (errno.ENOSPC, errno.EDQUOT)  # on a disk
NO_MEMORY = "not enough memory; end other programs, or use fewer --jobs, and run it again"


class MadlError(Exception):
    """Error that the user can fix: what is wrong, what was got, what to do, in one line."""


class WrongCommand(MadlError):
    """Error in the command itself, such as an unknown name; nothing was begun."""


def first_line(error: BaseException) -> str:
    """The first line of an error's message, or its type if the message is empty."""
    return next(iter(str(error).strip().splitlines()), type(error).__name__)


def kind_and_line(error: BaseException) -> str:
    """An error's type, and the first line of its message, if there is one."""
    kind, line = type(error).__name__, first_line(error)
    return kind if line == kind else f"{kind}: {line}"
