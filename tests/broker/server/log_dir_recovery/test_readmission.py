"""Replicas of log directories that were offline, and what a person has given up of those that stay so."""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from ottla_broker.config import BrokerConfig
from ottla_broker.coordination import znodes
from ottla_broker.coordination.embedded import EmbeddedCoordination
from ottla_broker.metadata.cache import MetadataCache, TopicMetadata
from ottla_broker.metrics import Metrics
from ottla_broker.ports.coordination import ConnectionLoss
from ottla_broker.protocol.errors import ErrorCode
from ottla_broker.records.ids import TopicPartition
from ottla_broker.replication.local_replicas.inter_broker_context import InterBrokerContext
from ottla_broker.replication.local_replicas.replica_manager import ReplicaManager
from ottla_broker.replication.replica_states.commands import LeadershipCommand
from ottla_broker.server.log_dir_recovery import readmission
from ottla_broker.server.log_dir_recovery.readmission import FORGOTTEN, Readmission
from ottla_broker.server.store.dynamic_config import BROKERS, DynamicConfig
from ottla_broker.server.store.registration import make_path, make_persistent_paths
from ottla_broker.storage.log.log import Log
from tests.broker.replication.fleet import until
from tests.broker.server.log_dir_recovery.test_registry_znode import Disks
from tests.broker.storage.log_dirs.replicas import reopen
from tests.broker.storage.logs import batch, read_values, written

ME, OTHER = 1, 2


class Readmitting:
    """Broker 1 with its directories, replicas and coordination; the test stands in the controller's place."""

    def __init__(self, disks: Disks) -> None:
        self.disks = disks
        self.clock = disks.clock
        self.log_manager = disks.manager
        self.coordination: EmbeddedCoordination = disks.coordination
        self.reports = 0
        self.failures: list[BaseException] = []
        self.forgetting: list[asyncio.Task[Any]] = []
        self.clock.on_task_failure = lambda name, error: self.failures.append(error)
        logger = logging.LoggerAdapter(logging.getLogger("ottla.test"), {})
        config = self.config = BrokerConfig.from_mapping(
            {"broker.id": str(ME), "log.dirs": ",".join(disks.paths), "zookeeper.connect": "127.0.0.1:1"}
        )
        self.metadata = MetadataCache(ME)
        self.dynamic_config = DynamicConfig(
            config, ME, self.coordination, self.clock, lambda topic, changed: None, logger
        )
        self.replicas = ReplicaManager(
            broker_id=ME,
            config=config,
            clock=self.clock,
            log_manager=self.log_manager,
            metadata=self.metadata,
            metrics=Metrics(),
            inter_broker=InterBrokerContext(
                broker_epoch=lambda: 1,
                send_alter_partition=self._nobody,
                connect=self._nobody,
                listener="PLAINTEXT",
                report_directories=lambda: None,
            ),
        )
        self.readmission = Readmission(
            ME, self.coordination, self.clock, self.replicas, self.dynamic_config, self._report, logger
        )
        self._spawn, self.clock.spawn = self.clock.spawn, self._noting_spawn  # type: ignore[method-assign]
        self.log_manager.access._on_failure = lambda path, error: self.replicas.directory_failed()
        self.log_manager.reopening._on_reopened = self._on_return

    def _nobody(self, *_: Any) -> Any:
        raise ConnectionError("nobody is there")

    def _noting_spawn(self, work: Any, *, name: str) -> asyncio.Task[Any]:
        task = self._spawn(work, name=name)
        if name == "directories to be forgotten":
            self.forgetting.append(task)
        return task

    def _report(self) -> None:
        self.reports += 1

    def _on_return(self, path: str, logs: Mapping[TopicPartition, bool]) -> None:
        self.readmission.add(path, logs)
        self.readmission.forget()

    async def start(self) -> None:
        await make_persistent_paths(self.coordination)
        await self.dynamic_config.start()

    async def topic(self, name: str, leader: int, isr: tuple[int, ...], replicas: tuple[int, ...]) -> TopicPartition:
        """One partition, as the coordination store and the metadata have it."""
        topic_id = uuid.uuid5(uuid.NAMESPACE_DNS, name)
        assignment = znodes.TopicAssignment({0: replicas}, topic_id)
        await make_path(self.coordination, znodes.partition_path(name, 0))
        await self.coordination.set(znodes.topic_path(name), assignment.encode())
        state = znodes.PartitionStateZnode(leader, 0, 1, isr)
        await self.coordination.create(znodes.PartitionStateZnode.path(name, 0), state.encode())
        self.metadata.topics[name] = TopicMetadata(name, topic_id.bytes)
        return TopicPartition(name, 0)

    async def write(self, partition: TopicPartition, number: int, *values: bytes) -> Log:
        """A log on that directory, with synced records."""
        self.log_manager.prefer(partition, self.disks.paths[number])
        topic_id = uuid.uuid5(uuid.NAMESPACE_DNS, partition.topic).bytes
        log = await self.log_manager.get_or_create(partition, topic_id, True)
        for value in values:
            log.append_as_leader(batch(value), 0)
        await written(log)
        await log.flusher.flush()
        return log

    async def forget(self, *numbers: int) -> None:
        """`ottla disk forget`; returns when nothing is left to be done."""
        named = ",".join(self.disks.paths[number] for number in numbers)
        await self.dynamic_config.update(BROKERS, str(ME), lambda stored: {**stored, FORGOTTEN: named})
        self.readmission.forget()
        while self.forgetting:
            await self.forgetting.pop()

    def leads(self, partition: TopicPartition) -> bool:
        found = self.replicas.partition(*partition)
        return found is not None and found.is_leader


