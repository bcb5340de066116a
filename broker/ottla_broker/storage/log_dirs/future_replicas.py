"""Moves of replicas between the log directories of a broker (KIP-113): the copy, and how it takes the log's place.

    begin      a log `t-0.<uuid>-future` is made in the destination, with a marker file in it
    copy       what is written to the current log is appended to the copy, throttled. What is cut off the current log
               goes in the copy first; a new log start reaches it before that is confirmed
    swap       the copy is level and nothing is on its way: in one turn of the loop it takes the log's place. Its
               directory is renamed to `t-0` in the order of its lane, before anything that is appended from now on
    conclude   once that name is durable the old directory becomes `t-0.<uuid>-delete`, and only then the marker goes;
               the old files follow after file.delete.delay.ms, so that whoever reads them now can finish

So at every moment one directory, or two with the same records, hold all that was promised, and `found_at_start` can
tell them apart after a crash. Not here: who may append or follow meanwhile (`replication.log_moves`), which directory
a new replica gets (`placement`).
"""

from __future__ import annotations

import asyncio
import errno
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, Protocol

from ottla_broker.ports.clock import Clock
from ottla_broker.ports.disk import Disk
from ottla_broker.protocol.errors import ErrorCode, KafkaError
from ottla_broker.records.formats import batches
from ottla_broker.records.ids import TopicPartition
from ottla_broker.storage.files.checkpoints import encode_partition_metadata
from ottla_broker.storage.files.names import (
    DELETE_DIRECTORY,
    MOVE_MARKER,
    PARTITION_METADATA,
    SNAPSHOT,
    STRAY_DIRECTORY,
    future_name,
    offset_name,
    set_aside_name,
)
from ottla_broker.storage.log.leader_epochs import LeaderEpochs
from ottla_broker.storage.log.log import Log
from ottla_broker.storage.log_dirs.removal import LogRemoval
from ottla_broker.storage.log_dirs.throttle import MoveThrottle

_CHUNK_BYTES = 1024 * 1024
_FLUSH_BYTES = 64 * 1024 * 1024
"""The copy is synced after so much: the destination writes back steadily, and the swap has little left to sync."""

_AGAIN_S = 0.01
"""Between two attempts when something else is at work on the log."""

_ROOM_S = 1.0
"""Between two attempts while the destination is full."""

_RACES = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.OFFSET_OUT_OF_RANGE)


class Cleaning(Protocol):
    """What the log cleaner offers to moves: a log that is being copied is not compacted."""

    async def abort_and_pause(self, partition: TopicPartition) -> None:
        """Returns when nothing of the log is being cleaned any more, and nothing will be until `resume`."""
        ...

    def resume(self, partition: TopicPartition) -> None: ...

    def has_moved(self, partition: TopicPartition, source: Disk, destination: Disk) -> None:
        """What its checkpoint in one directory says of the log belongs into the other's from now on."""
        ...


class Keeper(Protocol):
    """What moves ask of the log manager."""

    async def check_move(self, log: Log) -> None:
        """KafkaError when its replica cannot be moved now. No older copy has its name when this returns."""
        ...

    async def outlived(self, partition: TopicPartition, home: str, path: str) -> None:
        """A copy that the offline directory `path` may hold under the log's name is older than the one on `home`, which
        is durable when this returns. KafkaError."""
        ...

    async def open_future(self, disk: Disk, partition: TopicPartition, name: str, source: Log) -> Log:
        """A new empty log in `name`, with the marker in it, found again after a crash. KafkaError."""
        ...

    async def forget_positions(self, disk: Disk) -> None:
        """Writes the checkpoints of a directory as its logs are now. OSError."""
        ...

    def is_in_use(self, disk: Disk) -> bool:
        """Whether its directory is online, and has not been opened anew since."""
        ...

    async def guarded(self, disk: Disk, work: Awaitable[Any]) -> Any:
        """Awaits calls on a directory; an OSError takes it offline and becomes KAFKA_STORAGE_ERROR."""
        ...


