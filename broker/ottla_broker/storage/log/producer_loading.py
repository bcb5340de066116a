"""Loads the producers' state of a log at an offset: from a snapshot and the batches behind it.

A snapshot does not have the transactions that ended before it was taken. A transaction whose marker is above the high
watermark must hold the last stable offset back all the same: the marker may still be lost, and another one written.
(Apache Kafka forgets it at a restart.) Where there may be one, the state is loaded from a snapshot at or below the high
watermark. Source: ProducerStateManager.truncateAndReload and UnifiedLog.rebuildProducerState of Apache Kafka.
"""

from __future__ import annotations

from collections.abc import Sequence

from ottla_broker.records.control_records import read_marker
from ottla_broker.storage.files.checkpoints import CheckpointError
from ottla_broker.storage.files.directory_contents import DirectoryContents
from ottla_broker.storage.files.names import SNAPSHOT, offset_name
from ottla_broker.storage.files.scan import HeaderWalk
from ottla_broker.storage.files.segment import Segment
from ottla_broker.storage.files.snapshots import snapshot_offsets
from ottla_broker.storage.log.producers import ProducerStates


async def load_producers(
    contents: DirectoryContents,
    segments: Sequence[Segment],
    end: int,
    high_watermark: int,
    known: ProducerStates | None = None,
) -> tuple[ProducerStates, list[str]]:
    """(the state at `end`, a line for every repair). `known`: the state there, as recovery left it. Raises OSError."""
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


async def producers_before(contents: DirectoryContents, log_start: int, end: int) -> tuple[ProducerStates, list[str]]:
    """(the state to replay batches on, a line for every repair).

    It comes from the newest readable snapshot between `log_start` (the first segment's base offset) and `end`, or is
    empty at `log_start`. A snapshot that cannot be read is deleted: it only saves time. Raises OSError.
    """
    repairs: list[str] = []
    for offset in reversed(await snapshot_offsets(contents)):
        if not log_start <= offset <= end:
            continue
        name = offset_name(offset, SNAPSHOT)
        try:
            return ProducerStates.decode(f"{contents.directory}/{name}", await contents.read(name), offset), repairs
        except CheckpointError as error:
            repairs.append(f"{error}: it is deleted, the producers' state comes from the batches")
            await contents.delete(name)
    return ProducerStates(log_start), repairs


async def drop_old_snapshots(contents: DirectoryContents, segments: Sequence[Segment]) -> None:
    """Deletes the snapshots that are not at the start of a segment, but for the newest: every orderly stop leaves one.
    Not durably: they are correct. Raises OSError."""
    bases = {segment.base_offset: None for segment in segments}
    for offset in (await snapshot_offsets(contents))[:-1]:
        if offset not in bases:
            await contents.delete(offset_name(offset, SNAPSHOT))


async def replay_producers(producers: ProducerStates, segments: Sequence[Segment], end: int) -> None:
    """Adds the batches between the state's end offset and `end`. Raises OSError."""
    start = producers.end_offset
    for segment in segments:
        if segment.next_offset <= start or segment.base_offset >= end:
            continue
        await segment.make_ready()
        file = segment.file
        assert file is not None
        position = 0
        if start > segment.base_offset:
            place = segment.find_position(start)
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
