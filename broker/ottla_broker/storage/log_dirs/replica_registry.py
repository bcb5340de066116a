"""What a broker knows of its log directories as a whole: the directory.id of each, and which replicas were made anew.

The record is the file `ottla.directories` in every live directory of a broker that has several; the one with the
highest revision counts. So the directories that work remember those that do not: which directory has to be at a path,
and that a copy found there later is no longer the replica. Pure, but for `DirectoryRecordFiles`, which reads and
writes. Not here: making replicas anew (`log_manager.py`), and why (`replication/recreation.py`).

Worked example: d0 fails, the replica t-0 is made anew on d1, catches up, and d0 comes back.

    >>> t0 = TopicPartition("t", 0)
    >>> remade = {t0: Remade("/d1", is_filling=True, replaces=("/d0",))}
    >>> settle(remade, {"/d1": [t0], "/d2": []}, ["/d0", "/d1", "/d2"])      # a start while /d0 is offline
    Settled(aside=[], remade={TopicPartition(topic='t', partition=0): Remade(home='/d1', is_filling=True, \
replaces=('/d0',))})
    >>> settle(remade, {"/d0": [t0], "/d1": []}, ["/d0", "/d1"])             # it ended before t-0 was on /d1
    Settled(aside=[], remade={})
    >>> settle({t0: Remade("/d1", False, ("/d0",))}, {"/d0": [t0], "/d1": [t0]}, ["/d0", "/d1"])
    Settled(aside=[('/d0', TopicPartition(topic='t', partition=0))], remade={})
    >>> settle({t0: Remade(NOWHERE, False, ("/d0",))}, {"/d0": [t0], "/d1": []}, ["/d0", "/d1"])     # deleted meanwhile
    Settled(aside=[('/d0', TopicPartition(topic='t', partition=0))], remade={})
"""

from __future__ import annotations

import asyncio
import errno
import json
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from ottla_broker.ports.disk import Disk
from ottla_broker.protocol.errors import ErrorCode, KafkaError
from ottla_broker.records.ids import TopicPartition
from ottla_broker.storage.files.checkpoints import CheckpointError
from ottla_broker.storage.files.names import DIRECTORY_RECORD
from ottla_broker.storage.log_dirs.log_directory import LogDirectory

_VERSION = 1

NOWHERE = ""
"""The home of a replica that was made anew and has been deleted since."""


class Remade(NamedTuple):
    """A replica that was made anew, empty, while directories were offline that may hold an older copy of it."""

    home: str
    """The directory it was made on, or NOWHERE."""
    is_filling: bool
    """It has not yet had everything that was committed: it must not lead."""
    replaces: tuple[str, ...]
    """Directories that have not been seen since: a copy there is older than this one."""


@dataclass(slots=True)
class DirectoryRecord:
    """`ids`: directory.id by path. `revision` grows with every write, and at a start without some directory to the time
    in milliseconds: what that one says when it is back is older, however much was written there before.
    """

    revision: int = 0
    ids: dict[str, str] = field(default_factory=dict)
    remade: dict[TopicPartition, Remade] = field(default_factory=dict)


class Settled(NamedTuple):
    """Copies to be set aside, (directory, partition), and what is still to be remembered when they are."""

    aside: list[tuple[str, TopicPartition]]
    remade: dict[TopicPartition, Remade]


def encode(record: DirectoryRecord) -> bytes:
    """
    >>> decode("x", encode(DirectoryRecord(3, {"/d0": "abc"}))).ids
    {'/d0': 'abc'}
    """
    return json.dumps(
        {
            "version": _VERSION,
            "revision": record.revision,
            "ids": record.ids,
            "remade": [
                {
                    "topic": partition.topic,
                    "partition": partition.partition,
                    "home": one.home,
                    "filling": one.is_filling,
                    "replaces": list(one.replaces),
                }
                for partition, one in record.remade.items()
            ],
        },
        indent=0,
    ).encode()


