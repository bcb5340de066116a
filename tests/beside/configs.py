"""Every configuration key of 3.9 with values around its bounds, set on both brokers: the same answers.

For each broker key, for this broker and for the default of all brokers, and for each topic key: AlterConfigs and
IncrementalAlterConfigs that only validate; then, where both take the value, the change itself, what DescribeConfigs
shows of the key behind it, and the deletion. `deliberate` says where ours answers otherwise, and why.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from ottla_broker.config import BROKER_KEYS, TOPIC_KEYS, ConfigKey, ConfigType
from ottla_broker.config.types import Bounds, Known, OneOf, format_value
from ottla_broker.protocol import codec
from ottla_broker.protocol.api import ApiKey
from ottla_broker.protocol.errors import ErrorCode
from tests.beside.comparison import difference
from tests.beside.requests import Request

BROKER_ID = "1"
TOPIC = "t"
_TOPIC_RESOURCE, _BROKER_RESOURCE = 2, 4
_SET, _DELETE, _APPEND, _SUBTRACT = range(4)
_INT_MAX, _LONG_MAX = 2147483647, 9223372036854775807
SINCE_3_9 = ("cordoned.log.dirs", "transaction.two.phase.commit.enable")
"""Keys of later releases that are served here too."""
OWN_DEFAULTS = ("queued.max.request.bytes",)
"""Apache Kafka's default is no limit, because its heap is one; ours is a part of the memory (decision 120)."""


@dataclass(frozen=True, slots=True)
class Case:
    """One change of one resource. `operations`: (key, operation, value)."""

    resource_type: int
    resource_name: str
    operations: tuple[tuple[str, int, str | None], ...]

    def __str__(self) -> str:
        where = {_TOPIC_RESOURCE: "topic", _BROKER_RESOURCE: "broker" if self.resource_name else "all brokers"}
        signs = ("=", " deleted", "+=", "-=")
        changes = ", ".join(
            f"{key}{signs[kind]}{'' if value is None else repr(value)}" for key, kind, value in self.operations
        )
        return f"{where[self.resource_type]}: {changes}"

    @property
    def key(self) -> str:
        return self.operations[0][0]

    def incremental(self, *, validate_only: bool) -> Request:
        api = codec.module(ApiKey.INCREMENTAL_ALTER_CONFIGS)
        configs = [api.AlterableConfig(name=k, config_operation=o, value=v) for k, o, v in self.operations]
        resource = api.AlterConfigsResource(
            resource_type=self.resource_type, resource_name=self.resource_name, configs=configs
        )
        body = api.IncrementalAlterConfigsRequest(resources=[resource], validate_only=validate_only)
        return Request(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, body)

    def replacing(self) -> Request:
        """AlterConfigs, validated only: it would take everything else away."""
        api = codec.module(ApiKey.ALTER_CONFIGS)
        configs = [api.AlterableConfig(name=key, value=value) for key, _, value in self.operations]
        resource = api.AlterConfigsResource(
            resource_type=self.resource_type, resource_name=self.resource_name, configs=configs
        )
        return Request(ApiKey.ALTER_CONFIGS, 2, api.AlterConfigsRequest(resources=[resource], validate_only=True))

    def deleting(self) -> Request:
        operations = tuple((key, _DELETE, None) for key, _, _ in self.operations)
        return Case(self.resource_type, self.resource_name, operations).incremental(validate_only=False)

    def describing(self) -> Request:
        api = codec.module(ApiKey.DESCRIBE_CONFIGS)
        names = [key for key, _, _ in self.operations]
        resource = api.DescribeConfigsResource(
            resource_type=self.resource_type, resource_name=self.resource_name, configuration_keys=names
        )
        return Request(
            ApiKey.DESCRIBE_CONFIGS, 4, api.DescribeConfigsRequest(resources=[resource], include_synonyms=True)
        )


