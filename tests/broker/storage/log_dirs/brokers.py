"""The storage of one broker over several log directories, for the tests of this package."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from ottla_broker.adapters.disk import DirectoryDisk
from ottla_broker.adapters.workers import ProcessWorkers
from ottla_broker.config import TopicValues
from ottla_broker.jobs import JOBS
from ottla_broker.records.ids import TopicPartition
from ottla_broker.storage.log.config import LogConfig
from ottla_broker.storage.log_dirs.directory_callbacks import DirectoryCallbacks
from ottla_broker.storage.log_dirs.log_manager import LogManager
from ottla_broker.storage.log_dirs.settings import LogManagerSettings
from tests.broker.storage.logs import ManualClock, until

TOPIC_ID = bytes(range(16))


T0 = TopicPartition("t", 0)


class BrokerStorage:
    """The storage of one broker over `count` directories."""

    def __init__(self, root: Path, count: int, config: Mapping[str, Any], settings: LogManagerSettings) -> None:
        self.paths = [str(root / f"d{number}") for number in range(count)]
        self.config = LogConfig(TopicValues(config))
        self.settings = settings
        self.failures: list[tuple[str, int | None]] = []
        self.notices: list[str] = []
        self.create_manager()

    def create_manager(self) -> None:
        self.clock = ManualClock()
        self.disks = {path: DirectoryDisk(path) for path in self.paths}
        self.workers = ProcessWorkers(JOBS)
        self.manager = LogManager(
            self.disks,
            self.clock,
            self.workers,
            self.settings,
            lambda topic: self.config,
            DirectoryCallbacks(
                lambda path, error: self.failures.append((path, error.errno)), notice=self.notices.append
            ),
        )

    async def start(self, broker_id: int = 1, cluster_id: str = "cluster-A") -> LogManager:
        await self.manager.inspect()
        await self.manager.claim(broker_id, cluster_id)
        await self.manager.load()
        return self.manager

    def stop(self) -> None:
        """Like kill -9."""
        self.clock.cancel_all()
        for disk in self.manager.access.disks:
            disk.close()
        self.workers.close()

    async def restart(self, **who: Any) -> LogManager:
        disks = self.manager.access.disks
        self.stop()
        await until(lambda: all(disk.has_ended for disk in disks))  # a failed one releases its lock on its own thread
        self.create_manager()
        return await self.start(**who)


MakeStorage = Callable[..., BrokerStorage]


async def no_room(name: str, *, create: bool = False) -> Any:
    raise OSError(errno.ENOSPC, "No space left on device", name)


def refuse_other_names(monkeypatch: pytest.MonkeyPatch, *suffixes: str) -> Callable[[], None]:
    """There is no room for directory names with these suffixes until the returned function is called."""
    rename = os.rename

    def refuse(old: str, new: str) -> None:
        if new.endswith(suffixes):
            raise OSError(errno.ENOSPC, "No space left on device", new)
        rename(old, new)

    monkeypatch.setattr(os, "rename", refuse)
    return lambda: monkeypatch.setattr(os, "rename", rename)
