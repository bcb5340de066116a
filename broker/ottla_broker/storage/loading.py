"""Opening a log from its directory: after an orderly end from what the files say, otherwise after recovery."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from ottla_broker.ports.clock import Clock
from ottla_broker.ports.disk import Disk
from ottla_broker.records.ids import TopicPartition
from ottla_broker.storage.checkpoints import decode_epochs, decode_partition_metadata
from ottla_broker.storage.config import DEFAULTS, LogConfig
from ottla_broker.storage.directory_contents import DirectoryContents
from ottla_broker.storage.epochs import LeaderEpochs
from ottla_broker.storage.indexes import GrowingIndex
from ottla_broker.storage.log import Log
from ottla_broker.storage.log_state import LogOwner
from ottla_broker.storage.maintenance import replay_producers, walk_tail
from ottla_broker.storage.names import (
    CLEANED,
    DELETED,
    INDEX,
    LEADER_EPOCHS,
    LOG,
    PARTITION_METADATA,
    SNAPSHOT,
    SWAP,
    TEMPORARY,
    TIME_INDEX,
    offset_name,
    parse_offset_file,
)
from ottla_broker.storage.producers import ProducerStates
from ottla_broker.storage.recovery import Recovered, finish_swaps
from ottla_broker.storage.segment import Segment

Recover = Callable[[int], Awaitable[Recovered]]
"""Runs the recovery of this log from an offset on, here or in a worker."""


async def open_log(
    *,
    topic_partition: TopicPartition,
    directory: str,
    disk: Disk,
    clock: Clock,
    owner: LogOwner,
    config: LogConfig,
    recovery_point: int = 0,
    log_start_offset: int = 0,
    high_watermark: int = 0,
    is_clean: bool = True,
    recover: Recover,
    contents: DirectoryContents | None = None,
) -> Log:
    """Opens, and where necessary repairs, the log in `directory`; creates the first segment of an empty one.

    `recovery_point`, `log_start_offset`, `high_watermark`: what the checkpoints say. `is_clean`: the broker stopped in
    order. A log whose end does not hold what its size promises is recovered even then. `contents`: of the directory,
    where they have been read already. Raises OSError, CheckpointError.
    """
    recovered: Recovered | None = None
    scanned_from = recovery_point
    if contents is None or not is_clean:
        contents = DirectoryContents(disk, directory)
    if not is_clean:
        recovered = await recover(recovery_point)
    else:
        if any(name.endswith((DELETED, CLEANED, SWAP, TEMPORARY)) for name, _, _ in await contents.list()):
            contents.forget()
            await finish_swaps(disk, directory)
        unindexed = await _first_without_index(contents)
        if unindexed is not None:
            contents.forget()
            recovered = await recover(unindexed)
            scanned_from = unindexed
    segments = await _segments(disk, directory, clock, contents)
    if segments and not await _resume_last(segments[-1], config, contents):
        scanned_from = min(scanned_from, segments[-1].base_offset)
        contents.forget()
        recovered = await recover(segments[-1].base_offset)
        segments = await _segments(disk, directory, clock, contents)
        if segments:
            await _resume_last(segments[-1], config, contents)
    if recovered is not None and segments:
        segments[-1].next_offset = max(segments[-1].next_offset, recovered.next_offset)
    if segments and segments[-1].next_offset < log_start_offset:
        # The records up to the log start offset were lost with the power; what is left is deleted already.
        for segment in segments:
            await segment.close()
        for name, _, _ in await contents.list():
            if parse_offset_file(name) is not None:
                await disk.delete(f"{directory}/{name}")
        contents.forget()
        segments, recovered = [], None
    if not segments:
        segments = [Segment(disk, directory, log_start_offset, 0, log_start_offset, clock.now_ms())]
        segments[0].start()
        contents.forget()
        await disk.fsync_directory(directory)
    end = segments[-1].next_offset
    log_start_offset = max(log_start_offset, segments[0].base_offset)

    epochs = await _epochs(directory, contents, recovered)
    epochs.truncate_from_end(end)
    epochs.truncate_from_start(log_start_offset)
    producers = await _producers(disk, directory, contents, segments, end, recovered)
    is_durable = is_clean and recovered is None
    log = Log(
        topic_partition=topic_partition,
        topic_id=await _topic_id(directory, contents),
        directory=directory,
        disk=disk,
        clock=clock,
        owner=owner,
        config=config,
        segments=segments,
        log_start_offset=log_start_offset,
        recovery_point=end if is_durable else max(min(recovery_point, end), segments[0].base_offset),
        high_watermark=high_watermark,
        epochs=epochs,
        producers=producers,
    )
    if recovered is not None:
        # The indexes of what was scanned are new, and durable only with the next flush: it must not take them for done,
        # nor a recovery after a roll at the old recovery point pass them by.
        first = log.segment_of(min(scanned_from, log.recovery_point))
        log.recovery_point = min(log.recovery_point, first.base_offset)
    if recovered is not None and config.flush_messages < DEFAULTS["flush.messages"]:
        # What a crash of the process left in the page cache counts as written from here on: it is given to consumers,
        # and acknowledged to a producer that sends it again. With flush.messages that must mean flushed.
        await disk.fsync_directory(directory)
        await log.flush()
    return log


async def _segments(disk: Disk, directory: str, clock: Clock, contents: DirectoryContents) -> list[Segment]:
    """All segments in order, none of them open; a closed one ends where the next begins."""
    found: list[tuple[int, int]] = []
    for name, is_directory, size in await contents.list():
        parsed = None if is_directory else parse_offset_file(name)
        if parsed is not None and parsed.suffix == LOG and not parsed.marker:
            found.append((parsed.offset, size))
    found.sort()
    ends = [base for base, _ in found[1:] + found[-1:]]
    now = clock.now_ms()
    return [Segment(disk, directory, base, size, end, now) for (base, size), end in zip(found, ends, strict=True)]


async def _first_without_index(contents: DirectoryContents) -> int | None:
    """Base offset of the first segment that lacks an index file."""
    names = {name: None for name, _, _ in await contents.list()}
    for name in names:
        parsed = parse_offset_file(name)
        if parsed is None or parsed.suffix != LOG or parsed.marker:
            continue
        if offset_name(parsed.offset, INDEX) not in names or offset_name(parsed.offset, TIME_INDEX) not in names:
            return parsed.offset
    return None


async def _resume_last(segment: Segment, config: LogConfig, contents: DirectoryContents) -> bool:
    """Makes the last segment active; False when its files do not agree and it must be recovered."""
    size = segment.size
    await segment.resume(size, contents)
    index = segment.index
    assert isinstance(index, GrowingIndex)
    if not index.is_sound(size):
        await segment.close()
        return False
    segment.index_entries, segment.time_index_entries = index.count, index.time_count
    segment.max_timestamp, segment.max_timestamp_offset = index.last_time
    if not await walk_tail(segment):
        await segment.close()
        return False
    await segment.trim_indexes()
    return True


async def _epochs(directory: str, contents: DirectoryContents, recovered: Recovered | None) -> LeaderEpochs:
    if recovered is not None:
        epochs = LeaderEpochs(recovered.epochs)
        epochs.is_dirty = True
        return epochs
    try:
        data = await contents.read(LEADER_EPOCHS)
    except FileNotFoundError:
        return LeaderEpochs()
    return LeaderEpochs(decode_epochs(f"{directory}/{LEADER_EPOCHS}", data))


async def _producers(
    disk: Disk,
    directory: str,
    contents: DirectoryContents,
    segments: list[Segment],
    end: int,
    recovered: Recovered | None,
) -> ProducerStates:
    if recovered is not None:
        return ProducerStates.restore(recovered.producers, end)
    newest = -1
    for name, _, _ in await contents.list():
        parsed = parse_offset_file(name)
        if parsed is None or parsed.suffix != SNAPSHOT or parsed.marker:
            continue
        if parsed.offset > end:
            await disk.delete(f"{directory}/{name}")
        elif parsed.offset >= segments[0].base_offset:
            newest = max(newest, parsed.offset)
    if newest < 0:
        producers = ProducerStates(segments[0].base_offset)
    else:
        name = offset_name(newest, SNAPSHOT)
        producers = ProducerStates.decode(f"{directory}/{name}", await contents.read(name), newest)
    await replay_producers(producers, segments, end)
    return producers


async def _topic_id(directory: str, contents: DirectoryContents) -> bytes | None:
    try:
        data = await contents.read(PARTITION_METADATA)
    except FileNotFoundError:
        return None
    return decode_partition_metadata(f"{directory}/{PARTITION_METADATA}", data)
