"""The znodes of Kafka 3.9: paths and contents, byte for byte. Pure; no access to ZooKeeper.

One class or pair of functions per kind of node, with `path`, `encode` and `decode`. `encode` returns what Apache Kafka
3.9.1 writes, with its order of members (a test compares with Kafka's classes). One exception: the partitions of a topic
are in numeric order, not in the order of a Scala hash table. `decode` also accepts older versions, ignores unknown
members, and raises ZnodeError with the path and the wrong member. ACLs and delegation tokens are in `security_znodes`.

Source: kafka.zk.ZkData.
"""

from __future__ import annotations

import base64
import json
import re
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias
from urllib.parse import quote, unquote

from ottla_broker.config.listeners import Endpoint
from ottla_broker.protocol.number_text import whole_number

BROKER_IDS = "/brokers/ids"
BROKER_SEQUENCE_ID = "/brokers/seqid"
TOPICS = "/brokers/topics"
CONTROLLER = "/controller"
CONTROLLER_EPOCH = "/controller_epoch"
CLUSTER_ID = "/cluster/id"
CONFIG = "/config"
CONFIG_CHANGES = "/config/changes"
DELETE_TOPICS = "/admin/delete_topics"
REASSIGN_PARTITIONS = "/admin/reassign_partitions"
PREFERRED_REPLICA_ELECTION = "/admin/preferred_replica_election"
ISR_CHANGE_NOTIFICATION = "/isr_change_notification"
LOG_DIR_EVENT_NOTIFICATION = "/log_dir_event_notification"
PRODUCER_ID_BLOCK = "/latest_producer_id_block"
FEATURE = "/feature"
CONSUMERS = "/consumers"
MIGRATION = "/migration"
_MAX_PARTITION_REPLICAS = "ottla_max_partition_replicas"
_OTTLA_VERSION = "ottla_version"
OTTLA = "/ottla"
"""Not in Apache Kafka: the parent of what only brokers of Ottla have."""
POWER_LOST = f"{OTTLA}/power_lost"
"""Not in Apache Kafka: an ephemeral node per broker that lost power and is not registered yet."""

CONFIG_TYPES = ("topics", "clients", "users", "brokers", "ips")
CLIENT_METRICS = "client-metrics"
"""Client-metrics resources (KIP-714), which Apache Kafka 3.9 in ZooKeeper mode neither has nor reads."""
DEFAULT_ENTITY = "<default>"
"""The name for all entities of a type that have no node."""

PERSISTENT_PATHS = (
    CONSUMERS,
    BROKER_IDS,
    TOPICS,
    CONFIG_CHANGES,
    DELETE_TOPICS,
    BROKER_SEQUENCE_ID,
    ISR_CHANGE_NOTIFICATION,
    PRODUCER_ID_BLOCK,
    LOG_DIR_EVENT_NOTIFICATION,
    *(f"{CONFIG}/{kind}" for kind in CONFIG_TYPES),
)
"""Created, with their parents, at the start of every broker."""

CONFIG_CHANGE_PREFIX = f"{CONFIG_CHANGES}/config_change_"
ISR_CHANGE_PREFIX = f"{ISR_CHANGE_NOTIFICATION}/isr_change_"
LOG_DIR_EVENT_PREFIX = f"{LOG_DIR_EVENT_NOTIFICATION}/log_dir_event_"

LOG_DIR_FAILURE = 1
NO_LEADER = -1
LEADER_DURING_DELETE = -2
RECOVERED, RECOVERING = 0, 1

TopicPartition: TypeAlias = tuple[str, int]


class ZnodeError(ValueError):
    """The content of a node is not valid. The message names the path and the member."""


# ---- JSON as Kafka's ObjectMapper writes it

_ESCAPES = re.compile(r"\\u[0-9a-f]{4}|\\.|[\U00010000-\U0010ffff]")


