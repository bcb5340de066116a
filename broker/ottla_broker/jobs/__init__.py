"""The named jobs of the Workers port: work that runs in another process.

A job is an `async def job(disk, *arguments)`, or `job(disk, ask, *arguments)` when the caller answers questions of the
job. Arguments and results are plain values. The production adapter and the simulator find jobs by name in `JOBS`.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from types import MappingProxyType
from typing import Any, TypeAlias

from ottla_broker.storage.cleaner.job import compact_log
from ottla_broker.storage.log.record_jobs import (
    CONVERT_JOB,
    PREPARE_JOB,
    SEARCH_JOB,
    convert_records,
    prepare_records,
    search_records,
)
from ottla_broker.storage.log.recovery import recover_log
from ottla_broker.telemetry.push_reading import READ_PUSH_JOB, read_push_job

Job: TypeAlias = Callable[..., Coroutine[Any, Any, Any]]

JOBS: Mapping[str, Job] = MappingProxyType(
    {
        "compact-log": compact_log,
        "recover-log": recover_log,
        PREPARE_JOB: prepare_records,
        CONVERT_JOB: convert_records,
        SEARCH_JOB: search_records,
        READ_PUSH_JOB: read_push_job,
    }
)
"""Jobs by name."""

PROMPT_JOBS = frozenset({PREPARE_JOB, CONVERT_JOB, SEARCH_JOB, READ_PUSH_JOB})
"""Jobs for which a client waits. They take milliseconds and must not queue behind jobs that take minutes."""
