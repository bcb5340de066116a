"""Rebuilds the indexes of a segment from its batches, when they are missing or damaged although the log is sound.

After an unclean shutdown `log/recovery.py` does this in the same walk that checks the batches. Here nothing is
truncated: the walk ends at the first byte that begins no batch, and a read there gets the error.
"""

from __future__ import annotations

import asyncio

from ottla_broker.ports.disk import Disk
from ottla_broker.storage.files.indexes import MAX_RELATIVE_OFFSET, GrowingIndex
from ottla_broker.storage.files.names import INDEX, LOG, TIME_INDEX, offset_name
from ottla_broker.storage.files.scan import HeaderWalk

_YIELD_EVERY = 256
"""Batches until other tasks of the event loop run: a walk over cached blocks never waits otherwise."""


async def rebuild_indexes(disk: Disk, directory: str, base: int, index_interval_bytes: int) -> None:
    """Writes the offset and time index of a segment from its batch headers. Raises OSError.

    Durably, and as new files: a mapping of an old file stays valid.
    """
    file = await disk.open(f"{directory}/{offset_name(base, LOG)}")
    index = GrowingIndex(base)
    largest, largest_offset = -1, base
    last_entry = 0
    walk = HeaderWalk(file, 0, file.size)
    count = 0
    while (step := await walk.next()) is not None:
        position, header = step
        if header.last_offset - base > MAX_RELATIVE_OFFSET:
            break  # damage that no checksum covers
        if header.max_timestamp > largest:
            largest, largest_offset = header.max_timestamp, header.last_offset
        if position - last_entry > index_interval_bytes:
            index.add(header.base_offset, header.last_offset, position)
            index.add_time(largest, largest_offset)
            last_entry = position
        count += 1
        if count % _YIELD_EVERY == 0:
            await asyncio.sleep(0)
    index.add_time(largest, largest_offset)
    await file.close()
    prefix = f"{directory}/{offset_name(base, '')}"
    await disk.write_file(prefix + INDEX, bytes(index.unwritten_offset_entries))
    await disk.write_file(prefix + TIME_INDEX, bytes(index.unwritten_time_entries))
