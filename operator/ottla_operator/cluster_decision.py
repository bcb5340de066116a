"""What a KafkaCluster needs now: the decisions of all concerns, put together into one.

Each concern decides by itself. When one raises, its condition becomes Unknown and the others go on. They run in the
order of what they need of each other: zookeeper, identities, broker removal, disks, config, services, brokers, quorum
recovery, roll, rebalance, status.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

from ottla_documents.fields import Problem
from ottla_operator.api import names
from ottla_operator.api.condition_reasons import (
    BROKERS_READY,
    CONFIG_VALID,
    DISKS_READY,
    INTERNAL_ERROR,
    NODES_SCHEDULABLE,
    RACKS_READY,
    ROLLED,
    SERVICES_READY,
    ZOOKEEPER_READY,
)
from ottla_operator.api.conditions import (
    Condition,
    condition_unknown,
)
from ottla_operator.api.fleet import Reconfiguration
from ottla_operator.api.objects import CONFIG_MAP, STATEFUL_SET, Obj, name_of
from ottla_operator.cluster_status import cluster_status
from ottla_operator.concerns.brokers.brokers import (
    BrokersDecision,
    decide_brokers,
)
from ottla_operator.concerns.brokers.node_drains import decide_node_drains
from ottla_operator.concerns.brokers.services import decide_services
from ottla_operator.concerns.config.config import ConfigDecision, decide_config
from ottla_operator.concerns.disks.disk_drains import NO_DRAINS, DrainDecision
from ottla_operator.concerns.disks.disks import DisksDecision, brokers_not_to_stop, decide_disks
from ottla_operator.concerns.ensemble.quorum_recovery import QuorumRecovery, decide_quorum_recovery
from ottla_operator.concerns.ensemble.zookeeper import EnsembleDecision, decide_zookeeper
from ottla_operator.concerns.ensemble.zookeeper_objects import POD_FIELDS
from ottla_operator.concerns.fleet.broker_removal import RemovalDecision, decide_removal, is_stopped
from ottla_operator.concerns.fleet.identity import Identities, decide_identities
from ottla_operator.concerns.rebalance.machine import MoveRequests, RebalanceDecision
from ottla_operator.concerns.rebalance.rebalance import Planner, decide_rebalance, window_text
from ottla_operator.concerns.rebalance.rebalance_status import Rebalance, from_status
from ottla_operator.concerns.roll.preferred_leaders import decide_elections
from ottla_operator.concerns.roll.rolls import RollPlan, decide_roll
from ottla_operator.concerns.roll.state import Roll
from ottla_operator.concerns.upgrades.versions import (
    RaiseDecision,
    VersionDecision,
    decide_raise,
    decide_version,
    version_status,
)
from ottla_operator.facts.difference import contested_fields
from ottla_operator.facts.fleet_values import PartitionId
from ottla_operator.facts.images import decide_images, images_status
from ottla_operator.facts.maintenance import decide_maintenance
from ottla_operator.facts.repairs import adopted_config_maps, decide_repairs, foreign_members
from ottla_operator.facts.snapshot import ConcernDecision, Deletion, LeaderMigration, Snapshot
from ottla_operator.rebalancer.planner import plan
from ottla_operator.template_problems import find_template_problems

_Result = TypeVar("_Result")


@dataclass(frozen=True, slots=True)
class ClusterDecision:
    """What one reconciliation does, in this order: write `repairs` and `desired`, reconfigure ZooKeeper, do the
    deletion, move leaderships, ask for elections, cordon log directories and move their replicas (`drains`), write
    `status`. It never both reconfigures and deletes.

    `elect`: the partitions to ask preferred leaders for. `move`: what a rebalance asks of Kafka; once the brokers have
    taken it, status is `status_after_move`. `errors`: the concerns that raised. A roll does nothing of a
    step before status holds that step.
    """

    desired: tuple[Obj, ...]
    delete: Deletion | None
    status: Obj
    requeue_after_s: float | None
    needs_secret: bool
    errors: tuple[str, ...] = ()
    elect: tuple[PartitionId, ...] = ()
    drains: DrainDecision = NO_DRAINS
    migration: LeaderMigration | None = None
    move: MoveRequests | None = None
    status_after_move: Obj = field(default_factory=dict)
    reconfiguration: Reconfiguration | None = None
    repairs: tuple[Obj, ...] = ()
    """What of StatefulSets is put back, without their templates."""
    foreign: tuple[Obj, ...] = ()
    """The StatefulSets with the names of members that somebody else owns."""


@dataclass(slots=True)
class _Concerns:
    """Collects what the concerns decide, and the errors of those that raise."""

    conditions: list[Condition] = field(default_factory=list)
    desired: list[Obj] = field(default_factory=list)
    deletes: list[Deletion] = field(default_factory=list)
    requeues: list[float] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    """The condition types of the concerns that could not say what should run."""

    def decide(self, kind: str, decide: Callable[[], _Result], otherwise: _Result) -> _Result:
        """The concern's decision; `otherwise`, and an Unknown condition with the error, when it raises."""
        try:
            return decide()
        except Exception as error:  # a bug in one concern must not stop the others
            self.failed.append(kind)
            self.errors.append(f"{kind}: {type(error).__name__}: {error}")
            self.conditions.append(condition_unknown(kind, INTERNAL_ERROR, f"{type(error).__name__}: {error}"))
            return otherwise

    def take(self, decision: ConcernDecision) -> None:
        self.conditions += decision.conditions
        self.desired += decision.desired
        if decision.delete is not None:
            self.deletes.append(decision.delete)
        if decision.requeue_after_s is not None:
            self.requeues.append(decision.requeue_after_s)

    def take_first(self, decision: ConcernDecision) -> None:
        """Takes a decision whose deletion comes first. Objects that are desired already are written once."""
        self.take(replace(decision, desired=tuple(obj for obj in decision.desired if obj not in self.desired)))
        if decision.delete is not None:
            self.deletes.insert(0, self.deletes.pop())


