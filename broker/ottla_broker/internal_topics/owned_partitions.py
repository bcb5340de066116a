"""The partitions of an internal topic that this broker leads: a coordinator's state, loaded from their logs.

A partition is *loading* from its election until its log has been replayed, then it is served until the resignation.
Both are fenced by the leader epoch: an election or resignation of an older epoch than the last known one is ignored.
The epoch of a partition that is deleted is forgotten; the replica manager reports none that is older. Ports used:
Clock.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator
from contextlib import aclosing
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from ottla_broker.internal_topics.partition_loads import PartitionLoads
from ottla_broker.internal_topics.partitioning import NO_PARTITION, partition_for
from ottla_broker.internal_topics.topic_log import InternalTopicLog, LoadedBatch
from ottla_broker.ports.clock import Clock
from ottla_broker.protocol.errors import ErrorCode, KafkaError

LOAD_RETRY_S = 1.0
"""Pause before a partition whose log could not be read is tried again."""
BATCHES_PER_TURN = 50
"""Loading lets the loop do other work after so many batches."""

State = TypeVar("State")


class BatchReplay(Protocol):
    """Takes the batches of a log in their order."""

    def add(self, batch: LoadedBatch) -> None: ...


Replayed = TypeVar("Replayed", bound=BatchReplay)


@dataclass(slots=True, eq=False)
class OwnedPartition(Generic[State]):
    """A partition that this broker leads, from one load to the next unload."""

    index: int
    leader_epoch: int
    first_epoch: int
    """That of the election that loaded it."""
    load_number: int
    """Differs between the loads of a broker. A partition may be loaded again in the same leader epoch (its log
    directory was offline) or in a lower one (the topic was created again)."""
    state: State
    is_loading: bool = True
    load: asyncio.Task[None] | None = None


@dataclass(frozen=True, slots=True)
class PartitionContent(Generic[State, Replayed]):
    """What a coordinator keeps of a partition.

    `empty`: the state before a load. `replay`: takes the batches of the log. `before_serving`: awaited when the log has
    been read; KafkaError tries the load again. `restore`: fills the state. `serve`: the partition is loaded; `release`:
    it is not owned any more. `count`: how many entries a state has, for the log of the broker. `observe_load`: takes
    the seconds of a load.
    """

    empty: Callable[[], State]
    replay: Callable[[], Replayed]
    before_serving: Callable[[OwnedPartition[State]], Awaitable[None]] | None
    restore: Callable[[OwnedPartition[State], Replayed], None]
    serve: Callable[[OwnedPartition[State]], None]
    release: Callable[[OwnedPartition[State]], None]
    count: Callable[[State], int]
    observe_load: Callable[[float], None]


class OwnedPartitions(Generic[State, Replayed]):
    """Made once per coordinator.

    Args:
        topic: the internal topic.
        entry_name: of what a partition holds, in the singular ("group").
        partition_count: how many partitions the topic has, 0 while it does not exist (then `configured_count` counts),
            None while it is not known (then every name is loading).
    """

    def __init__(
        self,
        clock: Clock,
        log: InternalTopicLog,
        logger: logging.Logger,
        topic: str,
        entry_name: str,
        partition_count: Callable[[], int | None],
        configured_count: int,
        content: PartitionContent[State, Replayed],
    ) -> None:
        self._clock = clock
        self._log = log
        self._logger = logger
        self._topic = topic
        self._partition_count = partition_count
        self._configured_count = configured_count
        self._content = content
        self._loads = PartitionLoads(clock, logger, topic, entry_name)
        self._load_count = 0
        self._epochs: dict[int, int] = {}
        self._owned: dict[int, OwnedPartition[State]] = {}

    def __iter__(self) -> Iterator[OwnedPartition[State]]:
        """The partitions that are owned now: a loop may await in between."""
        return iter(list(self._owned.values()))

    @property
    def is_any_loading(self) -> bool:
        return any(owned.is_loading for owned in self._owned.values())

    def owns(self, index: int) -> bool:
        """Whether the content of this partition is here, or on its way from the log."""
        return index in self._owned

    def get(self, index: int) -> OwnedPartition[State] | None:
        return self._owned.get(index)

    def is_current(self, owned: OwnedPartition[State]) -> bool:
        """Whether the partition is still owned, without having been unloaded in between."""
        return self._owned.get(owned.index) is owned

    def index_of(self, name: str) -> int:
        """The partition of a group id or a transactional id; NO_PARTITION while it is not known how many there are."""
        count = self._partition_count()
        if count == 0 and not self._owned:
            count = self._configured_count
        return partition_for(name, count)

    def of(self, name: str) -> OwnedPartition[State] | None:
        """The partition of a name, if it is owned."""
        return self._owned.get(self.index_of(name))

    def find(self, name: str) -> tuple[ErrorCode, OwnedPartition[State] | None]:
        """The partition of a name: NOT_COORDINATOR and none, COORDINATOR_LOAD_IN_PROGRESS while it is loading or it is
        not known which one it is."""
        index = self.index_of(name)
        owned = self._owned.get(index)
        if owned is None:
            is_unknown = index == NO_PARTITION
            return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if is_unknown else ErrorCode.NOT_COORDINATOR, None
        return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if owned.is_loading else ErrorCode.NONE, owned

    # Leadership

    def on_election(self, partition: int, leader_epoch: int) -> None:
        """This broker leads the partition from now on: its log is loaded."""
        if leader_epoch < self._epochs.get(partition, -1):
            self._logger.debug("not loading %s-%d: epoch %d is old", self._topic, partition, leader_epoch)
            return
        self._epochs[partition] = leader_epoch
        owned = self._owned.get(partition)
        if owned is not None:
            # Elected again without having followed in between: what is in memory, or on its way there, is the log.
            owned.leader_epoch = leader_epoch
            return
        self._load_count += 1
        owned = OwnedPartition(partition, leader_epoch, leader_epoch, self._load_count, self._content.empty())
        self._owned[partition] = owned
        self._loads.load_begins(partition)
        owned.load = self._clock.spawn(self._load(owned), name=f"load {self._topic}-{partition}")

    def on_resignation(self, partition: int, leader_epoch: int | None) -> None:
        """Another broker leads the partition, or it is gone (`leader_epoch` None)."""
        if leader_epoch is None:
            self._epochs.pop(partition, None)  # one that is created again begins with the first epoch
        elif leader_epoch < self._epochs.get(partition, -1):
            return
        else:
            self._epochs[partition] = leader_epoch
        self._unload(partition)

    def close(self) -> None:
        """Unloads all partitions."""
        for partition in list(self._owned):
            self._unload(partition)

    def log_unloads(self) -> None:
        """Logs the unloads that are not logged yet: a coordinator that is closed calls it last."""
        self._loads.log_unloads()

    # Loading

    async def _load(self, owned: OwnedPartition[State]) -> None:
        started = self._clock.monotonic()
        content = self._content
        while True:
            try:
                replay = await self._replay(owned)
                if content.before_serving is not None:
                    await content.before_serving(owned)
                break
            except Exception as error:
                # To serve without what the log has would send consumers back to the start of their topics, and give
                # producers epochs that are used.
                self._report(owned, error)
            await self._clock.sleep(LOAD_RETRY_S)
        content.restore(owned, replay)
        owned.is_loading = False
        owned.load = None
        content.observe_load(self._clock.monotonic() - started)
        self._loads.loaded(owned.index, content.count(owned.state))
        content.serve(owned)

    def _report(self, owned: OwnedPartition[State], error: Exception) -> None:
        if isinstance(error, KafkaError) and error.code is ErrorCode.NOT_LEADER_OR_FOLLOWER:
            return  # it was elected once more meanwhile, or a resignation is about to cancel this
        unforeseen = None if isinstance(error, OSError | KafkaError) else error
        text = "%s-%d could not be loaded: %s; trying again"
        self._logger.error(text, self._topic, owned.index, error, exc_info=unforeseen)

    async def _replay(self, owned: OwnedPartition[State]) -> Replayed:
        replay = self._content.replay()
        count = 0
        async with aclosing(self._log.read(owned.index, owned.leader_epoch)) as batches:
            async for batch in batches:
                replay.add(batch)
                count += 1
                if count % BATCHES_PER_TURN == 0:
                    await self._clock.sleep(0)
        return replay

    def _unload(self, partition: int) -> None:
        owned = self._owned.pop(partition, None)
        if owned is None:
            return
        if owned.load is not None:
            owned.load.cancel()
        self._content.release(owned)
        self._loads.unloaded(partition, self._content.count(owned.state))
