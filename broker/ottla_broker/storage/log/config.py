"""The configuration of one log: its topic's values as plain attributes, which the hot path reads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from ottla_broker.records.compression import Codec
from ottla_broker.records.preparation import RecordRules

_MAX_LONG = 2**63 - 1
_MAX_INT = 2**31 - 1

DEFAULTS: Mapping[str, Any] = {
    "segment.bytes": 1073741824,
    "segment.ms": 604800000,
    "segment.jitter.ms": 0,
    "segment.index.bytes": 10485760,
    "index.interval.bytes": 4096,
    "flush.messages": _MAX_LONG,
    "flush.ms": _MAX_LONG,
    "retention.ms": 604800000,
    "retention.bytes": -1,
    "max.message.bytes": 1048588,
    "min.insync.replicas": 1,
    "cleanup.policy": ("delete",),
    "min.cleanable.dirty.ratio": 0.5,
    "min.compaction.lag.ms": 0,
    "max.compaction.lag.ms": _MAX_LONG,
    "delete.retention.ms": 86400000,
    "file.delete.delay.ms": 60000,
    "unclean.leader.election.enable": False,
    "message.timestamp.type": "CreateTime",
    "message.timestamp.before.max.ms": _MAX_LONG,
    "message.timestamp.after.max.ms": _MAX_LONG,
    "message.timestamp.difference.max.ms": _MAX_LONG,
    "message.downconversion.enable": True,
    "compression.type": "producer",
    "compression.gzip.level": -1,
    "compression.lz4.level": 9,
    "compression.zstd.level": 3,
    "leader.replication.throttled.replicas": (),
    "follower.replication.throttled.replicas": (),
}
"""Kafka 3.9's defaults of the topic-level keys that a log reads."""


_CODECS: Mapping[str, Codec | None] = MappingProxyType(
    {
        "producer": None,
        "uncompressed": Codec.NONE,
        "gzip": Codec.GZIP,
        "snappy": Codec.SNAPPY,
        "lz4": Codec.LZ4,
        "zstd": Codec.ZSTD,
    }
)
"""compression.type; None keeps the producer's."""


class ThrottledReplicas:
    """The value of leader.replication.throttled.replicas or follower.replication.throttled.replicas (KIP-73).

    False when empty.

    >>> some = ThrottledReplicas(("0:101", "1:102"))
    >>> some.has(0, 101), some.has(1, 101), ThrottledReplicas(("*",)).has(7, 7), bool(ThrottledReplicas(()))
    (True, False, True, False)
    >>> ThrottledReplicas(("00:101", "")).has(0, 101), bool(ThrottledReplicas(("",)))
    (True, False)
    """

    __slots__ = ("_all", "_named")

    def __init__(self, values: Sequence[str]) -> None:
        self._all = "*" in values
        self._named = frozenset(map(_plain, filter(None, values)))

    def __bool__(self) -> bool:
        return self._all or bool(self._named)

    def has(self, partition: int, broker: int) -> bool:
        return self._all or f"{partition}:{broker}" in self._named


def _plain(replica: str) -> str:
    """Without leading zeros, which Apache Kafka ignores.

    >>> _plain("00:0101")
    '0:101'
    """
    return ":".join(number.lstrip("0") or "0" for number in replica.split(":"))


