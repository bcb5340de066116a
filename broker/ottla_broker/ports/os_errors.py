"""What the error number of a failed system call says: the one place that classifies them. Pure.

    room        nothing more fits in the file system or the quota            the directory is full
    shortage    the process or the kernel has no descriptor, memory or       nothing is wrong with any disk: the call is
                turn left, or a signal came between                          refused or made again, and others go on
    failure     everything else                                              the disk under the directory has failed

A failed sync is a failure whatever its number is (fsync(2): what was dirty is lost); whoever syncs says so with EIO.

    >>> cause_of(OSError(errno.EMFILE, "Too many open files")).value, cause_of(OSError(errno.EIO, "I/O error")).value
    ('shortage', 'failure')
"""

from __future__ import annotations

import errno
from enum import Enum

_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT})
_SHORTAGE = frozenset(
    {errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS, errno.EAGAIN, errno.EWOULDBLOCK, errno.EINTR}
)


class Cause(Enum):
    """See the module."""

    ROOM = "room"
    SHORTAGE = "shortage"
    FAILURE = "failure"


def cause_of(error: OSError) -> Cause:
    """Which of the three the error of a call on a file or directory is."""
    if error.errno in _ROOM:
        return Cause.ROOM
    return Cause.SHORTAGE if error.errno in _SHORTAGE else Cause.FAILURE


def is_lack_of_room(error: BaseException | None) -> bool:
    """Whether a call failed only because nothing more fits (ENOSPC, EDQUOT)."""
    return isinstance(error, OSError) and cause_of(error) is Cause.ROOM


def is_shortage(error: BaseException | None) -> bool:
    """Whether a call failed only because the process or the kernel is short of something (EMFILE, ENOMEM, ...)."""
    return isinstance(error, OSError) and cause_of(error) is Cause.SHORTAGE


def is_sound(error: BaseException | None) -> bool:
    """Whether the disk under a failed call works: lack of room or a shortage. The call may be made again later."""
    return isinstance(error, OSError) and cause_of(error) is not Cause.FAILURE
