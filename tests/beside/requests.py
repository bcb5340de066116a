"""Random requests of clients: mostly sensible ones about three topics, and much that is almost sensible."""

from __future__ import annotations

import inspect
import random
from collections.abc import Iterator, Sequence
from types import ModuleType
from typing import Any, NamedTuple

from ottla_broker.protocol import codec
from ottla_broker.protocol.api import ApiKey
from ottla_broker.protocol.codec import ZERO_UUID
from ottla_broker.records.compression import Codec
from ottla_broker.records.record import Record, build_batch
from ottla_broker.server.edge.dispatch import LISTED

TOPICS = {"t": 2, "u": 1, "compacted": 1}
"""Name to partitions; "compacted" is."""
IN_TRANSACTIONS = "transactions"
"""One more, with a partition, which nothing but transactions names: their markers have the time of the broker."""
_NAMES = ("t", "t", "t", "u", "u", "compacted", "new1", "new2", "nope", "bad name", "", "x" * 250, "..")
_GROUPS = ("g1", "g2", "", "nope")
_TIME_MS = 1_700_000_000_000
_TRANSACTIONAL_IDS = ("a", "a", "b", "b", "")
_PRODUCER_IDS = (1, 1, 1, 2, 2, 3, -1)
_KEYS = (
    "retention.ms",
    "retention.bytes",
    "cleanup.policy",
    "segment.bytes",
    "segment.ms",
    "max.message.bytes",
    "compression.type",
    "min.insync.replicas",
    "message.timestamp.type",
    "follower.replication.throttled.replicas",
    "flush.messages",
    "unclean.leader.election.enable",
    "nope",
)
_VALUES = ("1000", "0", "1", "-1", "-2", "99999999999", "true", "abc", "delete", "compact", "compact,delete", "lz4")
_VALUES += ("producer", "LogAppendTime", "0:1,1:1", "*", "1" * 5000, "0" * 5000 + "1000")
_APIS = {
    ApiKey.PRODUCE: 8,
    ApiKey.FETCH: 6,
    ApiKey.LIST_OFFSETS: 4,
    ApiKey.OFFSET_FOR_LEADER_EPOCH: 2,
    ApiKey.DELETE_RECORDS: 1,
    ApiKey.OFFSET_COMMIT: 3,
    ApiKey.OFFSET_FETCH: 3,
    ApiKey.OFFSET_DELETE: 1,
    ApiKey.FIND_COORDINATOR: 1,
    ApiKey.HEARTBEAT: 1,
    ApiKey.LEAVE_GROUP: 1,
    ApiKey.DESCRIBE_GROUPS: 1,
    ApiKey.LIST_GROUPS: 1,
    ApiKey.DELETE_GROUPS: 1,
    ApiKey.CREATE_TOPICS: 2,
    ApiKey.DELETE_TOPICS: 1,
    ApiKey.DESCRIBE_CONFIGS: 1,
    ApiKey.ALTER_CONFIGS: 1,
    ApiKey.INCREMENTAL_ALTER_CONFIGS: 1,
    ApiKey.ELECT_LEADERS: 1,
    ApiKey.LIST_PARTITION_REASSIGNMENTS: 1,
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: 1,
    ApiKey.DESCRIBE_PRODUCERS: 1,
    ApiKey.DESCRIBE_CLUSTER: 1,
    ApiKey.METADATA: 3,
    ApiKey.DESCRIBE_ACLS: 1,
    ApiKey.CREATE_ACLS: 1,
    ApiKey.DELETE_ACLS: 1,
    ApiKey.SASL_HANDSHAKE: 1,
    ApiKey.SASL_AUTHENTICATE: 1,
    ApiKey.CREATE_DELEGATION_TOKEN: 1,
    ApiKey.RENEW_DELEGATION_TOKEN: 1,
    ApiKey.EXPIRE_DELEGATION_TOKEN: 1,
    ApiKey.DESCRIBE_DELEGATION_TOKEN: 1,
    ApiKey.DESCRIBE_CLIENT_QUOTAS: 2,
    ApiKey.ALTER_CLIENT_QUOTAS: 2,
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: 1,
    ApiKey.UPDATE_FEATURES: 2,
    ApiKey.INIT_PRODUCER_ID: 2,
    ApiKey.ADD_PARTITIONS_TO_TXN: 6,
    ApiKey.ADD_OFFSETS_TO_TXN: 4,
    ApiKey.TXN_OFFSET_COMMIT: 6,
    ApiKey.END_TXN: 5,
    ApiKey.DESCRIBE_TRANSACTIONS: 2,
    ApiKey.LIST_TRANSACTIONS: 2,
    ApiKey.CONSUMER_GROUP_HEARTBEAT: 1,
    ApiKey.CONSUMER_GROUP_DESCRIBE: 1,
}
"""How often each is asked, in proportion."""
_OF_PRODUCERS = (
    ApiKey.INIT_PRODUCER_ID,
    ApiKey.ADD_PARTITIONS_TO_TXN,
    ApiKey.ADD_OFFSETS_TO_TXN,
    ApiKey.TXN_OFFSET_COMMIT,
    ApiKey.END_TXN,
)


