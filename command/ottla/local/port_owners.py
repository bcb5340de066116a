"""Says who listens on a TCP port of this machine: a local fleet, or another program. Reads /proc; blocks shortly."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

_TABLES = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))
_LISTENING = "0A"
_DAEMON = "ottla.local.daemon"


@dataclass(frozen=True, slots=True)
class PortOwner:
    """Who listens on a port. `pid` 0: a process of another user. `fleet`: its name and data directory."""

    pid: int = 0
    program: str = ""
    fleet: str = ""
    data: Path | None = None

    def __str__(self) -> str:
        """
        >>> str(PortOwner(7, "nginx")), str(PortOwner()), str(PortOwner(7, "python3", "orders", Path("/d")))
        ('another program (nginx, process 7)', 'another program', 'the fleet orders in /d')
        """
        if self.fleet:
            return f"the fleet {self.fleet} in {self.data}"
        return f"another program ({self.program}, process {self.pid})" if self.pid else "another program"


def port_owner(port: int) -> PortOwner:
    """The process that listens on a port, as far as /proc tells this user."""
    sockets = {f"socket:[{inode}]" for inode in _inodes(port)}
    for pid in _processes() if sockets else ():
        with contextlib.suppress(OSError):  # it has ended, or is of another user
            if any(os.readlink(entry.path) in sockets for entry in os.scandir(f"/proc/{pid}/fd")):
                command = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
                data = _fleet_directory(command)
                fleet = "" if data is None else fleet_name(data)
                return PortOwner(pid, Path(command[0]).name, fleet, data if fleet else None)
    return PortOwner()


def in_use(ports: Sequence[int]) -> str:
    """Who uses these ports, in the order of the ports: "9092, 9093 are in use by the fleet orders in /d"."""
    owners: dict[str, list[int]] = {}
    for port in ports:
        owners.setdefault(str(port_owner(port)), []).append(port)
    return ", ".join(
        f"{', '.join(map(str, of_owner))} {'is' if len(of_owner) == 1 else 'are'} in use by {owner}"
        for owner, of_owner in owners.items()
    )


def fleet_name(data: Path) -> str:
    """The name of the fleet that a data directory has; "" when it has none that can be read."""
    try:
        return str(json.loads((data / "fleet.json").read_text())["cluster"])
    except (OSError, ValueError, KeyError, TypeError):
        return ""


def _inodes(port: int) -> Iterator[str]:
    for table in _TABLES:
        with contextlib.suppress(OSError):
            for line in table.read_text().splitlines()[1:]:
                fields = line.split()
                if fields[3] == _LISTENING and int(fields[1].rpartition(":")[2], 16) == port:
                    yield fields[9]


def _processes() -> list[int]:
    return [int(entry.name) for entry in os.scandir("/proc") if entry.name.isdecimal()]


def _fleet_directory(command: Sequence[str]) -> Path | None:
    """The data directory of the fleet whose process has this command line: all of it, or one of its brokers.

    >>> _fleet_directory(["python3", "-m", "ottla.local.daemon", "--data", "/d"])
    PosixPath('/d')
    >>> _fleet_directory(["python3", "-m", "x", "broker", "run", "/d/broker-1/server.properties"])
    PosixPath('/d')
    >>> _fleet_directory(["nginx"]) is None
    True
    """
    if _DAEMON in command and "--data" in command[:-1]:
        return Path(command[command.index("--data") + 1])
    if "run" in command[:-1]:
        properties = Path(command[command.index("run") + 1])
        if properties.name == "server.properties" and properties.parent.name.startswith("broker-"):
            return properties.parent.parent
    return None
