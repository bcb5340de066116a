"""What the classes share that change the replicas of this broker: `command_execution` and `alter_log_dirs`."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from ottla_broker.ports import Clock
from ottla_broker.replication.fetchers import Fetchers
from ottla_broker.replication.local_replicas.hosted_partitions import HostedPartitions
from ottla_broker.replication.local_replicas.replica_map import LocalReplicas
from ottla_broker.replication.partition import Logger
from ottla_broker.storage.log_dirs.log_manager import LogManager


@dataclass(frozen=True, slots=True)
class LocalReplicaParts:
    """The parts of one broker that its replicas use.

    Args:
        replicas: the state of every replica on this broker.
        partitions: those that the controller has assigned to this broker.
        commands: the lock within which commands of the controller, swaps and changes of log directories run one after
            the other.
    """

    clock: Clock
    log_manager: LogManager
    replicas: LocalReplicas
    partitions: HostedPartitions
    fetchers: Fetchers
    commands: asyncio.Lock
    logger: Logger
