"""Replicas of failed log directories that are recreated, while the controller says something else."""

from __future__ import annotations

import logging
import uuid
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from ottla_broker.coordination import znodes
from ottla_broker.metadata.cache import PartitionMetadata
from ottla_broker.protocol.errors import ErrorCode
from ottla_broker.records.ids import TopicPartition
from ottla_broker.replication.replica_states.commands import LeadershipCommand, StopCommand
from ottla_broker.replication.replica_states.replica_events import LeaderAndIsrAnswered
from ottla_broker.server.log_dir_recovery.recreation import RecreationTask
from ottla_broker.storage.log.log import Log
from tests.broker.server.log_dir_recovery.test_readmission import ME, OTHER, Readmitting
from tests.broker.server.log_dir_recovery.test_registry_znode import Disks


class Away(Readmitting):
    """Directory 1 is offline since the start, so nobody knows whether it holds a replica."""

    def __init__(self, disks: Disks) -> None:
        super().__init__(disks)
        logger = logging.LoggerAdapter(logging.getLogger("ottla.test"), {})
        self.recreation = RecreationTask(ME, self.coordination, self.clock, self.replicas, self._report, logger)

    async def tell(self, partition: TopicPartition, isr: Sequence[int] = (OTHER,)) -> ErrorCode:
        """LeaderAndIsr, led by the other one."""
        topic_id = uuid.uuid5(uuid.NAMESPACE_DNS, partition.topic).bytes
        command = LeadershipCommand(partition, topic_id, OTHER, 0, 0, 1, tuple(isr), (ME, OTHER), False)
        answer = await self.replicas.apply_leadership(1, [command])
        assert isinstance(answer, dict)
        return answer[partition]

    def say(self, partition: TopicPartition, offline: Sequence[int] = (ME,)) -> None:
        """UpdateMetadata: the controller has taken the answer in."""
        known = PartitionMetadata(OTHER, 0, (OTHER,), (ME, OTHER), tuple(offline))
        self.metadata.topics[partition.topic].partitions[partition.partition] = known

    async def delete(self, partition: TopicPartition) -> None:
        answer = await self.replicas.stop_replicas(1, [StopCommand(partition, -2, True)])
        assert answer == {partition: ErrorCode.NONE}


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[Away]:
    disks = Disks(tmp_path, 2)
    await disks.store.open()
    await disks.coordination.start()
    await disks.start()
    await disks.restart_with(0)
    made = Away(disks)
    made.log_manager.states[disks.paths[0]].free_bytes = 1 << 40  # nobody watches the directories here
    await made.start()
    yield made
    disks.stop()
    await disks.workers.wait_closed()
    await disks.coordination.close()
    await disks.store.close()
    assert not made.failures, made.failures


async def test_a_replica_that_the_controller_takes_for_offline_is_recreated(broker: Away) -> None:
    partition = await broker.topic("t", OTHER, (OTHER,), (ME, OTHER))
    assert await broker.tell(partition) is ErrorCode.KAFKA_STORAGE_ERROR
    broker.say(partition)
    await broker.recreation._pass()
    assert broker.replicas.partition(*partition) is not None and broker.reports


async def test_no_replica_is_recreated_before_the_controller_takes_it_for_offline(broker: Away) -> None:
    """What the leader had asked for would put an empty replica into the ISR, and nobody could lead (fleet 86284)."""
    partition = await broker.topic("t", OTHER, (OTHER,), (ME, OTHER))
    broker.say(partition)  # of a failure before this one
    await broker.recreation._pass()
    assert broker.replicas.partition(*partition) is None
    assert await broker.tell(partition) is ErrorCode.KAFKA_STORAGE_ERROR
    broker.say(partition, offline=())
    await broker.recreation._pass()
    assert broker.replicas.partition(*partition) is None
    assert "takes the replica for offline" in broker.replicas.recreation.waiting[partition]
    get = broker.coordination.get

    async def get_late(path: str, *arguments: Any) -> Any:
        found = await get(path, *arguments)
        if path == znodes.PartitionStateZnode.path(*partition):
            broker.say(partition)  # a leader's request may have been granted since this was read
        return found

    broker.coordination.get = get_late  # type: ignore[method-assign]
    await broker.recreation._pass()
    assert broker.replicas.partition(*partition) is None
    await broker.recreation._pass()
    assert broker.replicas.partition(*partition) is not None


@pytest.mark.parametrize("moment", ["before it is made", "while it is made"])
async def test_a_replica_that_is_deleted_while_it_is_recreated_does_not_follow(
    broker: Away, moment: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The nodes of its topic stand until the other broker has answered; then nothing would have ended it, and a later
    topic of that name had INCONSISTENT_TOPIC_ID here."""
    partition = await broker.topic("t", OTHER, (OTHER,), (ME, OTHER))
    assert await broker.tell(partition) is ErrorCode.KAFKA_STORAGE_ERROR
    broker.say(partition)
    get, make = broker.coordination.get, broker.log_manager.creation.create

    async def get_late(path: str, *arguments: Any) -> Any:
        found = await get(path, *arguments)
        if path == znodes.PartitionStateZnode.path(*partition) and broker.replicas.replicas.reported_offline:
            await broker.delete(partition)
        return found

    async def make_late(*arguments: Any, **named: Any) -> Log:
        await broker.delete(partition)
        return await make(*arguments, **named)

    if moment == "before it is made":
        monkeypatch.setattr(broker.coordination, "get", get_late)
    else:
        monkeypatch.setattr(broker.log_manager.creation, "create", make_late)
    await broker.recreation._pass()
    assert broker.replicas.partition(*partition) is None and broker.log_manager.get(partition) is None


async def test_a_lost_replica_that_catches_up_is_logged_once(broker: Away, caplog: pytest.LogCaptureFixture) -> None:
    partition = await broker.topic("t", OTHER, (OTHER,), (ME, OTHER))
    await broker.tell(partition)
    broker.say(partition)
    await broker.recreation._pass()
    # It is elected without having had everything, and nobody else is in sync.
    state = znodes.PartitionStateZnode(ME, 1, 1, (ME,))
    await broker.coordination.set(znodes.PartitionStateZnode.path(*partition), state.encode())
    broker.replicas.replicas.apply(partition, LeaderAndIsrAnswered(ErrorCode.KAFKA_STORAGE_ERROR, 1))
    for _ in range(3):
        await broker.recreation._pass()
    assert list(broker.replicas.recreation.lost) == [partition]
    assert caplog.text.count("is lost here") == 1
