"""The input and output of decisions: `Snapshot`, all that is known about a cluster at one time, and `ConcernDecision`.

Every decision of one reconciliation gets the same snapshot, which is taken before the first of them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from ottla_documents.broker_pools import MAIN_POOL, BrokerPool, pools_of
from ottla_documents.disk_spec import DiskSpec
from ottla_documents.kafka_cluster import KafkaCluster
from ottla_documents.schema.marks import Problem
from ottla_operator.api.conditions import Condition
from ottla_operator.api.fleet import (
    BrokerReport,
    BrokerValues,
    ClusterMetadata,
)
from ottla_operator.api.names import BROKER, BROKER_ID, POOL, REMOVED, RETIRED, SERVER_ID, broker_name
from ottla_operator.api.objects import CLAIM, POD, STATEFUL_SET, Obj, ResourceKind, dig, label, lasting_label
from ottla_operator.api.ownership import is_ours


@dataclass(frozen=True, slots=True)
class ContainerImages:
    """The images that pods run. `pull_policy` "": the default of Kubernetes."""

    broker: str
    zookeeper: str
    pull_policy: str = ""


NO_IMAGES = ContainerImages("", "")


@dataclass(frozen=True, slots=True)
class ContestedFields:
    """Paths of an object that others change back at each write. `stamp`: that of the declaration that was written.

    `uid`: of that object. Another one of the same name, such as the next pod of a broker, nobody has changed yet.
    """

    uid: str
    stamp: str
    paths: tuple[str, ...]


POOL_FIELDS = ("spec.brokers.replicas", "spec.brokers.pools")
"""A problem of these fields hides which brokers there should be: none is added, removed or given a pool."""
_OF_A_POOL = re.compile(r"spec\.brokers\.pools\[\d+\]\.(disks|config|racks|resources|template)\b")


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What is known about one KafkaCluster.

    `objects`: those with the label of the cluster, by kind and name. `nodes`: None without the right to read them.
    `kafka`: None while no broker answers. `storage_classes`: those that spec or claims name and that exist.
    """

    cluster: KafkaCluster
    problems: tuple[Problem, ...]
    resource: Obj
    objects: Mapping[str, Mapping[str, Obj]]
    images: ContainerImages
    """The images that the pods of this cluster should run (`facts.images`)."""
    now: str
    offered_images: ContainerImages = NO_IMAGES
    """The images of this operator."""
    nodes: tuple[Obj, ...] | None = None
    storage_classes: Mapping[str, Obj] = field(default_factory=dict)
    reports: Mapping[int, BrokerReport] = field(default_factory=dict)
    kafka: ClusterMetadata | None = None
    broker_values: Mapping[int, BrokerValues] | None = None
    """What each broker answered last; None before any broker has answered."""
    creation_failures: Mapping[str, str] = field(default_factory=dict)
    """Why Kubernetes creates no pod of a StatefulSet, by its name: a quota, a limit range, a policy."""
    contested: Mapping[tuple[str, str], ContestedFields] = field(default_factory=dict)
    """The fields that others write too, by kind and name of the object."""
    volumes: Mapping[str, Obj] = field(default_factory=dict)
    """PersistentVolumes by name: those of pods that have no node, and all while a volume is looked for."""
    gone_for_s: Mapping[str, float] = field(default_factory=dict)
    """How long a volume has been out of reach in every snapshot that this process has taken, by claim uid."""
    joining: Mapping[int, str] = field(default_factory=dict)
    """The pools of brokers that this decision adds (`concerns.fleet.identity`)."""
    broker_claims: Mapping[str, Sequence[Obj]] = field(init=False, repr=False, compare=False)
    """The claims by the broker id in their label, retired ones and those of removed brokers too, in the order of their
    names."""
    broker_racks: Mapping[int, str | None] = field(init=False, repr=False, compare=False)
    """Every broker that has a StatefulSet or a claim, with its rack as they record it, in the order of the ids.

    Claims of removed brokers (`removed_ids`) and retired claims do not count.
    """
    pool_names: Mapping[int, str] = field(init=False, repr=False, compare=False)
    """The pool of each broker, also one that the document does not name."""
    pools: Mapping[int, BrokerPool] = field(init=False, repr=False, compare=False)
    """What the document declares of each broker; nothing of a broker whose pool it does not name: that one keeps all
    that it has, until it is empty and removed."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "broker_claims", self._claims_by_broker())
        object.__setattr__(self, "broker_racks", self._racks_by_broker())
        brokers = self.cluster.brokers
        recorded = self.recorded_pools() | dict(self.joining)
        if self.problems_below(*POOL_FIELDS):  # nobody joins another pool
            named = {pool.name: pool for pool in brokers.pools}
            found = {number: named[name] for number, name in recorded.items() if name in named}
        else:
            found = pools_of(brokers.pools, recorded, has_pools=brokers.has_pools)
        object.__setattr__(self, "pools", found)
        object.__setattr__(self, "pool_names", recorded | {number: pool.name for number, pool in found.items()})

    def with_problems(self, problems: Sequence[Problem]) -> Snapshot:
        """The snapshot with more problems of the document."""
        return replace(self, problems=(*self.problems, *problems)) if problems else self

    def with_joining(self, joining: Mapping[int, str]) -> Snapshot:
        """The snapshot with the pools of the brokers that are added."""
        return replace(self, joining=joining) if joining else self

    def with_version(self, version: str) -> Snapshot:
        """The snapshot with the version that brokers get, in place of the declared one."""
        return replace(self, cluster=replace(self.cluster, version=version))

    def get(self, kind: ResourceKind, name: str) -> Obj | None:
        return self.objects.get(kind.kind, {}).get(name)

    def own(self, kind: ResourceKind, name: str) -> Obj | None:
        """The object if it exists and this KafkaCluster owns it, or adopts it next."""
        found = self.get(kind, name)
        return found if found is not None and is_ours(found, self.resource) else None

    def all(self, kind: ResourceKind) -> Iterator[Obj]:
        """The objects of a kind, sorted by name."""
        objects = self.objects.get(kind.kind, {})
        return (objects[name] for name in sorted(objects))

    def problems_below(self, *fields: str) -> tuple[Problem, ...]:
        """The problems of these fields and of what is below them.

        The disks, config, racks, resources and template of a pool count as those of spec.brokers.
        """
        paths = [(problem, _OF_A_POOL.sub(r"spec.brokers.\1", problem.path)) for problem in self.problems]
        return tuple(
            problem
            for problem, path in paths
            if any(path == field or path.startswith((f"{field}.", f"{field}[")) for field in fields)
        )

    def disks_of(self, broker_id: int) -> tuple[DiskSpec, ...]:
        """The disks that the document declares of a broker."""
        pool = self.pools.get(broker_id)
        return () if pool is None else pool.disks

    def config_of(self, broker_id: int) -> Mapping[str, str]:
        """The broker keys that the document declares of a broker."""
        pool = self.pools.get(broker_id)
        return self.cluster.brokers.config if pool is None else pool.config

    def recorded_pools(self) -> dict[int, str]:
        """The pool of each broker as its claims record it, else its StatefulSet.

        Claims are written one by one, so two of a broker may differ for a moment: a pool that the document names wins.
        """
        found: dict[int, list[str]] = {}
        for claim in self.all(CLAIM):
            number, pool = label(claim, BROKER_ID), label(claim, POOL)
            if label(claim, REMOVED) == "true" or label(claim, RETIRED) is not None:
                continue
            if pool and number is not None and number.isdecimal():
                found.setdefault(int(number), []).append(pool)
        named = [*(pool.name for pool in self.cluster.brokers.pools), MAIN_POOL]
        recorded: dict[int, str] = {}
        for broker_id in self.broker_racks:
            stateful_set = self.get(STATEFUL_SET, broker_name(self.cluster.name, broker_id)) or {}
            pools = found.get(broker_id) or [lasting_label(stateful_set, POOL) or MAIN_POOL]
            recorded[broker_id] = next((name for name in named if name in pools), min(pools))
        return recorded

    def _claims_by_broker(self) -> dict[str, list[Obj]]:
        found: dict[str, list[Obj]] = {}
        for claim in self.all(CLAIM):
            number = label(claim, BROKER_ID)
            if number is not None:
                found.setdefault(number, []).append(claim)
        return found

    def _racks_by_broker(self) -> dict[int, str | None]:
        found: dict[int, str | None] = {}
        for kind in (STATEFUL_SET, CLAIM):
            for obj in self.all(kind):
                number = lasting_label(obj, BROKER_ID)
                if number is None or not number.isdecimal():
                    continue
                if lasting_label(obj, "app.kubernetes.io/component") != BROKER:
                    continue
                if label(obj, REMOVED) != "true" and label(obj, RETIRED) is None:
                    found[int(number)] = found.get(int(number)) or lasting_label(obj, "kafka.ottla.dev/rack")
        return dict(sorted(found.items()))

    def removed_ids(self) -> dict[int, str]:
        """Brokers that were removed and whose claims are kept, with their racks."""
        found: dict[int, str] = {}
        for claim in self.all(CLAIM):
            number, rack = label(claim, BROKER_ID), label(claim, "kafka.ottla.dev/rack")
            if label(claim, REMOVED) == "true" and number is not None and number.isdecimal() and rack is not None:
                found[int(number)] = rack
        return {number: rack for number, rack in sorted(found.items()) if number not in self.broker_racks}

    def zookeeper_ids(self) -> list[int]:
        """Every ZooKeeper server that has a StatefulSet or a claim. Claims of servers that have left do not count."""
        numbers = [
            lasting_label(obj, SERVER_ID)
            for kind in (STATEFUL_SET, CLAIM)
            for obj in self.all(kind)
            if label(obj, REMOVED) != "true"
        ]
        return sorted({int(number) for number in numbers if number is not None and number.isdecimal()})

    def pod(self, name: str) -> Obj | None:
        return self.get(POD, name)

    def creation_failure(self, stateful_set: str) -> str:
        """The error of creating the pod of a StatefulSet, in brackets; "" when Kubernetes reports none."""
        message = self.creation_failures.get(stateful_set)
        return f" ({message})" if message else ""

    def rolling(self, role: str) -> tuple[int, ...]:
        """The members that the roll in status restarts now. `facts.progress` decides what that excuses."""
        if self.status("roll", "role") != role:
            return ()
        return tuple(self.status("roll", "batch") or ())

    def is_rolling(self) -> bool:
        """Whether the roll in status restarts members. One that waits to begin, or to go on, is as no roll."""
        return self.status("roll") is not None and not (
            self.status("roll", "awaitingApproval") or self.status("roll", "waiting")
        )

    def status(self, *path: str | int) -> Any:
        return dig(self.resource, "status", *path)


@dataclass(frozen=True, slots=True)
class BatchProof:
    """What Kafka's metadata, read once more, has to allow: to do without `batch`, of which `stopping` serve now.

    `exposes`: those without which no partition may be lost to clients (`concerns.roll.batches.exposed`).
    """

    batch: tuple[int, ...]
    stopping: tuple[int, ...]
    exposes: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Deletion:
    """The deletion of one object. It is done only if an uncached read still shows this uid.

    `while_ready`: pods that an uncached read has to show as ready, since an eviction may have been faster.
    `while_unready`: pods that it must not show as ready, since the watch may be behind.
    `while_absent`: an object that must not exist. `empty_broker`: a broker that Kafka's metadata, read once more, must
    neither list nor name in any partition. `further`: names and uids of objects of this kind that the same act deletes,
    as far as they are still there. `proof`: read again right before the first of them.
    """

    kind: ResourceKind
    name: str
    uid: str
    reason: str
    while_ready: tuple[str, ...] = ()
    while_unready: tuple[str, ...] = ()
    while_absent: tuple[ResourceKind, str] | None = None
    empty_broker: int | None = None
    further: tuple[tuple[str, str], ...] = ()
    proof: BatchProof | None = None


class ClusterAction:
    """What a concern asks of ZooKeeper or Kafka, as a value; the executor in its `actions` module carries it out."""

    __slots__ = ()
    excludes_deletion: ClassVar[bool] = False
    """Nothing is deleted in the same pass."""


@dataclass(frozen=True, slots=True)
class ConcernDecision:
    """What one concern decides.

    `desired`: whole objects for a server-side apply; fields that they do not name are left alone. `requeue_after_s`:
    reconcile after this time even when nothing changes.
    """

    conditions: tuple[Condition, ...] = ()
    desired: tuple[Obj, ...] = ()
    delete: Deletion | None = None
    requeue_after_s: float | None = None
    actions: tuple[ClusterAction, ...] = ()
    is_incomplete: bool = False
    """Whether the decision cannot say what should run."""
    deletes_first: bool = False
    """Its deletion comes before those of the concerns before it."""


NO_DECISION = ConcernDecision()
