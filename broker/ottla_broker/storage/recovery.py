"""Recovery of a log whose broker did not stop in order: a scan from the recovery point on (wire-protocol 5.26).

The job reads every batch of the segments from the one that holds the recovery point on and checks structure, offsets
and checksum. At the first batch that is not whole and right (a torn write) the file is cut and later segments go: what
follows a hole was never promised. Indexes, leader epochs and the producers' state are built anew from what remains, so
they agree with it. Below the recovery point nothing is touched.

Nothing is written that must be durable here: the recovery point has not moved, so after another crash the same scan
comes again. Cutting is synced, so that cut bytes do not come back under new ones.

The functions run on the broker's Disk for short tails, and as a job of the Workers port for long ones: arguments and
result are plain values.
"""

from __future__ import annotations

import asyncio
from itertools import pairwise
from typing import NamedTuple

from ottla_broker.ports.disk import Disk, File
from ottla_broker.records.batch import LOG_OVERHEAD, BatchHeader
from ottla_broker.records.control import read_marker
from ottla_broker.records.formats import is_batch_intact
from ottla_broker.records.legacy import MIN_ENTRY_BYTES
from ottla_broker.storage.checkpoints import decode_epochs
from ottla_broker.storage.epochs import LeaderEpochs
from ottla_broker.storage.indexes import GrowingIndex
from ottla_broker.storage.names import (
    CLEANED,
    DELETED,
    INDEX,
    LEADER_EPOCHS,
    LOG,
    SEGMENT_SUFFIXES,
    SNAPSHOT,
    SWAP,
    TEMPORARY,
    TIME_INDEX,
    offset_name,
    parse_offset_file,
)
from ottla_broker.storage.plain_run import PlainRun
from ottla_broker.storage.producers import ProducerStates
from ottla_broker.storage.scan import HeaderWalk, header_at

_CHUNK_BYTES = 1024 * 1024


class Recovered(NamedTuple):
    """What a scan found; plain values only."""

    next_offset: int
    epochs: list[tuple[int, int]]
    producers: list[tuple[int, int, int, int, int, list[tuple[int, int, int, int]]]]
    scanned_bytes: int
    cut_bytes: int
    dropped_segments: int


async def tail_bytes(disk: Disk, directory: str, recovery_point: int) -> int:
    """Bytes that a recovery from that point would read: what decides where it runs. Raises OSError."""
    bases = dict(await _log_files(disk, directory))
    start = _start_base(sorted(bases), recovery_point)
    return sum(size for base, size in bases.items() if base >= start)


async def recover_log(
    disk: Disk, directory: str, recovery_point: int, index_interval_bytes: int, is_compacted: bool
) -> Recovered:
    """Scans and repairs one partition's directory. Raises OSError, CheckpointError.

    Args:
        disk: of the log directory.
        directory: the partition's directory, relative to it ("t-0").
        recovery_point: the offset below which everything is durable.
        index_interval_bytes: index.interval.bytes.
        is_compacted: offsets may then be missing between two segments; in other logs that is a hole.
    """
    await finish_swaps(disk, directory)
    files = await _log_files(disk, directory)
    bases = [base for base, _ in files]
    start = _start_base(bases, recovery_point)
    epochs = await _read_epochs(disk, directory)
    epochs.truncate_from_end(start)
    producers = await _producers_at(disk, directory, bases, start)
    next_offset = start
    scanned = cut = dropped = 0
    is_broken = False
    for base, size in files:
        if base < start:
            continue
        if is_broken or base < next_offset or (base > next_offset and base > start and not is_compacted):
            # Behind a cut, inside a segment that compaction has replaced, or behind a hole.
            is_broken = is_broken or base >= next_offset
            await _delete_segment(disk, directory, base)
            cut += size
            dropped += 1
            continue
        if base > start:
            producers.end_offset = base
            await disk.write_file(f"{directory}/{offset_name(base, SNAPSHOT)}", producers.encode())
        end, valid = await _recover_segment(
            disk, directory, base, max(next_offset, base), index_interval_bytes, epochs, producers
        )
        next_offset = end
        scanned += size
        if valid < size:
            cut += size - valid
            is_broken = True
    if dropped:
        await disk.fsync_directory(directory)
    producers.end_offset = next_offset
    return Recovered(next_offset, epochs.entries, producers.dump(), scanned, cut, dropped)


