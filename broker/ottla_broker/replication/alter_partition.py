"""AlterPartition: asks the controller to commit ISR changes (KIP-497), in batches, one request at a time.

Lives here: collecting, asking again, handing answers back. Not here: how the controller is reached (`send`, given by
the composition root), what an answer means (`isr.after_alter_partition`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

from ottla_broker.ports import Clock
from ottla_broker.protocol.errors import ErrorCode
from ottla_broker.protocol.generated.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    BrokerState,
    PartitionData,
    TopicData,
)
from ottla_broker.replication.isr import Answer, InSyncState
from ottla_broker.replication.partition import Logger, Partition

VERSION = 3
RETRY_DELAY_S = 0.05

SendAlterPartition = Callable[[AlterPartitionRequest], Awaitable[AlterPartitionResponse]]
"""Sends AlterPartition v3 to the active controller; raises OSError when it cannot be reached."""


_Asked: TypeAlias = tuple[Partition, InSyncState, int]
"""A partition, the change it asks for, and the leader epoch under which it does."""


class AlterPartitionQueue:
    """The ISR changes of one broker that the controller has not confirmed."""

    def __init__(
        self, clock: Clock, broker_id: int, broker_epoch: Callable[[], int], send: SendAlterPartition, logger: Logger
    ) -> None:
        self._clock = clock
        self._broker_id = broker_id
        self._broker_epoch = broker_epoch
        self._send = send
        self._logger = logger
        self._waiting: dict[Partition, InSyncState] = {}
        self._is_running = False

    def submit(self, partition: Partition) -> None:
        """Asks for `partition.in_sync.proposed`; a newer change of the same partition replaces it."""
        self._waiting[partition] = partition.in_sync
        if not self._is_running:
            self._is_running = True
            self._clock.spawn(self._run(), name="alter partition")

    async def _run(self) -> None:
        try:
            while self._waiting:
                batch = self._take_batch()
                again = await self._ask(batch) if batch else []
                for partition, state, _ in again:
                    # A partition whose leadership changed meanwhile may have submitted anew.
                    if partition.in_sync is state:
                        self._waiting[partition] = state
                if again:
                    await self._clock.sleep(RETRY_DELAY_S)
        finally:
            self._is_running = False

    def _take_batch(self) -> list[_Asked]:
        batch = [
            (partition, state, partition.leader_epoch)
            for partition, state in self._waiting.items()
            if partition.is_leader and partition.in_sync is state
        ]
        self._waiting.clear()
        return batch

    async def _ask(self, batch: list[_Asked]) -> list[_Asked]:
        """Sends one request and hands the answers out; gives what is to be asked again."""
        try:
            response = await self._send(self._request(batch))
        except OSError as error:
            self._logger.info("the controller does not answer AlterPartition, trying again: %s", error)
            return batch
        except Exception:
            self._logger.exception("AlterPartition failed, trying again")
            return batch
        if response.error_code:
            self._logger.info("AlterPartition refused with %s, trying again", ErrorCode.of(response.error_code).name)
            return batch
        answers = {
            (topic.topic_id, data.partition_index): data for topic in response.topics for data in topic.partitions
        }
        again = []
        for asked in batch:
            partition, state, leader_epoch = asked
            data = answers.get((partition.topic_id, partition.index))
            if data is None:
                again.append(asked)
                continue
            code = ErrorCode.of(data.error_code)
            answer = partition.on_isr_answer(
                state, leader_epoch, code, data.leader_epoch, data.partition_epoch, tuple(data.isr)
            )
            self._logger.info(
                "ISR of %s: %s -> %s answered %s (%s), now %s",
                partition.topic_partition,
                list(state.committed),
                list(state.proposed),
                code.name,
                answer.value,
                list(partition.in_sync.committed),
            )
            if answer is Answer.RETRY:
                again.append(asked)
        return again

    def _request(self, batch: list[_Asked]) -> AlterPartitionRequest:
        topics: dict[bytes, Any] = {}
        for partition, state, leader_epoch in batch:
            topic = topics.get(partition.topic_id)
            if topic is None:
                topic = topics[partition.topic_id] = TopicData(topic_name=partition.topic, topic_id=partition.topic_id)
            topic.partitions.append(
                PartitionData(
                    partition_index=partition.index,
                    leader_epoch=leader_epoch,
                    new_isr_with_epochs=[
                        # KIP-903: the life that had caught up when this was proposed, not one that came since.
                        BrokerState(
                            broker_id=replica,
                            broker_epoch=self._broker_epoch() if replica == self._broker_id else epoch,
                        )
                        for replica, epoch in zip(state.proposed, state.epochs, strict=True)
                    ],
                    partition_epoch=partition.partition_epoch,
                )
            )
        return AlterPartitionRequest(
            broker_id=self._broker_id, broker_epoch=self._broker_epoch(), topics=list(topics.values())
        )
