"""The options of `df.write.format("ottla")` and `writeStream.format("ottla")`. Pure.

Names, defaults and meaning are those of Spark's own Kafka sink and of the Java producer behind its `kafka.` options. An
unknown option is an error, as for reads: a typo would change what is guaranteed.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from ottla_broker.protocol.number_text import whole_number
from ottla_broker.records.compression import Codec
from ottla_pipeline.errors import OptionError
from ottla_pipeline.option_values import INT32_MAX, boolean, choice, number, required_number
from ottla_pipeline.wire.connecting import Connecting, parse_connecting
from ottla_pipeline.wire.security_options import SECURITY_OPTIONS, check_security_option, is_security_option


class Guarantee(Enum):
    """guarantee: what a batch that is written again may leave behind."""

    EXACTLY_ONCE = "exactly-once"
    AT_LEAST_ONCE = "at-least-once"


@dataclass(frozen=True, slots=True)
class Sending:
    """How batches are sent: the options of the Java producer, times in ms."""

    acks: int = -1
    is_idempotent: bool = True
    codec: Codec = Codec.NONE
    level: int | None = None
    batch_bytes: int = 1_000_000
    request_bytes: int = 1024 * 1024
    buffer_bytes: int = 32 * 1024 * 1024
    in_flight: int = 5
    delivery_timeout_ms: int = 120_000
    request_timeout_ms: int = 30_000
    retry_backoff_ms: int = 100
    retry_backoff_max_ms: int = 1000
    max_block_ms: int = 60_000


@dataclass(frozen=True, slots=True)
class NumberedWrite:
    """txnAppId and txnVersion, with Delta Lake's names: the batch of a `foreachBatch` that a write is. `application`:
    of the query, for one write of each of its batches; `version`: the number of the batch, from 0."""

    application: str
    version: int


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """A checked set of options for a write."""

    connecting: Connecting
    sending: Sending
    topic: str | None = None
    guarantee: Guarantee = Guarantee.EXACTLY_ONCE
    unmarked_from: int | None = None
    """missingMarker: the first batch that is written although the one before it has left no marker; None for none."""
    checkpoint: str | None = None
    """checkpointLocation, a path or a URL."""
    transactional_id: str | None = None
    transaction_timeout_ms: int | None = None
    """None chooses one by the size of the batch."""
    spool_directory: str | None = None
    numbered: NumberedWrite | None = None
    """The numbered write; only `df.write` has one."""


def parse_write_options(options: Mapping[str, str]) -> WriteOptions:
    """Checks everything that can be checked without a broker. OptionError names the first option that is wrong."""
    given = {name.lower(): str(value) for name, value in options.items()}
    _refuse(given)
    guarantee = choice(given, "guarantee", Guarantee, Guarantee.EXACTLY_ONCE)
    topic = given.get("topic")
    if topic is not None and not topic.strip():
        raise OptionError("topic", "is empty")
    transactional_id = given.get("kafka.transactional.id")
    if guarantee is Guarantee.AT_LEAST_ONCE:
        for name in _OF_TRANSACTIONS:
            if name.lower() in given:
                raise OptionError(name, "needs guarantee=exactly-once: other writes have no transaction")
    elif transactional_id is not None and not transactional_id:
        raise OptionError("kafka.transactional.id", "is empty")
    return WriteOptions(
        connecting=parse_connecting({name: given[name] for name in given if name in _OF_CONNECTING}),
        sending=_sending(given, guarantee),
        topic=topic,
        guarantee=guarantee,
        unmarked_from=_unmarked_from(given),
        checkpoint=given.get("checkpointlocation"),
        transactional_id=transactional_id,
        transaction_timeout_ms=number(given, "kafka.transaction.timeout.ms", None, 1, INT32_MAX),
        spool_directory=given.get("spooldirectory"),
        numbered=_numbered(given),
    )


# -- names

_OWN = ("topic", "guarantee", "missingMarker", "spoolDirectory", "txnAppId", "txnVersion")

_OF_TRANSACTIONS = (
    "kafka.transactional.id", "kafka.transaction.timeout.ms", "missingMarker", "spoolDirectory", "txnAppId",
    "txnVersion",
)  # fmt: skip

_OF_SPARK = ("checkpointLocation", "queryName", "path")
"""Spark's own options of a write, which it hands over too; `path` is refused."""