async def finish_swaps(disk: Disk, directory: str) -> None:
    """Removes what an interrupted deletion or compaction left, and completes the swap of a finished compaction."""
    for name, is_directory, _ in await disk.list(directory):
        if not is_directory and name.endswith((DELETED, CLEANED, TEMPORARY)):
            await disk.delete(f"{directory}/{name}")
    is_swapped = False
    for name, _, _ in await disk.list(directory):
        parsed = parse_offset_file(name)
        if parsed is None or parsed.marker != SWAP:
            continue
        if parsed.suffix != LOG:
            # Its indexes are built anew.
            await disk.delete(f"{directory}/{name}")
            continue
        end = await _end_of(disk, f"{directory}/{name}", parsed.offset)
        for base, _ in await _log_files(disk, directory):
            if parsed.offset <= base < end:
                await _delete_segment(disk, directory, base)
        await disk.rename(f"{directory}/{name}", f"{directory}/{offset_name(parsed.offset, LOG)}")
        is_swapped = True
    if is_swapped:
        await disk.fsync_directory(directory)


async def _end_of(disk: Disk, name: str, base: int) -> int:
    file = await disk.open(name)
    walk = HeaderWalk(file, 0, file.size)
    end = base
    while (step := await walk.next()) is not None:
        end = step[1].next_offset
    await file.close()
    return end


def _start_base(bases: list[int], recovery_point: int) -> int:
    """Base offset of the segment to begin with: the last one at or below the recovery point."""
    below = [base for base in bases if base <= recovery_point]
    return below[-1] if below else (bases[0] if bases else recovery_point)


async def _log_files(disk: Disk, directory: str) -> list[tuple[int, int]]:
    """(base offset, size) of the log files, sorted."""
    files: list[tuple[int, int]] = []
    for name, is_directory, size in await disk.list(directory):
        parsed = None if is_directory else parse_offset_file(name)
        if parsed is not None and parsed.suffix == LOG and not parsed.marker:
            files.append((parsed.offset, size))
    return sorted(files)


async def _delete_segment(disk: Disk, directory: str, base: int) -> None:
    for suffix in SEGMENT_SUFFIXES:
        await disk.delete(f"{directory}/{offset_name(base, suffix)}")


async def _read_epochs(disk: Disk, directory: str) -> LeaderEpochs:
    name = f"{directory}/{LEADER_EPOCHS}"
    if not await disk.exists(name):
        return LeaderEpochs()
    return LeaderEpochs(decode_epochs(name, await disk.read_file(name)))


async def _producers_at(disk: Disk, directory: str, bases: list[int], start: int) -> ProducerStates:
    """The producers' state at `start`, from the newest snapshot at or below it and the batches since; snapshots above
    it describe records that may be gone, and are deleted."""
    newest = -1
    is_dropped = False
    for name, _, _ in await disk.list(directory):
        parsed = parse_offset_file(name)
        if parsed is None or parsed.suffix != SNAPSHOT or parsed.marker:
            continue
        if parsed.offset > start:
            await disk.delete(f"{directory}/{name}")
            is_dropped = True
        elif bases and parsed.offset >= bases[0]:
            newest = max(newest, parsed.offset)
    if is_dropped:
        # Durably: one that came back after a power loss would tell of records that never were, or are others now.
        await disk.fsync_directory(directory)
    if newest >= 0:
        name = f"{directory}/{offset_name(newest, SNAPSHOT)}"
        producers = ProducerStates.decode(name, await disk.read_file(name), newest)
    else:
        producers = ProducerStates(bases[0] if bases else start)
    begin = producers.end_offset
    for base, following in pairwise([*bases, start]):
        if base >= start or following <= begin:
            continue
        file = await disk.open(f"{directory}/{offset_name(base, LOG)}")
        walk = HeaderWalk(file, 0, file.size)
        while (step := await walk.next()) is not None:
            position, header = step
            if header.producer_id >= 0 and header.last_offset >= begin:
                batch = await file.read(position, header.size) if header.is_control else b""
                _take_down(producers, header, batch)
        await file.close()
    producers.end_offset = start
    return producers


