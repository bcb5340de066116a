"""The Workers port: named jobs outside the broker's interpreter, over a Disk of their own.

A job is an `async def job(disk: Disk, *arguments)` registered by name in `ottla_broker.jobs`; arguments and result are
plain values (pickled in production). In a worker process its Disk completes every call at once; in the simulator the
job is a task on the simulated Disk, so that a crash can fall between any two of its steps.

A job that has to agree its steps with the broker (compaction: a segment is written, now take it in) is run with
`answer` and registered as `async def job(disk, ask, *arguments)`: `await ask(question)` gives what `answer` gave.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Protocol, TypeAlias

Answer: TypeAlias = Callable[[Any], Awaitable[Any]]
"""Answers a job's question; both are plain values."""


class Workers(Protocol):
    def run(self, job: str, directory: str, *arguments: Any, answer: Answer | None = None) -> asyncio.Future[Any]:
        """Runs the job with a Disk over `directory` (a log directory's path).

        The future gives the job's result or raises its exception; RuntimeError when the worker process died.
        Cancelling it ends the job at once. With `answer` the job can ask; what `answer` raises ends it too.
        KeyError at once when no job has that name.
        """
        ...

    def close(self) -> None:
        """Ends the worker processes; pending futures are cancelled."""
        ...
