"""A replica that moves between the log directories of a broker, for the tests of this package."""

from __future__ import annotations

import asyncio
from pathlib import Path

from ottla_broker.storage.log.log import Log
from ottla_broker.storage.log_dirs.future_replicas import FutureReplica
from ottla_broker.storage.log_dirs.log_manager import LogManager
from tests.broker.storage.log_dirs.brokers import T0, TOPIC_ID, BrokerStorage
from tests.broker.storage.logs import batch, written

SMALL_SEGMENTS = {"segment.bytes": 500, "index.interval.bytes": 100, "file.delete.delay.ms": 0}


async def log_with_records(manager: LogManager, count: int = 20) -> Log:
    log = await manager.get_or_create(T0, TOPIC_ID, True)
    await append(log, 0, count)
    return log


async def append(log: Log, first: int, count: int, epoch: int = 0) -> None:
    for number in range(first, first + count):
        log.append_as_leader(batch(b"%d" % number), epoch)
    await written(log)


def values(first: int, end: int) -> list[tuple[int, bytes | None]]:
    return [(number, b"%d" % number) for number in range(first, end)]


async def create_future_replica(broker: BrokerStorage, log: Log) -> FutureReplica:
    (other,) = [path for path in broker.paths if path != log.state.disk.path]
    replica = await broker.manager.future_replicas.create(log, broker.disks[other])
    assert replica is not None
    return replica


async def run_until_swapped(broker: BrokerStorage, replica: FutureReplica) -> Log:
    """Copies and swaps; returns once the replaced directory is renamed."""
    new_log: asyncio.Future[Log] = asyncio.get_running_loop().create_future()

    async def swap(one: FutureReplica) -> bool:
        return await broker.manager.future_replicas.swap(one, new_log.set_result)

    broker.manager.future_replicas.run(replica, swap)
    log = await asyncio.wait_for(new_log, 60)
    await broker.manager.future_replicas.cancel(T0)  # returns once the replaced log is renamed
    return log


def directories(path: str | Path) -> list[str]:
    return sorted(entry.name for entry in Path(path).iterdir() if entry.is_dir())
