"""Partition: one replica on this broker, as leader or as follower.

Lives here: leadership, the followers' fetch state, the ISR, the high watermark and the requests that wait for it.
Not here: the rules (`isr`, `divergence`), files (`storage.log`), the state of the replica
(`replica_states.local_replica`), which LeaderAndIsr and StopReplica requests a broker accepts (`local_replicas`).
Everything runs on the broker's event loop. Only `delete_records` awaits.

Example: a record with acks=all and three replicas.

    append            the leader's log assigns offset 7 and queues the write; the request waits for 8 in `acks_all`
    on_log_append     the write is complete, the log end offset is 8; delayed fetches of followers wake up
    on_follower_fetch a follower fetches from 8, so it has 7. When every member of the maximal ISR has done so, the
                      high watermark becomes 8, `acks_all` completes the request, delayed fetches of consumers wake up

Source: kafka.cluster.Partition.
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
from ottla_broker.replication.isr import AlterPartitionOutcome, Change, FollowerState, InSyncState, LedState
from ottla_broker.replication.refused_batches import RefusedBatches
from ottla_broker.replication.replica_states.local_replica import NO_EPOCH, LocalReplica
from ottla_broker.storage.log.append_checks import AppendInfo
from ottla_broker.storage.log.log import Log
from ottla_broker.storage.log.verification import TransactionalAppend

CONSUMER = -1
"""Replica id of a consumer's fetch."""
HIGH_WATERMARK = -1
"""The offset in a DeleteRecords request that stands for the high watermark (KIP-107)."""

_NOT_LEADER = int(ErrorCode.NOT_LEADER_OR_FOLLOWER)
_STORAGE_ERROR = int(ErrorCode.KAFKA_STORAGE_ERROR)
_NOT_ENOUGH_AFTER_APPEND = int(ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)


Logger: TypeAlias = "logging.LoggerAdapter[Any]"
"""Adds the broker id to each line: one process can run several brokers."""


class Waiter(Protocol):
    """A delayed fetch. `on_progress` checks whether it can complete."""

    is_woken: bool

    def on_progress(self) -> None: ...


@dataclass(frozen=True, slots=True)
class PartitionContext:
    """What a partition needs from its broker.

    Args:
        lag_max_ms: replica.lag.time.max.ms.
        now_ms: gives Clock.monotonic in milliseconds.
        live_brokers: gives the ids of the brokers in the metadata cache.
        wake: schedules a check of delayed fetches for a later iteration of the event loop.
        propose_isr: sends `partition.in_sync.proposed` to the controller (AlterPartition).
        refused_batches: of this broker.
    """

    broker_id: int
    lag_max_ms: int
    now_ms: Callable[[], int]
    live_brokers: Callable[[], Collection[int]]
    wake: Callable[[Iterable[Waiter]], None]
    propose_isr: Callable[[Partition], None]
    refused_batches: RefusedBatches


