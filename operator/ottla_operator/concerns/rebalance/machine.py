"""The state machine that carries out plans: batches of reassignments, with its state in status.rebalance.

    step        left when                                            what the operator asks of Kafka in it
    Plan        a batch is chosen                                    -
    Move        the brokers have taken the requests                  throttles of the batch, then its reassignments
    Wait        nothing of the batch is under way any more           cancels what goes to a broker that now leaves
    Unthrottle  the throttles are removed                            removes them
    DryRun      the mode changes                                     -

A step is written to status before anything is asked for in it, and every request can be repeated. So an operator that
crashes between any two of them reads which batch it had and which throttles it may have set, and goes on. What is left
to do is never recorded: it is the plan of the replicas as they will be once the reassignments under way are done.

No batch begins while something else goes on (`RebalanceFacts.blocker`: a roll, a broker that is down), or while
somebody else reassigns partitions; those are left alone. What is under way goes on meanwhile: Kafka drops a replica
only when all new ones are in sync, and a roll restarts no broker while a replica of its partitions is not.

A broker has to be there to lose its throttle: each answers for its own values. So the throttles are removed between two
batches once a broker that leaves is empty, and it is removed from the fleet after that (`concerns.fleet`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace

from ottla_operator.api.times import seconds_between
from ottla_operator.concerns.rebalance.rebalance_status import BatchMember, Rebalance, Step, Throttled
from ottla_operator.facts.fleet_values import (
    LogDirMove,
    MoveRequests,
    PartitionId,
    Plan,
    Reassignment,
    ReplicaId,
    ThrottleChange,
)
from ottla_operator.rebalancer.pace import REQUEUE_S, SMALL_BYTES, SOON_S, chosen, look_after_s

Mode = str
AUTO, DRY_RUN, OFF = "Auto", "DryRun", "Off"
MODES = (AUTO, DRY_RUN, OFF)
ORDERS_PER_BATCH = 500
"""How many partitions are in a batch that only changes the order of replicas, which copies nothing."""
PLAN_SHOWN = 20
REASONS_SHOWN = 3


@dataclass(frozen=True, slots=True)
class RebalanceDecision:
    """`rebalance`: the new status.rebalance, None for none. `after`: what it is once `requests` have been taken."""

    rebalance: Rebalance | None
    requests: MoveRequests | None = None
    after: Rebalance | None = None
    requeue_after_s: float | None = None


@dataclass(frozen=True, slots=True)
class RebalanceFacts:
    """What is known about the fleet.

    `plan`: makes the plan, with True while a rebalance runs. `bytes_per_second`: the throttle, 0 for none. `under_way`:
    the replicas that each reassignment adds, None while no broker answers. `replicas`: of each partition, from metadata
    that may be behind the controller. `leaving`: brokers that must get nothing. `brokers`: those that are registered.
    `members`: those that the fleet has, registered or not.
    `blocker`: why no batch may begin, "" when one may. `refused`: what brokers have refused a short time ago.
    `stored_bytes`: the size of replicas. `moving`: replicas that move to another directory. `window`: what it waits for
    until a maintenance window opens, "" when it need not; nothing more is asked for then, and throttles are removed.
    """

    mode: Mode
    bytes_per_second: int
    most_per_batch: int
    plan: Callable[[bool], Plan]
    under_way: Mapping[PartitionId, tuple[int, ...]] | None
    replicas: Mapping[PartitionId, tuple[int, ...]]
    leaving: Collection[int]
    brokers: tuple[int, ...]
    blocker: str
    now: str
    refused: Mapping[PartitionId, str] = field(default_factory=dict)
    stored_bytes: Mapping[ReplicaId, int] = field(default_factory=dict)
    moving: Collection[ReplicaId] = ()
    members: Collection[int] = ()
    window: str = ""

    @property
    def emptied(self) -> tuple[int, ...]:
        """The registered brokers that leave and have no replica."""
        named = {broker for replicas in self.replicas.values() for broker in replicas}
        return tuple(broker for broker in self.brokers if broker in self.leaving and broker not in named)

    @property
    def to_throttle(self) -> tuple[int, ...]:
        return tuple(broker for broker in self.brokers if broker not in self.emptied)


def decide(recorded: Rebalance | None, facts: RebalanceFacts) -> RebalanceDecision:
    """The next step. The same facts and record give the same decision."""
    if facts.under_way is None:
        if recorded is None:
            return RebalanceDecision(None)
        return RebalanceDecision(replace(recorded, reason="no broker answers"))
    current = recorded or Rebalance("Plan", facts.now)
    if current.step == "Move":
        return _move(current, facts)
    if current.step == "Wait":
        return _wait(current, facts, facts.under_way)
    if current.step == "Unthrottle":
        return _unthrottle(current, facts)
    return _plan(recorded, current, facts, facts.under_way)


def _to(current: Rebalance, facts: RebalanceFacts, step: Step, **changes: object) -> Rebalance:
    return replace(current, step=step, since=facts.now, **changes)  # type: ignore[arg-type]


def _plan(
    recorded: Rebalance | None,
    current: Rebalance,
    facts: RebalanceFacts,
    under_way: Mapping[PartitionId, tuple[int, ...]],
) -> RebalanceDecision:
    """Chooses the next batch, or ends the rebalance."""
    if facts.mode == OFF:
        return _end(current, facts, ())
    if current.throttled is not None and set(current.throttled.brokers) & set(facts.emptied):
        return RebalanceDecision(_to(current, facts, "Unthrottle", batch=()), requeue_after_s=SOON_S)
    plan = facts.plan(recorded is not None and recorded.step != "DryRun")
    waiting = [*facts.refused.values(), *map(str, plan.refusals)]
    moves = [one for one in plan.reassignments if one.id not in facts.refused]
    dir_moves = [one for one in plan.log_dir_moves if (one.topic, one.index) not in facts.refused]
    if not moves and not dir_moves:
        return _end(current, facts, waiting)
    shown = replace(
        current,
        batch=(),
        partitions_to_go=len(moves) + len(dir_moves),
        bytes_to_go=sum(one.bytes_to_copy for one in moves) + sum(one.size_bytes for one in dir_moves),
        started_at=current.started_at or facts.now,
        plan=(),
        reason=_text(waiting),
    )
    if facts.mode == DRY_RUN:
        if current.throttled is not None:
            return _end(current, facts, waiting)
        since = current.since if current.step == "DryRun" else facts.now
        texts = tuple(str(one) for one in [*moves, *dir_moves][:PLAN_SHOWN])
        return RebalanceDecision(replace(shown, step="DryRun", since=since, plan=texts, started_at=""))
    since = current.since if current.step == "Plan" else facts.now
    shown = replace(shown, step="Plan", since=since)
    if facts.window:
        return _wait_for_window(current, shown, facts)
    if facts.blocker:
        return RebalanceDecision(replace(shown, reason=facts.blocker), requeue_after_s=REQUEUE_S)
    if under_way:
        others = ", ".join(f"{topic}-{index}" for topic, index in sorted(under_way)[:REASONS_SHOWN])
        return RebalanceDecision(replace(shown, reason=f"others reassign {others}"), requeue_after_s=REQUEUE_S)
    batch = _batch(moves, dir_moves, facts, has_fresh_sizes=recorded is not None)
    topics = {member.topic for member in batch if not member.log_dir and member.added}
    throttled = current.throttled
    if facts.bytes_per_second and (topics or any(member.log_dir for member in batch)):
        before = current.throttled.topics if current.throttled is not None else ()
        throttled = Throttled(facts.bytes_per_second, facts.to_throttle, tuple(sorted({*before, *topics})))
    moved = _to(shown, facts, "Move", batch=batch, throttled=throttled)
    return RebalanceDecision(moved, requeue_after_s=SOON_S)


def _wait_for_window(current: Rebalance, shown: Rebalance, facts: RebalanceFacts) -> RebalanceDecision:
    """Nothing begins. The bytes that are left are updated only when they differ by more than a tenth: while records
    are produced they always change, and status must not."""
    if current.throttled is not None:
        return RebalanceDecision(_to(current, facts, "Unthrottle", batch=(), plan=()), requeue_after_s=SOON_S)
    shown = replace(shown, started_at="", bytes_moved=0, bytes_per_second=0, reason=facts.window)
    is_close = abs(shown.bytes_to_go - current.bytes_to_go) * 10 <= current.bytes_to_go
    if current.partitions_to_go == shown.partitions_to_go and is_close:
        shown = replace(shown, bytes_to_go=current.bytes_to_go)
    return RebalanceDecision(shown)


def _batch(
    moves: list[Reassignment], dir_moves: list[LogDirMove], facts: RebalanceFacts, *, has_fresh_sizes: bool
) -> tuple[BatchMember, ...]:
    """The first of the plan; those that copy data and those that do not are in batches of their own.

    Of partitions that copy next to nothing there are more in a batch, once sizes have been read for this rebalance.
    What is not known to be small counts as large.
    """
    most = facts.most_per_batch

    def to_copy(one: Reassignment) -> int:
        is_known = any((broker, *one.id) in facts.stored_bytes for broker in one.before)
        return one.bytes_to_copy if is_known and has_fresh_sizes else SMALL_BYTES + 1

    copying = chosen([one for one in moves if one.added], to_copy, most)
    if not copying and moves:
        copying = moves[:ORDERS_PER_BATCH]
    if copying:
        return tuple(
            BatchMember(
                one.topic,
                one.index,
                replicas=one.after,
                before=one.before,
                bytes_to_go=one.bytes_to_copy,
                size_bytes=one.size_bytes,
                log_dirs=tuple(sorted((one.log_dirs or {}).items())),
            )
            for one in copying
        )
    return tuple(
        BatchMember(one.topic, one.index, broker=one.broker, log_dir=one.after, bytes_to_go=one.size_bytes)
        for one in chosen(dir_moves, lambda one: one.size_bytes if has_fresh_sizes else SMALL_BYTES + 1, most)
    )


def _end(current: Rebalance, facts: RebalanceFacts, waiting: Collection[str]) -> RebalanceDecision:
    """Nothing can be moved now: the throttles go, then the status; what cannot be placed stays shown."""
    if current.throttled is not None:
        return RebalanceDecision(_to(current, facts, "Unthrottle", batch=(), plan=()), requeue_after_s=SOON_S)
    if not waiting:
        return RebalanceDecision(None)
    since = current.since if current.step == "Plan" else facts.now
    return RebalanceDecision(Rebalance("Plan", since, reason=_text(waiting)))


def _move(current: Rebalance, facts: RebalanceFacts) -> RebalanceDecision:
    """Asks for what the batch has. Once it is under way it is waited for, whatever else begins."""
    under_way = facts.under_way or {}
    begun = tuple(one for one in current.batch if one.id in under_way or (one.broker, *one.id) in facts.moving)
    if facts.mode != AUTO or facts.blocker or (facts.window and not begun):
        return RebalanceDecision(_to(current, facts, "Wait"), requeue_after_s=SOON_S)
    batch = (
        begun
        if facts.window
        else tuple(
            member
            for member in current.batch
            if member.id in under_way or (member.id not in facts.refused and _is_as_planned(member, facts))
        )
    )
    throttle: ThrottleChange | None = None
    throttled = current.throttled
    now, later = ((), ()) if throttled is None else _answering(throttled, facts)
    if throttled is not None and facts.bytes_per_second:
        leaders: dict[str, tuple[str, ...]] = {}
        followers: dict[str, tuple[str, ...]] = {}
        for member in batch:
            if member.added:
                from_ = tuple(f"{member.index}:{broker}" for broker in member.before)
                to = tuple(f"{member.index}:{broker}" for broker in member.added)
                leaders[member.topic] = (*leaders.get(member.topic, ()), *from_)
                followers[member.topic] = (*followers.get(member.topic, ()), *to)
        unset = tuple(topic for topic in throttled.topics if topic not in leaders)
        throttle = ThrottleChange(facts.bytes_per_second, now, leaders, followers, unset)
        throttled = Throttled(facts.bytes_per_second, (*now, *later), tuple(sorted(leaders)))
    elif throttled is not None:
        throttle = ThrottleChange(0, now, unset=throttled.topics)
        throttled = replace(throttled, brokers=later, topics=()) if later else None
    log_dirs = {(member.broker, *member.id): member.log_dir for member in batch if member.log_dir}
    log_dirs |= {(broker, *member.id): path for member in batch for broker, path in member.log_dirs}
    reassign = {member.id: member.replicas for member in batch if not member.log_dir and member.id not in under_way}
    after = _to(current, facts, "Wait", batch=batch, throttled=throttled)
    return RebalanceDecision(current, MoveRequests(throttle, log_dirs, reassign), after, _look_after_s(batch))


def _is_as_planned(member: BatchMember, facts: RebalanceFacts) -> bool:
    """Whether the plan still holds for a member: its metadata may have been behind when the plan was made."""
    if set(member.added) & set(facts.leaving):
        return False
    return bool(member.log_dir) or facts.replicas.get(member.id) == member.before


def _is_behind(member: BatchMember, facts: RebalanceFacts) -> bool:
    """Whether the metadata still shows the replicas of both sides. A plan of that would keep them all."""
    both = {*member.before, *member.replicas}
    return len(both) > max(len(member.before), len(member.replicas)) and both == {*facts.replicas.get(member.id, ())}


def _wait(
    current: Rebalance, facts: RebalanceFacts, under_way: Mapping[PartitionId, tuple[int, ...]]
) -> RebalanceDecision:
    pending = tuple(
        member
        for member in current.batch
        if (
            (member.broker, *member.id) in facts.moving
            if member.log_dir
            else member.id in under_way or _is_behind(member, facts)
        )
    )
    measured = _measured(current, facts, pending)
    if not pending:
        return RebalanceDecision(_to(measured, facts, "Plan", batch=(), reason=""), requeue_after_s=SOON_S)
    declared_rate = facts.bytes_per_second if facts.mode == AUTO else None
    rate = current.throttled.bytes_per_second if current.throttled is not None else 0
    copies = any(member.added or member.log_dir for member in pending)
    if declared_rate is not None and declared_rate != rate and copies and not facts.blocker:
        topics = {member.topic for member in pending if member.added}
        before = current.throttled.topics if current.throttled is not None else ()
        throttled = Throttled(declared_rate or rate, facts.to_throttle, tuple(sorted({*before, *topics})))
        return RebalanceDecision(_to(measured, facts, "Move", throttled=throttled), requeue_after_s=SOON_S)
    leaving = [member for member in pending if set(under_way.get(member.id, ())) & set(facts.leaving)]
    if leaving:
        names = ", ".join(str(member) for member in leaving[:REASONS_SHOWN])
        shown = replace(measured, reason=f"cancels {names}: a broker that gets a replica is to be removed")
        requests = MoveRequests(reassign=dict.fromkeys((member.id for member in leaving), None))
        return RebalanceDecision(shown, requests, shown, REQUEUE_S)
    look = REQUEUE_S if facts.blocker else _look_after_s(pending)
    return RebalanceDecision(measured, requeue_after_s=look)


def _look_after_s(members: Collection[BatchMember]) -> float:
    return look_after_s([one.bytes_to_go for one in members])


def _measured(current: Rebalance, facts: RebalanceFacts, pending: tuple[BatchMember, ...]) -> Rebalance:
    """The progress: when a partition is done, or a hundredth of what is to go has been copied."""
    members = tuple(replace(member, bytes_to_go=_bytes_left(member, facts)) for member in pending)
    moved = sum(one.bytes_to_go for one in current.batch) - sum(one.bytes_to_go for one in members)
    done = len(current.batch) - len(pending)
    if not done and (moved <= 0 or moved * 100 < current.bytes_to_go):
        return replace(current, reason=facts.blocker)
    all_moved = current.bytes_moved + max(0, moved)
    passed = seconds_between(current.started_at, facts.now)
    return replace(
        current,
        batch=members,
        partitions_to_go=max(0, current.partitions_to_go - done),
        bytes_to_go=max(0, current.bytes_to_go - moved),
        bytes_moved=all_moved,
        bytes_per_second=round(all_moved / passed) if passed else 0,
        reason=facts.blocker,
    )


def _bytes_left(member: BatchMember, facts: RebalanceFacts) -> int:
    """The bytes that a member still has to copy: less what its new replicas have."""
    if not member.added or not member.size_bytes:
        return member.bytes_to_go
    there = (facts.stored_bytes.get((broker, *member.id), 0) for broker in member.added)
    return min(member.bytes_to_go, sum(max(0, member.size_bytes - stored) for stored in there))


def _unthrottle(current: Rebalance, facts: RebalanceFacts) -> RebalanceDecision:
    """Removes the throttles, also those of a broker that is down, once it is back."""
    throttled = current.throttled
    if throttled is None:
        return RebalanceDecision(_to(current, facts, "Plan", reason=""), requeue_after_s=SOON_S)
    now, later = _answering(throttled, facts)
    if later:
        after = replace(
            current,
            throttled=replace(throttled, brokers=later, topics=()),
            reason=f"waits for broker {', '.join(map(str, later[:REASONS_SHOWN]))}: a throttle is to be removed",
        )
    else:
        after = _to(current, facts, "Plan", throttled=None, reason="")
    if not now and not throttled.topics:
        return RebalanceDecision(after, requeue_after_s=REQUEUE_S if later else SOON_S)
    requests = MoveRequests(ThrottleChange(0, now, unset=throttled.topics))
    return RebalanceDecision(current, requests, after, REQUEUE_S if later else SOON_S)


def _answering(throttled: Throttled, facts: RebalanceFacts) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The brokers whose throttle can be changed now, and those where that has to wait. One that the fleet no longer has
    is neither."""
    now = tuple(broker for broker in throttled.brokers if broker in facts.brokers)
    later = tuple(broker for broker in throttled.brokers if broker not in facts.brokers and broker in facts.members)
    return now, later


def _text(reasons: Collection[str]) -> str:
    """
    >>> _text(["a", "b", "c", "d"])
    'a; b; c; 1 more'
    """
    found = sorted(set(reasons))
    more = [f"{len(found) - REASONS_SHOWN} more"] if len(found) > REASONS_SHOWN else []
    return "; ".join([*found[:REASONS_SHOWN], *more])
