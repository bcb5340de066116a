"""The named jobs of the Workers port: what runs outside the broker's interpreter.

A job is an `async def job(disk, *arguments)`, or `job(disk, ask, *arguments)` where it is run with an answer, whose
arguments and result are plain values. Add one here and nowhere
else: the production adapter and the simulator both look names up in `JOBS`.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from types import MappingProxyType
from typing import Any, TypeAlias

from ottla_broker.storage.cleaner.job import compact_log
from ottla_broker.storage.log.record_jobs import CONVERT_JOB, PREPARE_JOB, convert_records, prepare_records
from ottla_broker.storage.log.recovery import recover_log

Job: TypeAlias = Callable[..., Coroutine[Any, Any, Any]]

JOBS: Mapping[str, Job] = MappingProxyType(
    {
        "compact-log": compact_log,
        "recover-log": recover_log,
        PREPARE_JOB: prepare_records,
        CONVERT_JOB: convert_records,
    }
)
"""Jobs by name."""

PROMPT_JOBS = frozenset({PREPARE_JOB, CONVERT_JOB})
"""Those that a client waits for: they take milliseconds, and must not wait for jobs that take minutes."""
