"""A Kafka in memory that answers as brokers do: values of configurations as they print them, errors by topic, metadata
that may be behind; and that notes what was deleted.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from ottla_broker.config.definitions.topics import TOPIC_KEYS
from ottla_broker.config.topics import validate_topic_config
from ottla_broker.config.types import format_value
from ottla_broker.protocol.errors import KafkaError as BrokerError
from ottla_operator.api.topics import (
    AlterTopicConfig,
    CreatePartitions,
    CreateTopic,
    DeleteTopic,
    TopicChange,
    TopicDescription,
)
from ottla_operator.concerns.topics.reasons import TOPIC_ALREADY_EXISTS
from ottla_operator.ports import KafkaUnavailable
from tests.operator.fleet import InMemoryKafka
from tests.operator.kubernetes import InMemoryKubernetes

TOPIC_NAME = re.compile(r"(?!\.\.?$)[a-zA-Z0-9._-]{1,249}")
DEFAULT_PARTITIONS, DEFAULT_REPLICAS = 1, 1


def printed(config: Mapping[str, str]) -> dict[str, str]:
    """Configuration values as DescribeConfigs gives them."""
    found = {}
    for key, value in config.items():
        known = TOPIC_KEYS.get(key)
        found[key] = str(format_value(known.parse(value))) if known is not None else value
    return found


class ModelKafka(InMemoryKafka):
    """`on_create` is called with a topic that the operator has made, `on_delete` with one before it goes."""

    def __init__(
        self,
        kubernetes: InMemoryKubernetes,
        on_create: Callable[[TopicDescription], None],
        on_delete: Callable[[TopicDescription], None],
    ) -> None:
        super().__init__(kubernetes)
        self._on_create, self._on_delete = on_create, on_delete
        self._ids = 0

    def make(self, name: str, partitions: int, replicas: int, config: Mapping[str, str]) -> TopicDescription:
        """As somebody with kafka-topics does, or auto-creation."""
        self._ids += 1
        view = TopicDescription(
            name, f"id-{self._ids}", partitions, replicas, dict(config), is_internal=name.startswith("__")
        )
        self.topics_there[name] = view
        return view

    async def topics(self, wanted: Sequence[str]) -> Mapping[str, TopicDescription]:
        await self.brokers()
        self.asked += wanted
        failed = {
            name: TopicDescription(name, "", 0, 0, {}, error=f"InvalidTopic: {name}")
            for name in wanted
            if not TOPIC_NAME.fullmatch(name)
        }
        views = [self.topics_there[name] for name in wanted if name in self.topics_there.keys() - self.unseen]
        return failed | {view.name: replace(view, config=printed(view.config)) for view in views}

    async def change(self, changes: Sequence[TopicChange]) -> Mapping[str, str]:
        brokers = len(await self.brokers())
        errors: dict[str, str] = {}
        for change in changes:
            error = self.refusals.get(change.topic) or self._refusal(change, brokers)
            if error:
                errors[change.topic] = error
                continue
            self.requests.append(change)
            self._do(change)
        if self.is_slow:
            raise KafkaUnavailable("timed out")
        return errors

    def _refusal(self, change: TopicChange, brokers: int) -> str:
        live = self.topics_there.get(change.topic)
        if not TOPIC_NAME.fullmatch(change.topic):
            return f"InvalidTopicError: {change.topic}"
        if isinstance(change, CreateTopic) and live is None and change.replicas > brokers:
            return "InvalidReplicationFactorError: too many"
        if isinstance(change, CreateTopic) and live is not None:
            return f"{TOPIC_ALREADY_EXISTS}: it is there"
        if live is None and isinstance(change, AlterTopicConfig | CreatePartitions):
            return "UnknownTopicOrPartitionError: gone"
        if isinstance(change, CreatePartitions) and live is not None and change.partitions <= live.partitions:
            return "InvalidPartitionsError: too few"
        if isinstance(change, DeleteTopic) and change.topic.startswith("__"):
            return "InvalidTopicError: is internal"
        if isinstance(change, CreateTopic | AlterTopicConfig):
            try:
                validate_topic_config(change.config if isinstance(change, CreateTopic) else change.set)
            except BrokerError as error:
                return f"InvalidConfigurationError: {error}"
        return ""

    def _do(self, change: TopicChange) -> None:
        live = self.topics_there.get(change.topic)
        if isinstance(change, CreateTopic):
            partitions = change.partitions if change.partitions > 0 else DEFAULT_PARTITIONS
            replicas = change.replicas if change.replicas > 0 else DEFAULT_REPLICAS
            self._on_create(self.make(change.topic, partitions, replicas, change.config))
        elif live is None:
            return
        elif isinstance(change, DeleteTopic):
            if change.topic_id not in ("", live.topic_id):
                return
            self._on_delete(live)
            del self.topics_there[change.topic]
        elif isinstance(change, CreatePartitions):
            self.topics_there[change.topic] = replace(live, partitions=change.partitions)
        else:
            config = {key: value for key, value in live.config.items() if key not in change.unset} | change.set
            self.topics_there[change.topic] = replace(live, config=config)