def decide_cluster(snapshot: Snapshot, make_plan: Planner = plan) -> ClusterDecision:
    """The decision for one snapshot. The same snapshot gives the same decision."""
    offered = snapshot.images
    snapshot = replace(snapshot, images=decide_images(snapshot))
    concerns = _Concerns()
    nothing: tuple[Problem, ...] = ()
    found = concerns.decide(BROKERS_READY, lambda: find_template_problems(snapshot), nothing)
    snapshot = replace(snapshot, problems=(*snapshot.problems, *found))
    zookeeper = concerns.decide(
        ZOOKEEPER_READY, lambda: decide_zookeeper(snapshot), EnsembleDecision(ConcernDecision(), {})
    )
    if snapshot.problems_below(*POD_FIELDS):
        concerns.failed.append(ZOOKEEPER_READY)
    concerns.take(zookeeper.decision)
    identities = concerns.decide(
        RACKS_READY,
        lambda: decide_identities(snapshot),
        Identities(
            _recorded_racks(snapshot), (), condition_unknown(BROKERS_READY, "DesiredStateUnknown", "see RacksReady")
        ),
    )
    concerns.conditions += identities.conditions
    snapshot = replace(snapshot, joining=identities.joining)
    removal = concerns.decide(
        BROKERS_READY,
        lambda: decide_removal(snapshot, identities.surplus, identities.racks),
        RemovalDecision(tuple(number for number in identities.surplus if is_stopped(snapshot, number))),
    )
    disks = concerns.decide(
        DISKS_READY,
        lambda: decide_disks(snapshot, identities, removal.released),
        DisksDecision(ConcernDecision(), {}, can_use=False),
    )
    concerns.take(disks.decision)
    drains = concerns.decide(
        NODES_SCHEDULABLE,
        lambda: ConcernDecision((decide_node_drains(snapshot, list(identities.racks)),)),
        ConcernDecision(),
    )
    concerns.take(drains)
    unknown = VersionDecision("")
    version = concerns.decide(CONFIG_VALID, lambda: decide_version(snapshot), unknown)
    snapshot = replace(snapshot, cluster=replace(snapshot.cluster, version=version.protocol))
    configs = concerns.decide(
        CONFIG_VALID,
        lambda: (
            ConfigDecision(ConcernDecision(), {}) if version is unknown else decide_config(snapshot, identities.racks)
        ),
        ConfigDecision(ConcernDecision(), {}),
    )
    if version.condition is not None:
        concerns.conditions.append(version.condition)
    concerns.take(configs.decision)
    services = concerns.decide(SERVICES_READY, lambda: decide_services(snapshot, identities.racks), ConcernDecision())
    concerns.take(services)
    brokers = concerns.decide(
        BROKERS_READY,
        lambda: decide_brokers(snapshot, identities, removal, disks, configs, zookeeper.can_serve),
        BrokersDecision(ConcernDecision(), {}, {}),
    )
    concerns.take(brokers.decision)
    recovery = concerns.decide(
        ZOOKEEPER_READY,
        lambda: decide_quorum_recovery(snapshot, zookeeper.stateful_sets, zookeeper.members, zookeeper.kept),
        QuorumRecovery(),
    )
    recovered = tuple(zookeeper.stateful_sets[server] for server in recovery.apply)
    concerns.take(ConcernDecision((), recovered, recovery.delete))
    concerns.take(ConcernDecision(delete=removal.delete, requeue_after_s=removal.requeue_after_s))
    not_to_stop = {names.ZOOKEEPER: zookeeper.kept, names.BROKER: brokers_not_to_stop(disks)}
    roll = concerns.decide(
        ROLLED,
        lambda: decide_roll(snapshot, zookeeper.stateful_sets, brokers, not_to_stop, removal.empty, concerns.failed),
        RollPlan(ConcernDecision(), None),
    )
    concerns.take_first(roll.decision)
    is_rolling = roll.roll is not None or snapshot.status("roll") is not None
    raised = concerns.decide(
        ROLLED,
        lambda: decide_raise(
            snapshot, version, identities.racks, brokers, is_rolling=is_rolling, failed=concerns.failed
        ),
        RaiseDecision(version.protocol),
    )
    concerns.take(
        ConcernDecision((raised.condition,) if raised.condition else (), requeue_after_s=raised.requeue_after_s)
    )
    elect = roll.elect
    if (roll.roll is None or roll.roll.is_waiting) and not removal.stopping:
        elect, soon = decide_elections(snapshot, identities.racks, is_rolling=snapshot.is_rolling())
        concerns.take(ConcernDecision(requeue_after_s=soon))
    restarts = (roll.roll is not None and not roll.roll.is_waiting) or snapshot.is_rolling()
    rebalance = concerns.decide(
        BROKERS_READY,
        lambda: decide_rebalance(snapshot, identities, removal.stopping, is_rolling=restarts, make_plan=make_plan),
        RebalanceDecision(from_status(snapshot.status("rebalance"))),
    )
    if rebalance.requeue_after_s is not None:
        concerns.requeues.append(rebalance.requeue_after_s)
    written = {name_of(obj) for obj in concerns.desired if obj["kind"] == STATEFUL_SET.kind}
    maps = {name_of(obj) for obj in concerns.desired if obj["kind"] == CONFIG_MAP.kind}
    concerns.desired += adopted_config_maps(snapshot, maps)
    running = {(names.ZOOKEEPER, server) for server in (*zookeeper.members, *zookeeper.stateful_sets)}
    running |= {(names.BROKER, number) for number in identities.racks if number not in removal.stopping}
    unrepaired: tuple[Obj, ...] = ()
    repairs = concerns.decide(BROKERS_READY, lambda: decide_repairs(snapshot, running, written), unrepaired)
    members = {name_of(one) for one in (*zookeeper.stateful_sets.values(), *brokers.stateful_sets.values())}
    declared = [*concerns.desired, *repairs, *zookeeper.stateful_sets.values(), *brokers.stateful_sets.values()]
    contested = contested_fields(snapshot, declared)
    status = cluster_status(snapshot, concerns.conditions, identities, disks, brokers, roll.roll, contested)
    status |= _maintenance_status(snapshot, roll.roll, disks.waits, rebalance.rebalance)
    if images := images_status(snapshot, snapshot.images, offered):
        status = {**status, "images": images}
    if version is not unknown:
        status |= version_status(version, raised)
    if snapshot.cluster.paused:
        status = _with_rebalance(status, from_status(snapshot.status("rebalance")))
        return ClusterDecision((), None, status, None, needs_secret=False, errors=tuple(concerns.errors))
    return ClusterDecision(
        desired=tuple(concerns.desired),
        delete=concerns.deletes[0] if concerns.deletes and zookeeper.reconfiguration is None else None,
        status=_with_rebalance(status, rebalance.rebalance),
        requeue_after_s=min(concerns.requeues, default=None),
        needs_secret=zookeeper.needs_secret,
        errors=tuple(concerns.errors),
        elect=elect,
        drains=disks.drains,
        migration=roll.migration,
        move=rebalance.requests,
        status_after_move=_with_rebalance(status, rebalance.after),
        reconfiguration=zookeeper.reconfiguration,
        repairs=repairs,
        foreign=tuple(foreign_members(snapshot, members)),
    )


