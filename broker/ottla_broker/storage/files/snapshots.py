"""Snapshot files of the producers' state (`<offset>.snapshot`): which one to begin with, which ones to remove.

A snapshot only saves time: the state can always be had by replaying batches. So one that cannot be read is removed and
the one before it used, as Apache Kafka does.
"""

from __future__ import annotations

from collections.abc import Callable

from ottla_broker.storage.files.checkpoints import CheckpointError
from ottla_broker.storage.files.directory_contents import DirectoryContents
from ottla_broker.storage.files.names import SNAPSHOT, offset_name
from ottla_broker.storage.log.producers import ProducerStates


async def snapshot_offsets(contents: DirectoryContents) -> list[int]:
    """Offsets of a partition's snapshots, growing. Raises OSError."""
    files = await contents.offset_files()
    return sorted(file.offset for file, _ in files if file.suffix == SNAPSHOT and not file.marker)


async def drop_snapshots(contents: DirectoryContents, is_unwanted: Callable[[int], bool]) -> None:
    """Removes them durably: one that came back after a power loss would tell of records that never were, or are
    others now. Raises OSError."""
    unwanted = [offset for offset in await snapshot_offsets(contents) if is_unwanted(offset)]
    for offset in unwanted:
        await contents.delete(offset_name(offset, SNAPSHOT))
    if unwanted:
        await contents.disk.fsync_directory(contents.directory)


async def producers_before(contents: DirectoryContents, log_start: int, end: int) -> tuple[ProducerStates, list[str]]:
    """(the state to replay from, what had to be repaired).

    The state is that of the newest readable snapshot from `log_start` (the first segment's base offset) to `end`, or an
    empty one at `log_start`. Raises OSError.
    """
    repairs: list[str] = []
    for offset in reversed(await snapshot_offsets(contents)):
        if not log_start <= offset <= end:
            continue
        name = offset_name(offset, SNAPSHOT)
        try:
            return ProducerStates.decode(f"{contents.directory}/{name}", await contents.read(name), offset), repairs
        except CheckpointError as error:
            repairs.append(f"{error}: it is removed, the producers' state comes from the batches")
            await contents.delete(name)
    return ProducerStates(log_start), repairs
