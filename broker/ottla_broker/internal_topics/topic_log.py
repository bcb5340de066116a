"""What a coordinator needs from the log of its internal topic: a Protocol and its values.

The broker's implementation uses the replica manager; tests use one in memory.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from ottla_broker.protocol.errors import ErrorCode
from ottla_broker.records.record import Record


class StateRecord(NamedTuple):
    """The key and the value of a record to append; `value` None is a tombstone."""

    key: bytes
    value: bytes | None


class AppendOutcome(NamedTuple):
    """`base_offset` is that of the batch, -1 with an error."""

    error: ErrorCode
    base_offset: int = -1


@dataclass(frozen=True, slots=True)
class LoadedBatch:
    """A batch of the log and its records (decompressed)."""

    base_offset: int
    records: Sequence[Record]
    producer_id: int = -1
    is_transactional: bool = False
    is_control: bool = False


class InternalTopicLog(Protocol):
    """The log of one internal topic. `leader_epoch` is the one in which this broker was elected."""

    def append(
        self, partition: int, leader_epoch: int, records: Sequence[StateRecord], *, required_acks: int, timeout_ms: int
    ) -> asyncio.Future[AppendOutcome]:
        """Appends one batch with the current time.

        The batch has its offsets when the call returns, so appends are in the order of calls.

        Returns:
            A future that completes when `required_acks` is met, with the errors of a produce request;
            NOT_LEADER_OR_FOLLOWER when this broker does not lead the partition in that epoch. It does not raise.
        """
        ...

    def read(self, partition: int, leader_epoch: int) -> AsyncGenerator[LoadedBatch, None]:
        """Reads every batch from the log start offset to the log end offset, also above the high watermark.

        Raises:
            OSError, KafkaError: the log cannot be read.
        """
        ...
