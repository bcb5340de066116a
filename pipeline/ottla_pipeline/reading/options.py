"""The options of `spark.read.format("ottla")`, with the names, defaults and meaning of the stock Kafka connector. Pure.

Spark passes options without regard to case; errors use the spelling of the documentation. An unknown option, which the
stock connector ignores, is an error here: with a typo the wrong rows would be read.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, NamedTuple, TypeAlias

from ottla_pipeline.errors import OptionError
from ottla_pipeline.option_values import (
    INT32_MAX,
    boolean,
    by_partition,
    choice,
    duration_ms,
    is_int,
    json_object,
    number,
    required_number,
)
from ottla_pipeline.reading.admission import DEFAULT_TRIGGER_DELAY_MS, NO_LIMITS, TriggerLimits
from ottla_pipeline.reading.java_patterns import PatternError, compile_java
from ottla_pipeline.topic_partition import EARLIEST, LATEST, TopicPartition
from ottla_pipeline.wire.connecting import Connecting, parse_connecting
from ottla_pipeline.wire.security_options import SECURITY_OPTIONS, check_security_option, is_security_option

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


class FromGroup(NamedTuple):
    """committed: what the consumer group of the option groupId has committed; streams only."""

    option: str


Bound: TypeAlias = AtEnd | AtOffsets | AtTimestamps | FromGroup


class NoMatch(Enum):
    """startingOffsetsByTimestampStrategy: what to do where no record is young enough."""

    ERROR = "error"
    LATEST = "latest"


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """A checked set of options for a batch read or a stream, which has no ending offsets."""

    topics: Topics
    connecting: Connecting
    starting: Bound
    ending: Bound
    no_match: NoMatch = NoMatch.ERROR
    min_partitions: int | None = None
    max_records_per_partition: int | None = None
    include_headers: bool = False
    fail_on_data_loss: bool = True
    limits: TriggerLimits = NO_LIMITS
    group_id: str | None = None
    ignored: tuple[str, ...] = field(default=())
    """Options that have an effect on streams only."""


def parse(options: Mapping[str, str]) -> ReadOptions:
    """The options of a batch read, as far as no broker is needed. OptionError names the first one that is wrong."""
    given = {name.lower(): str(value) for name, value in options.items()}
    _refuse_tables_and_paths(given)
    _refuse_unknown(given)
    starting = _bound(given, "starting", EARLIEST)
    ending = _bound(given, "ending", LATEST)
    if isinstance(starting, FromGroup):
        raise OptionError(starting.option, "committed is for streams: a batch read has no group")
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
        **_common(given),
        starting=starting,
        ending=ending,
        ignored=tuple(name for name in _STREAMING_ONLY if name.lower() in given),
    )


def check_names(options: Mapping[str, str]) -> None:
    """OptionError for the first option whose name is unknown or refused."""
    given = {name.lower(): str(value) for name, value in options.items()}
    _refuse_tables_and_paths(given)
    _refuse_unknown(given)


def parse_stream(options: Mapping[str, str]) -> ReadOptions:
    """The options of a stream, likewise."""
    given = {name.lower(): str(value) for name, value in options.items()}
    _refuse_tables_and_paths(given)
    _refuse_unknown(given)
    for name in _BATCH_ONLY:
        if name.lower() in given:
            raise OptionError(name, "is for batch reads: a stream has no end")
    group_id = given.get("groupid")
    if group_id == "":
        raise OptionError("groupId", "is empty")
    starting = _bound(given, "starting", LATEST)
    if isinstance(starting, FromGroup) and group_id is None:
        raise OptionError(starting.option, "committed needs the option groupId, whose committed offsets are read")
    limits = TriggerLimits(
        max_offsets=number(given, "maxOffsetsPerTrigger", None, 1),
        min_offsets=number(given, "minOffsetsPerTrigger", None, 1),
        max_delay_ms=duration_ms(given, "maxTriggerDelay", DEFAULT_TRIGGER_DELAY_MS),
        max_bytes=number(given, "maxBytesPerTrigger", None, 1),
    )
    if limits.max_offsets is not None and (limits.min_offsets or 0) > limits.max_offsets:
        raise OptionError(
            "minOffsetsPerTrigger", f"{limits.min_offsets} is more than maxOffsetsPerTrigger, {limits.max_offsets}"
        )
    return ReadOptions(**_common(given), starting=starting, ending=AtEnd(LATEST), limits=limits, group_id=group_id)


def _common(given: Mapping[str, str]) -> dict[str, Any]:
    return {
        "topics": _topics(given),
        "connecting": parse_connecting(given),
        "no_match": choice(given, "startingOffsetsByTimestampStrategy", NoMatch, NoMatch.ERROR),
        "min_partitions": number(given, "minPartitions", None, 1, INT32_MAX),
        "max_records_per_partition": number(given, "maxRecordsPerPartition", None, 1),
        "include_headers": boolean(given, "includeHeaders", False),
        "fail_on_data_loss": boolean(given, "failOnDataLoss", True),
    }


# -- names

_OWN = (
    "assign", "subscribe", "subscribePattern",
    "startingOffsets", "startingTimestamp", "startingOffsetsByTimestamp", "startingOffsetsByTimestampStrategy",
    "endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp",
    "minPartitions", "maxRecordsPerPartition", "includeHeaders", "failOnDataLoss",
    "fetchOffset.numRetries", "fetchOffset.retryIntervalMs", "kafkaConsumer.pollTimeoutMs",
)  # fmt: skip

_STREAMING_ONLY = ("maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay", "maxBytesPerTrigger", "groupId")

_BATCH_ONLY = ("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp")

_WITHOUT_EFFECT = ("groupIdPrefix", "kafka.group.id")
"""Taken and not needed: no consumer group takes part in a read."""

_KAFKA = (
    "kafka.bootstrap.servers", "kafka.client.id", "kafka.request.timeout.ms", "kafka.default.api.timeout.ms",
    "kafka.isolation.level", "kafka.check.crcs", "kafka.fetch.max.wait.ms", "kafka.fetch.min.bytes",
    "kafka.max.partition.fetch.bytes",
    "kafka.fetch.max.bytes",
)  # fmt: skip

_KAFKA_WITHOUT_EFFECT = (
    "kafka.allow.auto.create.topics", "kafka.auto.commit.interval.ms", "kafka.auto.include.jmx.reporter",
    "kafka.client.dns.lookup", "kafka.client.rack", "kafka.connections.max.idle.ms",
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
    "kafka.enable.auto.commit": "a stream commits what is done to the group of groupId, a batch read nothing",
    "kafka.interceptor.classes": "interceptors could alter the rows",
}
"""What the stock connector refuses too."""

_EVERY_NAME = (*_OWN, *_STREAMING_ONLY, *_WITHOUT_EFFECT, *_KAFKA, *SECURITY_OPTIONS, *_KAFKA_WITHOUT_EFFECT)
_SPELLING = {name.lower(): name for name in _EVERY_NAME}


def _refuse_tables_and_paths(given: Mapping[str, str]) -> None:
    """Spark itself adds these: `provider` in CREATE TABLE, `path` in load("x")."""
    if "provider" in given:
        raise OptionError(
            "provider",
            "Spark reads a table of its catalogue without the options of a Python source: write"
            " CREATE TEMPORARY VIEW ... USING ottla OPTIONS (...)",
        )
    if "path" in given:
        raise OptionError("path", 'is of no use here: write load() without a path, and option("subscribe", "topic")')


def _refuse_unknown(given: Mapping[str, str]) -> None:
    for name in given:
        if name in _FORBIDDEN:
            raise OptionError(name, f"cannot be set: {_FORBIDDEN[name]}")
        if name in _SPELLING:
            continue
        if is_security_option(name):
            check_security_option(name)
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
            return SubscribePattern(compile_java(value))
        except PatternError as error:
            raise OptionError(name, f"{value!r}: {error}") from None
    found: list[TopicPartition] = []
    form = 'must be JSON such as {"topic": [0, 1]}'
    for topic, partitions in json_object(name, value, form).items():
        if not isinstance(partitions, list) or not all(
            is_int(number) and 0 <= number <= INT32_MAX for number in partitions
        ):
            raise OptionError(name, f"{form}, not {partitions!r} for {topic}")
        found += [TopicPartition(topic, number) for number in partitions]
    if not found:
        raise OptionError(name, "names no partition")
    return Assign(tuple(dict.fromkeys(found)))


def _bound(given: Mapping[str, str], side: str, default: int) -> Bound:
    """One time for all wins over times by partition, those over offsets."""
    one_time, times, offsets = f"{side}Timestamp", f"{side}OffsetsByTimestamp", f"{side}Offsets"
    if one_time.lower() in given:
        return AtTimestamps(None, required_number(given, one_time, 0), one_time)
    if times.lower() in given:
        found = by_partition(times, given[times.lower()])
        for partition, timestamp in found.items():
            if timestamp < EARLIEST:
                raise OptionError(times, f"{timestamp} for {partition} is no time (-1: latest, -2: earliest)")
        return AtTimestamps(found, 0, times)
    value = given.get(offsets.lower())
    if value is None:
        return AtEnd(default)
    word = value.strip().lower()
    if word == "committed" and side == "starting":
        return FromGroup(offsets)
    if word in ("earliest", "latest"):
        return AtEnd(EARLIEST if word == "earliest" else LATEST)
    found = by_partition(offsets, value, 'must be earliest, latest or JSON such as {"topic": {"0": 23, "1": -2}}')
    for partition, offset in found.items():
        if offset < EARLIEST:
            raise OptionError(offsets, f"{offset} for {partition} is no offset (-1: latest, -2: earliest)")
    return AtOffsets(found, offsets)
