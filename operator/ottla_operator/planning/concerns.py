"""One pass over a cluster: the concerns in order, what they want together, and the status that tells of it.

Each concern is decided by itself; when one raises, its condition says so and the others go on. The order only says
who knows what of whom: zookeeper, identities, disks, config, services, brokers, roll, status.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeVar

from ottla_operator.api import names
from ottla_operator.api.condition_reasons import (
    BROKERS_READY,
    CONFIG_VALID,
    DISKS_READY,
    INTERNAL_ERROR,
    NOT_NEEDED_FOR_READY,
    RACKS_READY,
    READY,
    ROLLED,
    SERVICES_READY,
    ZOOKEEPER_READY,
    reason_of_ready,
)
from ottla_operator.api.conditions import (
    Condition,
    condition_false,
    condition_true,
    condition_unknown,
    invalid_spec,
    merged,
)
from ottla_operator.api.objects import (
    POD,
    STATEFUL_SET,
    Obj,
    dig,
    has_condition,
    is_terminating,
    label,
    name_of,
    uid_of,
)
from ottla_operator.planning.broker_removal import RemovalDecision, decide_removal, is_stopped
from ottla_operator.planning.brokers import (
    BrokersDecision,
    decide_brokers,
    has_current_revision,
    pending_reasons,
    revisions_known,
    template_is_current,
)
from ottla_operator.planning.config import ConfigDecision, decide_config
from ottla_operator.planning.difference import overridden
from ottla_operator.planning.disks import DisksDecision, brokers_not_to_stop, decide_disks
from ottla_operator.planning.identity import Identities, decide_identities
from ottla_operator.planning.pods import trouble
from ottla_operator.planning.preferred_leaders import SOON_S, decide_elections, restores_leaders
from ottla_operator.planning.progress import PATIENCE_S
from ottla_operator.planning.quorum_recovery import QuorumRecovery, decide_quorum_recovery
from ottla_operator.planning.services import bootstrap_address, decide_services, selector_text
from ottla_operator.planning.snapshot import ConcernDecision, Deletion, Snapshot
from ottla_operator.planning.zookeeper import EnsembleDecision, decide_zookeeper, ensemble_size
from ottla_operator.roller import machine
from ottla_operator.roller.leader_elections import PartitionId

_Result = TypeVar("_Result")


@dataclass(frozen=True, slots=True)
class ClusterDecision:
    """What a pass wants.

    `desired` in the order to write; `delete` is the one destructive act; `status` the whole new status; `elect` the
    partitions whose preferred leaders to ask for. A roll that
    changed its step is written to status before anything of the next step is wanted.
    """

    desired: tuple[Obj, ...]
    delete: Deletion | None
    status: Obj
    requeue_after_s: float | None
    needs_secret: bool
    errors: tuple[str, ...] = ()
    elect: tuple[PartitionId, ...] = ()


@dataclass(slots=True)
class _Concerns:
    """Runs concerns, keeping what they say and the errors of those that raise."""

    conditions: list[Condition] = field(default_factory=list)
    desired: list[Obj] = field(default_factory=list)
    deletes: list[Deletion] = field(default_factory=list)
    wakes: list[float] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    """The conditions of the concerns that could not say what should run."""

    def decide(self, kind: str, decide: Callable[[], _Result], otherwise: _Result) -> _Result:
        """The concern's result, or `otherwise` with a condition that tells the error."""
        try:
            return decide()
        except Exception as error:  # a mistake of ours in one concern must not stop the others
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
            self.wakes.append(decision.requeue_after_s)


