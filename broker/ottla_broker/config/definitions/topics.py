"""Topic configurations and the broker keys with their defaults."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from ottla_broker.config.definitions.key_table import read_keys
from ottla_broker.config.types import ConfigKey

TOPIC_KEYS: Mapping[str, ConfigKey] = MappingProxyType({entry.name: entry for entry in read_keys("topics")})
"""Every topic-level key by name, in alphabetical order."""

BROKER_DEFAULTS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "cleanup.policy": ("log.cleanup.policy",),
        "compression.gzip.level": ("compression.gzip.level",),
        "compression.lz4.level": ("compression.lz4.level",),
        "compression.type": ("compression.type",),
        "compression.zstd.level": ("compression.zstd.level",),
        "delete.retention.ms": ("log.cleaner.delete.retention.ms",),
        "file.delete.delay.ms": ("log.segment.delete.delay.ms",),
        "flush.messages": ("log.flush.interval.messages",),
        "flush.ms": (
            "log.flush.interval.ms",
            "log.flush.scheduler.interval.ms",
        ),
        "index.interval.bytes": ("log.index.interval.bytes",),
        "local.retention.bytes": ("log.local.retention.bytes",),
        "local.retention.ms": ("log.local.retention.ms",),
        "max.compaction.lag.ms": ("log.cleaner.max.compaction.lag.ms",),
        "max.message.bytes": ("message.max.bytes",),
        "message.downconversion.enable": ("log.message.downconversion.enable",),
        "message.format.version": ("log.message.format.version",),
        "message.timestamp.after.max.ms": ("log.message.timestamp.after.max.ms",),
        "message.timestamp.before.max.ms": ("log.message.timestamp.before.max.ms",),
        "message.timestamp.difference.max.ms": ("log.message.timestamp.difference.max.ms",),
        "message.timestamp.type": ("log.message.timestamp.type",),
        "min.cleanable.dirty.ratio": ("log.cleaner.min.cleanable.ratio",),
        "min.compaction.lag.ms": ("log.cleaner.min.compaction.lag.ms",),
        "min.insync.replicas": ("min.insync.replicas",),
        "preallocate": ("log.preallocate",),
        "retention.bytes": ("log.retention.bytes",),
        "retention.ms": (
            "log.retention.ms",
            "log.retention.minutes",
            "log.retention.hours",
        ),
        "segment.bytes": ("log.segment.bytes",),
        "segment.index.bytes": ("log.index.size.max.bytes",),
        "segment.jitter.ms": (
            "log.roll.jitter.ms",
            "log.roll.jitter.hours",
        ),
        "segment.ms": (
            "log.roll.ms",
            "log.roll.hours",
        ),
        "unclean.leader.election.enable": ("unclean.leader.election.enable",),
    }
)
"""The broker keys behind each topic-level key, in order of precedence (ms before minutes before hours)."""

MILLISECONDS: Mapping[str, int] = MappingProxyType(
    {
        "log.retention.minutes": 60_000,
        "log.retention.hours": 3_600_000,
        "log.roll.hours": 3_600_000,
        "log.roll.jitter.hours": 3_600_000,
    }
)
"""Factor to milliseconds of the broker keys that count in another unit."""
