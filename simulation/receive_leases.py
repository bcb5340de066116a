"""The receive memory of the simulated network: leases that end when nobody keeps the frames received into them.

A module of its own: mypyc, which may compile the network, makes no subclass of a bytearray and no weak references.
"""

from __future__ import annotations

import weakref

from ottla_broker.adapters.buffers import size_of


class Lease:
    """Receive memory that somebody keeps."""

    __slots__ = ("__weakref__", "size")

    def __init__(self, size: int) -> None:
        self.size = size


class LeasedFrame(bytearray):
    """The bytes of one frame, which keep the memory that they were received into."""

    __slots__ = ("lease",)

    lease: Lease


class Leases:
    """The `Buffers` of a `ReceiveMemory`: counts what is alive."""

    def __init__(self) -> None:
        self.in_use_bytes = 0

    @property
    def total_bytes(self) -> int:
        return self.in_use_bytes

    def take(self, at_least_bytes: int) -> Lease:
        size = size_of(at_least_bytes)
        self.in_use_bytes += size
        lease = Lease(size)
        weakref.finalize(lease, self._give_back, size).atexit = False
        return lease

    def take_within(self, at_least_bytes: int, limit_bytes: int) -> Lease | None:
        return self.take(at_least_bytes) if self.in_use_bytes + size_of(at_least_bytes) <= limit_bytes else None

    def count(self) -> int:
        return self.in_use_bytes

    def measure(self) -> int:
        return self.in_use_bytes

    def drop_unused(self) -> int:
        return 0

    def _give_back(self, size: int) -> None:
        self.in_use_bytes -= size
