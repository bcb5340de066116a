"""Classifies the error of a failed system call: lack of room, a shortage of the process, or a failure. Pure.

    room        nothing more fits in the file system or the quota          the directory is full
    shortage    the process or the kernel is out of descriptors or         nothing is wrong with any disk: the call is
                memory, or a signal interrupted the call                   refused or repeated, others go on
    failure     everything else                                            the disk under the directory has failed

A failed sync is always a failure (fsync(2): the dirty pages are lost); the adapters report it as EIO.

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


class ErrorCause(Enum):
    """See the module."""

    ROOM = "room"
    SHORTAGE = "shortage"
    FAILURE = "failure"


def cause_of(error: OSError) -> ErrorCause:
    """The cause of a failed call on a file or directory."""
    if error.errno in _ROOM:
        return ErrorCause.ROOM
    return ErrorCause.SHORTAGE if error.errno in _SHORTAGE else ErrorCause.FAILURE


def is_lack_of_room(error: BaseException | None) -> bool:
    """Whether a call failed for lack of room (ENOSPC, EDQUOT)."""
    return isinstance(error, OSError) and cause_of(error) is ErrorCause.ROOM


def is_shortage(error: BaseException | None) -> bool:
    """Whether a call failed for a shortage of descriptors or memory (EMFILE, ENOMEM, ...)."""
    return isinstance(error, OSError) and cause_of(error) is ErrorCause.SHORTAGE


def is_sound(error: BaseException | None) -> bool:
    """Whether the disk under a failed call works: lack of room or a shortage. The call may be repeated later."""
    return isinstance(error, OSError) and cause_of(error) is not ErrorCause.FAILURE
