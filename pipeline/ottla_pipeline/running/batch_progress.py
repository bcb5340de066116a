"""Spark's progress of a batch as the status of a pipeline has it. Pure.

Source: StreamingQueryProgress of Spark. Offsets of topics are {"topic": {"0": 23}}.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any


def query_status(progress: Mapping[str, Any]) -> dict[str, Any]:
    """The status of a query after a batch.

    Args:
        progress: the JSON of a StreamingQueryProgress.

    >>> found = query_status({"id": "a", "batchId": 3, "numInputRows": 10, "timestamp": "2026-01-01T00:00:00.000Z",
    ...     "inputRowsPerSecond": 5.0, "processedRowsPerSecond": 20.0, "batchDuration": 500, "eventTime": {},
    ...     "sources": [{"endOffset": {"t": {"0": 10, "1": 7}}, "latestOffset": {"t": {"0": 12, "1": 7}}}]})
    >>> found["lag"], found["totalLag"], found["lastBatchId"], found["watermark"]
    ({'t': {'0': 2, '1': 0}}, 2, 3, '')
    """
    lag: dict[str, dict[str, int]] = {}
    for source in progress.get("sources", ()):
        for topic, partitions in _lag(source).items():
            lag.setdefault(topic, {}).update(partitions)
    return {
        "queryId": progress.get("id", ""),
        "runId": progress.get("runId", ""),
        "lastBatchId": progress.get("batchId", -1),
        "lastBatchTime": progress.get("timestamp", ""),
        "lastBatchDurationMs": progress.get("batchDuration", 0),
        "numInputRows": progress.get("numInputRows", 0),
        "inputRowsPerSecond": _rate(progress.get("inputRowsPerSecond")),
        "processedRowsPerSecond": _rate(progress.get("processedRowsPerSecond")),
        "watermark": (progress.get("eventTime") or {}).get("watermark", ""),
        "stateRows": sum(operator.get("numRowsTotal", 0) for operator in progress.get("stateOperators", ())),
        "lag": lag,
        "totalLag": sum(number for partitions in lag.values() for number in partitions.values()),
    }


def progress_line(name: str, status: Mapping[str, Any]) -> str:
    """A line for people.

    >>> progress_line("delays", {"lastBatchId": 3, "numInputRows": 10, "processedRowsPerSecond": 20.0,
    ...     "watermark": "2026-01-01T00:00:00.000Z", "lag": {"t": {"0": 2}}, "totalLag": 2})
    'delays: batch 3, 10 rows, 20 rows/s, lag 2, watermark 2026-01-01T00:00:00.000Z'
    """
    rows, rate = status["numInputRows"], status["processedRowsPerSecond"]
    lag = f", lag {status['totalLag']}" if status["lag"] else ""
    watermark = f", watermark {status['watermark']}" if status["watermark"] else ""
    return f"{name}: batch {status['lastBatchId']}, {rows} rows, {rate:.0f} rows/s{lag}{watermark}"


def _lag(source: Mapping[str, Any]) -> dict[str, dict[str, int]]:
    end, latest = _offsets(source.get("endOffset")), _offsets(source.get("latestOffset"))
    return {
        topic: {number: max(0, offset - end.get(topic, {}).get(number, 0)) for number, offset in partitions.items()}
        for topic, partitions in latest.items()
    }


def _offsets(value: Any) -> dict[str, dict[str, int]]:
    """The offsets of topics; {} for those of any other source. Spark gives JSON, or text that holds JSON."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError:
            return {}
    if not isinstance(value, Mapping):
        return {}
    for partitions in value.values():
        if not isinstance(partitions, Mapping) or not all(isinstance(offset, int) for offset in partitions.values()):
            return {}
    return {topic: dict(partitions) for topic, partitions in value.items()}


def _rate(value: Any) -> float:
    """Spark leaves rates out, or gives NaN or Infinity as text, for a batch without a duration."""
    if isinstance(value, int | float) and value == value and abs(value) != float("inf"):
        return float(value)
    return 0.0
