"""One blocking connection to a broker: frames in both directions, with negotiated versions.

Blocking, because a Spark task is its own process with one thing to do. A request may be sent before the previous
response is read, so that the next fetch runs while records are converted.
"""

from __future__ import annotations

import math
import socket
import time
from typing import TYPE_CHECKING, Any

from ottla_broker.protocol import codec
from ottla_broker.protocol.api import ApiKey
from ottla_broker.protocol.errors import ErrorCode
from ottla_broker.protocol.generated.api_versions import ApiVersionsRequest
from ottla_broker.security.client_settings import PLAIN, ClientSecurity
from ottla_broker.security.oauth.logins import TokenUnavailable
from ottla_pipeline.errors import RequestRefused
from ottla_pipeline.wire.login import log_in
from ottla_pipeline.wire.plain_socket import PlainSocket

if TYPE_CHECKING:
    from ottla_pipeline.wire.tls_socket import TlsSocket

_MAX_FRAME_BYTES = 2**31 - 1
_BUFFER_BYTES = 64 * 1024
_PART_OF_SESSION = 0.85
"""Of a session's life, after which it logs in again."""
_VERSIONS = {
    ApiKey.FETCH: (4, 13),  # from 4 on record batches, up to 12 topics by name, in 13 by id
    ApiKey.LIST_OFFSETS: (2, 7),  # from 2 on the isolation level
    ApiKey.METADATA: (4, 12),  # from 4 on a topic can be asked for without creating it
    ApiKey.PRODUCE: (3, 11),  # from 3 on record batches; 12 and later add partitions to transactions by themselves
    ApiKey.FIND_COORDINATOR: (1, 3),  # one key, of a group or a transaction
    ApiKey.INIT_PRODUCER_ID: (0, 4),
    ApiKey.ADD_PARTITIONS_TO_TXN: (0, 3),  # later ones are for brokers
    ApiKey.ADD_OFFSETS_TO_TXN: (0, 3),
    ApiKey.TXN_OFFSET_COMMIT: (0, 3),
    ApiKey.END_TXN: (0, 3),
    ApiKey.OFFSET_COMMIT: (2, 8),  # from 2 on without a time of its own, up to 9 topics by name
    ApiKey.OFFSET_FETCH: (7, 7),  # from 7 on it waits for offsets of open transactions, later ones ask for many groups
    ApiKey.DESCRIBE_CONFIGS: (1, 4),
    ApiKey.SASL_HANDSHAKE: (1, 1),  # from 1 on SaslAuthenticate follows
    ApiKey.SASL_AUTHENTICATE: (0, 2),  # from 1 on the end of the session
}
"""The first and last version of each API that this package speaks."""