class Partition:
    """One replica on this broker. Offsets and epochs are -1 where there is none."""

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
        "is_in_last_known_isr",
        "is_leader",
        "leader_epoch",
        "leader_epoch_start_offset",
        "leader_id",
        "led",
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
        """The state of the replica; see `set_replica`."""
        self.is_assigned = True
        """False: this broker no longer has the partition. A request that refers to it looks it up again."""
        self.is_leader = False
        self.leader_id = NO_LEADER
        self.leader_epoch = NO_EPOCH
        self.leader_epoch_start_offset = -1
        self.partition_epoch = 0
        self.controller_epoch = 0
        self.replicas: tuple[int, ...] = ()
        self.adding: tuple[int, ...] = ()
        self.removing: tuple[int, ...] = ()
        """The replicas that a reassignment adds and removes (KIP-455)."""
        self.is_in_last_known_isr = False
        """Whether this broker is in the ISR of the last LeaderAndIsr; a follower does not receive later changes."""
        self.in_sync = InSyncState(())
        self.led: LedState | None = None
        """How it led last, while it does not lead."""
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
        self.set_log(log)

    def __repr__(self) -> str:
        role = "leader" if self.is_leader else f"follower of {self.leader_id}"
        return f"Partition({self.topic_partition}, {role}, epoch {self.leader_epoch})"

    @property
    def min_isr(self) -> int:
        """min.insync.replicas, capped at the number of replicas."""
        return isr.effective_min_isr(self.log.state.config.min_insync_replicas, len(self.replicas))

    @property
    def is_under_replicated(self) -> bool:
        # Replicas that a reassignment adds do not count yet.
        return self.is_leader and len(self.in_sync.committed) < len(self.replicas) - len(self.adding)

    @property
    def is_being_reassigned(self) -> bool:
        return self.is_leader and bool(self.adding or self.removing)

    @property
    def is_under_min_isr(self) -> bool:
        return self.is_leader and len(self.in_sync.committed) < self.min_isr

    def set_replica(self, replica: LocalReplica) -> None:
        """Sets the state of the replica. `is_assigned` becomes a plain attribute, because every request reads it."""
        self.replica = replica
        self.is_assigned = replica.is_assigned

    def set_log(self, log: Log) -> None:
        """Replaces the log with its future log in another log directory, which has the same positions (KIP-113)."""
        self.log = log
        log.state.call(self.on_log_append, self.on_log_failure, self._check_gap)

    # Leadership

    def become_leader(
        self,
        leader_epoch: int,
        partition_epoch: int,
        controller_epoch: int,
        replicas: tuple[int, ...],
        in_sync: tuple[int, ...],
    ) -> None:
        """Makes this replica the leader for `leader_epoch`, which the log's leader epoch cache already contains.

        Where it has led in this epoch before, an ISR change that the controller has not confirmed is asked for again.

        Args:
            leader_epoch: starts at the log end offset.
            partition_epoch: version of the partition state in the controller.
            controller_epoch: epoch of the controller that sent the LeaderAndIsr request.
            replicas: broker ids of the assignment.
            in_sync: broker ids of the committed ISR.

        Source: kafka.cluster.Partition.makeLeader.
        """
        context = self._context
        # In a skipped epoch another broker may have been the leader. Its followers may have truncated records that they
        # acknowledged to this broker, so their fetch state is only kept from the epoch directly before.
        is_still_leader = self.is_leader and leader_epoch == self.leader_epoch + 1
        now = context.now_ms()
        self.is_leader = True
        self.leader_id = context.broker_id
        self.leader_epoch = leader_epoch
        self.partition_epoch, self.in_sync = isr.resumed_state(self.led, leader_epoch, partition_epoch, in_sync)
        self.led = None
        in_sync = self.in_sync.committed
        self.controller_epoch = controller_epoch
        self.replicas = replicas
        self.leader_epoch_start_offset = self.log.state.assigned_offset
        followers: dict[int, FollowerState] = {}
        for replica in replicas:
            if replica == context.broker_id:
                continue
            # In-sync followers have replica.lag.time.max.ms to send their first fetch to the new leader.
            fresh = FollowerState(replica, last_caught_up_ms=now if replica in in_sync else isr.NEVER)
            known = self.followers.get(replica) if is_still_leader else None
            if known is not None:
                fresh.log_end_offset = known.log_end_offset
                fresh.log_start_offset = known.log_start_offset
                fresh.broker_epoch = known.broker_epoch
                fresh.last_fetch_leader_end_offset = self.log.state.log_end_offset
                fresh.last_fetch_ms = now if replica in in_sync else isr.NEVER
            followers[replica] = fresh
        self.followers = followers
        self.on_follower_write = None
        if self.in_sync.is_in_flight:
            context.propose_isr(self)
        self.advance_high_watermark()
        self.wake_delayed_fetches()

    def become_follower(
        self,
        leader_id: int,
        leader_epoch: int,
        partition_epoch: int,
        controller_epoch: int,
        replicas: tuple[int, ...],
    ) -> None:
        """Makes this replica a follower of `leader_id` (-1: no leader), and fails the delayed requests.

        Source: kafka.cluster.Partition.makeFollower.
        """
        self.led = self.last_led()
        self.is_leader = False
        self.leader_id = leader_id
        self.leader_epoch = leader_epoch
        self.partition_epoch = partition_epoch
        self.controller_epoch = controller_epoch
        self.replicas = replicas
        self.in_sync = InSyncState(())
        self.followers = {}
        self.leader_epoch_start_offset = -1
        self.fail_delayed_requests(_NOT_LEADER)

    def last_led(self) -> LedState | None:
        """How this replica leads now, or led last."""
        return LedState(self.leader_epoch, self.partition_epoch, self.in_sync) if self.is_leader else self.led

    def resign(self) -> None:
        """Stops leading and following: the broker shuts down, or a StopReplica request says so. `leader_id` keeps the
        leader if it is another broker."""
        leader_id = NO_LEADER if self.is_leader else self.leader_id
        self.become_follower(leader_id, self.leader_epoch, self.partition_epoch, self.controller_epoch, self.replicas)

    def fail_delayed_requests(self, error_code: int) -> None:
        """Fails the delayed Produce and DeleteRecords requests and wakes the delayed fetches."""
        self.acks_leader.fail(error_code)
        self.acks_all.fail(error_code)
        self.deletions.fail(error_code)
        self.wake_delayed_fetches()

    def wake_delayed_fetches(self) -> None:
        if self.end_waiters:
            self._context.wake(self.end_waiters)
        if self.watermark_waiters:
            self._context.wake(self.watermark_waiters)

    def check_epoch(self, current_leader_epoch: int) -> ErrorCode:
        """Compares the leader epoch of a request with the partition's; -1 is not checked (KIP-320).

        Returns: NONE, FENCED_LEADER_EPOCH (the client's epoch is older) or UNKNOWN_LEADER_EPOCH (newer).
        """
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
        """Appends a client's batches as leader. Offsets are assigned on return; the write completes later.

        Args:
            records: the batches of one partition of a Produce request.
            acks: 0, 1 or -1.
            is_prepared: the batches have been through the `AppendQueues`.
            transaction: given when the request has a transactional id.

        Raises:
            PreparationNeeded: the batches have to go through the `AppendQueues` first.
            VerificationNeeded: the transaction has to be verified first.
            KafkaError: NOT_LEADER_OR_FOLLOWER; NOT_ENOUGH_REPLICAS (acks=-1 and the ISR is smaller than
                min.insync.replicas); the errors of `Log.append_as_leader`.
        """
        if not self.is_leader:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        # Cheap check first: a full ISR is never too small.
        if acks == -1 and len(self.in_sync.committed) < len(self.replicas) and self.is_under_min_isr:
            raise self._not_enough_replicas()
        info = self.log.append_as_leader(records, self.leader_epoch, is_prepared, transaction)
        self.bytes_in(len(records))
        self.messages_in(info.last_offset - info.first_offset + 1)
        return info

    def append_marker(
        self, marker: EndTransactionMarker, producer_id: int, producer_epoch: int, transaction_version: int = 0
    ) -> AppendInfo:
        """Appends a transaction marker, with the checks of `append` for acks=-1 (WriteTxnMarkers, KIP-98)."""
        if not self.is_leader:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        if self.is_under_min_isr:
            raise self._not_enough_replicas()
        return self.log.appender.append_marker(
            marker, producer_id, producer_epoch, self.leader_epoch, transaction_version
        )

    def on_refusal(self, error: ErrorCode, records: memoryview) -> None:
        """A client's batch was not appended: later ones of its producer may have to wait until it comes again."""
        self._context.refused_batches.on_refusal(
            error, self.topic_partition, self.topic_id, records, self.log.state.producers
        )

    def _check_gap(self, producer_id: int, producer_epoch: int, sequence: int, expected: int | None) -> None:
        """Before a client's batch that leaves a gap, or whose producer the log does not know."""
        self._context.refused_batches.check(
            self.topic_partition, self.topic_id, producer_id, producer_epoch, sequence, expected
        )

    def _not_enough_replicas(self) -> KafkaError:
        return KafkaError(
            ErrorCode.NOT_ENOUGH_REPLICAS,
            f"The size of the current ISR {list(self.in_sync.committed)} is insufficient to satisfy the "
            f"min.isr requirement of {self.min_isr} for partition {self.topic_partition}",
        )

    def on_log_append(self) -> None:
        """The log end offset has advanced, or the log removed records after a write failed with ENOSPC."""
        if not self.is_leader:
            if self.on_follower_write is not None:
                self.on_follower_write()
            return
        log = self.log.state
        if log.epochs.latest != self.leader_epoch:
            self._restart_epoch()
        acks_leader = self.acks_leader
        if acks_leader:
            acks_leader.advance(log.log_end_offset)
        if self.end_waiters:
            self._context.wake(self.end_waiters)
        self.advance_high_watermark()

    def _restart_epoch(self) -> None:
        """Starts the leader epoch again at the log end: the log removed its start offset after a write failed with
        ENOSPC. With the old start offset no follower could join the ISR and the high watermark could not reach it."""
        log = self.log
        log.assign_epoch(self.leader_epoch, log.state.assigned_offset)
        self.leader_epoch_start_offset = min(self.leader_epoch_start_offset, log.state.assigned_offset)
        for follower in self.followers.values():
            # The follower's records above belong to the removed ones; the leader will assign these offsets again.
            follower.log_end_offset = min(follower.log_end_offset, log.state.log_end_offset)

    def on_log_failure(self) -> None:
        """The log directory is offline, or the log has lost its unwritten records: their producers send them again."""
        if self.is_leader:
            lost = self.log.state.producers.lost_from(self.log.state.log_end_offset)
            for producer_id, producer_epoch, sequence, is_all in lost:
                self._context.refused_batches.add(
                    self.topic_partition,
                    self.topic_id,
                    producer_id,
                    producer_epoch,
                    sequence,
                    ErrorCode.KAFKA_STORAGE_ERROR,
                    None if is_all else sequence,
                )
        self.fail_delayed_requests(_STORAGE_ERROR)

    def advance_high_watermark(self) -> None:
        """As leader: advances the high watermark and completes the requests that wait for it.

        Source: kafka.cluster.Partition.maybeIncrementLeaderHW.
        """
        log = self.log.state
        if not self.followers and len(self.in_sync.committed) == 1:
            offset = log.log_end_offset  # a single replica
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
        """The error code for an acks=all request whose records are below the high watermark."""
        return 0 if len(self.in_sync.maximal) >= self.min_isr else _NOT_ENOUGH_AFTER_APPEND

    # Deleting records

    @property
    def low_watermark(self) -> int:
        """The lowest log start offset of the live replicas, from the followers' last fetches (KIP-107)."""
        starts = ((follower.broker_id, follower.log_start_offset) for follower in self.followers.values())
        return low_watermark(self.log.state.local_low_watermark, starts, self._context.live_brokers())

    async def delete_records(self, offset: int) -> int:
        """Advances the log start offset to `offset` (-1: the high watermark), durably. Followers receive it with their
        next fetch response.

        Returns: the new log start offset.

        Raises:
            KafkaError: NOT_LEADER_OR_FOLLOWER; POLICY_VIOLATION (cleanup.policy does not contain delete);
                OFFSET_OUT_OF_RANGE (negative, or above the high watermark); KAFKA_STORAGE_ERROR.

        Source: kafka.cluster.Partition.deleteRecordsOnLeader.
        """
        if not self.is_leader:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        log = self.log
        if not log.state.config.is_deleted:
            raise KafkaError(ErrorCode.POLICY_VIOLATION, f"the cleanup.policy of {self.topic} does not contain delete")
        wanted = log.state.high_watermark if offset == HIGH_WATERMARK else offset
        if wanted < 0:
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, f"offset {offset} of {self.topic_partition} is negative")
        leader_epoch = self.leader_epoch
        await log.retention.advance_log_start_offset(wanted)
        self.wake_delayed_fetches()  # their responses carry the new log start offset
        if not self.is_leader or self.leader_epoch != leader_epoch:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return wanted

    def check_deletions(self) -> None:
        """Completes DeleteRecords requests after a follower's log start offset or the live brokers changed."""
        if self.deletions:
            self.deletions.advance(self.low_watermark)

    # Followers of this leader

    def divergence(self, fetch_offset: int, last_fetched_epoch: int) -> EpochEnd | None:
        """The DivergingEpoch for a fetch (KIP-595). None: the logs agree. UNDEFINED: the leader cannot compare them."""
        return leader_answer(EpochEnd(*self.log.end_of_epoch(last_fetched_epoch)), fetch_offset, last_fetched_epoch)

    def on_follower_fetch(self, broker_id: int, fetch_offset: int, log_start_offset: int, broker_epoch: int) -> None:
        """Records a follower's fetch from `fetch_offset`, which acknowledges all records below.

        Args:
            log_start_offset: the follower's.
            broker_epoch: of the follower's incarnation, -1 unknown (KIP-903).

        Source: kafka.cluster.Partition.updateFollowerFetchState.
        """
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
            self._remove_truncated_followers()
        if fetch_offset != previous_end:
            self.advance_high_watermark()
        if self.deletions:
            self.check_deletions()

    def limits_high_watermark(self, broker_id: int) -> bool:
        """As leader: whether the high watermark waits for this follower."""
        follower = self.followers.get(broker_id)
        if follower is None:
            return False
        context = self._context
        return isr.limits_high_watermark(
            follower,
            self.in_sync,
            self.log.state.log_end_offset,
            context.live_brokers(),
            context.now_ms(),
            context.lag_max_ms,
        )

    def shrink_isr(self) -> None:
        """Removes followers from the ISR that have not been caught up for replica.lag.time.max.ms.

        Source: kafka.cluster.Partition.maybeShrinkIsr.
        """
        if not self.is_leader:
            return
        if self.log.state.high_watermark < self.log.state.log_end_offset:
            # A caught-up follower outside the ISR holds the high watermark back until replica.lag.time.max.ms is over.
            self.advance_high_watermark()
        if self.in_sync.is_in_flight:
            return
        context = self._context
        slow = isr.out_of_sync(
            self.followers.values(), self.in_sync, self.log.state.log_end_offset, context.now_ms(), context.lag_max_ms
        )
        if slow:
            self._propose(Change.SHRINK, tuple(replica for replica in self.in_sync.committed if replica not in slow))

    def _remove_truncated_followers(self) -> None:
        """Removes followers from the ISR that lost committed records, without waiting for replica.lag.time.max.ms."""
        truncated = isr.missing_committed_records(self.followers.values(), self.in_sync, self.log.state.high_watermark)
        if truncated:
            remaining = tuple(replica for replica in self.in_sync.committed if replica not in truncated)
            self._propose(Change.SHRINK, remaining)

    def _propose(self, change: Change, proposed: tuple[int, ...]) -> None:
        followers = self.followers
        epochs = tuple(followers[replica].broker_epoch if replica in followers else -1 for replica in proposed)
        self.in_sync = InSyncState(self.in_sync.committed, change, proposed, epochs)
        self._context.propose_isr(self)

    def on_alter_partition_response(
        self,
        proposal: InSyncState,
        proposal_leader_epoch: int,
        error: ErrorCode,
        leader_epoch: int,
        partition_epoch: int,
        in_sync: tuple[int, ...],
    ) -> AlterPartitionOutcome:
        """Applies the controller's response to an AlterPartition request. A response is ignored when a LeaderAndIsr
        request has replaced the proposal in the meantime.

        Args:
            proposal: the ISR change of the request.
            proposal_leader_epoch: the leader epoch of the request.
            error, leader_epoch, partition_epoch, in_sync: of the response.

        Returns: RETRY when the caller has to send the same change again.

        Source: kafka.cluster.Partition.submitAlterPartition (KIP-497).
        """
        if self.in_sync is not proposal or not self.is_leader or self.leader_epoch != proposal_leader_epoch:
            return AlterPartitionOutcome.AWAIT
        outcome = isr.after_alter_partition(error)
        if outcome is AlterPartitionOutcome.REVERT:
            self.in_sync = InSyncState(proposal.committed)
            self.advance_high_watermark()
        elif outcome is AlterPartitionOutcome.COMMITTED:
            if leader_epoch != self.leader_epoch or partition_epoch < self.partition_epoch:
                return AlterPartitionOutcome.AWAIT
            self.in_sync = InSyncState(in_sync)
            self.partition_epoch = partition_epoch
            self.advance_high_watermark()
            self.wake_delayed_fetches()  # followers that left the ISR may join again with their next fetch
            self._remove_truncated_followers()  # a follower may have lost records since the request
        return outcome


def _ignore(_: int) -> None:
    return
