"""The six ports: the interfaces to time, network, disks, the coordination store, worker processes and HTTP servers.

Only the interfaces and their value types live here. The production adapters are in `ottla_broker.adapters` (and
`ottla_broker.coordination` for ZooKeeper and the embedded store), the simulated ones in `simulation`. Broker code gets
a `Ports` value and reaches the outside only through it: it uses no `time`, `random`, `socket`, `open`, thread or
uvloop-only function. asyncio (futures, tasks, events) is the scheduler on both sides: production runs it on uvloop or
the standard loop, the simulator on a loop with virtual time.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ottla_broker.ports.clock import Clock
from ottla_broker.ports.coordination import Coordination
from ottla_broker.ports.disk import Disk, LogDisk
from ottla_broker.ports.http import Http, NoHttp
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
    """The number of files and sockets that the broker may have open (its part of RLIMIT_NOFILE); None: no limit."""
    memory_bytes: int | None = None
    """What the broker may use (its part of the limit of the process's cgroup, else of the machine); None: unknown."""
    http: Http = field(default_factory=NoHttp)


__all__ = ["Clock", "Coordination", "Disk", "Http", "LogDisk", "Network", "Ports", "Workers"]
