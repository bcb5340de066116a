"""The offsets of a partition, from whoever leads it now."""

from __future__ import annotations

import time

from confluent_kafka import Consumer, KafkaException, TopicPartition

_ASK_S = 5
_PAUSE_S = 0.05


def watermarks(consumer: Consumer, topic: str, partition: int, limit_s: float = 120) -> tuple[int, int]:
    """(log start offset, high watermark). Asked again for `limit_s` seconds: preferred leaders return after a restart,
    and a new leader does not tell its high watermark before it has caught up (OFFSET_NOT_AVAILABLE)."""
    deadline = time.monotonic() + limit_s
    while True:
        try:
            low, high = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=_ASK_S)
            return low, high
        except KafkaException as failure:
            if time.monotonic() > deadline:
                raise AssertionError(f"nobody tells the offsets of {topic}-{partition}") from failure
            time.sleep(_PAUSE_S)
