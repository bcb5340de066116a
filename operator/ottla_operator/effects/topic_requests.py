"""The requests for topics of the KafkaAdmin port: describe, create, alter, add partitions, delete.

One request for all topics where that works. kafka-python raises for a whole request what one of its topics has wrong;
then each topic is asked for alone, so that its error is its own.
"""

from __future__ import annotations

import base64
import re
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from kafka.admin import AlterConfigOp, ConfigResource, ConfigResourceType, KafkaAdminClient
from kafka.errors import BrokerResponseError, for_code
from kafka.errors import KafkaError as ClientError

from ottla_documents.limits import too_long_for_kafka
from ottla_operator.api.condition_reasons import KAFKA_ERROR
from ottla_operator.api.topics import (
    AlterTopicConfig,
    CreatePartitions,
    CreateTopic,
    DeleteTopic,
    TopicChange,
    TopicDescription,
)
from ottla_operator.concerns.topics.reasons import TOPIC_ALREADY_EXISTS

_Part = TypeVar("_Part")
_Change = TypeVar("_Change", CreateTopic, AlterTopicConfig, CreatePartitions, DeleteTopic)
UNKNOWN_TOPIC = 3
UNKNOWN_TOPIC_ID = 100
REQUEST_TIMED_OUT = 7
TOPIC_EXISTS = 36
DYNAMIC_TOPIC_CONFIG = "DYNAMIC_TOPIC_CONFIG"
SHOWN_LENGTH = 40


def describe_topics(client: KafkaAdminClient, names: Sequence[str]) -> dict[str, TopicDescription]:
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
            whole=tuple(
                len(partition["replica_nodes"])
                for partition in topic["partitions"]
                if len(partition["isr_nodes"]) == len(partition["replica_nodes"])
            ),
        )
    return views


def _failed(name: str, error: str) -> TopicDescription:
    return TopicDescription(name, "", 0, 0, {}, error=error)


def _in_one_request(ask: Callable[[Sequence[_Part]], None], parts: Sequence[_Part]) -> list[tuple[_Part, str]]:
    """Sends one request for all parts. Returns the parts that failed, with their errors.

    A part that cannot be encoded is not sent: encoding fails on the client's own thread, and the caller would wait for
    ever. When the request fails for another reason than a missing answer, each part is sent alone: the client raises
    for a whole request what one topic has wrong, such as an error code that it does not know.
    """
    failed = [(part, why) for part in parts if (why := _encoding_error(part))]
    asked = [part for part in parts if not _encoding_error(part)]
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


def _encoding_error(part: object) -> str:
    """Why a topic's name, or a change of a topic, cannot be encoded; "" when it can.

    >>> _encoding_error("usual"), _encoding_error(CreatePartitions("t", 2**40))
    ('', 'InvalidPartitions: 1099511627776 is no number of partitions')
    """
    match part:
        case CreateTopic(topic, partitions, replicas, config):
            texts = [topic, *config, *config.values()]
        case AlterTopicConfig(topic, to_set, to_unset):
            texts, partitions, replicas = [topic, *to_set, *to_set.values(), *to_unset], 1, 1
        case CreatePartitions(topic, partitions):
            texts, replicas = [topic], 1
        case DeleteTopic(topic, topic_id):
            if topic_id and _uuid(topic_id) is None:
                return f"InvalidRequest: {topic_id!r} is no topic id"
            texts, partitions, replicas = [topic], 1, 1
        case _:
            texts, partitions, replicas = [str(part)], 1, 1
    for text in texts:
        try:
            text.encode()
        except UnicodeEncodeError:
            return f"InvalidRequest: {text!r} is not text in UTF-8"
        if wrong := too_long_for_kafka(text):
            return f"InvalidRequest: {text[:SHOWN_LENGTH]!r}… {wrong}"
    if not -1 <= partitions < 1 << 31:
        return f"InvalidPartitions: {partitions} is no number of partitions"
    if not -1 <= replicas < 1 << 15:
        return f"InvalidReplicationFactor: {replicas} is no number of replicas"
    return ""


def _is_of_fleet(error: Exception) -> bool:
    """Whether no broker answered, or the answer has no error of a topic."""
    if isinstance(error, BrokerResponseError):
        return bool(error.retriable)
    return isinstance(error, ClientError | OSError | RuntimeError)


def _topic_id(value: object) -> str:
    """A topic id as Kafka prints it: 22 characters of base64.

    >>> _topic_id("00000000-0000-0000-0000-000000000001")
    'AAAAAAAAAAAAAAAAAAAAAQ'
    """
    number = uuid.UUID(str(value)) if value else uuid.UUID(int=0)
    return base64.urlsafe_b64encode(number.bytes).decode().rstrip("=") if number.int else ""


def _uuid(topic_id: str) -> uuid.UUID | None:
    """The number of a topic id that Kafka has printed; None when it is none.

    >>> _topic_id(_uuid("AAAAAAAAAAAAAAAAAAAAAQ")), _uuid("gone")
    ('AAAAAAAAAAAAAAAAAAAAAQ', None)
    """
    try:
        return uuid.UUID(bytes=base64.b64decode(f"{topic_id}==", b"-_", validate=True))
    except ValueError:
        return None


def change_topics(client: KafkaAdminClient, changes: Sequence[TopicChange], timeout_ms: int) -> dict[str, str]:
    """Creates topics, alters configuration, adds partitions, deletes topics: at most one request of each kind.

    A timeout of a change is no error: the controller goes on, and the metadata shows the result.
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

    def create_partitions(part: Sequence[CreatePartitions]) -> None:
        wanted = {change.topic: change.partitions for change in part}
        _note(errors, client.create_partitions(wanted, timeout_ms, raise_errors=False).to_dict()["results"])

    def delete(part: Sequence[DeleteTopic]) -> None:
        wanted = [_uuid(change.topic_id) or change.topic for change in part]
        answered = client.delete_topics(wanted, timeout_ms, raise_errors=False)["topics"]
        named = {change.topic_id: change.topic for change in part if change.topic_id}
        gone = (UNKNOWN_TOPIC, UNKNOWN_TOPIC_ID)
        _note(
            errors,
            [
                {**result, "name": named.get(_topic_id(result.get("topic_id")), result["name"])}
                for result in answered
                if result["error_code"] not in gone
            ],
        )

    def do(ask: Callable[[Sequence[_Change]], None], part: Sequence[_Change]) -> None:
        for change, error in _in_one_request(ask, part):
            errors.setdefault(change.topic, error)

    do(create, [change for change in changes if isinstance(change, CreateTopic)])
    do(alter, [change for change in changes if isinstance(change, AlterTopicConfig)])
    do(create_partitions, [change for change in changes if isinstance(change, CreatePartitions)])
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
    """The error text of the client as "Name: message".

    >>> _without_code("[Error 40] InvalidConfigurationError: Unknown topic config name: a")
    'InvalidConfiguration: Unknown topic config name: a'
    """
    name, _, message = re.sub(r"^\[Error -?[0-9]+\] ", "", text).partition(": ")
    return f"{name.removesuffix('Error')}: {message}" if re.fullmatch("[A-Za-z]+", name) else f"{KAFKA_ERROR}: {text}"
