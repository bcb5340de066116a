"""The queue of handshakes: how many in a turn of the loop, whose come first, and which gives way."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from ottla_broker.adapters import handshakes
from ottla_broker.adapters.handshakes import Handshakes, ServerHandshake
from ottla_broker.adapters.tls_transport import Handshake

HELLO = b"\x16\x03\x01\x00\x01\x01"


class Loop:
    """A loop whose time is the test's, and whose turns are run by it."""

    def __init__(self) -> None:
        self.now = 0.0
        self.soon: list[Callable[[], object]] = []
        self.readers: dict[int, Callable[[], object]] = {}
        self.sockets: list[socket.socket] = []

    def time(self) -> float:
        return self.now

    def call_soon(self, callback: Callable[[], object]) -> None:
        self.soon.append(callback)

    def call_later(self, delay_s: float, callback: Callable[[], object]) -> None:
        if not delay_s:
            self.soon.append(callback)

    def add_reader(self, fd: int, callback: Callable[[], object]) -> None:
        self.readers[fd] = callback

    def remove_reader(self, fd: int) -> None:
        del self.readers[fd]

    def turn(self) -> None:
        callbacks, self.soon = self.soon, []
        for callback in callbacks:
            callback()


class Transport:
    """A handshake that takes 2 ms, and then waits for its peer."""

    protocol = cipher_suite = ""
    kernel_sends = False

    def __init__(self, loop: Loop, name: str, log: list[str]) -> None:
        self.socket, self.peer = socket.socketpair()
        loop.sockets += [self.socket, self.peer]
        self.peer.send(HELLO)
        self.socket.setblocking(False)
        self._loop, self._name, self._log = loop, name, log

    def peek(self) -> bytes:
        return self.socket.recv(5, socket.MSG_PEEK)

    def handshake(self) -> Handshake:
        self._loop.now += 0.002
        self._log.append(self._name)
        return Handshake.READ


class Tls:
    handshake_timeout_s = 10.0

    def on_failure(self, code: str) -> None:
        pass


@pytest.fixture
def loop() -> Iterator[Loop]:
    found = Loop()
    yield found
    for one in found.sockets:
        one.close()


def queued(loop: Loop, names: list[str]) -> tuple[list[str], dict[str, str]]:
    """The order of their steps, and why those ended that did. Names of brokers' listeners begin with "b"."""
    stub: Any = loop
    queue, log, ended = Handshakes(stub), list[str](), dict[str, str]()
    for name in names:
        transport: Any = Transport(loop, name, log)
        tls: Any = Tls()
        handshake = ServerHandshake(queue, transport, tls, is_privileged=name.startswith("b"))
        handshake.begin(lambda reason, name=name: ended.__setitem__(name, reason))  # type: ignore[misc]
    for reader in list(loop.readers.values()):
        reader()
    return log, ended


def test_a_turn_has_3_ms_of_handshakes_and_the_rest_waits_for_the_next(loop: Loop) -> None:
    log, _ = queued(loop, ["c0", "c1", "c2", "c3", "c4"])
    loop.turn()
    assert log == ["c0", "c1"]
    loop.turn()
    assert log == ["c0", "c1", "c2", "c3"]


def test_those_of_brokers_come_first(loop: Loop) -> None:
    log, _ = queued(loop, ["c0", "c1", "b0", "b1"])
    for _ in range(2):
        loop.turn()
    assert log == ["b0", "b1", "c0", "c1"]


def test_the_oldest_gives_way_where_too_many_wait_for_their_peers(loop: Loop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handshakes, "_MOST_BEGUN", 3)
    _, ended = queued(loop, ["c0", "c1", "c2", "c3"])
    for _ in range(3):
        loop.turn()
    assert ended == {"c0": "TLS handshake failed: 3 others are under way, and it is the oldest"}