_OF_CONNECTING = (
    "kafka.bootstrap.servers", "kafka.client.id", "kafka.request.timeout.ms", *SECURITY_OPTIONS,
)  # fmt: skip

_KAFKA = (
    "kafka.acks", "kafka.batch.size", "kafka.buffer.memory", "kafka.compression.gzip.level",
    "kafka.compression.lz4.level", "kafka.compression.type", "kafka.compression.zstd.level",
    "kafka.delivery.timeout.ms", "kafka.enable.idempotence", "kafka.max.block.ms",
    "kafka.max.in.flight.requests.per.connection", "kafka.max.request.size", "kafka.retry.backoff.max.ms",
    "kafka.retry.backoff.ms", "kafka.transaction.timeout.ms", "kafka.transactional.id",
)  # fmt: skip

_WITHOUT_EFFECT = (
    "includeHeaders",
    "kafka.auto.include.jmx.reporter", "kafka.client.dns.lookup", "kafka.connections.max.idle.ms",
    "kafka.enable.metrics.push", "kafka.linger.ms", "kafka.metadata.max.age.ms", "kafka.metadata.max.idle.ms",
    "kafka.metadata.recovery.strategy", "kafka.metric.reporters", "kafka.metrics.num.samples",
    "kafka.metrics.recording.level", "kafka.metrics.sample.window.ms", "kafka.partitioner.adaptive.partitioning.enable",
    "kafka.partitioner.availability.timeout.ms", "kafka.receive.buffer.bytes", "kafka.reconnect.backoff.max.ms",
    "kafka.reconnect.backoff.ms", "kafka.retries", "kafka.send.buffer.bytes",
    "kafka.socket.connection.setup.timeout.max.ms", "kafka.socket.connection.setup.timeout.ms",
)  # fmt: skip
"""Producer keys that tune what this sink does not have: it waits for no more rows (linger.ms), and retries until
delivery.timeout.ms. The stock sink takes includeHeaders: whether there are headers, the column says."""

_FORBIDDEN = {
    "kafka.key.serializer": "keys are binary or string columns",
    "kafka.value.serializer": "values are binary or string columns",
    "kafka.interceptor.classes": "there is no Java code in a write",
    "kafka.partitioner.class": "there is no Java code in a write; the column partition names partitions",
    "kafka.partitioner.ignore.keys": "the column partition names partitions",
    "path": "rows go to the topic of the option topic or of the column topic",
    "asyncprogresstrackingenabled": "Spark would write several batches again, which cannot be told from new ones",
}

_EVERY_NAME = (*_OWN, *_OF_SPARK, *_OF_CONNECTING, *_KAFKA, *_WITHOUT_EFFECT)
_SPELLING = {name.lower(): name for name in _EVERY_NAME}


def _refuse(given: Mapping[str, str]) -> None:
    for name, value in given.items():
        if name == "asyncprogresstrackingenabled" and value.lower() == "false":
            continue
        if name in _FORBIDDEN:
            raise OptionError(name, f"cannot be set: {_FORBIDDEN[name]}")
        if name in _SPELLING:
            continue
        if is_security_option(name):
            check_security_option(name)
        option_names = (
            [one for one in _SPELLING if one.startswith("kafka.")] if name.startswith("kafka.") else list(_SPELLING)
        )
        near = difflib.get_close_matches(name, option_names, n=1)
        raise OptionError(name, "is unknown" + (f"; did you mean {_SPELLING[near[0]]}?" if near else ""))


# -- groups of options