def decode(name: str, data: bytes) -> DirectoryRecord:
    """Raises CheckpointError with the file's name."""
    try:
        raw = json.loads(data)
        if raw["version"] != _VERSION:
            raise CheckpointError(f"{name}: version {raw['version']} is not known, only {_VERSION}")
        return DirectoryRecord(
            int(raw["revision"]),
            {str(path): str(directory_id) for path, directory_id in raw["ids"].items()},
            {
                TopicPartition(str(one["topic"]), int(one["partition"])): Remade(
                    str(one["home"]), bool(one["filling"]), tuple(map(str, one["replaces"]))
                )
                for one in raw["remade"]
            },
        )
    except CheckpointError:
        raise
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise CheckpointError(f"{name}: {error!r}") from None


def foreign(
    ids: Mapping[str, str], directories: Iterable[LogDirectory], may_format: Collection[str] | None
) -> dict[str, str]:
    """The directories that have another directory.id than the one that was at their path, each with the reason.

    `may_format`: the paths of `ottla.log.dirs.format`, at which anything may be; None without the key: any path.
    """
    found: dict[str, str] = {}
    for directory in directories:
        known = ids.get(directory.path)
        if may_format is None or directory.path in may_format or directory.meta is None:
            continue
        if known is not None and directory.meta.directory_id != known:
            found[directory.path] = (
                f"log directory {directory.path} has directory.id {directory.meta.directory_id}, the one that was "
                f"there had {known}: it is another one. If it is meant to be there, name it in ottla.log.dirs.format"
            )
    return found


def settle(
    remade: Mapping[TopicPartition, Remade],
    present: Mapping[str, Collection[TopicPartition]],
    configured: Sequence[str],
) -> Settled:
    """What a start makes of the record; `present` are the partitions of every directory that is live.

    A replica whose home works and does not have it was never made: an older copy is the newest there is. A home that is
    no longer in log.dirs is forgotten likewise. Of one that was deleted no copy counts.
    """
    aside: list[tuple[str, TopicPartition]] = []
    left: dict[TopicPartition, Remade] = {}
    for partition, one in remade.items():
        was_never_made = one.home in present and partition not in present[one.home]
        if one.home != NOWHERE and (one.home not in configured or was_never_made):
            continue
        aside += [(path, partition) for path in one.replaces if partition in present.get(path, ())]
        replaces = tuple(path for path in one.replaces if path in configured and path not in present)
        if one.is_filling or replaces:
            left[partition] = one._replace(replaces=replaces)
    return Settled(aside, left)


