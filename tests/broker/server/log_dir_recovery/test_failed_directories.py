"""Log directories that fail, are repaired and mounted again, and the start of the broker that follows."""

from __future__ import annotations

import errno
import logging
import os
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.testing import RunningCluster, cluster
from ottla_broker.adapters.process import make_ports
from ottla_broker.config import BrokerConfig
from ottla_broker.coordination.embedded import EmbeddedCoordination, EmbeddedStore
from ottla_broker.protocol.api import ApiKey
from ottla_broker.records.ids import TopicPartition
from ottla_broker.server.broker import Broker
from ottla_broker.server.log_dir_recovery.failed_directories import ROOT, FailedDirectories
from ottla_broker.storage.log_dirs.states import DirectoryDecision, DirectoryState, DirectoryStates
from tests.broker.server.virtual_store import Sessions, in_virtual_time
from tests.broker.storage.logs import batch as stored_batch
from tests.broker.storage.logs import written
from tests.integration.wire import Wire, batch, create_topic, produce_request

T0 = TopicPartition("t", 0)


def _broker(store: EmbeddedStore, *directories: Path) -> Broker:
    values = {
        "broker.id": "1",
        "log.dirs": ",".join(map(str, directories)),
        "zookeeper.connect": "127.0.0.1:1",
        "listeners": "PLAINTEXT://127.0.0.1:0",
    }
    config = BrokerConfig.from_mapping(values)
    return Broker(config, make_ports(config, EmbeddedCoordination(store, session_timeout_ms=2000)))


def _broker_of(fleet: RunningCluster) -> Broker:
    assert fleet.fleet is not None
    return fleet.fleet.brokers[0]


async def _until_recorded(broker: Broker, count: int) -> None:
    """Returns when so many directories are recorded as failed."""
    while len(await broker._ports.coordination.children(ROOT)) != count:
        await broker._ports.clock.sleep(0.002)


@pytest.mark.parametrize("disks", [1, 2])
def test_a_log_ends_at_the_hole_that_the_failure_of_its_directory_left_before_a_restart(disks: int) -> None:
    """Recovery would take it for a gap of compaction: the kernel has not booted since, and the broker has forgotten."""
    with cluster(brokers=1, disks=disks) as fleet:
        create_topic(fleet.address(0), "t", segment_bytes="300")
        with Wire(fleet.address(0)) as wire:
            for number in range(12):
                wire.ask(ApiKey.PRODUCE, 9, produce_request("t", batch(b"%d" % number), acks=1))
        broker = _broker_of(fleet)
        log = broker.log_manager.get(T0)
        assert log is not None
        path = Path(log.state.disk.path)
        away = path.with_name("unmounted")

        async def fail() -> None:
            os.rename(path, away)
            broker.log_manager.directory_failed(log.state.disk, OSError(errno.EIO, "Input/output error"))
            await (broker.halted() if disks == 1 else _until_recorded(broker, 1))

        fleet.run(fail())
        fleet.kill(0)
        shutil.rmtree(path, ignore_errors=True)
        away.rename(path)
        segments = sorted((path / "t-0").glob("*.log"))
        assert len(segments) > 2
        os.truncate(segments[1], segments[1].stat().st_size - len(batch(b"0")))  # its end was not written back
        fleet.start(0)

        restarted = _broker_of(fleet)
        found = restarted.log_manager.get(T0)
        assert found is not None and found.state.log_end_offset == int(segments[2].stem) - 1
        fleet.run(_until_recorded(restarted, 0))  # the next start trusts what it finds


def test_a_failure_is_recorded_once_the_store_takes_it() -> None:
    async def scenario(sessions: Sessions) -> None:
        states = DirectoryStates(["/d0", "/d1"])
        logger = logging.LoggerAdapter(logging.getLogger("test"))
        log_manager: Any = SimpleNamespace(states=states, markers=SimpleNamespace(), directories=[])
        failed = FailedDirectories(sessions.broker, sessions.clock, log_manager, logger)
        await failed.recall()
        for status in states:
            status.directory_id = f"id-{status.path[1:]}"
            states.apply(status.path, DirectoryDecision(DirectoryState.OFFLINE, "Input/output error"), 0)
        sessions.store.expire(sessions.broker.session_id)
        await failed.record(states.offline)
        assert await sessions.controller.children(ROOT) == ["id-d0", "id-d1"]

    in_virtual_time(scenario)


async def test_a_directory_that_fails_while_the_broker_stops_is_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The flush of a stop is where a write that failed long ago is heard of."""
    store = EmbeddedStore(str(tmp_path / "coordination.db"))
    await store.open()
    broker = _broker(store, tmp_path / "d0")
    await broker.start()
    await broker.ready()
    log = await broker.log_manager.get_or_create(T0, bytes(range(16)), True)
    log.append_as_leader(stored_batch(b"v"), 0)
    await written(log)
    fdatasync = os.fdatasync

    def fail(descriptor: int) -> None:
        if os.readlink(f"/proc/self/fd/{descriptor}").endswith(".log"):
            raise OSError(errno.EIO, "Input/output error")
        fdatasync(descriptor)

    monkeypatch.setattr(os, "fdatasync", fail)
    await broker.stop()
    monkeypatch.setattr(os, "fdatasync", fdatasync)
    again = _broker(store, tmp_path / "d0")
    await again.log_manager.inspect()
    (directory,) = again.log_manager.directories
    assert directory.meta is not None
    coordination = EmbeddedCoordination(store)
    await coordination.start()
    assert list(await coordination.children(ROOT)) == [directory.meta.directory_id]
    await coordination.close()
    again.halt("the end of the test")
    await store.close()


async def test_the_record_of_a_directory_goes_when_it_is_reopened_and_its_replicas_are_compared(tmp_path: Path) -> None:
    store = EmbeddedStore(str(tmp_path / "coordination.db"))
    await store.open()
    broker = _broker(store, tmp_path / "d0", tmp_path / "d1")
    await broker.start()
    await broker.ready()
    log = await broker.log_manager.get_or_create(T0, bytes(range(16)), True)
    broker.log_manager.directory_failed(log.state.disk, OSError(errno.EIO, "Input/output error"))
    await _until_recorded(broker, 1)
    await _until_recorded(broker, 0)
    assert broker.log_manager.offline_paths == []
    await broker.stop()
    await store.close()
