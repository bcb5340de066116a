"""The names of the files and directories in a log directory, as Apache Kafka 3.9 writes them."""

from __future__ import annotations

import re
from typing import NamedTuple

from ottla_broker.records.ids import TopicPartition

LOG = ".log"
INDEX = ".index"
TIME_INDEX = ".timeindex"
TXN_INDEX = ".txnindex"
SNAPSHOT = ".snapshot"
DELETED = ".deleted"
SWAP = ".swap"
CLEANED = ".cleaned"
TEMPORARY = ".tmp"

SEGMENT_SUFFIXES = (LOG, INDEX, TIME_INDEX, TXN_INDEX)
"""The files of one segment."""

LEADER_EPOCHS = "leader-epoch-checkpoint"
PARTITION_METADATA = "partition.metadata"

RECOVERY_POINTS = "recovery-point-offset-checkpoint"
LOG_START_OFFSETS = "log-start-offset-checkpoint"
HIGH_WATERMARKS = "replication-offset-checkpoint"
CLEAN_OFFSETS = "cleaner-offset-checkpoint"
META_PROPERTIES = "meta.properties"
CLEAN_SHUTDOWN = ".kafka_cleanshutdown"
BOOT_ID = "ottla.boot-id"
"""The kernel's boot id at the last start of the broker on this log directory. Apache Kafka ignores the file."""
POWER_LOSS_SUSPECTED = "ottla.power-loss-suspected"
"""Exists from the recovery after a power loss until the broker has registered."""
NEW_DIRECTORY = "ottla.new-directory"
"""Exists from the formatting of an empty log directory until the broker has registered."""

DIRECTORY_RECORD = "ottla.directories"
"""In each log directory of a broker with several: what the broker knows of all of them. Apache Kafka ignores it."""

FUTURE_REPLICA_MARKER = "ottla.future-replica"
"""In the directory of a future replica (KIP-113), from its creation until the log that it replaces is deleted: of two
directories of one partition, the one with this file is the newer. Apache Kafka ignores it."""

DELETE_DIRECTORY = "-delete"
STRAY_DIRECTORY = "-stray"
FUTURE_DIRECTORY = "-future"

_PARTITION = re.compile(r"(.+)-(\d+)")
_RENAMED = re.compile(r"(.+)-(\d+)\.([0-9a-f]+)(-delete|-future|-stray)")
_OFFSET_FILE = re.compile(r"(\d{20})(\.[a-z]+)(\.[a-z]+)?")
_MAX_NAME = 255
_TOPIC = re.compile(r"[a-zA-Z0-9._-]{1,249}")


class OffsetFile(NamedTuple):
    """A file whose name begins with an offset: "00000000000000000042.log.deleted" is (42, ".log", ".deleted")."""

    offset: int
    suffix: str
    marker: str


def offset_name(offset: int, suffix: str) -> str:
    """
    >>> offset_name(42, LOG)
    '00000000000000000042.log'
    """
    return f"{offset:020d}{suffix}"


def parse_offset_file(name: str) -> OffsetFile | None:
    """The parts of a file name; None when it does not begin with an offset."""
    match = _OFFSET_FILE.fullmatch(name)
    return None if match is None else OffsetFile(int(match[1]), match[2], match[3] or "")


def is_topic_name(name: str) -> bool:
    """Kafka's rule for topic names: none leads out of a log directory.

    >>> is_topic_name("my-topic"), is_topic_name(".."), is_topic_name("a/b"), is_topic_name("")
    (True, False, False, False)
    """
    return _TOPIC.fullmatch(name) is not None and name not in (".", "..")


def parse_partition_directory(name: str) -> TopicPartition | None:
    """
    >>> parse_partition_directory("my-topic-12")
    TopicPartition(topic='my-topic', partition=12)
    """
    if name.endswith((DELETE_DIRECTORY, FUTURE_DIRECTORY, STRAY_DIRECTORY)) and _RENAMED.fullmatch(name):
        return None
    match = _PARTITION.fullmatch(name)
    return None if match is None else TopicPartition(match[1], int(match[2]))


def future_name(partition: TopicPartition, unique: str) -> str | None:
    """`<topic>-<partition>.<unique>-future`; None when that is longer than a file name may be.

    >>> future_name(TopicPartition("t", 0), "0123456789abcdef0123456789abcdef")
    't-0.0123456789abcdef0123456789abcdef-future'
    """
    name = f"{partition}.{unique}{FUTURE_DIRECTORY}"
    return name if len(name.encode()) <= _MAX_NAME else None


def parse_future_directory(name: str) -> TopicPartition | None:
    """
    >>> parse_future_directory("my-topic-12.0123456789abcdef0123456789abcdef-future")
    TopicPartition(topic='my-topic', partition=12)
    """
    match = _RENAMED.fullmatch(name)
    return TopicPartition(match[1], int(match[2])) if match is not None and match[4] == FUTURE_DIRECTORY else None


def is_renamed_directory(name: str, suffix: str) -> bool:
    """Whether a partition directory was renamed with this suffix: -delete, -stray or -future."""
    match = _RENAMED.fullmatch(name)
    return match is not None and match[4] == suffix


def renamed_directory_name(partition: TopicPartition, unique: str, suffix: str) -> str:
    """`<topic>-<partition>.<unique>-delete` and the like, with the topic shortened so that it fits 255 bytes."""
    tail = f"-{partition.partition}.{unique}{suffix}"
    return partition.topic[: _MAX_NAME - len(tail)] + tail