def encode_json(value: Any) -> bytes:
    """JSON as Jackson writes it: no spaces, UTF-8; control characters and those above U+FFFF as \\uXXXX in capitals."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return _ESCAPES.sub(_escape_as_jackson, text).encode()


def _escape_as_jackson(match: re.Match[str]) -> str:
    found = match.group()
    if found.startswith("\\"):
        return "\\u" + found[2:].upper() if len(found) > 2 else found
    pair = found.encode("utf-16-be").hex().upper()
    return f"\\u{pair[:4]}\\u{pair[4:]}"


def decode_object(path: str, data: bytes) -> dict[str, Any]:
    """The JSON object in the node at `path`. ZnodeError when it is none."""
    try:
        value = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise ZnodeError(f"{path}: not JSON ({error})") from None
    if not isinstance(value, dict):
        raise ZnodeError(f"{path}: not a JSON object")
    return value


def member(path: str, value: Any, name: str, kind: type | tuple[type, ...], default: Any = ...) -> Any:
    """`value[name]`, or the default. ZnodeError when its type is not `kind`, or it is absent without a default."""
    if not isinstance(value, dict):
        raise ZnodeError(f"{path}: not a JSON object")
    found = value.get(name, default)
    if found is ...:
        raise ZnodeError(f"{path}: member {name!r} is missing")
    if found is default or (isinstance(found, kind) and not isinstance(found, bool)):
        return found
    raise ZnodeError(f"{path}: member {name!r} has a value of the wrong type: {found!r}")


def _integers(path: str, name: str, value: Any) -> tuple[int, ...]:
    if not isinstance(value, list) or not all(type(item) is int for item in value):
        raise ZnodeError(f"{path}: member {name!r} is not a list of integers: {value!r}")
    return tuple(_int32(f"{path}: member {name!r}", item) for item in value)


def _replicas(path: str, name: str, value: Any) -> tuple[int, ...]:
    """The brokers of a partition. One that a tool has named twice counts once, at its first place: it has one replica.

    >>> _replicas("/brokers/topics/t", "partitions.0", [2, 1, 2])
    (2, 1)
    """
    return tuple(dict.fromkeys(_integers(path, name, value)))


def _int32(where: str, value: int) -> int:
    """Checks a number that is an int32 in requests: a larger one makes the encoding of the whole request fail."""
    if not -(2**31) <= value < 2**31:
        raise ZnodeError(f"{where}: {value} does not fit into 32 bits")
    return value


def _number(path: str, text: str) -> int:
    number = whole_number(text)
    if number is None:
        raise ZnodeError(f"{path}: not a number: {text!r}")
    return number


def sanitize(name: str) -> str:
    """A user, client id or principal, percent-encoded for a path. Not for DEFAULT_ENTITY.

    `.` and `..` are encoded too, which no path of ZooKeeper may have as a part.

    >>> sanitize("a b.c"), sanitize(".."), desanitize(sanitize(".."))
    ('a%20b.c', '%2E%2E', '..')
    """
    if name in (".", ".."):
        return name.replace(".", "%2E")
    return quote(name, safe="").replace("~", "%7E")


def desanitize(name: str) -> str:
    return unquote(name)


def sequence_number(path: str) -> int:
    """The number of a sequential node, from its path or name: 7 of ".../isr_change_0000000007"."""
    return _number(path, path[-10:])


# ---- cluster, controller


def encode_cluster_id(cluster_id: str) -> bytes:
    """`/cluster/id`: 22 characters of base64."""
    return encode_json({"version": "1", "id": cluster_id})


def decode_cluster_id(data: bytes) -> str:
    found: str = member(CLUSTER_ID, decode_object(CLUSTER_ID, data), "id", str)
    return found


@dataclass(frozen=True, slots=True)
class ControllerZnode:
    """`/controller`, ephemeral. `kraft_controller_epoch` is -1 outside a migration (KIP-866)."""

    broker_id: int
    timestamp_ms: int
    kraft_controller_epoch: int = -1

    def encode(self) -> bytes:
        return encode_json(
            {
                "version": 2,
                "brokerid": self.broker_id,
                "timestamp": str(self.timestamp_ms),
                "kraftControllerEpoch": self.kraft_controller_epoch,
            }
        )

    @classmethod
    def decode(cls, data: bytes) -> ControllerZnode:
        value = decode_object(CONTROLLER, data)
        return cls(
            _int32(f"{CONTROLLER}: member 'brokerid'", member(CONTROLLER, value, "brokerid", int)),
            _number(CONTROLLER, str(value.get("timestamp", -1))),
            member(CONTROLLER, value, "kraftControllerEpoch", int, -1),
        )


def encode_controller_epoch(epoch: int) -> bytes:
    """`/controller_epoch`: ASCII digits; the first controller writes 1."""
    return str(epoch).encode()


def decode_controller_epoch(data: bytes) -> int:
    return _number(CONTROLLER_EPOCH, data.decode("ascii", "replace"))


# ---- brokers


def _connection_string(endpoint: Endpoint) -> str:
    host = f"[{endpoint.host}]" if ":" in endpoint.host else endpoint.host
    return f"{endpoint.listener}://{host}:{endpoint.port}"


_CONNECTION_STRING = re.compile(r"([^:/]+)://\[?([^\]/]*?)\]?:(-?[0-9]+)")


@dataclass(frozen=True, slots=True)
class BrokerRegistration:
    """`/brokers/ids/N`, ephemeral. Its czxid is the broker epoch. `features` maps a name to (min, max) version.

    `max_partition_replicas` and `ottla_version` are not in Apache Kafka, which ignores them. A registration without the
    second is not that of a broker of ours: then none of the versions above those of Apache Kafka 3.9 is listed.
    """

    broker_id: int
    endpoints: tuple[Endpoint, ...]
    timestamp_ms: int
    rack: str | None = None
    jmx_port: int = -1
    features: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    version: int = 5
    max_partition_replicas: int | None = None
    ottla_version: int | None = None

    @staticmethod
    def path(broker_id: int) -> str:
        return f"{BROKER_IDS}/{broker_id}"

    def encode(self) -> bytes:
        """The top-level host and port are those of the first PLAINTEXT endpoint, for clients of 0.8."""
        plain = next((endpoint for endpoint in self.endpoints if endpoint.security_protocol == "PLAINTEXT"), None)
        value: dict[str, Any] = {}
        if self.version >= 5:
            value["features"] = {
                name: {"min_version": low, "max_version": high} for name, (low, high) in self.features.items()
            }
        if self.version >= 4:
            value["listener_security_protocol_map"] = {
                endpoint.listener: endpoint.security_protocol for endpoint in self.endpoints
            }
        value["endpoints"] = [_connection_string(endpoint) for endpoint in self.endpoints]
        if self.version >= 3 and self.rack is not None:
            value["rack"] = self.rack
        value["jmx_port"] = self.jmx_port
        value["port"] = plain.port if plain else -1
        value["host"] = plain.host if plain else None
        value["version"] = self.version
        value["timestamp"] = str(self.timestamp_ms)
        if self.max_partition_replicas is not None:
            value[_MAX_PARTITION_REPLICAS] = self.max_partition_replicas
        if self.ottla_version is not None:
            value[_OTTLA_VERSION] = self.ottla_version
        return encode_json(value)

    @classmethod
    def decode(cls, broker_id: int, data: bytes) -> BrokerRegistration:
        """Versions 1 (host and port only) to 5."""
        path = cls.path(broker_id)
        _int32(path, broker_id)
        value = decode_object(path, data)
        version = member(path, value, "version", int)
        if version < 1:
            raise ZnodeError(f"{path}: member 'version' is {version}, at least 1 is known")
        if version == 1:
            host, port = (
                member(path, value, "host", str),
                _int32(f"{path}: member 'port'", member(path, value, "port", int)),
            )
            endpoints: tuple[Endpoint, ...] = (Endpoint("PLAINTEXT", host, port, "PLAINTEXT"),)
        else:
            protocols = member(path, value, "listener_security_protocol_map", dict, {})
            endpoints = tuple(_parse_endpoint(path, text, protocols) for text in member(path, value, "endpoints", list))
        features = {}
        for name, versions in member(path, value, "features", dict, {}).items():
            where = f"{path}: feature {name}"
            features[name] = (member(where, versions, "min_version", int), member(where, versions, "max_version", int))
        timestamp = _number(path, str(value.get("timestamp", -1)))
        rack = member(path, value, "rack", (str, type(None)), None)
        jmx_port = member(path, value, "jmx_port", int, -1)
        most = member(path, value, _MAX_PARTITION_REPLICAS, (int, type(None)), None)
        ours = member(path, value, _OTTLA_VERSION, (int, type(None)), None)
        return cls(broker_id, endpoints, timestamp, rack, jmx_port, features, version, most, ours)


def _parse_endpoint(path: str, text: Any, protocols: Mapping[str, str]) -> Endpoint:
    match = _CONNECTION_STRING.fullmatch(text) if isinstance(text, str) else None
    if match is None:
        raise ZnodeError(f"{path}: member 'endpoints' holds {text!r}, not LISTENER://host:port")
    listener, host, port = match.groups()
    number = _int32(f"{path}: member 'endpoints'", _number(path, port))
    # Before version 4 the name of a listener is its security protocol.
    protocol = member(f"{path}: listener_security_protocol_map", protocols, listener, str, listener)
    return Endpoint(listener, host, number, protocol)


# ---- topics and partitions


def encode_topic_id(topic_id: uuid.UUID) -> str:
    """22 characters of URL-safe base64, Kafka's format of a Uuid."""
    return base64.urlsafe_b64encode(topic_id.bytes).rstrip(b"=").decode()


