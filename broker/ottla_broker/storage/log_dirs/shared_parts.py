"""What several parts of the log manager share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ottla_broker.ports.clock import Clock
from ottla_broker.storage.log_dirs.directory_access import DirectoryAccess
from ottla_broker.storage.log_dirs.log_table import LogTable
from ottla_broker.storage.log_dirs.registry_files import ReplicaRegistryFiles
from ottla_broker.storage.log_dirs.states import DirectoryStates


@dataclass(frozen=True, slots=True)
class SharedParts:
    """`notice` writes a line to the broker's log."""

    access: DirectoryAccess
    states: DirectoryStates
    table: LogTable
    registry: ReplicaRegistryFiles
    clock: Clock
    notice: Callable[[str], None]
