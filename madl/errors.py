"""The one error that means: the user can fix this, and the message says how."""

import errno

NO_ROOM = (errno.ENOSPC, errno.EDQUOT)  # on a disk


class MadlError(Exception):
    """A situation the user can fix: what is wrong, what we got, what to do, in one line."""


class WrongCommand(MadlError):
    """What was asked for does not exist: nothing was begun."""
