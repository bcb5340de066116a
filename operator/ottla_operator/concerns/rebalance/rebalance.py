"""The rebalance of a cluster: the fleet as the rebalancer reads it, and the next step of carrying its plan out.

Brokers to remove, and those whose every disk is to be emptied, are draining. Brokers that are not registered are
cordoned, and no batch begins while there are any, or while a roll runs: replicas that catch up and new ones would
compete. KafkaTopics give the number of replicas. Log directories that are emptied or cordoned get nothing;
`disk_drains` empties them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

from ottla_documents.kafka_topic import declared_topic
from ottla_operator.api import names
from ottla_operator.api.fleet import LogDirContents, PartitionReport, ReplicaInLogDir
from ottla_operator.api.objects import KAFKA_TOPIC, POD, Obj, dig, has_condition, is_terminating
from ottla_operator.concerns.disks.disk_drains import brokers_to_empty, cordoned_now, find_drains
from ottla_operator.concerns.fleet.identity import Identities
from ottla_operator.concerns.rebalance import machine
from ottla_operator.concerns.rebalance.observation import NO_REBALANCE_OBSERVATION, RebalanceObservation
from ottla_operator.concerns.rebalance.rebalance_status import from_status
from ottla_operator.concerns.topics.decisions import is_refused_here, topic_owner_of
from ottla_operator.facts.broker_claims import log_dir
from ottla_operator.facts.fleet_values import (
    FleetBroker,
    FleetPartition,
    FleetPlacement,
    FleetReplica,
    LogDir,
    PartitionId,
    PlacementRefusal,
    Plan,
    Policy,
    State,
)
from ottla_operator.facts.maintenance import decide_maintenance
from ottla_operator.facts.snapshot import POOL_FIELDS, Snapshot
from ottla_operator.rebalancer.planner import plan

AT_REST = Policy()
RUNNING = Policy(tolerance=0.05)
"""Tighter than what begins a rebalance: otherwise the next small difference would begin one again."""
NAMED = 5

Usage = Mapping[int, Sequence[LogDirContents]]
"""The log directories of each broker, and what is in them."""

Planner = Callable[[FleetPlacement, Policy], Plan]
"""`rebalancer.planner.plan`, or what remembers its last results: a fleet that has not changed needs no new plan."""


def decide_rebalance(
    snapshot: Snapshot,
    identities: Identities,
    stopping: Sequence[int],
    observation: RebalanceObservation = NO_REBALANCE_OBSERVATION,
    *,
    is_rolling: bool,
    make_plan: Planner = plan,
) -> machine.RebalanceDecision:
    """The next step of the rebalance under way, or the first of a new one."""
    recorded = from_status(snapshot.status("rebalance"))
    if snapshot.problems_below("spec.rebalance", *POOL_FIELDS):
        return machine.RebalanceDecision(recorded)
    spec = snapshot.cluster.rebalance
    if recorded is None and spec.mode == machine.OFF:
        return machine.RebalanceDecision(None)
    found = find_drains(snapshot, tuple(identities.racks))
    drains = {(one.broker_id, log_dir(one.disk)) for one in found}
    leaving = {*identities.surplus, *brokers_to_empty(snapshot, tuple(identities.racks), found)}
    usage = observation.log_dir_usage
    brokers = tuple(
        _broker(snapshot, number, rack, usage.get(number, ()), leaving, drains)
        for number, rack in identities.racks.items()
    )
    kafka = snapshot.kafka
    facts = machine.RebalanceFacts(
        mode=spec.mode,
        bytes_per_second=spec.bytes_per_second,
        most_per_batch=spec.most_partitions_per_batch,
        plan=lambda is_running: _plan(snapshot, brokers, observation, RUNNING if is_running else AT_REST, make_plan),
        under_way=None
        if kafka is None or observation.reassignments is None
        else {partition: adding for partition, (adding, _) in observation.reassignments.items()},
        replicas={} if kafka is None else {(one.topic, one.index): one.replicas for one in kafka.partitions},
        leaving=tuple(sorted(leaving)),
        brokers=() if kafka is None else kafka.brokers,
        members=tuple(identities.racks),
        blocker=_blocker(identities, snapshot, brokers, stopping, is_rolling=is_rolling),
        window=window_text(snapshot),
        now=snapshot.now,
        refused=observation.refused,
        stored_bytes={
            (number, replica.topic, replica.index): replica.size_bytes
            for number, _, replica in _replicas(usage)
            if not replica.is_future
        },
        moving=frozenset(
            (number, replica.topic, replica.index) for number, _, replica in _replicas(usage) if replica.is_future
        ),
    )
    return machine.decide(recorded, facts)


def window_text(snapshot: Snapshot) -> str:
    """What a rebalance waits for until a maintenance window opens; "" when it need not wait."""
    waits_for = decide_maintenance(snapshot).waits_for
    return f"waits for {waits_for}" if waits_for else ""


def _blocker(
    identities: Identities,
    snapshot: Snapshot,
    brokers: Sequence[FleetBroker],
    stopping: Sequence[int],
    *,
    is_rolling: bool,
) -> str:
    """Why no batch may begin; "" when one may. Ordered checks."""
    if is_rolling:
        return "waits for the end of the roll"
    if stopping:
        return f"waits until broker {stopping[0]} is removed"
    down = [str(broker.id) for broker in brokers if broker.state == "cordoned"]
    if down:
        return f"waits for broker {', '.join(down[:NAMED])}"
    if snapshot.cluster.brokers.replicas > len(brokers) - len(identities.surplus):
        return "waits for new brokers"
    return ""


def _broker(
    snapshot: Snapshot,
    number: int,
    rack: str,
    usage: Sequence[LogDirContents],
    leaving: Collection[int],
    drains: Collection[tuple[int, str]],
) -> FleetBroker:
    pod = snapshot.get(POD, names.pod_of(names.broker_name(snapshot.cluster.name, number)))
    state: State = "active"
    if number in leaving:
        state = "draining"
    elif not _is_up(snapshot, number, pod):
        state = "cordoned"
    closed = (cordoned_now(snapshot, number) or set()) | {path for broker, path in drains if broker == number}
    log_dirs = tuple(
        LogDir(one.path, one.total_bytes, one.usable_bytes, "cordoned" if one.error or one.path in closed else "active")
        for one in usage
    )
    return FleetBroker(number, rack, str(dig(pod, "spec", "nodeName") or ""), log_dirs, state)


def _is_up(snapshot: Snapshot, number: int, pod: Obj | None) -> bool:
    is_ready = pod is not None and has_condition(pod, "Ready") and not is_terminating(pod)
    return is_ready and snapshot.kafka is not None and number in snapshot.kafka.brokers


def _plan(
    snapshot: Snapshot,
    brokers: tuple[FleetBroker, ...],
    observation: RebalanceObservation,
    policy: Policy,
    make_plan: Planner,
) -> Plan:
    """The plan of the partitions that have a leader; the others cannot be reassigned."""
    if snapshot.kafka is None:
        return Plan()
    factors = _factors(snapshot)
    stored = _stored(observation.log_dir_usage)
    partitions: list[FleetPartition] = []
    without: list[PlacementRefusal] = []
    draining = {broker.id for broker in brokers if broker.state == "draining"}
    for report in snapshot.kafka.partitions:
        if report.leader < 0:
            if draining & set(report.replicas):
                without.append(PlacementRefusal(report.topic, report.index, "has no leader"))
            continue
        partitions.append(_partition(observation, report, factors.get(report.topic, 0), stored))
    found = make_plan(FleetPlacement(brokers, tuple(partitions)), policy)
    return Plan(found.reassignments, found.log_dir_moves, (*found.refusals, *without)) if without else found


def _partition(
    observation: RebalanceObservation,
    report: PartitionReport,
    factor: int,
    stored: Mapping[PartitionId, Mapping[int, FleetReplica]],
) -> FleetPartition:
    """A partition with the replicas that it will have once its reassignment is done."""
    identity = (report.topic, report.index)
    removing = (observation.reassignments or {}).get(identity, ((), ()))[1]
    by_broker = stored.get(identity, {})
    replicas = tuple(
        by_broker.get(number) or FleetReplica(number) for number in report.replicas if number not in removing
    )
    return FleetPartition(report.topic, report.index, replicas, factor, report.in_sync)


def _replicas(usage: Usage) -> Iterator[tuple[int, str, ReplicaInLogDir]]:
    """(broker, path of the log directory, replica) of everything that the brokers have reported."""
    for number, log_dirs in usage.items():
        for one in log_dirs:
            for replica in one.replicas:
                yield number, one.path, replica


def _stored(usage: Usage) -> dict[PartitionId, dict[int, FleetReplica]]:
    found: dict[PartitionId, dict[int, FleetReplica]] = {}
    for number, path, replica in _replicas(usage):
        if not replica.is_future:
            stored = FleetReplica(number, replica.size_bytes, path)
            found.setdefault((replica.topic, replica.index), {})[number] = stored
    return found


def _factors(snapshot: Snapshot) -> dict[str, int]:
    """The replicas that KafkaTopics declare, by topic."""
    documents: dict[str, list[Obj]] = {}
    for document in snapshot.all(KAFKA_TOPIC):
        if (topic := declared_topic(document)) and not is_refused_here(document):
            documents.setdefault(topic, []).append(document)
    found: dict[str, int] = {}
    for topic, named in documents.items():
        for document in named:
            replicas = dig(document, "spec", "replicas")
            is_served = dig(document, "status", "topicName") == topic and dig(document, "status", "topicId")
            if (
                is_served
                and isinstance(replicas, int)
                and replicas > 0
                and not is_terminating(document)
                and not topic_owner_of(document, named)
            ):
                found[topic] = replicas
    return found