_LOWEST = {ApiKey.LIST_OFFSETS: 1, ApiKey.OFFSET_COMMIT: 1, ApiKey.PRODUCE: 3, ApiKey.FETCH: 4}
"""ListOffsets 0 asks for the age of files, where ours looks at that of records; OffsetCommit 0 writes to a path of
ZooKeeper, which a group without a name has not; before Produce 3 Apache Kafka takes a batch that is cut off for none;
before Fetch 4 records are compressed again, each in its own way."""


class Request(NamedTuple):
    """One request. `body` is of the module of its API."""

    api_key: ApiKey
    version: int
    body: Any


class Requests:
    """Draws without end.

    Not drawn, because Apache Kafka answers by accident (UNKNOWN_SERVER_ERROR, a partition answered once that was named
    twice, a topic without partitions left out, no answer at all): a name, a partition or a key twice in a list, lists
    that are empty inside a request, election types, resource types and isolation levels that do not exist, a broker's
    configuration under a name that is no id, two errors in one entity of a quota, an exact match of a quota's entity
    without its name, match types that do not exist, users of SCRAM whose names are no part of a path, the owner of a
    token without a type. Not drawn either: records in transactions, offsets with a newer epoch than that of the open
    transaction, which Apache Kafka 3.9 appends, so that the transaction hangs, requests about one that is being ended,
    fetch sessions, whose ids are random, what creates topics again, whose ids are, and the offset of the largest
    timestamp, where Apache Kafka names records that have been deleted.
    """

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._served = {listing.api_key: listing for listing in LISTED}

    def __iter__(self) -> Iterator[Request]:
        keys, weights = zip(*_APIS.items(), strict=True)
        while True:
            api_key = self._random.choices(keys, weights)[0]
            listing = self._served[api_key]
            version = self._random.randint(max(listing.lowest, _LOWEST.get(api_key, 0)), listing.highest)
            module = codec.module(api_key)
            body = self._object(module, _class_of(module, api_key), api_key)
            if api_key is ApiKey.ADD_PARTITIONS_TO_TXN:
                body = _of_one_sender(body, version)
            try:
                codec.frame_request(int(api_key), version, 1, "beside", body)
            except ValueError:
                continue  # something that this version cannot say
            yield Request(api_key, version, body)

    def _object(self, module: ModuleType, kind: type, api_key: ApiKey) -> Any:
        fields = dict(inspect.signature(kind.__init__).parameters)  # type: ignore[misc]
        del fields["self"]
        return kind(
            **{name: self._value(module, kind, name, str(one.annotation), api_key) for name, one in fields.items()}
        )

    def _value(self, module: ModuleType, kind: type, field: str, annotation: str, api_key: ApiKey) -> Any:
        type_name = annotation.strip("'").removesuffix(" | None")
        is_nullable = annotation.endswith((" | None", " | None'"))
        if field in ("topics", "groups", "users", "owners") and is_nullable and self._random.random() < 0.1:
            return None
        is_list = type_name.startswith("list[")
        element = getattr(module, type_name[5:-1], None) if is_list else None
        pool = () if element is not None else self._pool(kind, field, api_key)
        if field in _LEFT_EMPTY or (is_list and element is None and pool is None):
            return []
        if element is not None:
            values = [self._object(module, element, api_key) for _ in range(self._random.choice((1, 1, 1, 2)))]
            values = list({_identity(value): value for value in values}.values())
            return list({_topic_id_of(value) or id(value): value for value in values}.values())
        if is_list:
            return list(dict.fromkeys(self._random.choice(pool) for _ in range(self._random.choice((1, 1, 1, 2)))))
        if field == "records":
            return self._batch()
        return self._plain(type_name, is_nullable) if pool is None else self._random.choice(pool)

    def _plain(self, type_name: str, is_nullable: bool) -> Any:
        if is_nullable:
            return None
        return {"int": -1, "bool": False, "str": "", "bytes": b"", "float": 0.0}[type_name]

    def _pool(self, kind: type, field: str, api_key: ApiKey) -> Sequence[Any] | None:
        """What a field, or each element of a list, may be; None for what its type says."""
        if kind.__name__.endswith("Config"):
            return {"name": _KEYS, "value": _VALUES, "config_operation": (0, 0, 0, 1)}.get(field)
        if field == "resource_name" and api_key is ApiKey.INCREMENTAL_ALTER_CONFIGS:
            return tuple(TOPICS)
        if api_key is ApiKey.DELETE_TOPICS and field in ("name", "topic_names"):
            return _NAMES[-6:]
        if field == "topic_id" and api_key is ApiKey.METADATA:
            return (ZERO_UUID, ZERO_UUID, ZERO_UUID, b"\1" * 16)
        if api_key is ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS and field == "name":
            return ("a", "b", "")
        if api_key is ApiKey.ADD_PARTITIONS_TO_TXN and field == "name":
            return (IN_TRANSACTIONS, IN_TRANSACTIONS, IN_TRANSACTIONS, "nope", "")
        if api_key is ApiKey.TXN_OFFSET_COMMIT and field in ("name", "partition_index"):
            return {"name": ("t", "t", "u", "nope", ""), "partition_index": (0, 0, 1, 99)}[field]
        if api_key in (ApiKey.TXN_OFFSET_COMMIT, ApiKey.ADD_OFFSETS_TO_TXN) and field == "group_id":
            return ("g1", "g1", "g2", "")
        if api_key is ApiKey.TXN_OFFSET_COMMIT and field == "producer_epoch":
            return (0, 0, 0, -1)
        if api_key in _OF_PRODUCERS and field.endswith("epoch"):
            return (0, 0, 1, 1, 2, 3, 4, -1)
        if api_key is ApiKey.ALTER_CLIENT_QUOTAS and field in _QUOTAS:
            return _QUOTAS[field]
        if field in ("topic", "name", "topic_name", "topics", "topic_names", "resource_name"):
            return _NAMES
        if field in _POOLS:
            return _POOLS[field]
        if field.endswith("offset"):
            return (0, 0, 1, 2, 5, 10, -1, -2, 1 << 40)
        if field.endswith("epoch"):
            return (-1, -1, 0, 0, 1, 5, -2)
        return None

    def _batch(self) -> bytes:
        """A batch of format 2, whole or not."""
        draw = self._random
        time_ms = draw.choice((_TIME_MS, _TIME_MS + 500, _TIME_MS + 1000, -1))
        records = [
            Record(
                number,
                time_ms + number if time_ms > 0 else time_ms,
                draw.choice((None, b"k")),
                draw.choice((b"v", b"", None, b"y" * 50)),
            )
            for number in range(draw.choice((1, 1, 2, 3)))
        ]
        producer: dict[str, int] = {}
        if draw.random() < 0.4:
            producer = {
                "producer_id": draw.choice((1000, 1001, 5)),
                "producer_epoch": draw.choice((0, 0, 0, 1)),
                "base_sequence": draw.choice((0, 1, 2, 3, 5)),
            }
        batch = build_batch(records, codec=draw.choice((Codec.NONE, Codec.NONE, Codec.GZIP, Codec.LZ4)), **producer)
        harm = draw.random()
        if harm < 0.05:
            batch[20] ^= 1  # the checksum
        elif harm < 0.08:
            batch[16] = draw.choice((0, 1))  # the format
        elif harm < 0.11:
            del batch[draw.randrange(len(batch)) :]
        elif harm < 0.14:
            batch[11] = (batch[11] + draw.choice((1, 255))) % 256  # the length
        elif harm < 0.16:
            batch += bytes(batch)
        return bytes(batch)


