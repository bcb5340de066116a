"""Draws requests from the wire definitions: fields with plausible values of their names, and with extreme ones of their
types. No I/O.

Most requests are plausible but for few fields, so that they pass the first checks of a handler; some are wild.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

from ottla_broker.protocol import codec, generator
from ottla_broker.protocol.api import ApiKey
from ottla_broker.protocol.codec import ZERO_UUID
from ottla_broker.protocol.generator.classes import class_names
from ottla_broker.protocol.generator.facts import default_of, is_null_in, scope_of, snake_case
from ottla_broker.protocol.notation import Definition, Field, MessageDefinition
from ottla_broker.server.edge.dispatch import CLIENT_METRICS, listed
from tests.fuzz.record_data import RecordData

TOPICS = ("t", "compacted", "u")
_NAMES = ("t", "t", "t", "compacted", "u", "new", "nope", "", ".", "..", "a" * 249, "a" * 250, "__consumer_offsets")
_NAMES += ("bad name", "../../t", "t\x00", "t\n", "тема", "t-0", "__cluster_metadata")
_GROUPS = ("g", "g", "g2", "", "nope", "g" * 300, "g\x00", "группа")
_ODD_STRINGS = ("", " ", "\x00", "\ufeff", "\U0001f600", "a" * 32_767, "%s%n{}", "../../../etc/passwd", "-1", "null")
_ODD_STRINGS += ("\u202e", "*", ",", "=", "${x}", "1e309", "NaN", "9" * 400)
_CONFIG_KEYS = (
    "retention.ms",
    "retention.bytes",
    "cleanup.policy",
    "segment.bytes",
    "segment.ms",
    "max.message.bytes",
    "compression.type",
    "min.insync.replicas",
    "message.timestamp.type",
    "message.timestamp.before.max.ms",
    "message.format.version",
    "flush.messages",
    "follower.replication.throttled.replicas",
    "unclean.leader.election.enable",
    "log.cleaner.threads",
    "num.io.threads",
    "background.threads",
    "nope",
)
_CONFIG_VALUES = ("1000", "0", "1", "-1", "-2", "9" * 30, "true", "abc", "delete", "compact", "compact,delete", "lz4")
_CONFIG_VALUES += ("producer", "LogAppendTime", "CreateTime", "0:1,1:1", "*", "1.5", " 1", "0x10", "٣")
_INTEGERS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}
_POOLS: dict[str, Sequence[Any]] = {
    "partition": (0, 0, 0, 1, 2, -1, 1_000_000),
    "acks": (-1, -1, 1, 0, 2),
    "coordinator_type": (0, 1, 0, 1, 2),
    "key_type": (0, 1, 0, 1, 2),
    "config_operation": (0, 1, 2, 3),
    "resource_type": (2, 4, 2, 4, 3, 8),
    "isolation_level": (0, 1),
    "replica_id": (-1, -1, -1, 0, 1, -2),
    "broker_id": (0, 0, 1, -1),
    "leader": (0, 0, 1, -1, -2),
    "controller_id": (0, 0, 1, -1),
    "controller_epoch": (0, 1, 1, 2, 3),
    "num_partitions": (1, 1, 2, -1, 0),
    "count": (1, 2, 3, 0, -1),
    "replication_factor": (1, 1, -1, 0, 2),
    "timestamp": (-1, -2, -3, -4, -5, 0, 1_700_000_000_000),
    "protocol_type": ("consumer", "consumer", "", "connect"),
    "session_timeout_ms": (6000, 10_000, 30_000, 0, 1_800_001),
    "rebalance_timeout_ms": (1000, 10_000, 0, -1),
    "max_wait_ms": (0, 0, 100, 500, 5000),
    "min_bytes": (0, 1, 1, 1000),
    "max_bytes": (1, 1000, 1_000_000, 50_000_000, 0),
    "partition_max_bytes": (1, 1000, 1_000_000, 0),
    "mechanism": ("PLAIN", "SCRAM-SHA-256", "nope"),
    "feature": ("metadata.version", "transaction.version", "group.version", "nope"),
    "entity_type": ("user", "client-id", "ip", "nope"),
    "assignor": ("uniform", "range"),
    "patternType": (1, 2, 3, 4),
}
_TOPIC_FIELDS = ("topic", "topics", "topic_name", "topic_names", "name", "resource_name", "transactional_id")
_PARTITION_FIELDS = ("partition", "partition_index", "partition_indexes", "partitions", "index", "partition_id")


@dataclass
class Known:
    """What the broker has told in earlier answers of the round: ids and epochs that a later request may name."""

    values: dict[str, list[Any]] = field(default_factory=lambda: defaultdict(list))
    secret: set[Any] = field(default_factory=set)
    """Values that no request may name."""
    _KEPT = 8

    def learn(self, answer: Any) -> None:
        """Takes over the ids of an answer, wherever they stand in it."""
        for name in getattr(answer, "__slots__", ()):
            value = getattr(answer, name)
            if isinstance(value, list):
                for one in value[:_MOST_LEARNED]:
                    self.learn(one)
            elif hasattr(value, "__slots__"):
                self.learn(value)
            elif name in _LEARNED and value not in (None, "", ZERO_UUID, -1):
                self.add(_LEARNED[name], bytes(value) if isinstance(value, memoryview) else value)

    def add(self, name: str, value: Any) -> None:
        pool = self.values[name]
        if value not in pool and value not in self.secret:
            pool.append(value)
            del pool[: -self._KEPT]


_MOST_LEARNED = 8
_MOST_VALUES = 3000
"""In the arrays of one request: from then on wild ones stay empty."""
_LEARNED = {
    name: name
    for name in (
        "member_id",
        "topic_id",
        "producer_id",
        "producer_epoch",
        "session_id",
        "generation_id",
        "broker_epoch",
        "member_epoch",
        "log_dir",
        "leader_epoch",
        "partition_epoch",
    )
} | {"id": "topic_id"}
_SAME = {"leader_id": "member_id", "current_leader_epoch": "leader_epoch", "committed_leader_epoch": "leader_epoch"}
_SAME |= {"path": "log_dir", "topic_ids": "topic_id", "last_fetched_epoch": "leader_epoch"}
_SAME |= {"generation_id_or_member_epoch": "generation_id", "current_partition_epoch": "partition_epoch"}


SERVED = listed({}, True, frozenset({CLIENT_METRICS}))
"""Of a broker in a fleet that is all ours."""


class Drawing:
    """Draws frames without end. `known` is shared with who reads the answers."""

    def __init__(self, draw: random.Random, known: Known) -> None:
        self._draw = draw
        self._known = known
        self._records = RecordData(draw)
        definitions = {one.api_key: one for one in generator.read_definitions() if one.api_key is not None}
        self._apis = [(listing, definitions[int(listing.api_key)]) for listing in SERVED]
        self._classes = {one.file: class_names(one)[0] for one in definitions.values()}

    def frame(self) -> tuple[ApiKey, int, bytes]:
        """(api, version, a whole request with its length), as the definitions allow it."""
        while True:
            listing, definition = self._draw.choice(self._apis)
            version = self._draw.randint(listing.lowest, listing.highest)
            body = self.request(definition, version)
            client_id = self._draw.choice(("fuzz", "fuzz", "", None, "ф" * 50))
            correlation_id = self._draw.randint(-(2**31), 2**31 - 1)
            try:
                chunks = codec.frame_request(int(listing.api_key), version, correlation_id, client_id, body)
            except ValueError:
                continue  # something that this version cannot say
            return listing.api_key, version, b"".join(bytes(chunk) for chunk in chunks)  # type: ignore[arg-type]

    def request(self, definition: Definition, version: int) -> Any:
        assert definition.api_key is not None
        wildness = self._draw.choice((0.0, 0.0, 0.03, 0.03, 0.1, 0.5))
        builder = _Builder(self._draw, self._known, self._records, self._classes[definition.file], version, wildness)
        return builder.message(codec.module(definition.api_key), definition.message("request"))


class _Builder:
    """One request in one version."""

    def __init__(
        self,
        draw: random.Random,
        known: Known,
        records: RecordData,
        classes: dict[tuple[str, str], str],
        version: int,
        wildness: float,
    ) -> None:
        self._draw = draw
        self._known = known.values
        self._records = records
        self._classes = classes
        self._version = version
        self._wildness = wildness
        self._left = _MOST_VALUES

    def message(self, module: ModuleType, message: MessageDefinition) -> Any:
        return self._struct(module, message, getattr(module, message.name), message.fields)

    def _struct(self, module: ModuleType, message: MessageDefinition, kind: type, fields: tuple[Field, ...]) -> Any:
        values = {
            snake_case(one.name): self._field(module, message, one) for one in fields if self._version in one.versions
        }
        return kind(**values)

    def _field(self, module: ModuleType, message: MessageDefinition, one: Field) -> Any:
        draw = self._draw
        is_wild = draw.random() < self._wildness
        if is_null_in(one, self._version) and draw.random() < (0.3 if is_wild else 0.1):
            return None
        if one.is_array:
            return self._array(module, message, one, is_wild)
        return self._value(module, message, one, is_wild)

    def _array(self, module: ModuleType, message: MessageDefinition, one: Field, is_wild: bool) -> list[Any]:
        draw = self._draw
        if not is_wild:
            return [self._value(module, message, one, False) for _ in range(draw.choice((1, 1, 1, 1, 2, 3, 0)))]
        kind = draw.random()
        if kind < 0.3 or self._left < 0:
            return []
        if kind < 0.6:  # one entry twice, or many times where that does not multiply with the entries in it
            many = () if any(member.is_array for member in one.fields) else (50, 1000)
            return [self._value(module, message, one, False)] * draw.choice((2, 2, 3, *many))
        return [self._value(module, message, one, False) for _ in range(draw.choice((5, 20, 100)))]

    def _value(self, module: ModuleType, message: MessageDefinition, one: Field, is_wild: bool) -> Any:
        self._left -= 1
        if one.is_struct:
            kind = getattr(module, self._classes[scope_of(message), one.type])
            value = self._struct(module, message, kind, one.fields)
            return None if one.tag is not None and value == kind() else value
        name = snake_case(one.name)
        if one.type == "records":
            return self._records.draw()
        if not is_wild:
            found, value = self._plausible(name, one)
            if found:
                return value
        return self._of_type(name, one, is_wild)

    def _plausible(self, name: str, one: Field) -> tuple[bool, Any]:
        draw = self._draw
        learned = self._known.get(_SAME.get(name, name))
        if learned and draw.random() < 0.7:
            value = draw.choice(learned)
            if isinstance(value, str) == (one.type == "string") and isinstance(value, bytes) == (one.type == "uuid"):
                return True, value
        pool: Sequence[Any] = ()
        if name in _PARTITION_FIELDS:
            pool = _POOLS["partition"]
        elif name in _POOLS:
            pool = _POOLS[name]
        elif one.type == "string":
            if "group" in name and "instance" not in name:
                pool = _GROUPS
            elif name in ("config_name", "key"):
                pool = _CONFIG_KEYS
            elif name == "value":
                pool = _CONFIG_VALUES
            elif name in _TOPIC_FIELDS:
                pool = (*_NAMES, *_CONFIG_KEYS[:4], "0")
            elif name in ("member_id", "group_instance_id", "client_id"):
                pool = ("", "", "m", "instance")
        elif one.type.startswith("int"):
            if "offset" in name:
                pool = (0, 0, 1, 5, 100, -1, -2, 1 << 40)
            elif "epoch" in name:
                pool = (-1, -1, 0, 0, 1, 5)
            elif name.endswith("_ms"):
                pool = (0, 1, 100, 1000, 30_000)
            elif one.default is not None and not one.is_array and draw.random() < 0.7:
                pool = (int(one.default, 0),)
        return (True, draw.choice(pool)) if pool else (False, None)

    def _of_type(self, name: str, one: Field, is_wild: bool) -> Any:
        draw = self._draw
        match one.type:
            case "bool":
                return draw.random() < 0.5
            case "string":
                if not is_wild:
                    return draw.choice(("", "a", "b"))
                return draw.choice((*_ODD_STRINGS, "x" * draw.randrange(300)))
            case "bytes":
                return draw.choice((b"", b"a", draw.randbytes(draw.randrange(100)), b"\x00\x01" + bytes(40)))
            case "uuid":
                return draw.choice((ZERO_UUID, draw.randbytes(16), b"\xff" * 16))
            case "float64":
                return draw.choice((0.0, 1.0, -1.0, 1e308, float("inf"), float("nan")))
            case "uint16" | "uint32":
                return draw.choice((0, 1, 9092, 2 ** int(one.type[4:]) - 1))
            case _:
                return self._integer(name, one, is_wild)

    def _integer(self, name: str, one: Field, is_wild: bool) -> int:
        draw = self._draw
        bits = _INTEGERS[one.type]
        if not is_wild:
            return draw.choice((0 if one.is_array else int(default_of(one)), 0, 1, draw.randrange(16)))
        most = 2 ** (bits - 1)
        values = (-most, most - 1, -1, 0, 1, 1 << draw.randrange(bits - 1), draw.randrange(-most, most))
        return draw.choice(values)
