"""A log directory before its logs are loaded: its lock, its owner (meta.properties), and how the last broker stopped.

    inspect → (broker id and cluster id become known) → check → claim → load logs → mark_recovered

A directory that should hold a broker's data and is empty, because a host started without its mount for instance, must
not give the broker empty logs. So only directories that `ottla.log.dirs.format` names may be formatted; without the
key every directory may, as with Apache Kafka.
"""

from __future__ import annotations

import errno
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from ottla_broker.ports.clock import Clock
from ottla_broker.ports.disk import Disk
from ottla_broker.storage.files.checkpoints import (
    decode_clean_shutdown,
    decode_properties,
    encode_properties,
    encode_uuid,
)
from ottla_broker.storage.files.names import (
    BOOT_ID,
    CLEAN_SHUTDOWN,
    META_PROPERTIES,
    NEW_DIRECTORY,
    POWER_LOSS_SUSPECTED,
    parse_partition_directory,
)


class LogDirectoryError(Exception):
    """The broker must not start on these directories; the message says which and why."""


@dataclass(slots=True)
class DirectoryOwner:
    """The broker that the log directories belong to; -1 and "" before it has claimed them."""

    broker_id: int = -1
    cluster_id: str = ""


@dataclass(frozen=True, slots=True)
class MetaProperties:
    """`meta.properties` as written in ZooKeeper mode (version 0). None where the file has no such line."""

    broker_id: int | None
    cluster_id: str | None
    directory_id: str | None


@dataclass(slots=True)
class LogDirectory:
    """What the files of one directory say about it. `meta` is None when it was never formatted."""

    disk: Disk
    meta: MetaProperties | None
    has_logs: bool
    """Whether there are partition directories."""
    was_clean: bool
    """The last broker on it shut down cleanly."""
    previous_broker_epoch: int
    """From the clean-shutdown file; -1 without one. Source: KIP-966."""
    lost_power: bool
    """No clean shutdown, and the kernel has booted since: what was not flushed may be gone."""
    is_power_loss_suspected: bool = False
    """Power was lost, before this start or before an earlier one that did not get to its registration."""
    has_failed: bool = False
    """It was offline in this incarnation of the broker: what was not flushed may be gone, as after a power loss."""
    has_failed_before: bool = False
    """The same in an earlier incarnation, whose replicas have not been compared with the others since."""
    is_new: bool = False
    """It was empty, at this start or at an earlier one that did not get to its registration."""

    @property
    def path(self) -> str:
        return self.disk.path


async def inspect(disk: Disk) -> LogDirectory:
    """Creates the directory if it is absent, takes its lock and reads its files.

    Raises:
        LogDirectoryError: another process holds the lock, or meta.properties has an unknown version.
        OSError: the directory cannot be read, or its meta.properties is damaged: its owner is unknown, which concerns
            this directory alone.
    """
    await disk.make_directory("")
    if not await disk.lock():
        raise LogDirectoryError(f"log directory {disk.path}: another process holds its .lock; is this broker running?")
    entries = {name: is_directory for name, is_directory, _ in await disk.list()}
    meta: MetaProperties | None = None
    if META_PROPERTIES in entries:
        meta = _parse_meta(disk.path, await disk.read_file(META_PROPERTIES))
    was_clean = CLEAN_SHUTDOWN in entries
    epoch = decode_clean_shutdown(await disk.read_file(CLEAN_SHUTDOWN)) if was_clean else -1
    boot = (await disk.read_file(BOOT_ID)).decode(errors="replace").strip() if BOOT_ID in entries else ""
    now = disk.boot_id()
    lost_power = not was_clean and bool(boot) and bool(now) and boot != now
    return LogDirectory(
        disk=disk,
        meta=meta,
        has_logs=any(is_directory and parse_partition_directory(name) for name, is_directory in entries.items()),
        was_clean=was_clean,
        previous_broker_epoch=epoch,
        lost_power=lost_power,
        is_power_loss_suspected=lost_power or POWER_LOSS_SUSPECTED in entries,
        is_new=meta is None or NEW_DIRECTORY in entries,
    )


def _parse_meta(path: str, data: bytes) -> MetaProperties:
    values = decode_properties(data)
    version = values.get("version", "0")
    if version not in ("0", "1"):
        raise LogDirectoryError(f"log directory {path}: meta.properties has version {version}, known are 0 and 1")
    broker_id = values.get("broker.id", values.get("node.id"))
    meta = MetaProperties(None, values.get("cluster.id"), values.get("directory.id"))
    try:
        meta = replace(meta, broker_id=None if broker_id is None else int(broker_id))
    except ValueError:
        raise _damaged(path, f"broker.id {broker_id!r} is no number") from None
    if meta == MetaProperties(None, None, None):
        raise _damaged(path, "it has neither broker.id nor cluster.id nor directory.id")
    return meta


