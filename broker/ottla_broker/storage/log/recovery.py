"""Recovers a log after an unclean shutdown: scans it from the recovery point on.

The scan reads every batch from the segment of the recovery point on, and checks structure, offsets and checksum. At the
first bad batch (a torn write) it truncates the file and deletes the later segments: what follows a hole was never
acknowledged. It rebuilds indexes, leader epochs and the producers' state from what remains, so that they agree with it.
Below the recovery point nothing changes.

The recovery point does not move, so after another crash the same scan runs again, and its results need not be durable.
Only truncations are synced, so that old bytes cannot come back under new ones.

The functions run on the broker's Disk for a short tail, and as a job of the Workers port for a long one: arguments and
result are plain values. A long log is recovered in several calls, so that the broker can report its progress.
Source: UnifiedLog.recoverSegment and LogSegment.recover of Apache Kafka.
"""

from __future__ import annotations

import asyncio
from itertools import pairwise
from typing import NamedTuple

from ottla_broker.config.types import LONG_MAX
from ottla_broker.ports.disk import Disk, File
from ottla_broker.records.batch import LOG_OVERHEAD, BatchHeader
from ottla_broker.records.control_records import read_marker
from ottla_broker.records.formats import is_batch_intact
from ottla_broker.records.legacy import MIN_ENTRY_BYTES
from ottla_broker.storage.files.directory_contents import DirectoryContents
from ottla_broker.storage.files.indexes import GrowingIndex
from ottla_broker.storage.files.names import (
    INDEX,
    LOG,
    SEGMENT_SUFFIXES,
    SNAPSHOT,
    TIME_INDEX,
    TXN_INDEX,
    offset_name,
    parse_offset_file,
)
from ottla_broker.storage.files.ordinary_batches import OrdinaryBatchScan
from ottla_broker.storage.files.scan import HeaderWalk, header_at
from ottla_broker.storage.files.snapshots import drop_snapshots
from ottla_broker.storage.files.swaps import finish_swaps
from ottla_broker.storage.files.transaction_index import AbortedTransaction
from ottla_broker.storage.log.epoch_loading import read_epochs
from ottla_broker.storage.log.leader_epochs import LeaderEpochs
from ottla_broker.storage.log.producer_loading import producers_before
from ottla_broker.storage.log.producers import ProducersDump, ProducerStates

_CHUNK_BYTES = 1024 * 1024


class Recovered(NamedTuple):
    """The result of a scan, as plain values."""

    next_offset: int
    epochs: list[tuple[int, int]]
    producers: ProducersDump
    scanned_bytes: int
    cut_bytes: int
    dropped_segments: int
    repairs: list[str]
    """A line for every small file that was rebuilt."""
    resume_at: int | None = None
    """Base offset of the segment to continue with; None when the log is recovered."""


async def tail_bytes(disk: Disk, directory: str, recovery_point: int) -> int:
    """Bytes that a recovery from that point reads; they decide where it runs. Raises OSError."""
    bases = dict(await _log_files(disk, directory))
    start = _start_base(sorted(bases), recovery_point)
    return sum(size for base, size in bases.items() if base >= start)


def gap_limit_of(clean_offset: int, *, lost_power: bool) -> int:
    """The highest base offset before which offsets may be missing; a gap before a later segment is a hole.

    Only a power loss leaves holes: a later file is on the disk, the end of an earlier one is not. Gaps come from Apache
    Kafka's log cleaner, which removes the last batches of a segment, and they are below the clean offset. Every segment
    there has been written by a cleaner, which syncs it before it replaces others. This log cleaner keeps the header of
    a segment's last batch, and so leaves no gap.

    Args:
        clean_offset: of the log in cleaner-offset-checkpoint, 0 without an entry.
        lost_power: what the page cache had may be gone.

    >>> bases_behind_gaps = [40, 70]
    >>> [base for base in bases_behind_gaps if base > gap_limit_of(40, lost_power=True)]  # holes
    [70]
    >>> [base for base in bases_behind_gaps if base > gap_limit_of(40, lost_power=False)]
    []
    """
    return clean_offset if lost_power else LONG_MAX


async def recover_log(
    disk: Disk,
    directory: str,
    recovery_point: int,
    index_interval_bytes: int,
    gap_limit: int,
    so_far: Recovered | None = None,
    max_bytes: int | None = None,
) -> Recovered:
    """Scans and repairs one partition's directory. Raises OSError.

    Args:
        disk: of the log directory.
        directory: the partition's directory, relative to it ("t-0").
        recovery_point: the offset below which everything is durable.
        index_interval_bytes: index.interval.bytes.
        gap_limit: `gap_limit_of` the log.
        so_far: the result of the call before, when its `resume_at` has a segment to continue with.
        max_bytes: the call ends after the segment in which it has scanned so many bytes.
    """
    if so_far is None:
        await finish_swaps(disk, directory)
    files = await _log_files(disk, directory)
    bases = [base for base, _ in files]
    if so_far is None:
        start = _start_base(bases, recovery_point)
        first: int | None = start
        below = [base for base in bases if base < start]
        epochs, repairs = await read_epochs(DirectoryContents(disk, directory), below)
        epochs.truncate_from_end(start)
        producers, damaged = await _producers_at(disk, directory, bases, start)
        so_far = Recovered(start, [], producers.dump(), 0, 0, 0, repairs + damaged)
    else:
        assert so_far.resume_at is not None
        start, first = so_far.resume_at, None
        epochs = LeaderEpochs(so_far.epochs)
        producers = ProducerStates.restore(so_far.producers, so_far.next_offset)
    next_offset = so_far.next_offset
    scanned = cut = dropped = 0
    is_broken = False
    resume_at: int | None = None
    for base, size in files:
        if base < start:
            continue
        is_hole = base > next_offset and base > gap_limit and base != first
        if is_broken or base < next_offset or is_hole:
            # Behind a truncation, inside a segment that compaction has replaced, or behind a hole.
            is_broken = is_broken or base >= next_offset
            await _delete_segment(disk, directory, base)
            cut += size
            dropped += 1
            continue
        if max_bytes is not None and scanned >= max_bytes:
            resume_at = base
            break
        if base != first:
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
    return Recovered(
        next_offset,
        epochs.entries,
        producers.dump(),
        so_far.scanned_bytes + scanned,
        so_far.cut_bytes + cut,
        so_far.dropped_segments + dropped,
        so_far.repairs,
        resume_at,
    )


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


