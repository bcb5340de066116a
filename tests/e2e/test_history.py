"""What a group must not see while pods are away: each fault is told, and nothing else is."""

from __future__ import annotations

import pytest

from e2e.history import Absence, Given, faults

ACKNOWLEDGED = list(range(12))
GIVEN = [Given(number % 2, number // 2, number) for number in ACKNOWLEDGED]
"""Two partitions in turn, each record given as soon as it was acknowledged."""

ABSENCES = [Absence(acknowledged=2, given=6), Absence(acknowledged=8, given=10)]


def _faults(given: list[Given], absences: list[Absence] = ABSENCES) -> list[str]:
    return list(faults(ACKNOWLEDGED, given, absences))


def test_a_group_that_was_given_everything_in_order_and_at_once_is_undisturbed() -> None:
    assert _faults(GIVEN) == []


def test_a_record_that_was_sent_and_never_acknowledged_may_be_given() -> None:
    assert _faults([*GIVEN, Given(0, 6, 12)]) == []


def test_a_skipped_record_is_missing_and_a_hole() -> None:
    said = ["partition 1 went on at offset 3 instead of 2", "1 acknowledged records were not given: [5]"]
    assert _faults([record for record in GIVEN if record.number != 5]) == said


@pytest.mark.parametrize("skipped", [0, 11], ids=["the first of a partition", "the last of all"])
def test_a_record_at_an_end_is_missed_too(skipped: int) -> None:
    said = _faults([record for record in GIVEN if record.number != skipped])
    assert f"1 acknowledged records were not given: [{skipped}]" in said


def test_a_record_that_comes_twice_is_told() -> None:
    assert _faults([*GIVEN[:5], *GIVEN[4:]], ABSENCES[:1]) == ["partition 0 went on at offset 2 instead of 3"]


def test_a_record_that_was_appended_twice_is_told() -> None:
    assert _faults([*GIVEN, Given(0, 6, 11)]) == ["a record has two offsets"]


def test_a_group_that_waits_until_the_pod_is_back_is_told() -> None:
    silent = "nothing that was acknowledged in it was given in it from partitions [0, 1]"
    assert _faults(GIVEN, [Absence(acknowledged=2, given=2)]) == [f"absence 1: {silent}"]
    assert _faults(GIVEN, [ABSENCES[0], Absence(acknowledged=12, given=12)]) == [f"absence 2: {silent}"]


def test_one_partition_that_waits_until_the_pod_is_back_is_told() -> None:
    """The one that the broker led, say: its records come after all of the others."""
    given = [*GIVEN[:2], *GIVEN[2::2], *GIVEN[3::2]]
    silent = "nothing that was acknowledged in it was given in it from partitions [1]"
    assert _faults(given, ABSENCES[:1]) == [f"absence 1: {silent}"]
