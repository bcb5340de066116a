"""The ids of a query's topics in the committed offsets of a group, so that they survive the query and the topics. Pure.

Spark's checkpoint has names of topics and no ids. A broker removes the committed offsets of a topic when it is deleted,
so what is remembered is committed beside partitions of a topic that stays, `__consumer_offsets`, as metadata of at most
4096 bytes (offset.metadata.max.bytes): 12 bytes for each topic, half a digest of its name and half one of its id.

The first batch of a topic that was created again may be planned again, also by another process. The id that the topic
had before is therefore remembered too, under a name that only that batch has: the offsets that it starts from.
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


def digests(layout: Mapping[TopicPartition, bytes]) -> dict[str, bytes]:
    """The digest of each topic's id. Brokers before Kafka 2.8 give no ids: of those nothing is known."""
    return {one.topic: digest(topic_id) for one, topic_id in layout.items() if topic_id != ANY_TOPIC_ID}


def name_before(topic: str, start: Mapping[TopicPartition, int]) -> str:
    """The name under which the id is remembered that a topic had before the batch that starts from these offsets.

    >>> name_before("t", {TopicPartition("t", 1): 5, TopicPartition("t", 0): 7})
    't before t-0:7 t-1:5'
    """
    return f"{topic} before {' '.join(f'{partition}:{offset}' for partition, offset in sorted(start.items()))}"


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

    `metadata`: in the order of the partitions. A later one may be left from more topics, and then it does not count.

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
            found.setdefault(pairs[at : at + _HALF], pairs[at + _HALF : at + 2 * _HALF])
    names = {topic: digest(topic.encode()) for topic in topics}
    return {topic: found[name] for topic, name in names.items() if name in found}


def recreated(before: Mapping[str, bytes], now: Mapping[str, bytes]) -> list[str]:
    """Topics that have another digest now than the known one."""
    return sorted(topic for topic, digest_now in now.items() if before.get(topic, digest_now) != digest_now)
