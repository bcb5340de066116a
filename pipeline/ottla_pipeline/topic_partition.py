"""Topics and partitions as values, and the two offsets that stand for the ends of a log. Pure."""

from __future__ import annotations

from typing import NamedTuple

LATEST = -1
EARLIEST = -2


class TopicPartition(NamedTuple):
    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class TopicLayout(NamedTuple):
    """What Metadata says of a topic: its id (all zeros where the broker gives none) and its partitions, ascending."""

    topic_id: bytes
    partitions: tuple[int, ...]
