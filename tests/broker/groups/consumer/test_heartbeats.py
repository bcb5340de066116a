"""ConsumerGroupHeartbeat on one group: what each member is told, and when."""

from __future__ import annotations

from typing import Any

import pytest

from ottla_broker.groups.consumer.assignors.offered import offered_assignors
from ottla_broker.groups.consumer.group_image import Assignment, partitions_of
from ottla_broker.groups.consumer.group_requests import GroupHeartbeat, GroupRequestRefused, MemberTimer, MemberTimerKey
from ottla_broker.groups.consumer.heartbeats import check_heartbeat
from ottla_broker.groups.consumer.states import MemberState
from ottla_broker.protocol.errors import ErrorCode
from tests.broker.groups.consumer.group_driver import Client, GroupDriver, Topics


def numbers(assignment: Assignment | None) -> list[int] | None:
    return None if assignment is None else [partition for _, partition in partitions_of(assignment)]


def owns(*partitions: int, topic: int = 1) -> Assignment:
    return {topic.to_bytes(16): frozenset(partitions)} if partitions else {}


# Joining and rebalancing


def test_the_first_member_gets_every_partition_at_once() -> None:
    driver = GroupDriver()
    answer = driver.heartbeat("a", 0)
    assert (answer.error, answer.member_id, answer.member_epoch) == (ErrorCode.NONE, "a", 1)
    assert numbers(answer.assignment) == [0, 1, 2, 3]
    assert answer.heartbeat_interval_ms == 5_000
    assert driver.group.state.value == "Stable"


def test_a_heartbeat_without_news_has_no_assignment_and_writes_nothing() -> None:
    driver = GroupDriver()
    driver.heartbeat("a", 0)
    length = len(driver.log)
    answer = driver.heartbeat("a", 1)
    assert (answer.error, answer.member_epoch, answer.assignment) == (ErrorCode.NONE, 1, None)
    assert len(driver.log) == length


def test_a_full_request_is_answered_with_the_assignment() -> None:
    driver = GroupDriver()
    driver.heartbeat("a", 0)
    answer = driver.heartbeat(
        "a", 1, rebalance_timeout_ms=60_000, subscribed_topic_names=("t",), owned=owns(0, 1, 2, 3)
    )
    assert numbers(answer.assignment) == [0, 1, 2, 3]


def test_a_member_revokes_before_another_one_gets_the_partition() -> None:
    driver = GroupDriver()
    driver.heartbeat("a", 0)
    joined = driver.heartbeat("b", 0)
    assert (joined.member_epoch, numbers(joined.assignment)) == (2, [])
    assert driver.group.image.members["b"].state is MemberState.UNRELEASED_PARTITIONS

    told = driver.heartbeat("a", 1)
    assert (told.member_epoch, numbers(told.assignment)) == (1, [0, 1])
    assert driver.group.image.members["a"].state is MemberState.UNREVOKED_PARTITIONS
    still_owned = driver.heartbeat("b", 2)
    assert still_owned.assignment is None

    unfinished = driver.heartbeat("a", 1, owned=owns(0, 1, 2))
    assert (unfinished.member_epoch, unfinished.assignment) == (1, None)
    revoked = driver.heartbeat("a", 1, owned=owns(0, 1))
    assert (revoked.member_epoch, revoked.assignment) == (2, None)
    released = driver.heartbeat("b", 2)
    assert (released.member_epoch, numbers(released.assignment)) == (2, [2, 3])
    assert driver.group.state.value == "Stable"


def test_the_partitions_of_a_member_that_leaves_go_to_the_others() -> None:
    driver = GroupDriver()
    a, b = Client("a", names=("t",)), Client("b", names=("t",))
    driver.settle(a, b)
    assert driver.leave(b).member_epoch == -1
    assert driver.group.state.value == "Assigning"
    driver.settle(a)
    assert numbers(a.owned) == [0, 1, 2, 3]
    driver.leave(a)
    assert driver.group.state.value == "Empty"
    assert driver.timers == {}


def test_a_changed_subscription_gives_a_new_assignment() -> None:
    driver = GroupDriver(Topics(t=2, u=2))
    driver.heartbeat("a", 0)
    changed = driver.heartbeat("a", 1, subscribed_topic_names=("u", "t", "u"))
    assert (changed.member_epoch, numbers(changed.assignment)) == (2, [0, 1, 0, 1])
    less = driver.heartbeat("a", 2, subscribed_topic_names=("u",))
    assert (less.member_epoch, numbers(less.assignment)) == (2, [0, 1])
    assert driver.heartbeat("a", 2, owned=owns(0, 1, topic=2)).member_epoch == 3


