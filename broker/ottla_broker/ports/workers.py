"""The Workers port: runs named jobs outside the broker's interpreter, each with a Disk of its own.

A job is an `async def job(disk: Disk, *arguments)` that `ottla_broker.jobs` registers by name; arguments and result are
plain values (pickled in production). In a worker process every call on its Disk completes at once; in the simulator the
job is a task on the simulated Disk, so that a crash can happen between any two of its steps.

A job that coordinates its steps with the broker (compaction: a segment is written, use it) runs with `answer` and is
registered as `async def job(disk, ask, *arguments)`: `await ask(question)` returns what `answer(question)` returned.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Protocol, TypeAlias

QuestionHandler: TypeAlias = Callable[[Any], Awaitable[Any]]
"""Answers the question of a job; both are plain values."""


class Workers(Protocol):
    """The workers of one broker. See the module."""

    def run(
        self, job: str, directory: str, *arguments: Any, answer: QuestionHandler | None = None
    ) -> asyncio.Future[Any]:
        """Runs the job with a Disk for `directory`, the path of a log directory.

        The future has the job's result or exception; RuntimeError when the worker process died. Cancelling it ends the
        job at once, and no question of it is answered from then on. An exception of `answer` ends the job too. Raises
        KeyError when no job has that name.
        """
        ...

    def close(self) -> None:
        """Ends the worker processes and cancels pending futures."""
        ...
