"""The topics of the metadata cache as groups of the consumer protocol see them: a `TopicView` (`groups.consumer`)."""

from __future__ import annotations

from collections.abc import Iterable

from ottla_broker.groups.consumer.group_image import SubscribedTopic
from ottla_broker.metadata.cache import MetadataCache
from ottla_broker.protocol.codec import ZERO_UUID


class GroupTopics:
    """A topic without an id, of a cluster before 2.8, is none: a heartbeat names topics by id."""

    def __init__(self, metadata: MetadataCache) -> None:
        self._metadata = metadata

    @property
    def version(self) -> int:
        return self._metadata.topics_version

    def find(self, name: str) -> SubscribedTopic | None:
        topic = self._metadata.topics.get(name)
        if topic is None or topic.topic_id == ZERO_UUID:
            return None
        return SubscribedTopic(topic.topic_id, self._metadata.partition_count(name))

    def name_of(self, topic_id: bytes) -> str | None:
        return self._metadata.topic_name(topic_id)

    def names(self) -> Iterable[str]:
        return list(self._metadata.topics)
