"""Free TCP ports of the loopback, for whom has to name a port before somebody binds it."""

from __future__ import annotations

import contextlib
import os
import random
import socket
from collections.abc import Collection
from pathlib import Path

HOST = "127.0.0.1"
RANGE_VARIABLE = "OTTLA_PORTS"
"""FIRST-LAST: where to look instead. Who starts several commands at once gives each a range of its own."""
_OUTGOING = Path("/proc/sys/net/ipv4/ip_local_port_range")
_FIRST_PORT = 20_000
_TRIES = 100


def free_port() -> int:
    """A port that nobody listens on now. See `free_ports`."""
    return free_ports(1)[0]


def free_ports(count: int, taken: Collection[int] = ()) -> list[int]:
    """So many different ports that nobody listens on now, none of `taken`.

    Below those that the system gives to outgoing connections and to who asks for any port, if there are such: one of
    these may well be somebody else's by the time that a slow program, a JVM say, binds it, or while a broker restarts.
    """
    found: list[int] = []
    ports = searched()
    for _ in range(_TRIES * count if ports else 0):
        if len(found) == count:
            return found
        port = random.choice(ports)
        if port not in taken and port not in found and _is_free(port):
            found.append(port)
    while len(found) < count:
        with contextlib.ExitStack() as held:  # until all are chosen, so that no port comes twice
            while len(found) < count:
                probe = held.enter_context(socket.socket())
                probe.bind((HOST, 0))
                port = int(probe.getsockname()[1])
                if port not in taken and port not in found:
                    found.append(port)
    return found


def searched() -> range:
    """The ports that `free_ports` looks at first; empty when the system has none to spare."""
    first, dash, last = os.environ.get(RANGE_VARIABLE, "").partition("-")
    if dash and first.isdecimal() and last.isdecimal():
        return range(int(first), int(last) + 1)
    try:
        first_outgoing = int(_OUTGOING.read_text().split()[0])
    except (OSError, ValueError, IndexError):
        return range(0)
    return range(_FIRST_PORT, first_outgoing)


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind((HOST, port))
        except (OSError, OverflowError):
            return False
    return True
