"""The Workers port on child processes, which start when a job needs one and end when they are idle.

Each child runs `worker_process.py` over two pipes; jobs, questions and answers are length-prefixed pickles. A child
that dies fails its job with RuntimeError; the next job starts another one. When the broker ends, the pipes close and
the child ends at once, also during a job.
"""

from __future__ import annotations

import asyncio
import os
import pickle
import sys
from collections import deque
from collections.abc import Mapping
from typing import Any

from ottla_broker.adapters.worker_process import LENGTH
from ottla_broker.ports.workers import QuestionHandler

_IDLE_S = 20.0
"""A child takes about 20 MB; it ends after so long without a job."""

_STOP_S = 2.0


class _Job:
    """A job that waits for a child, or runs."""

    __slots__ = ("answer", "frame", "future", "name")

    def __init__(self, name: str, frame: bytes, future: asyncio.Future[Any], answer: QuestionHandler | None) -> None:
        self.name = name
        self.frame = frame
        self.future = future
        self.answer = answer


class ProcessWorkers:
    """See `ottla_broker.ports.workers.Workers`. Used on one loop.

    Args:
        jobs: the registry; only its names are used here, the child finds the functions itself.
        max_processes: children at a time; further jobs wait in order.
        environment: of the children; by default the broker's.
        niceness: of the children, 0 to 19.
    """

    def __init__(
        self,
        jobs: Mapping[str, Any],
        *,
        max_processes: int = 0,
        environment: Mapping[str, str] | None = None,
        niceness: int = 0,
    ) -> None:
        self._jobs = jobs
        self._niceness = niceness
        self._loop = asyncio.get_running_loop()
        # At least two: a recovery or a conversion must not wait for a compaction of many minutes.
        self._max_processes = max_processes or max(2, min(4, os.cpu_count() or 1))
        self._environment = dict(os.environ if environment is None else environment)
        self._waiting: deque[_Job] = deque()
        self._wakeup: asyncio.Event = asyncio.Event()
        self._runners: dict[asyncio.Task[None], None] = {}
        self._idle = 0
        self._is_closed = False

    def run(
        self, job: str, directory: str, *arguments: Any, answer: QuestionHandler | None = None
    ) -> asyncio.Future[Any]:
        if job not in self._jobs:
            raise KeyError(job)
        future: asyncio.Future[Any] = self._loop.create_future()
        if self._is_closed:
            future.cancel()
            return future
        frame = pickle.dumps((job, os.path.abspath(directory), answer is not None, arguments))
        self._waiting.append(_Job(job, frame, future, answer))
        self._wakeup.set()
        self._start_runner_if_short()
        return future

    def close(self) -> None:
        self._is_closed = True
        for task in self._waiting:
            task.future.cancel()
        self._waiting.clear()
        for runner in list(self._runners):
            runner.cancel()

    async def wait_closed(self) -> None:
        """After `close`: returns when the children have ended."""
        if self._runners:
            await asyncio.wait(list(self._runners))

    def _start_runner_if_short(self) -> None:
        if self._idle < len(self._waiting) and len(self._runners) < self._max_processes:
            runner = self._loop.create_task(self._serve(), name="worker process")
            self._runners[runner] = None
            runner.add_done_callback(self._on_runner_done)

    def _on_runner_done(self, runner: asyncio.Task[None]) -> None:
        self._runners.pop(runner, None)
        if not runner.cancelled() and (error := runner.exception()) is not None:
            # No child could be started: the waiting jobs fail instead of waiting forever.
            while self._waiting:
                task = self._waiting.popleft()
                if not task.future.done():
                    task.future.set_exception(RuntimeError(f"no worker process could be started: {error}"))
        # While its child was ending, this runner still counted and took no job: one may wait without a runner.
        self._start_runner_if_short()

    async def _serve(self) -> None:
        """Starts a child and gives it jobs in order, until it is idle or dies."""
        path = os.pathsep.join([entry for entry in sys.path if entry])
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "ottla_broker.adapters.worker_process",
            str(self._niceness),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            env={**self._environment, "PYTHONPATH": path},
        )
        task: _Job | None = None
        try:
            while (task := await self._next()) is not None:
                is_alive = await self._run_one(process, task)
                task = None
                if not is_alive:
                    return
        finally:
            if task is not None and not task.future.done():
                task.future.cancel()
            await self._end(process)

    async def _next(self) -> _Job | None:
        """The next job; None after the idle time."""
        while True:
            while self._waiting:
                task = self._waiting.popleft()
                if not task.future.done():
                    return task
            self._wakeup.clear()
            self._idle += 1
            try:
                await asyncio.wait_for(self._wakeup.wait(), _IDLE_S)
            except TimeoutError:
                if self._waiting:
                    continue  # a job came in the same moment
                return None
            finally:
                self._idle -= 1

    async def _run_one(self, process: asyncio.subprocess.Process, task: _Job) -> bool:
        """Sends the job, answers its questions and waits for its result. False when the child has to end."""

        def on_done(future: asyncio.Future[Any]) -> None:
            if future.cancelled():
                _kill(process)  # it must write no file any more: the job may be started again

        task.future.add_done_callback(on_done)
        try:
            await _send(process, task.frame)
            is_done, value = await _receive(process)
            while is_done is None:
                assert task.answer is not None
                if task.future.done():
                    return False  # cancelled while the question was on its way: what it is about may be gone
                try:
                    reply = await task.answer(value)
                except Exception as error:
                    if not task.future.done():
                        task.future.set_exception(error)
                    return False
                await _send(process, pickle.dumps(reply))
                is_done, value = await _receive(process)
        except (asyncio.IncompleteReadError, OSError):
            if not task.future.done():
                task.future.set_exception(RuntimeError(f"the worker process of job {task.name} died"))
            return False
        if not task.future.done():
            if is_done:
                task.future.set_result(value)
            else:
                task.future.set_exception(value)
        return True

    async def _end(self, process: asyncio.subprocess.Process) -> None:
        if process.returncode is None:
            _kill(process)
            try:
                await asyncio.wait_for(process.wait(), _STOP_S)
            except TimeoutError:
                return


def _kill(process: asyncio.subprocess.Process) -> None:
    try:
        process.kill()
    except ProcessLookupError:
        pass


async def _send(process: asyncio.subprocess.Process, frame: bytes) -> None:
    assert process.stdin is not None
    process.stdin.write(LENGTH.pack(len(frame)) + frame)
    await process.stdin.drain()


async def _receive(process: asyncio.subprocess.Process) -> tuple[bool | None, Any]:
    """(True, result), (False, exception) or (None, question)."""
    assert process.stdout is not None
    (length,) = LENGTH.unpack(await process.stdout.readexactly(LENGTH.size))
    kind, value = pickle.loads(await process.stdout.readexactly(length))
    return kind, value