def _sending(given: Mapping[str, str], guarantee: Guarantee) -> Sending:
    default = Sending()
    acks = _acks(given)
    is_idempotent = boolean(given, "kafka.enable.idempotence", acks == -1)
    if is_idempotent and acks != -1:
        raise OptionError("kafka.acks", "must be all for an idempotent producer (kafka.enable.idempotence)")
    if guarantee is Guarantee.EXACTLY_ONCE and acks != -1:
        raise OptionError("kafka.acks", "must be all with guarantee=exactly-once")
    if guarantee is Guarantee.EXACTLY_ONCE and not is_idempotent:
        raise OptionError("kafka.enable.idempotence", "must be true with guarantee=exactly-once")
    in_flight = required_number(given, "kafka.max.in.flight.requests.per.connection", 1, default.in_flight)
    if is_idempotent and in_flight > 5:
        raise OptionError(
            "kafka.max.in.flight.requests.per.connection",
            f"must be at most 5 for an idempotent producer, not {in_flight}",
        )
    codec = _codec(given)
    request_timeout_ms = required_number(given, "kafka.request.timeout.ms", 1, default.request_timeout_ms, INT32_MAX)
    delivery_timeout_ms = required_number(given, "kafka.delivery.timeout.ms", 1, default.delivery_timeout_ms, INT32_MAX)
    if delivery_timeout_ms < request_timeout_ms:
        raise OptionError(
            "kafka.delivery.timeout.ms", f"must be at least kafka.request.timeout.ms, {request_timeout_ms}"
        )
    request_bytes = required_number(given, "kafka.max.request.size", 1, default.request_bytes, INT32_MAX)
    return Sending(
        acks=acks,
        is_idempotent=is_idempotent,
        codec=codec,
        level=_level(given, codec),
        batch_bytes=required_number(given, "kafka.batch.size", 0, min(default.batch_bytes, request_bytes), INT32_MAX),
        request_bytes=request_bytes,
        buffer_bytes=required_number(given, "kafka.buffer.memory", 1, default.buffer_bytes),
        in_flight=in_flight,
        delivery_timeout_ms=delivery_timeout_ms,
        request_timeout_ms=request_timeout_ms,
        retry_backoff_ms=required_number(given, "kafka.retry.backoff.ms", 0, default.retry_backoff_ms),
        retry_backoff_max_ms=required_number(given, "kafka.retry.backoff.max.ms", 0, default.retry_backoff_max_ms),
        max_block_ms=required_number(given, "kafka.max.block.ms", 0, default.max_block_ms),
    )


def _unmarked_from(given: Mapping[str, str]) -> int | None:
    value = given.get("missingmarker", "fail").lower()
    if value in ("fail", "write"):
        return 0 if value == "write" else None
    batch = whole_number(value)
    if batch is None or batch < 0:
        raise OptionError("missingMarker", f"must be fail, write or the number of a batch, not {value!r}")
    return batch


def _numbered(given: Mapping[str, str]) -> NumberedWrite | None:
    application, version = given.get("txnappid"), number(given, "txnVersion", None, 0)
    if application is None and version is None:
        return None
    if application is None:
        raise OptionError("txnVersion", "needs txnAppId, which says whose batch it is")
    if version is None:
        raise OptionError("txnAppId", "needs txnVersion, the number of the batch")
    if not application.strip():
        raise OptionError("txnAppId", "is empty")
    return NumberedWrite(application, version)


def _acks(given: Mapping[str, str]) -> int:
    value = given.get("kafka.acks", "all").lower()
    if value in ("all", "-1"):
        return -1
    if value == "1":
        return 1
    if value == "0":
        raise OptionError("kafka.acks", "0 cannot be set: nobody would say whether the rows were written")
    raise OptionError("kafka.acks", f"must be all, -1 or 1, not {value!r}")


def _codec(given: Mapping[str, str]) -> Codec:
    value = given.get("kafka.compression.type", "none").lower()
    for codec in Codec:
        if codec.name.lower() == value:
            return codec
    raise OptionError("kafka.compression.type", f"must be none, gzip, snappy, lz4 or zstd, not {value!r}")


_LEVELS = {Codec.GZIP: (-1, 9), Codec.LZ4: (1, 17), Codec.ZSTD: (-131072, 22)}


def _level(given: Mapping[str, str], codec: Codec) -> int | None:
    found: int | None = None
    for of, (least, most) in _LEVELS.items():
        level = number(given, f"kafka.compression.{of.name.lower()}.level", None, least, most)
        if of is codec:
            found = level
    return found
