"""The Network port: listening, connecting, and Kafka frames (int32 length, then that many bytes) in both directions.

A frame is a memoryview into a pooled buffer. The buffer returns to its pool by itself once no memoryview into it is
left, so a slice stays valid as long as somebody keeps it (an append that waits for its disk), and nobody releases it.
Chunks leave in the order of `send`. Nothing here blocks or parses requests.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeAlias

from ottla_broker.ports.disk import FileRange

if TYPE_CHECKING:
    from ssl import SSLContext

Buffer: TypeAlias = bytes | bytearray | memoryview
Chunk: TypeAlias = Buffer | FileRange


@dataclass(frozen=True, slots=True)
class ReceiveLimits:
    """The memory that frames of listeners may hold together: those in progress, and those whose slices somebody keeps.

    A connection whose next bytes need more than there is is not read until there is; which one goes on meanwhile, and
    how much beyond the limit, is the adapter's (`adapters.receive_memory`). What nobody shares is not counted: the
    first 4 KiB of each connection.

    Args:
        key: the configuration key of the limit, for messages.
        limit_bytes: 0 or less for no limit.
        least_share: the smallest `share`.
        share: of `limit_bytes`, from 0 to 1: up to so much of it may be in use when a frame gets memory. It is given
            the frame's first bytes, a few at least, and its length.
        longest_s: a frame that takes longer closes its connection, if others wait for memory.
    """

    key: str
    limit_bytes: int
    least_share: float
    share: Callable[[memoryview, int], float]
    longest_s: float


class Tls(Protocol):
    """What makes the TLS of a listener's connections, or of those that are opened to one listener."""

    @property
    def handshake_timeout_s(self) -> float:
        """A connection that has not completed its handshake is closed after so long."""
        ...

    def context(self) -> SSLContext:
        """The keys, certificates and rules for a new connection. Those that exist keep theirs."""
        ...

    def on_handshake(self, protocol: str, cipher_suite: str, kernel_sends: bool) -> None:
        """A handshake is complete. `kernel_sends`: the kernel encrypts what is sent (kTLS)."""
        ...

    def on_failure(self, code: str) -> None:
        """A handshake has failed; `code` is a word of a small set."""
        ...


class Connection(Protocol):
    """One established connection. Over TLS, bytes are sent and frames received once its handshake is complete."""

    peer: tuple[str, int]
    """Remote (host, port)."""
    local: tuple[str, int]
    """Local (host, port)."""

    @property
    def peer_certificate(self) -> bytes | None:
        """The certificate that the peer has shown, in DER; None without one, and without TLS."""
        ...

    @property
    def unsent_bytes(self) -> int:
        """Bytes that were passed to `send` and that the operating system has not taken yet."""
        ...

    @property
    def is_closed(self) -> bool:
        """Whether either side has closed the connection."""
        ...

    def send(self, chunks: Sequence[Chunk], *, now: bool = False) -> None:
        """Queues the chunks in order; a closed connection drops them.

        Args:
            chunks: with the length prefix. Buffers must not change until they are sent. A FileRange is sent from the
                page cache (sendfile) and then released.
            now: sends at once. Otherwise everything that is queued in this turn of the loop is sent together.
        """
        ...

    def pause(self) -> None:
        """Stops reading, for back-pressure and throttling. `on_frame` is not called before `resume`, not even for
        frames that were received already. Idempotent."""
        ...

    def resume(self) -> None:
        """Reads again. Idempotent."""
        ...

    def limit_frames(self, max_bytes: int) -> None:
        """A longer frame that comes from now on closes the connection."""
        ...

    def close(self) -> None:
        """Drops unsent bytes and closes; `on_close` is called in a later turn of the loop. Idempotent."""
        ...

    def close_after_send(self) -> None:
        """Stops reading and closes once everything queued is sent."""
        ...


class ConnectionHandler(Protocol):
    """What a connection calls, on the broker's loop."""

    def on_frame(self, frame: memoryview) -> None:
        """A complete frame without its length prefix was received."""
        ...

    def on_sent(self) -> None:
        """The operating system has taken everything that was queued."""
        ...

    def on_close(self, reason: str) -> None:
        """The connection is closed: `reason` is "" when a side closed it, else the error. Called exactly once."""
        ...


class HandlerFactory(Protocol):
    """Creates the handler of a new connection."""

    def __call__(self, connection: Connection) -> ConnectionHandler: ...


class Listener(Protocol):
    """A bound address that accepts connections."""

    host: str
    port: int
    """The bound port; the system chooses it for port 0."""

    def pause(self) -> None:
        """Accepts no connection until `resume`; new ones wait in the backlog. Idempotent."""
        ...

    def resume(self) -> None:
        """Accepts connections again. Idempotent."""
        ...

    def close(self) -> None:
        """Accepts no more connections; established ones stay open."""
        ...


class Connector(Protocol):
    """Opens connections: a Network to any address, or what secures those to one listener of other brokers."""

    async def connect(
        self, host: str, port: int, factory: HandlerFactory, *, timeout_s: float, max_frame_bytes: int
    ) -> Connection:
        """See `Network.connect`."""
        ...


class Network(Protocol):
    """The network of one broker. See the module."""

    async def listen(
        self,
        host: str,
        port: int,
        factory: HandlerFactory,
        *,
        max_frame_bytes: int,
        is_privileged: bool = False,
        limits: ReceiveLimits | None = None,
        tls: Tls | None = None,
    ) -> Listener:
        """Binds an address and accepts connections.

        Args:
            max_frame_bytes: a longer frame, or one of negative length, closes its connection.
            is_privileged: for other brokers: accepts connections also when the process is nearly out of descriptors.
            limits: of the memory of received frames. All listeners with limits share one sum, and have the same limit.
            tls: None for bytes as they are.

        Raises:
            OSError: the address cannot be bound.
        """
        ...

    async def resolve(self, host: str) -> list[str]:
        """The addresses of a host name; an address resolves to itself. Raises OSError when there is none."""
        ...

    async def connect(
        self,
        host: str,
        port: int,
        factory: HandlerFactory,
        *,
        timeout_s: float,
        max_frame_bytes: int,
        tls: Tls | None = None,
    ) -> Connection:
        """Opens a connection, its TLS handshake included.

        Raises:
            OSError: nobody answers in time (TimeoutError), or the handshake fails; the message says why.
        """
        ...

    @property
    def received_bytes(self) -> int:
        """What counts against the `ReceiveLimits`."""
        ...

    async def own_name(self) -> str:
        """The name by which others reach this machine: the name of its first address, else the address as text.

        Raises OSError when the machine's host name has no address. Source: InetAddress.getCanonicalHostName.
        """
        ...

    def close(self) -> None:
        """Closes every listener and connection at once."""
        ...
