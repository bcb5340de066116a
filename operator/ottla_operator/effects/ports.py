"""The ports of the operator. What stands behind them is the adapters' matter; tests put an in-memory one there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from ottla_operator.api.fleet import BrokerReport, ClusterMetadata, DynamicValue, ServerReport
from ottla_operator.api.objects import Obj, ResourceKind
from ottla_operator.topics.decisions import TopicChange, TopicDescription


class ApiError(Exception):
    """The API server refused or did not answer. `status` is the HTTP status, 0 without an answer."""

    def __init__(self, status: int, reason: str, message: str) -> None:
        super().__init__(f"{status} {reason}: {message}")
        self.status = status
        self.reason = reason
        self.message = message


class KubernetesApi(Protocol):
    """Reads are never cached. Everything raises ApiError."""

    async def get(self, kind: ResourceKind, namespace: str, name: str) -> Obj | None: ...

    async def list(self, kind: ResourceKind, namespace: str | None, selector: str, fields: str = "") -> Sequence[Obj]:
        """Objects of one namespace or of all that match a label and a field selector; "" matches everything."""
        ...

    async def create(self, obj: Obj) -> Obj:
        """409 when somebody has the name."""
        ...

    async def apply(self, obj: Obj) -> Obj:
        """Server-side apply that takes our fields over. With metadata.uid only onto that very object (409)."""
        ...

    async def replace_status(self, obj: Obj) -> Obj:
        """The whole status subresource; 409 unless metadata.resourceVersion is the server's."""
        ...

    async def set_finalizers(self, obj: Obj, finalizers: Sequence[str]) -> Obj:
        """409 when `obj` is no longer what the server has."""
        ...

    async def replace(self, obj: Obj) -> Obj:
        """409 unless metadata.resourceVersion is the server's."""
        ...

    async def delete(self, kind: ResourceKind, namespace: str, name: str, uid: str) -> bool:
        """Deletes that very object; False when it is gone or another one has its name."""
        ...


class KafkaUnavailable(Exception):
    """The fleet did not answer."""


class KafkaAdmin(Protocol):
    """The Kafka side of one cluster. Every call raises KafkaUnavailable when no broker answers."""

    async def view(self) -> ClusterMetadata:
        """Every partition of every topic: as large as the fleet. All of it is what one broker knew at one moment."""
        ...

    async def brokers(self) -> Sequence[int]:
        """The ids of the brokers that are registered."""
        ...

    async def dynamic_values(self, broker_ids: Sequence[int]) -> Mapping[int, Sequence[DynamicValue]]:
        """What is in effect on these brokers in place of what they were started with, by broker."""
        ...

    async def replicas_on(self, broker: int) -> Sequence[str]:
        """The replicas in the log directories of a broker, future ones too, as that broker itself tells."""
        ...

    async def elect_leaders(self, partitions: Sequence[tuple[str, int]]) -> Mapping[tuple[str, int], str]:
        """Asks for the preferred leaders of these partitions. Gives the error of each that the controller refused."""
        ...

    async def topics(self, names: Sequence[str]) -> Mapping[str, TopicDescription]:
        """The topics that exist among these."""
        ...

    async def change(self, changes: Sequence[TopicChange]) -> Mapping[str, str]:
        """Does them, one request per kind of change. Gives the error by topic for those refused."""
        ...

    async def close(self) -> None: ...


class Environment(Protocol):
    """What a pass needs of the world beside the two APIs."""

    def now(self) -> str:
        """UTC, as Kubernetes writes it."""
        ...

    def password(self) -> str:
        """A new random secret."""
        ...

    async def broker_report(self, pod: Obj) -> BrokerReport | None:
        """What the broker in this pod says at /status; None when it does not answer."""
        ...

    async def server_report(self, pod: Obj) -> ServerReport | None:
        """What the ZooKeeper server in this pod answers to srvr; None when it does not answer."""
        ...

    def kafka(self, bootstrap: Sequence[str]) -> KafkaAdmin:
        """A client of a fleet; it connects when first used."""
        ...
