"""The KafkaAdmin port on kafka-python.

Its client does I/O on a thread of its own and blocks the caller, so each fleet has one worker thread through which its
calls go in order; a fleet that does not answer holds up nobody else.
"""

from __future__ import annotations

import asyncio
import base64
import re
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from kafka.admin import AlterConfigOp, ConfigResource, ConfigResourceType, KafkaAdminClient
from kafka.errors import BrokerResponseError, for_code
from kafka.errors import KafkaError as ClientError
from kafka.net.compat import KafkaNetClient
from kafka.net.selector import NetworkSelector

from ottla_operator.api.condition_reasons import KAFKA_ERROR, TOPIC_ALREADY_EXISTS
from ottla_operator.api.fleet import ClusterMetadata, DynamicValue, PartitionReport
from ottla_operator.effects.ports import KafkaUnavailable
from ottla_operator.topics.decisions import (
    AlterTopicConfig,
    CreatePartitions,
    CreateTopic,
    DeleteTopic,
    TopicChange,
    TopicDescription,
)

_Result = TypeVar("_Result")
_Part = TypeVar("_Part")
_Change = TypeVar("_Change", CreateTopic, AlterTopicConfig, CreatePartitions, DeleteTopic)
CLIENT_ID = "ottla-operator"
REQUEST_TIMEOUT_MS = 30_000
CHANGE_TIMEOUT_MS = 20_000
"""How long the controller may take for a change. It answers before the client gives the whole request up."""
BOOTSTRAP_TIMEOUT_MS = 5_000
UNKNOWN_TOPIC = 3
REQUEST_TIMED_OUT = 7
TOPIC_EXISTS = 36
ELECTION_NOT_NEEDED = 84
PREFERRED = 0
"""Election type of ElectLeaders (KIP-460)."""
DYNAMIC_TOPIC_CONFIG = "DYNAMIC_TOPIC_CONFIG"
DYNAMIC_BROKER_CONFIG = "DYNAMIC_BROKER_CONFIG"
DYNAMIC_DEFAULT_BROKER_CONFIG = "DYNAMIC_DEFAULT_BROKER_CONFIG"