def decide_cluster(snapshot: Snapshot) -> ClusterDecision:
    """Everything that this snapshot asks for."""
    snapshot = _with_actual_ensemble(snapshot)
    concerns = _Concerns()
    zookeeper = concerns.decide(
        ZOOKEEPER_READY, lambda: decide_zookeeper(snapshot), EnsembleDecision(ConcernDecision(), {})
    )
    if snapshot.problems_below("spec.zookeeper.resources"):
        concerns.failed.append(ZOOKEEPER_READY)
    concerns.take(zookeeper.decision)
    zookeeper_ready = any(c.type == ZOOKEEPER_READY and c.status == "True" for c in concerns.conditions)
    identities = concerns.decide(
        RACKS_READY,
        lambda: decide_identities(snapshot),
        Identities(
            _recorded_racks(snapshot), (), condition_unknown(BROKERS_READY, "DesiredStateUnknown", "see RacksReady")
        ),
    )
    concerns.conditions += identities.conditions
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
    configs = concerns.decide(
        CONFIG_VALID, lambda: decide_config(snapshot, identities.racks), ConfigDecision(ConcernDecision(), {})
    )
    concerns.take(configs.decision)
    services = concerns.decide(SERVICES_READY, lambda: decide_services(snapshot, identities.racks), ConcernDecision())
    concerns.take(services)
    brokers = concerns.decide(
        BROKERS_READY,
        lambda: decide_brokers(snapshot, identities, removal, disks, configs, zookeeper_ready),
        BrokersDecision(ConcernDecision(), {}, {}),
    )
    concerns.take(brokers.decision)
    restart = concerns.decide(
        ZOOKEEPER_READY,
        lambda: decide_quorum_recovery(snapshot, zookeeper.stateful_sets, zookeeper.kept),
        QuorumRecovery(),
    )
    concerns.take(
        ConcernDecision((), tuple(zookeeper.stateful_sets[server] for server in restart.apply), restart.delete)
    )
    concerns.take(ConcernDecision(delete=removal.delete, requeue_after_s=removal.requeue_after_s))
    roll = concerns.decide(
        ROLLED, lambda: _decide_roll(snapshot, zookeeper, disks, brokers, concerns), machine.RollDecision(None)
    )
    elect = roll.elect
    if roll.roll is None and not removal.stopping:
        elect = decide_elections(snapshot, identities.racks, is_rolling=snapshot.status("roll") is not None)
    if elect:
        concerns.wakes.append(SOON_S)
    declared = [*concerns.desired, *zookeeper.stateful_sets.values(), *brokers.stateful_sets.values()]
    found = _one_of_each(concerns.conditions)
    status = _status(snapshot, found, identities, disks, brokers, roll.roll, overridden(snapshot, declared))
    if snapshot.cluster.paused:
        return ClusterDecision((), None, status, None, needs_secret=False, errors=tuple(concerns.errors))
    return ClusterDecision(
        desired=tuple(concerns.desired),
        delete=concerns.deletes[0] if concerns.deletes else None,
        status=status,
        requeue_after_s=min(concerns.wakes, default=None),
        needs_secret=zookeeper.needs_secret,
        errors=tuple(concerns.errors),
        elect=elect,
    )


def _one_of_each(found: list[Condition]) -> list[Condition]:
    """One condition of each type: a concern that raised has told so before the others speak for its type."""
    kept: dict[str, Condition] = {}
    for condition in found:
        before = kept.get(condition.type)
        if before is None or before.status == "True":
            kept[condition.type] = condition
    return list(kept.values())


def _with_actual_ensemble(snapshot: Snapshot) -> Snapshot:
    """The ensemble keeps its size, whatever the spec asks, until changing it is served; brokers connect to what is."""
    size = None if snapshot.cluster.zookeeper.connect else ensemble_size(snapshot)
    if size is None:
        return snapshot
    zookeeper = replace(snapshot.cluster.zookeeper, replicas=size)
    return replace(snapshot, cluster=replace(snapshot.cluster, zookeeper=zookeeper))


def _recorded_racks(snapshot: Snapshot) -> dict[int, str]:
    return {broker_id: rack for broker_id, rack in snapshot.broker_ids().items() if rack is not None}


def _members(snapshot: Snapshot, wanted: Mapping[int, Obj], kept: frozenset[int]) -> dict[int, machine.RollMember]:
    """`kept` wait with whatever they have pending: a volume would go with their pod."""
    members: dict[int, machine.RollMember] = {}
    for number, stateful_set in wanted.items():
        live = snapshot.own(STATEFUL_SET, name_of(stateful_set))
        if live is None:
            continue
        pod = snapshot.get(POD, names.pod_of(name_of(live)))
        members[number] = machine.RollMember(
            number,
            () if number in kept else pending_reasons(snapshot, live, stateful_set),
            template_is_current(snapshot, live, stateful_set) and revisions_known(live),
            None
            if pod is None
            else machine.MemberPod(
                uid=uid_of(pod),
                is_ready=has_condition(pod, "Ready"),
                is_current=has_current_revision(live, pod),
                is_scheduled=dig(pod, "spec", "nodeName") is not None,
                is_terminating=is_terminating(pod),
                is_running=_is_running(pod),
                trouble=trouble(pod),
            ),
        )
    return members