def _maintenance_status(
    snapshot: Snapshot, roll: Roll | None, waiting: Sequence[str], rebalance: Rebalance | None
) -> Obj:
    """status.maintenance: what waits for a maintenance window, and when the next one opens. Absent while nothing does,
    so that windows that come and go write nothing."""
    found: list[str] = []
    maintenance = decide_maintenance(snapshot)
    if snapshot.cluster.paused or not maintenance.waits_for:
        return {}
    if roll is not None and roll.waiting is not None and roll.waiting.reason == "AwaitingWindow":
        found.append(f"roll of {roll.role} {', '.join(str(one.id) for one in roll.plan)}")
    found += waiting
    if rebalance is not None and rebalance.step == "Plan" and rebalance.reason == window_text(snapshot):
        found.append(f"rebalance of {rebalance.partitions_to_go} partitions")
    if not found:
        return {}
    opens = {"nextWindow": maintenance.opens} if maintenance.opens else {}
    return {"maintenance": {"waiting": found, **opens}}


def _with_rebalance(status: Obj, rebalance: Rebalance | None) -> Obj:
    return status if rebalance is None else {**status, "rebalance": rebalance.to_status()}


def _recorded_racks(snapshot: Snapshot) -> dict[int, str]:
    return {broker_id: rack for broker_id, rack in snapshot.broker_racks.items() if rack is not None}
