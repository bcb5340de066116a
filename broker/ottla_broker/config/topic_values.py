"""The values of one topic: a typed attribute per topic-level key, with Kafka's defaults. Pure.

`TopicValues.retention_ms` is the value of `retention.ms`. Not here: which of a topic's overrides and a broker's values
is in force (`topics`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ottla_broker.config.definitions.topics import TOPIC_KEYS
from ottla_broker.config.types import parse_value

_NOTHING: Mapping[str, Any] = {}


class TopicValues:
    """Typed values of one topic. A snapshot: a change makes a new one.

    Args:
        values: topic-level keys with typed values, or with text as in a properties file. Absent keys have Kafka's
            defaults. Nothing is checked.

    >>> values = TopicValues({"segment.bytes": 300, "cleanup.policy": "compact,delete"})
    >>> values.segment_bytes, values.cleanup_policy, values.retention_ms
    (300, ('compact', 'delete'), 604800000)
    """

    cleanup_policy: tuple[str, ...]
    compression_gzip_level: int
    compression_lz4_level: int
    compression_type: str
    compression_zstd_level: int
    delete_retention_ms: int
    file_delete_delay_ms: int
    flush_messages: int
    flush_ms: int
    follower_replication_throttled_replicas: tuple[str, ...]
    index_interval_bytes: int
    leader_replication_throttled_replicas: tuple[str, ...]
    local_retention_bytes: int
    local_retention_ms: int
    max_compaction_lag_ms: int
    max_message_bytes: int
    message_downconversion_enable: bool
    message_format_version: str
    message_timestamp_after_max_ms: int
    message_timestamp_before_max_ms: int
    message_timestamp_difference_max_ms: int
    message_timestamp_type: str
    min_cleanable_dirty_ratio: float
    min_compaction_lag_ms: int
    min_insync_replicas: int
    preallocate: bool
    remote_log_copy_disable: bool
    remote_log_delete_on_disable: bool
    remote_storage_enable: bool
    retention_bytes: int
    retention_ms: int
    segment_bytes: int
    segment_index_bytes: int
    segment_jitter_ms: int
    segment_ms: int
    unclean_leader_election_enable: bool

    def __init__(self, values: Mapping[str, Any] = _NOTHING) -> None:
        self.by_name: dict[str, Any] = {name: entry.default for name, entry in TOPIC_KEYS.items()}
        """The typed value of every topic-level key by its name; inside this package only."""
        for name, value in values.items():
            known = TOPIC_KEYS[name]
            self.by_name[name] = parse_value(name, known.type, value) if isinstance(value, str) else value
        self.__dict__.update((attribute, self.by_name[name]) for attribute, name in TOPIC_ATTRIBUTES.items())

    def has_same_values(self, other: TopicValues) -> bool:
        return self.by_name == other.by_name


TOPIC_ATTRIBUTES: Mapping[str, str] = {
    name.replace(".", "_"): name for name in TOPIC_KEYS if name.replace(".", "_") in TopicValues.__annotations__
}
"""The key behind each attribute of TopicValues."""