def values_of(key: ConfigKey) -> list[str]:
    """Values for one key: its bounds and those beside them, nothing, blanks, values of other types, its words."""
    found = ["", " ", "abc", "true", "0", "-1", "1", "007", "1.5", str(_INT_MAX + 1), str(_LONG_MAX + 1), "a,b"]
    default = format_value(key.default)
    if default is not None:
        found += [default, f" {default} "]
    if isinstance(key.validator, Bounds):
        for bound in (key.validator.low, key.validator.high, key.validator.also):
            if bound is not None:
                found += [f"{bound:.15g}" if isinstance(bound, float) else str(bound)]
                found += [str(int(bound) + step) for step in (-1, 1)] if abs(bound) < _LONG_MAX else []
    if isinstance(key.validator, OneOf):
        found += [*key.validator.words, ",".join(key.validator.words), *(word.upper() for word in key.validator.words)]
    if key.type in (ConfigType.INT, ConfigType.LONG) and isinstance(key.default, int):
        found += [
            str(key.default * 2),
            str(key.default // 2),
            str(key.default * 2 + 1),
            str(max(key.default // 2 - 1, 0)),
        ]
    return list(dict.fromkeys(found))


def broker_keys() -> list[ConfigKey]:
    """Those of 3.9: Apache Kafka takes any value of a key that it does not know."""
    return [
        key
        for key in BROKER_KEYS.values()
        if key.known in (Known.KAFKA, Known.DYNAMIC) and not key.internal and key.name not in SINCE_3_9
    ]


JOINED: tuple[dict[str, str], ...] = (
    {"log.cleaner.threads": "2", "log.cleaner.dedupe.buffer.size": "2097152"},
    {"log.cleaner.threads": "2", "log.cleaner.dedupe.buffer.size": "2097154"},
    {"log.cleaner.min.compaction.lag.ms": "10", "log.cleaner.max.compaction.lag.ms": "9"},
    {"log.retention.ms": "-1", "log.local.retention.ms": "10"},
    {"log.retention.ms": "5", "log.local.retention.ms": "10"},
    {"log.retention.bytes": "5", "log.local.retention.bytes": "10"},
    {"max.connections.per.ip": "0", "max.connections.per.ip.overrides": "127.0.0.1:10"},
    {"log.roll.ms": "10", "log.roll.hours": "1"},
    {"log.message.timestamp.before.max.ms": "1", "log.message.timestamp.difference.max.ms": "2"},
)
JOINED_OF_TOPICS: tuple[dict[str, str], ...] = (
    {"min.compaction.lag.ms": "10", "max.compaction.lag.ms": "9"},
    {"local.retention.ms": "10", "retention.ms": "5"},
    {"local.retention.ms": "10", "retention.ms": "-1"},
    {"local.retention.bytes": "10", "retention.bytes": "5"},
    {"retention.ms": "5", "retention.bytes": "5"},
    {"message.format.version": "2.0", "message.timestamp.type": "LogAppendTime"},
)
SPECIAL: dict[str, tuple[str, ...]] = {
    "max.connections.per.ip.overrides": (
        "127.0.0.1:many", "127.0.0.1:5", "localhost:5", "::1:5", "127.0.0.1:", ":5", "127.0.0.1:-1", "127.0.0.1:0",
        "127.0.0.1:5,", "no.such.host.invalid:5", "127.0.0.1:5, 127.0.0.2:6", "127.0.0.1:5,127.0.0.1:6", "127.0.0.1",
    ),
    "inter.broker.protocol.version": ("4.0", "3.9", "3.9-IV0", "0.5"),
    "log.message.format.version": ("4.0", "5.0", "0.5", "0.10.2", "0.11.0-IV2", "3.0", "2.8", "newest"),
    "listeners": ("PLAINTEXT://:0", "PLAINTEXT://localhost:0", "nonsense"),
    "advertised.listeners": ("PLAINTEXT://:0", "PLAINTEXT://0.0.0.0:5", "nonsense"),
    "leader.replication.throttled.rate": ("0", "1", "-1"),
}  # fmt: skip
SPECIAL_OF_TOPICS: dict[str, tuple[str, ...]] = {
    "message.format.version": ("4.0", "5.0", "0.5", "0.10.2", "0.11.0-IV2", "3.0", "2.8", "newest", "3.9-IV0"),
    "leader.replication.throttled.replicas": ("*", "0:1", "0:1,1:2", "0:1,*", "0", "0:a", "0:1,"),
    "cleanup.policy": ("compact, delete", "delete,delete", "compact,compact", "COMPACT", "none"),
    "local.retention.ms": ("-2", "-3", "-1", "10"),
    "local.retention.bytes": ("-2", "-3", "-1", "10"),
}
LISTS: tuple[tuple[str, int, str | None], ...] = (
    ("cleanup.policy", _APPEND, ""),
    ("cleanup.policy", _APPEND, "compact"),
    ("cleanup.policy", _APPEND, "delete"),
    ("cleanup.policy", _APPEND, "nonsense"),
    ("cleanup.policy", _APPEND, "compact,compact"),
    ("cleanup.policy", _SUBTRACT, ""),
    ("cleanup.policy", _SUBTRACT, "delete"),
    ("cleanup.policy", _SUBTRACT, "compact"),
    ("cleanup.policy", _SUBTRACT, "nonsense"),
    ("leader.replication.throttled.replicas", _APPEND, "0:1"),
    ("leader.replication.throttled.replicas", _APPEND, "0:1,0:1"),
    ("leader.replication.throttled.replicas", _APPEND, ""),
    ("leader.replication.throttled.replicas", _SUBTRACT, "0:1"),
    ("retention.ms", _APPEND, "1"),
    ("retention.ms", _SUBTRACT, "1"),
    ("nope", _APPEND, "1"),
    ("nope", _SET, "1"),
    ("nope", _DELETE, None),
    ("retention.ms", _SET, None),
)


def cases() -> Iterator[Case]:
    """All of them; the same ones each time."""
    for resource_name in (BROKER_ID, ""):
        for key in broker_keys():
            for value in (*values_of(key), *SPECIAL.get(key.name, ())):
                yield Case(_BROKER_RESOURCE, resource_name, ((key.name, _SET, value),))
        for name in ("nope", *(f"listener.name.plaintext.{key}" for key in _OF_LISTENERS)):
            for value in ("1", "0", "-1", "abc", "", "007"):
                yield Case(_BROKER_RESOURCE, resource_name, ((name, _SET, value),))
        for joined in JOINED:
            yield Case(_BROKER_RESOURCE, resource_name, tuple((name, _SET, value) for name, value in joined.items()))
    for key in TOPIC_KEYS.values():
        for value in (*values_of(key), *SPECIAL_OF_TOPICS.get(key.name, ())):
            yield Case(_TOPIC_RESOURCE, TOPIC, ((key.name, _SET, value),))
    for joined in JOINED_OF_TOPICS:
        yield Case(_TOPIC_RESOURCE, TOPIC, tuple((name, _SET, value) for name, value in joined.items()))
    for operation in LISTS:
        yield Case(_TOPIC_RESOURCE, TOPIC, (operation,))


_OF_LISTENERS = ("max.connections", "max.connection.creation.rate", "num.network.threads", "nope")
_ATTEMPTS, _PAUSE_S = 500, 0.02
_UNTOUCHED = ("listeners", "advertised.listeners", "listener.security.protocol.map", "max.connections")
"""Not changed for real: the answers come over the connections that these keys are about."""


def deliberate(case: Case, ours: int, theirs: int) -> str:
    """Why ours answers a case with another error than Apache Kafka; "" where it should not."""
    names = {name for name, _, _ in case.operations}
    if ours == ErrorCode.INVALID_CONFIG and names <= {*_UNTOUCHED, "listener.security.protocol.map"}:
        return "listeners do not change while a broker runs yet"
    if ours == ErrorCode.INVALID_CONFIG and theirs == ErrorCode.NONE and names == {"sasl.jaas.config"}:
        return "a password that could not be stored is refused when it is only checked, too"
    if theirs == ErrorCode.UNKNOWN_SERVER_ERROR:
        return "Apache Kafka fails at an unknown topic key whose list is to grow or to shrink"
    return ""


Ask = Callable[[Request], tuple[Any, Any]]


def compare(ask: Ask, case: Case) -> str:
    """Where the two brokers differ about one case, "" where they do not or mean to."""
    requests = [case.incremental(validate_only=True)]
    if all(kind == _SET for _, kind, _ in case.operations):
        requests.append(case.replacing())
    for request in requests:
        ours, theirs = ask(request)
        if found := difference(ours, theirs):
            codes = [answer["responses"][0]["error_code"] for answer in (ours, theirs) if isinstance(answer, dict)]
            if len(codes) != 2 or not deliberate(case, *codes):
                return f"{request.api_key.name}{found}"
            return ""
    if ours["responses"][0]["error_code"] or any(name.endswith(_UNTOUCHED) for name, _, _ in case.operations):
        return ""
    found = difference(*ask(case.incremental(validate_only=False))) or _described(ask, case)
    return found or difference(*ask(case.deleting())) or _described(ask, case)


def _described(ask: Ask, case: Case) -> str:
    """Apache Kafka answers a change of a broker before it is in force: what it shows is awaited."""
    found = ""
    for attempt in range(_ATTEMPTS):
        found = difference(*ask(case.describing()))
        if not found:
            return ""
        if attempt:
            time.sleep(_PAUSE_S)
    ask(case.deleting())
    return f"DESCRIBE_CONFIGS{found}"
