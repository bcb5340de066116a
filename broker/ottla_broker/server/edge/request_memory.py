"""Decides how much memory the requests of a broker may hold, and who may use the last of it (KIP-72).

    queued.max.request.bytes    what frames that are being received and requests that are not worked off hold together.
                                0, the default, is an eighth of the memory of the process; -1 is no limit.

Others must not wait for those who send much, and brokers never for clients. So a frame gets memory up to a share:

    all of it        frames on the listeners of brokers; with a single listener, of the APIs that brokers use
    7/8 of it        frames of up to 64 KiB: heartbeats, commits, the requests of most producers
    3/4 of it        larger frames

With a single listener any client can send what brokers send, and so use the last quarter too: a broker that is open to
strangers needs a listener of its own for brokers (inter.broker.listener.name).

Decisions only. Not here: who waits, and who goes on meanwhile (`adapters.receive_memory`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from ottla_broker.ports.network import ReceiveLimits
from ottla_broker.protocol.api import ApiKey
from ottla_broker.server.edge.request_scheduling import CONTROL_APIS

KEY: Final = "queued.max.request.bytes"
OF_MEMORY: Final = 8
LEAST_BYTES: Final = 64 * 1024 * 1024
UNKNOWN_MEMORY_BYTES: Final = 2 * 1024**3
LONGEST_FRAME_S: Final = 30.0
"""Clients give up a request after request.timeout.ms, 30 s by default: what comes later is for nobody."""

_BROKERS_SHARE: Final = 1.0
_SMALL_SHARE: Final = 0.875
_SHARE: Final = 0.75
_SMALL_BYTES: Final = 64 * 1024
_OF_BROKERS: Final = CONTROL_APIS | {
    int(key) for key in (ApiKey.FETCH, ApiKey.WRITE_TXN_MARKERS, ApiKey.ALLOCATE_PRODUCER_IDS)
}


def default_bytes(memory_bytes: int | None, part: int) -> int:
    """One part of the memory of the process, which is 2 GiB where nobody knows; at least 64 MiB.

    >>> default_bytes(4 << 30, 8) >> 20, default_bytes(256 << 20, 8) >> 20, default_bytes(None, 8) >> 20
    (512, 64, 256)
    """
    return max(LEAST_BYTES, (memory_bytes or UNKNOWN_MEMORY_BYTES) // part)


def receive_limits(configured: int, memory_bytes: int | None, *, is_protected: bool, is_single: bool) -> ReceiveLimits:
    """The limits of a listener.

    Args:
        configured: queued.max.request.bytes.
        memory_bytes: what the process may use, None where nobody knows.
        is_protected: the listener is of brokers alone.
        is_single: there is no other.
    """
    limit = default_bytes(memory_bytes, OF_MEMORY) if configured == 0 else configured
    return ReceiveLimits(KEY, limit, _SHARE, share_of(is_protected=is_protected, is_single=is_single), LONGEST_FRAME_S)


def share_of(*, is_protected: bool, is_single: bool) -> Callable[[memoryview, int], float]:
    """The share of a frame, by its first bytes and its length.

    >>> share = share_of(is_protected=False, is_single=True)
    >>> share(memoryview(bytes(8)), 1000), share(memoryview(bytes(8)), 10**6), share(memoryview(b"\\0\\6"), 10**6)
    (0.875, 0.75, 1.0)
    """

    def share(start: memoryview, length: int) -> float:
        if is_protected or (is_single and len(start) >= 2 and (start[0] << 8 | start[1]) in _OF_BROKERS):
            return _BROKERS_SHARE
        return _SMALL_SHARE if length <= _SMALL_BYTES else _SHARE

    return share
