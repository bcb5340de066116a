"""status of a KafkaCluster: what the operator has observed, and what is under way."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from ottla_documents.schema.marks import Items, LongNumber, Names, Number, Numbers, Time
from ottla_documents.status.conditions_status import Conditions


@dataclass(frozen=True, slots=True)
class ImagesStatus:
    """The images that the cluster runs, by which an upgrade of the operator restarts nothing."""

    broker: str | None = None
    """The image that a broker was last ready with. Brokers get it while spec.image is absent and imageUpdatePolicy is
    Keep."""
    zookeeper: str | None = None
    """The same of the ZooKeeper servers."""
    broker_available: str | None = None
    """The operator's image for brokers, where it is another one and nothing in spec decides. To run it, write it into
    spec.image."""
    zookeeper_available: str | None = None
    """The same for ZooKeeper servers and spec.zookeeper.image."""


@dataclass(frozen=True, slots=True)
class DiskStatus:
    """A disk of a broker."""

    name: str
    """The name of the disk in spec.brokers.disks."""
    claim: str | None = None
    """The name of its PersistentVolumeClaim."""
    state: str | None = None
    """The state of the claim. New: the operator creates it. Pending, Bound and Lost: its phase; Lost also when it was
    deleted. Terminating: it is being deleted."""
    drain: str | None = None
    """Draining: its replicas are being moved away. Drained: it is empty, and nothing is placed there. Absent for a disk
    in use."""


@dataclass(frozen=True, slots=True)
class BrokerStatus:
    """One broker."""

    id: Number
    """The broker id (broker.id)."""
    pool: str | None = None
    """The pool of the broker (spec.brokers.pools), main in a cluster without pools."""
    rack: str | None = None
    """The rack of the broker (broker.rack). It never changes."""
    node: str | None = None
    """The node that its pod runs on. Absent while the pod is not scheduled."""
    ready: bool | None = None
    """Whether its pod is ready."""
    pending: Annotated[tuple[str, ...], Items()] | None = None
    """Why the broker has to be restarted. ConfigChanged: spec.brokers.config changed. ImageChanged: the image changed.
    ProtocolRaised: the second roll of an upgrade, for inter.broker.protocol.version (spec.version). TemplateChanged:
    something else of the pod template changed. PodOutdated: the pod is of an earlier revision, also after kubectl
    rollout restart. Empty when it has not to be."""
    dynamic_config: Annotated[tuple[str, ...], Items()] | None = None
    """The configuration keys with a dynamic value in effect on this broker, its own or that of all brokers: changes
    since its start, which its file has for the next one, unmanaged keys, and those of drains and throttles."""
    disks: Annotated[tuple[DiskStatus, ...], Items(key="name")] | None = None
    """The disks of the broker, in the order of spec.brokers.disks."""


@dataclass(frozen=True, slots=True)
class LastCopiesStatus:
    """The partitions that only failed volumes of one broker have."""

    broker: Number
    """The broker id."""
    count: Number | None = None
    """How many partitions only its failed volumes have, or those of other lost nodes."""
    partitions: Names | None = None
    """The first 100 of them."""
    accepted: bool | None = None
    """Whether spec accepts the loss for every failed volume of the broker."""


@dataclass(frozen=True, slots=True)
class NewLogDir:
    """The log directory of a new replica."""

    broker: Number | None = None
    """The broker."""
    path: str | None = None
    """Its log directory."""


@dataclass(frozen=True, slots=True)
class MovedPartition:
    """A partition that is being moved."""

    topic: str | None = None
    """The topic of the partition."""
    partition: Number | None = None
    """The index of the partition."""
    replicas: Numbers | None = None
    """The brokers that it gets, the preferred leader first."""
    before: Numbers | None = None
    """The brokers that it had."""
    size_bytes: LongNumber | None = None
    """The size of its largest replica."""
    bytes_to_go: LongNumber | None = None
    """The bytes that its new replicas still have to copy."""
    broker: Number | None = None
    """The broker whose replica moves to another log directory."""
    log_dir: str | None = None
    """The log directory that this replica moves to."""
    log_dirs: Annotated[tuple[NewLogDir, ...], Items(is_atomic=True)] | None = None
    """The log directories in which new replicas are created, where a broker has several."""


@dataclass(frozen=True, slots=True)
class Throttles:
    """The throttles that may be set. They are recorded before they are set, and until they are removed."""

    bytes_per_second: LongNumber | None = None
    """leader.replication.throttled.rate and follower.replication.throttled.rate."""
    brokers: Numbers | None = None
    """The brokers with these rates."""
    topics: Names | None = None
    """The topics with lists of throttled replicas."""


@dataclass(frozen=True, slots=True)
class RebalanceStatus:
    """The rebalance that is under way, or the plan of one (mode DryRun), or why partitions cannot be placed. Absent
    when there is nothing to move."""

    step: str | None = None
    """Plan: choose the next batch, or wait until one may begin. Move: set throttles and ask Kafka for the reassignments
    of batch. Wait: until they are done. Unthrottle: remove the throttles. DryRun: show the plan and move nothing."""
    since: Time | None = None
    """The time at which the step began."""
    started_at: Time | None = None
    """The time at which the rebalance began."""
    partitions_to_go: LongNumber | None = None
    """The partitions that still get other replicas, or another order of them."""
    bytes_to_go: LongNumber | None = None
    """The bytes that new replicas still have to copy."""
    bytes_moved: LongNumber | None = None
    """The bytes that new replicas have copied since startedAt."""
    bytes_per_second: LongNumber | None = None
    """bytesMoved by the seconds since startedAt."""
    seconds_to_go: LongNumber | None = None
    """An estimate, bytesToGo by bytesPerSecond."""
    reason: str | None = None
    """What it waits for, or which partitions cannot be placed and why."""
    plan: Names | None = None
    """In mode DryRun, the first 20 partitions of the plan with their replicas before and after."""
    batch: Annotated[tuple[MovedPartition, ...], Items(is_atomic=True)] | None = None
    """The partitions that are being moved. An operator that starts again goes on with them."""
    throttled: Throttles | None = None


@dataclass(frozen=True, slots=True)
class MaintenanceStatus:
    """What waits for one of spec.maintenanceWindows. Absent while nothing does."""

    waiting: Names | None = None
    """What waits, such as a roll, the rebalance, or a volume that is to be replaced."""
    next_window: Time | None = None
    """The time at which the next window opens. Absent when it is not known."""


@dataclass(frozen=True, slots=True)
class PlannedRestart:
    """A member that waits for its restart."""

    id: Number
    """The id of the broker or server."""
    batch: Number | None = None
    """Its batch, counted from the next one as 1. Absent while it may not be stopped, and for members that are not
    ready, which come first."""
    reasons: Names | None = None
    """Why it has to be restarted, as in status.brokers[].pending."""
    waits_for: str | None = None
    """Why it is not in the next batch. Absent when it is."""


@dataclass(frozen=True, slots=True)
class MovedLeadership:
    """A partition whose leadership is being moved."""

    topic: str
    """The name of the topic."""
    partition: Number
    """The index of the partition."""
    replicas: Numbers
    """Its replicas in their original order."""
    leader: Number
    """The broker that is to lead it."""


@dataclass(frozen=True, slots=True)
class DeletedPod:
    """A pod that is being deleted."""

    id: Number
    """The id of the broker or server."""
    uid: str
    """The uid of its pod."""


@dataclass(frozen=True, slots=True)
class RollWaiting:
    """Why no batch begins although one could. Absent while the roll does not wait."""

    reason: str | None = None
    """The reason of the condition Rolled, such as AwaitingWindow."""
    for_: str | None = None
    """What the roll waits for."""


@dataclass(frozen=True, slots=True)
class RollStatus:
    """The rolling restart that is under way. Absent when there is none."""

    id: str | None = None
    """The id of the roll, with the generation that it began with."""
    role: str | None = None
    """Whose pods are restarted, zookeeper or broker."""
    step: str | None = None
    """The step of the members in batch. PickNext: choose a batch. ApplyTemplate: write their StatefulSets. MoveLeaders:
    move what they lead to other brokers. DeletePod: delete their pods. WaitReady: wait until the new pods are ready.
    WaitInSync: wait until the brokers are in every ISR that they belong to. RestoreLeaders: elect them for the
    partitions that prefer them."""
    summary: str | None = None
    """The state of the roll in one line."""
    batch: Numbers | None = None
    """The ids of the members that are being restarted."""
    done: Numbers | None = None
    """The ids of the members that this roll has restarted."""
    batches_done: Number | None = None
    """The number of batches that this roll has restarted."""
    plan: Annotated[tuple[PlannedRestart, ...], Items(key="id")] | None = None
    """The members that wait for their restart when a batch is chosen, in the order of their batches. It is computed
    again before each batch."""
    blocked_by: Names | None = None
    """What the step waits for, at most five, the partitions that lack most replicas in sync first. Empty when it waits
    for nothing."""
    moving: Annotated[tuple[MovedLeadership, ...], Items(is_atomic=True)] | None = None
    """The partitions whose leadership the step MoveLeaders moves now. Their original orders of replicas are put back
    before the roll goes on, also by another operator."""
    pods: Annotated[tuple[DeletedPod, ...], Items(key="id")] | None = None
    """The pods that the step DeletePod deletes."""
    awaiting_approval: str | None = None
    """The value of the annotation kafka.ottla.dev/approve-roll that lets the roll go on (spec.rolling.approval). Absent
    while it waits for none."""
    waiting: RollWaiting | None = None
    started: Time | None = None
    """The time at which the roll began."""
    progressed: Time | None = None
    """The time at which the batch made progress last, since its pods were stopped."""
    behind: Number | None = None
    """The lowest number of partitions that members of the batch were out of sync in."""
    failed: bool | None = None
    """True once the batch has made no progress for spec.rolling.progressDeadlineSeconds; absent before."""
    estimate: Time | None = None
    """The time at which the roll ends at its pace so far, computed before each batch. Absent until the first batch is
    done."""
    since: Time | None = None
    """The time at which the step began."""


@dataclass(frozen=True, slots=True)
class KafkaClusterStatus:
    """The observed state of the cluster. The operator writes it."""

    observed_generation: LongNumber | None = None
    """The metadata.generation that this status was computed from."""
    cluster_id: str | None = None
    """The cluster id that the brokers report. Absent until a broker has answered."""
    bootstrap: str | None = None
    """The address, host:port, for bootstrap.servers of clients inside the Kubernetes cluster."""
    replicas: Number | None = None
    """The number of brokers that have a pod, ready or not; one that a roll restarts now counts."""
    ready_replicas: Number | None = None
    """The number of brokers whose pod is ready."""
    selector: str | None = None
    """The label selector of the pods of brokers, as text, for the scale subresource."""
    version: str | None = None
    """The release of Apache Kafka whose protocol every broker speaks (inter.broker.protocol.version). While it is being
    raised, the former one, until the last broker has been restarted."""
    inter_broker_protocol_version: str | None = None
    """The inter.broker.protocol.version that brokers get when they are restarted. It is recorded before any broker gets
    it, and follows spec.version once an upgrade has come so far."""
    images: ImagesStatus | None = None
    brokers: Annotated[tuple[BrokerStatus, ...], Items(key="id")] | None = None
    """Every broker that exists, by its id."""
    last_copies: Annotated[tuple[LastCopiesStatus, ...], Items(key="broker")] | None = None
    """What would be lost with volumes that have failed. Absent when nothing would be. They are kept until
    acceptDataLoss of the disks in spec.brokers.overrides gives the partitions up."""
    rebalance: RebalanceStatus | None = None
    maintenance: MaintenanceStatus | None = None
    roll: RollStatus | None = None
    conditions: Conditions | None = None
    """The conditions of the object. docs/reference/condition-reasons.md lists every type and reason."""