class KafkaPythonAdmin:
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

    async def view(self) -> ClusterMetadata:
        return await self._call(_view)

    async def brokers(self) -> Sequence[int]:
        return await self._call(lambda client: _broker_ids(client.describe_cluster()))

    async def dynamic_values(self, broker_ids: Sequence[int]) -> Mapping[int, Sequence[DynamicValue]]:
        return await self._call(lambda client: _dynamic_values(client, broker_ids))

    async def replicas_on(self, broker: int) -> Sequence[str]:
        return await self._call(lambda client: _replicas_on(client, broker))

    async def elect_leaders(self, partitions: Sequence[tuple[str, int]]) -> Mapping[tuple[str, int], str]:
        return await self._call(lambda client: _elect_leaders(client, partitions, self._change_timeout_ms))

    async def topics(self, names: Sequence[str]) -> Mapping[str, TopicDescription]:
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
                self._client = _connect(self._bootstrap, self._bootstrap_timeout_ms)
            return act(self._client)
        except Exception as error:  # what is one topic's own error does not come here
            self._disconnect()
            raise KafkaUnavailable(f"{type(error).__name__}: {error}") from error

    def _disconnect(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            client.close()


def _connect(bootstrap: Sequence[str], timeout_ms: int) -> KafkaAdminClient:
    """A client that has reached the fleet. One that has not is closed: its thread would go on trying for ever."""
    network = NetworkSelector(client_id=CLIENT_ID)
    made: list[KafkaNetClient] = []

    def make(**settings: Any) -> KafkaNetClient:
        made.append(KafkaNetClient(net=network, **settings))
        return made[-1]

    try:
        return KafkaAdminClient(
            bootstrap_servers=list(bootstrap),
            client_id=CLIENT_ID,
            request_timeout_ms=REQUEST_TIMEOUT_MS,
            bootstrap_timeout_ms=timeout_ms,
            kafka_client=make,
        )
    except BaseException:
        for client in made:
            client.close()
        network.stop()
        raise


def _view(client: KafkaAdminClient) -> ClusterMetadata:
    # One request for brokers and partitions: what two brokers answer need not fit together, and a removal of a broker
    # relies on it. The client's public calls ask twice.
    cluster = client._manager.run(client._get_cluster_metadata, None)
    partitions = [
        PartitionReport(
            topic["name"],
            partition["partition_index"],
            partition["leader_id"],
            tuple(partition["replica_nodes"]),
            tuple(partition["isr_nodes"]),
        )
        for topic in cluster["topics"]
        for partition in topic["partitions"]
    ]
    brokers = tuple(sorted(broker["node_id"] for broker in cluster["brokers"]))
    return ClusterMetadata(cluster["cluster_id"], cluster["controller_id"], brokers, tuple(partitions))


def _replicas_on(client: KafkaAdminClient, broker: int) -> tuple[str, ...]:
    # The client's public call names the topics of the metadata: one that is being deleted would be left out.
    (answer,) = client._manager.run(client._async_describe_log_dirs, None, [broker])
    return tuple(
        f"{topic['name']}-{partition['partition_index']}"
        for directory in answer["log_dirs"]
        for topic in directory["topics"]
        for partition in topic["partitions"]
    )


def _elect_leaders(
    client: KafkaAdminClient, partitions: Sequence[tuple[str, int]], timeout_ms: int
) -> dict[tuple[str, int], str]:
    by_topic: dict[str, list[int]] = {}
    for topic, index in partitions:
        by_topic.setdefault(topic, []).append(index)
    answer = client.elect_leaders(PREFERRED, by_topic, timeout_ms, raise_errors=False)
    return {
        (topic.topic, result.partition_id): for_code(result.error_code).__name__.removesuffix("Error")
        for topic in answer.replica_election_results
        for result in topic.partition_result
        if result.error_code not in (0, ELECTION_NOT_NEEDED, REQUEST_TIMED_OUT)
    }


def _broker_ids(cluster: Mapping[str, Any]) -> tuple[int, ...]:
    return tuple(sorted(broker["broker_id"] for broker in cluster["brokers"]))


def _dynamic_values(client: KafkaAdminClient, broker_ids: Sequence[int]) -> dict[int, tuple[DynamicValue, ...]]:
    if not broker_ids:
        return {}
    resources = [ConfigResource(ConfigResourceType.BROKER, str(broker_id)) for broker_id in broker_ids]
    described = client.describe_configs(resources).get("broker", {})
    return {
        broker_id: tuple(
            DynamicValue(key, item["value"], item["config_source"] == DYNAMIC_DEFAULT_BROKER_CONFIG)
            for key, item in sorted(described[str(broker_id)].items())
            if item["config_source"] in (DYNAMIC_BROKER_CONFIG, DYNAMIC_DEFAULT_BROKER_CONFIG)
        )
        for broker_id in broker_ids
        if str(broker_id) in described
    }


def _topics(client: KafkaAdminClient, names: Sequence[str]) -> dict[str, TopicDescription]:
    described: dict[str, Mapping[str, Any]] = {}
    views: dict[str, TopicDescription] = {}

    def describe(part: Sequence[str]) -> None:
        described.update({topic["name"]: topic for topic in client.describe_topics(list(part))})

    for name, error in _in_one_request(describe, names):
        views[name] = _failed(name, error)
    present = []
    for name, topic in described.items():
        if topic["error_code"] == 0:
            present.append(name)
        elif topic["error_code"] != UNKNOWN_TOPIC:
            views[name] = _failed(name, _error_text(topic["error_code"], ""))
    configs: dict[str, Mapping[str, Any]] = {}

    def describe_configs(part: Sequence[str]) -> None:
        resources = [ConfigResource(ConfigResourceType.TOPIC, name) for name in part]
        configs.update(client.describe_configs(resources).get("topic", {}))

    for name, error in _in_one_request(describe_configs, present):
        views[name] = _failed(name, error)
    for name in present:
        topic, values = described[name], configs.get(name)
        if name in views:
            continue
        if values is None:
            views[name] = _failed(name, f"{KAFKA_ERROR}: no broker answered for its configuration")
            continue
        views[name] = TopicDescription(
            name=name,
            topic_id=_topic_id(topic.get("topic_id")),
            partitions=len(topic["partitions"]),
            replicas=min((len(partition["replica_nodes"]) for partition in topic["partitions"]), default=0),
            config={
                key: value["value"]
                for key, value in values.items()
                if value["config_source"] == DYNAMIC_TOPIC_CONFIG and value["value"] is not None
            },
            is_internal=bool(topic.get("is_internal")),
        )
    return views


def _failed(name: str, error: str) -> TopicDescription:
    return TopicDescription(name, "", 0, 0, {}, error=error)


def _in_one_request(ask: Callable[[Sequence[_Part]], None], parts: Sequence[_Part]) -> list[tuple[_Part, str]]:
    """Asks for all parts at once, and gives those that failed with their errors.

    What cannot be written into a request is not asked for: the client's own thread may meet it, and whoever asked then
    waits for ever. Where an answer cannot be read, each part is asked for alone: the client raises for a whole request
    what one of its topics has wrong (a code that it does not know). A fleet that does not answer is raised.
    """
    failed = [(part, why) for part in parts if (why := _why_not_sent(part))]
    asked = [part for part in parts if not _why_not_sent(part)]
    if not asked:
        return failed
    try:
        ask(asked)
        return failed
    except Exception as error:
        if _is_of_fleet(error):
            raise
        if len(asked) == 1:
            return [*failed, (asked[0], f"{type(error).__name__.removesuffix('Error')}: {error}")]
    return [*failed, *(one for part in asked for one in _in_one_request(ask, [part]))]


def _why_not_sent(part: object) -> str:
    """Why a topic's name, or a change of a topic, has no place in a request; "" where it has.

    >>> _why_not_sent("usual"), _why_not_sent(CreatePartitions("t", 2**40))
    ('', 'InvalidPartitions: 1099511627776 is no number of partitions')
    """
    match part:
        case CreateTopic(topic, partitions, replicas, config):
            texts = [topic, *config, *config.values()]
        case AlterTopicConfig(topic, to_set, to_unset):
            texts, partitions, replicas = [topic, *to_set, *to_set.values(), *to_unset], 1, 1
        case CreatePartitions(topic, partitions):
            texts, replicas = [topic], 1
        case DeleteTopic(topic):
            texts, partitions, replicas = [topic], 1, 1
        case _:
            texts, partitions, replicas = [str(part)], 1, 1
    for text in texts:
        try:
            text.encode()
        except UnicodeEncodeError:
            return f"InvalidRequest: {text!r} is not text in UTF-8"
    if not -1 <= partitions < 1 << 31:
        return f"InvalidPartitions: {partitions} is no number of partitions"
    if not -1 <= replicas < 1 << 15:
        return f"InvalidReplicationFactor: {replicas} is no number of replicas"
    return ""


def _is_of_fleet(error: Exception) -> bool:
    """Whether nobody answered, or an answer said nothing of any topic."""
    if isinstance(error, BrokerResponseError):
        return bool(error.retriable)
    return isinstance(error, ClientError | OSError | RuntimeError)


def _topic_id(value: object) -> str:
    """As Kafka writes it: 22 characters of base64.

    >>> _topic_id("00000000-0000-0000-0000-000000000001")
    'AAAAAAAAAAAAAAAAAAAAAQ'
    """
    number = uuid.UUID(str(value)) if value else uuid.UUID(int=0)
    return base64.urlsafe_b64encode(number.bytes).decode().rstrip("=") if number.int else ""


def _change(client: KafkaAdminClient, changes: Sequence[TopicChange], timeout_ms: int) -> dict[str, str]:
    """Creates, alters, grows, deletes: at most one request of each kind.

    What the controller has begun and could not finish in time is no error: it goes on, and the next look sees it.
    """
    errors: dict[str, str] = {}

    def create(part: Sequence[CreateTopic]) -> None:
        wanted = {
            change.topic: {
                "num_partitions": change.partitions,
                "replication_factor": change.replicas,
                "configs": dict(change.config),
            }
            for change in part
        }
        _note(errors, client.create_topics(wanted, timeout_ms, raise_errors=False)["topics"])

    def alter(part: Sequence[AlterTopicConfig]) -> None:
        resources = [
            ConfigResource(
                ConfigResourceType.TOPIC,
                change.topic,
                {
                    **{key: (AlterConfigOp.SET, value) for key, value in change.set.items()},
                    **dict.fromkeys(change.unset, (AlterConfigOp.DELETE, None)),
                },
            )
            for change in part
        ]
        answered = client.alter_configs(resources, raise_on_unknown=False, incremental=True)
        for name, text in answered.get("topic", {}).items():
            if text != "OK":
                errors.setdefault(name, _without_code(str(text)))

    def grow(part: Sequence[CreatePartitions]) -> None:
        wanted = {change.topic: change.partitions for change in part}
        _note(errors, client.create_partitions(wanted, timeout_ms, raise_errors=False).to_dict()["results"])

    def delete(part: Sequence[DeleteTopic]) -> None:
        answered = client.delete_topics([change.topic for change in part], timeout_ms, raise_errors=False)["topics"]
        _note(errors, [result for result in answered if result["error_code"] != UNKNOWN_TOPIC])

    def do(ask: Callable[[Sequence[_Change]], None], part: Sequence[_Change]) -> None:
        for change, error in _in_one_request(ask, part):
            errors.setdefault(change.topic, error)

    do(create, [change for change in changes if isinstance(change, CreateTopic)])
    do(alter, [change for change in changes if isinstance(change, AlterTopicConfig)])
    do(grow, [change for change in changes if isinstance(change, CreatePartitions)])
    do(delete, [change for change in changes if isinstance(change, DeleteTopic)])
    return errors


def _note(errors: dict[str, str], results: Iterable[Mapping[str, Any]]) -> None:
    for result in results:
        if result["error_code"] not in (0, REQUEST_TIMED_OUT):
            errors.setdefault(result["name"], _error_text(result["error_code"], result.get("error_message") or ""))


def _error_text(code: int, message: str) -> str:
    """
    >>> _error_text(36, "it is there"), _error_text(17, "")
    ('TopicAlreadyExists: it is there', 'InvalidTopic: the brokers refuse it')
    """
    name = TOPIC_ALREADY_EXISTS if code == TOPIC_EXISTS else for_code(code).__name__.removesuffix("Error")
    return f"{name}: {message or 'the brokers refuse it'}"


def _without_code(text: str) -> str:
    """The client's text of an error as a reason and a message.

    >>> _without_code("[Error 40] InvalidConfigurationError: Unknown topic config name: a")
    'InvalidConfiguration: Unknown topic config name: a'
    """
    name, _, message = re.sub(r"^\[Error -?[0-9]+\] ", "", text).partition(": ")
    return f"{name.removesuffix('Error')}: {message}" if re.fullmatch("[A-Za-z]+", name) else f"{KAFKA_ERROR}: {text}"
