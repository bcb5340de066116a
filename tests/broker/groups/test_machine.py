"""The rules of the group machine, one by one."""

from __future__ import annotations

import pytest

from ottla_broker.groups.decisions import GroupConfig, LeavingMember, TimerKey, TimerKind, WritePurpose
from ottla_broker.groups.machine import NEW_MEMBER_JOIN_TIMEOUT_MS, Group
from ottla_broker.groups.states import GroupState
from ottla_broker.protocol.errors import ErrorCode
from tests.broker.groups.driver import Driver

NONE = ErrorCode.NONE
RANGE_STICKY = (("range", b"r"), ("sticky", b"s"))
STICKY_RANGE = (("sticky", b"s"), ("range", b"r"))


def test_the_first_members_wait_for_the_initial_delay_which_newcomers_extend() -> None:
    driver = Driver(group_initial_rebalance_delay_ms=3_000)
    first = driver.join()
    driver.advance(2_000)
    second = driver.join()
    driver.advance(2_000)
    assert first not in driver.joins
    third = driver.join()
    driver.advance(1_999)
    assert first not in driver.joins
    driver.advance(1)
    # The third came within the extension, which is extended once more.
    assert first not in driver.joins
    driver.advance(3_000)
    answers = [driver.joins[ticket] for ticket in (first, second, third)]
    assert {answer.generation_id for answer in answers} == {1}
    assert {answer.leader for answer in answers} == {answers[0].member_id}
    assert [member.member_id for member in answers[0].members] == [answer.member_id for answer in answers]
    assert answers[1].members == () and answers[2].members == ()


def test_the_initial_delay_never_exceeds_the_rebalance_timeout() -> None:
    driver = Driver(group_initial_rebalance_delay_ms=3_000)
    first = driver.join(rebalance_timeout_ms=4_000)
    for _ in range(8):
        driver.advance(500)
        driver.join(rebalance_timeout_ms=4_000)
    assert driver.joins[first].generation_id == 1


def test_a_group_without_initial_delay_begins_in_the_next_turn() -> None:
    driver = Driver(group_initial_rebalance_delay_ms=0)
    ticket = driver.join()
    assert ticket not in driver.joins
    driver.advance(0)
    assert driver.joins[ticket].error is NONE


def test_every_member_gets_its_part_of_the_stored_assignment_and_an_empty_one_when_left_out() -> None:
    driver = Driver()
    tickets = [driver.join(), driver.join(), driver.join()]
    driver.advance(6_000)
    leader, second, forgotten = (driver.joins[ticket].member_id for ticket in tickets)
    syncs = [
        driver.sync(forgotten, 1),
        driver.sync(leader, 1, {leader: b"L", second: b"S", "stranger": b"X"}),
        driver.sync(second, 1),
    ]
    assert driver.syncs == {}, "nobody is answered before the generation is stored"
    (write,) = driver.writes
    assert write.purpose is WritePurpose.ASSIGNMENT
    assert [(m.member_id, m.assignment) for m in write.snapshot.members] == [
        (leader, b"L"),
        (second, b"S"),
        (forgotten, b""),
    ]
    driver.finish_writes()
    assert [driver.syncs[ticket].assignment for ticket in syncs] == [b"", b"L", b"S"]
    assert driver.syncs[syncs[0]].protocol_type == "consumer"
    assert driver.state() is GroupState.STABLE


@pytest.mark.parametrize(
    "error", [ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.UNKNOWN_SERVER_ERROR]
)
def test_an_assignment_that_cannot_be_stored_is_nobodys_and_the_group_rebalances(error: ErrorCode) -> None:
    driver = Driver()
    ticket = driver.join()
    driver.advance(6_000)
    member = driver.joins[ticket].member_id
    sync = driver.sync(member, 1, {member: b"A"})
    driver.finish_writes(error)
    assert driver.syncs[sync].error is error
    assert driver.state() is GroupState.PREPARING_REBALANCE


