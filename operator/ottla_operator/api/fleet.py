"""What a running fleet says of itself: its metadata, each broker's /status, each ZooKeeper server's srvr.

Values only; `effects` asks.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PartitionReport:
    """One partition as the brokers' metadata has it."""

    topic: str
    index: int
    leader: int
    replicas: tuple[int, ...]
    in_sync: tuple[int, ...]

    def __str__(self) -> str:
        return f"{self.topic}-{self.index}"


@dataclass(frozen=True, slots=True)
class ClusterMetadata:
    """The fleet as its own metadata describes it. `controller` is -1 when there is none."""

    cluster_id: str
    controller: int
    brokers: tuple[int, ...]
    partitions: tuple[PartitionReport, ...]


@dataclass(frozen=True, slots=True)
class DynamicValue:
    """A broker configuration value that kafka-configs has set and that is in effect (KIP-226).

    `is_default`: it is the fleet's default and not the broker's own. `value` is None where it is kept secret.
    """

    key: str
    value: str | None
    is_default: bool


@dataclass(frozen=True, slots=True)
class LogDirectoryReport:
    path: str
    state: str
    directory_id: str


@dataclass(frozen=True, slots=True)
class BrokerReport:
    """What a broker's /status said. `pod_uid`: the pod that was asked.

    `session`: how its session with ZooKeeper stands (connecting, connected, suspended or expired; "" of a release that
    does not say), for `session_for_ms`, since `session_since_ms` of the broker's wall clock.
    """

    pod_uid: str
    cluster_id: str
    state: str
    log_dirs: tuple[LogDirectoryReport, ...]
    session: str = ""
    session_for_ms: int = 0
    session_since_ms: int = 0


@dataclass(frozen=True, slots=True)
class ServerReport:
    """What a ZooKeeper server answered to srvr. `mode` is "" while it serves nobody, so while it has no quorum.

    A follower serves only once it has everything that its leader had when it joined. `pod_uid`: the pod that was asked.
    """

    pod_uid: str
    mode: str

    @property
    def is_serving(self) -> bool:
        return self.mode in ("leader", "follower", "standalone")