class Connection:
    """An open connection. Every method raises OSError when the connection breaks or time is up."""

    def __init__(
        self, host: str, port: int, *, client_id: str, timeout_s: float, security: ClientSecurity = PLAIN
    ) -> None:
        self.host, self.port = host, port
        self.address = f"{host}:{port}"
        self._client_id = client_id
        self._correlation_id = 0
        self._waiting: list[tuple[int, ApiKey, int]] = []
        self._buffer = bytearray(_BUFFER_BYTES)
        self._login = security.login
        self._session_ends_at = math.inf
        """Time.monotonic: before that it has to log in again (KIP-368)."""
        self._transport = _open(host, port, timeout_s, security)
        try:
            try:
                self._served = self._agree()
                if security.login is not None:
                    self._log_in()
            except TokenUnavailable:
                raise  # nothing is wrong with the connection
            except OSError as error:
                raise self._transport.explain(error) from None
        except BaseException:
            self.close()
            raise

    def ask(self, api_key: ApiKey, request: Any) -> Any:
        """Sends a request and takes its answer."""
        self.send(api_key, request)
        return self.take()

    def send(self, api_key: ApiKey, request: Any, *, at_most: int | None = None) -> None:
        """Sends a request; its answer is taken by a later `take`, in the order of the requests.

        With `at_most` in no later version than that, which the broker has to serve.
        """
        if not self._waiting and time.monotonic() >= self._session_ends_at:
            self._log_in()
        version = self._version(api_key)
        self._send(api_key, version if at_most is None else min(version, at_most), request)

    def take(self) -> Any:
        """The answer to the oldest request that has none yet. Its buffers are written over by the next call."""
        expected, api_key, version = self._waiting.pop(0)
        prefix = memoryview(bytearray(4))
        self._receive(prefix)
        length = int.from_bytes(prefix, "big", signed=True)
        if not 4 <= length <= _MAX_FRAME_BYTES:
            raise ConnectionError(f"{self.address} sent a frame of {length} bytes")
        if length > len(self._buffer):
            self._buffer = bytearray(length + length // 8)
        frame = memoryview(self._buffer)[:length]
        self._receive(frame)
        try:
            correlation_id, answer = codec.read_response_frame(api_key, version, frame)
        except codec.DecodeError as error:
            raise ConnectionError(f"{self.address} sent no answer to {api_key.name}: {error}") from error
        if correlation_id != expected:
            raise ConnectionError(f"{self.address} answered request {correlation_id} instead of {expected}")
        return answer

    def release_buffer(self) -> None:
        """Gives the memory of large answers back; the last answer's buffers must not be used any more."""
        if len(self._buffer) > _BUFFER_BYTES:
            self._buffer = bytearray(_BUFFER_BYTES)

    def close(self) -> None:
        self._transport.socket.close()

    def fileno(self) -> int:
        """The socket's, for `select`: readable when an answer comes."""
        return self._transport.socket.fileno()

    @property
    def has_waiting_bytes(self) -> bool:
        """Whether bytes of an answer have come that `select` does not tell of."""
        return self._transport.has_waiting_bytes

    @property
    def in_flight(self) -> int:
        """How many requests have no answer yet."""
        return len(self._waiting)

    @property
    def is_reusable(self) -> bool:
        """Whether nothing is awaited and nothing has come: a closed connection has its end to be read."""
        return not self._waiting and self._transport.is_quiet()

    def _log_in(self) -> None:
        """Raises LoginRefused, OSError. A session with an end is renewed when nothing is awaited, early enough."""
        assert self._login is not None
        began, self._session_ends_at = time.monotonic(), math.inf
        lifetime_ms = log_in(self.ask, self._login, self.address)
        self._session_ends_at = began + _PART_OF_SESSION * lifetime_ms / 1000 if lifetime_ms else math.inf

    def _agree(self) -> dict[int, tuple[int, int]]:
        """The lowest and highest version of each API that the broker serves."""
        self._send(ApiKey.API_VERSIONS, 0, ApiVersionsRequest())
        return {entry.api_key: (entry.min_version, entry.max_version) for entry in self.take().api_keys}

    def _version(self, api_key: ApiKey) -> int:
        """The newest version that both sides speak, or RequestRefused."""
        first, last = _VERSIONS[api_key]
        lowest, highest = self._served.get(api_key, (0, -1))
        version = min(last, highest)
        if version < max(first, lowest):
            raise RequestRefused(
                f"the broker {self.address} serves {api_key.name} {lowest} to {highest}, not {first} to {last}"
            )
        return version

    def _send(self, api_key: ApiKey, version: int, request: Any) -> None:
        self._correlation_id += 1
        chunks = codec.frame_request(api_key, version, self._correlation_id, self._client_id, request)
        self._transport.send(chunks)
        self._waiting.append((self._correlation_id, api_key, version))

    def _receive(self, view: memoryview) -> None:
        """Fills the view."""
        filled = 0
        while filled < len(view):
            count = self._transport.receive_into(view[filled:])
            if not count:
                raise ConnectionError(f"{self.address} closed the connection")
            filled += count


def _open(host: str, port: int, timeout_s: float, security: ClientSecurity) -> PlainSocket | TlsSocket:
    sock = socket.create_connection((host, port), timeout_s)
    try:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if security.tls is None:
            return PlainSocket(sock)
        from ottla_pipeline.wire.tls_socket import TlsSocket

        return TlsSocket(sock, host, security.tls)
    except BaseException:
        sock.close()
        raise


def error_of(code: int) -> ErrorCode:
    """The error of a number; one that Kafka 3.9 does not have counts as UNKNOWN_SERVER_ERROR."""
    try:
        return ErrorCode.of(code)
    except KeyError:
        return ErrorCode.UNKNOWN_SERVER_ERROR