def decode_topic_id(text: str) -> uuid.UUID:
    """Raises ValueError when `text` is no topic id."""
    return uuid.UUID(bytes=base64.urlsafe_b64decode(text + "=="))


def topic_path(topic: str) -> str:
    return f"{TOPICS}/{topic}"


def topic_partitions_path(topic: str) -> str:
    return f"{TOPICS}/{topic}/partitions"


def partition_path(topic: str, partition: int) -> str:
    return f"{TOPICS}/{topic}/partitions/{partition}"


@dataclass(frozen=True, slots=True)
class TopicAssignment:
    """`/brokers/topics/T`: the replicas of every partition, and the replicas that a reassignment adds and removes."""

    partitions: Mapping[int, tuple[int, ...]]
    topic_id: uuid.UUID | None = None
    adding_replicas: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    removing_replicas: Mapping[int, tuple[int, ...]] = field(default_factory=dict)

    def encode(self) -> bytes:
        value: dict[str, Any] = {"partitions": _by_partition(self.partitions)}
        if self.topic_id is not None:
            value["topic_id"] = encode_topic_id(self.topic_id)
        value["adding_replicas"] = _by_partition(_not_empty(self.adding_replicas))
        value["removing_replicas"] = _by_partition(_not_empty(self.removing_replicas))
        value["version"] = 3
        return encode_json(value)

    @classmethod
    def decode(cls, topic: str, data: bytes) -> TopicAssignment:
        """Version 1 has the partitions, 2 adds the reassignment (KIP-455), 3 the topic id (KIP-516). ZnodeError."""
        path = topic_path(topic)
        value = decode_object(path, data)
        topic_id = member(path, value, "topic_id", str, None)
        try:
            parsed = None if topic_id is None else decode_topic_id(topic_id)
        except ValueError:
            raise ZnodeError(f"{path}: member 'topic_id' is no topic id: {topic_id!r}") from None
        replicas, adding, removing = (
            {
                _int32(path, _number(path, partition)): _replicas(path, f"{name}.{partition}", ids)
                for partition, ids in member(path, value, name, dict, {}).items()
            }
            for name in ("partitions", "adding_replicas", "removing_replicas")
        )
        return cls(replicas, parsed, adding, removing)


