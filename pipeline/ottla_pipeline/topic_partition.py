"""A partition of a topic, in Spark's spelling, and the two offsets that stand for the ends of its log. Pure."""

from __future__ import annotations

from typing import NamedTuple

LATEST = -1
EARLIEST = -2


class TopicPartition(NamedTuple):
    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"
