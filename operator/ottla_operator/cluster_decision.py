"""What a KafkaCluster needs now: the decisions of all concerns, put together into one.

CONCERNS has them in the order of what they need of each other. Each decides by itself, from the snapshot, from what it
observes beyond it, and from the decisions before it. When one raises, its condition becomes Unknown, it decides what
changes nothing, and the others go on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any, Final

from ottla_documents.schema.marks import Problem
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
from ottla_operator.api.conditions import Condition, condition_unknown
from ottla_operator.api.objects import CONFIG_MAP, STATEFUL_SET, Obj, name_of
from ottla_operator.cluster_status import cluster_status
from ottla_operator.concerns.brokers.brokers import BrokersDecision, decide_brokers
from ottla_operator.concerns.brokers.node_drains import decide_node_drains
from ottla_operator.concerns.brokers.services import decide_services
from ottla_operator.concerns.config.config import ConfigDecision, decide_config
from ottla_operator.concerns.config.observation import NO_CONFIG_WRITES, ConfigWrites
from ottla_operator.concerns.disks.disks import DisksDecision, brokers_not_to_stop, decide_disks
from ottla_operator.concerns.disks.observation import NO_DISK_OBSERVATION, DiskObservation
from ottla_operator.concerns.ensemble.observation import NO_ENSEMBLE_OBSERVATION, EnsembleObservation
from ottla_operator.concerns.ensemble.quorum_recovery import decide_quorum_recovery
from ottla_operator.concerns.ensemble.zookeeper import EnsembleDecision, decide_zookeeper
from ottla_operator.concerns.fleet.broker_removal import RemovalDecision, decide_removal, is_stopped
from ottla_operator.concerns.fleet.identity import Identities, decide_identities
from ottla_operator.concerns.rebalance.actions import MoveReplicas
from ottla_operator.concerns.rebalance.machine import RebalanceDecision
from ottla_operator.concerns.rebalance.observation import NO_REBALANCE_OBSERVATION, RebalanceObservation
from ottla_operator.concerns.rebalance.rebalance import Planner, decide_rebalance, window_text
from ottla_operator.concerns.rebalance.rebalance_status import Rebalance, from_status
from ottla_operator.concerns.roll.actions import ElectLeaders
from ottla_operator.concerns.roll.observation import NO_ROLL_OBSERVATION, RollObservation
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
from ottla_operator.facts.images import images_status
from ottla_operator.facts.maintenance import decide_maintenance
from ottla_operator.facts.repairs import adopted_config_maps, decide_repairs, foreign_members
from ottla_operator.facts.snapshot import NO_DECISION, ClusterAction, ConcernDecision, Deletion, Snapshot
from ottla_operator.rebalancer.planner import plan
from ottla_operator.template_problems import find_template_problems


@dataclass(frozen=True, slots=True)
class Observations:
    """What the concerns know beyond the snapshot, each its own."""

    ensemble: EnsembleObservation = NO_ENSEMBLE_OBSERVATION
    disks: DiskObservation = NO_DISK_OBSERVATION
    config: ConfigWrites = NO_CONFIG_WRITES
    features: Mapping[str, int] | None = None
    """The finalized levels by feature (KIP-584), asked for only while spec.version is too low."""
    roll: RollObservation = NO_ROLL_OBSERVATION
    rebalance: RebalanceObservation = NO_REBALANCE_OBSERVATION


NO_OBSERVATIONS = Observations()
NO_CONFIG = ConfigDecision(NO_DECISION, {})


@dataclass(frozen=True, slots=True)
class ClusterDecision:
    """What one reconciliation does, in this order: write `repairs` and `desired`, do the deletion, carry out the
    actions, write `status`. It never both reconfigures ZooKeeper and deletes.

    `errors`: the concerns that raised. A roll does nothing of a step before status holds that step.
    """

    desired: tuple[Obj, ...]
    delete: Deletion | None
    status: Obj
    requeue_after_s: float | None
    needs_secret: bool
    errors: tuple[str, ...] = ()
    actions: tuple[ClusterAction, ...] = ()
    repairs: tuple[Obj, ...] = ()
    """What of StatefulSets is put back, without their templates."""
    foreign: tuple[Obj, ...] = ()
    """The StatefulSets with the names of members that somebody else owns."""


@dataclass(slots=True)
class ClusterPass:
    """One pass over the concerns: what they decide from, the decision of each after its turn, and what it comes to."""

    snapshot: Snapshot
    observed: Observations
    make_plan: Planner

    problems: tuple[Problem, ...] = field(init=False)
    zookeeper: EnsembleDecision = field(init=False)
    identities: Identities = field(init=False)
    removal: RemovalDecision = field(init=False)
    disks: DisksDecision = field(init=False)
    node_drains: ConcernDecision = field(init=False)
    version: VersionDecision = field(init=False)
    config: ConfigDecision = field(init=False)
    services: ConcernDecision = field(init=False)
    brokers: BrokersDecision = field(init=False)
    recovery: ConcernDecision = field(init=False)
    removed: ConcernDecision = field(init=False)
    roll: RollPlan = field(init=False)
    raised: RaiseDecision = field(init=False)
    elections: ConcernDecision = field(init=False)
    rebalance: RebalanceDecision = field(init=False)
    repairs: tuple[Obj, ...] = field(init=False)

    conditions: list[Condition] = field(default_factory=list)
    desired: list[Obj] = field(default_factory=list)
    deletes: list[Deletion] = field(default_factory=list)
    requeues: list[float] = field(default_factory=list)
    actions: list[ClusterAction] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    incomplete: list[str] = field(default_factory=list)
    """The condition types of the concerns that could not say what should run."""

    def take(self, kind: str, decision: ConcernDecision) -> None:
        """Adds what a concern decides. Objects that are desired already are written once."""
        self.conditions += decision.conditions
        self.desired += [obj for obj in decision.desired if not decision.deletes_first or obj not in self.desired]
        if decision.delete is not None:
            self.deletes.insert(0 if decision.deletes_first else len(self.deletes), decision.delete)
        if decision.requeue_after_s is not None:
            self.requeues.append(decision.requeue_after_s)
        self.actions += decision.actions
        if decision.is_incomplete:
            self.incomplete.append(kind)

    def names_of(self, kind: str) -> set[str]:
        """The names of the desired objects of a kind."""
        return {name_of(obj) for obj in self.desired if obj["kind"] == kind}

    def is_rolling(self) -> bool:
        """Whether a roll is under way or recorded."""
        return self.roll.roll is not None or self.snapshot.status("roll") is not None

    def is_outside_of_rolls(self) -> bool:
        """Whether leaders are elected again without regard to a roll."""
        return (self.roll.roll is None or self.roll.roll.is_waiting) and not self.removal.stopping


@dataclass(frozen=True, slots=True)
class Concern:
    """One row of CONCERNS.

    Args:
        name: the field of `ClusterPass` that gets its decision.
        kind: the condition that becomes Unknown when it raises.
        otherwise: its decision when it raises.
        share: what its decision adds to the whole.
        then: the snapshot for the concerns after it.
    """

    name: str
    kind: str
    decide: Callable[[ClusterPass], Any]
    otherwise: Callable[[ClusterPass], Any]
    share: Callable[[Any], ConcernDecision] = attrgetter("decision")
    then: Callable[[ClusterPass], Snapshot] = attrgetter("snapshot")

    def take_part(self, run: ClusterPass) -> None:
        """Decides, and adds the decision to the pass."""
        try:
            found = self.decide(run)
        except Exception as error:  # a bug in one concern must not stop the others
            text = f"{type(error).__name__}: {error}"
            run.incomplete.append(self.kind)
            run.errors.append(f"{self.kind}: {text}")
            run.conditions.append(condition_unknown(self.kind, INTERNAL_ERROR, text))
            found = self.otherwise(run)
        setattr(run, self.name, found)
        run.take(self.kind, self.share(found))
        run.snapshot = self.then(run)


def _nothing(_: object) -> ConcernDecision:
    return NO_DECISION


def _itself(decision: ConcernDecision) -> ConcernDecision:
    return decision


def _with_problems(run: ClusterPass) -> Snapshot:
    return run.snapshot.with_problems(run.problems)


def _recorded_identities(run: ClusterPass) -> Identities:
    racks = {broker_id: rack for broker_id, rack in run.snapshot.broker_racks.items() if rack is not None}
    return Identities(racks, (), condition_unknown(BROKERS_READY, "DesiredStateUnknown", "see RacksReady"))


def _with_joining(run: ClusterPass) -> Snapshot:
    return run.snapshot.with_joining(run.identities.joining)


def _stopped(run: ClusterPass) -> RemovalDecision:
    return RemovalDecision(tuple(number for number in run.identities.surplus if is_stopped(run.snapshot, number)))


def _removal(run: ClusterPass) -> RemovalDecision:
    log_dirs = run.observed.disks.log_dirs
    return decide_removal(run.snapshot, run.identities.surplus, run.identities.racks, log_dirs)


def _with_version(run: ClusterPass) -> Snapshot:
    return run.snapshot.with_version(run.version.protocol)


def _condition_of(decision: VersionDecision | RaiseDecision) -> tuple[Condition, ...]:
    return () if decision.condition is None else (decision.condition,)


def _config(run: ClusterPass) -> ConfigDecision:
    if not run.version.protocol:  # it raised
        return NO_CONFIG
    return decide_config(run.snapshot, run.identities.racks, run.observed.config)


def _brokers(run: ClusterPass) -> BrokersDecision:
    return decide_brokers(run.snapshot, run.identities, run.removal, run.disks, run.config, run.zookeeper.can_serve)


def _removed(run: ClusterPass) -> ConcernDecision:
    return ConcernDecision(delete=run.removal.delete, requeue_after_s=run.removal.requeue_after_s)


def _recovery(run: ClusterPass) -> ConcernDecision:
    servers = run.zookeeper.stateful_sets
    found = decide_quorum_recovery(run.snapshot, servers, run.zookeeper.members, run.zookeeper.kept)
    return ConcernDecision((), tuple(servers[server] for server in found.apply), found.delete)


def _roll(run: ClusterPass) -> RollPlan:
    not_to_stop = {names.ZOOKEEPER: run.zookeeper.kept, names.BROKER: brokers_not_to_stop(run.disks)}
    return decide_roll(
        run.snapshot,
        run.zookeeper.stateful_sets,
        run.brokers,
        not_to_stop,
        run.removal.empty,
        run.incomplete,
        run.observed.roll,
        run.observed.ensemble,
    )


def _raised(run: ClusterPass) -> RaiseDecision:
    return decide_raise(
        run.snapshot,
        run.version,
        run.identities.racks,
        run.brokers,
        is_rolling=run.is_rolling(),
        failed=run.incomplete,
    )


def _elections(run: ClusterPass) -> ConcernDecision:
    if not run.is_outside_of_rolls():
        return NO_DECISION
    partitions, soon = decide_elections(
        run.snapshot, run.identities.racks, run.observed.roll, is_rolling=run.snapshot.is_rolling()
    )
    return ConcernDecision(requeue_after_s=soon, actions=(ElectLeaders(partitions),) if partitions else ())


def _rebalance(run: ClusterPass) -> RebalanceDecision:
    restarts = (run.roll.roll is not None and not run.roll.roll.is_waiting) or run.snapshot.is_rolling()
    return decide_rebalance(
        run.snapshot,
        run.identities,
        run.removal.stopping,
        run.observed.rebalance,
        is_rolling=restarts,
        make_plan=run.make_plan,
    )


def _recorded_rebalance(run: ClusterPass) -> RebalanceDecision:
    return RebalanceDecision(from_status(run.snapshot.status("rebalance")))


def _moves(decision: RebalanceDecision) -> ConcernDecision:
    actions = () if decision.requests is None else (MoveReplicas(decision.requests, decision.after),)
    return ConcernDecision(requeue_after_s=decision.requeue_after_s, actions=actions)


def _repairs(run: ClusterPass) -> tuple[Obj, ...]:
    running = {(names.ZOOKEEPER, server) for server in (*run.zookeeper.members, *run.zookeeper.stateful_sets)}
    running |= {(names.BROKER, number) for number in run.identities.racks if number not in run.removal.stopping}
    return tuple(decide_repairs(run.snapshot, running, run.names_of(STATEFUL_SET.kind)))


CONCERNS: Final = (
    Concern(
        "problems",
        BROKERS_READY,
        lambda run: find_template_problems(run.snapshot, run.observed.ensemble),
        lambda _: (),
        _nothing,
        _with_problems,
    ),
    Concern(
        "zookeeper",
        ZOOKEEPER_READY,
        lambda run: decide_zookeeper(run.snapshot, run.observed.ensemble),
        lambda _: EnsembleDecision(NO_DECISION, {}),
    ),
    Concern(
        "identities",
        RACKS_READY,
        lambda run: decide_identities(run.snapshot),
        _recorded_identities,
        lambda found: ConcernDecision(found.conditions),
        _with_joining,
    ),
    Concern(
        "removal",
        BROKERS_READY,
        _removal,
        _stopped,
        _nothing,
    ),
    Concern(
        "disks",
        DISKS_READY,
        lambda run: decide_disks(run.snapshot, run.identities, run.removal.released, run.observed.disks),
        lambda _: DisksDecision(NO_DECISION, {}, can_use=False),
    ),
    Concern(
        "node_drains",
        NODES_SCHEDULABLE,
        lambda run: ConcernDecision((decide_node_drains(run.snapshot, list(run.identities.racks)),)),
        _nothing,
        _itself,
    ),
    Concern(
        "version",
        CONFIG_VALID,
        lambda run: decide_version(run.snapshot, run.observed.features),
        lambda _: VersionDecision(""),
        lambda found: ConcernDecision(_condition_of(found)),
        _with_version,
    ),
    Concern("config", CONFIG_VALID, _config, lambda _: NO_CONFIG),
    Concern(
        "services",
        SERVICES_READY,
        lambda run: decide_services(run.snapshot, run.identities.racks),
        _nothing,
        _itself,
    ),
    Concern("brokers", BROKERS_READY, _brokers, lambda _: BrokersDecision(NO_DECISION, {}, {})),
    Concern("recovery", ZOOKEEPER_READY, _recovery, _nothing, _itself),
    Concern("removed", BROKERS_READY, _removed, _nothing, _itself),
    Concern("roll", ROLLED, _roll, lambda _: RollPlan(NO_DECISION, None)),
    Concern(
        "raised",
        ROLLED,
        _raised,
        lambda run: RaiseDecision(run.version.protocol),
        lambda found: ConcernDecision(_condition_of(found), requeue_after_s=found.requeue_after_s),
    ),
    Concern("elections", ROLLED, _elections, _nothing, _itself),
    Concern("rebalance", BROKERS_READY, _rebalance, _recorded_rebalance, _moves),
    Concern("repairs", BROKERS_READY, _repairs, lambda _: (), _nothing),
)
"""The concerns in the order in which each needs what others decide."""


def decide_cluster(
    snapshot: Snapshot, observed: Observations = NO_OBSERVATIONS, make_plan: Planner = plan
) -> ClusterDecision:
    """The decision for one snapshot and what the concerns know beyond it. The same input gives the same decision."""
    run = ClusterPass(snapshot, observed, make_plan)
    for concern in CONCERNS:
        concern.take_part(run)
    run.desired += adopted_config_maps(run.snapshot, run.names_of(CONFIG_MAP.kind))
    status = _status(run)
    if snapshot.cluster.paused:
        return ClusterDecision((), None, status, None, needs_secret=False, errors=tuple(run.errors))
    may_delete = run.deletes and not any(action.excludes_deletion for action in run.actions)
    members = (*run.zookeeper.stateful_sets.values(), *run.brokers.stateful_sets.values())
    return ClusterDecision(
        desired=tuple(run.desired),
        delete=run.deletes[0] if may_delete else None,
        status=status,
        requeue_after_s=min(run.requeues, default=None),
        needs_secret=run.zookeeper.needs_secret,
        errors=tuple(run.errors),
        actions=tuple(run.actions),
        repairs=run.repairs,
        foreign=tuple(foreign_members(run.snapshot, {name_of(one) for one in members})),
    )


def _status(run: ClusterPass) -> Obj:
    """The whole new status."""
    snapshot, roll, rebalance = run.snapshot, run.roll.roll, run.rebalance.rebalance
    members = (*run.zookeeper.stateful_sets.values(), *run.brokers.stateful_sets.values())
    contested = contested_fields(snapshot, [*run.desired, *run.repairs, *members])
    status = cluster_status(snapshot, run.conditions, run.identities, run.disks, run.brokers, roll, contested)
    status |= _maintenance_status(snapshot, roll, run.disks.waits, rebalance)
    if images := images_status(snapshot):
        status |= {"images": images}
    if run.version.protocol:
        status |= version_status(run.version, run.raised)
    if snapshot.cluster.paused:
        rebalance = from_status(snapshot.status("rebalance"))
    return status if rebalance is None else {**status, "rebalance": rebalance.to_status()}


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
