"""Free TCP ports of the loopback, for whom has to name a port before somebody binds it.

Between the choice and the bind lies the start of a program, and until then nobody holds the port. So that it is not
chosen twice meanwhile, it is left in TIME_WAIT, as after a connection that a server has closed: for a minute the system
gives it to nobody who asks for any port, and whoever looks whether it is free finds it taken. A server, which binds its
port by number and with SO_REUSEADDR (as asyncio, Java and Go do), gets it at once.
"""

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
_LIMIT_S = 10.0


def free_port() -> int:
    """A port that nobody listens on now. See `free_ports`."""
    return free_ports(1)[0]


def free_ports(count: int, taken: Collection[int] = ()) -> list[int]:
    """So many different ports that nobody listens on, none of `taken`, and none that was given within a minute.

    Below those that the system gives to outgoing connections and to who asks for any port, if there are such: one of
    these may well be somebody else's by the time that a slow program, a JVM say, binds it, or while a broker restarts.
    """
    found: list[int] = []
    ports = searched()
    for _ in range(_TRIES * count if ports else 0):
        if len(found) == count:
            return found
        port = random.choice(ports)
        if port not in taken:
            with contextlib.suppress(OSError, OverflowError):
                found.append(_reserved(port))
    while len(found) < count:
        port = _reserved(0)
        if port not in taken:
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


def _reserved(port: int) -> int:
    """The port, any for 0, left in TIME_WAIT. OSError when it is taken."""
    with socket.socket() as listening:
        listening.settimeout(_LIMIT_S)
        listening.bind((HOST, port))  # without SO_REUSEADDR: what was given within a minute is taken
        # The connection has it from the socket that it came to, and a server may bind beside one that has it.
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.listen(1)
        found = int(listening.getsockname()[1])
        with socket.create_connection((HOST, found), _LIMIT_S):
            listening.accept()[0].close()  # before the other end: the first to close keeps the port in TIME_WAIT
        return found
