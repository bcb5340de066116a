"""Finishes or undoes the compactions and deletions that a crash interrupted, when a log is loaded.

`.deleted`, `.cleaned` and `.tmp` files are deleted. A `B.log.swap` is a complete cleaned segment: the segments whose
offsets it covers are deleted and it gets its name, with its indexes where both exist, with rebuilt ones otherwise. But
beside a `.cleaned` file of the same or a lower offset, it is one of several segments that a split was to write (Apache
Kafka splits a segment so): it is deleted, and the old segments are still whole.

The order of files in a replacement is in `log/segment_replacement.py`. Source: LogLoader.completeSwapOperations of
Apache Kafka.
"""

from __future__ import annotations

from ottla_broker.ports.disk import Disk
from ottla_broker.storage.files.index_rebuilding import rebuild_indexes
from ottla_broker.storage.files.indexes import GrowingIndex
from ottla_broker.storage.files.names import (
    CLEANED,
    DELETED,
    INDEX,
    LOG,
    SNAPSHOT,
    SWAP,
    TEMPORARY,
    TIME_INDEX,
    TXN_INDEX,
    offset_name,
    parse_offset_file,
)
from ottla_broker.storage.files.scan import HeaderWalk

_INDEX_INTERVAL_BYTES = 4096


async def finish_swaps(disk: Disk, directory: str) -> None:
    """Afterwards a partition's directory has only whole segments under their own names. Raises OSError."""
    names = [name for name, is_directory, _ in await disk.list(directory) if not is_directory]
    found = [(name, parsed) for name in names if (parsed := parse_offset_file(name)) is not None]
    cleaned = [parsed.offset for _, parsed in found if parsed.marker == CLEANED]
    swaps = sorted(parsed.offset for _, parsed in found if parsed.marker == SWAP and parsed.suffix == LOG)
    valid = [base for base in swaps if not cleaned or base < min(cleaned)]
    void = [name for name, parsed in found if parsed.marker == SWAP and parsed.offset not in valid]
    leftovers = [name for name in names if name.endswith((DELETED, CLEANED, TEMPORARY))]
    if void:
        for name in void:
            await disk.delete(f"{directory}/{name}")
        # Before the `.cleaned` files, which show that these do not count.
        await disk.fsync_directory(directory)
    for name in leftovers:
        await disk.delete(f"{directory}/{name}")
    for base in valid:
        await _complete(disk, directory, base)
    for base in sorted({parsed.offset: None for _, parsed in found if parsed.marker == SWAP and parsed.suffix != LOG}):
        if base not in valid and offset_name(base, LOG) in names:
            # Apache Kafka renames the log before its indexes, which may be missing beside it.
            await rebuild_indexes(disk, directory, base, _INDEX_INTERVAL_BYTES)


async def _complete(disk: Disk, directory: str, base: int) -> None:
    names = {name: None for name, _, _ in await disk.list(directory)}

    def path(offset: int, suffix: str, marker: str = "") -> str:
        return f"{directory}/{offset_name(offset, suffix)}{marker}"

    def is_there(suffix: str, marker: str = "") -> bool:
        return f"{offset_name(base, suffix)}{marker}" in names

    index, end = await _walk(disk, path(base, LOG, SWAP), base)
    covered = [parsed.offset for name in names if (parsed := parse_offset_file(name)) and not parsed.marker]
    for offset in dict.fromkeys(covered):
        if base < offset < end:
            for suffix in (LOG, INDEX, TIME_INDEX, TXN_INDEX, SNAPSHOT):
                await disk.delete(path(offset, suffix))
    if is_there(LOG):
        # In this order: once the old log is gone, a transaction index counts as the new one's.
        for suffix in (TXN_INDEX, LOG):
            await disk.delete(path(base, suffix))
    await disk.fsync_directory(directory)
    if is_there(INDEX, SWAP) and is_there(TIME_INDEX, SWAP):
        for suffix in (TIME_INDEX, INDEX):
            await disk.rename(path(base, suffix, SWAP), path(base, suffix))
    else:
        await _write(disk, path(base, INDEX), bytes(index.unwritten_offset_entries))
        await _write(disk, path(base, TIME_INDEX), bytes(index.unwritten_time_entries))
        for suffix in (TIME_INDEX, INDEX):
            await disk.delete(path(base, suffix, SWAP))
    if is_there(TXN_INDEX, SWAP):
        await disk.rename(path(base, TXN_INDEX, SWAP), path(base, TXN_INDEX))
    await disk.rename(path(base, LOG, SWAP), path(base, LOG))
    await disk.fsync_directory(directory)


async def _walk(disk: Disk, name: str, base: int) -> tuple[GrowingIndex, int]:
    """(indexes of a segment that was synced whole, the offset behind its last). Raises OSError."""
    file = await disk.open(name)
    index = GrowingIndex(base)
    walk = HeaderWalk(file, 0, file.size)
    end = base
    last_entry = 0
    max_timestamp, max_timestamp_offset = -1, base
    while (step := await walk.next()) is not None:
        position, header = step
        end = header.next_offset
        if header.max_timestamp > max_timestamp:
            max_timestamp, max_timestamp_offset = header.max_timestamp, header.last_offset
        if position - last_entry > _INDEX_INTERVAL_BYTES:
            index.add(header.base_offset, header.last_offset, position)
            index.add_time(max_timestamp, max_timestamp_offset)
            last_entry = position
    index.add_time(max_timestamp, max_timestamp_offset)
    await file.close()
    return index, end


async def _write(disk: Disk, name: str, content: bytes) -> None:
    """Replaces a file durably: recovery rebuilds nothing below the recovery point. Raises OSError."""
    file = await disk.open(name, create=True)
    if file.size:
        await file.truncate(0)
    if content:
        await file.append((content,))
    await file.fsync()
    await file.close()
