"""What the coordinator asks of the log behind `__consumer_offsets`: a Protocol and its values.

The broker's adapter stands on the replica manager; tests use an in-memory one.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from ottla_broker.groups.records import Record
from ottla_broker.protocol.errors import ErrorCode
from ottla_broker.records import record


class AppendOutcome(NamedTuple):
    """`base_offset` is that of the batch, -1 with an error."""

    error: ErrorCode
    base_offset: int = -1


@dataclass(frozen=True, slots=True)
class LoadedBatch:
    """A batch of the log, its records taken out of it (decompressed)."""

    base_offset: int
    records: Sequence[record.Record]
    producer_id: int = -1
    is_transactional: bool = False
    is_control: bool = False


class GroupLog(Protocol):
    """Partitions are those of `__consumer_offsets`; `leader_epoch` is the one this broker was elected in."""

    def append(
        self, partition: int, leader_epoch: int, records: Sequence[Record], *, required_acks: int, timeout_ms: int
    ) -> asyncio.Future[AppendOutcome]:
        """Appends one batch with the time of now. It takes its place in the log during the call, so that appends are in
        the order of calls; the future completes once `required_acks` is met, with Kafka's errors of a produce.
        NOT_LEADER_OR_FOLLOWER when this broker does not lead the partition in that epoch. The future does not raise."""
        ...

    def read(self, partition: int, leader_epoch: int) -> AsyncGenerator[LoadedBatch, None]:
        """Every batch from the log's start to its end (not only to the high watermark). OSError, KafkaError."""
        ...
