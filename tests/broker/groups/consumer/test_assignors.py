"""The server-side assignors: golden cases that follow from their rules, and their promises under random input."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla_broker.groups.consumer.assignors.assignor import Assignor, MemberSubscription
from ottla_broker.groups.consumer.assignors.offered import offered_assignors
from ottla_broker.groups.consumer.assignors.range_assignor import assign_range
from ottla_broker.groups.consumer.assignors.uniform_assignor import assign_uniform
from ottla_broker.groups.consumer.group_image import Assignment, partitions_of

T, U, V = b"t", b"u", b"v"


def subscribed(*topic_ids: bytes, has: Assignment | None = None, instance_id: str | None = None) -> MemberSubscription:
    return MemberSubscription(tuple(sorted(topic_ids)), instance_id, has or {})


def shown(assignments: dict[str, Assignment]) -> dict[str, str]:
    """Readable: {"a": "t0 t1"}."""
    return {
        member: " ".join(f"{topic.decode()}{partition}" for topic, partition in partitions_of(assignment))
        for member, assignment in sorted(assignments.items())
    }


# uniform


def test_uniform_gives_the_extra_partitions_to_the_last_of_new_members() -> None:
    members = {name: subscribed(T) for name in "abc"}
    assert shown(assign_uniform(members, {T: 5})) == {"a": "t0", "b": "t1 t2", "c": "t3 t4"}


def test_uniform_leaves_an_extra_partition_with_the_member_that_has_it() -> None:
    members = {
        "a": subscribed(T, has={T: frozenset({0, 1})}),
        "b": subscribed(T, has={T: frozenset({2, 3})}),
        "c": subscribed(T),
    }
    assert shown(assign_uniform(members, {T: 4})) == {"a": "t0 t1", "b": "t2", "c": "t3"}


def test_uniform_takes_from_each_member_only_what_is_above_its_share() -> None:
    before = {"a": subscribed(T, has={T: frozenset(range(6))}), "b": subscribed(T), "c": subscribed(T)}
    after = assign_uniform(before, {T: 6})
    assert shown(after) == {"a": "t0 t1", "b": "t2 t3", "c": "t4 t5"}


def test_uniform_gives_the_partitions_of_a_member_that_left_to_those_below_their_share() -> None:
    members = {"a": subscribed(T, has={T: frozenset({0, 1})}), "c": subscribed(T, has={T: frozenset({4, 5})})}
    assert shown(assign_uniform(members, {T: 6})) == {"a": "t0 t1 t2", "c": "t3 t4 t5"}


def test_uniform_gives_new_partitions_and_new_topics_without_moving_others() -> None:
    members = {
        "a": subscribed(T, U, has={T: frozenset({0})}),
        "b": subscribed(T, U, has={T: frozenset({1})}),
    }
    assert shown(assign_uniform(members, {T: 3, U: 1})) == {"a": "t0 t2", "b": "t1 u0"}


def test_uniform_takes_away_the_partitions_of_topics_that_are_not_subscribed_to_any_more() -> None:
    members = {"a": subscribed(U, has={T: frozenset({0, 1})})}
    assert shown(assign_uniform(members, {U: 2})) == {"a": "u0 u1"}


def test_uniform_balances_members_with_different_subscriptions() -> None:
    members = {"a": subscribed(T), "b": subscribed(T, U), "c": subscribed(U, V)}
    assigned = assign_uniform(members, {T: 4, U: 3, V: 2})
    assert {member: len(list(partitions_of(each))) for member, each in assigned.items()} == {"a": 3, "b": 3, "c": 3}
    assert set(assigned["a"]) == {T}


def test_uniform_moves_partitions_to_a_member_that_joins_with_another_subscription() -> None:
    members = {"a": subscribed(T, U, has={T: frozenset({0, 1}), U: frozenset({0, 1})}), "b": subscribed(U)}
    assert shown(assign_uniform(members, {T: 2, U: 2})) == {"a": "t0 t1", "b": "u0 u1"}


def test_uniform_gives_a_partition_that_two_members_have_to_one_of_them() -> None:
    members = {"a": subscribed(T, has={T: frozenset({0})}), "b": subscribed(T, has={T: frozenset({0, 1})})}
    assert shown(assign_uniform(members, {T: 2})) == {"a": "t0", "b": "t1"}


# range


def test_range_co_partitions_topics_of_the_same_size() -> None:
    members = {name: subscribed(T, U) for name in "ab"}
    assert shown(assign_range(members, {T: 3, U: 3})) == {"a": "t0 t1 u0 u1", "b": "t2 u2"}


def test_range_puts_static_members_first_whatever_their_member_ids_are() -> None:
    before = {"m9": subscribed(T, instance_id="i1"), "m1": subscribed(T)}
    after = {"m0": subscribed(T), "m3": subscribed(T, instance_id="i1")}
    assert shown(assign_range(before, {T: 3})) == {"m1": "t2", "m9": "t0 t1"}
    assert shown(assign_range(after, {T: 3})) == {"m0": "t2", "m3": "t0 t1"}


def test_range_divides_a_topic_among_its_own_subscribers() -> None:
    members = {"a": subscribed(T), "b": subscribed(T, U), "c": subscribed(U)}
    assert shown(assign_range(members, {T: 3, U: 3})) == {"a": "t0 t1", "b": "t2 u0 u1", "c": "u2"}


def test_range_leaves_members_without_a_partition_where_there_are_too_few() -> None:
    members = {name: subscribed(T) for name in "abc"}
    assert shown(assign_range(members, {T: 2})) == {"a": "t0", "b": "t1", "c": ""}


# both


def test_members_without_topics_have_empty_assignments() -> None:
    for assign in (assign_uniform, assign_range):
        assert assign({"a": subscribed(), "b": subscribed()}, {}) == {"a": {}, "b": {}}
        assert assign({}, {}) == {}


def test_a_broker_offers_the_assignors_of_its_configuration_in_order() -> None:
    assert list(offered_assignors(["uniform", "range"])) == ["uniform", "range"]
    with pytest.raises(ValueError, match=r"group\.consumer\.assignors: Mine is neither uniform nor range"):
        offered_assignors(["Mine"])
    with pytest.raises(ValueError, match="names no assignor"):
        offered_assignors([])


TOPICS = [b"%d" % number for number in range(4)]


@st.composite
def groups(draw: st.DrawFn, *, is_alike: bool = False) -> tuple[dict[str, MemberSubscription], dict[bytes, int]]:
    """Members with any subscriptions and any earlier assignments, and topics of any size."""
    counts = {topic: draw(st.integers(1, 9)) for topic in TOPICS}
    common = draw(st.sets(st.sampled_from(TOPICS), min_size=1))
    names = draw(st.sets(st.sampled_from([f"m{number}" for number in range(7)]), min_size=1))
    holders = draw(
        st.dictionaries(
            st.tuples(st.sampled_from(TOPICS), st.integers(0, 8)), st.sampled_from(sorted(names)), max_size=30
        )
    )
    members = {}
    for name in names:
        topics = common if is_alike else draw(st.sets(st.sampled_from(TOPICS)))
        has: dict[bytes, set[int]] = {}
        for (topic, partition), holder in holders.items():
            if holder == name:
                has.setdefault(topic, set()).add(partition)
        frozen = {topic: frozenset(partitions) for topic, partitions in has.items()}
        instance_id = draw(st.sampled_from([None, f"i-{name}"]))
        members[name] = subscribed(*topics, has=frozen, instance_id=instance_id)
    return members, counts


def sizes(assigned: dict[str, Assignment]) -> list[int]:
    return [sum(map(len, assignment.values())) for assignment in assigned.values()]


@pytest.mark.parametrize("assign", [assign_uniform, assign_range])
@given(groups())
def test_every_partition_of_a_subscribed_topic_has_one_owner_that_subscribes_to_it(
    assign: Assignor, group: tuple[dict[str, MemberSubscription], dict[bytes, int]]
) -> None:
    members, counts = group
    assigned = assign(members, counts)
    assert set(assigned) == set(members)
    owned = [partition for assignment in assigned.values() for partition in partitions_of(assignment)]
    topics = {topic for member in members.values() for topic in member.topic_ids}
    assert sorted(owned) == sorted((topic, number) for topic in topics for number in range(counts[topic]))
    for name, assignment in assigned.items():
        assert set(assignment) <= set(members[name].topic_ids)
        assert all(assignment.values()), "a topic without partitions"
    assert assign(dict(reversed(members.items())), counts) == assigned, "the order of the members counts"


@given(groups(is_alike=True))
def test_uniform_is_balanced_and_moves_as_little_as_balance_allows(
    group: tuple[dict[str, MemberSubscription], dict[bytes, int]],
) -> None:
    members, counts = group
    assigned = assign_uniform(members, counts)
    assert max(sizes(assigned)) - min(sizes(assigned)) <= 1
    topics = next(iter(members.values())).topic_ids
    quota, extra = divmod(sum(counts[topic] for topic in topics), len(members))
    valid = {
        name: {(topic, number) for topic, number in partitions_of(member.assignment) if topic in topics}
        & {(topic, number) for topic in topics for number in range(counts[topic])}
        for name, member in members.items()
    }
    kept = {name: len(valid[name] & set(partitions_of(assigned[name]))) for name in members}
    # Whoever has no more than the quota keeps all; of the others, as many keep one more as there are extra partitions.
    assert sum(kept.values()) == sum(min(len(valid[name]), quota) for name in members) + min(
        extra, sum(len(valid[name]) > quota for name in members)
    )


@given(groups())
def test_uniform_leaves_alone_what_it_has_balanced(
    group: tuple[dict[str, MemberSubscription], dict[bytes, int]],
) -> None:
    members, counts = group
    first = assign_uniform(members, counts)
    again = {
        name: MemberSubscription(member.topic_ids, member.instance_id, first[name]) for name, member in members.items()
    }
    assert assign_uniform(again, counts) == first


@given(groups())
def test_uniform_has_no_single_move_left_that_evens_out_two_members(
    group: tuple[dict[str, MemberSubscription], dict[bytes, int]],
) -> None:
    members, counts = group
    assigned = assign_uniform(members, counts)
    load = {name: sum(map(len, assignment.values())) for name, assignment in assigned.items()}
    for giver, assignment in assigned.items():
        for topic in assignment:
            for taker, member in members.items():
                if topic in member.topic_ids:
                    assert load[giver] - load[taker] <= 1, (giver, taker, topic)