class LogConfig:
    """One topic's values; replaced by another object when the configuration changes.

    Args:
        values: topic-level names to typed values (a `TopicConfig`, or a plain dict in which absent keys have
            Kafka's defaults). `cleanup.policy` is a list or a comma-separated string.
        validates_records: the broker's ottla.validate.records is `always`.
    """

    __slots__ = (
        "cleanup_policy",
        "codec",
        "delete_retention_ms",
        "file_delete_delay_ms",
        "flush_messages",
        "flush_ms",
        "index_interval_bytes",
        "is_compacted",
        "is_deleted",
        "is_log_append_time",
        "max_compaction_lag_ms",
        "max_index_entries",
        "max_message_bytes",
        "max_time_index_entries",
        "message_downconversion_enable",
        "message_timestamp_after_max_ms",
        "message_timestamp_before_max_ms",
        "min_cleanable_dirty_ratio",
        "min_compaction_lag_ms",
        "min_insync_replicas",
        "retention_bytes",
        "retention_ms",
        "rules",
        "segment_bytes",
        "segment_index_bytes",
        "segment_jitter_ms",
        "segment_ms",
        "throttled_by_follower",
        "throttled_by_leader",
        "unclean_leader_election_enable",
    )

    def __init__(self, values: Mapping[str, Any] | None = None, *, validates_records: bool = False) -> None:
        given = values or {}

        def of(name: str) -> Any:
            value = given.get(name)
            return DEFAULTS[name] if value is None else value

        self.segment_bytes: int = of("segment.bytes")
        self.segment_ms: int = of("segment.ms")
        self.segment_jitter_ms: int = of("segment.jitter.ms")
        self.segment_index_bytes: int = of("segment.index.bytes")
        self.index_interval_bytes: int = of("index.interval.bytes")
        self.flush_messages: int = of("flush.messages")
        self.flush_ms: int = of("flush.ms")
        self.retention_ms: int = of("retention.ms")
        self.retention_bytes: int = of("retention.bytes")
        self.max_message_bytes: int = of("max.message.bytes")
        self.min_insync_replicas: int = of("min.insync.replicas")
        policy = of("cleanup.policy")
        names = policy.split(",") if isinstance(policy, str) else policy
        self.cleanup_policy: tuple[str, ...] = tuple(name.strip() for name in names)
        self.is_compacted = "compact" in self.cleanup_policy
        self.is_deleted = "delete" in self.cleanup_policy
        self.min_cleanable_dirty_ratio: float = of("min.cleanable.dirty.ratio")
        self.min_compaction_lag_ms: int = of("min.compaction.lag.ms")
        self.max_compaction_lag_ms: int = of("max.compaction.lag.ms")
        self.delete_retention_ms: int = of("delete.retention.ms")
        if self.is_compacted and self.max_compaction_lag_ms > 0:
            # A record can be compacted once its segment is closed (KIP-354).
            self.segment_ms = min(self.segment_ms, self.max_compaction_lag_ms)
        self.file_delete_delay_ms: int = of("file.delete.delay.ms")
        self.throttled_by_leader = ThrottledReplicas(of("leader.replication.throttled.replicas"))
        self.throttled_by_follower = ThrottledReplicas(of("follower.replication.throttled.replicas"))
        self.unclean_leader_election_enable: bool = of("unclean.leader.election.enable")
        self.message_downconversion_enable: bool = of("message.downconversion.enable")
        self.is_log_append_time = of("message.timestamp.type") == "LogAppendTime"
        # The older key sets both bounds; a newer key that is set wins over it.
        difference = of("message.timestamp.difference.max.ms")
        before, after = of("message.timestamp.before.max.ms"), of("message.timestamp.after.max.ms")
        self.message_timestamp_before_max_ms: int = difference if before == _MAX_LONG else before
        self.message_timestamp_after_max_ms: int = difference if after == _MAX_LONG else after
        self.codec = _CODECS[of("compression.type")]
        self.rules = RecordRules(
            codec=self.codec,
            gzip_level=of("compression.gzip.level"),
            lz4_level=of("compression.lz4.level"),
            zstd_level=of("compression.zstd.level"),
            needs_keys=self.is_compacted,
            validates=validates_records,
            is_append_time=self.is_log_append_time,
            before_max_ms=self.message_timestamp_before_max_ms,
            after_max_ms=self.message_timestamp_after_max_ms,
            max_message_bytes=self.max_message_bytes,
        )
        """The checks of single records."""
        self.max_index_entries = max(self.segment_index_bytes // 8, 1)
        # One entry is kept free for the segment's largest timestamp, which is added when it is rolled.
        self.max_time_index_entries = max(self.segment_index_bytes // 12 - 1, 1)
