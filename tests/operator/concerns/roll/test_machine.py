"""The roller's rules, one by one and under random fleets."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from ottla_operator.api.fleet import ClusterMetadata, PartitionReport
from ottla_operator.concerns.roll.batches import needed_in_sync
from ottla_operator.concerns.roll.leader_moves import MOVES_PER_BROKER
from ottla_operator.concerns.roll.machine import (
    LEADERS_SEEN_S,
    RESTORE_REQUEUE_S,
    MemberPod,
    RollDecision,
    RollFacts,
    RollMember,
    blockers,
    decide,
    is_blocked,
)
from ottla_operator.concerns.roll.state import STEPS, PlannedMember, Roll, Waiting, from_status
from ottla_operator.facts.leader_move import LeaderMove

NOW = "2026-01-01T00:00:00Z"
READY = MemberPod("u", is_ready=True, is_current=True, is_scheduled=True, is_terminating=False)


def _member(number: int, *, pending: bool = False, ready: bool = True, current_template: bool = True) -> RollMember:
    pod = replace(READY, uid=f"u{number}", is_ready=ready, is_current=not pending)
    return RollMember(number, ("ConfigChanged",) if pending else (), current_template, pod)


def _facts(*members: RollMember, partitions: tuple[PartitionReport, ...] = (), answers: bool = True) -> RollFacts:
    brokers = tuple(member.id for member in members if member.is_ready)
    kafka = ClusterMetadata("c", 0, brokers, partitions) if answers else None
    return RollFacts("broker", {member.id: member for member in members}, kafka, True, NOW, "r1", len(members))


def test_there_is_no_roll_when_no_member_is_pending() -> None:
    assert decide(None, _facts(_member(0), _member(1))) == RollDecision(None)


def test_a_roll_begins_with_its_status_and_no_write() -> None:
    decided = decide(None, _facts(_member(0, pending=True)))
    assert decided.roll is not None and decided.roll.step == "PickNext"
    assert decided.apply == () and decided.delete == ()


def test_members_that_are_not_ready_are_restarted_first_and_the_active_controller_last() -> None:
    start = Roll("r1", "broker", "PickNext", NOW)
    healthy = _facts(_member(0, pending=True), _member(1, pending=True), _member(2, pending=True))
    first = decide(start, healthy).roll
    assert first is not None and first.batch == (1,)
    broken = _facts(_member(0, pending=True), _member(1, pending=True), _member(2, pending=True, ready=False))
    first = decide(start, broken).roll
    assert first is not None and first.batch == (2,)


def test_a_pod_is_deleted_only_in_the_recorded_step_and_by_its_uid() -> None:
    member = _member(1, pending=True)
    facts = _facts(_member(0), member)
    applied = decide(Roll("r1", "broker", "ApplyTemplate", NOW, (1,)), facts)
    assert applied.delete == () and applied.roll is not None
    assert (applied.roll.step, applied.roll.pods) == ("DeletePod", {1: "u1"})
    assert decide(applied.roll, facts).delete == ((1, "u1"),)
    other = replace(applied.roll, pods={1: "an older pod"})
    again = decide(other, facts)
    assert again.delete == () and again.roll is not None and again.roll.step == "WaitReady"


def test_the_template_is_written_before_the_pod_is_deleted() -> None:
    facts = _facts(_member(0), _member(1, pending=True, current_template=False))
    decided = decide(Roll("r1", "broker", "ApplyTemplate", NOW, (1,)), facts)
    assert decided.apply == (1,) and decided.delete == ()


def test_a_template_that_changes_while_the_deletion_waits_is_written_before_the_pod_is_deleted() -> None:
    waiting = Roll("r1", "broker", "DeletePod", NOW, (1,), pods={1: "u1"})
    decided = decide(waiting, _facts(_member(0), _member(1, pending=True, current_template=False)))
    assert decided.delete == ()
    assert decided.roll is not None and decided.roll.step == "ApplyTemplate"


def test_a_roll_leaves_a_member_for_one_that_is_down_and_pending() -> None:
    """Somebody scales the StatefulSet of broker 2 to zero: only the roll brings its pod back."""
    down = replace(_member(2, pending=True, current_template=False), pod=None)
    facts = _facts(_member(0), _member(1, pending=True), down)
    decided = decide(Roll("r1", "broker", "DeletePod", NOW, (1,), pods={1: "u1"}), facts)
    assert decided.delete == ()
    assert decided.roll is not None and decided.roll.step == "PickNext"
    chosen = decide(decided.roll, facts).roll
    assert chosen is not None and (chosen.step, chosen.batch) == ("ApplyTemplate", (2,))


def test_a_roll_leaves_a_replica_that_cannot_catch_up_for_its_leader_that_is_down() -> None:
    """Broker 1 is back, and the only other replica of its partition is on a broker that is down and pending."""
    down = replace(_member(2, pending=True, current_template=False), pod=None)
    facts = _facts(_member(0), _member(1), down, partitions=(PartitionReport("t", 0, -1, (1, 2), (2,)),))
    decided = decide(Roll("r1", "broker", "WaitInSync", NOW, (1,)), facts)
    assert decided.roll is not None and decided.roll.step == "PickNext"
    chosen = decide(decided.roll, facts).roll
    assert chosen is not None and (chosen.step, chosen.batch) == ("ApplyTemplate", (2,))
    alone = decide(Roll("r1", "broker", "WaitInSync", NOW, (1,)), replace(facts, members={1: facts.members[1]}))
    assert alone.roll is not None and alone.roll.step == "WaitInSync"


def test_a_pod_that_stays_terminating_is_reported() -> None:
    """On a node that does not answer it stays for ever, and nothing else reports it."""
    terminating = replace(_member(1, pending=True), pod=replace(READY, uid="u1", is_ready=False, is_terminating=True))
    decided = decide(Roll("r1", "broker", "DeletePod", NOW, (1,), pods={1: "u1"}), _facts(_member(0), terminating))
    assert decided.delete == ()
    assert decided.roll is not None and decided.roll.blocked_by == ("the pod of broker 1 is still being deleted",)


def test_what_blocks_a_step_is_reported() -> None:
    partition = PartitionReport("t", 3, 1, (1, 2), (1,))
    facts = _facts(_member(0), _member(1, pending=True), _member(2), partitions=(partition,))
    assert blockers([facts.members[1]], facts) == ("t-3: replica 2 is not in sync",)
    assert blockers([facts.members[2]], facts) == (), "it is in no ISR, so it takes nothing away"
    silent = _facts(_member(0), _member(1, pending=True), answers=False)
    assert "no broker answers" in blockers([silent.members[1]], silent)[0]


def test_a_broker_whose_container_does_not_run_may_be_restarted_when_replicas_are_out_of_sync() -> None:
    """It may be the last replica of an ISR, and its template the reason why no broker starts."""
    ended = replace(_member(1, pending=True, ready=False), pod=replace(READY, is_ready=False, is_running=False))
    last = PartitionReport("t", 0, -1, (0, 1), (1,))
    facts = _facts(_member(0), ended, partitions=(last,))
    assert blockers([ended], facts) == ()
    assert blockers([ended], replace(facts, kafka=None)) == ()
    recovering = _member(1, pending=True, ready=False)
    assert blockers([recovering], replace(facts, kafka=None)) != ()


def test_no_pod_is_deleted_while_another_cannot_be_scheduled() -> None:
    lost = RollMember(2, (), True, replace(READY, is_ready=False, is_scheduled=False))
    facts = _facts(_member(1, pending=True, ready=False), lost)
    assert blockers([facts.members[1]], facts) == ("broker 2 is not ready",)


def test_in_sync_means_in_every_isr_it_belongs_to() -> None:
    behind = PartitionReport("t", 0, 0, (0, 1), (0,))
    roll = Roll("r1", "broker", "WaitInSync", NOW, (1,), (2,))
    waiting = decide(roll, _facts(_member(0), _member(1), partitions=(behind,)))
    assert waiting.roll is not None and waiting.roll.blocked_by == ("t-0: broker 1 is not in sync",)
    caught_up = replace(behind, in_sync=(0, 1))
    done = decide(roll, _facts(_member(0), _member(1), partitions=(caught_up,)))
    assert done.roll is not None and (done.roll.step, done.roll.done) == ("PickNext", (2, 1))


def test_a_waiting_step_is_blocked_only_after_a_time() -> None:
    waiting = Roll("r1", "broker", "WaitReady", NOW, (1,), blocked_by=("broker 1 is not ready",))
    assert not is_blocked(waiting, "2026-01-01T00:00:59Z", patience_s=60)
    assert is_blocked(waiting, "2026-01-01T00:01:00Z", patience_s=60)
    assert not is_blocked(replace(waiting, blocked_by=()), "2026-01-01T01:00:00Z", patience_s=60)


def test_a_roll_that_cannot_be_parsed_from_status_is_none() -> None:
    for value in (None, "", {}, {"step": "Dance"}, {"batch": [1]}):
        assert from_status(value) is None
    roll = Roll(
        "r1",
        "broker",
        "DeletePod",
        NOW,
        (1,),
        (2,),
        ("x",),
        {1: "u"},
        (PlannedMember(0, 1, ("ConfigChanged",), "why"),),
        NOW,
        1,
        NOW,
    )
    assert from_status(roll.to_status()) == roll


def _racks(*letters: str, pending: bool = True) -> tuple[RollMember, ...]:
    return tuple(replace(_member(number, pending=pending), rack=rack) for number, rack in enumerate(letters))


def test_the_brokers_of_a_rack_are_restarted_together_and_deleted_in_one_act() -> None:
    partitions = (
        PartitionReport("t", 0, 0, (0, 1, 2), (0, 1, 2), 2),
        PartitionReport("t", 1, 3, (3, 4, 5), (3, 4, 5), 2),
    )
    facts = _facts(*_racks("a", "b", "c", "a", "b", "c"), partitions=partitions)
    picked = decide(Roll("r1", "broker", "PickNext", NOW, started=NOW), facts).roll
    assert picked is not None and (picked.step, picked.batch) == ("ApplyTemplate", (1, 4)), "the controller is 0"
    assert [(one.id, one.batch) for one in picked.plan] == [(1, 1), (4, 1), (2, 2), (5, 2), (0, 3), (3, 3)]
    assert picked.plan[2].waits_for == "rack c comes later" and picked.plan[2].reasons == ("ConfigChanged",)
    deleting = decide(picked, facts).roll
    assert deleting is not None and deleting.pods == {1: "u1", 4: "u4"}
    assert decide(deleting, facts).delete == ((1, "u1"), (4, "u4"))


def test_a_batch_whose_deletions_were_interrupted_goes_on_or_becomes_what_was_stopped() -> None:
    members = _racks("a", "a", "b", "c")
    stopped = replace(members[0], pod=None)
    roll = Roll("r1", "broker", "DeletePod", NOW, (0, 1), pods={0: "u0", 1: "u1"})
    shared = PartitionReport("t", 0, 1, (0, 1, 2, 3), (1, 2, 3), 2)
    facts = _facts(stopped, *members[1:], partitions=(shared,))
    assert decide(roll, facts).delete == ((1, "u1"),)
    tight = replace(facts, kafka=ClusterMetadata("c", 2, (1, 2, 3), (replace(shared, in_sync=(1, 2)),)))
    smaller = decide(roll, tight)
    assert smaller.delete == () and smaller.roll is not None and smaller.roll.batch == (0,)
    after = decide(smaller.roll, tight).roll
    assert after is not None and after.step == "WaitReady"


def test_a_batch_that_may_not_be_stopped_any_more_is_chosen_again() -> None:
    members = _racks("a", "a", "b", "c")
    roll = Roll("r1", "broker", "DeletePod", NOW, (0, 1), pods={0: "u0", 1: "u1"})
    tight = PartitionReport("t", 0, 1, (1, 2, 3), (1, 2), 2)
    facts = _facts(*members, partitions=(tight,))
    decided = decide(roll, facts)
    assert decided.delete == () and decided.roll is not None and decided.roll.step == "PickNext"


def test_a_broker_that_is_behind_is_left_to_catch_up_for_ten_minutes() -> None:
    behind = PartitionReport("t", 0, 1, (1, 2), (1,), 1)
    facts = _facts(*_racks("a", "b", "c")[1:], partitions=(behind,))
    waiting = decide(Roll("r1", "broker", "PickNext", NOW, started=NOW), facts).roll
    assert waiting is not None and waiting.step == "PickNext"
    assert waiting.blocked_by == ("t-0: replica 2 is not in sync",)
    later = decide(waiting, replace(facts, now="2026-01-01T00:10:00Z")).roll
    assert later is not None and (later.step, later.batch) == ("ApplyTemplate", (2,))


MOVE = LeaderMove("t", 0, (1, 0, 2), 0)


def _leading(*replicas: int, leader: int = 1) -> PartitionReport:
    return PartitionReport("t", 0, leader, replicas, replicas, 2)


def _with_leaders(*partitions: PartitionReport, now: str = NOW) -> RollFacts:
    members = (_member(0), _member(1, pending=True), _member(2))
    return replace(_facts(*members, partitions=partitions), restores_leaders=True, now=now)


def test_leaderships_are_recorded_before_they_move_and_the_pod_goes_when_nothing_is_led() -> None:
    recorded = decide(Roll("r1", "broker", "ApplyTemplate", NOW, (1,)), _with_leaders(_leading(1, 0, 2)))
    assert recorded.roll is not None and (recorded.roll.step, recorded.roll.pods) == ("MoveLeaders", {1: "u1"})
    assert recorded.roll.moving == (MOVE,) and recorded.moves == ()
    assert from_status(recorded.roll.to_status()) == recorded.roll
    acts = decide(recorded.roll, _with_leaders(_leading(1, 0, 2)))
    assert acts.moves == (MOVE,) and not acts.only_restore and acts.delete == ()
    unconfirmed = decide(recorded.roll, _with_leaders(_leading(1, 0, 2, leader=0)))
    assert unconfirmed.moves == (MOVE,), "the metadata may be behind"
    confirmed = replace(_with_leaders(_leading(1, 0, 2, leader=0)), restored_moves=(MOVE,))
    done = decide(recorded.roll, confirmed).roll
    assert done is not None and (done.step, done.moving) == ("DeletePod", ())


def test_a_broker_that_leads_nothing_or_nothing_that_others_can_lead_loses_its_pod_at_once() -> None:
    for partition in (_leading(1, 0, 2, leader=2), PartitionReport("t", 0, 1, (1,), (1,), 1)):
        decided = decide(Roll("r1", "broker", "ApplyTemplate", NOW, (1,)), _with_leaders(partition)).roll
        assert decided is not None and decided.step == "DeletePod"


def test_the_time_for_leaderships_is_bounded_and_what_is_left_moves_by_controlled_shutdown() -> None:
    roll = Roll("r1", "broker", "MoveLeaders", NOW, (1,), pods={1: "u1"}, moving=(MOVE,))
    facts = _with_leaders(_leading(1, 0, 2), now="2026-01-01T00:01:01Z")
    assert decide(roll, facts).only_restore
    late = decide(roll, replace(facts, restored_moves=(MOVE,))).roll
    assert late is not None and (late.step, late.moving) == ("DeletePod", ())


def test_orders_of_replicas_are_put_back_before_anything_else_whatever_the_step() -> None:
    for step in STEPS:
        roll = Roll("r1", "broker", step, NOW, (1,), pods={1: "u1"}, moving=(MOVE,))  # type: ignore[arg-type]
        decided = decide(roll, _with_leaders(_leading(0, 1, 2, leader=0), now="2026-01-01T00:05:00Z"))
        assert decided.moves == (MOVE,) and decided.only_restore, step
        assert decided.roll is not None and (decided.roll.step, decided.delete) == (step, ())
        silent = decide(roll, replace(_with_leaders(), kafka=None))
        assert silent.roll is not None and silent.roll.moving == (MOVE,) and silent.delete == ()


def test_a_leadership_that_comes_back_is_moved_again_and_recorded_again() -> None:
    roll = Roll("r1", "broker", "MoveLeaders", NOW, (1,), pods={1: "u1"}, moving=(MOVE,))
    back = replace(_with_leaders(_leading(1, 0, 2)), restored_moves=(MOVE,))
    over = decide(roll, back)
    assert over.moves == () and over.roll is not None and (over.roll.step, over.roll.moving) == ("MoveLeaders", ())
    again = decide(over.roll, replace(back, restored_moves=())).roll
    assert again is not None and again.moving == (MOVE,)


def test_moves_that_a_status_still_has_from_before_are_not_taken_for_new_ones() -> None:
    left_over = Roll("r1", "broker", "ApplyTemplate", NOW, (1,), moving=(MOVE,))
    confirmed = replace(_with_leaders(_leading(1, 0, 2)), restored_moves=(MOVE,))
    begun = decide(left_over, confirmed).roll
    assert begun is not None and (begun.step, begun.moving) == ("MoveLeaders", (MOVE,))
    cleared = decide(begun, confirmed).roll
    assert cleared is not None and cleared.moving == (), "they are over, and count for nothing"


def test_what_was_asked_for_is_looked_at_at_once_and_then_less_often() -> None:
    roll = Roll("r1", "broker", "MoveLeaders", NOW, (1,), pods={1: "u1"}, moving=(MOVE,))
    first = decide(roll, _with_leaders(_leading(1, 0, 2)))
    assert first.roll is not None and first.moves == (MOVE,) and first.requeue_after_s == LEADERS_SEEN_S
    again = decide(first.roll, _with_leaders(_leading(1, 0, 2)))
    assert again.moves == (MOVE,) and again.requeue_after_s == RESTORE_REQUEUE_S


def test_the_brokers_of_a_batch_are_left_in_the_same_steps_each_by_a_bounded_number() -> None:
    led = [PartitionReport("t", n, n % 2, (n % 2, 2), (n % 2, 2), 1) for n in range(3 * MOVES_PER_BROKER)]
    members = (*_racks("a", "a"), _member(2))
    facts = replace(_facts(*members, partitions=tuple(led)), restores_leaders=True)
    begun = decide(Roll("r1", "broker", "ApplyTemplate", NOW, (0, 1)), facts).roll
    assert begun is not None and len(begun.moving) == 2 * MOVES_PER_BROKER
    of_broker = Counter(move.replicas[0] for move in begun.moving)
    assert of_broker == {0: MOVES_PER_BROKER, 1: MOVES_PER_BROKER}


def test_a_batch_that_does_not_come_back_fails_the_roll_at_its_deadline_and_goes_on_when_it_does() -> None:
    crashes = replace(
        READY, uid="u1", is_ready=False, not_ready_reason="waits (CrashLoopBackOff); it ended with: no such key"
    )
    facts = _facts(_member(0, pending=True), RollMember(1, (), True, crashes))
    stopped = decide(Roll("r1", "broker", "DeletePod", NOW, (1,), pods={1: "old"}), facts).roll
    assert stopped is not None and (stopped.step, stopped.progressed) == ("WaitReady", NOW)
    for now, failed in (("2026-01-01T00:09:59Z", False), ("2026-01-01T00:10:00Z", True)):
        decided = decide(stopped, replace(facts, now=now)).roll
        assert decided is not None and decided.failed is failed and decided.batch == (1,), now
    assert decided is not None and from_status(decided.to_status()) == decided
    assert decided.blocked_by == ("broker 1 waits (CrashLoopBackOff); it ended with: no such key",)
    assert decided.summary() == "broker 1: failed in WaitReady, 0 of 1 done"
    back = decide(decided, replace(_facts(_member(0, pending=True), _member(1)), now="2026-01-01T00:20:00Z")).roll
    assert back is not None and (back.step, back.failed) == ("WaitInSync", False)


def test_a_batch_that_catches_up_makes_progress_and_one_that_does_not_fails() -> None:
    def at(minute: int, *behind: int) -> RollFacts:
        partitions = tuple(
            PartitionReport("t", index, 0, (0, 1), (0,) if index in behind else (0, 1)) for index in (0, 1)
        )
        return replace(_facts(_member(0), _member(1), partitions=partitions), now=f"2026-01-01T00:{minute:02}:00Z")

    roll: Roll | None = Roll("r1", "broker", "WaitInSync", NOW, (1,), progressed=NOW)
    for minute, behind, failed in ((9, (0, 1), False), (18, (0, 1), False), (19, (0, 1), True), (25, (0,), False)):
        roll = decide(roll, at(minute, *behind)).roll
        assert roll is not None and roll.failed is failed, minute
    roll = decide(roll, at(30, 0, 1)).roll
    assert roll is not None and roll.progressed == "2026-01-01T00:25:00Z", "worse than before is no progress"


def test_a_correction_restarts_the_failed_batch_before_any_other() -> None:
    partition = PartitionReport("t", 0, 0, (0, 1), (0,))
    corrected = _member(1, pending=True, current_template=False)
    facts = _facts(_member(0, pending=True, current_template=False), corrected, partitions=(partition,))
    waits = Roll("r1", "broker", "WaitInSync", NOW, (1,), progressed=NOW, behind=1)
    assert decide(waits, facts).roll.step == "WaitInSync", "it may still catch up"  # type: ignore[union-attr]
    decided = decide(replace(waits, failed=True), facts).roll
    assert decided is not None and (decided.step, decided.batch) == ("ApplyTemplate", (1,))
    down = replace(corrected, pod=replace(READY, uid="u1", is_ready=False, is_running=False, is_current=False))
    for failed in (False, True):
        roll = replace(waits, step="WaitReady", failed=failed)
        decided = decide(roll, replace(facts, members={**facts.members, 1: down})).roll
        assert decided is not None and (decided.step, decided.batch) == ("ApplyTemplate", (1,))


SINGLE = PartitionReport("single", 0, 1, (1,), (1,), 1)
TIGHT = PartitionReport("tight", 0, 2, (2, 0), (2, 0), 2)


def test_brokers_whose_partitions_clients_would_lose_are_left_out_and_named() -> None:
    members = [replace(_member(number, pending=True), rack="a") for number in (0, 1, 2, 3)]
    facts = _facts(*members, partitions=(SINGLE, TIGHT))
    picked = decide(Roll("r1", "broker", "PickNext", NOW), facts).roll
    assert picked is not None and (picked.step, picked.batch) == ("ApplyTemplate", (3,))
    assert [(one.id, one.waits_for) for one in picked.plan if one.waits_for] == [
        (0, "tight-0 has 2 replicas, and min.insync.replicas is 2 (spec.rolling.allowUnavailability)"),
        (1, "single-0 has one replica (spec.rolling.allowUnavailability)"),
        (2, "tight-0 has 2 replicas, and min.insync.replicas is 2 (spec.rolling.allowUnavailability)"),
    ]
    rest = replace(facts, members={number: facts.members[number] for number in (0, 1, 2)})
    stuck = decide(Roll("r1", "broker", "PickNext", NOW), rest).roll
    assert stuck is not None and (stuck.step, stuck.batch) == ("PickNext", ())
    assert "min.insync.replicas is 2 (spec.rolling.allowUnavailability)" in stuck.blocked_by[0]


def test_where_it_is_allowed_such_brokers_are_restarted_one_at_a_time_after_the_largest_batch() -> None:
    members = [replace(_member(number, pending=True), rack="a") for number in (0, 1, 2, 3, 4)]
    facts = replace(_facts(*members, partitions=(SINGLE, TIGHT)), allows_unavailability=True)
    batches = []
    while facts.members:
        roll = decide(Roll("r1", "broker", "PickNext", "2025-12-31T00:00:00Z"), facts).roll
        assert roll is not None and roll.step == "ApplyTemplate", roll
        batches.append(roll.batch)
        left = {number: one for number, one in facts.members.items() if number not in roll.batch}
        facts = replace(facts, members=left)
    assert batches == [(3, 4), (1,), (2,), (0,)], "the active controller is last"


def test_a_partition_that_appears_after_the_choice_keeps_its_broker_from_being_stopped() -> None:
    facts = _facts(_member(0), _member(1, pending=True), partitions=(SINGLE,))
    recorded = Roll("r1", "broker", "DeletePod", NOW, (1,), pods={1: "u1"})
    decided = decide(recorded, facts)
    assert decided.delete == () and decided.roll is not None and decided.roll.step == "PickNext"
    assert decide(recorded, replace(facts, allows_unavailability=True)).delete == ((1, "u1"),)


def test_the_only_broker_of_a_fleet_is_restarted_and_so_is_one_that_is_not_ready() -> None:
    recorded = Roll("r1", "broker", "DeletePod", NOW, (1,), pods={1: "u1"})
    assert decide(recorded, _facts(_member(1, pending=True), partitions=(SINGLE,))).delete == ((1, "u1"),)
    down = _member(1, pending=True, ready=False)
    assert decide(recorded, _facts(_member(0), down, partitions=(SINGLE,))).delete == ((1, "u1"),)


CLOSED = Waiting("AwaitingWindow", "the maintenance window at 2026-01-03T21:00:00Z")


def test_outside_of_a_window_no_batch_is_chosen_and_the_plan_is_shown() -> None:
    facts = replace(_facts(_member(0), _member(1, pending=True)), waiting=CLOSED)
    first = decide(None, facts).roll
    assert first is not None and first.waiting == CLOSED and [one.id for one in first.plan] == [1]
    assert from_status(first.to_status()) == first
    again = decide(first, facts)
    assert again == RollDecision(first), "nothing to write, and no hurry"
    assert not is_blocked(first, "2026-01-02T00:00:00Z", patience_s=120.0)
    assert first.summary() == "broker: waits for the maintenance window at 2026-01-03T21:00:00Z, 0 of 1 done"


def test_a_roll_begins_when_the_window_opens_with_the_whole_patience_of_its_step() -> None:
    waited = Roll("r1", "broker", "PickNext", "2025-12-29T00:00:00Z", started="2025-12-29T00:00:00Z", waiting=CLOSED)
    partition = PartitionReport("t", 3, 1, (1, 2), (1,))
    facts = _facts(_member(0), _member(1, pending=True), _member(2), partitions=(partition,))
    begun = decide(waited, facts).roll
    assert begun is not None and (begun.waiting, begun.since, begun.started) == (None, NOW, NOW)
    assert begun.blocked_by and not is_blocked(begun, NOW, patience_s=120.0)
    healthy = decide(waited, _facts(_member(0), _member(1, pending=True))).roll
    assert healthy is not None and (healthy.step, healthy.batch) == ("ApplyTemplate", (1,))


def test_a_batch_of_which_nobody_was_stopped_is_left_when_the_window_closes_and_any_other_is_finished() -> None:
    open_facts = _facts(_member(0), _member(1, pending=True))
    for step in ("ApplyTemplate", "MoveLeaders", "DeletePod"):
        roll = Roll("r1", "broker", step, NOW, (1,), pods={1: "u1"})  # type: ignore[arg-type]
        decided = decide(roll, replace(open_facts, waiting=CLOSED))
        assert decided.apply == () and decided.delete == () and decided.moves == (), step
        assert decided.roll is not None and (decided.roll.step, decided.roll.batch) == ("PickNext", ()), step
    moving = Roll("r1", "broker", "MoveLeaders", NOW, (1,), pods={1: "u1"}, moving=(MOVE,))
    decided = decide(moving, replace(_with_leaders(_leading(1, 0, 2)), waiting=CLOSED))
    assert decided.only_restore and decided.moves == (MOVE,), "orders of replicas come back first"
    rest = replace(_member(2, pending=True), rack="a")
    stopped = replace(_member(1), pod=replace(READY, uid="new"), rack="a")
    half = Roll("r1", "broker", "DeletePod", NOW, (1, 2), pods={1: "u1", 2: "u2"})
    decided = decide(half, replace(_facts(_member(0), stopped, rest), waiting=CLOSED))
    assert decided.delete == ((2, "u2"),), "one of the batch has been stopped"
    for step in ("WaitReady", "WaitInSync"):
        roll = Roll("r1", "broker", step, NOW, (1,))  # type: ignore[arg-type]
        unready = decide(roll, replace(_facts(_member(0), _member(1, ready=False)), waiting=CLOSED)).roll
        assert unready is not None and (unready.step, unready.batch) == ("WaitReady", (1,))


def test_what_repairs_a_member_does_not_wait_for_a_window() -> None:
    waited = Roll("r1", "broker", "PickNext", NOW, waiting=CLOSED)
    down = replace(_member(2, pending=True, ready=False), heals=True)
    comes_back = _member(2, pending=True, ready=False)
    for repaired in (down, replace(_member(2, pending=True), heals=True)):
        facts = replace(_facts(_member(0), _member(1, pending=True), repaired), waiting=CLOSED)
        decided = decide(waited, facts).roll
        assert decided is not None and (decided.step, decided.batch, decided.waiting) == ("ApplyTemplate", (2,), None)
        assert not decide(decided, facts).apply, "the template is as it should be"
        assert decide(decided, facts).roll.step == "DeletePod"  # type: ignore[union-attr]
    facts = replace(_facts(_member(0), _member(1, pending=True), comes_back), waiting=CLOSED)
    assert decide(waited, facts).roll == replace(waited, plan=decide(waited, facts).roll.plan)  # type: ignore[union-attr]


def test_zookeeper_servers_are_restarted_one_at_a_time() -> None:
    facts = replace(_facts(*_racks("", "", "")), role="zookeeper", has_partitions=False, kafka=None)
    picked = decide(Roll("r1", "zookeeper", "PickNext", NOW), facts).roll
    assert picked is not None and picked.batch == (0,)


def test_the_roll_of_an_earlier_release_goes_on() -> None:
    status = {"id": "r1", "role": "broker", "step": "DeletePod", "batch": [1], "since": NOW, "podUid": "u1"}
    roll = from_status(status)
    assert roll is not None
    assert decide(roll, _facts(_member(0), _member(1, pending=True))).delete == ((1, "u1"),)


@st.composite
def _fleets(draw: st.DrawFn) -> tuple[Roll | None, RollFacts]:
    flags = st.booleans()
    members = {}
    for number in range(draw(st.integers(1, 4))):
        pod = MemberPod(f"u{number}", *(draw(flags) for _ in range(5))) if draw(flags) else None
        rack = draw(st.sampled_from(("a", "b", "")))
        members[number] = RollMember(number, ("X",) if draw(flags) else (), draw(flags), pod, rack)
    partitions = []
    for index in range(draw(st.integers(0, 3))):
        replicas = tuple(draw(st.lists(st.sampled_from(sorted(members)), min_size=1, unique=True)))
        in_sync = tuple(broker for broker in replicas if draw(flags))
        partitions.append(
            PartitionReport("t", index, replicas[0], replicas, in_sync, draw(st.sampled_from((None, 1, 2))))
        )
    brokers = tuple(number for number in members if draw(flags))
    kafka = ClusterMetadata("c", 0, brokers, tuple(partitions)) if draw(flags) else None
    roll = None
    if draw(flags):
        batch = tuple(sorted(draw(st.sets(st.integers(0, 4), max_size=3))))
        pods = {number: f"u{number}" for number in batch if draw(flags)}
        roll = Roll("r1", "broker", draw(st.sampled_from(STEPS)), NOW, batch, (), (), pods)  # type: ignore[arg-type]
    waiting = CLOSED if draw(flags) else None
    others = [_member(5, ready=draw(flags))] if draw(flags) else []
    size = len(members) + len(others)
    return roll, RollFacts(
        "broker", members, kafka, True, NOW, "r1", size, others, restores_leaders=draw(flags), waiting=waiting
    )


@settings(max_examples=500, deadline=None)
@given(_fleets())
def test_no_decision_makes_a_partition_unavailable(fleet: tuple[Roll | None, RollFacts]) -> None:
    roll, facts = fleet
    decided = decide(roll, facts)
    if decided.apply or decided.delete:
        assert roll is not None and decided.roll is not None
        assert (decided.roll.step, decided.roll.batch) == (roll.step, roll.batch), "an act only in a recorded step"
    if decided.elect:
        assert roll is not None and roll.step == "RestoreLeaders" and decided.delete == () and facts.restores_leaders
        assert facts.kafka is not None
        asked = [p for p in facts.kafka.partitions if (p.topic, p.index) in decided.elect]
        assert all(p.replicas[0] in roll.batch and p.replicas[0] in p.in_sync for p in asked)
    if decided.moves:
        assert (
            roll is not None and set(decided.moves) <= set(roll.moving) and decided.delete == () and decided.apply == ()
        )
    if decided.delete == ():
        return
    assert roll is not None and roll.step == "DeletePod"
    if facts.waiting is not None and not any(number not in dict(decided.delete) for number in roll.pods):
        assert not any(facts.members[number].is_ready and not facts.members[number].heals for number in roll.batch)
    assert all(number in roll.batch and roll.pods[number] == uid for number, uid in decided.delete)
    pods = {number: facts.members[number].pod for number in roll.batch}
    stopping = {number for number, pod in pods.items() if pod is not None and pod.is_running}
    if not stopping:
        return
    assert facts.kafka is not None
    for partition in facts.kafka.partitions:
        if stopping & set(partition.in_sync) and len(partition.replicas) > 1:
            left = set(partition.in_sync) - set(roll.batch)
            assert left and len(left) >= needed_in_sync(partition)
