"""Reads what a client pushes: decompresses it, and takes the data points that become series. Pure, and a job for it.

20 MB of data points may be in one megabyte, so more than a little is read in a worker process. What comes back is small
however large the push was: names and labels are those of the series already, and cut.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final, NamedTuple, TypeAlias

from ottla_broker.ports.disk import Disk
from ottla_broker.records.compression import Codec, decompress
from ottla_broker.records.errors import BatchTooLarge, RecordsError
from ottla_broker.telemetry.otlp import read_points

READ_PUSH_JOB: Final = "read-client-metrics"
LITTLE_PUSH_BYTES: Final = 8 * 1024
"""Up to here, decompressed, a push is read on the event loop: it takes a millisecond."""
MOST_POINTS: Final = 2_000
"""Of one push. A producer of a thousand partitions has fewer."""
MOST_EXPANSION: Final = 20
"""A push of telemetry.max.bytes may have so many times as many bytes once it is decompressed."""

_KAFKA: Final = "org.apache.kafka."
_PREFIX: Final = "kafka_client_"
_NO_NAME = re.compile(r"[^a-zA-Z0-9_]")
_MOST_LABELS: Final = 16
LONGEST_TEXT: Final = 256

Labels: TypeAlias = "tuple[tuple[str, str], ...]"


class SeriesPoint(NamedTuple):
    """One data point of a series, as plain values."""

    name: str
    labels: Labels
    value: float
    is_counter: bool
    is_delta: bool
    """`value` is what was added since the push before."""


class PushedPoints(NamedTuple):
    """The points of one push."""

    points: list[SeriesPoint]
    beyond: int
    """How many there were beyond `MOST_POINTS`."""


def read_push(codec: int, data: bytes, max_bytes: int) -> PushedPoints:
    """The data points of one push.

    Args:
        codec: as on the wire.
        data: compressed with it.
        max_bytes: the limit of the decompressed data.

    Raises:
        ValueError: it cannot be read, or is too large.
        BatchTooLarge: it decompresses to more than `max_bytes`.
    """
    plain = data if codec == Codec.NONE else decompress(Codec(codec), data, max_bytes)
    if len(plain) > max_bytes:
        raise BatchTooLarge(f"the metrics have {len(plain)} bytes")
    points, beyond = read_points(plain, MOST_POINTS)
    return PushedPoints(
        [
            SeriesPoint(
                series_name(point.name, is_counter=point.is_counter),
                _labels(point.labels),
                point.value,
                point.is_counter,
                point.is_delta,
            )
            for point in points
        ],
        beyond,
    )


async def read_push_job(_disk: Disk, codec: int, data: bytes, max_bytes: int) -> tuple[bool, Any]:
    """`read_push`: (True, its fields) or (False, why it cannot be read)."""
    try:
        return True, tuple(read_push(codec, data, max_bytes))
    except (ValueError, RecordsError) as error:
        return False, str(error)


def pushed_points_of(result: tuple[bool, Any]) -> PushedPoints:
    """The result of `read_push_job`. Raises its ValueError."""
    is_done, value = result
    if not is_done:
        raise ValueError(value)
    return PushedPoints(*value)


def series_name(metric: str, *, is_counter: bool) -> str:
    """The name of a metric's series, without the `_total` that Prometheus gives a counter.

    >>> series_name("org.apache.kafka.producer.record.queue.time.avg", is_counter=False)
    'kafka_client_producer_record_queue_time_avg'
    >>> series_name("org.apache.kafka.producer.connection.creation.total", is_counter=True)
    'kafka_client_producer_connection_creation'
    """
    name = _PREFIX + _NO_NAME.sub("_", metric.removeprefix(_KAFKA)[:LONGEST_TEXT])
    return name.removesuffix("_total") if is_counter else name


def _labels(attributes: Mapping[str, str]) -> Labels:
    found = {}
    for key in sorted(attributes)[:_MOST_LABELS]:
        name = _NO_NAME.sub("_", key[:LONGEST_TEXT])
        found[f"_{name}" if name[:1].isdigit() or not name else name] = attributes[key][:LONGEST_TEXT]
    return tuple(found.items())
