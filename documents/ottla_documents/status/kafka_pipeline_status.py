"""status of a KafkaPipeline."""

from __future__ import annotations

from dataclasses import dataclass

from ottla_documents.schema.marks import LongNumber, Number, Time
from ottla_documents.status.conditions_status import Conditions


@dataclass(frozen=True, slots=True)
class ProgressStatus:
    """The last batch. It is written at most once a minute."""

    update_time: Time | None = None
    """When the operator wrote this."""
    last_batch_id: LongNumber | None = None
    """The number of the batch."""
    last_batch_time: Time | None = None
    """When the batch began."""
    last_batch_duration_ms: LongNumber | None = None
    """How long the batch took."""
    rows_per_second: LongNumber | None = None
    """How many rows a second the batch processed."""
    input_rows: LongNumber | None = None
    """How many rows this driver has read since it started."""
    lag: LongNumber | None = None
    """How many records of all partitions were not read yet."""
    watermark: str | None = None
    """The watermark as of the batch. Absent without one."""


@dataclass(frozen=True, slots=True)
class KafkaPipelineStatus:
    """The observed state of the pipeline. The operator writes it."""

    observed_generation: LongNumber | None = None
    """The metadata.generation that this status was computed from."""
    state: str | None = None
    """Pending, Starting, Running, Waiting (for the next time of its schedule), Restarting, Suspended, Completed or
    Failed."""
    pod: str | None = None
    """The name of the driver's pod. Absent while there is none."""
    executors: Number | None = None
    """How many executors run. Absent without spec.executors, and while there is no driver."""
    restarts: Number | None = None
    """How many times this driver has tried again after a failure."""
    last_error: str | None = None
    """The last line of the last failure. Absent when there was none."""
    last_run_time: Time | None = None
    """When the last run of the schedule began. Absent without a schedule."""
    progress: ProgressStatus | None = None
    conditions: Conditions | None = None
    """The conditions of the object. docs/reference/condition-reasons.md lists every type and reason."""
