"""What a consumer group was given while brokers' pods were away, judged beside what its producer had acknowledged.

Judges lists that the programs in the client's pod have written; asks nobody, and no clock. What was before what is told
by how much of each list was there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple


class Given(NamedTuple):
    """A record that a member of the group was given; `number` is the producer's."""

    partition: int
    offset: int
    number: int


@dataclass(frozen=True, slots=True)
class Absence:
    """A pod was away: `acknowledged[absence.acknowledged:]` were acknowledged after it was gone,
    `given[:absence.given]` were given before it could come back."""

    acknowledged: int
    given: int


def read_given(text: str) -> list[Given]:
    """A line per record: partition, offset, number.

    >>> read_given("0 0 5\\n0 1 7\\n")
    [Given(partition=0, offset=0, number=5), Given(partition=0, offset=1, number=7)]
    """
    return [Given(*map(int, line.split())) for line in text.splitlines()]


def faults(acknowledged: Sequence[int], given: Sequence[Given], absences: Sequence[Absence]) -> Iterator[str]:
    """What a group whose members stay must not see, from a topic that held nothing before.

    The pod is gone when 1 and 2 are acknowledged, and comes back after 3 was given:

    >>> history = [Given(0, 0, 1), Given(0, 1, 2), Given(0, 2, 3), Given(0, 3, 4)]
    >>> list(faults([1, 2, 3, 4], history, [Absence(acknowledged=2, given=3)]))
    []

    Had 3 come only when the pod was back, and 2 never:

    >>> list(faults([1, 2, 3, 4], [history[0], *history[2:]], [Absence(acknowledged=2, given=1)]))
    ... # doctest: +NORMALIZE_WHITESPACE
    ['partition 0 went on at offset 2 instead of 1', '1 acknowledged records were not given: [2]',
     'absence 1: nothing that was acknowledged in it was given in it from partitions [0]']
    """
    expected: dict[int, int] = {}
    for partition, offset, _ in given:
        if offset != expected.get(partition, 0):
            yield f"partition {partition} went on at offset {offset} instead of {expected.get(partition, 0)}"
        expected[partition] = offset + 1
    numbers = {number for _, _, number in given}
    if missed := sorted(set(acknowledged) - numbers):
        yield f"{len(missed)} acknowledged records were not given: {missed[:5]}"
    if len(numbers) < len({(partition, offset) for partition, offset, _ in given}):
        yield "a record has two offsets"
    for count, absence in enumerate(absences, 1):
        within = set(acknowledged[absence.acknowledged :])
        if silent := sorted(expected.keys() - _partitions(given[: absence.given], within)):
            yield f"absence {count}: nothing that was acknowledged in it was given in it from partitions {silent}"


def _partitions(given: Iterable[Given], numbers: set[int]) -> set[int]:
    return {partition for partition, _, number in given if number in numbers}
