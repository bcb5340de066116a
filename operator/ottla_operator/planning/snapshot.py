"""What a pass knows: one consistent set of values about one cluster, taken before any decision.

`ConcernDecision` is what a concern answers with.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ottla_operator.api.conditions import Condition
from ottla_operator.api.fleet import BrokerReport, ClusterMetadata, DynamicValue, ServerReport
from ottla_operator.api.names import BROKER, BROKER_ID, REMOVED, SERVER_ID
from ottla_operator.api.objects import CLAIM, POD, STATEFUL_SET, Obj, ResourceKind, dig, is_owned_by, label
from ottla_operator.model.fields import Problem
from ottla_operator.model.kafka_cluster import KafkaCluster


@dataclass(frozen=True, slots=True)
class ContainerImages:
    """What pods run. `pull_policy` "" leaves it to Kubernetes."""

    broker: str
    zookeeper: str
    pull_policy: str = ""


@dataclass(frozen=True, slots=True)
class ContestedFields:
    """Paths of an object that writing does not change, as it was declared when its stamp was `stamp`."""

    stamp: str
    paths: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Everything a pass decides from.

    `objects` are those that carry the cluster's label, by kind and name. `nodes` is None without the right to read
    them, `kafka` None while no broker answers, `storage_classes` holds those named in the spec that were found.
    `servers` are answers of this very pass, asked only while it is not settled which servers hold data.
    """

    cluster: KafkaCluster
    problems: tuple[Problem, ...]
    resource: Obj
    objects: Mapping[str, Mapping[str, Obj]]
    images: ContainerImages
    now: str
    nodes: tuple[Obj, ...] | None = None
    storage_classes: Mapping[str, Obj] = field(default_factory=dict)
    reports: Mapping[int, BrokerReport] = field(default_factory=dict)
    servers: Mapping[int, ServerReport] = field(default_factory=dict)
    kafka: ClusterMetadata | None = None
    dynamic_values: Mapping[int, Sequence[DynamicValue]] | None = None
    """By broker, as each was asked last; None before anybody has answered."""
    creation_failures: Mapping[str, str] = field(default_factory=dict)
    """Why Kubernetes makes no pod of a StatefulSet, by its name: a quota, a limit range, a policy."""
    has_super_secret: bool = False
    overridden: Mapping[tuple[str, str], ContestedFields] = field(default_factory=dict)
    """By kind and name."""
    held: Mapping[int, tuple[str, ...]] = field(default_factory=dict)
    """The replicas in the log directories of brokers that are to leave, of those that answered."""
    refused_elections: frozenset[tuple[str, int]] = frozenset()
    """Partitions whose preferred leader the controller has refused of late."""

    def get(self, kind: ResourceKind, name: str) -> Obj | None:
        return self.objects.get(kind.kind, {}).get(name)

    def own(self, kind: ResourceKind, name: str) -> Obj | None:
        """The object if it exists and this very KafkaCluster owns it."""
        found = self.get(kind, name)
        return found if found is not None and is_owned_by(found, self.resource) else None

    def all(self, kind: ResourceKind) -> Iterator[Obj]:
        """In the order of their names."""
        objects = self.objects.get(kind.kind, {})
        return (objects[name] for name in sorted(objects))

    def problems_below(self, *fields: str) -> tuple[Problem, ...]:
        """The problems of these fields and of what is below them."""
        return tuple(
            problem
            for problem in self.problems
            if any(problem.path == field or problem.path.startswith((f"{field}.", f"{field}[")) for field in fields)
        )

    def broker_ids(self) -> dict[int, str | None]:
        """Every broker that has a StatefulSet or a claim, with its rack as they record it.

        Claims that an empty broker has left behind count for nobody (`removed_ids`).
        """
        found: dict[int, str | None] = {}
        for kind in (STATEFUL_SET, CLAIM):
            for obj in self.all(kind):
                number = label(obj, BROKER_ID)
                if label(obj, REMOVED) == "true":
                    continue
                if label(obj, "app.kubernetes.io/component") == BROKER and number is not None and number.isdecimal():
                    found[int(number)] = found.get(int(number)) or label(obj, "kafka.ottla.dev/rack")
        return dict(sorted(found.items()))

    def removed_ids(self) -> dict[int, str]:
        """Brokers that were removed and whose claims are kept, with their racks."""
        known = self.broker_ids()
        found: dict[int, str] = {}
        for claim in self.all(CLAIM):
            number, rack = label(claim, BROKER_ID), label(claim, "kafka.ottla.dev/rack")
            if label(claim, REMOVED) == "true" and number is not None and number.isdecimal() and rack is not None:
                found[int(number)] = rack
        return {number: rack for number, rack in sorted(found.items()) if number not in known}

    def zookeeper_ids(self) -> list[int]:
        """Every ZooKeeper server that has a StatefulSet or a claim."""
        numbers = [label(obj, SERVER_ID) for kind in (STATEFUL_SET, CLAIM) for obj in self.all(kind)]
        return sorted({int(number) for number in numbers if number is not None and number.isdecimal()})

    def pod(self, name: str) -> Obj | None:
        return self.get(POD, name)

    def why_no_pod(self, stateful_set: str) -> str:
        """In brackets behind what is said of a missing pod; "" where Kubernetes tells nothing."""
        message = self.creation_failures.get(stateful_set)
        return f" ({message})" if message else ""

    def rolling(self, role: str) -> tuple[int, ...]:
        """Who has its turn in the roll that status tells of. What that excuses is decided in `planning.progress`."""
        if self.status("roll", "role") != role:
            return ()
        return tuple(self.status("roll", "batch") or ())

    def status(self, *path: str | int) -> Any:
        return dig(self.resource, "status", *path)


@dataclass(frozen=True, slots=True)
class Deletion:
    """One destructive act. It is done only if an uncached read still shows this uid.

    `while_ready`: pods that have to be ready still, by another uncached read. An eviction may have been faster.
    `while_absent`: an object that must not exist. `empty_broker`: a broker that the fleet's metadata, asked once more,
    must neither list nor name in any partition.
    """

    kind: ResourceKind
    name: str
    uid: str
    reason: str
    while_ready: tuple[str, ...] = ()
    while_absent: tuple[ResourceKind, str] | None = None
    empty_broker: int | None = None


@dataclass(frozen=True, slots=True)
class ConcernDecision:
    """What one concern wants.

    `desired` are whole objects for a server-side apply; what is not named is left alone. `create` are written once
    and never compared (a Secret with random content). `requeue_after_s`: look again even when nothing changes.
    """

    conditions: tuple[Condition, ...] = ()
    desired: tuple[Obj, ...] = ()
    delete: Deletion | None = None
    requeue_after_s: float | None = None