def _by_partition(replicas: Mapping[int, Sequence[int]]) -> dict[str, list[int]]:
    return {str(partition): list(replicas[partition]) for partition in sorted(replicas)}


def _not_empty(replicas: Mapping[int, Sequence[int]]) -> dict[int, Sequence[int]]:
    return {partition: ids for partition, ids in replicas.items() if ids}


@dataclass(frozen=True, slots=True)
class PartitionStateZnode:
    """`/brokers/topics/T/partitions/P/state`; the node's version is the partition epoch.

    `leader_recovery_state` is RECOVERING after an unclean election until the leader reports RECOVERED (KIP-704).
    `leader_broker_epoch` is the leader's broker epoch as the writer saw it, -1 unknown; not in Apache Kafka, which
    ignores it.
    """

    leader: int
    leader_epoch: int
    controller_epoch: int
    isr: tuple[int, ...]
    leader_recovery_state: int = RECOVERED
    leader_broker_epoch: int = -1

    @staticmethod
    def path(topic: str, partition: int) -> str:
        return f"{partition_path(topic, partition)}/state"

    def encode(self) -> bytes:
        value: dict[str, Any] = {"controller_epoch": self.controller_epoch, "leader": self.leader, "version": 1}
        if self.leader_recovery_state != RECOVERED:
            value["leader_recovery_state"] = self.leader_recovery_state
        value["leader_epoch"] = self.leader_epoch
        value["isr"] = list(self.isr)
        if self.leader_broker_epoch >= 0:
            value["leader_broker_epoch"] = self.leader_broker_epoch
        return encode_json(value)

    @classmethod
    def decode(cls, topic: str, partition: int, data: bytes) -> PartitionStateZnode:
        path = cls.path(topic, partition)
        value = decode_object(path, data)
        leader, leader_epoch, controller_epoch = (
            _int32(f"{path}: member {name!r}", member(path, value, name, int))
            for name in ("leader", "leader_epoch", "controller_epoch")
        )
        return cls(
            leader,
            leader_epoch,
            controller_epoch,
            _replicas(path, "isr", value.get("isr")),
            member(path, value, "leader_recovery_state", int, RECOVERED),
            member(path, value, "leader_broker_epoch", int, -1),
        )


