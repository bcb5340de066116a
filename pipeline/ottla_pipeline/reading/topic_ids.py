"""The ids of a query's topics in the committed offsets of a group, so that they survive the query and the topics. Pure.

Spark's checkpoint has names of topics and no ids. A broker removes the committed offsets of a topic when it is deleted,
so what is remembered is committed beside partitions of a topic that stays, `__consumer_offsets`, as metadata of at most
4096 bytes (offset.metadata.max.bytes): 12 bytes for each topic, half a digest of its name and half one of its id.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Iterable, Mapping

from ottla_pipeline.reading.offset_range import ANY_TOPIC_ID
from ottla_pipeline.topic_partition import TopicPartition

STORE = "__consumer_offsets"
GROUP_SUFFIX = "-topic-ids"
_TOPICS_PER_ENTRY = 250
_HALF = 6
_PREFIX = "topic-ids="


def digest(value: bytes) -> bytes:
    """Six bytes that stand for a name or an id."""
    return hashlib.sha256(value).digest()[:_HALF]


def entries(ids: Mapping[str, bytes]) -> dict[TopicPartition, str]:
    """The metadata to commit, by partition of the store, for the digests of ids by topic."""
    pairs = sorted(digest(topic.encode()) + found for topic, found in ids.items())
    return {
        TopicPartition(STORE, number): _PREFIX + base64.b64encode(
            b"".join(pairs[number * _TOPICS_PER_ENTRY : (number + 1) * _TOPICS_PER_ENTRY])
        ).decode()
        for number in range(-(-len(pairs) // _TOPICS_PER_ENTRY))
    }  # fmt: skip


def remembered(metadata: Iterable[str], topics: Iterable[str]) -> dict[str, bytes]:
    """The digests of the ids of these topics, as far as they were committed.

    >>> remembered(entries({"t": digest(b"1" * 16)}).values(), ["t", "u"]) == {"t": digest(b"1" * 16)}
    True
    """
    found: dict[bytes, bytes] = {}
    for text in metadata:
        if not text.startswith(_PREFIX):
            continue
        try:
            pairs = base64.b64decode(text.removeprefix(_PREFIX), validate=True)
        except binascii.Error:
            continue
        for at in range(0, len(pairs), 2 * _HALF):
            found[pairs[at : at + _HALF]] = pairs[at + _HALF : at + 2 * _HALF]
    names = {topic: digest(topic.encode()) for topic in topics}
    return {topic: found[name] for topic, name in names.items() if name in found}


def recreated(known: Mapping[str, bytes], now: Mapping[str, bytes]) -> list[str]:
    """Topics whose id is not the known one. Brokers before Kafka 2.8 give no ids: then nothing is known."""
    return sorted(
        topic
        for topic, topic_id in now.items()
        if topic in known and topic_id != ANY_TOPIC_ID and known[topic] != digest(topic_id)
    )