class DirectoryRecordFiles:
    """The record of one broker and its files.

    Args:
        paths: those of log.dirs. Of a single one there is nothing to tell others: no file is written.
        live: gives the Disks of the live directories.
        guarded: awaits a call on one of them; KafkaError when it fails.
    """

    def __init__(
        self,
        paths: Sequence[str],
        live: Callable[[], Sequence[Disk]],
        guarded: Callable[[Disk, Awaitable[object]], Awaitable[object]],
    ) -> None:
        self.record = DirectoryRecord()
        self.filling: dict[TopicPartition, None] = {}
        """Those of `record.remade` that are being filled."""
        self.unfilled: dict[str, list[TopicPartition]] = {}
        """By path, the replicas that the directory's own file calls unfinished and its own: nobody has ever counted on
        these. Nobody else may know of them, when the directory failed while they were being filled."""
        self.has_changed = False
        """Something was taken down that is not saved yet."""
        self.keep_elsewhere: Callable[[], Awaitable[None]] = _nowhere
        """Makes the record durable where no directory of this broker can take it along. KafkaError."""
        self._paths = paths
        self._live = live
        self._guarded = guarded
        self._lock = asyncio.Lock()
        self._asked = 0
        self._written = 0

    async def read(self, directory: LogDirectory) -> None:
        """Takes one directory's file in, if it is newer than what is known. Raises OSError, also for a damaged one."""
        disk = directory.disk
        found = await self.look(disk)
        if found is not None:
            self.unfilled[disk.path] = [
                partition for partition, one in found.remade.items() if one.is_filling and one.home == disk.path
            ]
            if found.revision > self.record.revision:
                self.record = found
                self.filling = {partition: None for partition, one in found.remade.items() if one.is_filling}

    async def look(self, disk: Disk) -> DirectoryRecord | None:
        """What one directory's file says, None without one. Raises OSError, EINVAL when it is damaged: which of the
        directory's logs were being filled is not known then, and the directory is not used."""
        if len(self._paths) == 1 or not await disk.exists(DIRECTORY_RECORD):
            return None
        try:
            return decode(f"{disk.path}/{DIRECTORY_RECORD}", await disk.read_file(DIRECTORY_RECORD))
        except CheckpointError as error:
            raise OSError(
                errno.EINVAL,
                f"damaged: {error}; delete the file when every log of the directory is complete, or has other replicas",
                f"{disk.path}/{DIRECTORY_RECORD}",
            ) from error

    def recall(self, found: DirectoryRecord) -> None:
        """Takes in, if it is newer than every directory's, what was kept elsewhere of the replicas made anew; not of
        the ids: whose directory is at a path is for the directories alone to tell."""
        if len(self._paths) > 1 and found.revision > self.record.revision:
            self.record.revision = found.revision
            self.record.remade = found.remade
            self.filling = {partition: None for partition, one in found.remade.items() if one.is_filling}
            self.has_changed = True

    def go_on_without_some(self, now_ms: int) -> None:
        """The broker starts with a directory offline; not saved yet. Behind `recall`, which the time would outdo."""
        self.record.revision = max(self.record.revision, now_ms)
        self.has_changed = True

    async def note(self, directory: LogDirectory) -> None:
        """Takes down whose directory is at the path; not saved yet."""
        directory_id = None if directory.meta is None else directory.meta.directory_id
        if directory_id is not None and self.record.ids.get(directory.path) != directory_id:
            self.record.ids[directory.path] = directory_id
            self.has_changed = True

    async def seen(self, directory: LogDirectory) -> None:
        """The directory is back and its older copies are set aside: saves that. KafkaError."""
        await self.note(directory)
        for partition, one in list(self.record.remade.items()):
            if directory.path in one.replaces:
                replaces = tuple(path for path in one.replaces if path != directory.path)
                self.take_down(partition, one._replace(replaces=replaces))
        await self.save_if_changed()

    def take_down(self, partition: TopicPartition, remade: Remade | None) -> None:
        """Not saved yet. What neither is being filled nor may have an older copy anywhere needs no remembering."""
        known = self.record.remade
        if remade is not None and not remade.is_filling and not remade.replaces:
            remade = None
        if known.get(partition) == remade:
            return
        self.has_changed = True
        if remade is None:
            del known[partition]
        else:
            known[partition] = remade
        if remade is not None and remade.is_filling:
            self.filling[partition] = None
        else:
            self.filling.pop(partition, None)

    async def save_if_changed(self) -> None:
        """See `save`; nothing happens when nothing was taken down since."""
        if self.has_changed:
            await self.save()

    async def save(self) -> None:
        """The record as it is now is durable in every live directory, a full one perhaps excepted, when this returns.

        Calls that come while a write is under way share the next one. KafkaError KAFKA_STORAGE_ERROR when no directory
        has taken it.
        """
        if len(self._paths) == 1:
            return
        self._asked += 1
        asked = self._asked
        async with self._lock:
            if self._written >= asked:
                return
            covered = self._asked
            self.has_changed = False
            self.record.revision += 1
            data = encode(self.record)
            results = await asyncio.gather(*[self._write(disk, data) for disk in self._live()])
            if not any(results):
                self.has_changed = True
                raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "no log directory takes the record of the directories")
            self._written = covered

    async def _write(self, disk: Disk, data: bytes) -> bool:
        try:
            await self._guarded(disk, disk.write_file(DIRECTORY_RECORD, data))
        except KafkaError:
            return False  # told by the manager: it is offline, or full
        return True


async def _nowhere() -> None:
    return
