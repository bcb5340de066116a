"""Loads the leader epochs of a log: from leader-epoch-checkpoint, or from the batches when that file is damaged."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from ottla_broker.ports.disk import Disk
from ottla_broker.storage.files.checkpoints import CheckpointError, decode_epochs
from ottla_broker.storage.files.directory_contents import DirectoryContents
from ottla_broker.storage.files.names import LEADER_EPOCHS, LOG, offset_name
from ottla_broker.storage.files.scan import HeaderWalk
from ottla_broker.storage.log.leader_epochs import LeaderEpochs

_YIELD_EVERY = 256
"""Batches until other tasks of the event loop run: a walk over cached blocks never waits otherwise."""


async def read_epochs(contents: DirectoryContents, bases: Sequence[int]) -> tuple[LeaderEpochs, list[str]]:
    """(the leader epochs of a log, a line for every repair).

    `bases`: base offsets of its segments, sorted. When the file is missing or damaged, the epochs come from the batch
    headers, and `is_dirty` has them written. Raises OSError.
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
        # Epochs grow along a log: a segment that begins and is followed by the same epoch has no other.
        if number + 1 < len(bases) and latest[number] == latest[number + 1] == epochs.latest:
            continue
        await _add_epochs(disk, directory, base, epochs)
    # Written also without entries, where all batches are of an old format: the next start need not walk them.
    epochs.is_dirty = any(first is not None for first in latest)
    return epochs, [f"{name} {reason}: rebuilt from the batches"] if epochs.entries else []


async def _first_epoch(disk: Disk, directory: str, base: int) -> int | None:
    file = await disk.open(f"{directory}/{offset_name(base, LOG)}")
    first = await HeaderWalk(file, 0, file.size).next()
    await file.close()
    return None if first is None else first[1].leader_epoch


async def _add_epochs(disk: Disk, directory: str, base: int, epochs: LeaderEpochs) -> None:
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
