"""What a log needs of its topic's configuration, as plain attributes read on the hot path."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

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
    "file.delete.delay.ms": 60000,
    "unclean.leader.election.enable": False,
    "message.timestamp.type": "CreateTime",
    "message.timestamp.before.max.ms": _MAX_LONG,
    "message.timestamp.after.max.ms": _MAX_LONG,
}
"""Kafka 3.9's defaults of the topic-level keys that a log reads."""


class LogConfig:
    """A snapshot of one topic's values; replaced whole when the configuration changes.

    Args:
        values: topic-level names to typed values (a `TopicConfig`, or a plain dict in which absent keys have
            Kafka's defaults). `cleanup.policy` is a list or a comma-separated string.
    """

    __slots__ = (
        "cleanup_policy",
        "file_delete_delay_ms",
        "flush_messages",
        "flush_ms",
        "has_timestamp_bounds",
        "index_interval_bytes",
        "is_compacted",
        "is_deleted",
        "max_index_entries",
        "max_message_bytes",
        "max_time_index_entries",
        "message_timestamp_after_max_ms",
        "message_timestamp_before_max_ms",
        "message_timestamp_type",
        "min_insync_replicas",
        "retention_bytes",
        "retention_ms",
        "segment_bytes",
        "segment_index_bytes",
        "segment_jitter_ms",
        "segment_ms",
        "unclean_leader_election_enable",
    )

    def __init__(self, values: Mapping[str, Any] | None = None) -> None:
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
        self.file_delete_delay_ms: int = of("file.delete.delay.ms")
        self.unclean_leader_election_enable: bool = of("unclean.leader.election.enable")
        self.message_timestamp_type: str = of("message.timestamp.type")
        self.message_timestamp_before_max_ms: int = of("message.timestamp.before.max.ms")
        self.message_timestamp_after_max_ms: int = of("message.timestamp.after.max.ms")
        self.has_timestamp_bounds = (
            self.message_timestamp_before_max_ms != _MAX_LONG or self.message_timestamp_after_max_ms != _MAX_LONG
        )
        self.max_index_entries = max(self.segment_index_bytes // 8, 1)
        # One entry is kept free for the segment's largest timestamp, which is added when it is rolled.
        self.max_time_index_entries = max(self.segment_index_bytes // 12 - 1, 1)
