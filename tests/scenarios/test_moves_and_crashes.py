"""kill -9 of a process whose replicas move between its log directories: no record is lost or duplicated."""

from __future__ import annotations

import itertools
import threading
from pathlib import Path

import pytest

from ottla.local.zookeeper_server import ZooKeeperServer
from ottla_broker.protocol import codec
from ottla_broker.protocol.api import ApiKey
from tests.integration.local_fleet import eventually
from tests.integration.processes import BrokerProcess
from tests.integration.wire import Wire
from tests.scenarios.load import PARTITIONS, TOPIC, Load, create, read_all

pytestmark = pytest.mark.java
CRASHES = 4
MOVES = 3
"""Between two crashes, at least."""


class Mover:
    """Moves every partition to and fro, as fast as the broker answers; a broker that is away is asked again."""

    def __init__(self, broker: BrokerProcess) -> None:
        self.asked = 0
        self._broker = broker
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join()

    def wait_for(self, more: int) -> None:
        """Returns when the broker has begun `more` further moves."""
        target = self.asked + more
        eventually(lambda: self.asked >= target, f"{more} moves more")

    def gather(self, directory: Path) -> None:
        """Moves every partition there, when it has stopped to move them to and fro."""
        with Wire(self._broker.address) as wire:
            for partition in range(PARTITIONS):
                # A broker that has just started does not know yet what it leads, and refuses.
                eventually(lambda partition=partition: self._move(wire, partition, directory), f"{partition} is taken")
        there = [directory / f"{TOPIC}-{partition}" for partition in range(PARTITIONS)]
        eventually(lambda: all(path.is_dir() for path in there), f"all is in {directory}")

    def _run(self) -> None:
        targets = itertools.cycle(itertools.product(range(PARTITIONS), self._broker.log_dirs))
        while not self._stopping.wait(0.02):
            try:
                with Wire(self._broker.address) as wire:
                    while not self._stopping.wait(0.03):
                        self._move(wire, *next(targets))
            except (OSError, AssertionError):
                continue

    def _move(self, wire: Wire, partition: int, path: Path) -> bool:
        """Whether the broker takes the order."""
        api = codec.module(ApiKey.ALTER_REPLICA_LOG_DIRS)
        topic = api.AlterReplicaLogDirTopic(name=TOPIC, partitions=[partition])
        request = api.AlterReplicaLogDirsRequest(dirs=[api.AlterReplicaLogDir(path=str(path), topics=[topic])])
        answer = wire.ask(ApiKey.ALTER_REPLICA_LOG_DIRS, 2, request)
        is_taken = answer.results[0].partitions[0].error_code == 0
        self.asked += is_taken
        return is_taken


def homes(broker: BrokerProcess) -> list[str]:
    """Every directory of the topic, with those that are on their way in or out."""
    return sorted(path.name for directory in broker.log_dirs for path in directory.glob(f"{TOPIC}-*"))


def test_a_broker_killed_in_the_middle_of_moves_loses_nothing(tmp_path: Path, zookeeper: ZooKeeperServer) -> None:
    settings = {"log.segment.bytes": "100000", "log.segment.delete.delay.ms": "100"}
    broker = BrokerProcess(tmp_path / "broker", 0, f"{zookeeper.connect}/{tmp_path.name}", settings, disks=2)
    try:
        broker.start()
        create(broker.address, TOPIC, PARTITIONS, 1)
        load = Load(broker.address)
        load.start()
        mover = Mover(broker)
        try:
            for _ in range(CRASHES):
                load.wait_for(1000)
                mover.wait_for(MOVES)
                broker.kill()
                broker.start()
            load.wait_for(1000)
            mover.wait_for(MOVES)
        finally:
            mover.stop()
            load.stop()
        assert load.failed == []
        assert read_all(broker.address, TOPIC, PARTITIONS) == load.acknowledged
        assert broker.stop() == 0
        broker.start()  # what was left half done goes on, and comes to an end
        each_once = [f"{TOPIC}-{partition}" for partition in range(PARTITIONS)]
        eventually(lambda: homes(broker) == each_once, "each is there once")
        for directory in broker.log_dirs:
            mover.gather(directory)
        assert "has moved to" in broker.log
        assert read_all(broker.address, TOPIC, PARTITIONS) == load.acknowledged
    finally:
        broker.close()
