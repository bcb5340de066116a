"""The oracle of a group refuses each thing that a coordinator may do wrong, and nothing that it may do."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from simulation.checker import Violation
from simulation.consumer_group_oracle import ConsumerGroupOracle

P0, P1 = ("t", 0), ("t", 1)
SESSION_S = 10.0


def give(oracle: ConsumerGroupOracle, member: str, *partitions: tuple[str, int], at_s: float) -> None:
    """By the coordinator, to a request of half a second before."""
    oracle.told(member, partitions, at_s=at_s, covered_until_s=at_s - 0.5 + SESSION_S)


def two_owners(oracle: ConsumerGroupOracle) -> None:
    give(oracle, "a", P0, P1, at_s=1)
    give(oracle, "b", P1, at_s=9)


def a_removed_member_that_goes_on(oracle: ConsumerGroupOracle) -> None:
    give(oracle, "a", P0, at_s=1)
    give(oracle, "b", P0, at_s=12)
    oracle.confirmed("a", at_s=13, covered_until_s=23)


def a_commit_of_a_fenced_member(oracle: ConsumerGroupOracle) -> None:
    give(oracle, "a", P0, at_s=1)
    give(oracle, "b", P0, at_s=12)
    oracle.commit_acknowledged(P0, oracle.commit_sent("a", P0, 13), 14)


def a_lost_offset(oracle: ConsumerGroupOracle) -> None:
    give(oracle, "a", P0, at_s=1)
    oracle.commit_acknowledged(P0, oracle.commit_sent("a", P0, 2), 3)
    oracle.offset_read(P0, -1, asked_s=4)


def an_older_offset(oracle: ConsumerGroupOracle) -> None:
    give(oracle, "a", P0, at_s=1)
    first = oracle.commit_sent("a", P0, 2)
    oracle.commit_acknowledged(P0, first, 3)
    oracle.commit_acknowledged(P0, oracle.commit_sent("a", P0, 4), 5)
    oracle.offset_read(P0, first.offset, asked_s=6)


def an_offset_without_a_response_behind_the_next_owners(oracle: ConsumerGroupOracle) -> None:
    late = oracle.commit_sent("a", P0, 2)
    oracle.commit_acknowledged(P0, oracle.commit_sent("b", P0, 14), 15)
    oracle.offset_read(P0, late.offset, asked_s=16)


def a_refused_offset(oracle: ConsumerGroupOracle) -> None:
    refused = oracle.commit_sent("a", P0, 2)
    oracle.commit_refused(P0, refused)
    oracle.offset_read(P0, refused.offset, asked_s=4)


def an_epoch_that_falls(oracle: ConsumerGroupOracle) -> None:
    oracle.epoch_told("a", 5)
    oracle.epoch_told("a", 4)


def a_group_that_begins_again(oracle: ConsumerGroupOracle) -> None:
    oracle.epoch_told("a", 5)
    oracle.joined("b", 1, oracle.highest_epoch, sent_s=2, at_s=3, is_current=True)


@pytest.mark.parametrize(
    "wrong",
    [
        two_owners,
        a_removed_member_that_goes_on,
        a_commit_of_a_fenced_member,
        a_lost_offset,
        an_older_offset,
        an_offset_without_a_response_behind_the_next_owners,
        a_refused_offset,
        an_epoch_that_falls,
        a_group_that_begins_again,
    ],
    ids=lambda wrong: wrong.__name__,
)
def test_the_oracle_refuses(wrong: Callable[[ConsumerGroupOracle], None]) -> None:
    with pytest.raises(Violation):
        wrong(ConsumerGroupOracle("g"))


def test_a_partition_changes_hands_when_its_owner_gives_it_up() -> None:
    oracle = ConsumerGroupOracle("g")
    give(oracle, "a", P0, P1, at_s=1)
    oracle.released("a", [P1])
    give(oracle, "b", P1, at_s=2)
    oracle.confirmed("a", at_s=3, covered_until_s=13)
    assert oracle.owners({P0: ["a"], P1: ["b"]}, ["a", "b"]) == ""


def test_a_silent_member_may_be_removed_after_its_session_and_is_refused_then() -> None:
    oracle = ConsumerGroupOracle("g")
    give(oracle, "a", P0, at_s=1)
    give(oracle, "b", P0, at_s=10.6)
    oracle.commit_refused(P0, oracle.commit_sent("a", P0, 11))
    oracle.fenced("a")
    commit = oracle.commit_sent("b", P0, 12)
    oracle.commit_acknowledged(P0, commit, 13)
    oracle.offset_read(P0, commit.offset, asked_s=14)
    assert oracle.owners({P0: ["b"]}, ["b"]) == ""


def test_what_a_replaced_coordinator_says_gives_nothing() -> None:
    oracle = ConsumerGroupOracle("g")
    give(oracle, "a", P0, at_s=1)
    oracle.told("b", [P0], at_s=2, covered_until_s=None)
    oracle.joined("c", 1, 5, sent_s=3, at_s=4, is_current=False)


def test_a_group_without_members_that_is_converted_begins_again() -> None:
    oracle = ConsumerGroupOracle("g", is_converted=True)
    oracle.epoch_told("a", 5)
    give(oracle, "a", P0, at_s=1)
    oracle.gone("a")
    oracle.joined("b", 2, 5, sent_s=2, at_s=3, is_current=True)
    oracle.joined("c", 1, 5, sent_s=2, at_s=4, is_current=True)  # it was the first, and hears of it later
    assert oracle.highest_epoch == 2


def test_a_group_with_a_member_goes_on_with_its_epochs_when_it_is_converted() -> None:
    oracle = ConsumerGroupOracle("g", is_converted=True)
    oracle.epoch_told("a", 5)
    give(oracle, "a", P0, at_s=1)
    with pytest.raises(Violation, match="a is a member"):
        oracle.joined("b", 1, 5, sent_s=2, at_s=3, is_current=True)


def test_a_group_has_begun_again_also_when_a_replaced_coordinator_told_its_first_member() -> None:
    oracle = ConsumerGroupOracle("g", is_converted=True)
    oracle.epoch_told("a", 5)
    oracle.gone("a")
    oracle.joined("b", 4, 5, sent_s=2, at_s=3, is_current=False)
    give(oracle, "b", P0, at_s=3)
    oracle.joined("c", 4, 5, sent_s=2, at_s=3, is_current=True)
    assert oracle.highest_epoch == 4


def test_an_offset_without_a_response_may_come_to_be_or_not() -> None:
    oracle = ConsumerGroupOracle("g")
    give(oracle, "a", P0, at_s=1)
    first = oracle.commit_sent("a", P0, 2)
    oracle.commit_acknowledged(P0, first, 3)
    second = oracle.commit_sent("a", P0, 4)
    oracle.offset_read(P0, first.offset, asked_s=6)
    oracle.offset_read(P0, second.offset, asked_s=7)


def test_a_read_beside_a_commit_gives_either() -> None:
    oracle = ConsumerGroupOracle("g")
    give(oracle, "a", P0, at_s=1)
    oracle.commit_acknowledged(P0, oracle.commit_sent("a", P0, 2), 4)
    oracle.offset_read(P0, -1, asked_s=3)


def test_who_has_which_partition_in_the_end_is_told() -> None:
    oracle = ConsumerGroupOracle("g")
    give(oracle, "a", P0, at_s=1)
    assert oracle.owners({P0: ["a"], P1: ["a"]}, ["a"]) == "t-1 is with nobody"
    assert oracle.owners({P0: ["a"]}, ["b"]) == "t-0 is with nobody"
    assert oracle.owners({P0: ["b"]}, ["a", "b"]) == "t-0 is with a"
    assert oracle.owners({}, ["a"]) == "t-0 is assigned, nobody subscribes to it"
