"""append-read: one log, appended to and read with batches of 1 MB, 64 KB and 1 KB, beside plain writes and reads.

The log runs in a process of its own (`python -m bench.storage.append_read '{...}'`) on the broker's Disk with its lane,
without network and clients. It is appended to with a bounded number of bytes on their way, as produce requests do it,
and read from its beginning as a consumer does, a mebibyte at a time. The plain figures are of this process: `write` in
blocks of the batch's size, `pread` of a mebibyte. Both leave flushing to the kernel; both read what the page cache was
told to forget.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from struct import Struct

from crc32c import crc32c

from bench.floor import write_plainly
from bench.java import LoadFailed
from bench.storage.surroundings import Surroundings
from bench.systems import OURS
from ottla_broker.adapters.clock import LoopClock
from ottla_broker.adapters.disk import DirectoryDisk
from ottla_broker.adapters.workers import ProcessWorkers
from ottla_broker.config import TopicValues
from ottla_broker.jobs import JOBS
from ottla_broker.records.batch import CRC_START
from ottla_broker.records.ids import TopicPartition
from ottla_broker.records.record import Record, build_batch
from ottla_broker.storage.log.config import LogConfig
from ottla_broker.storage.log.log import Log
from ottla_broker.storage.log_dirs.directory_callbacks import DirectoryCallbacks
from ottla_broker.storage.log_dirs.log_manager import LogManager
from ottla_broker.storage.log_dirs.settings import LogManagerSettings

SIZES = {"1m": 1_000_000, "64k": 65_536, "1k": 1_024}
FLOOR = "floor"
FETCH_BYTES = 1024 * 1024
_IN_FLIGHT_BYTES = 32 * 1024 * 1024
_CRC = Struct(">I")
_CRC_AT = 17


def scenario(size: str) -> str:
    """The scenario's name, such as append-read-64k."""
    return f"append-read-{size}"


def run(size: str, given: Surroundings) -> None:
    """Fills the figures of one batch size; ours and plain take turns."""
    name = scenario(size)
    batch_bytes = SIZES[size]
    total = 20_000_000 if given.is_quick else (500_000_000 if size == "1k" else 2_000_000_000)
    for number in range(given.rounds):
        folder = given.work / f"{name}-{number}"
        folder.mkdir()
        try:
            given.step(f"{name}: round {number + 1}, the log")
            os.sync()
            found = as_process(
                "bench.storage.append_read", path=str(folder / "log"), batch_bytes=batch_bytes, total_bytes=total
            )
            given.measured.add(name, "append_mb_s", OURS, total / found["append_s"] / 1e6)
            given.measured.add(name, "append_cpu_s_per_gb", OURS, found["append_cpu_s"] / total * 1e9)
            given.measured.add(name, "read_mb_s", OURS, total / found["read_s"] / 1e6)
            shutil.rmtree(folder / "log")
            given.step(f"{name}: round {number + 1}, plain")
            os.sync()
            floor = write_plainly(folder / "plain", total, batch_bytes)
            given.measured.add(name, "append_mb_s", FLOOR, floor.bytes / floor.seconds / 1e6)
            given.measured.add(name, "append_cpu_s_per_gb", FLOOR, floor.cpu_seconds / floor.bytes * 1e9)
            given.measured.add(name, "read_mb_s", FLOOR, total / _read_plainly(folder / "plain") / 1e6)
        finally:
            shutil.rmtree(folder)


