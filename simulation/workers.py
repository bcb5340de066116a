"""The simulated Workers: a job is a task of the broker's process on its own simulated Disk.

So a crash can occur between any two file calls of a job. Arguments and result are pickled and unpickled, as on the way
to a worker process and back.
"""

from __future__ import annotations

import asyncio
import pickle
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

from ottla_broker.ports.workers import QuestionHandler
from simulation.disk import SimulatedDisk
from simulation.world import SimulatedProcess

Job = Callable[..., Coroutine[Any, Any, Any]]


class SimulatedWorkers:
    """See `ottla_broker.ports.workers.Workers`. `jobs` is the registry of `ottla_broker.jobs`."""

    def __init__(self, process: SimulatedProcess, jobs: Mapping[str, Job]) -> None:
        self._process = process
        self._jobs = jobs
        self._running: dict[int, tuple[asyncio.Task[Any], asyncio.Future[Any]]] = {}
        self._next = 0
        self._is_closed = False

    def run(
        self, job: str, directory: str, *arguments: Any, answer: QuestionHandler | None = None
    ) -> asyncio.Future[Any]:
        function = self._jobs[job]
        loop = self._process.world.loop
        future: asyncio.Future[Any] = loop.create_future()
        if self._is_closed:
            future.cancel()
            return future
        self._next += 1
        key = self._next
        plain = pickle.loads(pickle.dumps(arguments))
        image = self._process.machine.disks[directory]

        async def way() -> None:
            """The way to the worker process, or back, takes a moment."""
            await asyncio.sleep(0.0002 + 0.002 * self._process.random.random())

        async def ask(question: Any) -> Any:
            assert answer is not None
            await way()
            if future.done():
                raise asyncio.CancelledError
            reply = await answer(pickle.loads(pickle.dumps(question)))
            await way()
            return pickle.loads(pickle.dumps(reply))

        async def work() -> Any:
            await way()
            disk = SimulatedDisk(self._process, image, directory)
            try:
                asked = () if answer is None else (ask,)
                return pickle.loads(pickle.dumps(await function(disk, *asked, *plain)))
            finally:
                disk.close()

        def done(task: asyncio.Task[Any]) -> None:
            self._running.pop(key, None)
            error = None if task.cancelled() else task.exception()
            if future.done():
                return
            if task.cancelled():
                future.set_exception(RuntimeError(f"the worker process of job {job} died"))
            elif error is not None:
                future.set_exception(error)
            else:
                future.set_result(task.result())

        task = self._process.spawn(work(), name=f"job-{job}")
        self._running[key] = (task, future)
        future.add_done_callback(lambda given: task.cancel() if given.cancelled() else None)
        task.add_done_callback(done, context=self._process.context)
        return future

    def kill_workers(self) -> None:
        """Fault: every worker process dies; the futures of its jobs give RuntimeError."""
        for task, _ in list(self._running.values()):
            task.cancel()

    def close(self) -> None:
        self._is_closed = True
        for task, future in list(self._running.values()):
            future.cancel()
            task.cancel()
        self._running.clear()
