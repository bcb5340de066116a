"""Making anew, from the log files alone, what only saves looking there: the indexes of a segment, the leader epochs.

For files that are missing or damaged although the log is sound; after an end that was not in order `recovery.py` does
it in the same walk that checks the batches. Nothing is cut here: a walk ends at the first byte that begins no batch,
and who reads there is told.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from ottla_broker.ports.disk import Disk
from ottla_broker.storage.files.checkpoints import CheckpointError, decode_epochs
from ottla_broker.storage.files.directory_contents import DirectoryContents
from ottla_broker.storage.files.indexes import MAX_RELATIVE_OFFSET, GrowingIndex
from ottla_broker.storage.files.names import INDEX, LEADER_EPOCHS, LOG, TIME_INDEX, offset_name
from ottla_broker.storage.files.scan import HeaderWalk
from ottla_broker.storage.log.leader_epochs import LeaderEpochs

_YIELD_EVERY = 256
"""Batches between two turns of the loop: a walk over cached blocks would otherwise keep it to itself."""


async def rebuild_indexes(disk: Disk, directory: str, base: int, index_interval_bytes: int) -> None:
    """Makes the offset and time index of a segment from its batch headers. Raises OSError.

    Durably, and as new files: whoever has mapped an old one keeps what it mapped.
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


async def read_epochs(contents: DirectoryContents, bases: Sequence[int]) -> tuple[LeaderEpochs, list[str]]:
    """(the leader epochs of a log, what had to be repaired).

    `bases`: base offsets of its segments, growing. A file that is missing or cannot be understood is made from the
    batch headers; `is_dirty` then has it written. Raises OSError.
    """
    disk, directory = contents.disk, contents.directory
    name = f"{directory}/{LEADER_EPOCHS}"
    try:
        return LeaderEpochs(decode_epochs(name, await contents.read(LEADER_EPOCHS))), []
    except FileNotFoundError:
        reason = "is missing"
    except CheckpointError as error:
        reason = f"cannot be read ({error})"
    epochs = LeaderEpochs()
    latest = [await _first_epoch(disk, directory, base) for base in bases]
    for number, base in enumerate(bases):
        # Epochs only grow along a log: a segment that begins and is followed by the same one holds no other.
        if number + 1 < len(bases) and latest[number] == latest[number + 1] == epochs.latest:
            continue
        await _take_epochs(disk, directory, base, epochs)
    # Also without entries, where there are batches (of an old format): the next start need not look again.
    epochs.is_dirty = any(first is not None for first in latest)
    return epochs, [f"{name} {reason}: made anew from the batches"] if epochs.entries else []


async def _first_epoch(disk: Disk, directory: str, base: int) -> int | None:
    file = await disk.open(f"{directory}/{offset_name(base, LOG)}")
    first = await HeaderWalk(file, 0, file.size).next()
    await file.close()
    return None if first is None else first[1].leader_epoch


async def _take_epochs(disk: Disk, directory: str, base: int, epochs: LeaderEpochs) -> None:
    file = await disk.open(f"{directory}/{offset_name(base, LOG)}")
    walk = HeaderWalk(file, 0, file.size)
    count = 0
    while (step := await walk.next()) is not None:
        header = step[1]
        if header.leader_epoch > epochs.latest:
            epochs.assign(header.leader_epoch, header.base_offset)
        count += 1
        if count % _YIELD_EVERY == 0:
            await asyncio.sleep(0)
    await file.close()
