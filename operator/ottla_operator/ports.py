"""The ports of the operator: the Kubernetes API, Kafka, and the environment (clock, randomness, reports).

The adapters are in `effects`; tests have in-memory ones.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from ottla_operator.api.fleet import (
    BrokerReport,
    BrokerValues,
    ClusterMetadata,
    ConfigChanges,
    LogDirContents,
    MembershipReport,
    Reconfiguration,
    ServerReport,
)
from ottla_operator.api.objects import Obj, ResourceKind
from ottla_operator.api.pipeline_report import PipelineReport
from ottla_operator.api.rights import Right
from ottla_operator.api.topics import TopicChange, TopicDescription
from ottla_operator.facts.fleet_values import MoveRequests


class ApiError(Exception):
    """The API server refused a request or did not answer. `status`: the HTTP status, 0 without an answer."""

    def __init__(self, status: int, reason: str, message: str) -> None:
        super().__init__(f"{status} {reason}: {message}")
        self.status = status
        self.reason = reason
        self.message = message


@dataclass(frozen=True, slots=True)
class ListPage:
    """A part of a list. `version`: the resource version of the list. `rest`: what asks for the next part, or ""."""

    items: Sequence[Obj]
    version: str
    rest: str = ""


class KubernetesApi(Protocol):
    """The Kubernetes API. Reads are never cached. Every call raises ApiError."""

    async def get(self, kind: ResourceKind, namespace: str, name: str) -> Obj | None: ...

    async def list(self, kind: ResourceKind, namespace: str | None, selector: str, fields: str = "") -> Sequence[Obj]:
        """The objects of a namespace (None: of all) that match a label and a field selector; "" matches all."""
        ...

    async def list_page(self, kind: ResourceKind, namespace: str | None, selector: str, rest: str = "") -> ListPage:
        """A part of such a list: the first one, or the one that `rest` of the part before asks for."""
        ...

    async def create(self, obj: Obj) -> Obj:
        """Creates the object; 409 when the name exists."""
        ...

    async def is_valid(self, obj: Obj) -> bool:
        """Whether the API server would create the object if its name were free; a dry run, which writes nothing."""
        ...

    async def apply(self, obj: Obj) -> Obj:
        """Server-side apply with force. With metadata.uid only onto the object with that uid, else 409."""
        ...

    async def replace_status(self, obj: Obj) -> Obj:
        """Replaces the status subresource; 409 unless metadata.resourceVersion is current."""
        ...

    async def set_finalizers(
        self, obj: Obj, finalizers: Sequence[str], annotations: Mapping[str, str | None] | None = None
    ) -> Obj:
        """Replaces the finalizers; 409 unless metadata.resourceVersion of `obj` is current.

        Args:
            annotations: set in the same write; one whose value is None is removed.
        """
        ...

    async def replace(self, obj: Obj) -> Obj:
        """Replaces the object; 409 unless metadata.resourceVersion is current."""
        ...

    async def delete(self, kind: ResourceKind, namespace: str, name: str, uid: str) -> bool:
        """Deletes the object with this uid; False when it does not exist."""
        ...

    async def lacking_rights(self, namespace: str, wanted: Sequence[Right]) -> Sequence[Right]:
        """The wanted rights that the operator does not have in a namespace."""
        ...


class WatchApi(Protocol):
    """The watches of the Kubernetes API."""

    def watch(
        self, kind: ResourceKind, namespace: str | None, version: str, selector: str = ""
    ) -> AsyncGenerator[tuple[str, Obj]]:
        """What happens after a resource version: ADDED, MODIFIED, DELETED, or BOOKMARK with a version alone.

        Args:
            selector: a label selector; "" matches all.

        It ends when the API server ends it. Raises ApiError: 410 when the server no longer has that version.
        """
        ...


class KafkaUnavailable(Exception):
    """No broker answered."""


class KafkaAdmin(Protocol):
    """The Kafka client of one cluster. Every call raises KafkaUnavailable when no broker answers."""

    def ask_only(self, brokers: Collection[int]) -> None:
        """Asks only these brokers, from now on, what any broker can answer; all of them when there are none."""
        ...

    async def view(self) -> ClusterMetadata:
        """The metadata of all topics, as one broker knows it at one time."""
        ...

    async def min_in_sync(self, topics: Sequence[str]) -> Mapping[str, int]:
        """min.insync.replicas in effect of those topics that the broker can describe."""
        ...

    async def brokers(self) -> Sequence[int]:
        """The ids of the brokers that are registered."""
        ...

    async def finalized_features(self) -> Mapping[str, int]:
        """The finalized level of each feature (KIP-584)."""
        ...

    async def broker_values(self, broker_ids: Sequence[int]) -> Mapping[int, BrokerValues]:
        """Where each of these brokers that answers has its values from."""
        ...

    async def log_dirs(self, brokers: Sequence[int]) -> Mapping[int, Sequence[LogDirContents]]:
        """The log directories of each of these brokers that answers, and what is in them (DescribeLogDirs).

        Replicas of topics in deletion and future replicas are among it.
        """
        ...

    async def move_replicas(self, broker: int, targets: Mapping[tuple[str, int], str]) -> Mapping[tuple[str, int], str]:
        """Moves replicas to other log directories of a broker (AlterReplicaLogDirs, KIP-113).

        Returns the error of each replica that was refused.
        """
        ...

    async def alter_broker_configs(self, changes: ConfigChanges) -> Mapping[tuple[int | None, str], str]:
        """Sets and removes dynamic values (IncrementalAlterConfigs). Returns the error of each one that was refused."""
        ...

    async def set_broker_config(self, broker: int, key: str, value: str | None) -> str:
        """Sets a dynamic value of one broker; None deletes it. Returns the error with which it was refused, or ""."""
        ...

    async def reassignments(self) -> Mapping[tuple[str, int], tuple[tuple[int, ...], ...]]:
        """(adding, removing) of every reassignment under way, as the controller knows it."""
        ...

    async def move(self, requests: MoveRequests) -> Mapping[tuple[str, int], str]:
        """Sets or removes throttles, places replicas in directories, asks for reassignments or cancels them.

        Returns the error of each partition that was refused. Raises KafkaUnavailable also when a throttle is refused.
        """
        ...

    async def elect_leaders(self, partitions: Sequence[tuple[str, int]]) -> Mapping[tuple[str, int], str]:
        """Asks for preferred leader elections. Returns the error of each partition that the controller refused."""
        ...

    async def reorder(self, orders: Mapping[tuple[str, int], Sequence[int]]) -> Mapping[tuple[str, int], str]:
        """Gives partitions another order of the same replicas (AlterPartitionReassignments).

        Returns the error of each partition that was refused; one that is being reassigned is not asked for.
        """
        ...

    async def topics(self, names: Sequence[str]) -> Mapping[str, TopicDescription]:
        """The topics that exist, by name."""
        ...

    async def change(self, changes: Sequence[TopicChange]) -> Mapping[str, str]:
        """Makes the changes, one request for each kind of change. Returns the errors by topic."""
        ...

    async def close(self) -> None: ...


class Environment(Protocol):
    """What a reconciliation needs beside the two APIs."""

    def now(self) -> str:
        """The time now, UTC, as Kubernetes writes it."""
        ...

    def password(self) -> str:
        """A new random secret."""
        ...

    async def broker_report(self, pod: Obj) -> BrokerReport | None:
        """The /status of the broker in this pod; None when it does not answer."""
        ...

    async def pipeline_report(self, pod: Obj) -> PipelineReport | None:
        """The /status of the driver of a KafkaPipeline in this pod; None when it does not answer."""
        ...

    async def server_report(self, pod: Obj) -> ServerReport | None:
        """The answer to srvr of the ZooKeeper server in this pod; None when it does not answer."""
        ...

    async def membership(self, leader: Obj) -> MembershipReport | None:
        """The configuration of an ensemble, read from the leader in this pod, after all earlier reconfigurations.

        None when it does not answer.
        """
        ...

    async def accepts_super_user(self, pod: Obj, password: str) -> bool | None:
        """Whether this is the super user's password for the ZooKeeper server in this pod; None when it does not answer.

        False also when the server cannot say it: ZooKeeper before 3.7.
        """
        ...

    async def reconfigure(self, leader: Obj, password: str, change: Reconfiguration) -> str:
        """Reconfigures an ensemble as its super user. Returns why it was refused or did not end, "" when it is done."""
        ...

    def kafka(self, bootstrap: Sequence[str]) -> KafkaAdmin:
        """A client for brokers at host:port; it connects when it is first used."""
        ...
