"""Follower: applies the fetch responses of a partition's leader to the local log.

Lives here: append, truncation, the follower's high watermark and log start offset, the backoff after errors. Not here:
the offset at which two logs diverge (`divergence`), the fetch requests (`fetcher`). Everything runs on the event loop;
truncations run as tasks of the clock, one at a time per partition.

A fetch contains the follower's log end offset and the epoch of its last record. When that epoch ends earlier in the
leader's log, the response contains a DivergingEpoch instead of records, and the follower truncates its log (KIP-595).
A new leader alone is no reason to truncate.

Source: kafka.server.ReplicaFetcherThread and AbstractFetcherThread.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, Protocol

from ottla_broker.ports import Clock
from ottla_broker.ports.clock import Timer
from ottla_broker.protocol.api import ApiKey
from ottla_broker.protocol.errors import ErrorCode, KafkaError
from ottla_broker.protocol.generated.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla_broker.protocol.generated.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla_broker.records.formats import batches
from ottla_broker.records.ids import TopicPartition
from ottla_broker.replication.divergence import EpochEnd, restart_after_out_of_range, truncation
from ottla_broker.replication.fetch_client import LeaderConnection
from ottla_broker.replication.leader_session import FINAL_EPOCH
from ottla_broker.replication.partition import Logger, Partition
from ottla_broker.replication.replica_states.recreation_rules import has_caught_up

EARLIEST = -2
LATEST = -1

FIRST_BACKOFF_S = 0.01
"""The first backoff after an error; each further error doubles it, up to replica.fetch.backoff.ms. It is short because
after an election a follower often fetches just before the leader receives LeaderAndIsr, and acks=all waits for it."""

_FETCH_BY_NAME = 12
"""The last version with topic names; it has the DivergingEpoch field."""

_SHORT_DELAY_S = 0.4
"""While a partition waits at most this long, the fetcher shortens the long poll for its other partitions."""


def backoff_s(failures: int, longest_s: float) -> float:
    """The backoff in seconds after `failures` consecutive errors, at most `longest_s`.

    >>> [backoff_s(failures, 1.0) for failures in (1, 2, 5, 8, 5000)]
    [0.01, 0.02, 0.16, 1.0, 1.0]
    """
    return min(longest_s, FIRST_BACKOFF_S * 2.0 ** min(failures - 1, 16))


class CatchUp(Protocol):
    """The progress and the throttle of recreated replicas (`local_replicas.replica_recreation`)."""

    def is_catching_up(self, partition: TopicPartition) -> bool: ...

    def chunk_bytes(self, largest: int) -> int: ...

    def spend(self, size: int) -> None: ...

    def pause_s(self) -> float: ...

    async def caught_up(self, partition: TopicPartition) -> None: ...


class Follower:
    """One followed partition, for one leader epoch."""

    def __init__(
        self,
        partition: Partition,
        clock: Clock,
        logger: Logger,
        *,
        broker_id: int,
        longest_backoff_s: float,
        list_offsets_version: int,
        catch_up: CatchUp | None = None,
    ) -> None:
        self.partition = partition
        self.topic = partition.topic
        self.index = partition.index
        self.leader_id = partition.leader_id
        self._leader_epoch = partition.leader_epoch
        self._log = partition.log
        self._clock = clock
        self._logger = logger
        self._broker_id = broker_id
        self._longest_backoff_s = longest_backoff_s
        self._list_offsets_version = list_offsets_version
        self._notify: Callable[[], None] = _ignore
        self._leader_high_watermark = -1
        self._leader_log_start = -1
        self._task: asyncio.Task[Any] | None = None
        self._pending_request: asyncio.Future[Any] | None = None
        self._is_recording_caught_up = False
        self._delay: Timer | None = None
        self._delay_s = 0.0
        self._failures = 0
        self._is_stopped = False
        is_catching_up = catch_up is not None and catch_up.is_catching_up(partition.topic_partition)
        self._catch_up = catch_up if is_catching_up else None
        """None unless the replica was recreated and has not caught up yet."""
        self._part = FetchPartition(partition=partition.index, current_leader_epoch=self._leader_epoch)

    @property
    def topic_id(self) -> bytes:
        return self.partition.topic_id

    @property
    def is_writing(self) -> bool:
        """The write of its last records has not completed."""
        log = self._log
        return log.state.assigned_offset > log.state.log_end_offset and not log.state.is_failed

    @property
    def is_busy(self) -> bool:
        """It can be fetched once a local operation completes."""
        return self.is_writing or self._task is not None

    @property
    def is_in_short_backoff(self) -> bool:
        """It waits after an error, for at most `_SHORT_DELAY_S`."""
        return self._delay is not None and self._delay_s <= _SHORT_DELAY_S

    @property
    def is_ready(self) -> bool:
        """It can be fetched now."""
        log = self._log
        return (
            self._task is None
            and self._delay is None
            and log.state.assigned_offset == log.state.log_end_offset
            and not log.state.is_failed
        )

    @property
    def is_throttled(self) -> bool:
        """Whether its bytes count for the follower's quota (follower.replication.throttled.replicas, KIP-73)."""
        throttled = self._log.state.config.throttled_by_follower
        return bool(throttled) and throttled.has(self.index, self._broker_id)

    @property
    def can_be_throttled(self) -> bool:
        """Whether the quota may exclude it from a fetch: it is throttled and below the leader's high watermark. While
        that is unknown, a member of the ISR counts as caught up, because acks=all waits for its first fetch."""
        is_behind = self.lag > 0 if self._leader_high_watermark >= 0 else not self.partition.is_in_last_known_isr
        return is_behind and self.is_throttled

    @property
    def lag(self) -> int:
        """Records behind the leader's high watermark."""
        return max(0, self._leader_high_watermark - self._log.state.log_end_offset)

    def start(self, notify: Callable[[], None]) -> None:
        """Starts to follow. A second call only replaces `notify`.

        Args:
            notify: called whenever `is_ready` may have become true.
        """
        self._notify = notify
        if self.partition.on_follower_write == self._on_write:
            return
        self.partition.on_follower_write = self._on_write
        log = self._log
        if log.state.epochs.latest < 0 and log.state.log_end_offset > log.state.high_watermark:
            # Without epochs the logs cannot be compared; records above the high watermark may differ from the leader's.
            self._run(partial(self._truncate, log.state.high_watermark, "the log has no epochs"), "truncate")
        self._throttle_recreation(0)

    @property
    def needs_leader_high_watermark(self) -> bool:
        """Whether it was recreated and has no leader high watermark yet. A follower fetch could bring it into the ISR,
        the controller could elect it, and it would refuse to lead because it has not recorded that it caught up."""
        return self._catch_up is not None and self._leader_high_watermark < 0

    def fetch_leader_high_watermark(self, leader: LeaderConnection) -> None:
        """Starts a fetch without replica id. It returns the high watermark and the divergence of the logs, and does not
        count as a follower fetch."""
        self._run(partial(self._fetch_leader_high_watermark, leader), "high watermark of")

    async def _fetch_leader_high_watermark(self, leader: LeaderConnection) -> None:
        topic = FetchTopic(topic=self.topic, partitions=[self.request_part(1)])
        request = FetchRequest(max_bytes=1, session_epoch=FINAL_EPOCH, topics=[topic])
        try:
            response = await self._send(leader, ApiKey.FETCH, _FETCH_BY_NAME, request)
            if response.error_code:
                raise ConnectionError(f"Fetch answered {ErrorCode.of(response.error_code).name}")
        except OSError as error:
            self._logger.info("%s: cannot fetch the leader's high watermark: %s", self.partition, error)
            self._back_off()
            return
        if self._is_stopped:
            return
        data = response.responses[0].partitions[0]
        diverging = data.diverging_epoch
        if data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            await self._restart(leader)
        elif data.error_code:
            name = ErrorCode.of(data.error_code).name
            self._logger.info("%s: broker %d returns %s", self.partition, self.leader_id, name)
            self._back_off()
        elif diverging is not None and diverging.end_offset >= 0:
            truncate = self._truncation_for(EpochEnd(diverging.epoch, diverging.end_offset))
            if truncate is not None:
                await truncate()
        else:
            self._leader_high_watermark = data.high_watermark

    async def stop(self) -> None:
        """Stops to follow. After this returns, nothing is appended or truncated."""
        self._is_stopped = True
        if self.partition.on_follower_write == self._on_write:
            self.partition.on_follower_write = None
        if self._delay is not None:
            self._delay.cancel()
        if self._pending_request is not None:
            self._pending_request.cancel()  # a leader that hangs must not delay the change to the next leader
        task = self._task
        if task is not None:
            if self._is_recording_caught_up:
                # This task changes no log, and a coordination store that does not answer would block LeaderAndIsr
                # requests and the shutdown. Without the record the replica still counts as catching up.
                task.cancel()
            await asyncio.wait([task])

    def request_part(self, max_bytes: int) -> FetchPartition:
        """This partition's entry in the next Fetch request, with at most `max_bytes` of records."""
        part = self._part
        log = self._log
        part.fetch_offset = log.state.log_end_offset
        part.last_fetched_epoch = log.state.epochs.latest
        part.log_start_offset = log.state.log_start_offset
        part.partition_max_bytes = max_bytes if self._catch_up is None else self._catch_up.chunk_bytes(max_bytes)
        return part

    def process_partition_data(self, data: Any, leader: LeaderConnection) -> int:
        """Applies one partition of a Fetch response.

        Args:
            data: the PartitionData of the response.
            leader: for the requests that an OFFSET_OUT_OF_RANGE needs.

        Returns: the number of bytes appended.
        """
        log = self._log
        if self._is_stopped or log.state.is_failed or self._part.fetch_offset != log.state.assigned_offset:
            return 0
        if data.error_code:
            self._on_error(ErrorCode.of(data.error_code), leader)
            return 0
        diverging = data.diverging_epoch
        if diverging is not None and diverging.end_offset >= 0:
            self._on_divergence(EpochEnd(diverging.epoch, diverging.end_offset))
            return 0
        self._failures = 0
        self._leader_high_watermark = data.high_watermark
        self._leader_log_start = data.log_start_offset
        records = data.records
        size = 0 if records is None else len(records)
        if size:
            self._throttle_recreation(size)
            try:
                if log.state.log_start_offset == log.state.assigned_offset:
                    first = next((header.base_offset for _, header in batches(records)), log.state.assigned_offset)
                    if first < log.state.assigned_offset:
                        self._run(partial(self._append_first_batch, first, records), "first batch")
                        return size
                log.append_as_follower(records, self._leader_epoch)
            except KafkaError as error:
                self._logger.error(
                    "%s: cannot append the records of broker %d: %s", self.partition, self.leader_id, error.message
                )
                self._back_off()
                return 0
        if log.state.assigned_offset == log.state.log_end_offset:
            self._update_watermarks()
        return size

    async def _append_first_batch(self, first: int, records: memoryview) -> None:
        """Appends the first batch to an empty log when the leader's log start offset lies within that batch (KIP-107).
        The log start offset advances once the batch is written."""
        log = self._log
        await log.truncation.truncate_fully_and_start_at(first)
        if not self._is_stopped:
            log.append_as_follower(records, self._leader_epoch)

    def _on_write(self) -> None:
        """The log end offset has advanced."""
        if self._log.state.assigned_offset == self._log.state.log_end_offset:
            self._update_watermarks()
            self._notify()

    def _update_watermarks(self) -> None:
        """Adopts the leader's high watermark and log start offset, up to the local log end offset."""
        log = self._log
        high_watermark = min(self._leader_high_watermark, log.state.log_end_offset)
        if high_watermark > log.state.high_watermark and log.state.maybe_advance_high_watermark(high_watermark):
            self.partition.wake_delayed_fetches()
        if self._has_caught_up:
            # Durable before the next fetch, which may bring the replica into the ISR.
            self._run(self._record_caught_up, "caught up")
            return
        start = self._leader_log_start
        if start > log.state.log_start_offset and start <= log.state.high_watermark and self._task is None:
            self._run(partial(self._advance_log_start, start), "advance log start")

    @property
    def _has_caught_up(self) -> bool:
        """Whether it was recreated and now has every committed record."""
        return (
            self._catch_up is not None
            and self._task is None
            and self._log.state.assigned_offset == self._log.state.log_end_offset
            and has_caught_up(self._log.state.log_end_offset, self._leader_high_watermark)
        )

    async def _record_caught_up(self) -> None:
        assert self._catch_up is not None
        if self._is_stopped:
            return
        self._is_recording_caught_up = True
        try:
            await self._catch_up.caught_up(self.partition.topic_partition)
        finally:
            self._is_recording_caught_up = False
        self._catch_up = None

    def _throttle_recreation(self, size: int) -> None:
        """Counts `size` bytes fetched for a recreated replica, and excludes it from fetches while the rate is above
        ottla.replica.recreate.max.bytes.per.second."""
        if self._catch_up is None or self._is_stopped:
            return
        self._catch_up.spend(size)
        pause_s = self._catch_up.pause_s()
        if pause_s and self._delay is None:
            self._delay_s = pause_s
            self._delay = self._clock.call_later(pause_s, self._end_throttle_delay)

    def _end_throttle_delay(self) -> None:
        self._delay = None
        self._throttle_recreation(0)
        if self._delay is None:
            self._record_or_notify()

    async def _advance_log_start(self, offset: int) -> None:
        await self._log.retention.advance_log_start_offset(offset)

    def _on_divergence(self, leader_end: EpochEnd) -> None:
        truncate = self._truncation_for(leader_end)
        if truncate is not None:
            self._run(truncate, "truncate")

    def _truncation_for(self, leader_end: EpochEnd) -> Callable[[], Coroutine[Any, Any, None]] | None:
        """The call that truncates the log to the point of divergence. None, after starting a backoff, when there is
        nothing to truncate."""
        log = self._log
        decision = truncation(
            leader_end,
            EpochEnd(*log.end_of_epoch(leader_end.epoch)),
            log.state.log_end_offset,
            log.state.high_watermark,
        )
        if decision.offset == log.state.log_end_offset and log.state.epochs.latest <= leader_end.epoch:
            # No record and no epoch to remove: the next fetch would get the same response.
            self._logger.warning("%s: diverges at %s, but there is nothing to truncate", self.partition, leader_end)
            self._back_off()
            return None
        return partial(self._truncate, decision.offset, decision.reason)

    async def _truncate(self, offset: int, reason: str) -> None:
        log = self._log
        if offset < log.state.high_watermark:
            self._logger.warning(
                "%s: truncating to %d, below its high watermark %d", self.partition, offset, log.state.high_watermark
            )
        self._logger.info("%s: truncating from %d to %d: %s", self.partition, log.state.log_end_offset, offset, reason)
        await log.truncation.truncate_to(offset)

    def _on_error(self, error: ErrorCode, leader: LeaderConnection) -> None:
        if error is ErrorCode.OFFSET_OUT_OF_RANGE:
            self._run(partial(self._restart, leader), "restart")
            return
        # Either broker has not received its LeaderAndIsr request yet. The fetcher logs it.
        self._back_off()

    async def _restart(self, leader: LeaderConnection) -> None:
        """After OFFSET_OUT_OF_RANGE: gets the leader's log start and end offsets, and truncates or restarts the log.

        Source: kafka.server.AbstractFetcherThread.fetchOffsetAndTruncate.
        """
        log = self._log
        try:
            end = await self._fetch_leader_offset(leader, LATEST)
            start = await self._fetch_leader_offset(leader, EARLIEST)
        except OSError as error:
            self._logger.info("%s: cannot get the leader's offsets: %s", self.partition, error)
            self._back_off()
            return
        if self._is_stopped:
            return
        decision = restart_after_out_of_range(log.state.log_end_offset, start, end)
        self._logger.warning("%s: out of range at %d: %s", self.partition, log.state.log_end_offset, decision.reason)
        if decision.is_full:
            await log.truncation.truncate_fully_and_start_at(decision.offset)
        elif decision.offset < log.state.log_end_offset:
            await self._truncate(decision.offset, decision.reason)
        else:
            self._back_off()

    async def _fetch_leader_offset(self, leader: LeaderConnection, timestamp: int) -> int:
        """The leader's offset for EARLIEST or LATEST.

        Raises:
            OSError: the connection failed, or the leader returned an error.
        """
        partition = ListOffsetsPartition(
            partition_index=self.index, current_leader_epoch=self._leader_epoch, timestamp=timestamp
        )
        request = ListOffsetsRequest(
            replica_id=self._broker_id, topics=[ListOffsetsTopic(name=self.topic, partitions=[partition])]
        )
        response = await self._send(leader, ApiKey.LIST_OFFSETS, self._list_offsets_version, request)
        data = response.topics[0].partitions[0]
        if data.error_code:
            raise ConnectionError(f"ListOffsets answered {ErrorCode.of(data.error_code).name}")
        offset: int = data.offset
        return offset

    async def _send(self, leader: LeaderConnection, api_key: ApiKey, version: int, request: Any) -> Any:
        """The leader's response.

        Raises:
            OSError: the connection failed, or this follower was stopped.
        """
        if self._is_stopped:
            raise ConnectionAbortedError("the follower is stopped")
        self._pending_request = leader.send(int(api_key), version, request)
        try:
            return await self._pending_request
        except asyncio.CancelledError:
            if not self._is_stopped:
                raise
            raise ConnectionAbortedError("the follower is stopped") from None
        finally:
            self._pending_request = None

    def _back_off(self) -> None:
        """Excludes the partition from fetches for the backoff."""
        if self._delay is None and not self._is_stopped:
            self._failures += 1
            self._delay_s = backoff_s(self._failures, self._longest_backoff_s)
            self._delay = self._clock.call_later(self._delay_s, self._end_backoff)

    def _end_backoff(self) -> None:
        self._delay = None
        self._record_or_notify()

    def _record_or_notify(self) -> None:
        """Records that a recreated replica caught up, where that failed before, or notifies the fetcher."""
        if self._has_caught_up and not self._is_stopped:
            self._run(self._record_caught_up, "caught up")
        else:
            self._notify()

    def _run(self, work: Callable[[], Coroutine[Any, Any, None]], name: str) -> None:
        # The task calls `work`: if it is cancelled before its first step, no coroutine is left unawaited.
        self._task = self._clock.spawn(self._finish(work), name=f"{name} {self.partition.topic_partition}")

    async def _finish(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        try:
            await work()
        except (KafkaError, OSError) as error:
            self._logger.error("%s: %s", self.partition, error)
            self._back_off()
        except Exception:
            self._back_off()  # the clock logs the exception; the backoff limits how often
            raise
        finally:
            self._task = None
            if self._has_caught_up and not self._is_stopped and self._delay is None:
                self._run(self._record_caught_up, "caught up")
            self._notify()


def _ignore() -> None:
    return
