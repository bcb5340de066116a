"""The Workers port: named jobs outside the broker's interpreter, over a Disk of their own.

A job is an `async def job(disk: Disk, *arguments)` registered by name in `ottla_broker.jobs`; arguments and result are
plain values (pickled in production). In a worker process its Disk completes every call at once; in the simulator the
job is a task on the simulated Disk, so that a crash can fall between any two of its steps.
"""

from __future__ import annotations

import asyncio
from typing import Any, Protocol


class Workers(Protocol):
    def run(self, job: str, directory: str, *arguments: Any) -> asyncio.Future[Any]:
        """Runs the job with a Disk over `directory` (a log directory's path).

        The future gives the job's result or raises its exception; RuntimeError when the worker process died.
        KeyError at once when no job has that name.
        """
        ...

    def close(self) -> None:
        """Ends the worker processes; pending futures are cancelled."""
        ...
