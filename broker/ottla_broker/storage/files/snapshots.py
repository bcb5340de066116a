"""Lists and deletes the producer snapshots of a partition (`<offset>.snapshot`).

Not here: their content (`log/producers.py`), which one is loaded (`log/producer_loading.py`).
"""

from __future__ import annotations

from collections.abc import Callable

from ottla_broker.storage.files.directory_contents import DirectoryContents
from ottla_broker.storage.files.names import SNAPSHOT, offset_name


async def snapshot_offsets(contents: DirectoryContents) -> list[int]:
    """Offsets of a partition's snapshots, sorted. Raises OSError."""
    files = await contents.offset_files()
    return sorted(file.offset for file, _ in files if file.suffix == SNAPSHOT and not file.marker)


async def drop_snapshots(contents: DirectoryContents, is_unwanted: Callable[[int], bool]) -> None:
    """Deletes snapshots durably: one that came back after a power loss would describe other records. Raises OSError."""
    unwanted = [offset for offset in await snapshot_offsets(contents) if is_unwanted(offset)]
    for offset in unwanted:
        await contents.delete(offset_name(offset, SNAPSHOT))
    if unwanted:
        await contents.disk.fsync_directory(contents.directory)
