"""The offsets of a stream as Spark's checkpoint has them, and what has become of a topic between two of them. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from ottla_pipeline.errors import PipelineError
from ottla_pipeline.option_values import is_int, partition_number
from ottla_pipeline.topic_partition import TopicPartition


def to_json(offsets: Mapping[TopicPartition, int]) -> dict[str, dict[str, int]]:
    """The value whose JSON is the stock connector's, {"topic": {"0": 23}}, and in its order."""
    found: dict[str, dict[str, int]] = {}
    for topic, number in sorted(offsets):
        found.setdefault(topic, {})[str(number)] = offsets[TopicPartition(topic, number)]
    return found


def from_json(value: Any) -> dict[TopicPartition, int]:
    """The offsets of a checkpoint. PipelineError for a value of another source."""
    found: dict[TopicPartition, int] = {}
    foreign = PipelineError(f"the checkpoint has {value!r}, which are no offsets of topics")
    if not isinstance(value, dict):
        raise foreign
    for topic, partitions in value.items():
        if not isinstance(partitions, dict):
            raise foreign
        for text, offset in partitions.items():
            number = partition_number(text)
            if number is None or not is_int(offset):
                raise foreign
            found[TopicPartition(topic, number)] = offset
    return found


def losses(
    start: Mapping[TopicPartition, int],
    end: Mapping[TopicPartition, int],
    gone: Collection[TopicPartition],
    recreated: Collection[str],
) -> list[str]:
    """Why records between two offsets are lost, one sentence for each cause; empty where nothing is.

    Args:
        start: offsets that were read up to.
        end: where the logs end now.
        gone: partitions of `start` that do not exist any more.
        recreated: topics that were deleted and created again since `start`.

    Source: KafkaOffsetReaderAdmin.getOffsetRangesFromResolvedOffsets; topic ids (KIP-516) are our own.
    """
    found = [f"topic {topic!r} was deleted and created again" for topic in sorted(recreated)]
    found += [f"{partition} does not exist any more" for partition in sorted(gone)]
    found += [
        f"{partition} was read up to offset {start[partition]}, and its log ends at {offset}"
        for partition, offset in sorted(end.items())
        if partition.topic not in recreated and offset < start.get(partition, offset)
    ]
    return found
