"""The Workers port on two pools of child processes: one for jobs that a client waits for, one for long jobs.

A recovery or a compaction may use a child for minutes; a batch that has to be recompressed before it is acknowledged
must not wait for it.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Collection, Mapping
from typing import Any

from ottla_broker.adapters.workers import ProcessWorkers
from ottla_broker.ports.workers import QuestionHandler

_NICENESS = 10
"""When cores are short, requests have priority over compaction; a recovery runs before anything is served."""


class DividedWorkers:
    """See `ottla_broker.ports.workers.Workers`. Used on one loop.

    Args:
        jobs: the registry, as for `ProcessWorkers`.
        prompt_jobs: the names of the jobs that a client waits for.
        max_processes: children at a time for the other jobs; the prompt jobs have one per core, at most two.
    """

    def __init__(self, jobs: Mapping[str, Any], prompt_jobs: Collection[str], *, max_processes: int = 0) -> None:
        self._prompt_jobs = frozenset(prompt_jobs)
        self._prompt = ProcessWorkers(jobs, max_processes=max(1, min(2, os.cpu_count() or 1)))
        self._others = ProcessWorkers(jobs, max_processes=max_processes, niceness=_NICENESS)

    def run(
        self, job: str, directory: str, *arguments: Any, answer: QuestionHandler | None = None
    ) -> asyncio.Future[Any]:
        workers = self._prompt if job in self._prompt_jobs else self._others
        return workers.run(job, directory, *arguments, answer=answer)

    def close(self) -> None:
        self._prompt.close()
        self._others.close()

    async def wait_closed(self) -> None:
        """After `close`: returns when the children have ended."""
        await self._prompt.wait_closed()
        await self._others.wait_closed()
