"""Reads the metrics that a client pushes: MetricsData v1 of the OpenTelemetry protocol, a protobuf message. Pure.

Clients of Kafka send sums and gauges. Data points of other kinds are passed over. The protobuf classes are imported
when the first client pushes: they take 9 MB.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any, NamedTuple

_DELTA = 1
"""AGGREGATION_TEMPORALITY_DELTA."""


class Point(NamedTuple):
    """One data point. `labels` has the attributes of the point and of its resource; the point's win."""

    name: str
    labels: dict[str, str]
    value: float
    is_counter: bool
    """A monotonic sum."""
    is_delta: bool
    """`value` is what was added since the push before."""


def read_points(data: bytes, most: int) -> tuple[list[Point], int]:
    """The first `most` data points of MetricsData, and how many there are beyond. ValueError when it cannot be read."""
    from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
    from opentelemetry.proto.metrics.v1.metrics_pb2 import MetricsData

    message = MetricsData()
    try:
        message.ParseFromString(data)
    except DecodeError as error:
        raise ValueError(f"no MetricsData of OpenTelemetry: {error}") from None
    found = _points(message)
    points = list(islice(found, most))
    return points, sum(1 for _ in found)


def _points(message: Any) -> Iterator[Point]:
    for resource in message.resource_metrics:
        shared = _labels(resource.resource.attributes)
        for scope in resource.scope_metrics:
            for metric in scope.metrics:
                yield from _points_of(metric, shared)


def _points_of(metric: Any, shared: dict[str, str]) -> Iterable[Point]:
    kind = metric.WhichOneof("data")
    if kind == "gauge":
        data, is_counter, is_delta = metric.gauge, False, False
    elif kind == "sum":
        data, is_counter = metric.sum, metric.sum.is_monotonic
        is_delta = metric.sum.aggregation_temporality == _DELTA
    else:
        return
    for point in data.data_points:
        value = point.as_double if point.WhichOneof("value") == "as_double" else float(point.as_int)
        yield Point(metric.name, shared | _labels(point.attributes), value, is_counter, is_delta)


def _labels(attributes: Any) -> dict[str, str]:
    found = {}
    for attribute in attributes:
        kind = attribute.value.WhichOneof("value")
        if kind in ("string_value", "int_value", "bool_value", "double_value"):
            found[attribute.key] = str(getattr(attribute.value, kind))
    return found
