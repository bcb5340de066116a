"""Sends markers to the leaders of their partitions: a queue for each broker, one request under way to each.

Markers that wait for the same broker leave in one WriteTxnMarkers. Those for partitions of this broker are appended at
once, without a request: a producer waits for the last of them before its next transaction. Those whose partition has
no leader wait in a queue of their own until the metadata name one. Here: queues, pauses, routing. Not here: what an
outcome does to the transaction (`coordinator`), connections (an implementation of `PartitionLeaders`). Ports used:
Clock.

Source: kafka.coordinator.transaction.TransactionMarkerChannelManager.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Protocol

from ottla_broker.ports.clock import Clock, Timer
from ottla_broker.protocol.errors import ErrorCode
from ottla_broker.records.ids import TopicPartition
from ottla_broker.transactions.markers import NO_LEADER, Marker, MarkerOutcome, marker_outcome

logger = logging.getLogger("ottla.transactions")

RETRY_S = 0.05
"""Pause before markers are sent again, and before a leader is sought again."""


class PartitionLeaders(Protocol):
    """The leaders of partitions, and the way to them. The broker's implementation uses its metadata and BrokerClient;
    tests have one in memory."""

    def leader(self, partition: TopicPartition) -> int | None:
        """The broker id; NO_LEADER while there is no live one, None once the partition is deleted."""
        ...

    async def write_markers(
        self, broker_id: int, markers: Sequence[Marker]
    ) -> Mapping[int, Mapping[TopicPartition, ErrorCode]]:
        """Sends one WriteTxnMarkers.

        Returns:
            The errors by producer id and partition.

        Raises:
            ConnectionError: there is no response; whether the markers are written is unknown.
        """
        ...


class MarkersHere(Protocol):
    """The partitions that this broker leads."""

    broker_id: int

    def write(self, marker: Marker, on_written: Callable[[Mapping[TopicPartition, ErrorCode]], None]) -> None:
        """Appends the marker, in the first of its partitions before it returns.

        `on_written` is called once with the error of each partition, when the marker is committed or has failed,
        possibly before this returns.
        """
        ...


class MarkerSender:
    """`on_outcome` gets each marker back, possibly in parts, and decides what is sent again. Without `here` this broker
    is sent its markers like any other."""

    def __init__(
        self,
        clock: Clock,
        leaders: PartitionLeaders,
        on_outcome: Callable[[Marker, MarkerOutcome], None],
        here: MarkersHere | None = None,
    ) -> None:
        self._clock = clock
        self._leaders = leaders
        self._on_outcome = on_outcome
        self._here = here
        self._queues: dict[int, list[Marker]] = {}
        """By broker; a broker is here as long as its task runs."""
        self._without_leader: list[Marker] = []
        self._to_retry: list[Marker] = []
        self._timer: Timer | None = None
        self._is_closed = False

    @property
    def without_leader_count(self) -> int:
        """Markers that wait for a leader (UnknownDestinationQueueSize)."""
        return len(self._without_leader)

    def send(self, marker: Marker) -> None:
        """Queues the marker for the leaders of its partitions, one part for each broker.

        Partitions that are deleted come back as done, before this returns; so may those of this broker, as failed.
        """
        by_leader: dict[int | None, list[TopicPartition]] = {}
        for partition in marker.partitions:
            by_leader.setdefault(self._leaders.leader(partition), []).append(partition)
        gone = by_leader.pop(None, [])
        without_leader = by_leader.pop(NO_LEADER, [])
        for broker_id, partitions in by_leader.items():
            self._queue(broker_id, replace(marker, partitions=tuple(partitions)))  # type: ignore[arg-type]
        if without_leader:
            self._without_leader.append(replace(marker, partitions=tuple(without_leader)))
            self._arm()
        if gone:
            reason = f"{', '.join(map(str, gone))}: deleted"
            self._on_outcome(replace(marker, partitions=tuple(gone)), MarkerOutcome(tuple(gone), reason=reason))

    def send_later(self, marker: Marker) -> None:
        """`send` after a pause: the metadata may name another leader by then."""
        self._to_retry.append(marker)
        self._arm()

    def find_leaders(self) -> None:
        """The metadata have changed: markers that wait for a leader may have one."""
        waiting, self._without_leader = self._without_leader, []
        for marker in waiting:
            self.send(marker)

    def remove(self, coordinator_partition: int) -> None:
        """This broker no longer coordinates the partition's transactions: nothing more of them is sent."""

        def others(markers: list[Marker]) -> list[Marker]:
            return [marker for marker in markers if marker.coordinator_partition != coordinator_partition]

        self._without_leader = others(self._without_leader)
        self._to_retry = others(self._to_retry)
        for queue in self._queues.values():
            queue[:] = others(queue)

    def close(self) -> None:
        self._is_closed = True
        self._without_leader, self._to_retry = [], []
        for queue in self._queues.values():
            queue.clear()
        if self._timer is not None:
            self._timer.cancel()

    def _queue(self, broker_id: int, marker: Marker) -> None:
        if self._here is not None and broker_id == self._here.broker_id:
            self._here.write(marker, partial(self._on_written, marker))
            return
        queue = self._queues.get(broker_id)
        if queue is None:
            queue = self._queues[broker_id] = []
            self._clock.spawn(self._send_queue(broker_id, queue), name=f"markers to broker {broker_id}")
        queue.append(marker)

    def _on_written(self, marker: Marker, errors: Mapping[TopicPartition, ErrorCode]) -> None:
        if not self._is_closed:
            self._on_outcome(marker, marker_outcome(marker, errors))

    async def _send_queue(self, broker_id: int, queue: list[Marker]) -> None:
        under_way: deque[Marker] = deque()
        try:
            while queue and not self._is_closed:
                under_way.extend(queue)
                queue.clear()
                await self._send_request(broker_id, under_way)
        except Exception:
            # It ends this task and no transaction: markers whose outcome is not known are sent again.
            while under_way:
                marker = under_way.popleft()
                self._on_outcome(marker, MarkerOutcome(retry=marker.partitions))
            for marker in queue:
                self.send_later(marker)
            raise
        finally:
            del self._queues[broker_id]

    async def _send_request(self, broker_id: int, under_way: deque[Marker]) -> None:
        """Sends one request, and takes out the markers whose outcome has been reported."""
        results: Mapping[int, Mapping[TopicPartition, ErrorCode]] | None = None
        try:
            results = await self._leaders.write_markers(broker_id, list(under_way))
        except ConnectionError as error:
            logger.debug("markers to broker %d: %s", broker_id, error)
        while under_way:
            marker = under_way.popleft()
            if results is None:
                self._on_outcome(marker, MarkerOutcome(retry=marker.partitions))
            else:
                self._on_outcome(marker, marker_outcome(marker, results.get(marker.producer_id, {})))

    def _arm(self) -> None:
        if self._timer is None:
            self._timer = self._clock.call_later(RETRY_S, self._fire)

    def _fire(self) -> None:
        self._timer = None
        to_retry, self._to_retry = self._to_retry, []
        self.find_leaders()
        for marker in to_retry:
            self.send(marker)
