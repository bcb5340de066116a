"""Partition: one replica on this broker, as leader or as follower.

Lives here: leadership, the followers' fetch state, the in-sync set, the high watermark and the requests that wait for
it. Not here: the rules (`isr`, `divergence`), files (`storage.log`), the state of the replica
(`local_replicas.local_replica`), which commands a broker accepts (`local_replicas`).
Everything happens on the broker's loop and nothing here awaits.

The walk of a record with acks=all through three replicas:

    append            the leader's log assigns offset 7 and queues the write; the request waits for 8 in `acks_all`
    on_log_append     the write is done, log end offset 8; the followers' waiting fetches are woken
    on_follower_fetch a follower asks for 8: it has 7. When the last of the maximal ISR has asked, the high watermark
                      becomes 8, `acks_all` lets the request go, and the consumers' waiting fetches are woken
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

from ottla_broker.metadata.cache import NO_LEADER
from ottla_broker.protocol.errors import ErrorCode, KafkaError
from ottla_broker.records.control_records import EndTransactionMarker
from ottla_broker.records.ids import TopicPartition
from ottla_broker.replication import isr
from ottla_broker.replication.delayed import AckQueue
from ottla_broker.replication.deletion import DeletionQueue, low_watermark
from ottla_broker.replication.divergence import EpochEnd, leader_answer
from ottla_broker.replication.isr import AlterPartitionOutcome, Change, FollowerState, InSyncState
from ottla_broker.replication.local_replicas.local_replica import NO_EPOCH, LocalReplica
from ottla_broker.storage.log.append_checks import AppendInfo
from ottla_broker.storage.log.log import Log
from ottla_broker.storage.log.verification import TransactionalAppend

CONSUMER = -1
"""Replica id of a consumer's fetch."""
HIGH_WATERMARK = -1
"""The offset by which DeleteRecords means all records up to the high watermark."""

_NOT_LEADER = int(ErrorCode.NOT_LEADER_OR_FOLLOWER)
_STORAGE_ERROR = int(ErrorCode.KAFKA_STORAGE_ERROR)
_NOT_ENOUGH_AFTER_APPEND = int(ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)


Logger: TypeAlias = "logging.LoggerAdapter[Any]"
"""Names the broker in each line: several live in one process."""


class Waiter(Protocol):
    """A delayed fetch: it waits for something to happen to a partition."""

    is_woken: bool

    def on_progress(self) -> None: ...


@dataclass(frozen=True, slots=True)
class PartitionContext:
    """What a partition needs of its broker.

    Args:
        lag_max_ms: replica.lag.time.max.ms.
        now_ms: Clock.monotonic in milliseconds.
        live_brokers: the brokers of the metadata.
        wake: has delayed fetches check the partition in a later turn of the loop.
        propose_isr: sends `partition.in_sync.proposed` to the controller.
    """

    broker_id: int
    lag_max_ms: int
    now_ms: Callable[[], int]
    live_brokers: Callable[[], Collection[int]]
    wake: Callable[[Iterable[Waiter]], None]
    propose_isr: Callable[[Partition], None]