def batch_of(size: int) -> bytearray:
    """A batch of about `size` bytes: records of 1 kB, or one that fills it."""
    count = max(1, size // 1024)
    value = bytes(ord("A") + number % 26 for number in range(max(1, (size - 61) // count - 12)))
    return bytearray(build_batch([Record(number, 1_700_000_000_000, None, value) for number in range(count)]))


def set_crc(batch: bytearray) -> None:
    """Computes a changed batch's checksum again."""
    _CRC.pack_into(batch, _CRC_AT, crc32c(memoryview(batch)[CRC_START:]))


def forget_cached(path: Path) -> None:
    """Writes a file to the disk and has the page cache forget it."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(descriptor)


def forget_all_cached(path: str) -> None:
    """`forget_cached` of every segment below a log directory."""
    for file in sorted(Path(path).glob("*/*.log")):
        forget_cached(file)


def _read_plainly(path: Path) -> float:
    forget_cached(path)
    started = time.perf_counter()
    descriptor = os.open(path, os.O_RDONLY)
    try:
        position = 0
        while data := os.pread(descriptor, FETCH_BYTES, position):
            position += len(data)
    finally:
        os.close(descriptor)
    return time.perf_counter() - started


def as_process(module: str, **arguments: object) -> dict[str, float]:
    """What `python -m MODULE ARGUMENTS` prints, both as JSON. Raises LoadFailed."""
    command = [sys.executable, "-m", module, json.dumps(arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=900)
    if done.returncode:
        raise LoadFailed(f"{module}: status {done.returncode}\n{done.stderr[-4000:]}")
    return dict(json.loads(done.stdout.splitlines()[-1]))


@asynccontextmanager
async def new_log(path: str, config: Mapping[str, object]) -> AsyncIterator[Log]:
    """A log of leader epoch 0, alone in a new log directory, with the broker's own Disk, lane and worker processes."""
    disk, clock, workers = DirectoryDisk(path), LoopClock(), ProcessWorkers(JOBS)
    of_topic = LogConfig(TopicValues(config))
    manager = LogManager(
        {path: disk}, clock, workers, LogManagerSettings(), lambda topic: of_topic, DirectoryCallbacks(_failed)
    )
    await manager.inspect()
    await manager.claim(0, "bench")
    await manager.load()
    log = await manager.get_or_create(TopicPartition("bench", 0), bytes(16), True)
    log.assign_epoch(0, 0)
    try:
        yield log
    finally:
        clock.cancel_all()
        workers.close()
        disk.close()


async def measure(path: str, batch_bytes: int, total_bytes: int) -> dict[str, float]:
    """Seconds of appending and of reading `total_bytes` and a little more, in a new log directory."""
    async with new_log(path, {"max.message.bytes": 2_000_000}) as log:
        cpu = time.process_time()
        append_s = await _append(log, batch_bytes, total_bytes)
        cpu = time.process_time() - cpu
        await log.flusher.flush()
        forget_all_cached(path)
        read_s = await _read(log, total_bytes)
    return {"append_s": append_s, "append_cpu_s": cpu, "read_s": read_s}


def _failed(path: str, error: OSError) -> None:
    raise LoadFailed(f"{path}: {error}")


async def _append(log: Log, batch_bytes: int, total_bytes: int) -> float:
    template = batch_of(batch_bytes)
    size = len(template)
    # A buffer must not change until it is written: as many as may be on their way, used in turn.
    buffers = [memoryview(bytearray(template)) for _ in range(max(2, _IN_FLIGHT_BYTES // size))]
    room = asyncio.Event()
    log.state.on_append = room.set
    batches = -(-total_bytes // size)
    records = max(1, batch_bytes // 1024)
    limit = len(buffers) * records
    turn = max(1, FETCH_BYTES // size)
    started = time.perf_counter()
    for number in range(batches):
        while log.state.assigned_offset + records - log.state.log_end_offset > limit:
            room.clear()
            await room.wait()
        log.append_as_leader(buffers[number % len(buffers)], 0)
        if not number % turn:
            await asyncio.sleep(0)  # what one turn of the loop has queued is handed over
    while log.state.log_end_offset < log.state.assigned_offset:
        room.clear()
        await room.wait()
    return time.perf_counter() - started


async def _read(log: Log, total_bytes: int) -> float:
    started = time.perf_counter()
    offset = done = 0
    end = log.state.log_end_offset
    prefix = Struct(">qi")
    last_delta = Struct(">i")
    while offset < end:
        found = log.read(offset, FETCH_BYTES, end, True)
        if not isinstance(found, tuple):
            found = await found
        for chunk in found.chunks:
            data = chunk.read()
            chunk.release()
            done += len(data)
            position = 0
            # The next fetch begins behind the last whole batch, which the consumer finds by walking the headers.
            while position + 61 <= len(data):
                base, length = prefix.unpack_from(data, position)
                if position + 12 + length > len(data):
                    break
                offset = base + last_delta.unpack_from(data, position + 23)[0] + 1
                position += 12 + length
    assert done >= total_bytes
    return time.perf_counter() - started


if __name__ == "__main__":
    print(json.dumps(asyncio.run(measure(**json.loads(sys.argv[1])))))
