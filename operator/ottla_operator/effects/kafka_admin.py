"""The KafkaAdmin port on kafka-python.

Its client does I/O on a thread of its own and blocks the caller, so each fleet has one worker thread through which its
calls go in order; a fleet that does not answer holds up nobody else.
"""

from __future__ import annotations

import asyncio
import base64
import uuid
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from kafka.admin import AlterConfigOp, ConfigResource, ConfigResourceType, KafkaAdminClient
from kafka.errors import KafkaError as ClientError
from kafka.errors import for_code

from ottla_operator.api.fleet import KafkaView, Partition
from ottla_operator.effects.ports import KafkaError
from ottla_operator.topics.decisions import Alter, Create, DeleteTopic, Grow, TopicChange, TopicView

_Result = TypeVar("_Result")
REQUEST_TIMEOUT_MS = 30_000
CHANGE_TIMEOUT_MS = 20_000
"""How long the controller may take for a change. It answers before the client gives the whole request up."""
BOOTSTRAP_TIMEOUT_MS = 5_000
UNKNOWN_TOPIC = 3
REQUEST_TIMED_OUT = 7
TOPIC_EXISTS = 36
DYNAMIC_TOPIC_CONFIG = "DYNAMIC_TOPIC_CONFIG"


class KafkaAdminLane:
    """One fleet's admin client behind one thread. It connects when first used, and anew after a failure."""

    def __init__(
        self,
        bootstrap: Sequence[str],
        *,
        bootstrap_timeout_ms: int = BOOTSTRAP_TIMEOUT_MS,
        change_timeout_ms: int = CHANGE_TIMEOUT_MS,
    ) -> None:
        self._bootstrap = list(bootstrap)
        self._bootstrap_timeout_ms = bootstrap_timeout_ms
        self._change_timeout_ms = change_timeout_ms
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="kafka-admin")
        self._client: KafkaAdminClient | None = None

    async def view(self) -> KafkaView:
        return await self._call(_view)

    async def brokers(self) -> Sequence[int]:
        return await self._call(lambda client: _broker_ids(client.describe_cluster()))

    async def topics(self, names: Sequence[str]) -> Mapping[str, TopicView]:
        return await self._call(lambda client: _topics(client, names))

    async def change(self, changes: Sequence[TopicChange]) -> Mapping[str, str]:
        return await self._call(lambda client: _change(client, changes, self._change_timeout_ms))

    async def close(self) -> None:
        await asyncio.get_running_loop().run_in_executor(self._thread, self._disconnect)
        self._thread.shutdown(wait=False)

    async def _call(self, act: Callable[[KafkaAdminClient], _Result]) -> _Result:
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._on_thread, act)

    def _on_thread(self, act: Callable[[KafkaAdminClient], _Result]) -> _Result:
        try:
            if self._client is None:
                self._client = KafkaAdminClient(
                    bootstrap_servers=self._bootstrap,
                    client_id="ottla-operator",
                    request_timeout_ms=REQUEST_TIMEOUT_MS,
                    bootstrap_timeout_ms=self._bootstrap_timeout_ms,
                )
            return act(self._client)
        except (ClientError, OSError, ValueError) as error:
            self._disconnect()
            raise KafkaError(f"{type(error).__name__}: {error}") from error

    def _disconnect(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            client.close()


def _view(client: KafkaAdminClient) -> KafkaView:
    cluster = client.describe_cluster()
    partitions = [
        Partition(
            topic["name"],
            partition["partition_index"],
            partition["leader_id"],
            tuple(partition["replica_nodes"]),
            tuple(partition["isr_nodes"]),
        )
        for topic in client.describe_topics()
        for partition in topic["partitions"]
    ]
    return KafkaView(cluster["cluster_id"], cluster["controller_id"], _broker_ids(cluster), tuple(partitions))


def _broker_ids(cluster: Mapping[str, Any]) -> tuple[int, ...]:
    return tuple(sorted(broker["broker_id"] for broker in cluster["brokers"]))


def _topics(client: KafkaAdminClient, names: Sequence[str]) -> dict[str, TopicView]:
    if not names:
        return {}
    described = {topic["name"]: topic for topic in client.describe_topics(list(names))}
    for topic in described.values():
        if topic["error_code"] not in (0, UNKNOWN_TOPIC):
            raise for_code(topic["error_code"])(topic["name"])
    present = [name for name in names if described.get(name, {}).get("error_code") == 0]
    if not present:
        return {}
    configs = client.describe_configs([ConfigResource(ConfigResourceType.TOPIC, name) for name in present])
    views: dict[str, TopicView] = {}
    for name in present:
        topic = described[name]
        values = configs.get("topic", {}).get(name, {})
        views[name] = TopicView(
            name=name,
            topic_id=_topic_id(topic.get("topic_id")),
            partitions=len(topic["partitions"]),
            replicas=min((len(partition["replica_nodes"]) for partition in topic["partitions"]), default=0),
            config={
                key: value["value"]
                for key, value in values.items()
                if value["config_source"] == DYNAMIC_TOPIC_CONFIG and value["value"] is not None
            },
        )
    return views


def _topic_id(value: object) -> str:
    """As Kafka writes it: 22 characters of base64.

    >>> _topic_id("00000000-0000-0000-0000-000000000001")
    'AAAAAAAAAAAAAAAAAAAAAQ'
    """
    return base64.urlsafe_b64encode(uuid.UUID(str(value)).bytes).decode().rstrip("=") if value else ""


def _change(client: KafkaAdminClient, changes: Sequence[TopicChange], timeout_ms: int) -> dict[str, str]:
    """Creates, alters, grows, deletes: at most one request of each kind.

    What the controller has begun and could not finish in time is no error: it goes on, and the next look sees it.
    """
    errors: dict[str, str] = {}
    creates = {
        change.topic: {
            "num_partitions": change.partitions,
            "replication_factor": change.replicas,
            "configs": dict(change.config),
        }
        for change in changes
        if isinstance(change, Create)
    }
    if creates:
        for result in client.create_topics(creates, timeout_ms, raise_errors=False)["topics"]:
            if result["error_code"] != TOPIC_EXISTS:  # metadata lags behind a creation; the next look sees it
                _note(errors, result["name"], result)
    alters = [change for change in changes if isinstance(change, Alter)]
    if alters:
        resources = [
            ConfigResource(
                ConfigResourceType.TOPIC,
                change.topic,
                {
                    **{key: (AlterConfigOp.SET, value) for key, value in change.set.items()},
                    **dict.fromkeys(change.unset, (AlterConfigOp.DELETE, None)),
                },
            )
            for change in alters
        ]
        answered = client.alter_configs(resources, raise_on_unknown=False, incremental=True)
        errors |= {name: str(text) for name, text in answered.get("topic", {}).items() if text != "OK"}
    grows = {change.topic: change.partitions for change in changes if isinstance(change, Grow)}
    if grows:
        for grown in client.create_partitions(grows, timeout_ms, raise_errors=False).to_dict()["results"]:
            _note(errors, grown["name"], grown)
    deletes = [change.topic for change in changes if isinstance(change, DeleteTopic)]
    if deletes:
        for result in client.delete_topics(deletes, timeout_ms, raise_errors=False)["topics"]:
            if result["error_code"] != UNKNOWN_TOPIC:
                _note(errors, result["name"], result)
    return errors


def _note(errors: dict[str, str], topic: str, result: Mapping[str, Any]) -> None:
    if result["error_code"] not in (0, REQUEST_TIMED_OUT):
        message = result.get("error_message") or ""
        errors[topic] = f"{for_code(result['error_code']).__name__.removesuffix('Error')}: {message}"
