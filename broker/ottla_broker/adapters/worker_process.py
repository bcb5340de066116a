"""The child process of `workers.py`: reads jobs from its input, runs each on a Disk of its own, answers on its output.

A thread waits for the input, so that the process ends the moment the broker is gone, even in the middle of a job: a
broker that starts again must not find somebody else at work on its files.
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
        # This process has one job: nothing else is kept waiting.
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
        # An exception that does not survive the way is told in words.
        return pickle.dumps((False, RuntimeError(f"{type(answer[1]).__name__}: {answer[1]}")))


def _send(output: int, data: bytes) -> None:
    view = memoryview(LENGTH.pack(len(data)) + data)
    while view:
        view = view[os.write(output, view) :]


def main() -> None:
    """Serves jobs until the input ends. Argument: by how much other processes go before this one (nice)."""
    os.nice(int(sys.argv[1]))
    # Ctrl-C goes to the whole group; the broker decides when this process ends.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    output = os.dup(1)
    os.dup2(2, 1)  # what a job prints must not end up between the answers
    jobs: SimpleQueue[bytes] = SimpleQueue()
    threading.Thread(target=_receive, args=(0, jobs), daemon=True).start()
    while True:
        _send(output, _encode(asyncio.run(_run(jobs.get(), jobs, output))))


if __name__ == "__main__":
    main()