def test_a_late_outcome_of_an_old_generation_changes_nothing() -> None:
    driver = Driver()
    (member,) = driver.stable_group(1)
    driver.join(member)  # the leader joins again: generation 2
    assert driver.group.generation_id == 2
    driver.sync(member, 2, {member: b"2"})
    old = driver.writes.pop()
    second = driver.join()
    driver.join(member)
    assert driver.group.generation_id == 3
    driver.carry_out(driver.group.stored(old, NONE, driver.now_ms))
    assert driver.state() is GroupState.COMPLETING_REBALANCE
    assert driver.joins[second].generation_id == 3


def test_members_vote_for_the_protocol_that_most_prefer() -> None:
    driver = Driver()
    driver.join(protocols=RANGE_STICKY)
    driver.join(protocols=STICKY_RANGE)
    driver.join(protocols=STICKY_RANGE)
    driver.advance(6_000)
    assert driver.group.protocol_name == "sticky"


def test_a_member_without_a_common_protocol_or_of_another_type_is_refused() -> None:
    driver = Driver()
    driver.stable_group(1)
    other_protocol = driver.join(protocols=(("roundrobin", b""),))
    other_type = driver.join(protocol_type="connect")
    nothing = driver.join(protocols=())
    for ticket in (other_protocol, other_type, nothing):
        assert driver.joins[ticket].error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert driver.state() is GroupState.STABLE


def test_an_empty_group_takes_any_type_but_not_none() -> None:
    driver = Driver()
    assert driver.joins[driver.join(protocol_type="")].error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    driver.stable_group(1, protocol_type="connect")
    assert driver.group.protocol_type == "connect"


def test_a_dynamic_member_comes_back_with_the_id_it_was_given() -> None:
    driver = Driver()
    ticket = driver.join(requires_known_member_id=True, new_member_id="given")
    assert driver.joins[ticket].error is ErrorCode.MEMBER_ID_REQUIRED
    assert driver.joins[ticket].member_id == "given"
    assert not len(driver.group.membership)
    ticket = driver.join("given", requires_known_member_id=True)
    driver.advance(6_000)
    assert driver.joins[ticket].member_id == "given"
    assert driver.joins[ticket].error is NONE


def test_a_given_id_that_nobody_uses_is_forgotten_after_the_session_timeout() -> None:
    driver = Driver()
    driver.join(requires_known_member_id=True, new_member_id="given", session_timeout_ms=10_000)
    driver.advance(10_000)
    assert driver.joins[driver.join("given")].error is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_rebalance_waits_for_members_that_were_given_an_id() -> None:
    driver = Driver()
    (leader,) = driver.stable_group(1)
    driver.join(requires_known_member_id=True, new_member_id="given")
    rejoined = driver.join(leader)
    assert rejoined not in driver.joins
    newcomer = driver.join("given")
    assert driver.joins[rejoined].generation_id == driver.joins[newcomer].generation_id == 2


def test_heartbeats_keep_a_member_and_silence_removes_it() -> None:
    driver = Driver()
    leader, follower = driver.stable_group(2, session_timeout_ms=10_000)
    for _ in range(4):
        driver.advance(9_000)
        assert driver.heartbeat(leader, 1) is NONE
        assert driver.heartbeat(follower, 1) is NONE
    driver.advance(9_999)
    driver.heartbeat(leader, 1)
    driver.advance(1)
    assert driver.state() is GroupState.PREPARING_REBALANCE
    assert driver.heartbeat(leader, 1) is ErrorCode.REBALANCE_IN_PROGRESS
    assert driver.heartbeat(follower, 1) is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_member_that_waits_needs_no_heartbeat() -> None:
    driver = Driver()
    leader, follower = driver.stable_group(2, session_timeout_ms=6_000, rebalance_timeout_ms=60_000)
    waiting = driver.join(leader)
    for _ in range(9):
        driver.advance(5_000)
        assert driver.heartbeat(follower, 1) is ErrorCode.REBALANCE_IN_PROGRESS
    assert waiting not in driver.joins
    assert leader in driver.group.membership