def test_a_member_may_subscribe_to_nothing() -> None:
    driver = GroupDriver()
    answer = driver.heartbeat("a", 0, subscribed_topic_names=())
    assert (answer.error, answer.member_epoch, numbers(answer.assignment)) == (ErrorCode.NONE, 1, [])


# Topics


def test_new_partitions_are_assigned_with_the_next_heartbeat_of_any_member() -> None:
    driver = GroupDriver(Topics(t=2))
    a, b = Client("a", names=("t",)), Client("b", names=("t",))
    driver.settle(a, b)
    driver.topics.grow("t", 4)
    driver.settle(a, b)
    assert sorted([*(numbers(a.owned) or []), *(numbers(b.owned) or [])]) == [0, 1, 2, 3]
    assert len(numbers(a.owned) or []) == 2


def test_a_topic_that_is_created_later_is_assigned() -> None:
    driver = GroupDriver(Topics())
    a = Client("a", names=("t",))
    driver.beat(a)
    assert a.owned == {}
    driver.topics.create("t", 3)
    driver.beat(a)
    assert numbers(a.owned) == [0, 1, 2]


def test_a_deleted_topic_leaves_the_assignment_and_one_of_its_name_has_a_new_one() -> None:
    driver = GroupDriver(Topics(t=2))
    a = Client("a", names=("t",))
    driver.settle(a)
    driver.topics.delete("t")
    driver.settle(a)
    assert a.owned == {}
    driver.topics.create("t", 1)
    driver.settle(a)
    assert a.owned == owns(0, topic=2)


def test_topics_that_nobody_subscribes_to_change_nothing() -> None:
    driver = GroupDriver()
    driver.heartbeat("a", 0)
    driver.topics.create("other", 8)
    assert driver.heartbeat("a", 1).member_epoch == 1


# Epochs


def test_a_member_of_an_older_epoch_is_fenced() -> None:
    driver = GroupDriver(Topics(t=1, u=1, v=1))
    driver.heartbeat("a", 0)
    driver.heartbeat("a", 1, subscribed_topic_names=("t", "u"))
    driver.heartbeat("a", 2, subscribed_topic_names=("t", "u", "v"))
    answer = driver.heartbeat("a", 1, owned=owns(0))
    assert answer.error is ErrorCode.FENCED_MEMBER_EPOCH
    assert "a smaller member epoch (1) than the one known by the group coordinator (3)" in (answer.message or "")


def test_a_member_of_a_newer_epoch_is_fenced() -> None:
    driver = GroupDriver()
    driver.heartbeat("a", 0)
    assert driver.heartbeat("a", 2).error is ErrorCode.FENCED_MEMBER_EPOCH


def test_a_member_whose_answer_was_lost_is_accepted_with_its_previous_epoch() -> None:
    driver = GroupDriver(Topics(t=1, u=1))
    driver.heartbeat("a", 0)
    driver.heartbeat("a", 1, subscribed_topic_names=("t", "u"))
    assert driver.heartbeat("a", 1).error is ErrorCode.FENCED_MEMBER_EPOCH, "it does not say what it owns"
    assert driver.heartbeat("a", 1, owned=owns(0, topic=7)).error is ErrorCode.FENCED_MEMBER_EPOCH
    again = driver.heartbeat("a", 1, rebalance_timeout_ms=60_000, subscribed_topic_names=("t", "u"), owned=owns(0))
    assert (again.member_epoch, numbers(again.assignment)) == (2, [0, 0])


def test_a_first_heartbeat_that_is_sent_twice_joins_once() -> None:
    driver = GroupDriver()
    first, second = driver.heartbeat("a", 0), driver.heartbeat("a", 0)
    assert first == second
    assert len(driver.group.image.members) == 1


def test_a_member_that_is_not_in_the_group_has_to_join() -> None:
    driver = GroupDriver()
    driver.heartbeat("a", 0)
    assert driver.heartbeat("b", 1).error is ErrorCode.UNKNOWN_MEMBER_ID
    assert driver.heartbeat("b", -1).error is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_member_without_an_id_is_given_one() -> None:
    driver = GroupDriver()
    answer = driver.heartbeat("", 0, new_member_id="chosen")
    assert answer.member_id == "chosen"
    assert driver.heartbeat("chosen", answer.member_epoch).error is ErrorCode.NONE


