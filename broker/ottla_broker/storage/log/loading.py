"""Opens a log from its directory: after an orderly stop from its files, after an unclean shutdown from recovery.

A log whose last bytes are not whole batches is recovered even after an orderly stop. Small files that are missing or
damaged (indexes, leader epochs, partition.metadata) are rebuilt. Source: LogLoader of Apache Kafka.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from ottla_broker.config.types import LONG_MAX
from ottla_broker.ports.clock import Clock
from ottla_broker.ports.disk import Disk
from ottla_broker.records.ids import TopicPartition
from ottla_broker.storage.files.checkpoints import CheckpointError, decode_partition_metadata
from ottla_broker.storage.files.directory_contents import DirectoryContents
from ottla_broker.storage.files.index_rebuilding import rebuild_indexes
from ottla_broker.storage.files.indexes import OFFSET_ENTRY_BYTES, TIME_ENTRY_BYTES, GrowingIndex
from ottla_broker.storage.files.names import (
    CLEANED,
    DELETED,
    INDEX,
    LOG,
    PARTITION_METADATA,
    SWAP,
    TEMPORARY,
    TIME_INDEX,
    TXN_INDEX,
    offset_name,
    parse_offset_file,
)
from ottla_broker.storage.files.segment import Segment
from ottla_broker.storage.files.segment_tail import walk_tail
from ottla_broker.storage.files.snapshots import drop_snapshots
from ottla_broker.storage.files.swaps import finish_swaps
from ottla_broker.storage.files.transaction_index import TXN_ENTRY_BYTES, TransactionIndex
from ottla_broker.storage.log.config import LogConfig
from ottla_broker.storage.log.epoch_loading import read_epochs
from ottla_broker.storage.log.flushing import roll_jitter_ms
from ottla_broker.storage.log.leader_epochs import LeaderEpochs
from ottla_broker.storage.log.log import Log
from ottla_broker.storage.log.producer_loading import drop_old_snapshots, load_producers
from ottla_broker.storage.log.producers import ProducerStates
from ottla_broker.storage.log.recovery import Recovered
from ottla_broker.storage.log.state import LogOwner, LogState

Recover = Callable[[int], Awaitable[Recovered]]
"""Recovers this log from an offset on, here or in a worker process."""


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

    Args:
        topic_partition: of the log.
        directory: relative to the log directory.
        disk: of the log directory.
        clock: for timers and tasks.
        owner: the log manager; gets a line for the broker's log for every repair.
        config: of the topic.
        recovery_point: from the checkpoint.
        log_start_offset: from the checkpoint.
        high_watermark: from the checkpoint.
        is_clean: the broker stopped in an orderly way.
        recover: recovers the log.
        contents: of the directory, where they have been read already.

    Raises OSError.
    """
    notice = owner.notice
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
        for base in await _without_indexes(contents):
            contents.forget()
            notice(f"{directory}: the indexes of segment {base} are missing or damaged: rebuilt from its batches")
            await rebuild_indexes(disk, directory, base, config.index_interval_bytes)
        torn = await _first_torn_transaction_index(contents)
        if torn is not None:
            contents.forget()
            notice(f"{directory}: the transaction index of segment {torn} is damaged: rebuilt from the batches")
            recovered = await recover(torn)
            scanned_from = torn
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
    if segments:
        segments[-1].roll_jitter_ms = roll_jitter_ms(config, clock)
    if segments and segments[-1].next_offset < log_start_offset:
        # A power loss took the records up to the log start offset; what is left was deleted before.
        for segment in segments:
            await segment.close()
        for name, _, _ in await contents.list():
            if parse_offset_file(name) is not None:
                await disk.delete(f"{directory}/{name}")
        contents.forget()
        segments, recovered = [], None
    if not segments:
        segments = [Segment(disk, directory, log_start_offset, 0, log_start_offset, clock.now_ms())]
        segments[0].roll_jitter_ms = roll_jitter_ms(config, clock)
        segments[0].start()
        contents.forget()
        await disk.fsync_directory(directory)
    end = segments[-1].next_offset
    log_start_offset = max(log_start_offset, segments[0].base_offset)

    epochs = await _epochs(contents, segments, recovered, notice)
    epochs.truncate_from_end(end)
    epochs.truncate_from_start(log_start_offset)
    producers = await _producers(contents, segments, end, max(high_watermark, log_start_offset), recovered, notice)
    is_durable = is_clean and recovered is None
    state = LogState(
        topic_partition=topic_partition,
        topic_id=await _topic_id(directory, contents, notice),
        directory=directory,
        disk=disk,
        config=config,
        segments=segments,
        log_start_offset=log_start_offset,
        recovery_point=end if is_durable else max(min(recovery_point, end), segments[0].base_offset),
        high_watermark=high_watermark,
        epochs=epochs,
        producers=producers,
        now_ms=clock.now_ms(),
    )
    log = Log(state, clock, owner)
    if recovered is not None:
        # The next flush makes the new indexes of recovery durable. It must not skip them, nor may a later recovery that
        # begins, after a roll, at the old recovery point.
        first = state.segment_of(min(scanned_from, state.recovery_point))
        state.recovery_point = min(state.recovery_point, first.base_offset)
    if recovered is not None and config.flush_messages < LONG_MAX:
        # What a crash of the process left in the page cache counts as written from here on: consumers get it, and a
        # producer that sends it again gets an acknowledgement. With flush.messages it must be flushed first.
        await disk.fsync_directory(directory)
        await log.flusher.flush()
    return log


