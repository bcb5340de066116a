"""AlterPartition: asks the controller to commit ISR changes (KIP-497), in batches, one request at a time.

Lives here: batching, retries, passing responses to their partitions. Not here: how the controller is reached (`send`),
what a response means (`isr.after_alter_partition`). Source: kafka.server.AlterPartitionManager.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

from ottla_broker.ports import Clock
from ottla_broker.protocol.codec import ZERO_UUID
from ottla_broker.protocol.errors import ErrorCode
from ottla_broker.protocol.generated.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    BrokerState,
    PartitionData,
    TopicData,
)
from ottla_broker.replication.isr import AlterPartitionOutcome, InSyncState
from ottla_broker.replication.partition import Logger, Partition

RETRY_DELAY_S = 0.05
LOGGED_CHANGES = 100
"""More changes in a request are logged as one line; a line each is for the level DEBUG."""
_CHANGES_PER_REQUEST = 1000
"""The controller decides a request in one piece."""
_CHANGES_PER_TURN = 200
"""After so many answers the loop does other work: a broker that is back joins the ISR of every partition at once."""

_LAST_BY_NAME = 1
"""The last version that names topics; the ones after it have ids (KIP-516)."""
_FIRST_WITH_EPOCHS = 3
"""The first version that has the broker epochs of the ISR's members (KIP-903)."""

SendAlterPartition = Callable[[int, AlterPartitionRequest], Awaitable[AlterPartitionResponse]]
"""Sends AlterPartition of this version to the active controller; raises OSError when it cannot be reached."""


_Asked: TypeAlias = tuple[Partition, InSyncState, int]
"""A partition, the change it asks for, and the leader epoch under which it does."""


