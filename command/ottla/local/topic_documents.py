"""Creates and alters the declared topics of a running fleet. It deletes no topics and no partitions.

It sends CreateTopics, Metadata, CreatePartitions, DescribeConfigs and IncrementalAlterConfigs itself, so that a local
fleet needs no client library.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ottla.local.controller_requests import METADATA_VERSION, TIMEOUT_MS, ControllerRequests, metadata_request
from ottla_broker.config import ConfigSource
from ottla_broker.ports import Clock
from ottla_broker.ports.network import Connector
from ottla_broker.protocol import codec
from ottla_broker.protocol.api import ApiKey
from ottla_broker.protocol.errors import ErrorCode
from ottla_documents.kafka_topic import KafkaTopic
from ottla_documents.topic_config import is_same_value

_TOPIC_RESOURCE = 2
_SET = 0
_DELETE = 1
_SET_BY_TOOLS = ("leader.replication.throttled.replicas", "follower.replication.throttled.replicas")
"""Topic keys that tools set during a reassignment."""


@dataclass(frozen=True, slots=True)
class TopicOutcome:
    """What was done for one declared topic, or the error.

    `done`: "created", "unchanged", or the changes: "grown to 12 partitions, retention.ms from 1000 to 2000".
    `exists`: False where it could not be created.
    """

    name: str
    done: str
    error: str = ""
    exists: bool = True


async def apply_topics(
    connector: Connector, clock: Clock, host: str, port: int, topics: Sequence[KafkaTopic]
) -> list[TopicOutcome]:
    """Creates or alters every topic as declared, through the controller, which the broker at host:port reports."""
    requests = ControllerRequests(connector, clock, (host, port))
    try:
        return [await _apply(_Fleet(requests), topic) for topic in topics]
    finally:
        requests.close()


async def _apply(fleet: _Fleet, topic: KafkaTopic) -> TopicOutcome:
    name = topic.topic_name
    created, message = await fleet.create(topic)
    if created == ErrorCode.NONE:
        return TopicOutcome(name, "created")
    if created != ErrorCode.TOPIC_ALREADY_EXISTS:
        return TopicOutcome(name, "", message, exists=False)
    code, message, partitions, replicas = await fleet.describe(name)
    if code != ErrorCode.NONE:
        return TopicOutcome(name, "", message)
    done: list[str] = []
    if topic.replicas not in (-1, replicas):
        return TopicOutcome(
            name, "", f"spec.replicas: it has {replicas}; changing to {topic.replicas} is not served yet"
        )
    if topic.partitions != -1 and topic.partitions < partitions:
        return TopicOutcome(name, "", f"spec.partitions: it has {partitions}; partitions cannot be removed")
    if topic.partitions > partitions:
        code, message = await fleet.grow(name, topic.partitions)
        if code != ErrorCode.NONE:
            return TopicOutcome(name, "", f"spec.partitions: {message}")
        done.append(f"grown to {topic.partitions} partitions")
    code, message, current = await fleet.config(name)
    if code != ErrorCode.NONE:
        return TopicOutcome(name, "", f"spec.config: {message}")
    changes = config_changes(current, topic.config, topic.unmanaged_config)
    if changes:
        code, message = await fleet.alter(name, changes)
        if code != ErrorCode.NONE:
            return TopicOutcome(name, "", f"spec.config: {message}")
        done += (_shown(key, current.get(key), value) for key, value in changes.items())
    return TopicOutcome(name, ", ".join(done) or "unchanged")


def config_changes(
    current: Mapping[str, str], declared: Mapping[str, str], unmanaged: Collection[str] = ()
) -> dict[str, str | None]:
    """The changes that make a topic's overrides those of its document: a value to set by key, None to delete.

    Equal values with different spelling are no change. Keys that tools set during a reassignment are not changed, nor
    those of `unmanaged`.

    >>> config_changes({"retention.ms": "1000", "preallocate": "true"}, {"preallocate": "TRUE"})
    {'retention.ms': None}
    """
    changes: dict[str, str | None] = {
        key: text for key, text in declared.items() if key not in current or not is_same_value(key, current[key], text)
    }
    kept = {*declared, *unmanaged, *_SET_BY_TOOLS}
    changes.update((key, None) for key in current if key not in kept)
    return changes


def _shown(key: str, before: str | None, after: str | None) -> str:
    if after is None:
        return f"{key} from {before} to its default"
    return f"{key} set to {after}" if before is None else f"{key} from {before} to {after}"


class _Fleet:
    """Sends requests to the current controller."""

    def __init__(self, requests: ControllerRequests) -> None:
        self._requests = requests

    async def create(self, topic: KafkaTopic) -> tuple[int, str]:
        api = codec.module(ApiKey.CREATE_TOPICS)
        request = api.CreateTopicsRequest(
            topics=[
                api.CreatableTopic(
                    name=topic.topic_name,
                    num_partitions=topic.partitions,
                    replication_factor=topic.replicas,
                    configs=[api.CreatableTopicConfig(name=key, value=value) for key, value in topic.config.items()],
                )
            ],
            timeout_ms=TIMEOUT_MS,
        )
        return await self._requests.ask(
            ApiKey.CREATE_TOPICS, 7, request, lambda r: (r.topics[0].error_code, r.topics[0].error_message)
        )

    async def grow(self, name: str, partitions: int) -> tuple[int, str]:
        api = codec.module(ApiKey.CREATE_PARTITIONS)
        request = api.CreatePartitionsRequest(
            topics=[api.CreatePartitionsTopic(name=name, count=partitions, assignments=None)], timeout_ms=TIMEOUT_MS
        )
        return await self._requests.ask(
            ApiKey.CREATE_PARTITIONS, 3, request, lambda r: (r.results[0].error_code, r.results[0].error_message)
        )

    async def config(self, name: str) -> tuple[int, str, dict[str, str]]:
        """(error code, message, the overrides of the topic)."""
        api = codec.module(ApiKey.DESCRIBE_CONFIGS)
        resource = api.DescribeConfigsResource(
            resource_type=_TOPIC_RESOURCE, resource_name=name, configuration_keys=None
        )
        found: dict[str, str] = {}

        def result(response: Any) -> tuple[int, str]:
            answer = response.results[0]
            found.clear()
            found.update(
                (entry.name, entry.value or "")
                for entry in answer.configs
                if entry.config_source == ConfigSource.TOPIC_CONFIG
            )
            return answer.error_code, answer.error_message

        request = api.DescribeConfigsRequest(resources=[resource])
        code, message = await self._requests.ask(ApiKey.DESCRIBE_CONFIGS, 4, request, result)
        return code, message, found

    async def alter(self, name: str, changes: Mapping[str, str | None]) -> tuple[int, str]:
        """Sets these keys of a topic, and deletes those whose value is None."""
        api = codec.module(ApiKey.INCREMENTAL_ALTER_CONFIGS)
        request = api.IncrementalAlterConfigsRequest(
            resources=[
                api.AlterConfigsResource(
                    resource_type=_TOPIC_RESOURCE,
                    resource_name=name,
                    configs=[
                        api.AlterableConfig(name=key, config_operation=_DELETE if value is None else _SET, value=value)
                        for key, value in changes.items()
                    ],
                )
            ]
        )
        return await self._requests.ask(
            ApiKey.INCREMENTAL_ALTER_CONFIGS,
            1,
            request,
            lambda r: (r.responses[0].error_code, r.responses[0].error_message),
        )

    async def describe(self, name: str) -> tuple[int, str, int, int]:
        """(error code, message, partitions, replicas) of a topic, once the controller's broker has its metadata."""
        partitions = replicas = 0

        def result(response: Any) -> tuple[int, str]:
            nonlocal partitions, replicas
            topic = response.topics[0]
            partitions = len(topic.partitions)
            replicas = len(topic.partitions[0].replica_nodes) if partitions else 0
            return topic.error_code, ""

        code, message = await self._requests.ask(ApiKey.METADATA, METADATA_VERSION, metadata_request([name]), result)
        return code, message, partitions, replicas
