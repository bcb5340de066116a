"""What brokers and ZooKeeper servers report: Kafka's metadata, each broker's /status, each server's srvr.

Values only; `effects` reads them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PartitionReport:
    """One partition in Kafka's metadata. `min_in_sync`: min.insync.replicas of its topic; None when it is not known."""

    topic: str
    index: int
    leader: int
    replicas: tuple[int, ...]
    in_sync: tuple[int, ...]
    min_in_sync: int | None = None

    def __str__(self) -> str:
        return f"{self.topic}-{self.index}"


@dataclass(frozen=True, slots=True)
class ClusterMetadata:
    """Kafka's metadata, as one broker knew it. `controller`: the id of the active controller, -1 when there is none."""

    cluster_id: str
    controller: int
    brokers: tuple[int, ...]
    partitions: tuple[PartitionReport, ...]


SECRET = "[hidden]"
"""Stands for a value that brokers do not show."""
NO_ANSWER = "no answer: "
"""Begins the error of a request that a broker has not answered, which says nothing of what was asked for."""


@dataclass(frozen=True, slots=True)
class BrokerValue:
    """Where a running broker has the value of a key from (DescribeConfigs): the text in each place, None for none.

    `own`: the dynamic value of this broker. `of_all`: that of all brokers (the entity default). `file`: what the broker
    has read from its file when it started. The first of them is in effect (KIP-226).
    """

    own: str | None = None
    of_all: str | None = None
    file: str | None = None

    @property
    def is_dynamic(self) -> bool:
        return self.own is not None or self.of_all is not None

    @property
    def in_effect(self) -> str | None:
        return next((text for text in (self.own, self.of_all, self.file) if text is not None), None)


BrokerValues = Mapping[str, BrokerValue]
"""The values by key: every key that can change while the broker runs and that anything but its default sets."""

ConfigChanges = Mapping[int | None, Mapping[str, str | None]]
"""Dynamic values to set, or with None to remove, by broker (None: of all brokers) and key."""


@dataclass(frozen=True, slots=True)
class LogDirectoryReport:
    """`state`: online, full or offline, since `since_ms` of the broker's wall clock; 0 where that is not known.

    `free_bytes`: as the broker measured them last, -1 where it does not report them. `strays`: how many logs that are
    not assigned to the broker are there (`-stray`), which DescribeLogDirs does not have.
    """

    path: str
    state: str
    directory_id: str
    since_ms: int = 0
    free_bytes: int = -1
    strays: int = 0


@dataclass(frozen=True, slots=True)
class ReplicaInLogDir:
    """A replica in a log directory. `is_future`: it is on its way there (AlterReplicaLogDirs)."""

    topic: str
    index: int
    size_bytes: int = 0
    is_future: bool = False

    def __str__(self) -> str:
        return f"{self.topic}-{self.index}"


@dataclass(frozen=True, slots=True)
class LogDirContents:
    """One log directory as DescribeLogDirs shows it (KIP-827).

    `error`: the name of Kafka's error for an offline directory, "" for one that is online. `total_bytes`,
    `usable_bytes`: of its file system, -1 where the broker does not report them.
    """

    path: str
    replicas: tuple[ReplicaInLogDir, ...]
    total_bytes: int = -1
    usable_bytes: int = -1
    error: str = ""


@dataclass(frozen=True, slots=True)
class RecreationReport:
    """The replicas of failed log directories: how many wait, catch up, and have their only copy on a dead disk."""

    waiting: int = 0
    catching_up: int = 0
    lost: int = 0
    lost_partitions: tuple[str, ...] = ()
    """Some of the lost ones, by name."""


@dataclass(frozen=True, slots=True)
class BrokerReport:
    """A broker's /status. `pod_uid`: the pod that was asked.

    `session`: the state of its ZooKeeper session (connecting, connected, suspended or expired; "" from a release that
    does not report it), for `session_for_ms`, since `session_since_ms` of the broker's wall clock.
    """

    pod_uid: str
    cluster_id: str
    state: str
    log_dirs: tuple[LogDirectoryReport, ...]
    session: str = ""
    session_for_ms: int = 0
    session_since_ms: int = 0
    recreation: RecreationReport = RecreationReport()
    last_line: str = ""
    """The last problem that the broker has logged, else its last line, while it is not ready."""
    refused_stores: tuple[str, ...] = ()
    """Why what a store of keys and certificates holds now is not in force: a sentence for each, with key and file."""


@dataclass(frozen=True, slots=True)
class MembershipReport:
    """The ensemble's configuration, as its leader has committed it (/zookeeper/config).

    `servers`: by id, a server as the configuration writes it: host:peer port:election port:role;client address.
    """

    version: int
    servers: Mapping[int, str]


@dataclass(frozen=True, slots=True)
class Reconfiguration:
    """One incremental reconfiguration of an ensemble: a server that joins, or one that leaves.

    `joining`: server.ID=… as in ZooKeeper's dynamic configuration, "" for none. `leaving`: a server id. `version`: the
    configuration that it changes; ZooKeeper refuses it when another one is in effect.
    """

    version: int
    joining: str = ""
    leaving: int | None = None


@dataclass(frozen=True, slots=True)
class ServerReport:
    """A ZooKeeper server's answer to srvr. `mode`: "" while it serves no client, as without a quorum.

    A follower serves clients only once it has everything that the leader had when it joined. `pod_uid`: the pod that
    was asked.
    """

    pod_uid: str
    mode: str

    @property
    def is_serving(self) -> bool:
        return self.mode in ("leader", "follower", "standalone")