class Partition:
    """See the module. Offsets and epochs are -1 where there is none."""

    __slots__ = (
        "_context",
        "acks_all",
        "acks_leader",
        "adding",
        "bytes_in",
        "bytes_out",
        "controller_epoch",
        "deletions",
        "end_waiters",
        "followers",
        "in_sync",
        "index",
        "is_assigned",
        "is_leader",
        "is_named_in_sync",
        "leader_epoch",
        "leader_epoch_start_offset",
        "leader_id",
        "log",
        "messages_in",
        "on_follower_write",
        "partition_epoch",
        "removing",
        "replica",
        "replicas",
        "topic",
        "topic_id",
        "topic_partition",
        "watermark_waiters",
    )

    def __init__(self, context: PartitionContext, topic_partition: TopicPartition, log: Log, topic_id: bytes) -> None:
        self._context = context
        self.topic_partition = topic_partition
        self.topic = topic_partition.topic
        self.index = topic_partition.partition
        self.topic_id = topic_id
        self.log = log
        self.replica = LocalReplica()
        """The state of the replica; see `take_replica`."""
        self.is_assigned = True
        """False: this broker has no such partition any more, requests that refer to it must look for it again."""
        self.is_leader = False
        self.leader_id = NO_LEADER
        self.leader_epoch = NO_EPOCH
        self.leader_epoch_start_offset = -1
        self.partition_epoch = 0
        self.controller_epoch = 0
        self.replicas: tuple[int, ...] = ()
        self.adding: tuple[int, ...] = ()
        self.removing: tuple[int, ...] = ()
        """Of the replicas, those that a reassignment adds and removes."""
        self.is_named_in_sync = False
        """The controller's last command had this broker in the ISR; a follower does not learn of later changes."""
        self.in_sync = InSyncState(())
        self.followers: dict[int, FollowerState] = {}
        self.acks_leader = AckQueue()
        self.acks_all = AckQueue()
        self.deletions = DeletionQueue()
        self.watermark_waiters: dict[Waiter, None] = {}
        self.end_waiters: dict[Waiter, None] = {}
        self.on_follower_write: Callable[[], None] | None = None
        self.bytes_in: Callable[[int], None] = _ignore
        self.bytes_out: Callable[[int], None] = _ignore
        self.messages_in: Callable[[int], None] = _ignore
        log.on_append = self.on_log_append
        log.on_failure = self.on_log_failure

    def __repr__(self) -> str:
        role = "leader" if self.is_leader else f"follower of {self.leader_id}"
        return f"Partition({self.topic_partition}, {role}, epoch {self.leader_epoch})"

    @property
    def min_isr(self) -> int:
        """min.insync.replicas, at most the number of replicas."""
        return isr.effective_min_isr(self.log.state.config.min_insync_replicas, len(self.replicas))

    @property
    def is_under_replicated(self) -> bool:
        # Those that a reassignment is adding are not missed yet.
        return self.is_leader and len(self.in_sync.committed) < len(self.replicas) - len(self.adding)

    @property
    def is_being_reassigned(self) -> bool:
        return self.is_leader and bool(self.adding or self.removing)

    @property
    def is_under_min_isr(self) -> bool:
        return self.is_leader and len(self.in_sync.committed) < self.min_isr

    def take_replica(self, replica: LocalReplica) -> None:
        """The replica has another state. What requests look at becomes a plain attribute here."""
        self.replica = replica
        self.is_assigned = replica.is_assigned

    def take_log(self, log: Log) -> None:
        """The replica goes on in another log directory, with a log that has the same positions."""
        self.log = log
        log.on_append = self.on_log_append
        log.on_failure = self.on_log_failure

    # Leadership

    def become_leader(
        self,
        leader_epoch: int,
        partition_epoch: int,
        controller_epoch: int,
        replicas: tuple[int, ...],
        in_sync: tuple[int, ...],
    ) -> None:
        """Leads from `leader_epoch` on. The epoch stands in the log's epoch file already, starting at its end."""
        context = self._context
        # Of an epoch that was skipped another may have been the leader, and cut what a follower had acknowledged here.
        is_still_leader = self.is_leader and leader_epoch == self.leader_epoch + 1
        now = context.now_ms()
        self.is_leader = True
        self.leader_id = context.broker_id
        self.leader_epoch = leader_epoch
        self.partition_epoch = partition_epoch
        self.controller_epoch = controller_epoch
        self.replicas = replicas
        self.in_sync = InSyncState(in_sync)
        self.leader_epoch_start_offset = self.log.assigned_offset
        followers: dict[int, FollowerState] = {}
        for replica in replicas:
            if replica == context.broker_id:
                continue
            # In-sync followers get a whole replica.lag.time.max.ms to send their first fetch to the new leader.
            fresh = FollowerState(replica, last_caught_up_ms=now if replica in in_sync else isr.NEVER)
            known = self.followers.get(replica) if is_still_leader else None
            if known is not None:
                fresh.log_end_offset = known.log_end_offset
                fresh.log_start_offset = known.log_start_offset
                fresh.broker_epoch = known.broker_epoch
                fresh.last_fetch_leader_end_offset = self.log.log_end_offset
                fresh.last_fetch_ms = now if replica in in_sync else isr.NEVER
            followers[replica] = fresh
        self.followers = followers
        self.on_follower_write = None
        self.advance_high_watermark()
        self.wake_everybody()

    def become_follower(
        self,
        leader_id: int,
        leader_epoch: int,
        partition_epoch: int,
        controller_epoch: int,
        replicas: tuple[int, ...],
    ) -> None:
        """Follows `leader_id` (-1: nobody leads). What waited for this broker's leadership fails."""
        self.is_leader = False
        self.leader_id = leader_id
        self.leader_epoch = leader_epoch
        self.partition_epoch = partition_epoch
        self.controller_epoch = controller_epoch
        self.replicas = replicas
        self.in_sync = InSyncState(())
        self.followers = {}
        self.leader_epoch_start_offset = -1
        self.give_up_waiting(_NOT_LEADER)

    def resign(self) -> None:
        """Neither leads nor follows any more: the broker stops, or the controller says so. Who leads, if it is another
        broker, is still told to clients."""
        leader_id = NO_LEADER if self.is_leader else self.leader_id
        self.become_follower(leader_id, self.leader_epoch, self.partition_epoch, self.controller_epoch, self.replicas)

    def give_up_waiting(self, error_code: int) -> None:
        """Fails the produce and DeleteRecords requests that wait here and wakes the fetches."""
        self.acks_leader.fail(error_code)
        self.acks_all.fail(error_code)
        self.deletions.fail(error_code)
        self.wake_everybody()

    def wake_everybody(self) -> None:
        if self.end_waiters:
            self._context.wake(self.end_waiters)
        if self.watermark_waiters:
            self._context.wake(self.watermark_waiters)

    def check_epoch(self, current_leader_epoch: int) -> ErrorCode:
        """KIP-320: fences a client that knows an older or a newer leader than we do. -1 is not checked."""
        if current_leader_epoch == NO_EPOCH or current_leader_epoch == self.leader_epoch:
            return ErrorCode.NONE
        if current_leader_epoch < self.leader_epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        return ErrorCode.UNKNOWN_LEADER_EPOCH

    # Writing

    def append(
        self,
        records: memoryview,
        acks: int,
        is_prepared: bool = False,
        transaction: TransactionalAppend | None = None,
    ) -> AppendInfo:
        """Appends a client's batch as leader; offsets are assigned when it returns, the write follows.

        `transaction`: given when the request names a transactional id. Raises PreparationNeeded when the batch has to
        go through the `AppendQueues` first, unless it `is_prepared`, VerificationNeeded when its transaction has to be
        verified first, and KafkaError: NOT_LEADER_OR_FOLLOWER, NOT_ENOUGH_REPLICAS (acks=-1 and the ISR is below
        min.insync.replicas), or what the log refuses.
        """
        if not self.is_leader:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        # A full ISR is never too small, and that is the case of almost every append.
        if acks == -1 and len(self.in_sync.committed) < len(self.replicas) and self.is_under_min_isr:
            raise self._not_enough_replicas()
        info = self.log.append_as_leader(records, self.leader_epoch, is_prepared, transaction)
        self.bytes_in(len(records))
        self.messages_in(info.last_offset - info.first_offset + 1)
        return info

    def append_marker(self, marker: EndTransactionMarker, producer_id: int, producer_epoch: int) -> AppendInfo:
        """As `append` with acks=-1, the marker of a transaction coordinator."""
        if not self.is_leader:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        if self.is_under_min_isr:
            raise self._not_enough_replicas()
        return self.log.append_marker(marker, producer_id, producer_epoch, self.leader_epoch)

    def _not_enough_replicas(self) -> KafkaError:
        return KafkaError(
            ErrorCode.NOT_ENOUGH_REPLICAS,
            f"The size of the current ISR {list(self.in_sync.committed)} is insufficient to satisfy the "
            f"min.isr requirement of {self.min_isr} for partition {self.topic_partition}",
        )

    def on_log_append(self) -> None:
        """The log end offset has grown, or records that had found no room were removed again."""
        if not self.is_leader:
            if self.on_follower_write is not None:
                self.on_follower_write()
            return
        log = self.log.state
        if log.epochs.latest != self.leader_epoch:
            self._begin_epoch_again()
        acks_leader = self.acks_leader
        if acks_leader:
            acks_leader.advance(log.log_end_offset)
        if self.end_waiters:
            self._context.wake(self.end_waiters)
        self.advance_high_watermark()

    def _begin_epoch_again(self) -> None:
        """The start of this epoch was removed with records that had found no room: it starts where the log ends now. At
        an offset that no record has, no follower could join and no consumer would see the end."""
        log = self.log
        log.assign_epoch(self.leader_epoch, log.assigned_offset)
        self.leader_epoch_start_offset = min(self.leader_epoch_start_offset, log.assigned_offset)
        for follower in self.followers.values():
            # What it has beyond are the records that were removed here: other records will get those offsets.
            follower.log_end_offset = min(follower.log_end_offset, log.log_end_offset)

    def on_log_failure(self) -> None:
        """The log's directory has failed."""
        self.give_up_waiting(_STORAGE_ERROR)

    def advance_high_watermark(self) -> None:
        """As leader: moves the high watermark to where the rules allow, and lets go whoever waited for it."""
        log = self.log.state
        if not self.followers and len(self.in_sync.committed) == 1:
            offset = log.log_end_offset  # the only replica there is
        else:
            context = self._context
            offset = isr.high_watermark(
                log.high_watermark,
                log.log_end_offset,
                self.followers.values(),
                self.in_sync,
                self.min_isr,
                context.live_brokers(),
                context.now_ms(),
                context.lag_max_ms,
            ).offset
        if offset <= log.high_watermark or not log.maybe_advance_high_watermark(offset):
            return
        if self.acks_all:
            self.acks_all.advance(log.high_watermark, self.acknowledgement())
        if self.watermark_waiters:
            self._context.wake(self.watermark_waiters)

    def acknowledgement(self) -> int:
        """Error code of an acks=all request whose records the high watermark has passed."""
        return 0 if len(self.in_sync.maximal) >= self.min_isr else _NOT_ENOUGH_AFTER_APPEND

    # Deleting records

    @property
    def low_watermark(self) -> int:
        """The lowest log start offset of the live replicas, as this leader knows it (KIP-107)."""
        starts = ((follower.broker_id, follower.log_start_offset) for follower in self.followers.values())
        return low_watermark(self.log.local_low_watermark, starts, self._context.live_brokers())

    async def delete_records(self, offset: int) -> int:
        """Has the log begin at `offset` (-1: the high watermark), durably; gives the offset meant.

        The followers hear of it with their next fetch. Raises KafkaError: NOT_LEADER_OR_FOLLOWER, POLICY_VIOLATION
        (cleanup.policy without delete), OFFSET_OUT_OF_RANGE (negative, or beyond the high watermark),
        KAFKA_STORAGE_ERROR.
        """
        if not self.is_leader:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        log = self.log
        if not log.config.is_deleted:
            raise KafkaError(ErrorCode.POLICY_VIOLATION, f"the cleanup.policy of {self.topic} does not contain delete")
        wanted = log.high_watermark if offset == HIGH_WATERMARK else offset
        if wanted < 0:
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, f"offset {offset} of {self.topic_partition} is negative")
        leader_epoch = self.leader_epoch
        await log.advance_log_start_offset(wanted)
        self.wake_everybody()  # sessions tell the followers
        if not self.is_leader or self.leader_epoch != leader_epoch:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return wanted

    def check_deletions(self) -> None:
        """A follower's log start has moved, or a broker has come or gone."""
        if self.deletions:
            self.deletions.advance(self.low_watermark)

    # Followers of this leader

    def divergence(self, fetch_offset: int, last_fetched_epoch: int) -> EpochEnd | None:
        """What to tell a fetcher whose last record may not be ours; None when it is. UNDEFINED: we cannot tell."""
        return leader_answer(EpochEnd(*self.log.end_of_epoch(last_fetched_epoch)), fetch_offset, last_fetched_epoch)

    def on_follower_fetch(self, broker_id: int, fetch_offset: int, log_start_offset: int, broker_epoch: int) -> None:
        """A follower asks for `fetch_offset`, and so has everything below it."""
        follower = self.followers[broker_id]
        context = self._context
        log = self.log.state
        previous_end = follower.log_end_offset
        follower.on_fetch(fetch_offset, log_start_offset, context.now_ms(), log.log_end_offset, broker_epoch)
        if broker_id not in self.in_sync.maximal:
            decision = isr.may_join(
                follower, self.in_sync, log.high_watermark, self.leader_epoch_start_offset, context.live_brokers()
            )
            if decision.holds:
                self._propose(Change.EXPAND, (*self.in_sync.committed, broker_id))
        elif fetch_offset < log.high_watermark:
            self._take_out_short_ones()
        if fetch_offset != previous_end:
            self.advance_high_watermark()
        if self.deletions:
            self.check_deletions()

    def is_waiting_for(self, broker_id: int) -> bool:
        """As leader: whether what this follower has not fetched is committed for nobody."""
        follower = self.followers.get(broker_id)
        if follower is None:
            return False
        context = self._context
        return isr.is_waited_for(
            follower,
            self.in_sync,
            self.log.log_end_offset,
            context.live_brokers(),
            context.now_ms(),
            context.lag_max_ms,
        )

    def shrink_isr(self) -> None:
        """Takes followers out of the ISR that have not been caught up for replica.lag.time.max.ms."""
        if not self.is_leader:
            return
        if self.log.high_watermark < self.log.log_end_offset:
            # A follower that was about to join holds it back until its time is up, and need not fetch again.
            self.advance_high_watermark()
        if self.in_sync.is_in_flight:
            return
        context = self._context
        slow = isr.out_of_sync(
            self.followers.values(), self.in_sync, self.log.log_end_offset, context.now_ms(), context.lag_max_ms
        )
        if slow:
            self._propose(Change.SHRINK, tuple(replica for replica in self.in_sync.committed if replica not in slow))

    def _take_out_short_ones(self) -> None:
        """Followers that have less than they acknowledged leave the ISR at once, and not when they lag for too long."""
        short = isr.short_of_committed(self.followers.values(), self.in_sync, self.log.high_watermark)
        if short:
            self._propose(Change.SHRINK, tuple(replica for replica in self.in_sync.committed if replica not in short))

    def _propose(self, change: Change, proposed: tuple[int, ...]) -> None:
        followers = self.followers
        epochs = tuple(followers[replica].broker_epoch if replica in followers else -1 for replica in proposed)
        self.in_sync = InSyncState(self.in_sync.committed, change, proposed, epochs)
        self._context.propose_isr(self)

    def on_isr_answer(
        self,
        asked: InSyncState,
        asked_epoch: int,
        error: ErrorCode,
        leader_epoch: int,
        partition_epoch: int,
        in_sync: tuple[int, ...],
    ) -> AlterPartitionOutcome:
        """The controller's answer to `asked`, sent under leader epoch `asked_epoch`.

        Gives RETRY when the same change is to be sent again. An answer to a change that LeaderAndIsr has overtaken
        is dropped.
        """
        if self.in_sync is not asked or not self.is_leader or self.leader_epoch != asked_epoch:
            return AlterPartitionOutcome.AWAIT
        answer = isr.after_alter_partition(error)
        if answer is AlterPartitionOutcome.REVERT:
            self.in_sync = InSyncState(asked.committed)
            self.advance_high_watermark()
        elif answer is AlterPartitionOutcome.COMMITTED:
            if leader_epoch != self.leader_epoch or partition_epoch < self.partition_epoch:
                return AlterPartitionOutcome.AWAIT
            self.in_sync = InSyncState(in_sync)
            self.partition_epoch = partition_epoch
            self.advance_high_watermark()
            self.wake_everybody()  # whoever is in it no more has to be looked at with each of its fetches again
            self._take_out_short_ones()  # what was asked for may have been of a log that is shorter by now
        return answer


def _ignore(_: int) -> None:
    return