def _take_down(producers: ProducerStates, header: BatchHeader, batch: bytes | memoryview) -> None:
    if not header.is_control:
        producers.update_from_header(header)
        return
    marker = read_marker(batch)
    if marker is not None:
        producers.end_transaction(header, marker.coordinator_epoch)


async def _recover_segment(
    disk: Disk,
    directory: str,
    base: int,
    expected: int,
    index_interval_bytes: int,
    epochs: LeaderEpochs,
    producers: ProducerStates,
) -> tuple[int, int]:
    """Checks one segment, cuts it at the first bad batch, writes its indexes; (next offset, whole bytes)."""
    file = await disk.open(f"{directory}/{offset_name(base, LOG)}")
    index = GrowingIndex(base)
    run = PlainRun(index, index_interval_bytes, base, expected)
    end = file.size
    chunk = memoryview(b"")
    chunk_start = 0
    while end - run.position >= MIN_ENTRY_BYTES:
        position = run.position
        at = run.take(chunk, position - chunk_start, epochs.latest)
        if run.position > position:
            continue
        header = header_at(chunk, at)
        if header is None or at + header.size > len(chunk):
            wanted = _CHUNK_BYTES if header is None else max(_CHUNK_BYTES, header.size)
            chunk = memoryview(await file.read(position, min(wanted, end - position)))
            chunk_start = position
            # Other work of the loop goes on between two chunks, whether or not the read had to wait.
            await asyncio.sleep(0)
            header = header_at(chunk, 0)
            at = 0
            if header is None or header.size > end - position:
                break
            if header.size > len(chunk):
                chunk = memoryview(await file.read(position, header.size))
                if len(chunk) < header.size:
                    break
        batch = chunk[at : at + LOG_OVERHEAD + header.length]
        if header.base_offset < run.expected or not is_batch_intact(batch, header.magic):
            break
        run.expected = header.next_offset
        if header.max_timestamp > run.max_timestamp:
            run.max_timestamp, run.max_timestamp_offset = header.max_timestamp, header.last_offset
        if position - run.last_entry > index_interval_bytes:
            index.add(header.base_offset, header.last_offset, position)
            index.add_time(run.max_timestamp, run.max_timestamp_offset)
            run.last_entry = position
        if header.leader_epoch > epochs.latest:
            epochs.assign(header.leader_epoch, header.base_offset)
        if header.producer_id >= 0:
            _take_down(producers, header, batch)
        run.position += len(batch)
    index.add_time(run.max_timestamp, run.max_timestamp_offset)
    if run.position < end:
        await file.truncate(run.position)
        await file.fsync()
    await file.close()
    await _replace(disk, f"{directory}/{offset_name(base, INDEX)}", bytes(index.unwritten_offset_entries))
    await _replace(disk, f"{directory}/{offset_name(base, TIME_INDEX)}", bytes(index.unwritten_time_entries))
    return run.expected, run.position


async def _replace(disk: Disk, name: str, content: bytes) -> None:
    """Writes an index anew. Not durable: it is synced before the recovery point passes it."""
    file: File = await disk.open(name, create=True)
    if file.size:
        await file.truncate(0)
    if content:
        await file.append((content,))
    await file.close()