class Move:
    """One replica on its way. `is_over`: it has arrived, or was given up."""

    __slots__ = ("current", "failure", "future", "is_finishing", "is_over", "progress", "task")

    def __init__(self, current: Log, future: Log) -> None:
        self.current = current
        self.future = future
        self.is_over = False
        self.failure: KafkaError | None = None
        """Why the copy stands still for good; None while it goes on."""
        self.task: asyncio.Task[Any] | None = None
        self.is_finishing = False
        """Its task is in `Finish`, which holds the replica's appends and has to give them back."""
        self.progress = asyncio.Event()
        future.on_append = future.on_failure = self.progress.set

    @property
    def is_adrift(self) -> bool:
        """The log no longer knows the copy: a truncation of it has failed."""
        return not self.is_over and self.current.future is not self.future

    @property
    def is_waiting_for_room(self) -> bool:
        return self.future.is_full and not self.is_adrift

    @property
    def lag(self) -> int:
        """Records that the copy lacks."""
        return max(0, self.current.log_end_offset - self.future.log_end_offset)


Finish = Callable[[Move], Awaitable[bool]]
"""Called when a copy has caught up: has `Moves.swap` done where nothing is appended meanwhile; True when it was."""


class Moves:
    """All moves of a broker. On its loop."""

    def __init__(
        self, clock: Clock, keeper: Keeper, removal: LogRemoval, logs: dict[TopicPartition, Log], parallel: int
    ) -> None:
        """`logs` is the log manager's own table of current logs. `parallel`: num.replica.alter.log.dirs.threads."""
        self._clock = clock
        self._keeper = keeper
        self._removal = removal
        self._logs = logs
        self._slots = asyncio.Semaphore(max(1, parallel))
        self._moves: dict[TopicPartition, Move] = {}
        self._leaving: dict[TopicPartition, Log] = {}
        """Logs that have been replaced and whose directories still have their names."""
        self._concluding: dict[TopicPartition, asyncio.Task[Any]] = {}
        self.max_bytes_per_second = 2**63 - 1
        """replica.alter.log.dirs.io.max.bytes.per.second, as it is now."""
        self._throttle = MoveThrottle(clock, lambda: self.max_bytes_per_second)
        self.cleaning: Cleaning | None = None
        self.on_copied: Callable[[int], None] = lambda size: None
        """Told the bytes of each piece that was copied."""

    # -- what there is ------------------------------------------------------------------------------------------

    def get(self, partition: TopicPartition) -> Move | None:
        return self._moves.get(partition)

    @property
    def under_way(self) -> list[Move]:
        return list(self._moves.values())

    def on(self, disk: Disk) -> list[Log]:
        """Logs in a directory that are no replica's current one, and that its checkpoints speak of all the same."""
        logs = [move.future for move in self._moves.values()] + list(self._leaving.values())
        return [log for log in logs if log.disk is disk]

    # -- begin and end ------------------------------------------------------------------------------------------

    async def begin(self, current: Log, disk: Disk) -> Move | None:
        """Starts, or finds, the move of a log to another directory; a move elsewhere ends. None when it is there.

        The copying is for `run`. Raises KafkaError INVALID_TOPIC_EXCEPTION (the name of the copy is too long),
        KAFKA_STORAGE_ERROR (either directory fails).
        """
        partition = current.topic_partition
        name = future_name(partition, self._clock.uuid4().hex)
        if name is None:
            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, "The topic name is too long to be moved.")
        known = self._moves.get(partition)
        if known is not None and known.current is current and known.future.disk is disk:
            return known
        await self.cancel(partition)
        if current.disk is disk:
            return None
        async with self._not_cleaned(partition):
            # Before the marker goes: it may be what tells this log from an older copy.
            await self._keeper.check_move(current)
            # The marker of a move that ended in a crash: of two copies only the newer one may have it.
            await self._keeper.guarded(current.disk, _unmark(current))
            future = await self._keeper.open_future(disk, partition, name, current)
            return await self._add(current, future)

    @asynccontextmanager
    async def _not_cleaned(self, partition: TopicPartition) -> AsyncIterator[None]:
        """Nothing of the log is cleaned from here on, until the move that begins in the block is over."""
        if self.cleaning is not None:
            await self.cleaning.abort_and_pause(partition)
        try:
            yield
        except BaseException:
            if self.cleaning is not None:
                self.cleaning.resume(partition)
            raise

    async def _add(self, current: Log, future: Log) -> Move:
        """KafkaError when a directory of the two has failed since this began: nobody knew the copy then."""
        for log in (current, future):
            if log.is_failed or not self._keeper.is_in_use(log.disk):
                await future.abandon()
                raise log.storage_error()
        move = self._moves[current.topic_partition] = Move(current, future)
        current.state.future = future
        return move

    async def take_back(self, current: Log, future: Log) -> None:
        """After a start: the copy goes on from where it still agrees with the log. Raises KafkaError.

        It begins anew when the log has been compacted since: the move had been given up, as its destination had failed.
        The copy would go on with values whose deletions are gone from the log.
        """
        async with self._not_cleaned(current.topic_partition):
            if future.assigned_offset > current.assigned_offset:
                # Records that a power loss took from the log: what it gets at these offsets will be others.
                await future.truncate_to(current.assigned_offset)
            marker = f"{future.directory}/{MOVE_MARKER}"
            found = await self._keeper.guarded(future.disk, _content(future.disk, marker))
            goes_on = _clean_offset_in(found) == current.clean_offset and await _ends_alike(current, future)
            if not goes_on:
                await future.truncate_fully_and_start_at(current.log_start_offset)
            if not (goes_on and found):
                await self._keeper.guarded(future.disk, future.disk.write_file(marker, marker_text(current)))
            await self._add(current, future)

    async def cancel(self, partition: TopicPartition) -> None:
        """Ends a move and deletes the copy; one that has swapped already is waited for."""
        move = self._moves.pop(partition, None)
        if move is not None:
            await _ended(self._give_up(move), by_force=True)
            try:
                await self._removal.discard(move.future)
            except KafkaError:
                pass  # its directory is offline, which has been told; at the next start it is put in order
        concluding = self._concluding.get(partition)
        if concluding is not None:
            await asyncio.wait([concluding])

    def _give_up(self, move: Move) -> asyncio.Task[Any] | None:
        """The move's task, when it is another than this one and has to be ended."""
        move.is_over = True
        move.current.state.future = None
        if self.cleaning is not None:
            self.cleaning.resume(move.current.topic_partition)
        return None if move.task is asyncio.current_task() else move.task

    def directory_failed(self, disk: Disk) -> None:
        """Ends the moves from and to a directory that is offline, also those that wait for their turn or a rate: the
        replica may be made anew on the copy's directory, which would then know two logs of that name. One that is just
        beginning is refused by `_add`."""
        for move in self.under_way:
            if disk in (move.current.disk, move.future.disk):
                self._lose(move)

    def _lose(self, move: Move) -> None:
        """A directory of the two is offline. A copy whose log has failed stays on its disk: it may be all that there
        is, and a later start with all directories goes on with it, or not."""
        partition = move.current.topic_partition
        if self._moves.get(partition) is move:
            del self._moves[partition]
            self._clock.spawn(self._lost(move, self._give_up(move)), name=f"end of the move of {partition}")

    async def _lost(self, move: Move, task: asyncio.Task[Any] | None) -> None:
        await _ended(task, by_force=not move.is_finishing)
        await move.future.abandon()

    async def stop(self) -> None:
        """The broker stops: nothing is copied any more; the moves go on after the next start."""
        for move in self.under_way:
            if move.task is not None:
                move.task.cancel()
                await asyncio.wait([move.task])
        for task in list(self._concluding.values()):
            await asyncio.wait([task])

    # -- copying ------------------------------------------------------------------------------------------------

    def run(self, move: Move, finish: Finish) -> None:
        """Copies in the background until `finish` says that it is done. Once for each move; again after a failure."""
        if move.is_over or (move.task is not None and not move.task.done()):
            return
        move.failure = None
        move.task = self._clock.spawn(self._run(move, finish), name=f"move of {move.current.topic_partition}")

    async def _run(self, move: Move, finish: Finish) -> None:
        while not move.is_over:
            # Whoever waits for room leaves its slot to others: they may be what makes the room.
            if not move.is_waiting_for_room:
                async with self._slots:
                    try:
                        await self._copy(move)
                        if await self._finished(move, finish):
                            return
                    except KafkaError as error:
                        if move.current.is_failed or move.future.is_failed:
                            self._lose(move)
                        elif move.is_adrift:
                            await self.cancel(move.current.topic_partition)
                        elif error.code not in _RACES and not move.future.is_full:
                            move.failure = error
                            return
            await self._clock.sleep(_ROOM_S if move.future.is_full else _AGAIN_S)

    async def _finished(self, move: Move, finish: Finish) -> bool:
        move.is_finishing = True
        try:
            return await finish(move)
        finally:
            move.is_finishing = False

    async def _copy(self, move: Move, *, is_throttled: bool = True) -> None:
        """Until the copy holds all that is written. KafkaError when a log fails, or its records are damaged."""
        current, future = move.current, move.future
        unflushed = 0
        while not (move.is_over or move.is_adrift):
            if future.log_start_offset < current.log_start_offset:
                await future.start_at(current.log_start_offset)
            start, cut = future.assigned_offset, current.truncation_count
            if current.is_truncating:
                # What is read now may be cut off, and the truncation be over before the copy is ready to take it.
                await self._clock.sleep(_AGAIN_S)
                continue
            if start >= current.log_end_offset:
                break
            if is_throttled:
                await self._throttle.wait()
            data = await current.read_bytes(start, self._throttle.chunk_bytes(_CHUNK_BYTES))
            first = next((header.base_offset for _, header in batches(data)), start)
            if first < start == future.log_start_offset:
                # The log starts in the middle of a batch, which the copy takes whole before it starts there too.
                await future.truncate_fully_and_start_at(first)
                start = first
            if current.is_truncating or current.truncation_count != cut or future.assigned_offset != start or not data:
                await self._clock.sleep(_AGAIN_S)
                continue
            future.append_as_follower(memoryview(data))
            self._throttle.spend(len(data))
            self.on_copied(len(data))
            while future.log_end_offset < future.assigned_offset and not (future.is_failed or future.is_full):
                move.progress.clear()
                await move.progress.wait()
            if future.is_full:
                raise future.storage_error()
            future.maybe_advance_high_watermark(current.high_watermark)
            unflushed += len(data)
            if unflushed >= _FLUSH_BYTES:
                unflushed = 0
                await self._keeper.guarded(future.disk, future.flush())
        if current.is_failed or future.is_failed or move.is_adrift:
            raise (current if current.is_failed else future).storage_error()

    # -- the swap -----------------------------------------------------------------------------------------------

    async def swap(self, move: Move, take_over: Callable[[Log], None]) -> bool:
        """Copies what is left and has the copy take the log's place as soon as both are level; `take_over` is called
        with it in that turn of the loop. False when the move is over, a log fails or the copy's directory is full.
        Nothing is harmed when this is cancelled; it ends only if the appends pause for a moment."""
        current, future = move.current, move.future
        try:
            while not (move.is_over or future.is_full):
                await self._copy(move, is_throttled=False)
                if future.flushed_offset < current.flushed_offset:
                    await self._keeper.guarded(future.disk, future.flush())
                async with current.lock, future.lock:
                    if not move.is_over and not move.is_adrift and _are_level(current, future):
                        self._exchange(move)
                        take_over(future)
                        return True
                await self._clock.sleep(0.001)
        except KafkaError:
            pass  # `_run` meets it again
        return False

    def _exchange(self, move: Move) -> None:
        """In one turn; both locks are held."""
        old, new = move.current, move.future
        partition = old.topic_partition
        move.is_over = True
        new.configure(old.config)
        new.state.high_watermark = max(new.high_watermark, old.high_watermark)
        # A crash may still bring the old directory back, with no more than this.
        new.state.flushed_offset = min(new.flushed_offset, old.flushed_offset)
        # What no record of the copy tells: epochs without records, producers whose records are deleted.
        new.state.epochs = LeaderEpochs(old.epochs.entries)
        new.epochs.truncate_from_start(new.log_start_offset)
        new.epochs.is_dirty = True
        new.state.producers = old.producers
        new.producers.end_offset = new.assigned_offset
        renamed = new.rename_directory(str(partition))
        snapshot = f"{new.directory}/{offset_name(new.assigned_offset, SNAPSHOT)}"
        written = [new.disk.write_file(snapshot, new.producers.encode())]
        if old.topic_id is not None and new.topic_id != old.topic_id:
            new.state.topic_id = old.topic_id
            metadata = encode_partition_metadata(old.topic_id)
            written.append(new.disk.write_file(f"{new.directory}/{PARTITION_METADATA}", metadata))
        new.on_append = new.on_failure = None
        old.replace_with(new)
        del self._moves[partition]
        self._logs[partition] = new
        self._leaving[partition] = old
        self._concluding[partition] = self._clock.spawn(
            self._conclude(old, new, renamed, written), name=f"end of the move of {partition}"
        )

    async def _conclude(
        self, old: Log, new: Log, renamed: asyncio.Future[Any], written: Sequence[asyncio.Future[Any]]
    ) -> None:
        partition = old.topic_partition
        has_arrived = False
        try:
            await self._keeper.guarded(new.disk, _named(renamed))
            has_arrived = True
            await self._settle_in(new, written)
            if self.cleaning is not None:
                self.cleaning.has_moved(partition, old.disk, new.disk)
            self._leaving.pop(partition, None)
            await self._keeper.guarded(old.disk, self._put_away(old))
            await self._keeper.guarded(new.disk, _unmark(new))
            self._clock.call_later(old.config.file_delete_delay_ms / 1000, self._discard, old)
        except KafkaError:
            # Its directory is offline or full, which has been told. The marker stays: it tells the newer copy.
            await old.abandon()
            await asyncio.gather(*written, return_exceptions=True)
            is_the_older = has_arrived and not new.is_failed
            if old.directory == str(partition):
                suffix = DELETE_DIRECTORY if is_the_older else STRAY_DIRECTORY
                self._removal.left_behind(partition, old.disk, old.directory, suffix)
            if is_the_older:
                await self._outlive(old, new)
        finally:
            self._leaving.pop(partition, None)
            self._concluding.pop(partition, None)
            if self.cleaning is not None:
                self.cleaning.resume(partition)

    async def _settle_in(self, new: Log, written: Sequence[asyncio.Future[Any]]) -> None:
        try:
            await self._keeper.guarded(new.disk, _all(written))
        except KafkaError:
            if new.is_failed:
                raise
            # No room for the small files, which only save looking: no reason to leave the older copy where it is.

    async def _outlive(self, old: Log, new: Log) -> None:
        """The old copy still has its name, and its directory may be all that a later start finds."""
        try:
            await self._keeper.outlived(old.topic_partition, new.disk.path, old.disk.path)
        except KafkaError:
            return  # told; the marker is left to tell

    async def _put_away(self, old: Log) -> None:
        # Before the name is free: a new log of this name must not be read with the old one's positions.
        await self._keeper.forget_positions(old.disk)
        aside = set_aside_name(old.topic_partition, self._clock.uuid4().hex, DELETE_DIRECTORY)
        async with old.lock:
            name = old.directory
            try:
                await old.rename_directory(aside)
            except OSError:
                old.set_directory(name)
                raise

    def _discard(self, old: Log) -> None:
        self._clock.spawn(self._discarded(old), name=f"delete {old.directory}")

    async def _discarded(self, old: Log) -> None:
        await old.abandon()
        self._removal.unlink(old.disk, old.directory)


