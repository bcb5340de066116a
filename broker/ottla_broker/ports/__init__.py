"""The five ports: everything the broker knows of the world outside its own values.

Here live only the interfaces and their value types. Production adapters stand in `ottla_broker.adapters`
(and `ottla_broker.coordination` for ZooKeeper and the embedded store), the simulated ones in `simulation`.
Broker code receives a `Ports` object and calls nothing else: no `time`, `random`, `socket`, `open`, thread or
uvloop-only function stands outside an adapter. asyncio itself (futures, tasks, events) is the scheduler on both
sides: production runs it on uvloop or the standard loop, the simulator on a loop whose time is virtual.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ottla_broker.ports.clock import Clock
from ottla_broker.ports.coordination import Coordination
from ottla_broker.ports.disk import Disk, LogDisk
from ottla_broker.ports.network import Network
from ottla_broker.ports.workers import Workers


@dataclass(frozen=True, slots=True)
class Ports:
    """The ports of one broker. `disks` maps each configured log directory path to its Disk, in `log.dirs` order."""

    clock: Clock
    network: Network
    disks: Mapping[str, LogDisk]
    coordination: Coordination
    workers: Workers
    open_files: int | None = None
    """How many files and sockets the broker may have open (its part of RLIMIT_NOFILE), None without a limit."""


__all__ = ["Clock", "Coordination", "Disk", "LogDisk", "Network", "Ports", "Workers"]