# ---- configuration


def config_path(entity_type: str, name: str) -> str:
    """`/config/topics/t`; users and clients `sanitize` their name first, DEFAULT_ENTITY excepted."""
    return f"{CONFIG}/{entity_type}/{name}"


def user_client_config_path(user: str, client_id: str) -> str:
    """`/config/users/u/clients/c`, each sanitized or DEFAULT_ENTITY."""
    return f"{CONFIG}/users/{user}/clients/{client_id}"


def encode_config(config: Mapping[str, str]) -> bytes:
    """The content of a `/config/...` entity, with sorted keys."""
    return encode_json({"version": 1, "config": dict(sorted(config.items()))})


def decode_config(path: str, data: bytes) -> dict[str, str]:
    """The configuration of an entity; empty when the node is empty. ZnodeError."""
    if not data:
        return {}
    config = member(path, decode_object(path, data), "config", dict, {})
    for name, value in config.items():
        if not isinstance(value, str):
            raise ZnodeError(f"{path}: member 'config.{name}' is not a string: {value!r}")
    return dict(config)


def encode_config_change(entity_path: str) -> bytes:
    """`/config/changes/config_change_N`: the entity below /config whose node has changed ("topics/t")."""
    return encode_json({"version": 2, "entity_path": entity_path})


def decode_config_change(path: str, data: bytes) -> str:
    """The entity path. ZnodeError.

    Version 1 (0.9 and 0.10.0) has the type and the name in members of their own. The tools of 0.8 write the name of a
    topic as a JSON string, which Apache Kafka 3.9 refuses.
    """
    if data.lstrip().startswith(b'"'):
        try:
            return f"topics/{json.loads(data)}"
        except ValueError as error:
            raise ZnodeError(f"{path}: not JSON ({error})") from None
    value = decode_object(path, data)
    if member(path, value, "version", int) == 1:
        return f"{member(path, value, 'entity_type', str)}/{member(path, value, 'entity_name', str)}"
    found: str = member(path, value, "entity_path", str)
    return found


# ---- notifications and requests


def encode_partitions(partitions: Sequence[TopicPartition]) -> bytes:
    """`/isr_change_notification/isr_change_N` and `/admin/preferred_replica_election`."""
    entries = [{"topic": topic, "partition": partition} for topic, partition in partitions]
    return encode_json({"version": 1, "partitions": entries})


def decode_partitions(path: str, data: bytes) -> list[TopicPartition]:
    """The partitions of a notification or request; none when the node is empty. ZnodeError."""
    if not data:
        return []
    entries = member(path, decode_object(path, data), "partitions", list)
    return [_partition_of(path, entry) for entry in entries]