def test_a_full_group_takes_nobody_new() -> None:
    driver = GroupDriver(group_consumer_max_size=1)
    driver.heartbeat("a", 0)
    assert driver.heartbeat("b", 0).error is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert driver.heartbeat("a", 1).error is ErrorCode.NONE


def test_a_member_in_a_state_of_a_newer_release_has_to_join_again_without_partitions() -> None:
    driver = GroupDriver()
    driver.heartbeat("a", 0)
    driver.heartbeat("b", 0)
    image = driver.group.image
    member = image.members["a"]
    driver.group.install(image.with_member(_with_state(member, MemberState.UNKNOWN)))
    assert driver.heartbeat("a", 1, owned=owns(0)).error is ErrorCode.FENCED_MEMBER_EPOCH
    assert driver.heartbeat("a", 1, owned={}).member_epoch == 2


def _with_state(member: Any, state: MemberState) -> Any:
    from dataclasses import replace

    return replace(member, state=state)


# Timers


def test_a_member_that_sends_no_heartbeat_is_removed_after_its_session_timeout() -> None:
    driver = GroupDriver()
    a, b = Client("a", names=("t",)), Client("b", names=("t",))
    driver.settle(a, b)
    driver.advance(44_000)
    driver.beat(a)
    driver.advance(1_000)
    assert list(driver.group.image.members) == ["a"]
    driver.beat(a)
    assert numbers(a.owned) == [0, 1, 2, 3]
    assert driver.beat(b) is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_member_that_does_not_revoke_within_its_rebalance_timeout_is_removed() -> None:
    driver = GroupDriver(group_consumer_session_timeout_ms=300_000)
    a = Client("a", names=("t",))
    driver.settle(a)
    driver.heartbeat("b", 0)
    driver.heartbeat("a", 1)
    driver.advance(59_999)
    driver.heartbeat("a", 1, owned=owns(0, 1, 2))
    assert "a" in driver.group.image.members
    driver.advance(1)
    assert "a" not in driver.group.image.members
    assert numbers(driver.heartbeat("b", 2).assignment) == [0, 1, 2, 3]


def test_a_member_that_has_revoked_in_time_stays() -> None:
    driver = GroupDriver(group_consumer_session_timeout_ms=300_000)
    driver.heartbeat("a", 0)
    driver.heartbeat("b", 0)
    driver.heartbeat("a", 1)
    driver.heartbeat("a", 1, owned=owns(0, 1))
    driver.advance(120_000)
    assert list(driver.group.image.members) == ["a", "b"]


def test_a_loaded_group_gives_its_members_a_session_timeout_and_a_rebalance_timeout() -> None:
    driver = GroupDriver()
    driver.heartbeat("a", 0)
    driver.heartbeat("b", 0)
    driver.heartbeat("a", 1)
    driver.restart()
    assert driver.timers == {
        MemberTimerKey(MemberTimer.SESSION, "a"): driver.now_ms + 45_000,
        MemberTimerKey(MemberTimer.REVOCATION, "a"): driver.now_ms + 60_000,
        MemberTimerKey(MemberTimer.SESSION, "b"): driver.now_ms + 45_000,
    }
    assert driver.heartbeat("a", 1, owned=owns(0, 1)).member_epoch == 2


# Static members


def test_a_static_member_that_leaves_for_a_while_has_its_partitions_when_it_comes_back() -> None:
    driver = GroupDriver()
    static, other = Client("s1", "i", ("t",)), Client("b", names=("t",))
    driver.settle(static, other)
    before = static.owned
    epoch = driver.group.image.epoch
    assert driver.leave(static, -2).member_epoch == -2
    driver.beat(other)
    back = Client("s2", "i", ("t",))
    driver.beat(back)
    assert (back.owned, back.epoch, driver.group.image.epoch) == (before, epoch, epoch)
    assert list(driver.group.image.members) == ["b", "s2"]
    assert driver.heartbeat("s1", epoch, instance_id="i").error is ErrorCode.FENCED_INSTANCE_ID


def test_an_instance_id_that_is_in_use_is_not_given_to_another_member() -> None:
    driver = GroupDriver()
    driver.heartbeat("s1", 0, instance_id="i")
    answer = driver.heartbeat("s2", 0, instance_id="i")
    assert answer.error is ErrorCode.UNRELEASED_INSTANCE_ID
    assert "the instance id is owned by s1 member" in (answer.message or "")


