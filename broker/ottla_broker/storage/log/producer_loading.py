"""The producers' state of a log at an offset: from a snapshot, and the batches since (wire-protocol 5.3).

Which snapshot is begun with, `snapshots.py` tells. None tells of transactions that ended before it was taken. One
whose marker is still above the high watermark must hold the last stable offset back all the same (Apache Kafka forgets
it over a restart, and shows a part of a transaction that may yet turn out otherwise), so where one may exist the state
is built again from a snapshot at or below the high watermark.
"""

from __future__ import annotations

from collections.abc import Sequence

from ottla_broker.records.control import read_marker
from ottla_broker.storage.files.directory_contents import DirectoryContents
from ottla_broker.storage.files.names import SNAPSHOT, offset_name
from ottla_broker.storage.files.scan import HeaderWalk
from ottla_broker.storage.files.segment import Segment
from ottla_broker.storage.files.snapshots import producers_before, snapshot_offsets
from ottla_broker.storage.log.producers import ProducerStates


async def load_producers(
    contents: DirectoryContents,
    segments: Sequence[Segment],
    end: int,
    high_watermark: int,
    known: ProducerStates | None = None,
) -> tuple[ProducerStates, list[str]]:
    """(the state at `end`, what had to be repaired). `known`: the state there as a recovery left it. Raises OSError."""
    start = segments[0].base_offset
    repairs: list[str] = []
    producers = known
    if producers is None:
        producers, repairs = await producers_before(contents, start, end)
        await replay_producers(producers, segments, end)
    lowest = max(high_watermark, start)
    if producers.known_from > lowest and producers.has_ended_transactions:
        producers, more = await producers_before(contents, start, lowest)
        await replay_producers(producers, segments, end)
        repairs += more
    producers.transactions.forget_replicated(high_watermark)
    return producers, repairs


async def drop_strays(contents: DirectoryContents, segments: Sequence[Segment]) -> None:
    """Of the snapshots that stand at no segment's start all but the newest goes: each orderly end leaves one. Not
    durably, since they tell the truth. Raises OSError."""
    bases = {segment.base_offset: None for segment in segments}
    for offset in (await snapshot_offsets(contents))[:-1]:
        if offset not in bases:
            await contents.delete(offset_name(offset, SNAPSHOT))


async def replay_producers(producers: ProducerStates, segments: Sequence[Segment], end: int) -> None:
    """Takes down the batches between the state's end offset and `end`. Raises OSError."""
    start = producers.end_offset
    for segment in segments:
        if segment.next_offset <= start or segment.base_offset >= end:
            continue
        await segment.make_ready()
        file = segment.file
        assert file is not None
        position = 0
        if start > segment.base_offset:
            place = segment.place(start)
            position = 0 if place is None else place[0]
        walk = HeaderWalk(file, position, segment.size)
        while (step := await walk.next()) is not None:
            at, header = step
            if header.base_offset >= end:
                break
            if header.producer_id < 0 or header.last_offset < start:
                continue
            if header.is_control:
                marker = read_marker(await file.read(at, header.size))
                if marker is not None:
                    producers.end_from_header(header, marker)
            else:
                producers.update_from_header(header)
    producers.end_offset = end