def encode_log_dir_event(broker_id: int) -> bytes:
    """`/log_dir_event_notification/log_dir_event_N`: a log directory of this broker is offline (KIP-112)."""
    return encode_json({"version": 1, "broker": broker_id, "event": LOG_DIR_FAILURE})


def decode_log_dir_event(path: str, data: bytes) -> int:
    """The broker id."""
    found: int = member(path, decode_object(path, data), "broker", int)
    return found


def delete_topic_path(topic: str) -> str:
    """An empty node requests the deletion of the topic."""
    return f"{DELETE_TOPICS}/{topic}"


def encode_reassignment(reassignment: Mapping[TopicPartition, Sequence[int]]) -> bytes:
    """`/admin/reassign_partitions` (tools before KIP-455)."""
    entries = [
        {"topic": topic, "partition": partition, "replicas": list(replicas)}
        for (topic, partition), replicas in reassignment.items()
    ]
    return encode_json({"version": 1, "partitions": entries})


def decode_reassignment(data: bytes) -> dict[TopicPartition, tuple[int, ...]]:
    entries = member(REASSIGN_PARTITIONS, decode_object(REASSIGN_PARTITIONS, data), "partitions", list)
    return {
        _partition_of(REASSIGN_PARTITIONS, entry): _integers(REASSIGN_PARTITIONS, "replicas", entry.get("replicas"))
        for entry in entries
    }


def _partition_of(path: str, entry: Any) -> TopicPartition:
    if not isinstance(entry, dict):
        raise ZnodeError(f"{path}: member 'partitions' holds {entry!r}, not an object")
    return member(path, entry, "topic", str), member(path, entry, "partition", int)


# ---- producer ids, features, offsets of the old consumer


@dataclass(frozen=True, slots=True)
class ProducerIdBlock:
    """`/latest_producer_id_block`: the last allocated block, both ends included. The node is created empty."""

    broker_id: int
    first: int
    last: int

    def encode(self) -> bytes:
        value = {"version": 1, "broker": self.broker_id, "block_start": str(self.first), "block_end": str(self.last)}
        return encode_json(value)

    @classmethod
    def decode(cls, data: bytes) -> ProducerIdBlock:
        value = decode_object(PRODUCER_ID_BLOCK, data)
        first, last = (
            _number(PRODUCER_ID_BLOCK, member(PRODUCER_ID_BLOCK, value, name, str))
            for name in ("block_start", "block_end")
        )
        return cls(member(PRODUCER_ID_BLOCK, value, "broker", int), first, last)


@dataclass(frozen=True, slots=True)
class Features:
    """`/feature`: finalized features with their maximum version level (KIP-584). It may be absent."""

    is_enabled: bool
    max_version_levels: Mapping[str, int] = field(default_factory=dict)

    def encode(self, version: int = 2) -> bytes:
        """Version 1 is for brokers whose inter.broker.protocol.version is below 3.3."""
        features = {
            name: {"max_version_level": level} | ({"min_version_level": level} if version == 1 else {})
            for name, level in self.max_version_levels.items()
        }
        return encode_json({"features": features, "version": version, "status": int(self.is_enabled)})

    @classmethod
    def decode(cls, data: bytes) -> Features:
        """Version 1 also has a minimum version level, which is ignored. ZnodeError."""
        value = decode_object(FEATURE, data)
        status = member(FEATURE, value, "status", int)
        if status not in (0, 1):
            raise ZnodeError(f"{FEATURE}: member 'status' is {status}, 0 and 1 are known")
        features = member(FEATURE, value, "features", dict)
        levels = {
            name: member(f"{FEATURE}: {name}", level, "max_version_level", int) for name, level in features.items()
        }
        return cls(status == 1, levels)


def consumer_offset_path(group: str, topic: str, partition: int) -> str:
    """The node with a group's offset as ASCII digits, for 0.8 consumers and OffsetCommit v0."""
    return f"{CONSUMERS}/{group}/offsets/{topic}/{partition}"


def encode_consumer_offset(offset: int) -> bytes:
    return str(offset).encode()


def decode_consumer_offset(path: str, data: bytes) -> int:
    return _number(path, data.decode("ascii", "replace"))
