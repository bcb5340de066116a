"""Reads the batches behind the last index entry of a segment that becomes the active one."""

from __future__ import annotations

from ottla_broker.storage.files.scan import HeaderWalk
from ottla_broker.storage.files.segment import Segment


async def walk_tail(segment: Segment) -> bool:
    """Sets the recent positions, the largest timestamp and the next offset of a resumed segment. Raises OSError.

    False when the segment's bytes do not end with a whole batch; then `segment.size` and `next_offset` are those of
    the whole batches.
    """
    file, end = segment.file, segment.size
    assert file is not None
    place = segment.index.floor(2**63 - 1) if segment.index is not None else (segment.base_offset, 0)
    start = place[1]
    next_offset = segment.base_offset
    after = start
    segment.first_timestamp = None
    first = await HeaderWalk(file, 0, end).next()
    if first is not None:
        segment.first_timestamp = first[1].base_timestamp
    walk = HeaderWalk(file, start, end)
    while (step := await walk.next()) is not None:
        position, header = step
        segment.recent_offsets.append(header.base_offset)
        segment.recent_positions.append(position)
        if segment.max_timestamp is None or header.max_timestamp > segment.max_timestamp:
            segment.max_timestamp, segment.max_timestamp_offset = header.max_timestamp, header.last_offset
        next_offset = header.next_offset
        after = position + header.size
    segment.bytes_since_index = after - start
    segment.size = after
    segment.next_offset = next_offset
    return after == end
