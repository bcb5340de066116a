"""The options of `spark.read.format("ottla")`, with the names, defaults and meaning of the stock Kafka connector. Pure.

Spark passes options without regard to case; errors use the spelling of the documentation. An unknown option, which the
stock connector ignores, is an error here: with a typo the wrong rows would be read.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, NamedTuple, TypeAlias

from ottla_pipeline.errors import OptionError

LATEST = -1
EARLIEST = -2


class TopicPartition(NamedTuple):
    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


# -- which topics


class Subscribe(NamedTuple):
    """subscribe: these topics with all their partitions."""

    topics: tuple[str, ...]


class SubscribePattern(NamedTuple):
    """subscribePattern: every topic in whose name the pattern is found."""

    pattern: re.Pattern[str]


class Assign(NamedTuple):
    """assign: these partitions."""

    partitions: tuple[TopicPartition, ...]


Topics: TypeAlias = Subscribe | SubscribePattern | Assign


# -- which offsets


class AtEnd(NamedTuple):
    """EARLIEST or LATEST, in all partitions."""

    which: int


class AtOffsets(NamedTuple):
    """An offset for each partition; -1 the latest, -2 the earliest."""

    offsets: Mapping[TopicPartition, int]
    option: str


class AtTimestamps(NamedTuple):
    """The first offset whose record is not older, in ms; `default` where `timestamps` is None (one time for all)."""

    timestamps: Mapping[TopicPartition, int] | None
    default: int
    option: str


Bound: TypeAlias = AtEnd | AtOffsets | AtTimestamps


class NoMatch(Enum):
    """startingOffsetsByTimestampStrategy: what to do where no record is young enough."""

    ERROR = "error"
    LATEST = "latest"


@dataclass(frozen=True, slots=True)
class Connecting:
    """How brokers are reached and what a fetch asks for: the `kafka.` options."""

    bootstrap: tuple[tuple[str, int], ...]
    client_id: str = "ottla-pipeline"
    request_timeout_ms: int = 30_000
    read_committed: bool = False
    check_crcs: bool = True
    fetch_max_wait_ms: int = 500
    fetch_min_bytes: int = 1
    partition_fetch_bytes: int = 4 * 1024 * 1024
    retries: int = 3
    retry_interval_ms: int = 1000
    poll_timeout_ms: int = 120_000

    @property
    def addresses(self) -> str:
        return ",".join(f"{host}:{port}" for host, port in self.bootstrap)


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """A checked set of options for a batch read."""

    topics: Topics
    connecting: Connecting
    starting: Bound
    ending: Bound
    no_match: NoMatch = NoMatch.ERROR
    min_partitions: int | None = None
    max_records_per_partition: int | None = None
    include_headers: bool = False
    fail_on_data_loss: bool = True
    ignored: tuple[str, ...] = field(default=())
    """Options that have an effect on streams only."""


def parse(options: Mapping[str, str]) -> ReadOptions:
    """Checks everything that can be checked without a broker. OptionError names the first option that is wrong."""
    given = {name.lower(): str(value) for name, value in options.items()}
    _refuse_unknown(given)
    starting = _bound(given, "starting")
    ending = _bound(given, "ending")
    for bound, wrong, word, option in (
        (starting, LATEST, "latest", "startingOffsets"),
        (ending, EARLIEST, "earliest", "endingOffsets"),
    ):
        if isinstance(bound, AtEnd) and bound.which == wrong:
            raise OptionError(option, f"{word!r} would read nothing: a batch read cannot use it")
        if isinstance(bound, AtOffsets):
            for partition, offset in bound.offsets.items():
                if offset == wrong:
                    raise OptionError(option, f"{offset} ({word}) for {partition}: a batch read cannot use it")
    return ReadOptions(
        topics=_topics(given),
        connecting=_connecting(given),
        starting=starting,
        ending=ending,
        no_match=_choice(given, "startingOffsetsByTimestampStrategy", NoMatch, NoMatch.ERROR),
        min_partitions=_number(given, "minPartitions", None, 1),
        max_records_per_partition=_number(given, "maxRecordsPerPartition", None, 1),
        include_headers=_boolean(given, "includeHeaders", False),
        fail_on_data_loss=_boolean(given, "failOnDataLoss", True),
        ignored=tuple(name for name in _STREAMING_ONLY if name.lower() in given),
    )


# -- names

_OWN = (
    "assign", "subscribe", "subscribePattern",
    "startingOffsets", "startingTimestamp", "startingOffsetsByTimestamp", "startingOffsetsByTimestampStrategy",
    "endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp",
    "minPartitions", "maxRecordsPerPartition", "includeHeaders", "failOnDataLoss",
    "fetchOffset.numRetries", "fetchOffset.retryIntervalMs", "kafkaConsumer.pollTimeoutMs",
)  # fmt: skip

_STREAMING_ONLY = ("maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay")

_WITHOUT_EFFECT = ("groupIdPrefix", "kafka.group.id")
"""Taken and not needed: no consumer group takes part in a read."""

_KAFKA = (
    "kafka.bootstrap.servers", "kafka.client.id", "kafka.request.timeout.ms", "kafka.isolation.level",
    "kafka.check.crcs", "kafka.fetch.max.wait.ms", "kafka.fetch.min.bytes", "kafka.max.partition.fetch.bytes",
    "kafka.fetch.max.bytes", "kafka.security.protocol",
)  # fmt: skip

_KAFKA_WITHOUT_EFFECT = (
    "kafka.allow.auto.create.topics", "kafka.auto.commit.interval.ms", "kafka.auto.include.jmx.reporter",
    "kafka.client.dns.lookup", "kafka.client.rack", "kafka.connections.max.idle.ms", "kafka.default.api.timeout.ms",
    "kafka.enable.metrics.push", "kafka.exclude.internal.topics", "kafka.group.instance.id", "kafka.group.protocol",
    "kafka.group.remote.assignor", "kafka.heartbeat.interval.ms", "kafka.max.poll.interval.ms",
    "kafka.max.poll.records", "kafka.metadata.max.age.ms", "kafka.metric.reporters", "kafka.metrics.num.samples",
    "kafka.metrics.recording.level", "kafka.metrics.sample.window.ms", "kafka.partition.assignment.strategy",
    "kafka.receive.buffer.bytes", "kafka.reconnect.backoff.max.ms", "kafka.reconnect.backoff.ms",
    "kafka.retry.backoff.max.ms", "kafka.retry.backoff.ms", "kafka.send.buffer.bytes", "kafka.session.timeout.ms",
    "kafka.socket.connection.setup.timeout.max.ms", "kafka.socket.connection.setup.timeout.ms",
    "kafka.throw.on.fetch.stable.offset.unsupported",
)  # fmt: skip
"""Consumer keys that tune what this source does not have."""

_FORBIDDEN = {
    "kafka.auto.offset.reset": "offsets come from startingOffsets",
    "kafka.key.deserializer": "keys are binary; use functions on the column",
    "kafka.value.deserializer": "values are binary; use functions on the column",
    "kafka.enable.auto.commit": "no offsets are committed",
    "kafka.interceptor.classes": "interceptors could alter the rows",
}
"""What the stock connector refuses too."""

_EVERY_NAME = (*_OWN, *_STREAMING_ONLY, *_WITHOUT_EFFECT, *_KAFKA, *_KAFKA_WITHOUT_EFFECT)
_SPELLING = {name.lower(): name for name in _EVERY_NAME}


def _refuse_unknown(given: Mapping[str, str]) -> None:
    for name in given:
        if name in _FORBIDDEN:
            raise OptionError(name, f"cannot be set: {_FORBIDDEN[name]}")
        if name in _SPELLING:
            continue
        if name.startswith(("kafka.ssl.", "kafka.sasl.")):
            raise OptionError(name, "TLS and SASL are not served yet")
        near = difflib.get_close_matches(name, _SPELLING, n=1)
        raise OptionError(name, "is unknown" + (f"; did you mean {_SPELLING[near[0]]}?" if near else ""))


# -- groups of options


def _topics(given: Mapping[str, str]) -> Topics:
    named = [name for name in ("assign", "subscribe", "subscribePattern") if name.lower() in given]
    if len(named) != 1:
        which = " and ".join(named) + " are given" if named else "none is given"
        raise OptionError("subscribe", f"exactly one of assign, subscribe and subscribePattern is needed, {which}")
    name = named[0]
    value = given[name.lower()]
    if name == "subscribe":
        topics = tuple(dict.fromkeys(topic.strip() for topic in value.split(",") if topic.strip()))
        if not topics:
            raise OptionError(name, "names no topic")
        return Subscribe(topics)
    if name == "subscribePattern":
        try:
            return SubscribePattern(re.compile(value))
        except re.error as error:
            raise OptionError(name, f"{value!r} is no regular expression: {error}") from None
    found: list[TopicPartition] = []
    form = 'must be JSON such as {"topic": [0, 1]}'
    for topic, partitions in _json_object(name, value, form).items():
        if not isinstance(partitions, list) or not all(_is_int(number) and number >= 0 for number in partitions):
            raise OptionError(name, f"{form}, not {partitions!r} for {topic}")
        found += [TopicPartition(topic, number) for number in partitions]
    if not found:
        raise OptionError(name, "names no partition")
    return Assign(tuple(dict.fromkeys(found)))


def _bound(given: Mapping[str, str], side: str) -> Bound:
    """One time for all wins over times by partition, those over offsets."""
    one_time, times, offsets = f"{side}Timestamp", f"{side}OffsetsByTimestamp", f"{side}Offsets"
    if one_time.lower() in given:
        return AtTimestamps(None, _required_number(given, one_time, 0), one_time)
    if times.lower() in given:
        found = _by_partition(times, given[times.lower()])
        for partition, timestamp in found.items():
            if timestamp < 0:
                raise OptionError(times, f"{timestamp} for {partition} is no time in milliseconds")
        return AtTimestamps(found, 0, times)
    value = given.get(offsets.lower())
    if value is None:
        return AtEnd(EARLIEST if side == "starting" else LATEST)
    word = value.strip().lower()
    if word in ("earliest", "latest"):
        return AtEnd(EARLIEST if word == "earliest" else LATEST)
    found = _by_partition(offsets, value, 'must be earliest, latest or JSON such as {"topic": {"0": 23, "1": -2}}')
    for partition, offset in found.items():
        if offset < EARLIEST:
            raise OptionError(offsets, f"{offset} for {partition} is no offset (-1: latest, -2: earliest)")
    return AtOffsets(found, offsets)


def _connecting(given: Mapping[str, str]) -> Connecting:
    protocol = given.get("kafka.security.protocol", "PLAINTEXT")
    if protocol != "PLAINTEXT":
        raise OptionError("kafka.security.protocol", f"{protocol}: only PLAINTEXT is served yet")
    isolation = given.get("kafka.isolation.level", "read_uncommitted").lower()
    if isolation not in ("read_committed", "read_uncommitted"):
        raise OptionError("kafka.isolation.level", f"must be read_committed or read_uncommitted, not {isolation!r}")
    default = Connecting(())
    by_partition = _required_number(given, "kafka.max.partition.fetch.bytes", 1, default.partition_fetch_bytes)
    in_all = _required_number(given, "kafka.fetch.max.bytes", 1, 2**31 - 1)
    return Connecting(
        bootstrap=_bootstrap(given),
        client_id=given.get("kafka.client.id", default.client_id),
        request_timeout_ms=_required_number(given, "kafka.request.timeout.ms", 1, default.request_timeout_ms),
        read_committed=isolation == "read_committed",
        check_crcs=_boolean(given, "kafka.check.crcs", True),
        fetch_max_wait_ms=_required_number(given, "kafka.fetch.max.wait.ms", 0, default.fetch_max_wait_ms),
        fetch_min_bytes=_required_number(given, "kafka.fetch.min.bytes", 0, default.fetch_min_bytes),
        partition_fetch_bytes=min(by_partition, in_all),  # a task asks for one partition
        retries=_required_number(given, "fetchOffset.numRetries", 0, default.retries),
        retry_interval_ms=_required_number(given, "fetchOffset.retryIntervalMs", 0, default.retry_interval_ms),
        poll_timeout_ms=_required_number(given, "kafkaConsumer.pollTimeoutMs", 1, default.poll_timeout_ms),
    )


def _bootstrap(given: Mapping[str, str]) -> tuple[tuple[str, int], ...]:
    name = "kafka.bootstrap.servers"
    if not given.get(name, "").strip():
        raise OptionError(name, 'is needed: the addresses of brokers, "host:port,host:port"')
    found: list[tuple[str, int]] = []
    for address in given[name].split(","):
        host, colon, port = address.strip().rpartition(":")
        if not address.strip():
            continue
        if not (colon and host and port.isdecimal() and 0 < int(port) < 65536):
            raise OptionError(name, f"{address.strip()!r} is not host:port")
        found.append((host.removeprefix("[").removesuffix("]"), int(port)))
    return tuple(found)


# -- kinds of values


def _by_partition(
    name: str, value: str, form: str = 'must be JSON such as {"topic": {"0": 23}}'
) -> dict[TopicPartition, int]:
    found: dict[TopicPartition, int] = {}
    for topic, partitions in _json_object(name, value, form).items():
        if not isinstance(partitions, dict):
            raise OptionError(name, f"{form}, not {partitions!r} for {topic}")
        for partition, number in partitions.items():
            if not partition.isdecimal() or not _is_int(number):
                raise OptionError(name, f"{form}, not {partition!r}: {number!r} for {topic}")
            found[TopicPartition(topic, int(partition))] = number
    if not found:
        raise OptionError(name, "names no partition")
    return found


def _json_object(name: str, value: str, form: str) -> dict[str, Any]:
    try:
        found = json.loads(value)
    except ValueError:
        raise OptionError(name, f"{form}, not {value!r}") from None
    if not isinstance(found, dict):
        raise OptionError(name, f"{form}, not {value!r}")
    return found


def _is_int(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _boolean(given: Mapping[str, str], name: str, default: bool) -> bool:
    value = given.get(name.lower())
    if value is None:
        return default
    if value.lower() not in ("true", "false"):
        raise OptionError(name, f"must be true or false, not {value!r}")
    return value.lower() == "true"


def _number(given: Mapping[str, str], name: str, default: int | None, least: int) -> int | None:
    value = given.get(name.lower())
    if value is None:
        return default
    try:
        number = int(value)
    except ValueError:
        raise OptionError(name, f"must be a whole number, not {value!r}") from None
    if number < least:
        raise OptionError(name, f"must be at least {least}, not {number}")
    return number


def _required_number(given: Mapping[str, str], name: str, least: int, default: int | None = None) -> int:
    number = _number(given, name, default, least)
    assert number is not None, f"{name} has no default"
    return number


def _choice(given: Mapping[str, str], name: str, kind: type[NoMatch], default: NoMatch) -> NoMatch:
    value = given.get(name.lower())
    if value is None:
        return default
    try:
        return kind(value.lower())
    except ValueError:
        raise OptionError(name, f"must be {' or '.join(item.value for item in kind)}, not {value!r}") from None
