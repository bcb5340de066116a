"""recovery-64k and recovery-1k: 10 GiB without a clean shutdown, ours and Apache Kafka on the same files.

One segment of 1 GiB is made, with batches of 64 KB or 1 KB, and linked (hard links) into the ten partitions of a topic
whose broker was killed before anything was in them: both scan 10 GiB that the page cache holds, as it does after a
crash of the process, and both rebuild the indexes. Counted is the time from exec until ListOffsets gives the right
end of every partition, less the same time of the same broker with the ten partitions empty, in the same run.
"""

from __future__ import annotations

import os
import shutil
import signal
import time
from pathlib import Path
from struct import Struct

from bench.storage.append_read import SIZES, batch_of, set_crc
from bench.storage.surroundings import Surroundings, create_topic, restart, wait_for_leaders
from bench.systems import System

_TOPIC = "scanned"
_PARTITIONS = 10
_SEGMENT = f"{0:020d}.log"
_BASE_OFFSET = Struct(">q")
_TIMES = Struct(">qq")
_TIMES_AT = 27
_WRITE_BYTES = 4 * 1024 * 1024


def scenario(size: str) -> str:
    """The scenario's name, such as recovery-64k."""
    return f"recovery-{size}"


def run(size: str, given: Surroundings) -> None:
    """Fills the figures of one batch size."""
    name = scenario(size)
    segment = given.work / f"{name}.log"
    given.step(f"{name}: writing the segment")
    end = write_segment(segment, SIZES[size], 8_000_000 if given.is_quick else 1024**3 - 2_000_000)
    try:
        for number in range(given.rounds):
            for system_name in given.brokers[:: 1 if number % 2 == 0 else -1]:
                _measure(given, name, segment, end, System(system_name, given.work / f"{system_name}-{name}"))
    finally:
        segment.unlink()


def write_segment(path: Path, batch_bytes: int, size: int) -> int:
    """A segment file of at most `size` bytes, one batch a millisecond; gives the offset that follows its last one."""
    batch = batch_of(batch_bytes)
    records = max(1, batch_bytes // 1024)
    timestamp: int = _TIMES.unpack_from(batch, _TIMES_AT)[0]
    offset = written = 0
    waiting = bytearray()
    with path.open("wb") as file:
        while written + len(waiting) + len(batch) <= size:
            _BASE_OFFSET.pack_into(batch, 0, offset)
            _TIMES.pack_into(batch, _TIMES_AT, timestamp, timestamp)
            set_crc(batch)
            waiting += batch
            offset += records
            timestamp += 1
            if len(waiting) >= _WRITE_BYTES:
                written += file.write(waiting)
                waiting.clear()
        file.write(waiting)
    return offset


def _measure(given: Surroundings, name: str, segment: Path, end: int, system: System) -> None:
    try:
        given.step(f"{name}: {system.name}, a clean start")
        system.start()
        create_topic(system, _TOPIC, _PARTITIONS)
        # Twice: the first start of a fresh directory is not the one that a filled one is held against.
        restart(system)
        wait_for_leaders(system, _TOPIC, _PARTITIONS)
        started = time.monotonic() + restart(system)
        wait_for_leaders(system, _TOPIC, _PARTITIONS, end_offset=0)
        clean_s = time.monotonic() - started
        given.measured.add(name, "clean_start_s", system.name, clean_s)
        os.kill(system.pids[0], signal.SIGKILL)
        system.stop_brokers()
        scanned = _put_in(system.work / "log-0", segment)
        system.wait_until_forgotten()
        _read_once(segment)
        given.step(f"{name}: {system.name}, recovering {scanned / 1024**3:.1f} GiB")
        started = time.monotonic()
        system.start()
        wait_for_leaders(system, _TOPIC, _PARTITIONS, end_offset=end)
        ready_s = time.monotonic() - started
        given.measured.add(name, "ready_s", system.name, ready_s)
        given.measured.add(name, "recovery_s", system.name, ready_s - clean_s)
        given.measured.add(name, "recovery_cpu_s", system.name, system.cpu_seconds())
    finally:
        system.stop()


def _put_in(log_dir: Path, segment: Path) -> int:
    """Links the segment into every partition in the place of its empty one; gives the bytes to be scanned."""
    size = segment.stat().st_size
    folders = sorted(log_dir.glob(f"{_TOPIC}-*"))
    for folder in folders:
        for old in folder.iterdir():
            if old.name[:20].isdigit() or old.name == "leader-epoch-checkpoint":
                old.unlink()
        os.link(segment, folder / _SEGMENT)
    assert len(folders) == _PARTITIONS
    assert not (log_dir / ".kafka_cleanshutdown").exists()
    return size * len(folders)


def _read_once(path: Path) -> None:
    """Brings the file into the page cache."""
    with path.open("rb") as file, open(os.devnull, "wb") as nowhere:
        shutil.copyfileobj(file, nowhere, 1024 * 1024)