def _is_running(pod: Obj) -> bool:
    """Whether something may run in it: it is on a node, and that does not say that the container waits or has ended.

    Our container: one of somebody else beside it takes nothing away from a partition.
    """
    component = label(pod, "app.kubernetes.io/component")
    statuses = dig(pod, "status", "containerStatuses") or []
    containers = [one for one in statuses if one.get("name") == component] or statuses
    on_node = dig(pod, "spec", "nodeName") is not None
    return on_node and (not containers or any(dig(one, "state", "running") is not None for one in containers))


def _decide_roll(
    snapshot: Snapshot, zookeeper: EnsembleDecision, disks: DisksDecision, brokers: BrokersDecision, concerns: _Concerns
) -> machine.RollDecision:
    """ZooKeeper first, then brokers; one roll at a time. What it may write and delete goes to `concerns`."""
    recorded = machine.from_status(snapshot.status("roll"))
    decided = machine.RollDecision(None)
    kept = {names.ZOOKEEPER: zookeeper.kept, names.BROKER: brokers_not_to_stop(disks)}
    for role, wanted in ((names.ZOOKEEPER, zookeeper.stateful_sets), (names.BROKER, brokers.stateful_sets)):
        if recorded is not None and recorded.role != role:
            continue
        facts = machine.RollFacts(
            role=role,
            members=_members(snapshot, wanted, kept[role]),
            kafka=snapshot.kafka,
            has_partitions=role == names.BROKER,
            now=snapshot.now,
            roll_id=f"r{dig(snapshot.resource, 'metadata', 'generation') or 0}",
            restores_leaders=restores_leaders(snapshot),
            refused_elections=snapshot.refused_elections,
        )
        decided = machine.decide(recorded, facts)
        if decided.apply is not None and wanted[decided.apply] not in concerns.desired:
            concerns.desired.append(wanted[decided.apply])
        if decided.delete is not None and decided.delete[0] in kept[role] and decided.roll is not None:
            blocked = (f"a volume of {role} {decided.delete[0]} would go with its pod",)
            decided = replace(decided, roll=replace(decided.roll, blocked_by=blocked), delete=None)
        if decided.delete is not None:
            number, uid = decided.delete
            pod = names.pod_of(name_of(wanted[number]))
            others = tuple(
                names.pod_of(name_of(wanted[other.id]))
                for other in facts.members.values()
                if other.id != number and other.is_ready
            )
            reason = f"roll {facts.roll_id}: {role} {number}"
            concerns.deletes.insert(0, Deletion(POD, pod, uid, reason, while_ready=others))
        if decided.roll is not None or recorded is not None:
            break
    if decided.requeue_after_s is not None:
        concerns.wakes.append(decided.requeue_after_s)
    rolled = _rolled(snapshot, decided.roll, brokers, concerns.failed)
    concerns.conditions.append(replace(rolled, message=rolled.message + _why_no_pod(snapshot, decided.roll)))
    return decided


def _why_no_pod(snapshot: Snapshot, roll: machine.Roll | None) -> str:
    """Of who is being restarted by this roll."""
    if roll is None:
        return ""
    name_by_role = {names.BROKER: names.broker_name, names.ZOOKEEPER: names.zookeeper_name}
    found = (name_by_role[roll.role](snapshot.cluster.name, number) for number in roll.batch)
    return "".join(snapshot.why_no_pod(name) for name in found if snapshot.pod(names.pod_of(name)) is None)


