"""The configuration of one log: its topic's values as plain attributes, which the hot path reads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from ottla_broker.config import TopicValues
from ottla_broker.config.types import LONG_MAX
from ottla_broker.records.compression import Codec
from ottla_broker.records.preparation import RecordRules
from ottla_broker.records.record import MAX_DECOMPRESSED_BYTES

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
        max_decompressed_bytes: the broker's ottla.batch.max.decompressed.bytes.
        verifies_transactions: the broker's transaction.partition.verification.enable.
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
        "max_decompressed_bytes",
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
        "verifies_transactions",
    )

    def __init__(
        self,
        topic: TopicValues | None = None,
        *,
        validates_records: bool = False,
        max_decompressed_bytes: int = MAX_DECOMPRESSED_BYTES,
        verifies_transactions: bool = False,
    ) -> None:
        topic = TopicValues() if topic is None else topic
        self.verifies_transactions = verifies_transactions
        self.max_decompressed_bytes = max_decompressed_bytes
        self.segment_bytes: int = topic.segment_bytes
        self.segment_ms: int = topic.segment_ms
        self.segment_jitter_ms: int = topic.segment_jitter_ms
        self.segment_index_bytes: int = topic.segment_index_bytes
        self.index_interval_bytes: int = topic.index_interval_bytes
        self.flush_messages: int = topic.flush_messages
        self.flush_ms: int = topic.flush_ms
        self.retention_ms: int = topic.retention_ms
        self.retention_bytes: int = topic.retention_bytes
        self.max_message_bytes: int = topic.max_message_bytes
        self.min_insync_replicas: int = topic.min_insync_replicas
        self.cleanup_policy: tuple[str, ...] = topic.cleanup_policy
        self.is_compacted = "compact" in self.cleanup_policy
        self.is_deleted = "delete" in self.cleanup_policy
        self.min_cleanable_dirty_ratio: float = topic.min_cleanable_dirty_ratio
        self.min_compaction_lag_ms: int = topic.min_compaction_lag_ms
        self.max_compaction_lag_ms: int = topic.max_compaction_lag_ms
        self.delete_retention_ms: int = topic.delete_retention_ms
        if self.is_compacted and self.max_compaction_lag_ms > 0:
            # A record can be compacted once its segment is closed (KIP-354).
            self.segment_ms = min(self.segment_ms, self.max_compaction_lag_ms)
        self.file_delete_delay_ms: int = topic.file_delete_delay_ms
        self.throttled_by_leader = ThrottledReplicas(topic.leader_replication_throttled_replicas)
        self.throttled_by_follower = ThrottledReplicas(topic.follower_replication_throttled_replicas)
        self.unclean_leader_election_enable: bool = topic.unclean_leader_election_enable
        self.message_downconversion_enable: bool = topic.message_downconversion_enable
        self.is_log_append_time = topic.message_timestamp_type == "LogAppendTime"
        # The older key sets both bounds; a newer key that is set wins over it.
        difference = topic.message_timestamp_difference_max_ms
        before, after = topic.message_timestamp_before_max_ms, topic.message_timestamp_after_max_ms
        self.message_timestamp_before_max_ms: int = difference if before == LONG_MAX else before
        self.message_timestamp_after_max_ms: int = difference if after == LONG_MAX else after
        self.codec = _CODECS[topic.compression_type]
        self.rules = RecordRules(
            codec=self.codec,
            gzip_level=topic.compression_gzip_level,
            lz4_level=topic.compression_lz4_level,
            zstd_level=topic.compression_zstd_level,
            needs_keys=self.is_compacted,
            validates=validates_records,
            is_append_time=self.is_log_append_time,
            before_max_ms=self.message_timestamp_before_max_ms,
            after_max_ms=self.message_timestamp_after_max_ms,
            max_message_bytes=self.max_message_bytes,
            max_decompressed_bytes=max_decompressed_bytes,
        )
        """The checks of single records."""
        self.max_index_entries = max(self.segment_index_bytes // 8, 1)
        # One entry is kept free for the segment's largest timestamp, which is added when it is rolled.
        self.max_time_index_entries = max(self.segment_index_bytes // 12 - 1, 1)
