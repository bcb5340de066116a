"""The disks of a KafkaCluster: a PersistentVolumeClaim each, and what happens to a volume that has failed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Literal, TypeAlias

from ottla_documents.field_types import LABEL, LABEL_FORM, Quantity, StorageClassName
from ottla_documents.quantity import quantity
from ottla_documents.schema.marks import Items, OnlyRight, Text, WholeNumber

DISK_NAME_LENGTH = 12
HIGHEST_GENERATION = 99_999
OnFailure = Literal["Keep", "Replace"]
DiskState = Literal["Active", "Drain"]
DiskName: TypeAlias = Annotated[str, Text(LABEL, LABEL_FORM, most=DISK_NAME_LENGTH)]


@dataclass(frozen=True, slots=True)
class AutoGrow:
    """Grows the volume of a broker when it is full or, at the rate of the last day, will be within six hours, where its
    StorageClass has allowVolumeExpansion. A volume that has grown is not smaller than size again. Default: none, so
    that only the condition DiskSpace warns."""

    max: Quantity
    """The size up to which a volume grows, not less than size."""
    step: Quantity
    """By how much a volume grows at a time; the next step follows when the last one is done."""


@dataclass(frozen=True, slots=True)
class DiskSpec:
    """A log directory of every broker, or a volume of every ZooKeeper server."""

    name: DiskName
    """The name of the disk, part of the names of its claims and of its mount path. It cannot change."""
    size: Quantity = ""
    """The storage that the PersistentVolumeClaim requests, a quantity in bytes such as 100Gi. Required on Kubernetes.
    Volumes of brokers can grow where their StorageClass has allowVolumeExpansion; no volume can shrink."""
    storage_class_name: StorageClassName = ""
    """The StorageClass of the PersistentVolumeClaim. Default: the default class of the Kubernetes cluster. A change
    replaces the volumes of brokers one at a time: each is drained into the other disks of its broker and replaced; a
    broker with a single disk keeps it."""
    on_failure: OnFailure = "Keep"
    """What happens to a volume that has failed: its log directory is offline for five minutes, or the only node that
    has it is gone (its Node object is deleted, or has the taint node.kubernetes.io/out-of-service). Keep: it is
    reported, and a person repairs or replaces it. Replace: the broker gets an empty volume in its place, on a new
    claim, once no partition would lose its last copy and all replicas of other brokers are in sync; one broker at a
    time. The condition DisksReady shows what is under way or prevents it."""
    state: DiskState = "Active"
    """Active, or Drain: the replicas on this disk move to the other log directories of their broker, and no new one is
    placed there (cordoned.log.dirs, KIP-1066). Where a broker has no other one, its replicas move to other brokers
    (spec.rebalance). A drained disk can be removed. replica.alter.log.dirs.io.max.bytes.per.second in config limits the
    rate."""
    auto_grow: Annotated[AutoGrow | None, OnlyRight()] = None

    def problems(self) -> Iterator[tuple[str, str]]:
        if self.auto_grow and self.size and quantity(self.auto_grow.max) < quantity(self.size):
            yield "autoGrow.max", f"{self.auto_grow.max} is less than the size {self.size}"


@dataclass(frozen=True, slots=True)
class DiskOverride:
    """What holds for one disk of one broker."""

    name: DiskName
    """The name of the disk in spec.brokers.disks."""
    state: DiskState = "Active"
    """Active, or Drain: as spec.brokers.disks[].state, for this broker only."""
    generation: Annotated[int, WholeNumber(1, HIGHEST_GENERATION)] = 1
    """The lowest generation that the claim of the disk may have; it is the last part of the claim's name. A larger one
    than it has drains the disk and gives the broker an empty volume on a new claim."""
    accept_data_loss: bool = False
    """Destructive. Where the volume of the claim of the generation before has failed, the claim was deleted, or its
    node is gone, its partitions without another copy are given up, and the claim is replaced whatever onFailure says.
    status.lastCopies names them. Partitions with a copy that lags on another broker are not given up. Needs generation,
    so it counts for no later loss."""

    def problems(self) -> Iterator[tuple[str, str]]:
        if self.accept_data_loss and self.generation == 1:
            yield "acceptDataLoss", "needs generation: one more than that of the claim that is lost"


Disks: TypeAlias = Annotated[tuple[DiskSpec, ...], Items(least=1, most=32, key="name")]


@dataclass(frozen=True, slots=True)
class LogDiskDocument:
    """A volume of its own for the transaction logs of each server (dataLogDir). Default: none, so that they are on
    disk. Adding or removing it later is not supported."""

    name: Annotated[str, Text(most=DISK_NAME_LENGTH)] = ""
    """Has no effect; the claims of a server are named data and log."""
    size: Quantity = ""
    """The storage that the PersistentVolumeClaim requests, a quantity in bytes such as 100Gi. Required on
    Kubernetes. The volumes of ZooKeeper servers keep their size."""
    storage_class_name: StorageClassName = ""
    """The StorageClass of the PersistentVolumeClaim. Default: the default class of the Kubernetes cluster. The claims
    of ZooKeeper servers keep their class."""

    @property
    def disk(self) -> DiskSpec:
        return DiskSpec(self.name, self.size, self.storage_class_name)


@dataclass(frozen=True, slots=True)
class EnsembleDiskDocument:
    """The volume of each server for snapshots (dataDir), and for transaction logs too where logDisk is absent. Its size
    is required on Kubernetes. Changing its size is not supported."""

    name: Annotated[str, Text(most=DISK_NAME_LENGTH)] = ""
    """Has no effect; the claims of a server are named data and log."""
    size: Quantity = ""
    """The storage that the PersistentVolumeClaim requests, a quantity in bytes such as 100Gi. Required on
    Kubernetes. The volumes of ZooKeeper servers keep their size."""
    storage_class_name: StorageClassName = ""
    """The StorageClass of the PersistentVolumeClaim. Default: the default class of the Kubernetes cluster. The claims
    of ZooKeeper servers keep their class."""
    on_failure: OnFailure = "Keep"
    """What happens to the volumes of a server, logDisk included, when the only node that has them is gone (its Node
    object is deleted, or has the taint node.kubernetes.io/out-of-service). Keep: it is reported. Replace: while every
    other server serves, the claims are deleted, and the server gets new ones and copies the data of the others before
    it votes."""

    @property
    def disk(self) -> DiskSpec:
        return DiskSpec(self.name, self.size, self.storage_class_name, self.on_failure)
