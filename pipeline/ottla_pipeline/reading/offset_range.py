"""A range of offsets that a task reads. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from ottla_pipeline.topic_partition import EARLIEST, LATEST, TopicPartition

ANY_TOPIC_ID = bytes(16)


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """Offsets [start, end) of one partition.

    Spark keeps the ranges of a DataFrame and reads them again at each action. What the user did not fix is therefore
    looked up again by the task that reads (as the stock connector's KafkaBatchPartitionReader.resolveRange does):
    `start_at` and `end_at` are EARLIEST, LATEST or a time in ms, None for an offset that stays.
    """

    partition: TopicPartition
    start: int
    end: int
    topic_id: bytes = ANY_TOPIC_ID
    start_at: int | None = None
    end_at: int | None = None

    @property
    def size(self) -> int:
        return self.end - self.start

    @property
    def unresolved_size(self) -> int:
        """The stock connector's size before it asks for offsets: earliest counts as -2, latest as -1."""
        return (self.end if self.end_at is None else LATEST) - (EARLIEST if self.start_at == EARLIEST else self.start)