def test_a_static_member_that_does_not_come_back_is_removed_after_its_session_timeout() -> None:
    driver = GroupDriver()
    static, other = Client("s1", "i", ("t",)), Client("b", names=("t",))
    driver.settle(static, other)
    driver.leave(static, -2)
    driver.advance(40_000)
    driver.beat(other)
    driver.advance(5_000)
    driver.settle(other)
    assert numbers(other.owned) == [0, 1, 2, 3]


def test_a_static_member_that_leaves_for_good_gives_up_its_partitions() -> None:
    driver = GroupDriver()
    static, other = Client("s1", "i", ("t",)), Client("b", names=("t",))
    driver.settle(static, other)
    driver.leave(static)
    driver.settle(other)
    assert numbers(other.owned) == [0, 1, 2, 3]


def test_unknown_instance_ids_are_refused() -> None:
    driver = GroupDriver()
    driver.heartbeat("s1", 0, instance_id="i")
    assert driver.heartbeat("s1", 1, instance_id="j").error is ErrorCode.UNKNOWN_MEMBER_ID
    assert driver.heartbeat("s1", -2, instance_id="j").error is ErrorCode.UNKNOWN_MEMBER_ID
    assert driver.heartbeat("s9", -1, instance_id="i").error is ErrorCode.FENCED_INSTANCE_ID


def test_a_static_member_that_changes_its_subscription_when_it_comes_back_is_assigned_again() -> None:
    driver = GroupDriver(Topics(t=2, u=2))
    driver.settle(Client("s1", "i", ("t",)))
    driver.heartbeat("s1", -2, instance_id="i")
    answer = driver.heartbeat("s2", 0, instance_id="i", subscribed_topic_names=("u",))
    assert (answer.member_epoch, numbers(answer.assignment)) == (2, [0, 1])


# Assignors


def test_the_assignor_that_most_members_name_is_used() -> None:
    driver = GroupDriver(Topics(t=3, u=3))
    a = Client("a", names=("t", "u"), assignor="range")
    b = Client("b", names=("t", "u"), assignor="range")
    driver.settle(a, b)
    assert a.owned == owns(0, 1) | owns(0, 1, topic=2)


# Regular expressions


def test_a_member_with_an_expression_is_assigned_once_the_topics_are_found() -> None:
    driver = GroupDriver(Topics(t1=1, t2=1, u=1))
    a = Client("a", regex="t.*")
    driver.beat(a)
    assert (a.epoch, a.owned) == (1, {})
    driver.resolve()
    driver.beat(a)
    assert (a.epoch, a.owned) == (2, owns(0) | owns(0, topic=2))
    assert driver.group.is_subscribed_to("t1")
    assert not driver.group.is_subscribed_to("u")


def test_a_new_topic_that_an_expression_matches_is_assigned_after_ten_seconds() -> None:
    driver = GroupDriver(Topics(t1=1))
    a = Client("a", regex="t.*")
    driver.beat(a)
    driver.resolve()
    driver.settle(a)
    driver.topics.create("t2", 1)
    driver.advance(10_000)
    driver.beat(a)
    assert driver.pending == ()
    driver.advance(1)
    driver.beat(a)
    assert driver.pending == ("t.*",)
    driver.resolve()
    driver.settle(a)
    assert set(a.owned) == {(1).to_bytes(16), (2).to_bytes(16)}


def test_expressions_are_resolved_again_after_ten_minutes_and_nothing_changes_without_news() -> None:
    driver = GroupDriver(Topics(t1=1), group_consumer_session_timeout_ms=3_600_000)
    a = Client("a", regex="t.*")
    driver.beat(a)
    driver.resolve()
    driver.settle(a)
    epoch = driver.group.image.epoch
    driver.advance(600_001)
    driver.beat(a)
    driver.resolve()
    driver.beat(a)
    assert driver.group.image.epoch == epoch


def test_members_with_an_expression_and_with_names_share_the_topics_of_both() -> None:
    driver = GroupDriver(Topics(t1=2, u=2))
    a, b = Client("a", regex="t.*"), Client("b", names=("t1", "u"))
    driver.beat(a)
    driver.resolve()
    driver.settle(a, b)
    assert a.owned == owns(0, 1)
    assert b.owned == owns(0, 1, topic=2)


def test_an_expression_that_re2_refuses_is_refused() -> None:
    driver = GroupDriver()
    answer = driver.heartbeat("a", 0, subscribed_topic_regex="(?=t)")
    assert answer.error is ErrorCode.INVALID_REGULAR_EXPRESSION
    assert answer.message == (
        "SubscribedTopicRegex `(?=t)` is not a valid regular expression: invalid perl operator: (?=."
    )


