"""The content of a partition on the device, read from a simulated directory without the broker."""

from __future__ import annotations

from simulation.batches import Batch, valid_prefix
from simulation.filesystem import DirectoryNode, FileNode


def durable_batches(directory: DirectoryNode) -> list[Batch]:
    """The batches that stand whole on the platter from the first segment on, without a gap between segments."""
    batches: list[Batch] = []
    end = -1
    for file, node in sorted(directory.durable.items()):
        if not file.endswith(".log") or not isinstance(node, FileNode):
            continue
        base = int(file.removesuffix(".log"))
        if end not in (-1, base):
            break
        end = base
        for batch in valid_prefix(node.durable()):
            batches.append(batch)
            end = batch.last_offset + 1
    return batches


def durable_end(directory: DirectoryNode) -> int:
    """The offset after the last of `durable_batches`, 0 when there are none."""
    batches = durable_batches(directory)
    return batches[-1].last_offset + 1 if batches else 0


def segment_bytes(directory: DirectoryNode) -> bytes:
    """The segments one after the other, as the page cache holds them."""
    return b"".join(
        bytes(node.data)
        for file, node in sorted(directory.entries.items())
        if file.endswith(".log") and isinstance(node, FileNode)
    )
