"""Keys that Apache Kafka 3.9 has not, or not in a file: Ottla's own, those of older releases, dynamic ones."""

from __future__ import annotations

from ottla_broker.config.definitions.notes import NOT_YET, OBSOLETE
from ottla_broker.config.types import (
    CLUSTER_WIDE,
    INT,
    INT_MAX,
    LIST,
    LONG,
    LONG_MAX,
    LOW,
    MEDIUM,
    PER_BROKER,
    READ_ONLY,
    STRING,
    ConfigKey,
    Known,
    at_least,
    key,
    one_of,
)

_OWN = Known.OWN
_LEGACY = Known.LEGACY
_DYNAMIC = Known.DYNAMIC

OWN_KEYS: tuple[ConfigKey, ...] = (
    key(
        "ottla.http.listener",
        STRING,
        None,
        MEDIUM,
        READ_ONLY,
        "HOST:PORT that serves /metrics, /livez and /readyz over HTTP; without it, nothing does.",
        known=_OWN,
    ),
    key(
        "ottla.log.dirs.format",
        LIST,
        None,
        MEDIUM,
        READ_ONLY,
        "Log directories that may be empty and are then formatted; without the key, all of log.dirs.",
        known=_OWN,
    ),
    key(
        "ottla.log.dir.io.timeout.ms",
        LONG,
        30_000,
        MEDIUM,
        READ_ONLY,
        "How long a log directory may leave a call, and a probe beside it, without an answer before it is offline.",
        at_least(100),
        known=_OWN,
    ),
    key(
        "ottla.log.dir.reserve.bytes",
        LONG,
        64 * 1024 * 1024,
        MEDIUM,
        READ_ONLY,
        "Bytes that stay free in a log directory: below them it is full, serves reads and refuses produce requests.",
        at_least(0),
        known=_OWN,
    ),
    key(
        "cordoned.log.dirs",
        LIST,
        (),
        MEDIUM,
        PER_BROKER,
        "Log directories that take no new partition (KIP-1066): directories of log.dirs, or * for all of them.",
        known=_OWN,
    ),
    key(
        "ottla.log.dirs.forgotten",
        LIST,
        (),
        MEDIUM,
        PER_BROKER,
        "Offline log directories whose only copies a person has given up (`ottla disk forget`): such partitions begin "
        "anew, empty. An entry goes by itself when its directory is back.",
        known=_OWN,
    ),
    key(
        "ottla.validate.records",
        STRING,
        "headers",
        LOW,
        READ_ONLY,
        "How much of a produced batch is checked: its header and checksum, or every record.",
        one_of("headers", "always"),
        known=_OWN,
    ),
)

LEGACY_KEYS: tuple[ConfigKey, ...] = (
    key("host.name", STRING, None, LOW, READ_ONLY, "Address to bind to where listeners is not given.", known=_LEGACY),
    key("port", INT, 9092, LOW, READ_ONLY, "Port to bind to where listeners is not given.", at_least(0), known=_LEGACY),
    key(
        "advertised.host.name",
        STRING,
        None,
        LOW,
        READ_ONLY,
        "Host that clients are told where advertised.listeners is not given.",
        known=_LEGACY,
    ),
    key(
        "advertised.port",
        INT,
        None,
        LOW,
        READ_ONLY,
        "Port that clients are told where advertised.listeners is not given.",
        at_least(0),
        known=_LEGACY,
    ),
    key(
        "log.delete.delay.ms",
        LONG,
        60000,
        LOW,
        READ_ONLY,
        "Older name of log.segment.delete.delay.ms.",
        at_least(0),
        known=_LEGACY,
    ),
    key(
        "offsets.topic.retention.minutes",
        INT,
        10080,
        LOW,
        READ_ONLY,
        "Older name of offsets.retention.minutes.",
        at_least(1),
        known=_LEGACY,
    ),
    key(
        "quota.producer.default",
        LONG,
        LONG_MAX,
        LOW,
        READ_ONLY,
        "Bytes per second a client may produce where no quota is stored.",
        at_least(1),
        note=NOT_YET,
        known=_LEGACY,
    ),
    key(
        "quota.consumer.default",
        LONG,
        LONG_MAX,
        LOW,
        READ_ONLY,
        "Bytes per second a client may fetch where no quota is stored.",
        at_least(1),
        note=NOT_YET,
        known=_LEGACY,
    ),
    key(
        "replica.lag.max.messages",
        LONG,
        4000,
        LOW,
        READ_ONLY,
        "Records a follower could be behind; replica.lag.time.max.ms decides alone.",
        note=OBSOLETE,
        known=_LEGACY,
    ),
    key(
        "controller.message.queue.size",
        INT,
        INT_MAX,
        LOW,
        READ_ONLY,
        "Requests the controller kept waiting for one broker.",
        note=OBSOLETE,
        known=_LEGACY,
    ),
    key(
        "zookeeper.sync.time.ms",
        INT,
        2000,
        LOW,
        READ_ONLY,
        "How far a ZooKeeper follower could lie behind.",
        note=OBSOLETE,
        known=_LEGACY,
    ),
)

DYNAMIC_KEYS: tuple[ConfigKey, ...] = (
    key(
        "leader.replication.throttled.rate",
        LONG,
        LONG_MAX,
        MEDIUM,
        PER_BROKER,
        "Bytes per second a leader sends to throttled replicas.",
        at_least(0),
        known=_DYNAMIC,
    ),
    key(
        "follower.replication.throttled.rate",
        LONG,
        LONG_MAX,
        MEDIUM,
        PER_BROKER,
        "Bytes per second a follower takes for throttled replicas.",
        at_least(0),
        known=_DYNAMIC,
    ),
    key(
        "replica.alter.log.dirs.io.max.bytes.per.second",
        LONG,
        LONG_MAX,
        MEDIUM,
        CLUSTER_WIDE,
        "Bytes per second of moves between log directories.",
        at_least(0),
        known=_DYNAMIC,
    ),
)

LEGACY_ALIASES: dict[str, str] = {
    "log.delete.delay.ms": "log.segment.delete.delay.ms",
    "offsets.topic.retention.minutes": "offsets.retention.minutes",
}
"""Older names of keys that still exist: they set the newer one where that is not given itself."""

KEYS: tuple[ConfigKey, ...] = (*OWN_KEYS, *LEGACY_KEYS, *DYNAMIC_KEYS)
