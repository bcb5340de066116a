"""The supervisor of `ottla local up --processes`, with processes that are no brokers."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from ottla.local import supervisor as module
from ottla.local.layout import BrokerPlace, Layout
from ottla.local.supervisor import Supervisor
from ottla_documents.documents import load_documents

_CLUSTER = """
apiVersion: kafka.ottla.dev/v1alpha1
kind: KafkaCluster
metadata: {name: orders}
spec: {brokers: {replicas: 1}}
"""


class Restarts:
    """A supervisor of one broker, whose processes sleep, and which are ready as soon as they run."""

    def __init__(self, data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.layout = Layout(data, load_documents([("", _CLUSTER)]).clusters[0])
        self.layout.assign_ports()
        self.place: BrokerPlace = next(iter(self.layout.places()))
        self.supervisor = Supervisor(self.layout, "127.0.0.1:1")
        self.started: asyncio.Queue[asyncio.subprocess.Process] = asyncio.Queue()
        start_process = asyncio.create_subprocess_exec

        async def start_sleeper(*_: str, **options: Any) -> asyncio.subprocess.Process:
            process = await start_process(sys.executable, "-c", "import time; time.sleep(600)", **options)
            self.started.put_nowait(process)
            return process

        async def is_ready(_port: int) -> bool:
            return True

        monkeypatch.setattr(module.asyncio, "create_subprocess_exec", start_sleeper)
        monkeypatch.setattr(module, "_is_ready", is_ready)
        monkeypatch.setattr(module, "_RESTART_PAUSE_S", 0.01)

    async def next_process(self) -> asyncio.subprocess.Process:
        async with asyncio.timeout(20):
            return await self.started.get()


@pytest.fixture
async def restarts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Restarts]:
    restarts = Restarts(tmp_path, monkeypatch)
    await restarts.supervisor.start()
    yield restarts
    await restarts.supervisor.stop()


async def test_a_broker_with_a_dead_disk_is_started_again(restarts: Restarts) -> None:
    first = await restarts.next_process()
    directory = next(iter(restarts.layout.log_directories(restarts.place.id).values()))
    directory.rmdir()
    directory.symlink_to("/proc/nothing/can/be/made/here")
    first.kill()
    await restarts.next_process()


async def test_a_broker_that_could_not_be_started_is_tried_again(
    restarts: Restarts, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    first = await restarts.next_process()
    write_properties, full = module.write_properties, [True]

    def write_when_there_is_room(path: Path, config: dict[str, str]) -> None:
        if full and full.pop():
            raise OSError(28, "No space left on device")
        write_properties(path, config)

    monkeypatch.setattr(module, "write_properties", write_when_there_is_room)
    first.kill()
    await restarts.next_process()
    assert "cannot start broker 0: [Errno 28] No space left on device" in caplog.text


async def test_a_broker_whose_log_was_deleted_is_started_again(restarts: Restarts) -> None:
    first = await restarts.next_process()
    (restarts.layout.broker_directory(restarts.place.id) / "broker.log").unlink()
    first.kill()
    await restarts.next_process()


class SlowZooKeeper:
    """Its start has got to where the process is made, and goes on when `stop` has been called once."""

    connect = "127.0.0.1:1"

    def __init__(self) -> None:
        self.begun, self.may_go_on, self.ended = threading.Event(), threading.Event(), threading.Event()
        self.pid = 0

    def start(self) -> None:
        self.begun.set()
        self.may_go_on.wait(20)
        self.pid = 4711
        self.ended.set()

    def stop(self) -> None:
        self.pid = 0
        self.may_go_on.set()


async def test_a_zookeeper_that_is_being_started_while_the_fleet_stops_is_stopped_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    zookeeper = SlowZooKeeper()
    monkeypatch.setattr("ottla.local.zookeeper_server.ZooKeeperServer", lambda _directory: zookeeper)
    supervisor = Supervisor(Layout(tmp_path, load_documents([("", _CLUSTER)]).clusters[0]), "")
    starting = asyncio.ensure_future(supervisor.start())
    assert await asyncio.to_thread(zookeeper.begun.wait, 20)
    starting.cancel()
    await asyncio.gather(starting, return_exceptions=True)
    await supervisor.stop()
    assert await asyncio.to_thread(zookeeper.ended.wait, 20)
    assert zookeeper.pid == 0