class AlterPartitionQueue:
    """The ISR changes of one broker that the controller has not confirmed.

    `version` is the one of inter.broker.protocol.version. A request that names a topic without an id (made before 2.8)
    goes out in the last version that can.
    """

    def __init__(
        self,
        clock: Clock,
        broker_id: int,
        broker_epoch: Callable[[], int],
        send: SendAlterPartition,
        version: int,
        logger: Logger,
    ) -> None:
        self._clock = clock
        self._broker_id = broker_id
        self._broker_epoch = broker_epoch
        self._send = send
        self._version = version
        self._logger = logger
        self._waiting: dict[Partition, InSyncState] = {}
        self._unlogged: dict[Partition, InSyncState] = {}
        """Of those, what no request has asked for yet."""
        self._is_running = False
        self._refusal = ""
        self._is_reverted = False
        """A change of the last batch was refused: the next fetch of that follower asks for it once more."""

    def submit(self, partition: Partition) -> None:
        """Asks for `partition.in_sync.proposed`; a newer change of the same partition replaces it."""
        self._waiting[partition] = self._unlogged[partition] = partition.in_sync
        if not self._is_running:
            self._is_running = True
            self._clock.spawn(self._run(), name="alter partition")

    async def _run(self) -> None:
        try:
            while self._waiting:
                batch = self._take_batch()
                self._is_reverted = False
                self._log_new_changes()
                again = await self._ask(batch) if batch else []
                for partition, state, _ in again:
                    # A partition whose leadership changed meanwhile may have submitted another change.
                    if partition.in_sync is state:
                        self._waiting[partition] = state
                if again or self._is_reverted:
                    await self._clock.sleep(RETRY_DELAY_S)
        finally:
            self._is_running = False

    def _take_batch(self) -> list[_Asked]:
        some = list(self._waiting)[:_CHANGES_PER_REQUEST]
        states = [(partition, self._waiting.pop(partition)) for partition in some]
        return [
            (partition, state, partition.leader_epoch)
            for partition, state in states
            if partition.is_leader and partition.in_sync is state
        ]

    def _log_new_changes(self) -> None:
        changes, self._unlogged = self._unlogged, {}
        level = self._level(len(changes))
        if self._logger.isEnabledFor(level):
            for partition, state in changes.items():
                self._logger.log(level, "ISR of %s: asking for %s", partition.topic_partition, list(state.proposed))
        if level != logging.INFO:
            self._logger.info("asking for new ISRs of %d partitions", len(changes))

    def _level(self, changes: int) -> int:
        return logging.INFO if changes <= LOGGED_CHANGES else logging.DEBUG

    async def _ask(self, batch: list[_Asked]) -> list[_Asked]:
        """Sends one request and applies its response. Returns what is to be sent again."""
        try:
            version = self._version_for(batch)
            response = await self._send(version, self._request(batch, version))
        except OSError as error:
            self._log_refusal(f"the controller does not answer: {error}")
            return batch
        except Exception as error:
            self._log_refusal(f"it failed: {error!r}", error)
            return batch
        if response.error_code:
            self._log_refusal(f"it is refused with {ErrorCode.of(response.error_code).name}")
            return batch
        is_by_name = version <= _LAST_BY_NAME
        answers = {
            (topic.topic_name if is_by_name else topic.topic_id, data.partition_index): data
            for topic in response.topics
            for data in topic.partitions
        }
        again = []
        unforeseen: Exception | None = None
        level = self._level(len(batch))
        for number, asked in enumerate(batch):
            if number and not number % _CHANGES_PER_TURN:
                await self._clock.sleep(0)
            partition = asked[0]
            data = answers.get((partition.topic if is_by_name else partition.topic_id, partition.index))
            if data is None:
                again.append(asked)
                continue
            try:
                answer = self._apply_response(asked, data, level)
            except Exception as error:
                # Of one partition: the changes of the others must not stay in flight without a retry.
                unforeseen = error
                answer = AlterPartitionOutcome.RETRY
            self._is_reverted |= answer is AlterPartitionOutcome.REVERT
            if answer is AlterPartitionOutcome.RETRY:
                again.append(asked)
        if level != logging.INFO:
            self._logger.info("new ISRs of %d partitions are answered", len(batch) - len(again))
        if unforeseen is None:
            self._refusal = ""
        else:
            self._log_refusal(f"an answer cannot be used: {unforeseen!r}", unforeseen)
        return again

    def _apply_response(self, asked: _Asked, data: Any, level: int) -> AlterPartitionOutcome:
        partition, state, leader_epoch = asked
        code = ErrorCode.of(data.error_code)
        answer = partition.on_alter_partition_response(
            state, leader_epoch, code, data.leader_epoch, data.partition_epoch, tuple(data.isr)
        )
        if self._logger.isEnabledFor(level):
            self._logger.log(
                level,
                "ISR of %s: %s -> %s answered %s (%s), now %s",
                partition.topic_partition,
                list(state.committed),
                list(state.proposed),
                code.name,
                answer.value,
                list(partition.in_sync.committed),
            )
        return answer

    def _log_refusal(self, refusal: str, unforeseen: Exception | None = None) -> None:
        """Logs why the changes wait, once: every retry has the same result until something changes."""
        if refusal != self._refusal:
            self._refusal = refusal
            level = logging.INFO if unforeseen is None else logging.ERROR
            text = "AlterPartition is tried again until it is answered: %s"
            self._logger.log(level, text, refusal, exc_info=unforeseen)

    def _version_for(self, batch: list[_Asked]) -> int:
        if self._version > _LAST_BY_NAME and any(partition.topic_id == ZERO_UUID for partition, _, _ in batch):
            return _LAST_BY_NAME
        return self._version

    def _request(self, batch: list[_Asked], version: int) -> AlterPartitionRequest:
        topics: dict[str, Any] = {}
        for partition, state, leader_epoch in batch:
            topic = topics.get(partition.topic)
            if topic is None:
                topic = topics[partition.topic] = TopicData(topic_name=partition.topic, topic_id=partition.topic_id)
            data = PartitionData(
                partition_index=partition.index,
                leader_epoch=leader_epoch,
                partition_epoch=partition.partition_epoch,
            )
            if version < _FIRST_WITH_EPOCHS:
                data.new_isr = list(state.proposed)
            else:
                data.new_isr_with_epochs = [
                    # KIP-903: the incarnation that had caught up when this was proposed, not a later one.
                    BrokerState(
                        broker_id=replica,
                        broker_epoch=self._broker_epoch() if replica == self._broker_id else epoch,
                    )
                    for replica, epoch in zip(state.proposed, state.epochs, strict=True)
                ]
            topic.partitions.append(data)
        return AlterPartitionRequest(
            broker_id=self._broker_id, broker_epoch=self._broker_epoch(), topics=list(topics.values())
        )
