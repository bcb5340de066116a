"""The child process of `workers.py`: reads jobs from its input, runs each with a Disk, writes results to its output.

A thread waits for the input, so that the process ends as soon as the broker has ended, even during a job: a broker that
starts again must not find another process that writes its files.
"""

from __future__ import annotations

import asyncio
import os
import pickle
import signal
import sys
import threading
from queue import SimpleQueue
from struct import Struct
from typing import Any

LENGTH = Struct(">I")


def _read_exactly(fd: int, size: int) -> bytes:
    data = b""
    while len(data) < size:
        more = os.read(fd, size - len(data))
        if not more:
            os._exit(0)
        data += more
    return data


def _receive(fd: int, jobs: SimpleQueue[bytes]) -> None:
    while True:
        (length,) = LENGTH.unpack(_read_exactly(fd, LENGTH.size))
        jobs.put(_read_exactly(fd, length))


async def _run(frame: bytes, frames: SimpleQueue[bytes], output: int) -> tuple[bool, Any]:
    from ottla_broker.adapters.direct_disk import DirectDisk
    from ottla_broker.jobs import JOBS

    async def ask(question: Any) -> Any:
        _send(output, pickle.dumps((None, question)))
        # Blocking is fine: this process has one job.
        return pickle.loads(frames.get())

    name, directory, asks, arguments = pickle.loads(frame)
    disk = DirectDisk(directory)
    try:
        return True, await JOBS[name](disk, *((ask, *arguments) if asks else arguments))
    except Exception as error:
        return False, error
    finally:
        disk.close()


def _encode(answer: tuple[bool, Any]) -> bytes:
    try:
        data = pickle.dumps(answer)
        pickle.loads(data)
        return data
    except Exception:
        # An exception that cannot be pickled is sent as text.
        return pickle.dumps((False, RuntimeError(f"{type(answer[1]).__name__}: {answer[1]}")))


def _send(output: int, data: bytes) -> None:
    view = memoryview(LENGTH.pack(len(data)) + data)
    while view:
        view = view[os.write(output, view) :]


def main() -> None:
    """Runs jobs until the input ends. Argument: the niceness of this process."""
    os.nice(int(sys.argv[1]))
    # Ctrl-C reaches the whole process group; the broker ends this process.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    output = os.dup(1)
    os.dup2(2, 1)  # what a job prints must not be mixed with the results
    jobs: SimpleQueue[bytes] = SimpleQueue()
    threading.Thread(target=_receive, args=(0, jobs), daemon=True).start()
    while True:
        _send(output, _encode(asyncio.run(_run(jobs.get(), jobs, output))))


if __name__ == "__main__":
    main()
