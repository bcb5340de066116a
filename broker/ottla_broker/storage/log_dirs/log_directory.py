"""A log directory before its logs: its lock, whose it is (meta.properties), and how its last broker ended.

    inspect → (broker id and cluster id become known) → check → claim → load → mark_recovered

Formatting needs leave: a directory that should hold a broker's data and comes back empty, say because a host started
without its mount, must not give us empty logs. `ottla.log.dirs.format` names the directories that may be empty;
without the key all may, as with Apache Kafka.
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
    POWER_LOST,
    parse_partition_directory,
)


class LogDirectoryError(Exception):
    """The broker must not start on these directories; the message says which and why."""


@dataclass(frozen=True, slots=True)
class MetaProperties:
    """`meta.properties` as written in ZooKeeper mode (version 0). None where the file has no such line."""

    broker_id: int | None
    cluster_id: str | None
    directory_id: str | None


@dataclass(slots=True)
class LogDirectory:
    """What one directory says of itself. `meta` is None when it was never formatted."""

    disk: Disk
    meta: MetaProperties | None
    has_logs: bool
    """Whether there are partition directories."""
    was_clean: bool
    """The last broker ended in order."""
    previous_broker_epoch: int
    """From the clean-shutdown marker, -1 without (KIP-966)."""
    lost_power: bool
    """No clean end, and the kernel has started anew since: what was not flushed may be gone."""
    is_doubtful: bool = False
    """Power was lost, now or before an earlier start that has not come to its registration."""
    has_failed: bool = False
    """It was offline in this life of the broker: of what was not flushed anything may be gone, as with the power."""
    is_new: bool = False
    """It was empty, now or at an earlier start that has not come to its registration."""

    @property
    def path(self) -> str:
        return self.disk.path


async def inspect(disk: Disk) -> LogDirectory:
    """Makes the directory where it is absent, takes its lock and reads what it says.

    Raises LogDirectoryError when another process holds it or meta.properties is of a version to come, OSError when it
    cannot be read at all, or its meta.properties is damaged: nobody can tell whose it is, which concerns it alone.
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
        is_doubtful=lost_power or POWER_LOST in entries,
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
        raise _damaged(path, "neither broker.id nor cluster.id nor directory.id stands in it")
    return meta


def _damaged(path: str, why: str) -> OSError:
    return OSError(
        errno.EINVAL,
        f"meta.properties is damaged ({why}); put it back with the lines broker.id=…, cluster.id=… and version=0 as in "
        "the broker's other log directories, after a look at whose logs these are",
        path,
    )


def broker_id_of(directories: Sequence[LogDirectory]) -> int | None:
    """The broker id that the directories agree on, None when none is formatted. LogDirectoryError when they differ."""
    found = [(one.path, one.meta.broker_id) for one in directories if one.meta and one.meta.broker_id is not None]
    for path, broker_id in found[1:]:
        if broker_id != found[0][1]:
            raise LogDirectoryError(
                f"log directories of different brokers: {found[0][0]} belongs to broker {found[0][1]}, "
                f"{path} to broker {broker_id}"
            )
    return found[0][1] if found else None


def cluster_id_of(directories: Sequence[LogDirectory]) -> str | None:
    """The cluster id that the directories agree on, None when none names one. LogDirectoryError when they differ."""
    found = [(one.path, one.meta.cluster_id) for one in directories if one.meta and one.meta.cluster_id is not None]
    for path, cluster_id in found[1:]:
        if cluster_id != found[0][1]:
            raise LogDirectoryError(
                f"log directories of different clusters: {found[0][0]} belongs to cluster {found[0][1]}, "
                f"{path} to cluster {cluster_id}"
            )
    return found[0][1] if found else None


def lacks_leave(directories: Sequence[LogDirectory], may_format: Collection[str] | None) -> dict[str, str]:
    """The directories that are not formatted and must not be, each with the reason. Pure.

    `may_format`: the paths of `ottla.log.dirs.format`, None without the key (then all may be, as with Apache Kafka).
    """
    if may_format is None:
        return {}
    return {
        directory.path: f"log directory {directory.path} has no meta.properties, and ottla.log.dirs.format does not "
        "name it: it may be a mount that did not come back. It is not formatted without leave"
        for directory in directories
        if directory.meta is None and directory.path not in may_format
    }


def check(directories: Sequence[LogDirectory], broker_id: int, cluster_id: str) -> None:
    """Whether broker `broker_id` of cluster `cluster_id` may use these directories. Pure.

    Raises LogDirectoryError, with both ids where a directory belongs to somebody else.
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
    """After `check`: writes meta.properties where something is missing in it. Raises OSError."""
    old = directory.meta
    directory_id = old.directory_id if old is not None else None
    meta = MetaProperties(broker_id, cluster_id, directory_id or encode_uuid(clock.uuid4().bytes))
    if old is None:
        await directory.disk.write_file(NEW_DIRECTORY, b"")  # first: a start that is killed behind it has it again
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
    """Writes this boot's id: what a power loss may have taken has been looked for in every log. Raises OSError.

    Not before, so that a start that is killed in the middle of it still counts as the one after the power loss.
    """
    if directory.lost_power:
        await directory.disk.write_file(POWER_LOST, b"")
    await directory.disk.write_file(BOOT_ID, directory.disk.boot_id().encode())
