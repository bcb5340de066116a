"""What a broker knows about its log directories as a whole: the directory.id of each, and its recreated replicas.

A replica is recreated when its directory fails while the broker runs. The failed directory may still hold an older log
of it, so the other directories must remember that the older log is stale, and a start must find it. They do so in the
replica registry: the file `ottla.directories` in every live directory of a broker that has several; the highest
revision counts.

Pure: values, their JSON, and the decisions of a start. Not here: the files (`registry_files.py`), renaming stale logs
(`stray_replicas.py`), and which replicas are recreated (`replication.local_replicas`).

Worked example: /d0 fails, t-0 is recreated on /d1, catches up, and /d0 is reopened.

    >>> t0 = TopicPartition("t", 0)
    >>> recreated = {t0: RecreatedReplica("/d1", is_catching_up=True, replaces=("/d0",))}
    >>> reconcile(recreated, {"/d1": [t0], "/d2": []}, ["/d0", "/d1", "/d2"])      # a start while /d0 is offline
    Reconciliation(stale=[], recreated={TopicPartition(topic='t', partition=0): RecreatedReplica(path='/d1', \
is_catching_up=True, replaces=('/d0',))})
    >>> reconcile(recreated, {"/d0": [t0], "/d1": []}, ["/d0", "/d1"])             # t-0 never got to /d1
    Reconciliation(stale=[], recreated={})
    >>> reconcile({t0: RecreatedReplica("/d1", False, ("/d0",))}, {"/d0": [t0], "/d1": [t0]}, ["/d0", "/d1"])
    Reconciliation(stale=[('/d0', TopicPartition(topic='t', partition=0))], recreated={})
    >>> reconcile({t0: RecreatedReplica(DELETED, False, ("/d0",))}, {"/d0": [t0], "/d1": []}, ["/d0", "/d1"])
    Reconciliation(stale=[('/d0', TopicPartition(topic='t', partition=0))], recreated={})
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from ottla_broker.records.ids import TopicPartition
from ottla_broker.storage.files.checkpoints import CheckpointError
from ottla_broker.storage.log_dirs.log_directory import LogDirectory

_VERSION = 1

DELETED = ""
"""The path of a replica that was recreated and then deleted."""


class RecreatedReplica(NamedTuple):
    """A replica that started empty while directories were offline that may hold an older log of it."""

    path: str
    """Its log directory, or DELETED."""
    is_catching_up: bool
    """It lacks records that are committed: it must not lead."""
    replaces: tuple[str, ...]
    """Directories that have been offline since: a log of the partition there is stale."""


@dataclass(slots=True)
class ReplicaRegistry:
    """The value. `ids`: directory.id by path.

    `revision` grows with every write. A start without some directory raises it to the time in milliseconds: then what
    that directory says when it is back is older, whatever was written there before.
    """

    revision: int = 0
    ids: dict[str, str] = field(default_factory=dict)
    recreated: dict[TopicPartition, RecreatedReplica] = field(default_factory=dict)


class Reconciliation(NamedTuple):
    """Stale logs, (directory, partition), and the recreated replicas to remember once these are renamed."""

    stale: list[tuple[str, TopicPartition]]
    recreated: dict[TopicPartition, RecreatedReplica]


def encode(registry: ReplicaRegistry) -> bytes:
    """
    >>> decode("x", encode(ReplicaRegistry(3, {"/d0": "abc"}))).ids
    {'/d0': 'abc'}
    """
    return json.dumps(
        {
            "version": _VERSION,
            "revision": registry.revision,
            "ids": registry.ids,
            "recreated": [
                {
                    "topic": partition.topic,
                    "partition": partition.partition,
                    "path": replica.path,
                    "catchingUp": replica.is_catching_up,
                    "replaces": list(replica.replaces),
                }
                for partition, replica in registry.recreated.items()
            ],
        },
        indent=0,
    ).encode()


def decode(name: str, data: bytes) -> ReplicaRegistry:
    """Raises CheckpointError with the name of the file."""
    try:
        raw = json.loads(data)
        if raw["version"] != _VERSION:
            raise CheckpointError(f"{name}: version {raw['version']} is not known, only {_VERSION}")
        return ReplicaRegistry(
            int(raw["revision"]),
            {str(path): str(directory_id) for path, directory_id in raw["ids"].items()},
            {
                TopicPartition(str(one["topic"]), int(one["partition"])): RecreatedReplica(
                    str(one["path"]), bool(one["catchingUp"]), tuple(map(str, one["replaces"]))
                )
                for one in raw["recreated"]
            },
        )
    except CheckpointError:
        raise
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise CheckpointError(f"{name}: {error!r}") from None


def find_replaced_directories(
    ids: Mapping[str, str], directories: Iterable[LogDirectory], may_format: Collection[str] | None
) -> dict[str, str]:
    """The directories with another directory.id than the one known for their path, each with the reason.

    `may_format`: the paths of `ottla.log.dirs.format`, at which any directory is accepted; None without the key: at
    every path.
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


def reconcile(
    recreated: Mapping[TopicPartition, RecreatedReplica],
    present: Mapping[str, Collection[TopicPartition]],
    configured: Sequence[str],
) -> Reconciliation:
    """Compares the registry with what a start finds.

    A recreated replica whose directory is live and does not hold it was never created: an older log is the newest there
    is. The same holds when its directory is no longer in log.dirs. Every log of a deleted replica is stale.

    Args:
        present: the partitions in every live directory.
        configured: the paths of log.dirs.
    """
    stale: list[tuple[str, TopicPartition]] = []
    left: dict[TopicPartition, RecreatedReplica] = {}
    for partition, replica in recreated.items():
        was_never_created = replica.path in present and partition not in present[replica.path]
        if replica.path != DELETED and (replica.path not in configured or was_never_created):
            continue
        stale += [(path, partition) for path in replica.replaces if partition in present.get(path, ())]
        replaces = tuple(path for path in replica.replaces if path in configured and path not in present)
        if replica.is_catching_up or replaces:
            left[partition] = replica._replace(replaces=replaces)
    return Reconciliation(stale, left)
