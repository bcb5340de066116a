"""Checks the records that a consumer group read while pods of brokers were absent, against its producer's acks.

Pure: it compares lists that programs in the client's pod have written. The lengths of the lists at a given time show
what came before what.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple


class ReadRecord(NamedTuple):
    """A record that a member of the group read. `number`: the producer's."""

    partition: int
    offset: int
    number: int


@dataclass(frozen=True, slots=True)
class Absence:
    """The absence of a pod: `acknowledged[absence.acknowledged:]` were acknowledged after it was gone,
    `read[:absence.read]` were read before it could come back."""

    acknowledged: int
    read: int


def parse_records(text: str) -> list[ReadRecord]:
    """Parses a line for each record: partition, offset, number.

    >>> parse_records("0 0 5\\n0 1 7\\n")
    [ReadRecord(partition=0, offset=0, number=5), ReadRecord(partition=0, offset=1, number=7)]
    """
    return [ReadRecord(*map(int, line.split())) for line in text.splitlines()]


def faults(acknowledged: Sequence[int], read: Sequence[ReadRecord], absences: Sequence[Absence]) -> Iterator[str]:
    """What a group with constant members must not see of a topic that was empty before.

    The pod is gone when 1 and 2 are acknowledged, and comes back after 3 was read:

    >>> history = [ReadRecord(0, 0, 1), ReadRecord(0, 1, 2), ReadRecord(0, 2, 3), ReadRecord(0, 3, 4)]
    >>> list(faults([1, 2, 3, 4], history, [Absence(acknowledged=2, read=3)]))
    []

    With 3 read only after the pod was back, and 2 never:

    >>> list(faults([1, 2, 3, 4], [history[0], *history[2:]], [Absence(acknowledged=2, read=1)]))
    ... # doctest: +NORMALIZE_WHITESPACE
    ['partition 0 went on at offset 2 instead of 1', '1 acknowledged records were not read: [2]',
     'absence 1: nothing that was acknowledged in it was read in it from partitions [0]']
    """
    expected: dict[int, int] = {}
    for partition, offset, _ in read:
        if offset != expected.get(partition, 0):
            yield f"partition {partition} went on at offset {offset} instead of {expected.get(partition, 0)}"
        expected[partition] = offset + 1
    numbers = {number for _, _, number in read}
    if missed := sorted(set(acknowledged) - numbers):
        yield f"{len(missed)} acknowledged records were not read: {missed[:5]}"
    if len(numbers) < len({(partition, offset) for partition, offset, _ in read}):
        yield "a record has two offsets"
    for count, absence in enumerate(absences, 1):
        within = set(acknowledged[absence.acknowledged :])
        if silent := sorted(expected.keys() - _partitions(read[: absence.read], within)):
            yield f"absence {count}: nothing that was acknowledged in it was read in it from partitions {silent}"


def _partitions(read: Iterable[ReadRecord], numbers: set[int]) -> set[int]:
    return {partition for partition, _, number in read if number in numbers}
