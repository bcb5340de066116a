"""What the driver of a KafkaPipeline says of itself: its /status, or what it left in its pod when it ended."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ottla_operator.api.objects import Obj, dig, uid_of

DRIVER = "driver"
"""The name of the container."""


@dataclass(frozen=True, slots=True)
class PipelineProgress:
    """The last batch of all queries of a driver. Numbers of rows are sums, times those of the latest batch."""

    batch_id: int
    batch_time: str
    duration_ms: int
    rows_per_second: int
    input_rows: int
    lag: int
    watermark: str = ""


@dataclass(frozen=True, slots=True)
class PipelineReport:
    """`phase`: Starting, Running, Waiting, Restarting, Completed, Stopped or Failed. `has_begun`: False for a failure
    before the first batch, which would come again."""

    pod_uid: str
    phase: str
    restarts: int = 0
    last_error: str = ""
    has_begun: bool = True
    progress: PipelineProgress | None = None


def read_pipeline_report(pod_uid: str, status: Any) -> PipelineReport | None:
    """Parses the status of a driver; None when it is not a JSON object.

    >>> read_pipeline_report("u", {"phase": "Failed", "lastError": "no topic a", "hasBegun": False}).has_begun
    False
    >>> batch = {"lastBatchId": 3, "lastBatchTime": "t", "processedRowsPerSecond": 9.6, "totalInputRows": 7}
    >>> read_pipeline_report("u", {"phase": "Running", "queries": {"q": batch}}).progress
    PipelineProgress(batch_id=3, batch_time='t', duration_ms=0, rows_per_second=10, input_rows=7, lag=0, watermark='')
    """
    if not isinstance(status, Mapping):
        return None
    return PipelineReport(
        pod_uid,
        str(status.get("phase") or ""),
        _whole(status.get("restarts")),
        str(status.get("lastError") or ""),
        status.get("hasBegun") is not False,
        _progress(status.get("queries")),
    )


def ended_report(pod: Obj) -> PipelineReport | None:
    """What the driver of a pod wrote when it ended; None while it runs, or when it wrote nothing."""
    ended = dig(driver_status(pod), "state", "terminated")
    try:
        return read_pipeline_report(uid_of(pod), json.loads(dig(ended, "message") or "null"))
    except ValueError:
        return None


def driver_status(pod: Obj | None) -> Obj | None:
    """The status of the driver's container; others may run beside it."""
    statuses = dig(pod, "status", "containerStatuses") or []
    return next((one for one in statuses if one.get("name") == DRIVER), None)


def _progress(queries: Any) -> PipelineProgress | None:
    found = [one for one in queries.values() if isinstance(one, Mapping)] if isinstance(queries, Mapping) else []
    if not found:
        return None
    last = max(found, key=lambda one: str(one.get("lastBatchTime") or ""))
    return PipelineProgress(
        _whole(last.get("lastBatchId")),
        str(last.get("lastBatchTime") or ""),
        _whole(last.get("lastBatchDurationMs")),
        sum(_whole(one.get("processedRowsPerSecond")) for one in found),
        sum(_whole(one.get("totalInputRows")) for one in found),
        max(_whole(one.get("totalLag")) for one in found),
        str(last.get("watermark") or ""),
    )


def _whole(value: Any) -> int:
    is_number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    return round(value) if is_number else 0
