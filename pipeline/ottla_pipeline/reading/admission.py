"""How many offsets a micro-batch takes: the limits of the options, all at once. Pure.

Source: KafkaMicroBatchStream of Spark's Kafka connector (rateLimit, delayBatch); `maxBytesPerTrigger` is our own.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from ottla_pipeline.topic_partition import TopicPartition

DEFAULT_TRIGGER_DELAY_MS = 15 * 60 * 1000


@dataclass(frozen=True, slots=True)
class TriggerLimits:
    """maxOffsetsPerTrigger, minOffsetsPerTrigger, maxTriggerDelay in ms, maxBytesPerTrigger; None for no limit."""

    max_offsets: int | None = None
    min_offsets: int | None = None
    max_delay_ms: int = DEFAULT_TRIGGER_DELAY_MS
    max_bytes: int | None = None


NO_LIMITS = TriggerLimits()


def waits(
    limits: TriggerLimits, start: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int], idle_ms: float
) -> bool:
    """Whether a batch waits for more records. `idle_ms` have passed since the last batch began."""
    if limits.min_offsets is None or idle_ms >= limits.max_delay_ms:
        return False
    return sum(end[partition] - start[partition] for partition in end) < limits.min_offsets


def admitted(
    limits: TriggerLimits,
    start: Mapping[TopicPartition, int],
    end: Mapping[TopicPartition, int],
    offset_bytes: Mapping[TopicPartition, float],
) -> dict[TopicPartition, int]:
    """Where a batch ends: in each partition the share of the limits that its lag has, at least one offset.

    Args:
        start: where the batch begins, for every partition of `end`.
        end: where the logs end.
        offset_bytes: the size of an offset of each partition, as far as it is known; needed for max_bytes.

    >>> from ottla_pipeline.topic_partition import TopicPartition
    >>> t = [TopicPartition("t", number) for number in range(3)]
    >>> admitted(TriggerLimits(max_offsets=100), dict.fromkeys(t, 0), {t[0]: 900, t[1]: 100, t[2]: 1}, {}).values()
    dict_values([89, 9, 1])
    """
    lags = {partition: end[partition] - start[partition] for partition in end if end[partition] > start[partition]}
    found = dict(end)
    if limits.max_offsets is not None:
        _cut(found, start, limits.max_offsets, {partition: float(lag) for partition, lag in lags.items()}, {})
    if limits.max_bytes is not None:
        sizes = {partition: lag * offset_bytes.get(partition, 1.0) for partition, lag in lags.items()}
        _cut(found, start, limits.max_bytes, sizes, offset_bytes)
    return found


def _cut(
    found: dict[TopicPartition, int],
    start: Mapping[TopicPartition, int],
    limit: int,
    sizes: Mapping[TopicPartition, float],
    unit: Mapping[TopicPartition, float],
) -> None:
    total = sum(sizes.values())
    if total <= limit:
        return
    for partition, size in sizes.items():
        share = limit * (size / total) / unit.get(partition, 1.0)
        offsets = math.ceil(share) if share < 1 else math.floor(share)
        found[partition] = min(found[partition], start[partition] + max(offsets, 1))
