"""Each fault that a group sees while pods are absent is reported, and nothing else."""

from __future__ import annotations

import pytest

from e2e.history import Absence, ReadRecord, faults

ACKNOWLEDGED = list(range(12))
READ = [ReadRecord(number % 2, number // 2, number) for number in ACKNOWLEDGED]
"""Two partitions in turn, each record read as soon as it was acknowledged."""

ABSENCES = [Absence(acknowledged=2, read=6), Absence(acknowledged=8, read=10)]


def _faults(read: list[ReadRecord], absences: list[Absence] = ABSENCES) -> list[str]:
    return list(faults(ACKNOWLEDGED, read, absences))


def test_a_group_that_read_everything_in_order_and_at_once_is_undisturbed() -> None:
    assert _faults(READ) == []


def test_a_record_that_was_sent_and_never_acknowledged_may_be_read() -> None:
    assert _faults([*READ, ReadRecord(0, 6, 12)]) == []


def test_a_skipped_record_is_reported_as_missing_and_as_a_gap() -> None:
    said = ["partition 1 went on at offset 3 instead of 2", "1 acknowledged records were not read: [5]"]
    assert _faults([record for record in READ if record.number != 5]) == said


@pytest.mark.parametrize("skipped", [0, 11], ids=["the first of a partition", "the last of all"])
def test_a_missing_first_or_last_record_is_reported(skipped: int) -> None:
    said = _faults([record for record in READ if record.number != skipped])
    assert f"1 acknowledged records were not read: [{skipped}]" in said


def test_a_record_that_is_read_twice_is_reported() -> None:
    assert _faults([*READ[:5], *READ[4:]], ABSENCES[:1]) == ["partition 0 went on at offset 2 instead of 3"]


def test_a_record_that_was_appended_twice_is_reported() -> None:
    assert _faults([*READ, ReadRecord(0, 6, 11)]) == ["a record has two offsets"]


def test_a_group_that_waits_for_the_absent_pod_is_reported() -> None:
    silent = "nothing that was acknowledged in it was read in it from partitions [0, 1]"
    assert _faults(READ, [Absence(acknowledged=2, read=2)]) == [f"absence 1: {silent}"]
    assert _faults(READ, [ABSENCES[0], Absence(acknowledged=12, read=12)]) == [f"absence 2: {silent}"]


def test_one_partition_that_waits_for_the_absent_pod_is_reported() -> None:
    """The one that the broker led, say: its records come after all of the others."""
    read = [*READ[:2], *READ[2::2], *READ[3::2]]
    silent = "nothing that was acknowledged in it was read in it from partitions [1]"
    assert _faults(read, ABSENCES[:1]) == [f"absence 1: {silent}"]