def _damaged(path: str, why: str) -> OSError:
    return OSError(
        errno.EINVAL,
        f"meta.properties is damaged ({why}); put it back with the lines broker.id=…, cluster.id=… and version=0 as in "
        "the broker's other log directories, after a look at whose logs these are",
        path,
    )


def broker_id_of(directories: Sequence[LogDirectory]) -> int | None:
    """The broker id of the directories, None when none is formatted. Raises LogDirectoryError when they differ."""
    found = [(one.path, one.meta.broker_id) for one in directories if one.meta and one.meta.broker_id is not None]
    for path, broker_id in found[1:]:
        if broker_id != found[0][1]:
            raise LogDirectoryError(
                f"log directories of different brokers: {found[0][0]} belongs to broker {found[0][1]}, "
                f"{path} to broker {broker_id}"
            )
    return found[0][1] if found else None


def cluster_id_of(directories: Sequence[LogDirectory]) -> str | None:
    """The cluster id of the directories, None when none has one. Raises LogDirectoryError when they differ."""
    found = [(one.path, one.meta.cluster_id) for one in directories if one.meta and one.meta.cluster_id is not None]
    for path, cluster_id in found[1:]:
        if cluster_id != found[0][1]:
            raise LogDirectoryError(
                f"log directories of different clusters: {found[0][0]} belongs to cluster {found[0][1]}, "
                f"{path} to cluster {cluster_id}"
            )
    return found[0][1] if found else None


def without_format_permission(
    directories: Sequence[LogDirectory], may_format: Collection[str] | None
) -> dict[str, str]:
    """The directories that are not formatted and must not be, each with the reason. Pure.

    `may_format`: the paths of `ottla.log.dirs.format`; None without the key: every directory may be formatted.
    """
    if may_format is None:
        return {}
    return {
        directory.path: f"log directory {directory.path} has no meta.properties, and ottla.log.dirs.format does not "
        "name it: it may be a mount that did not come back. It is not formatted without permission"
        for directory in directories
        if directory.meta is None and directory.path not in may_format
    }


def check(directories: Sequence[LogDirectory], broker_id: int, cluster_id: str) -> None:
    """Checks that these directories belong to broker `broker_id` of cluster `cluster_id`, or to nobody. Pure.

    Raises LogDirectoryError with both ids when a directory belongs to another broker or cluster.
    """
    for directory in directories:
        meta = directory.meta
        if meta is None:
            continue
        if meta.cluster_id is not None and meta.cluster_id != cluster_id:
            raise LogDirectoryError(
                f"log directory {directory.path} belongs to cluster {meta.cluster_id}, this broker is in cluster "
                f"{cluster_id}: zookeeper.connect names the ensemble of another fleet, or one that has lost its data"
            )
        if meta.broker_id is not None and meta.broker_id != broker_id:
            raise LogDirectoryError(
                f"log directory {directory.path} belongs to broker {meta.broker_id}, this is broker {broker_id}"
            )
    ids: dict[str, str] = {}
    for directory in directories:
        name = directory.meta.directory_id if directory.meta else None
        if name is None:
            continue
        if name in ids:
            raise LogDirectoryError(
                f"log directories {ids[name]} and {directory.path} have one directory.id, {name}: one is a copy"
            )
        ids[name] = directory.path


async def claim(directory: LogDirectory, broker_id: int, cluster_id: str, clock: Clock) -> None:
    """Formats the directory: writes meta.properties if something is missing there. After `check`. Raises OSError."""
    old = directory.meta
    directory_id = old.directory_id if old is not None else None
    meta = MetaProperties(broker_id, cluster_id, directory_id or encode_uuid(clock.uuid4().bytes))
    if old is None:
        await directory.disk.write_file(NEW_DIRECTORY, b"")  # first: a start that is killed after it finds it again
    if meta != old:
        values = {
            "broker.id": str(broker_id),
            "cluster.id": cluster_id,
            "directory.id": meta.directory_id or "",
            "version": "0",
        }
        await directory.disk.write_file(META_PROPERTIES, encode_properties(values))
        directory.meta = meta


async def mark_recovered(directory: LogDirectory) -> None:
    """Writes the boot id of the kernel once every log of the directory is recovered. Raises OSError.

    Not earlier: a start that is killed during recovery must not hide the power loss from the next start.
    """
    if directory.lost_power:
        await directory.disk.write_file(POWER_LOSS_SUSPECTED, b"")
    await directory.disk.write_file(BOOT_ID, directory.disk.boot_id().encode())
