"""Follower: what this broker does with the fetch responses of one partition's leader.

Lives here: appending, truncating, the follower's high watermark and log start, waiting after errors. Not here: where
logs part (`divergence`), the requests (`fetchers`). Everything happens on the loop; truncations run as tasks of the
clock, one at a time per partition.

A fetch says "my last record is of epoch e, I am at offset o". When the leader's epoch e ended earlier, the answer is a
DivergingEpoch instead of records, and the follower cuts its log. Nothing is cut for the mere reason that a leader
changed.
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
from ottla_broker.replication.local_replicas.recreation_rules import has_caught_up
from ottla_broker.replication.partition import Logger, Partition

EARLIEST = -2
LATEST = -1

FIRST_BACKOFF_S = 0.01
"""The first wait after an error; each further one doubles it, up to replica.fetch.backoff.ms. After an election a
follower often asks a moment before its leader has heard of its leadership, and acks=all waits for it."""

_FETCH_BY_NAME = 12
"""The last version that names topics, and one that tells where logs part."""

_SHORT_DELAY_S = 0.4
"""A long poll that others have begun ends early for whoever waits no longer than this."""


def backoff_s(failures: int, longest_s: float) -> float:
    """Seconds to wait after the n-th failure in a row.

    >>> [backoff_s(failures, 1.0) for failures in (1, 2, 5, 8, 5000)]
    [0.01, 0.02, 0.16, 1.0, 1.0]
    """
    return min(longest_s, FIRST_BACKOFF_S * 2.0 ** min(failures - 1, 16))


class CatchUp(Protocol):
    """What a follower asks about a recreated replica (`replica_recreation`)."""

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
        self._notify: Callable[[], None] = _nothing
        self._leader_high_watermark = -1
        self._leader_log_start = -1
        self._task: asyncio.Task[Any] | None = None
        self._question: asyncio.Future[Any] | None = None
        self._is_recording_caught_up = False
        self._delay: Timer | None = None
        self._delay_s = 0.0
        self._failures = 0
        self._is_stopped = False
        is_catching_up = catch_up is not None and catch_up.is_catching_up(partition.topic_partition)
        self._catch_up = catch_up if is_catching_up else None
        """None for almost every replica: it was not recreated, or has caught up since."""
        self._part = FetchPartition(partition=partition.index, current_leader_epoch=self._leader_epoch)

    @property
    def topic_id(self) -> bytes:
        return self.partition.topic_id

    @property
    def is_writing(self) -> bool:
        """Its last records are on their way to the disk."""
        log = self._log
        return log.assigned_offset > log.log_end_offset and not log.is_failed

    @property
    def is_busy(self) -> bool:
        """It can be fetched as soon as something local is done."""
        return self.is_writing or self._task is not None

    @property
    def is_back_soon(self) -> bool:
        """It waits after an error, and not for long."""
        return self._delay is not None and self._delay_s <= _SHORT_DELAY_S

    @property
    def is_ready(self) -> bool:
        """It can be fetched now."""
        log = self._log
        return (
            self._task is None
            and self._delay is None
            and log.assigned_offset == log.log_end_offset
            and not log.is_failed
        )

    @property
    def is_throttled(self) -> bool:
        """Whether its bytes count for the follower's quota (follower.replication.throttled.replicas)."""
        throttled = self._log.config.throttled_by_follower
        return bool(throttled) and throttled.has(self.index, self._broker_id)

    @property
    def may_be_held_back(self) -> bool:
        """Whether a quota may leave it out: throttled, and not at its leader's high watermark. Before the leader has
        told that, who is in the ISR is there: acks=all waits for its first question."""
        is_behind = self.lag > 0 if self._leader_high_watermark >= 0 else not self.partition.is_named_in_sync
        return is_behind and self.is_throttled

    @property
    def lag(self) -> int:
        """Records behind the leader's high watermark."""
        return max(0, self._leader_high_watermark - self._log.log_end_offset)

    def start(self, notify: Callable[[], None]) -> None:
        """`notify` is called whenever `is_ready` may have become true. Called again, it only changes who is told."""
        self._notify = notify
        if self.partition.on_follower_write == self._on_write:
            return
        self.partition.on_follower_write = self._on_write
        log = self._log
        if log.latest_epoch < 0 and log.log_end_offset > log.high_watermark:
            # Without epochs there is nothing to compare; what is above the high watermark may not be the leader's.
            self._run(partial(self._truncate, log.high_watermark, "the log has no epochs"), "truncate")
        self._pace(0)

    @property
    def has_to_ask(self) -> bool:
        """It was recreated and does not know its leader's high watermark: by its first fetch the leader could count it
        as in sync, the controller elect it with that, and it would refuse, before it knows that it has caught up."""
        return self._catch_up is not None and self._leader_high_watermark < 0

    def ask(self, leader: LeaderConnection) -> None:
        """Asks for the high watermark, and whether the logs part, by a fetch that is no replica's."""
        self._run(partial(self._ask, leader), "high watermark of")

    async def _ask(self, leader: LeaderConnection) -> None:
        topic = FetchTopic(topic=self.topic, partitions=[self.request_part(1)])
        request = FetchRequest(max_bytes=1, session_epoch=FINAL_EPOCH, topics=[topic])
        try:
            response = await self._send(leader, ApiKey.FETCH, _FETCH_BY_NAME, request)
            if response.error_code:
                raise ConnectionError(f"Fetch answered {ErrorCode.of(response.error_code).name}")
        except OSError as error:
            self._logger.info("%s: the leader's high watermark cannot be had: %s", self.partition, error)
            self._wait()
            return
        if self._is_stopped:
            return
        data = response.responses[0].partitions[0]
        diverging = data.diverging_epoch
        if data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            await self._restart(leader)
        elif data.error_code:
            name = ErrorCode.of(data.error_code).name
            self._logger.info("%s: broker %d answers %s", self.partition, self.leader_id, name)
            self._wait()
        elif diverging is not None and diverging.end_offset >= 0:
            cut = self._cut(EpochEnd(diverging.epoch, diverging.end_offset))
            if cut is not None:
                await cut()
        else:
            self._leader_high_watermark = data.high_watermark

    async def stop(self) -> None:
        """Nothing is appended or truncated any more when this returns."""
        self._is_stopped = True
        if self.partition.on_follower_write == self._on_write:
            self.partition.on_follower_write = None
        if self._delay is not None:
            self._delay.cancel()
        if self._question is not None:
            self._question.cancel()  # a leader that hangs must not hold up the one that follows it
        task = self._task
        if task is not None:
            if self._is_recording_caught_up:
                # It touches no log, and waits for a coordination store that may stay away: the controller's commands,
                # and the stop of the broker, would wait too. The replica counts as one that is being filled again.
                task.cancel()
            await asyncio.wait([task])

    def request_part(self, max_bytes: int) -> FetchPartition:
        """This partition's part of the next request."""
        part = self._part
        log = self._log
        part.fetch_offset = log.log_end_offset
        part.last_fetched_epoch = log.latest_epoch
        part.log_start_offset = log.log_start_offset
        part.partition_max_bytes = max_bytes if self._catch_up is None else self._catch_up.chunk_bytes(max_bytes)
        return part

    def on_answer(self, data: Any, leader: LeaderConnection) -> int:
        """Takes one partition of a fetch response in; gives the number of bytes appended."""
        log = self._log
        if self._is_stopped or log.is_failed or self._part.fetch_offset != log.assigned_offset:
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
            self._pace(size)
            try:
                if log.log_start_offset == log.assigned_offset:
                    first = next((header.base_offset for _, header in batches(records)), log.assigned_offset)
                    if first < log.assigned_offset:
                        self._run(partial(self._begin_within, first, records), "first batch")
                        return size
                log.append_as_follower(records, self._leader_epoch)
            except KafkaError as error:
                self._logger.error(
                    "%s: records of broker %d refused: %s", self.partition, self.leader_id, error.message
                )
                self._wait()
                return 0
        if log.assigned_offset == log.log_end_offset:
            self._follow_watermarks()
        return size

    async def _begin_within(self, first: int, records: memoryview) -> None:
        """The leader's log starts in the middle of a batch (KIP-107), which this empty one takes whole; the start
        follows when the batch is written."""
        log = self._log
        await log.truncate_fully_and_start_at(first)
        if not self._is_stopped:
            log.append_as_follower(records, self._leader_epoch)

    def _on_write(self) -> None:
        """The log end offset has grown."""
        if self._log.assigned_offset == self._log.log_end_offset:
            self._follow_watermarks()
            self._notify()

    def _follow_watermarks(self) -> None:
        """The leader's high watermark and log start hold here as far as this log reaches."""
        log = self._log
        high_watermark = min(self._leader_high_watermark, log.log_end_offset)
        if high_watermark > log.high_watermark and log.maybe_advance_high_watermark(high_watermark):
            self.partition.wake_everybody()
        if self._has_caught_up:
            # Durable before the next fetch, by which the leader may count it as in sync.
            self._run(self._record_caught_up, "caught up")
            return
        start = self._leader_log_start
        if start > log.log_start_offset and start <= log.high_watermark and self._task is None:
            self._run(partial(self._advance_log_start, start), "advance log start")

    @property
    def _has_caught_up(self) -> bool:
        """It was recreated, and has every committed record now."""
        return (
            self._catch_up is not None
            and self._task is None
            and self._log.assigned_offset == self._log.log_end_offset
            and has_caught_up(self._log.log_end_offset, self._leader_high_watermark)
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

    def _pace(self, size: int) -> None:
        """`size` bytes more were fetched for a recreated replica: leaves it out for as long as the throttle says."""
        if self._catch_up is None or self._is_stopped:
            return
        self._catch_up.spend(size)
        pause_s = self._catch_up.pause_s()
        if pause_s and self._delay is None:
            self._delay_s = pause_s
            self._delay = self._clock.call_later(pause_s, self._pace_again)

    def _pace_again(self) -> None:
        self._delay = None
        self._pace(0)
        if self._delay is None:
            self._record_or_notify()

    async def _advance_log_start(self, offset: int) -> None:
        await self._log.advance_log_start_offset(offset)

    def _on_divergence(self, leader_end: EpochEnd) -> None:
        cut = self._cut(leader_end)
        if cut is not None:
            self._run(cut, "truncate")

    def _cut(self, leader_end: EpochEnd) -> Callable[[], Coroutine[Any, Any, None]] | None:
        """What cuts the log where the leader's parts from it; None, and a while of waiting, where nothing is to cut."""
        log = self._log
        decision = truncation(
            leader_end, EpochEnd(*log.end_of_epoch(leader_end.epoch)), log.log_end_offset, log.high_watermark
        )
        if decision.offset == log.log_end_offset and log.latest_epoch <= leader_end.epoch:
            # Nothing to cut and no epoch to forget: the same question would get the same answer.
            self._logger.warning("%s: diverges at %s, yet there is nothing to truncate", self.partition, leader_end)
            self._wait()
            return None
        return partial(self._truncate, decision.offset, decision.reason)

    async def _truncate(self, offset: int, reason: str) -> None:
        log = self._log
        if offset < log.high_watermark:
            self._logger.warning(
                "%s: truncating to %d, below its high watermark %d", self.partition, offset, log.high_watermark
            )
        self._logger.info("%s: truncating from %d to %d: %s", self.partition, log.log_end_offset, offset, reason)
        await log.truncate_to(offset)

    def _on_error(self, error: ErrorCode, leader: LeaderConnection) -> None:
        if error is ErrorCode.OFFSET_OUT_OF_RANGE:
            self._run(partial(self._restart, leader), "restart")
            return
        # The leader has not heard of its leadership yet, or we have not of another's: both pass by themselves.
        self._logger.info("%s: broker %d answers %s", self.partition, self.leader_id, error.name)
        self._wait()

    async def _restart(self, leader: LeaderConnection) -> None:
        """After OFFSET_OUT_OF_RANGE: asks where the leader's log begins and ends, and goes on from there."""
        log = self._log
        try:
            end = await self._ask_offset(leader, LATEST)
            start = await self._ask_offset(leader, EARLIEST)
        except OSError as error:
            self._logger.info("%s: the leader's offsets cannot be had: %s", self.partition, error)
            self._wait()
            return
        if self._is_stopped:
            return
        decision = restart_after_out_of_range(log.log_end_offset, start, end)
        self._logger.warning("%s: out of range at %d: %s", self.partition, log.log_end_offset, decision.reason)
        if decision.is_full:
            await log.truncate_fully_and_start_at(decision.offset)
        elif decision.offset < log.log_end_offset:
            await self._truncate(decision.offset, decision.reason)
        else:
            self._wait()

    async def _ask_offset(self, leader: LeaderConnection, timestamp: int) -> int:
        """Raises OSError for an error of the leader's too."""
        asked = ListOffsetsPartition(
            partition_index=self.index, current_leader_epoch=self._leader_epoch, timestamp=timestamp
        )
        request = ListOffsetsRequest(
            replica_id=self._broker_id, topics=[ListOffsetsTopic(name=self.topic, partitions=[asked])]
        )
        response = await self._send(leader, ApiKey.LIST_OFFSETS, self._list_offsets_version, request)
        data = response.topics[0].partitions[0]
        if data.error_code:
            raise ConnectionError(f"ListOffsets answered {ErrorCode.of(data.error_code).name}")
        offset: int = data.offset
        return offset

    async def _send(self, leader: LeaderConnection, api_key: ApiKey, version: int, request: Any) -> Any:
        """The leader's answer; OSError when it gives none, or nobody waits for it any more."""
        if self._is_stopped:
            raise ConnectionAbortedError("it is followed no more")
        self._question = leader.send(int(api_key), version, request)
        try:
            return await self._question
        except asyncio.CancelledError:
            if not self._is_stopped:
                raise
            raise ConnectionAbortedError("it is followed no more") from None
        finally:
            self._question = None

    def _wait(self) -> None:
        """Leaves the partition out for a while."""
        if self._delay is None and not self._is_stopped:
            self._failures += 1
            self._delay_s = backoff_s(self._failures, self._longest_backoff_s)
            self._delay = self._clock.call_later(self._delay_s, self._wait_is_over)

    def _wait_is_over(self) -> None:
        self._delay = None
        self._record_or_notify()

    def _record_or_notify(self) -> None:
        """That it has caught up, where that could not be recorded, comes before the next fetch."""
        if self._has_caught_up and not self._is_stopped:
            self._run(self._record_caught_up, "caught up")
        else:
            self._notify()

    def _run(self, work: Callable[[], Coroutine[Any, Any, None]], name: str) -> None:
        # Called by the task: one that is cancelled before its first step leaves nothing begun.
        self._task = self._clock.spawn(self._finish(work), name=f"{name} {self.partition.topic_partition}")

    async def _finish(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        try:
            await work()
        except (KafkaError, OSError) as error:
            self._logger.error("%s: %s", self.partition, error)
            self._wait()
        except Exception:
            self._wait()  # reported by the clock; until it is mended, not more often than any other error
            raise
        finally:
            self._task = None
            if self._has_caught_up and not self._is_stopped and self._delay is None:
                self._run(self._record_caught_up, "caught up")
            self._notify()


def _nothing() -> None:
    return