@pytest.fixture(params=[2])
async def broker(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[Readmitting]:
    """The parameter is the number of directories."""
    disks = Disks(tmp_path, request.param)
    await disks.store.open()
    await disks.coordination.start()
    await disks.start()
    made = Readmitting(disks)
    await made.start()
    yield made
    disks.stop()
    await disks.workers.wait_closed()
    await disks.coordination.close()
    await disks.store.close()
    assert not made.failures, made.failures


def lose_tail(log: Log) -> None:
    """What was not synced when the directory failed is gone."""
    path = Path(log.state.disk.path, log.state.directory, "00000000000000000000.log")
    path.write_bytes(path.read_bytes()[:-1])


async def test_a_log_that_lost_its_tail_still_lacks_it_after_its_directory_failed_once_more(
    broker: Readmitting,
) -> None:
    """A disk that is about to die comes and goes: what counts is the end that the log had when it was last in use."""
    partition = await broker.topic("t", ME, (ME, OTHER), (ME, OTHER))
    log = await broker.write(partition, 0, b"one", b"two")
    broker.disks.fail(0)
    lose_tail(log)
    for _ in range(2):
        await reopen(broker.disks, 0)
        found = broker.log_manager.get(partition)
        assert found is not None and [value for _, value in await read_values(found, 0)] == [b"one"]
        await broker.readmission._admit_some()
        assert not broker.leads(partition), "the other one in sync has a record that this one lacks"
        assert broker.replicas.is_offline(partition)
        broker.disks.fail(0)


async def test_a_reopened_directory_that_lost_power_does_not_delay_the_next_start(
    broker: Readmitting, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As soon as what it brought back is held against the partitions' states, and not before."""
    monkeypatch.setattr(readmission, "_ASK_AGAIN_S", 0.001)
    partition = await broker.topic("t", OTHER, (OTHER, ME), (ME, OTHER))
    await broker.write(partition, 0, b"one")
    broker.disks.fail(0)
    path = Path(broker.disks.paths[0])
    path.joinpath("ottla.boot-id").write_text("another boot")
    await reopen(broker.disks, 0)
    await broker.readmission._admit_some()
    assert path.joinpath("ottla.power-loss-suspected").exists(), "the other one in sync may have more"
    state = znodes.PartitionStateZnode(OTHER, 1, 1, (OTHER,))
    await broker.coordination.set(znodes.PartitionStateZnode.path(*partition), state.encode())
    await until(lambda: not path.joinpath("ottla.power-loss-suspected").exists(), "the doubt is over")
    assert not broker.log_manager.markers.is_power_loss_suspected


async def test_a_forgotten_partition_leads_although_the_coordination_store_failed_for_the_next_one(
    broker: Readmitting, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What has begun is not found among what is to be given up, when that is looked at once more."""
    monkeypatch.setattr(readmission, "_ASK_AGAIN_S", 0.001)
    first = await broker.topic("a", ME, (ME,), (ME,))
    second = await broker.topic("b", OTHER, (OTHER,), (OTHER,))
    await broker.write(first, 0, b"lost")
    broker.disks.fail(0)
    get = broker.coordination.get
    losses = 1

    def get_but_once(path: str, *arguments: Any) -> Any:
        nonlocal losses
        if path == znodes.topic_path(second.topic) and losses:
            losses -= 1
            raise ConnectionLoss(path)
        return get(path, *arguments)

    monkeypatch.setattr(broker.coordination, "get", get_but_once)
    await broker.forget(0)
    assert broker.log_manager.get(first) is not None and not losses
    await until(
        lambda: broker.leads(first) and bool(broker.reports), "the partition leads, and the controller hears so"
    )


@pytest.mark.parametrize("broker", [3], indirect=True)
async def test_a_partition_of_an_unknown_directory_starts_empty_when_all_offline_ones_are_forgotten(
    broker: Readmitting,
) -> None:
    """Nobody knows which of those that are offline since the start held what."""
    partition = await broker.topic("t", ME, (ME,), (ME,))
    await broker.write(partition, 1, b"lost")
    await broker.disks.restart_with(0)
    again = Readmitting(broker.disks)
    again.metadata.topics.update(broker.metadata.topics)
    await again.dynamic_config.start()
    await again.forget(2)
    assert again.log_manager.get(partition) is None, "the other one may have it"
    await again.forget(1, 2)
    assert again.log_manager.get(partition) is not None
    await until(lambda: again.leads(partition), "the partition leads")


async def test_a_forgotten_partition_starts_empty_as_soon_as_a_directory_takes_it(
    broker: Readmitting, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """To name the directory once more would change nothing, and so be no news."""
    monkeypatch.setattr(readmission, "_TRY_AGAIN_S", 0.001)
    partition = await broker.topic("t", ME, (ME,), (ME,))
    await broker.write(partition, 0, b"lost")
    broker.disks.fail(0)
    broker.log_manager.cordoned = broker.disks.paths
    forgetting = asyncio.ensure_future(broker.forget(0))
    await until(lambda: f"{partition} cannot be created again" in caplog.text, "a refusal")
    broker.log_manager.cordoned = ()
    await forgetting
    await until(lambda: broker.leads(partition), "the partition leads")


async def test_a_log_that_lost_its_tail_does_not_lead_while_the_registry_is_saved(
    broker: Readmitting, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A new controller sends everybody what they led before; the write may wait for another directory."""
    partition = await broker.topic("t", ME, (ME, OTHER), (ME, OTHER))
    log = await broker.write(partition, 0, b"one", b"two")
    elsewhere = await broker.topic("u", OTHER, (OTHER,), (ME, OTHER))
    await broker.write(elsewhere, 0, b"old")
    broker.disks.fail(0)
    lose_tail(log)
    await broker.log_manager.recreate(elsewhere, bytes(16), broker.disks.paths[1], is_catching_up=True)
    command = LeadershipCommand(
        partition, log.state.topic_id or bytes(16), ME, 0, 0, 1, (ME, OTHER), (ME, OTHER), False
    )
    answers: list[Any] = []
    save = broker.log_manager.registry.save

    async def ask_and_save() -> None:
        answers.append(await broker.replicas.apply_leadership(1, [command]))
        await save()

    monkeypatch.setattr(broker.log_manager.registry, "save", ask_and_save)
    await reopen(broker.disks, 0)
    assert broker.log_manager.states.is_live(broker.disks.paths[0])
    assert answers == [{partition: ErrorCode.KAFKA_STORAGE_ERROR}]