async def _segments(disk: Disk, directory: str, clock: Clock, contents: DirectoryContents) -> list[Segment]:
    """All segments in order, none of them open; a closed one ends where the next begins."""
    found: list[tuple[int, int]] = []
    with_aborted: dict[int, int] = {}
    for file, size in await contents.offset_files():
        if file.suffix == LOG and not file.marker:
            found.append((file.offset, size))
        elif file.suffix == TXN_INDEX and not file.marker:
            with_aborted[file.offset] = size
    found.sort()
    logs = dict(found)
    for base in with_aborted:
        if base not in logs:
            # A power loss brought the file back: a new segment with this base offset would append to it.
            await disk.delete(f"{directory}/{offset_name(base, TXN_INDEX)}")
            contents.forget()
    ends = [base for base, _ in found[1:] + found[-1:]]
    now = clock.now_ms()
    segments = [Segment(disk, directory, base, size, end, now) for (base, size), end in zip(found, ends, strict=True)]
    for segment in segments:
        if with_aborted.get(segment.base_offset):
            segment.transactions = TransactionIndex(disk, directory, segment.base_offset, is_new=False)
    return segments


async def _without_indexes(contents: DirectoryContents) -> list[int]:
    """Base offsets of the closed segments that lack an index file, or whose index ends in the middle of an entry.

    The entries are checked later: those of the last segment when it is resumed, the others at their first use.
    """
    sizes = {(file.offset, file.suffix): size for file, size in await contents.offset_files() if not file.marker}
    bases = sorted(offset for offset, suffix in sizes if suffix == LOG)
    return [
        base
        for base in bases[:-1]
        if sizes.get((base, INDEX), -1) % OFFSET_ENTRY_BYTES or sizes.get((base, TIME_INDEX), -1) % TIME_ENTRY_BYTES
    ]


async def _first_torn_transaction_index(contents: DirectoryContents) -> int | None:
    """Base offset of the first segment whose transaction index ends in the middle of an entry."""
    files = await contents.offset_files()
    torn = [
        file.offset for file, size in files if (file.suffix, file.marker) == (TXN_INDEX, "") and size % TXN_ENTRY_BYTES
    ]
    return min(torn, default=None)


async def _resume_last(segment: Segment, config: LogConfig, contents: DirectoryContents) -> bool:
    """Makes the last segment the active one; False when its files do not agree and it must be recovered."""
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


async def _epochs(
    contents: DirectoryContents, segments: list[Segment], recovered: Recovered | None, notice: Callable[[str], None]
) -> LeaderEpochs:
    if recovered is not None:
        epochs = LeaderEpochs(recovered.epochs)
        epochs.is_dirty = True
        return epochs
    epochs, repairs = await read_epochs(contents, [segment.base_offset for segment in segments if segment.size])
    for repair in repairs:
        notice(repair)
    return epochs


async def _producers(
    contents: DirectoryContents,
    segments: list[Segment],
    end: int,
    high_watermark: int,
    recovered: Recovered | None,
    notice: Callable[[str], None],
) -> ProducerStates:
    await drop_snapshots(contents, lambda offset: offset > end)
    await drop_old_snapshots(contents, segments)
    known = None if recovered is None else ProducerStates.restore(recovered.producers, end)
    producers, repairs = await load_producers(contents, segments, end, high_watermark, known)
    for repair in repairs:
        notice(repair)
    return producers


async def _topic_id(directory: str, contents: DirectoryContents, notice: Callable[[str], None]) -> bytes | None:
    """The topic id; None when the file is missing or damaged: the next LeaderAndIsr request has it."""
    name = f"{directory}/{PARTITION_METADATA}"
    try:
        return decode_partition_metadata(name, await contents.read(PARTITION_METADATA))
    except FileNotFoundError:
        return None
    except CheckpointError as error:
        notice(f"{error}: the next LeaderAndIsr request brings the topic id, and the file is written again")
        return None