async def _producers_at(disk: Disk, directory: str, bases: list[int], start: int) -> tuple[ProducerStates, list[str]]:
    """(the producers' state at `start`, a line for every repair), from the newest snapshot at or below it and the
    batches behind. Deletes snapshots above `start`: they describe records that may be gone. Raises OSError."""
    contents = DirectoryContents(disk, directory)
    await drop_snapshots(contents, lambda offset: offset > start)
    producers, repairs = await producers_before(contents, bases[0] if bases else start, start)
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
                _update_producers(producers, header, batch)
        await file.close()
    producers.end_offset = start
    return producers, repairs


def _update_producers(
    producers: ProducerStates, header: BatchHeader, batch: bytes | memoryview
) -> AbortedTransaction | None:
    """Adds a batch to the producers' state; returns the entry of its segment's transaction index, if it needs one."""
    if not header.is_control:
        producers.update_from_header(header)
        return None
    marker = read_marker(batch)
    return None if marker is None else producers.end_from_header(header, marker)


async def _recover_segment(
    disk: Disk,
    directory: str,
    base: int,
    expected: int,
    index_interval_bytes: int,
    epochs: LeaderEpochs,
    producers: ProducerStates,
) -> tuple[int, int]:
    """Checks one segment, truncates it at the first bad batch, writes its indexes; (next offset, valid bytes)."""
    file = await disk.open(f"{directory}/{offset_name(base, LOG)}")
    index = GrowingIndex(base)
    scan = OrdinaryBatchScan(index, index_interval_bytes, base, expected)
    aborted: list[AbortedTransaction] = []
    end = file.size
    chunk = memoryview(b"")
    chunk_start = 0
    while end - scan.position >= MIN_ENTRY_BYTES:
        position = scan.position
        at = scan.scan(chunk, position - chunk_start, epochs.latest)
        if scan.position > position:
            continue
        header = header_at(chunk, at)
        if header is None or at + header.size > len(chunk):
            wanted = _CHUNK_BYTES if header is None else max(_CHUNK_BYTES, header.size)
            chunk = memoryview(await file.read(position, min(wanted, end - position)))
            chunk_start = position
            # Lets other tasks of the event loop run between two chunks, also when the read did not wait.
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
        if not scan.expected <= header.base_offset <= header.last_offset <= scan.last_offset:
            break
        if not is_batch_intact(batch, header.magic):
            break
        scan.expected = header.next_offset
        if header.max_timestamp > scan.max_timestamp:
            scan.max_timestamp, scan.max_timestamp_offset = header.max_timestamp, header.last_offset
        if position - scan.last_entry > index_interval_bytes:
            index.add(header.base_offset, header.last_offset, position)
            index.add_time(scan.max_timestamp, scan.max_timestamp_offset)
            scan.last_entry = position
        if header.leader_epoch > epochs.latest:
            epochs.assign(header.leader_epoch, header.base_offset)
        if header.producer_id >= 0:
            entry = _update_producers(producers, header, batch)
            if entry is not None:
                aborted.append(entry)
        scan.position += len(batch)
    index.add_time(scan.max_timestamp, scan.max_timestamp_offset)
    if scan.position < end:
        await file.truncate(scan.position)
        await file.fsync()
    await file.close()
    await _replace(disk, f"{directory}/{offset_name(base, INDEX)}", bytes(index.unwritten_offset_entries))
    await _replace(disk, f"{directory}/{offset_name(base, TIME_INDEX)}", bytes(index.unwritten_time_entries))
    await _replace_transaction_index(disk, directory, base, aborted)
    return scan.expected, scan.position


async def _replace_transaction_index(disk: Disk, directory: str, base: int, aborted: list[AbortedTransaction]) -> None:
    """Durably, unlike the other indexes: nothing notices a file that a power loss removes, or brings back."""
    name = f"{directory}/{offset_name(base, TXN_INDEX)}"
    if aborted:
        await disk.write_file(name, b"".join(entry.encode() for entry in aborted))
    elif await disk.exists(name):
        await disk.delete(name)
        await disk.fsync_directory(directory)


async def _replace(disk: Disk, name: str, content: bytes) -> None:
    """Replaces an index. Not durably: a flush syncs it before the recovery point passes it."""
    file: File = await disk.open(name, create=True)
    if file.size:
        await file.truncate(0)
    if content:
        await file.append((content,))
    await file.close()
