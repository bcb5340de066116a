"""The Network port: listening, connecting, and Kafka frames (int32 length, then that many bytes) in both directions.

A frame is handed over as a memoryview into a pooled buffer. The buffer goes back to its pool by itself once no
memoryview into it is alive, so whoever keeps a slice (an append that waits for its disk) keeps it valid, and nobody
calls release. Answers leave in the order of `send`. Nothing here blocks and nothing here parses Kafka.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeAlias

from ottla_broker.ports.disk import FileRange

Buffer: TypeAlias = bytes | bytearray | memoryview
Chunk: TypeAlias = Buffer | FileRange


class Connection(Protocol):
    """One established connection."""

    peer: tuple[str, int]
    """Remote (host, port)."""
    local: tuple[str, int]
    """Local (host, port)."""

    @property
    def unsent_bytes(self) -> int:
        """Bytes given to `send` that the operating system has not taken yet."""
        ...

    @property
    def is_closed(self) -> bool: ...

    def send(self, chunks: Sequence[Chunk], *, now: bool = False) -> None:
        """Queues the chunks in order. The caller builds the length prefix. A closed connection drops them.

        They leave together with whatever else is queued in this turn of the loop; `now` says that nothing more will
        be, and saves the turn.

        Buffers must not change until sent. A FileRange is sent from the page cache (sendfile) and unpinned after.
        """
        ...

    def pause(self) -> None:
        """Stops reading (back-pressure, throttling). `on_frame` is not called again before `resume`,
        not even for frames that were already received. Idempotent."""
        ...

    def resume(self) -> None: ...

    def close(self) -> None:
        """Drops unsent bytes and closes; `on_close` follows in a later turn of the loop. Idempotent."""
        ...

    def close_after_send(self) -> None:
        """Stops reading and closes once everything queued has left."""
        ...


class ConnectionHandler(Protocol):
    """What a connection calls, always on the broker's loop."""

    def on_frame(self, frame: memoryview) -> None:
        """One whole frame without its length prefix."""
        ...

    def on_sent(self) -> None:
        """Everything queued has been taken by the operating system (called once per emptying)."""
        ...

    def on_close(self, reason: str) -> None:
        """The connection is gone: "" for an orderly end by either side, else what happened. Called exactly once."""
        ...


class HandlerFactory(Protocol):
    def __call__(self, connection: Connection) -> ConnectionHandler: ...


class Listener(Protocol):
    host: str
    port: int
    """The bound port (chosen by the system when 0 was asked)."""

    def pause(self) -> None:
        """Accepts nothing until `resume`; who connects meanwhile waits, as long as the backlog takes it. Idempotent."""
        ...

    def resume(self) -> None:
        """Idempotent."""
        ...

    def close(self) -> None:
        """Accepts no more; established connections live on."""
        ...


class Network(Protocol):
    async def listen(
        self, host: str, port: int, factory: HandlerFactory, *, max_frame_bytes: int, is_privileged: bool = False
    ) -> Listener:
        """Binds and accepts. A longer or negative frame length closes the connection with that reason. A privileged
        listener (of other brokers) accepts also when the process is nearly out of descriptors.

        Raises OSError when the address cannot be bound.
        """
        ...

    async def resolve(self, host: str) -> list[str]:
        """The addresses of a host name, or the address itself. Raises OSError when there is none."""
        ...

    async def connect(
        self, host: str, port: int, factory: HandlerFactory, *, timeout_s: float, max_frame_bytes: int
    ) -> Connection:
        """Raises OSError (TimeoutError included) when nobody answers."""
        ...

    async def own_name(self) -> str:
        """What others reach this machine by: the name of its first address, else that address as text.

        Raises OSError when the machine's host name has no address. Source: InetAddress.getCanonicalHostName.
        """
        ...

    def close(self) -> None:
        """Closes every listener and connection at once (halt)."""
        ...