def _rolled(snapshot: Snapshot, roll: machine.Roll | None, brokers: BrokersDecision, failed: list[str]) -> Condition:
    """Nobody waits for a turn also when it is not known what should run: that is no roll that has ended."""
    if roll is None:
        withheld = [f"see {kind}" for kind in failed] or list(brokers.withheld.values())
        if withheld:
            shown = "; ".join(withheld[: machine.BLOCKERS_SHOWN])
            return condition_false(ROLLED, "DesiredStateUnknown", f"what runs is kept as it is: {shown}")
        return condition_true(ROLLED)
    where = f"{roll.role} {', '.join(map(str, roll.batch))}: {roll.step}" if roll.batch else roll.step
    waits = f"; waits for: {'; '.join(roll.blocked_by)}" if roll.blocked_by else ""
    if machine.is_blocked(roll, snapshot.now, patience_s=PATIENCE_S):
        return condition_false(ROLLED, "Blocked", f"{where}{waits}")
    reasons = sorted({reason for given in brokers.pending.values() for reason in given})
    why = f" ({', '.join(reasons)})" if reasons else ""
    return condition_false(ROLLED, "Rolling", f"{where}{why}{waits}")


def _ready(snapshot: Snapshot, found: list[Condition], given_up: list[str]) -> Condition:
    """The roll-up: the first concern that is not as declared names itself; a roll that goes on is no failure."""
    if snapshot.cluster.paused:
        return condition_false(READY, "Paused", "spec.paused: nothing is changed")
    claimed = {problem for kind in _CONCERN_FIELDS.values() for problem in snapshot.problems_below(*kind)}
    if others := [problem for problem in snapshot.problems if problem not in claimed]:
        return invalid_spec(READY, others)
    for condition in found:
        if condition.status != "True" and condition.type not in NOT_NEEDED_FOR_READY:
            return condition_false(
                READY,
                reason_of_ready(condition.type, condition.reason),
                condition.message,
            )
    if given_up:
        message = f"something else changes it at each write; tried again every ten minutes: {'; '.join(given_up)}"
        return condition_false(READY, "ChangedByOthers", message)
    return condition_true(READY)


_CONCERN_FIELDS = {
    ZOOKEEPER_READY: ("spec.zookeeper",),
    RACKS_READY: ("spec.brokers.racks", "spec.brokers.rackKey"),
    BROKERS_READY: ("spec.brokers.replicas", "spec.brokers.resources", "metadata"),
    DISKS_READY: ("spec.brokers.disks",),
    CONFIG_VALID: ("spec.brokers.config",),
}


def _status(
    snapshot: Snapshot,
    found: list[Condition],
    identities: Identities,
    disks: DisksDecision,
    brokers: BrokersDecision,
    roll: machine.Roll | None,
    given_up: list[str],
) -> Obj:
    generation = int(dig(snapshot.resource, "metadata", "generation") or 0)
    shown = []
    for broker_id, rack in identities.racks.items():
        pod = snapshot.pod(names.pod_of(names.broker_name(snapshot.cluster.name, broker_id)))
        entry: Obj = {"id": broker_id, "rack": rack, "ready": pod is not None and has_condition(pod, "Ready")}
        if node := dig(pod, "spec", "nodeName"):
            entry["node"] = node
        if reasons := brokers.pending.get(broker_id):
            entry["pending"] = list(reasons)
        entry["disks"] = [
            {"name": claim.disk, "claim": claim.name, "state": claim.state} for claim in disks.claims.get(broker_id, ())
        ]
        shown.append(entry)
    if snapshot.cluster.paused:
        roll = machine.from_status(snapshot.status("roll"))
    conditions_now = [*found, _ready(snapshot, found, given_up)]
    status: Obj = {
        "observedGeneration": generation,
        "bootstrap": bootstrap_address(snapshot),
        "replicas": len(identities.racks),
        "readyReplicas": sum(1 for entry in shown if entry["ready"]),
        "selector": selector_text(snapshot.cluster.name),
        "brokers": shown,
        "conditions": merged(snapshot.status("conditions"), conditions_now, generation, snapshot.now),
    }
    cluster_id = snapshot.kafka.cluster_id if snapshot.kafka is not None else snapshot.status("clusterId")
    if cluster_id:
        status["clusterId"] = cluster_id
    if roll is not None:
        status["roll"] = roll.to_status()
    return status