def test_an_expression_that_nobody_has_any_more_is_forgotten() -> None:
    driver = GroupDriver(Topics(t1=1, u=1))
    a = Client("a", regex="t.*")
    driver.beat(a)
    driver.resolve()
    driver.settle(a)
    a.regex, a.names = "", ("u",)
    driver.settle(a)
    assert driver.group.image.expressions == {}
    assert a.owned == owns(0, topic=2)


def test_a_member_that_takes_an_expression_which_is_resolved_is_assigned_at_once() -> None:
    driver = GroupDriver(Topics(t1=2))
    a = Client("a", regex="t.*")
    driver.beat(a)
    driver.resolve()
    driver.settle(a)
    b = Client("b", regex="t.*")
    driver.settle(a, b)
    assert len(numbers(b.owned) or []) == 1


# Requests that no group can be asked


@pytest.mark.parametrize(
    ("version", "group_id", "changes", "message"),
    [
        (1, "g", {"member_id": ""}, "MemberId can't be empty."),
        (0, "g", {"member_id": "", "member_epoch": 1}, "MemberId can't be empty."),
        (0, "g", {"member_id": "", "member_epoch": -1}, "MemberId can't be empty."),
        (1, "", {}, "GroupId can't be empty."),
        (1, "g", {"instance_id": ""}, "InstanceId can't be empty."),
        (1, "g", {"rack_id": " "}, "RackId can't be empty."),
        (1, "g", {"rebalance_timeout_ms": -1}, "RebalanceTimeoutMs must be provided in first request."),
        (1, "g", {"owned": None}, "TopicPartitions must be empty when (re-)joining."),
        (1, "g", {"owned": {b"t": frozenset({0})}}, "TopicPartitions must be empty when (re-)joining."),
        (
            1,
            "g",
            {"subscribed_topic_names": None},
            "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining.",
        ),
        (1, "g", {"member_epoch": -2}, "InstanceId can't be null."),
        (1, "g", {"member_epoch": -3}, "MemberEpoch is invalid."),
    ],
)
def test_a_request_with_a_wrong_field_is_refused_by_name(
    version: int, group_id: str, changes: dict[str, Any], message: str
) -> None:
    fields = {"member_id": "a", "member_epoch": 0, "rebalance_timeout_ms": 1, "subscribed_topic_names": (), "owned": {}}
    request = GroupHeartbeat(**(fields | changes))
    with pytest.raises(GroupRequestRefused) as refused:
        check_heartbeat(group_id, request, version, offered_assignors(["uniform"]))
    assert (refused.value.error, refused.value.message) == (ErrorCode.INVALID_REQUEST, message)


def test_an_assignor_that_the_broker_does_not_offer_is_refused() -> None:
    request = GroupHeartbeat("a", 1, server_assignor="range")
    with pytest.raises(GroupRequestRefused, match="ServerAssignor range is not supported") as refused:
        check_heartbeat("g", request, 1, offered_assignors(["uniform"]))
    assert refused.value.error is ErrorCode.UNSUPPORTED_ASSIGNOR


# Offsets


def test_offsets_are_taken_from_members_of_the_current_epoch() -> None:
    driver = GroupDriver()

    def check(member_id: str, epoch: int, version: int = 9) -> ErrorCode:
        return driver.group.check_commit(member_id, epoch, None, api_version=version, is_transactional=False)

    assert check("", -1) is ErrorCode.NONE, "a group without members takes offsets from anybody"
    driver.heartbeat("a", 0)
    assert check("a", 1) is ErrorCode.NONE
    assert check("a", 0) is ErrorCode.STALE_MEMBER_EPOCH
    assert check("a", 1, 8) is ErrorCode.UNSUPPORTED_VERSION
    assert check("b", 1) is ErrorCode.UNKNOWN_MEMBER_ID
    assert check("", -1) is ErrorCode.UNKNOWN_MEMBER_ID
    assert driver.group.check_commit("", -1, None, api_version=3, is_transactional=True) is ErrorCode.NONE
    assert driver.group.check_fetch(None, -1) is ErrorCode.NONE
    assert driver.group.check_fetch("a", 1) is ErrorCode.NONE
    assert driver.group.check_fetch("a", 2) is ErrorCode.STALE_MEMBER_EPOCH
    assert driver.group.check_fetch("b", 1) is ErrorCode.UNKNOWN_MEMBER_ID