def marker_text(source: Log) -> bytes:
    """What the marker of a copy says to a person, and to `take_back`."""
    text = f"{source.topic_partition} moves here from {source.disk.path}\ncompacted to offset {source.clean_offset}\n"
    return text.encode()


def _clean_offset_in(marker: bytes) -> int:
    """To where the log was compacted when its copy was begun; 0 where the marker does not say."""
    found = re.search(rb"^compacted to offset (\d+)$", marker, re.MULTILINE)
    return int(found[1]) if found is not None else 0


async def _content(disk: Disk, name: str) -> bytes:
    """Empty when there is no such file, as in the copy of another program."""
    try:
        return await disk.read_file(name)
    except FileNotFoundError:
        return b""


def _are_level(current: Log, future: Log) -> bool:
    """Whether the copy can take the log's place now, with every promise kept."""
    end = current.assigned_offset
    return (
        current.log_end_offset == future.assigned_offset == future.log_end_offset == end
        and future.flushed_offset >= current.flushed_offset
        and future.log_start_offset >= current.log_start_offset
        and not (current.is_preparing or future.is_full)
        and not (current.is_truncating or future.is_truncating or current.is_failed or future.is_failed)
    )


async def _ends_alike(current: Log, future: Log) -> bool:
    """Whether the copy's last batch stands in the log too, byte for byte; an empty copy agrees with everything."""
    last = future.assigned_offset - 1
    if last < max(future.log_start_offset, current.log_start_offset):
        return True
    return await future.read_bytes(last, 1) == await current.read_bytes(last, 1)


async def _ended(task: asyncio.Task[Any] | None, *, by_force: bool) -> None:
    if task is not None:
        if by_force:
            task.cancel()
        await asyncio.wait([task])


async def _named(renamed: asyncio.Future[Any]) -> None:
    """A copy takes records under its new name already: without room for that name it is lost as with a failed disk."""
    try:
        await renamed
    except OSError as error:
        raise OSError(errno.EIO, f"a copy could not get its log's name: {error}") from error


async def _unmark(log: Log) -> None:
    await log.disk.delete(f"{log.directory}/{MOVE_MARKER}")
    await log.disk.fsync_directory(log.directory)


async def _all(calls: Sequence[Awaitable[Any]]) -> None:
    results = await asyncio.gather(*calls, return_exceptions=True)
    for result in results:
        if isinstance(result, BaseException):
            raise result


__all__ = ["Cleaning", "Finish", "Keeper", "Move", "Moves", "marker_text"]