def test_a_new_member_may_wait_only_so_long() -> None:
    driver = Driver()
    (leader,) = driver.stable_group(1, rebalance_timeout_ms=10 * NEW_MEMBER_JOIN_TIMEOUT_MS)
    newcomer = driver.join(rebalance_timeout_ms=10 * NEW_MEMBER_JOIN_TIMEOUT_MS)
    for _ in range(NEW_MEMBER_JOIN_TIMEOUT_MS // 5_000):
        assert newcomer not in driver.joins
        driver.advance(5_000)
        driver.heartbeat(leader, 1)
    assert driver.joins[newcomer].error is ErrorCode.UNKNOWN_MEMBER_ID


def test_members_that_do_not_rejoin_in_time_are_left_behind() -> None:
    driver = Driver()
    leader, follower = driver.stable_group(2, rebalance_timeout_ms=20_000, session_timeout_ms=30_000)
    waiting = driver.join(leader, rebalance_timeout_ms=20_000)
    driver.advance(20_000)
    assert driver.joins[waiting].generation_id == 2
    assert driver.heartbeat(follower, 1) is ErrorCode.UNKNOWN_MEMBER_ID


def test_the_longest_member_that_has_joined_leads_when_the_leader_is_late() -> None:
    driver = Driver()
    _, second, third = driver.stable_group(3, rebalance_timeout_ms=20_000, session_timeout_ms=30_000)
    changed = (("range", b"new topics"),)
    driver.join(third, protocols=changed, rebalance_timeout_ms=20_000)
    driver.join(second, rebalance_timeout_ms=20_000)
    driver.advance(20_000)
    assert driver.group.membership.leader_id == second


def test_members_that_never_sync_are_removed_after_the_rebalance_timeout() -> None:
    driver = Driver()
    leader_ticket, lazy_ticket = driver.join(session_timeout_ms=30_000), driver.join(session_timeout_ms=100_000)
    driver.advance(6_000)
    leader, lazy = driver.joins[leader_ticket].member_id, driver.joins[lazy_ticket].member_id
    driver.sync(leader, 1, {leader: b"L", lazy: b"Z"})
    driver.finish_writes()
    assert driver.state() is GroupState.STABLE
    for _ in range(6):
        driver.advance(10_000)
        driver.heartbeat(leader, 1)
    assert lazy not in driver.group.membership
    assert driver.state() is GroupState.PREPARING_REBALANCE


def test_a_follower_that_joins_again_unchanged_hears_the_generation_and_a_leader_starts_a_new_one() -> None:
    driver = Driver()
    leader, follower = driver.stable_group(2)
    again = driver.joins[driver.join(follower)]
    assert (again.error, again.generation_id, again.leader, again.members) == (NONE, 1, leader, ())
    assert driver.state() is GroupState.STABLE
    driver.join(leader)
    assert driver.state() is GroupState.PREPARING_REBALANCE


def test_a_lost_answer_is_repeated_while_the_assignment_is_awaited() -> None:
    driver = Driver()
    driver.join()
    driver.advance(3_000)
    leader = driver.group.membership.leader_id
    assert leader is not None
    again = driver.joins[driver.join(leader)]
    assert again.generation_id == 1
    assert [member.member_id for member in again.members] == [leader]


def test_changed_metadata_starts_a_rebalance_and_cancels_waiting_syncs() -> None:
    driver = Driver()
    tickets = [driver.join(), driver.join()]
    driver.advance(6_000)
    leader, follower = (driver.joins[ticket].member_id for ticket in tickets)
    sync = driver.sync(follower, 1)
    driver.join(leader, protocols=(("range", b"other topics"),))
    assert driver.syncs[sync].error is ErrorCode.REBALANCE_IN_PROGRESS


def test_a_newer_request_of_a_member_replaces_the_older_one() -> None:
    driver = Driver()
    leader, _ = driver.stable_group(2)
    first, second = driver.join(leader), driver.join(leader)
    assert driver.joins[first].error is ErrorCode.REBALANCE_IN_PROGRESS
    assert second not in driver.joins


def test_sync_errors_come_in_kafkas_order() -> None:
    driver = Driver()
    (member,) = driver.stable_group(1, group_instance_id="i")
    cases = {
        driver.sync("stranger", 7, group_instance_id="i"): ErrorCode.FENCED_INSTANCE_ID,
        driver.sync(member, 7, group_instance_id="j"): ErrorCode.UNKNOWN_MEMBER_ID,
        driver.sync("stranger", 7): ErrorCode.UNKNOWN_MEMBER_ID,
        driver.sync(member, 7, protocol_type="connect"): ErrorCode.ILLEGAL_GENERATION,
        driver.sync(member, 1, protocol_type="connect"): ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
        driver.sync(member, 1, protocol_name="sticky"): ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
        driver.sync(member, 1, protocol_type="consumer", protocol_name="range"): NONE,
    }
    assert {ticket: driver.syncs[ticket].error for ticket in cases} == cases


def test_commits_are_taken_by_generation_and_by_state() -> None:
    driver = Driver()
    assert driver.commit("", -1) is NONE
    assert driver.commit("anybody", 3) is ErrorCode.UNKNOWN_MEMBER_ID
    leader, follower = driver.stable_group(2)
    assert driver.commit("", -1) is ErrorCode.UNKNOWN_MEMBER_ID
    assert driver.commit(leader, -1) is ErrorCode.ILLEGAL_GENERATION
    assert driver.commit(leader, 0) is ErrorCode.ILLEGAL_GENERATION
    assert driver.commit(leader, 1) is NONE
    driver.join(leader)
    assert driver.commit(follower, 1) is NONE, "what was processed may still be committed"
    driver.join(follower)
    assert driver.state() is GroupState.COMPLETING_REBALANCE
    assert driver.commit(leader, 2) is ErrorCode.REBALANCE_IN_PROGRESS


def test_a_commit_counts_as_a_sign_of_life() -> None:
    driver = Driver()
    (member,) = driver.stable_group(1, session_timeout_ms=10_000)
    driver.advance(9_000)
    driver.commit(member, 1)
    driver.advance(9_000)
    assert driver.heartbeat(member, 1) is NONE


def test_leaving_answers_each_member_and_empties_the_group() -> None:
    driver = Driver()
    leader, follower = driver.stable_group(2)
    driver.join(requires_known_member_id=True, new_member_id="given")
    assert driver.leave(
        LeavingMember(leader),
        LeavingMember("stranger"),
        LeavingMember("given"),
        LeavingMember("", "no-such-instance"),
        LeavingMember(follower, reason="the consumer is being closed"),
    ) == [NONE, ErrorCode.UNKNOWN_MEMBER_ID, NONE, ErrorCode.UNKNOWN_MEMBER_ID, NONE]
    assert driver.state() is GroupState.EMPTY
    assert driver.group.generation_id == 2
    (write,) = driver.writes
    assert write.purpose is WritePurpose.EMPTY and write.snapshot.members == ()
    assert driver.group.protocol_type == "consumer", "it expires like a group that had members"


def test_a_member_that_leaves_while_it_waits_hears_so() -> None:
    driver = Driver()
    leader, _ = driver.stable_group(2)
    ticket = driver.join(leader)
    driver.leave(LeavingMember(leader))
    assert driver.joins[ticket].error is ErrorCode.UNKNOWN_MEMBER_ID
    assert driver.joins[ticket].member_id == ""


def test_a_full_group_turns_newcomers_away() -> None:
    driver = Driver(group_max_size=2)
    leader, _ = driver.stable_group(2)
    refused = driver.join()
    assert driver.joins[refused].error is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert driver.heartbeat(leader, 1) is NONE


def test_a_loaded_group_that_is_too_large_keeps_those_that_rejoin_first() -> None:
    large = Driver()
    members = large.stable_group(3)
    snapshot = large.group.snapshot()
    group = Group.restored(snapshot, GroupConfig(group_max_size=2), large.now_ms)
    driver = Driver(group)
    driver.carry_out(group.start(driver.now_ms))
    assert group.state is GroupState.PREPARING_REBALANCE
    tickets = [driver.join(member) for member in members]
    assert driver.joins[tickets[2]].error is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert driver.joins[tickets[0]].generation_id == driver.joins[tickets[1]].generation_id == 2


def test_a_restored_group_is_stable_and_its_members_have_a_session_timeout_to_show_up() -> None:
    before = Driver()
    leader, follower = before.stable_group(2, session_timeout_ms=10_000)
    group = Group.restored(before.group.snapshot(), GroupConfig(), before.now_ms)
    driver = Driver(group)
    driver.carry_out(group.start(driver.now_ms))
    assert group.state is GroupState.STABLE
    assert group.snapshot() == before.group.snapshot()
    assert driver.heartbeat(leader, 1) is NONE
    driver.advance(9_000)
    driver.heartbeat(leader, 1)
    driver.advance(1_000)
    assert driver.heartbeat(follower, 1) is ErrorCode.UNKNOWN_MEMBER_ID


def test_unloading_tells_whoever_waits_to_look_for_the_coordinator() -> None:
    driver = Driver()
    leader, _ = driver.stable_group(2)
    join = driver.join(leader)
    driver.carry_out(driver.group.unload(driver.now_ms))
    assert driver.joins[join].error is ErrorCode.NOT_COORDINATOR
    assert driver.timers == {}
    assert driver.joins[driver.join(leader)].error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert driver.heartbeat(leader, 1) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert driver.commit(leader, 1) is ErrorCode.COORDINATOR_NOT_AVAILABLE


# Static members (KIP-345)


def test_a_static_member_that_comes_back_keeps_its_place_without_a_rebalance() -> None:
    driver = Driver()
    ticket_a = driver.join(group_instance_id="a")
    ticket_b = driver.join(group_instance_id="b")
    driver.advance(6_000)
    a, b = driver.joins[ticket_a].member_id, driver.joins[ticket_b].member_id
    driver.sync(a, 1, {a: b"A", b: b"B"}, group_instance_id="a")
    driver.sync(b, 1, group_instance_id="b")
    driver.finish_writes()
    back = driver.join(group_instance_id="b", new_member_id="b-2")
    assert back not in driver.joins, "the new id is stored first"
    driver.finish_writes()
    answer = driver.joins[back]
    assert (answer.error, answer.member_id, answer.generation_id, answer.leader) == (NONE, "b-2", 1, a)
    sync = driver.sync("b-2", 1, group_instance_id="b")
    assert driver.syncs[sync].assignment == b"B"
    assert driver.heartbeat(b, 1, "b") is ErrorCode.FENCED_INSTANCE_ID
    assert driver.heartbeat("b-2", 1, "b") is NONE
    assert driver.state() is GroupState.STABLE


@pytest.mark.parametrize("can_skip", [False, True])
def test_a_static_leader_that_comes_back_does_not_assign(can_skip: bool) -> None:
    driver = Driver()
    (old,) = driver.stable_group(1, group_instance_id="a")
    back = driver.join(group_instance_id="a", new_member_id="new", supports_skipping_assignment=can_skip)
    driver.finish_writes()
    answer = driver.joins[back]
    assert answer.member_id == "new"
    if can_skip:
        assert (answer.leader, answer.skip_assignment) == ("new", True)
        assert [member.member_id for member in answer.members] == ["new"]
    else:
        assert (answer.leader, answer.skip_assignment, answer.members) == (old, False, ())
    assert driver.group.membership.leader_id == "new"


def test_a_static_member_keeps_its_old_id_when_the_new_one_cannot_be_stored() -> None:
    driver = Driver()
    (old,) = driver.stable_group(1, group_instance_id="a")
    back = driver.join(group_instance_id="a", new_member_id="new")
    driver.finish_writes(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    assert driver.joins[back].error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert driver.joins[back].member_id == ""
    assert driver.heartbeat(old, 1, "a") is NONE


def test_a_static_member_that_comes_back_with_another_choice_of_protocol_rebalances() -> None:
    driver = Driver()
    driver.stable_group(1, group_instance_id="a", protocols=RANGE_STICKY)
    back = driver.join(group_instance_id="a", protocols=STICKY_RANGE)
    assert driver.joins[back].generation_id == 2
    assert driver.joins[back].protocol_name == "sticky"


def test_a_static_member_that_comes_back_before_the_assignment_rebalances() -> None:
    driver = Driver()
    tickets = [driver.join(group_instance_id="a"), driver.join()]
    driver.advance(6_000)
    dynamic = driver.joins[tickets[1]].member_id
    sync = driver.sync(dynamic, 1)
    driver.join(group_instance_id="a")
    assert driver.syncs[sync].error is ErrorCode.REBALANCE_IN_PROGRESS
    assert driver.state() is GroupState.PREPARING_REBALANCE


def test_two_clients_with_one_instance_id_fence_the_older() -> None:
    driver = Driver()
    driver.stable_group(1)
    first = driver.join(group_instance_id="a")
    second = driver.join(group_instance_id="a")
    assert driver.joins[first].error is ErrorCode.FENCED_INSTANCE_ID
    assert second not in driver.joins


def test_a_static_member_survives_a_rebalance_that_it_missed() -> None:
    driver = Driver()
    ticket = driver.join(group_instance_id="a", session_timeout_ms=100_000, rebalance_timeout_ms=20_000)
    driver.advance(6_000)
    static = driver.joins[ticket].member_id
    driver.sync(static, 1, {static: b"A"})
    driver.finish_writes()
    newcomer = driver.join(rebalance_timeout_ms=20_000)
    driver.advance(20_000)
    assert driver.joins[newcomer].generation_id == 2
    assert driver.joins[newcomer].leader == driver.joins[newcomer].member_id
    assert static in [member.member_id for member in driver.joins[newcomer].members]


def test_a_rebalance_that_only_static_members_missed_waits_for_their_sessions() -> None:
    driver = Driver()
    tickets = [
        driver.join(group_instance_id="a", session_timeout_ms=100_000, rebalance_timeout_ms=20_000),
        driver.join(session_timeout_ms=100_000, rebalance_timeout_ms=20_000),
    ]
    driver.advance(6_000)
    static, dynamic = (driver.joins[ticket].member_id for ticket in tickets)
    driver.sync(static, 1, {static: b"A"})
    driver.sync(dynamic, 1)
    driver.finish_writes()
    driver.leave(LeavingMember(dynamic))
    driver.advance(25_000)
    assert driver.state() is GroupState.PREPARING_REBALANCE
    assert static in driver.group.membership
    driver.advance(100_000)
    assert driver.state() is GroupState.EMPTY


@pytest.mark.parametrize("timeout_ms", [0, -1])
def test_a_rebalance_timeout_of_nothing_does_not_spin(timeout_ms: int) -> None:
    driver = Driver()
    tickets = [driver.join(group_instance_id="a"), driver.join()]
    driver.advance(6_000)
    static, dynamic = (driver.joins[ticket].member_id for ticket in tickets)
    driver.sync(static, 1, {static: b"A"})
    driver.sync(dynamic, 1)
    driver.finish_writes()
    changed = {"rebalance_timeout_ms": timeout_ms, "session_timeout_ms": 100_000}
    driver.join(static, group_instance_id="a", **changed)
    driver.join(dynamic)
    driver.sync(static, 2, {static: b"A"})
    driver.sync(dynamic, 2)
    driver.finish_writes()
    driver.leave(LeavingMember(dynamic))
    driver.advance(50_000)
    assert driver.state() is GroupState.PREPARING_REBALANCE
    driver.advance(60_000)
    assert driver.state() is GroupState.EMPTY


def test_an_administrator_removes_a_static_member_by_its_instance_id() -> None:
    driver = Driver()
    driver.stable_group(1, group_instance_id="a")
    assert driver.leave(LeavingMember("stranger", "a")) == [ErrorCode.FENCED_INSTANCE_ID]
    assert driver.leave(LeavingMember("", "a")) == [NONE]
    assert driver.state() is GroupState.EMPTY


def test_topics_of_a_consumer_group_are_read_from_the_metadata_of_its_members() -> None:
    driver = Driver()
    orders = bytes.fromhex("0003000000010006") + b"orders" + bytes.fromhex("ffffffff00000000")
    driver.stable_group(2, protocols=(("range", orders),))
    assert driver.group.is_subscribed_to("orders")
    assert not driver.group.is_subscribed_to("payments")
    unreadable = Driver()
    unreadable.stable_group(1, protocols=(("range", b"?"),))
    assert unreadable.group.is_subscribed_to("anything"), "to be on the safe side"


def test_timers_end_with_what_they_watch() -> None:
    driver = Driver()
    leader, follower = driver.stable_group(2)
    assert set(driver.timers) == {TimerKey(TimerKind.SESSION, leader), TimerKey(TimerKind.SESSION, follower)}
    driver.leave(LeavingMember(leader), LeavingMember(follower))
    assert driver.timers == {}


def test_a_leader_that_hands_in_twice_has_its_first_assignment_stored() -> None:
    driver = Driver()
    ticket = driver.join()
    driver.advance(6_000)
    leader = driver.joins[ticket].member_id
    first = driver.sync(leader, 1, {leader: b"first"})
    second = driver.sync(leader, 1, {leader: b"second"})
    assert len(driver.writes) == 1
    driver.finish_writes()
    assert driver.syncs[first].error is ErrorCode.REBALANCE_IN_PROGRESS
    assert driver.syncs[second].assignment == b"first"


def test_a_member_that_has_its_generation_must_show_itself_within_its_session_timeout() -> None:
    driver = Driver()
    driver.join(session_timeout_ms=10_000)
    driver.advance(6_000)
    assert driver.state() is GroupState.COMPLETING_REBALANCE
    driver.advance(10_000)
    assert driver.state() is GroupState.EMPTY


def test_a_rebalance_ends_when_the_one_it_waited_for_leaves() -> None:
    driver = Driver()
    leader, follower = driver.stable_group(2)
    waiting = driver.join(leader)
    driver.leave(LeavingMember(follower))
    assert driver.joins[waiting].generation_id == 2
    driver.sync(leader, 2, {leader: b"A"})
    driver.finish_writes()
    driver.join(requires_known_member_id=True, new_member_id="given")
    waiting = driver.join(leader)
    assert waiting not in driver.joins
    driver.leave(LeavingMember("given"))
    assert driver.joins[waiting].generation_id == 3


def test_a_member_that_leaves_while_it_waits_for_its_assignment_hears_so() -> None:
    driver = Driver()
    tickets = [driver.join(), driver.join()]
    driver.advance(6_000)
    _, follower = (driver.joins[ticket].member_id for ticket in tickets)
    sync = driver.sync(follower, 1)
    driver.leave(LeavingMember(follower))
    assert driver.syncs[sync].error is ErrorCode.UNKNOWN_MEMBER_ID