_QUOTAS: dict[str, Sequence[Any]] = {
    "entity_name": ("a", "a", None, "b", "10.0.0.1"),
    "key": ("producer_byte_rate", "consumer_byte_rate", "request_percentage", "connection_creation_rate", "nope", ""),
    "value": (0.0, 1.0, 1.5, -1.0, 1e12, 1e300),
    "remove": (False, False, True),
}
"""Fields of AlterClientQuotas, which is always to validate only: a quota would throttle the requests after it."""
_POOLS: dict[str, Sequence[Any]] = {
    "partition": (0, 0, 1, 2, 99, -1),
    "partition_index": (0, 0, 1, 2, 99, -1),
    "partition_indexes": (0, 0, 1, 2, 99, -1),
    "partitions": (0, 0, 1, 2, 99, -1),
    "index": (0, 0, 1, 2, 99, -1),
    "group_id": _GROUPS,
    "groups": _GROUPS,
    "groups_names": _GROUPS,
    "key": _GROUPS,
    "coordinator_keys": _GROUPS,
    "replicas": (1, 1, 2, -1),
    "timestamp": (-1, -2, 0, _TIME_MS, _TIME_MS + 501, _TIME_MS + 2000),
    "isolation_level": (0, 1),
    "acks": (-1, 1),
    "max_wait_ms": (0, 10),
    "min_bytes": (0, 1, 100),
    "max_bytes": (0, 1, 100, 1 << 20),
    "partition_max_bytes": (0, 1, 100, 1 << 20),
    "session_id": (0,),
    "session_epoch": (-1,),
    "max_num_offsets": (1, 2, 10),
    "replica_id": (-1,),
    "replication_factor": (1, -1, 0, 2, -2),
    "num_partitions": (1, 2, 3, -1, 0),
    "timeout_ms": (10_000,),
    "resource_type": (2,),
    "configuration_keys": _KEYS,
    "election_type": (0, 1),
    "validate_only": (True,),
    "member_id": ("", "m1"),
    "generation_id": (-1, -1, 0, 1),
    "generation_id_or_member_epoch": (-1, -1, 0, 1),
    "topic_id": (b"\1" * 16, b"\2" * 16),
    "endpoint_type": (1,),
    "include_authorized_operations": (False, True),
    "include_cluster_authorized_operations": (False, True),
    "include_topic_authorized_operations": (False, True),
    "resource_type_filter": (1, 2, 3, 4, 77, 0),
    "pattern_type_filter": (1, 2, 3, 4, 99),
    "resource_pattern_type": (3, 4, 1, 99),
    "operation": (1, 2, 3, 99, 0),
    "permission_type": (1, 2, 3, 99),
    "principal": ("User:a", "a"),
    "mechanism": ("PLAIN", "GSSAPI", ""),
    "auth_bytes": (b"", b"abc"),
    "hmac": (b"", b"abc"),
    "principal_type": ("User", "Group"),
    "principal_name": ("a", ""),
    "owner_principal_type": ("User", "Group", ""),
    "owner_principal_name": ("a", "", None),
    "entity_type": ("user", "user", "client-id", "ip", "nope", ""),
    "match_type": (0, 1, 2),
    "match": ("a",),
    "strict": (False, True),
    "feature": ("kraft.version", "metadata.version", "nope", ""),
    "max_version_level": (-1, 0, 1, 2),
    "allow_downgrade": (False, True),
    "upgrade_type": (0, 1, 1, 2, 3, 4),
    "transactional_id": _TRANSACTIONAL_IDS,
    "transactional_ids": _TRANSACTIONAL_IDS,
    "v3_and_below_transactional_id": _TRANSACTIONAL_IDS,
    "producer_id": _PRODUCER_IDS,
    "v3_and_below_producer_id": _PRODUCER_IDS,
    "transaction_timeout_ms": (900_000, 900_000, 900_000, 0, -1, 900_001),
    "committed": (False, True),
    "verify_only": (False, False, True),
    "state_filters": ("Ongoing", "Empty", "CompleteCommit", "CompleteAbort", "nope", ""),
    "producer_id_filters": (1, 2, -5),
    "duration_filter": (-1, -1, 3_600_000, 2**63 - 1),
    "group_ids": _GROUPS,
    "key_type": (0, 0, 1),
    "committed_metadata": ("", "a"),
    "require_stable": (False, True),
}
"""Field to what it may be."""
IDENTITIES = (
    "name",
    "user",
    "feature",
    "topic",
    "resource_name",
    "group_id",
    "transactional_id",
    "partition_index",
    "partition",
    "index",
    "partition_id",
)
_LEFT_EMPTY = ("forgotten_topics_data", "assignments")


def _of_one_sender(body: Any, version: int) -> Any:
    """An AddPartitionsToTxn of a producer, which has one transaction, or of a broker."""
    kind = type(body)
    if version >= 4:
        return kind(transactions=body.transactions)
    return kind(**{name: getattr(body, name) for name in kind.__slots__ if name != "transactions"})


def _identity(value: Any) -> Any:
    """What must not stand twice in a list, beside the id of a topic."""
    return next((getattr(value, field) for field in IDENTITIES if hasattr(value, field)), repr(value))


def _topic_id_of(value: Any) -> bytes:
    """b"" for what has none, and for the id that says so."""
    topic_id: bytes = getattr(value, "topic_id", b"")
    return b"" if topic_id == ZERO_UUID else topic_id


def _class_of(module: ModuleType, api_key: ApiKey) -> type:
    wanted = api_key.name.replace("_", "").lower() + "request"
    return next(kind for name, kind in vars(module).items() if name.lower() == wanted)
