"""The Workers port on two sets of child processes: for jobs that a client waits for, and for those that take long.

A recovery or a compaction may keep a child for minutes; a batch that has to be recompressed before it is acknowledged
must not queue behind it.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Collection, Mapping
from typing import Any

from ottla_broker.adapters.workers import ProcessWorkers
from ottla_broker.ports.workers import Answer

_NICENESS = 10
"""Where cores are short, requests go before compaction; a recovery, before which nothing is served, loses nothing."""


class DividedWorkers:
    """See `ottla_broker.ports.workers.Workers`. Made and used on one loop.

    Args:
        jobs: the registry, as for `ProcessWorkers`.
        prompt_jobs: the names of those that have children of their own.
        max_processes: children at a time for the other jobs; the prompt ones have as many as there are cores, at most
            two.
    """

    def __init__(self, jobs: Mapping[str, Any], prompt_jobs: Collection[str], *, max_processes: int = 0) -> None:
        self._prompt_jobs = frozenset(prompt_jobs)
        self._prompt = ProcessWorkers(jobs, max_processes=max(1, min(2, os.cpu_count() or 1)))
        self._others = ProcessWorkers(jobs, max_processes=max_processes, niceness=_NICENESS)

    def run(self, job: str, directory: str, *arguments: Any, answer: Answer | None = None) -> asyncio.Future[Any]:
        workers = self._prompt if job in self._prompt_jobs else self._others
        return workers.run(job, directory, *arguments, answer=answer)

    def close(self) -> None:
        self._prompt.close()
        self._others.close()

    async def wait_closed(self) -> None:
        """After `close`: until the children have ended."""
        await self._prompt.wait_closed()
        await self._others.wait_closed()
