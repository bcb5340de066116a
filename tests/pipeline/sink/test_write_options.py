"""The options of a write: what they mean, and that a mistake is named."""

from __future__ import annotations

import pytest

from ottla_broker.records.compression import Codec
from ottla_pipeline.errors import OptionError

pytest.importorskip("pyarrow")

from ottla_pipeline.sink.write_options import Guarantee, WriteOptions, parse_write_options


def parse(**options: str) -> WriteOptions:
    return parse_write_options({"kafka.bootstrap.servers": "h:1", "topic": "t", **options})


def test_a_write_is_exactly_once_unless_told_otherwise() -> None:
    found = parse()
    assert (found.guarantee, found.sending.acks, found.sending.is_idempotent) == (Guarantee.EXACTLY_ONCE, -1, True)
    assert parse(GUARANTEE="At-Least-Once").guarantee is Guarantee.AT_LEAST_ONCE


def test_options_of_the_java_producer_are_taken() -> None:
    found = parse(
        **{
            "kafka.compression.type": "zstd", "kafka.compression.zstd.level": "9", "kafka.max.request.size": "5000000",
            "kafka.linger.ms": "50", "kafka.retries": "3", "checkpointLocation": "/c", "queryName": "q",
            "includeHeaders": "true", "asyncProgressTrackingEnabled": "false",
        }
    )  # fmt: skip
    assert (found.sending.codec, found.sending.level, found.sending.request_bytes) == (Codec.ZSTD, 9, 5_000_000)
    assert parse(guarantee="at-least-once", **{"kafka.acks": "1"}).sending.is_idempotent is False


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("guarentee", "exactly-once", "option guarentee: is unknown; did you mean guarantee?"),
        ("kafka.compresion.type", "lz4", "did you mean kafka.compression.type"),
        ("subscribe", "t", "option subscribe: is unknown"),
        ("guarantee", "at-most-once", "option guarantee: must be exactly-once or at-least-once"),
        ("kafka.acks", "1", "option kafka.acks: must be all with guarantee=exactly-once"),
        ("kafka.acks", "0", "option kafka.acks: 0 cannot be set"),
        ("kafka.acks", "2", "option kafka.acks: must be all, -1 or 1, not '2'"),
        ("kafka.enable.idempotence", "false", "must be true with guarantee=exactly-once"),
        ("kafka.max.in.flight.requests.per.connection", "6", "must be at most 5"),
        ("kafka.compression.type", "brotli", "must be none, gzip, snappy, lz4 or zstd"),
        ("kafka.compression.gzip.level", "12", "option kafka.compression.gzip.level: must be at most 9"),
        ("kafka.delivery.timeout.ms", "10", "must be at least kafka.request.timeout.ms, 30000"),
        ("kafka.partitioner.class", "x", "cannot be set: there is no Java code in a write"),
        ("kafka.key.serializer", "x", "cannot be set: keys are binary or string columns"),
        ("kafka.sasl.mechanism", "PLAIN", "kafka.sasl.mechanism would have no effect"),
        ("path", "/x", "option path: cannot be set"),
        ("asyncProgressTrackingEnabled", "true", "Spark would write several batches again"),
        ("topic", " ", "option topic: is empty"),
        ("kafka.transactional.id", "", "option kafka.transactional.id: is empty"),
        ("missingMarker", "-1", "option missingMarker: must be fail, write or the number of a batch, not '-1'"),
        ("missingMarker", "1" * 5000, "option missingMarker: must be fail, write or the number of a batch"),
        ("txnAppId", "q", "option txnAppId: needs txnVersion, the number of the batch"),
        ("txnVersion", "0", "option txnVersion: needs txnAppId, which says whose batch it is"),
        ("txnVersion", "-1", "option txnVersion: must be at least 0, not -1"),
    ],
)  # fmt: skip
def test_a_wrong_option_is_named(name: str, value: str, message: str) -> None:
    with pytest.raises(OptionError) as raised:
        parse(**{name: value})
    assert message in str(raised.value)


@pytest.mark.parametrize(
    "name", ["kafka.transactional.id", "kafka.transaction.timeout.ms", "missingMarker", "spoolDirectory", "txnVersion"]
)
def test_what_belongs_to_transactions_needs_exactly_once(name: str) -> None:
    with pytest.raises(OptionError, match=f"option {name}: needs guarantee=exactly-once"):
        parse(guarantee="at-least-once", **{name: "1"})
