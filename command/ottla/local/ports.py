"""Free TCP ports on the loopback interface, for programs that need a port before a server binds it.

The server binds the port only after it has started. To prevent a second choice meanwhile, the port is left in
TIME_WAIT, as after a connection that a server closed: for a minute the kernel does not assign it as an ephemeral port,
and a bind without SO_REUSEADDR fails. A server that binds it by number with SO_REUSEADDR (asyncio, Java, Go) succeeds.
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
"""FIRST-LAST: the range to choose from. Commands that run at the same time need separate ranges."""
_OUTGOING = Path("/proc/sys/net/ipv4/ip_local_port_range")
_FIRST_PORT = 20_000
_TRIES = 100
_LIMIT_S = 10.0


def free_port() -> int:
    """A free port, by the rules of `free_ports`."""
    return free_ports(1)[0]


def free_ports(count: int, taken: Collection[int] = ()) -> list[int]:
    """`count` different free ports, none of `taken`, and none that was returned within the last minute.

    They are below the ephemeral ports where possible: the kernel may assign an ephemeral port to another program before
    a slow program (a JVM) binds it, or while a broker restarts.
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
    """The ports that `free_ports` tries first; empty when there are none below the ephemeral ports."""
    first, dash, last = os.environ.get(RANGE_VARIABLE, "").partition("-")
    if dash and first.isdecimal() and last.isdecimal():
        return range(int(first), int(last) + 1)
    try:
        first_outgoing = int(_OUTGOING.read_text().split()[0])
    except (OSError, ValueError, IndexError):
        return range(0)
    return range(_FIRST_PORT, first_outgoing)


def _reserved(port: int) -> int:
    """Leaves the port (0: any) in TIME_WAIT and returns it. OSError when it is not free."""
    with socket.socket() as listening:
        listening.settimeout(_LIMIT_S)
        listening.bind((HOST, port))  # without SO_REUSEADDR: fails for a port in TIME_WAIT
        # The accepted connection inherits the option; a server can bind the port only if both have it.
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.listen(1)
        found = int(listening.getsockname()[1])
        with socket.create_connection((HOST, found), _LIMIT_S):
            listening.accept()[0].close()  # before the client: the end that closes first is in TIME_WAIT
        return found
