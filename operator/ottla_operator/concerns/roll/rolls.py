"""What the next step of a roll writes and deletes: the state machine of `concerns.roll.machine`, fed from the snapshot.

ZooKeeper servers are rolled before brokers; there is one roll at a time. Here the members of a roll are read from
StatefulSets and pods, and the machine's decision becomes objects, a guarded deletion and the condition Rolled.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from ottla_documents.overrides import with_state
from ottla_operator.api import names
from ottla_operator.api.condition_reasons import ROLLED
from ottla_operator.api.conditions import Condition, condition_false, condition_true, invalid_spec
from ottla_operator.api.fleet import MembershipReport
from ottla_operator.api.objects import (
    POD,
    STATEFUL_SET,
    Obj,
    annotation,
    dig,
    has_condition,
    is_terminating,
    lasting_label,
    name_of,
    short_hash,
    uid_of,
)
from ottla_operator.api.times import seconds_between
from ottla_operator.concerns.brokers.brokers import BrokersDecision, pending_reasons
from ottla_operator.concerns.disks.disk_replacement import replaces_failed_volume
from ottla_operator.concerns.ensemble.observation import NO_ENSEMBLE_OBSERVATION, EnsembleObservation
from ottla_operator.concerns.fleet.broker_removal import is_stopped
from ottla_operator.concerns.roll import machine
from ottla_operator.concerns.roll.actions import ElectLeaders, MoveLeaders
from ottla_operator.concerns.roll.batches import BLOCKERS_SHOWN
from ottla_operator.concerns.roll.observation import NO_ROLL_OBSERVATION, RollObservation
from ottla_operator.concerns.roll.preferred_leaders import restores_leaders
from ottla_operator.concerns.roll.state import Roll, Waiting, from_status
from ottla_operator.facts.annotation_values import wrong_approval
from ottla_operator.facts.difference import template_is_as_declared
from ottla_operator.facts.maintenance import Maintenance, decide_maintenance
from ottla_operator.facts.progress import PATIENCE_S, is_progressing, is_running
from ottla_operator.facts.repairs import foreign_members
from ottla_operator.facts.revisions import has_current_revision, revisions_known
from ottla_operator.facts.snapshot import BatchProof, ClusterAction, ConcernDecision, Deletion, Snapshot
from ottla_operator.objects.pods import broker_not_ready_reason, is_reachable, ready_since

AHEAD_SHOWN = 3
HEAL_AFTER_S = 60.0
"""How long a member whose container fails has to be unready before its restart counts as a repair."""


@dataclass(frozen=True, slots=True)
class RollPlan:
    """`roll`: what status.roll becomes, None when nothing is rolled."""

    decision: ConcernDecision
    roll: Roll | None


def decide_roll(
    snapshot: Snapshot,
    servers: Mapping[int, Obj],
    brokers: BrokersDecision,
    not_to_stop: Mapping[str, frozenset[int]],
    leaving: frozenset[int],
    failed: Sequence[str],
    observation: RollObservation = NO_ROLL_OBSERVATION,
    ensemble: EnsembleObservation = NO_ENSEMBLE_OBSERVATION,
) -> RollPlan:
    """The next step of the roll under way, or the first of a new one.

    Args:
        servers: the StatefulSet of each ZooKeeper server as it should be.
        not_to_stop: by role, the members whose pod must not be deleted: a volume would go with it.
        leaving: brokers that hold nothing and are removed next: they are not restarted first.
        failed: the condition types of the concerns that could not say what should run.
    """
    recorded = from_status(snapshot.status("roll"))
    maintenance = decide_maintenance(snapshot)
    decided = machine.RollDecision(None)
    desired: tuple[Obj, ...] = ()
    deletion: Deletion | None = None
    for role, stateful_sets in ((names.ZOOKEEPER, servers), (names.BROKER, brokers.stateful_sets)):
        if recorded is not None and recorded.role != role:
            continue
        kept = not_to_stop[role] | (held(snapshot) | leaving if role == names.BROKER else frozenset())
        others = _others(snapshot, stateful_sets, leaving) if role == names.BROKER else {}
        facts = machine.RollFacts(
            role=role,
            members=_members(snapshot, stateful_sets, kept),
            fleet_size=len({*snapshot.broker_racks, *(snapshot.kafka.brokers if snapshot.kafka else ())}),
            others=_members(snapshot, others, frozenset(others)).values(),
            kafka=snapshot.kafka,
            has_partitions=role == names.BROKER,
            now=snapshot.now,
            roll_id=f"r{dig(snapshot.resource, 'metadata', 'generation') or 0}",
            restores_leaders=restores_leaders(snapshot),
            refused_elections=observation.refused_elections,
            refused_moves=observation.refused_moves,
            restored_moves=observation.restored_moves,
            leadership_timeout_s=float(snapshot.cluster.rolling.leadership_timeout_s),
            most=snapshot.cluster.rolling.max_batch,
            awaits=_awaited_approval(snapshot, stateful_sets),
            leader=ensemble.leading_server(),
            waiting=_waiting(maintenance, observation.clusters_ahead),
            allows_unavailability=snapshot.cluster.rolling.allows_unavailability,
            progress_deadline_s=float(snapshot.cluster.rolling.progress_deadline_s),
            store_blockers=store_blockers(snapshot, servers, ensemble.membership),
        )
        decided = machine.decide(recorded, facts)
        desired = tuple(stateful_sets[number] for number in decided.apply)
        kept_pods = [number for number, _ in decided.delete if number in not_to_stop[role]]
        if kept_pods and decided.roll is not None:
            blocked = tuple(f"a volume of {role} {number} would go with its pod" for number in kept_pods)
            decided = replace(decided, roll=replace(decided.roll, blocked_by=blocked), delete=())
        if decided.delete and decided.roll is not None:
            deletion = _deletion(snapshot, facts, decided.roll, decided.delete)
        if decided.roll is not None or recorded is not None:
            break
    members = {name_of(one) for one in (*servers.values(), *brokers.stateful_sets.values())}
    foreign = ", ".join(f"StatefulSet {name_of(one)}" for one in foreign_members(snapshot, members))
    rolled = _rolled(snapshot, decided.roll, brokers, failed, {"AwaitingWindow": maintenance.hint}, foreign)
    condition = replace(rolled, message=rolled.message + _creation_failures(snapshot, decided.roll))
    actions: list[ClusterAction] = []
    if decided.moves and decided.roll is not None:
        actions.append(MoveLeaders(decided.moves, decided.roll.batch, decided.only_restore))
    if decided.elect:
        actions.append(ElectLeaders(decided.elect))
    decision = ConcernDecision(
        (condition,), desired, deletion, decided.requeue_after_s, tuple(actions), deletes_first=True
    )
    return RollPlan(decision, decided.roll)


def _awaited_approval(snapshot: Snapshot, stateful_sets: Mapping[int, Obj]) -> str:
    """The value that the annotation lacks, a hash of what members should run; "" when the roll may go on."""
    if snapshot.cluster.rolling.approval == "Automatic" and not snapshot.problems_below("spec.rolling"):
        return ""
    needed = short_hash([stateful_sets[number]["spec"]["template"] for number in sorted(stateful_sets)])
    return "" if annotation(snapshot.resource, names.APPROVE_ROLL) == needed else needed


def _waiting(maintenance: Maintenance, ahead: Sequence[str]) -> Waiting | None:
    """What keeps a roll from choosing a batch that repairs nothing. Ordered checks."""
    if maintenance.waits_for:
        return Waiting("AwaitingWindow", maintenance.waits_for)
    if not ahead:
        return None
    more = f" and {len(ahead) - AHEAD_SHOWN} more" if len(ahead) > AHEAD_SHOWN else ""
    return Waiting("AwaitingTurn", f"the roll of {', '.join(ahead[:AHEAD_SHOWN])}{more}")


def store_blockers(
    snapshot: Snapshot, servers: Mapping[int, Obj], membership: MembershipReport | None
) -> tuple[str, ...]:
    """Why ZooKeeper does not serve the brokers, as far as pods and brokers report it; empty when it may.

    Args:
        servers: the StatefulSet of each server of an ensemble of the operator's, none for another one.
        membership: the members, while the ensemble is resized.
    """
    # Only while the ensemble is resized there are servers that are no members yet, or no longer.
    members = servers if membership is None else membership.servers
    pods = [snapshot.pod(names.pod_of(name_of(one))) for server, one in servers.items() if server in members]
    serving = [pod for pod in pods if pod is not None and has_condition(pod, "Ready") and not is_terminating(pod)]
    found = []
    if servers and len(serving) <= len(members) // 2:
        found.append("the ZooKeeper ensemble has no quorum")
    told = [report for report in snapshot.reports.values() if report.session]
    without_s = [report.session_for_ms / 1000 for report in told if report.session != "connected"]
    if told and len(without_s) == len(told) and min(without_s) < machine.BEHIND_PATIENCE_S:
        found.append("no broker has a session with ZooKeeper")
    return tuple(found)


def held(snapshot: Snapshot) -> frozenset[int]:
    """The brokers that spec.brokers.overrides leaves out of rolls: all of them while it cannot be read."""
    if snapshot.problems_below("spec.brokers.overrides"):
        return frozenset(snapshot.broker_racks)
    return with_state(snapshot.cluster.brokers.overrides, "Hold")


def _others(snapshot: Snapshot, stateful_sets: Mapping[int, Obj], leaving: Collection[int]) -> dict[int, Obj]:
    """The StatefulSets of the brokers that run and are not among those to roll, as they are."""
    found: dict[int, Obj] = {}
    for number in snapshot.broker_racks:
        live = snapshot.own(STATEFUL_SET, names.broker_name(snapshot.cluster.name, number))
        if (
            live is not None
            and number not in stateful_sets
            and number not in leaving
            and not is_stopped(snapshot, number)
        ):
            found[number] = live
    return found


def _deletion(snapshot: Snapshot, facts: machine.RollFacts, roll: Roll, pods: Sequence[tuple[int, str]]) -> Deletion:
    """The deletion of the pods of a batch, as long as every other one that is ready now is ready then, and those of the
    batch that are not ready are not ready then: they may be stopped while others are down."""
    others = tuple(
        _pod_name(snapshot, facts.role, other.id)
        for other in (*facts.members.values(), *facts.others)
        if other.id not in roll.batch and other.is_ready
    )
    reason = f"roll {facts.roll_id}: {facts.role} {', '.join(str(number) for number, _ in pods)}"
    first, *further = [(_pod_name(snapshot, facts.role, number), uid) for number, uid in pods]
    stops = machine.running([facts.members[number] for number in roll.batch]) if facts.has_partitions else ()
    ready = tuple(number for number in roll.batch if facts.members[number].is_ready)
    proof = BatchProof(roll.batch, stops, ready if facts.keeps_available else ()) if stops else None
    unready = tuple(_pod_name(snapshot, facts.role, number) for number, _ in pods if number not in ready)
    return Deletion(POD, *first, reason, while_ready=others, while_unready=unready, further=tuple(further), proof=proof)


def _members(
    snapshot: Snapshot, stateful_sets: Mapping[int, Obj], not_to_stop: frozenset[int]
) -> dict[int, machine.RollMember]:
    """The members of the roll. Those in `not_to_stop` have nothing pending, whatever has changed of them."""
    members: dict[int, machine.RollMember] = {}
    for number, stateful_set in stateful_sets.items():
        live = snapshot.own(STATEFUL_SET, name_of(stateful_set))
        if live is None:
            continue
        report = snapshot.reports.get(number) if lasting_label(live, names.BROKER_ID) else None
        pod = snapshot.get(POD, names.pod_of(name_of(live)))
        is_current = template_is_as_declared(snapshot, live, stateful_set)
        members[number] = machine.RollMember(
            number,
            () if number in not_to_stop else pending_reasons(snapshot, live, stateful_set, is_current=is_current),
            is_current and revisions_known(live),
            None
            if pod is None
            else machine.MemberPod(
                uid=uid_of(pod),
                is_ready=has_condition(pod, "Ready"),
                is_current=has_current_revision(live, pod),
                is_scheduled=dig(pod, "spec", "nodeName") is not None,
                is_terminating=is_terminating(pod),
                is_running=is_running(pod),
                is_reachable=is_reachable(pod, snapshot.now),
                not_ready_reason=broker_not_ready_reason(pod, report),
            ),
            rack=lasting_label(live, names.RACK) or "",
            heals=_heals(snapshot, live, pod),
        )
    return members


def _heals(snapshot: Snapshot, live: Obj, pod: Obj | None) -> bool:
    """Whether the restart of a member brings it, or a volume of it, back: it does not come back by itself."""
    number = lasting_label(live, names.BROKER_ID)
    if number is not None and replaces_failed_volume(snapshot, int(number)):
        return True
    if pod is None:
        return dig(live, "spec", "replicas") == 0 or bool(snapshot.creation_failure(name_of(live)))
    return not is_progressing(pod) and not has_condition(pod, "Ready") and _is_unready_for_long(snapshot, pod)


def _is_unready_for_long(snapshot: Snapshot, pod: Obj) -> bool:
    lasted = seconds_between(ready_since(pod), snapshot.now)
    return lasted is None or lasted >= HEAL_AFTER_S


def _creation_failures(snapshot: Snapshot, roll: Roll | None) -> str:
    """The errors of creating the pods of the members that this roll restarts, each in brackets."""
    if roll is None:
        return ""
    found = (_name(snapshot, roll.role, number) for number in roll.batch)
    return "".join(snapshot.creation_failure(name) for name in found if snapshot.pod(names.pod_of(name)) is None)


def _name(snapshot: Snapshot, role: str, number: int) -> str:
    """The name of the StatefulSet of a broker or server."""
    name_of_role = {names.BROKER: names.broker_name, names.ZOOKEEPER: names.zookeeper_name}[role]
    return name_of_role(snapshot.cluster.name, number)


def _pod_name(snapshot: Snapshot, role: str, number: int) -> str:
    return names.pod_of(_name(snapshot, role, number))


def _rolled(
    snapshot: Snapshot,
    roll: Roll | None,
    brokers: BrokersDecision,
    failed: Sequence[str],
    hints: Mapping[str, str],
    foreign: str,
) -> Condition:
    """The condition Rolled. Without a roll it is True only when it is known what every member should run."""
    if roll is None:
        if foreign:
            return condition_false(ROLLED, "NotOwned", f"belong to somebody else, and stay as they are: {foreign}")
        unknown = [f"see {kind}" for kind in failed] or list(brokers.unknown.values())
        if unknown:
            shown = "; ".join(unknown[:BLOCKERS_SHOWN])
            return condition_false(ROLLED, "DesiredStateUnknown", f"what runs is kept as it is: {shown}")
        if wrong := snapshot.problems_below("spec.brokers.overrides"):
            return invalid_spec(ROLLED, wrong)
        if waiting := sorted(held(snapshot) & brokers.pending.keys()):
            shown = "; ".join(f"broker {number}: {', '.join(brokers.pending[number])}" for number in waiting)
            return condition_false(ROLLED, "Held", f"spec.brokers.overrides holds {shown}")
        return condition_true(ROLLED)
    where = f"{roll.role} {', '.join(map(str, roll.batch))}: {roll.step}" if roll.batch else roll.step
    waits = f"; waits for: {'; '.join(roll.blocked_by)}" if roll.blocked_by else ""
    if roll.awaits:
        plan = "; ".join(f"{one.id}: {', '.join(one.reasons)}" for one in roll.plan[:BLOCKERS_SHOWN])
        command = (
            f"kubectl annotate kafkacluster {snapshot.cluster.name} {names.APPROVE_ROLL}={roll.awaits} --overwrite"
        )
        other = wrong_approval(snapshot.resource, roll.awaits)
        text = f"{roll.role} {plan}; approve with {command}{f'; {other}' if other else ''}"
        return condition_false(ROLLED, "AwaitingApproval", text)
    if roll.waiting is not None:
        plan = "; ".join(f"{one.id}: {', '.join(one.reasons)}" for one in roll.plan[:BLOCKERS_SHOWN])
        hint = f"; {hints[roll.waiting.reason]}" if hints.get(roll.waiting.reason) else ""
        text = f"{roll.role} {plan}; waits for {'; '.join((roll.waiting.what, *roll.blocked_by))}{hint}"
        return condition_false(ROLLED, roll.waiting.reason, text)
    if roll.failed:
        seconds = snapshot.cluster.rolling.progress_deadline_s
        text = f"{where}: no progress for {seconds} s{waits}; nobody else is restarted until the change is corrected"
        return condition_false(ROLLED, "ProgressDeadlineExceeded", text)
    if machine.is_blocked(roll, snapshot.now, patience_s=PATIENCE_S):
        return condition_false(ROLLED, "Blocked", f"{where}{waits}")
    reasons = sorted({reason for given in brokers.pending.values() for reason in given})
    why = f" ({', '.join(reasons)})" if reasons else ""
    return condition_false(ROLLED, "Rolling", f"{where}{why}{waits}")
