"""What is wrong with a history, in the error classes of Jepsen's Kafka tests. Pure: events in, findings out.

| class | what is found |
|---|---|
| lost-write | a record was acknowledged, or given to a consumer, and the log goes on past its offset without it |
| unseen | a record was acknowledged, and the log ends before it |
| duplicate | one value stands at two offsets |
| inconsistent-offsets | one offset has had two values |
| G1a | a record was read though its producer was told for certain that it is not written |
| poll-skip | a consumer was given a later record without those between, and nobody moved it |
| nonmonotonic-poll | a consumer was given an offset again, or an earlier one, and nobody moved it |
| nonmonotonic-send | the records of one producer stand in another order than that in which it sent them |

G1a as Jepsen means it, a read of an aborted transaction, needs transactions: there are none here, what is checked is
the part of it that they leave. Jepsen's `lost-write` is about acknowledged records; that a record which was read once
has to stay as well is more than it asks for.

Where the history has a reader called FINAL, which reads every partition from its beginning to its end when all is over,
it decides what is there; otherwise everything that was ever polled does.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

from tests.nemesis.history import Acknowledged, Event, Placed, Polled, Refused

FINAL = "final"
LOST_WRITE = "lost-write"
UNSEEN = "unseen"
DUPLICATE = "duplicate"
INCONSISTENT_OFFSETS = "inconsistent-offsets"
ABORTED_READ = "G1a"
POLL_SKIP = "poll-skip"
NONMONOTONIC_POLL = "nonmonotonic-poll"
NONMONOTONIC_SEND = "nonmonotonic-send"
CLASSES = (
    LOST_WRITE,
    UNSEEN,
    DUPLICATE,
    INCONSISTENT_OFFSETS,
    ABORTED_READ,
    POLL_SKIP,
    NONMONOTONIC_POLL,
    NONMONOTONIC_SEND,
)


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong: its class, and a sentence that says where to look in the history."""

    kind: str
    what: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.what}"


@dataclass(slots=True)
class _Partition:
    """What is known of one partition."""

    acknowledged: dict[str, int | None] = field(default_factory=dict)
    values: dict[int, dict[str, str]] = field(default_factory=lambda: defaultdict(dict))
    """Of each offset the values that it was said to have, and by whom first."""
    read: dict[int, str] = field(default_factory=dict)
    """What is there: by the final reader if there is one, else by anyone."""
    polled: dict[int, str] = field(default_factory=dict)


def findings(events: Iterable[Event]) -> list[Finding]:
    """Everything wrong, in the order of CLASSES, then of partition and offset."""
    history = list(events)
    partitions: dict[int, _Partition] = defaultdict(_Partition)
    found: list[Finding] = []
    has_final = any(isinstance(event, Polled | Placed) and event.by == FINAL for event in history)
    refused: dict[str, Refused] = {}
    for event in history:
        match event:
            case Acknowledged(by=by, partition=number, value=value, offset=offset):
                partition = partitions[number]
                partition.acknowledged[value] = offset
                if offset is not None:
                    partition.values[offset].setdefault(value, f"acknowledged to {by}")
            case Polled(by=by, partition=number, records=records):
                partition = partitions[number]
                for offset, value in records:
                    partition.values[offset].setdefault(value, f"read by {by}")
                    partition.polled[offset] = value
                    if by == FINAL or not has_final:
                        partition.read[offset] = value
            case Refused(value=value):
                refused[value] = event
            case _:
                pass
    for number in sorted(partitions):
        found += _of_partition(number, partitions[number], refused)
    found += _duplicates(partitions)
    found += _polls(history, partitions)
    found += _sends(partitions)
    return sorted(found, key=lambda finding: CLASSES.index(finding.kind))


def counts(found: Iterable[Finding]) -> dict[str, int]:
    """How many of each class, all classes named."""
    result = dict.fromkeys(CLASSES, 0)
    for finding in found:
        result[finding.kind] += 1
    return result


def _of_partition(number: int, partition: _Partition, refused: dict[str, Refused]) -> list[Finding]:
    found = []
    end = max(partition.read, default=-1) + 1
    present = set(partition.read.values())
    for value, offset in partition.acknowledged.items():
        if value in present:
            continue
        if offset is None or offset < end:
            where = "an offset nobody told" if offset is None else f"offset {offset}"
            found.append(Finding(LOST_WRITE, f"{number}: {value}, acknowledged at {where}; the log ends at {end}"))
        else:
            found.append(Finding(UNSEEN, f"{number}: {value}, acknowledged at offset {offset}; the log ends at {end}"))
    for offset, value in sorted(partition.polled.items()):
        if offset not in partition.read and value not in partition.acknowledged:
            said = partition.values[offset][value]
            found.append(Finding(LOST_WRITE, f"{number}: {value} at offset {offset}, {said}; the log ends at {end}"))
        if value in refused:
            refusal = refused[value]
            found.append(Finding(ABORTED_READ, f"{number}: {value} at offset {offset}, refused with {refusal.reason}"))
    for offset, values in sorted(partition.values.items()):
        if len(values) > 1:
            told = ", ".join(f"{value} ({said})" for value, said in values.items())
            found.append(Finding(INCONSISTENT_OFFSETS, f"{number}: offset {offset} was {told}"))
    return found


def _duplicates(partitions: dict[int, _Partition]) -> list[Finding]:
    places: dict[str, list[str]] = defaultdict(list)
    for number in sorted(partitions):
        for offset, values in sorted(partitions[number].values.items()):
            for value in values:
                places[value].append(f"{number} at offset {offset}")
    return [Finding(DUPLICATE, f"{value} in {' and '.join(at)}") for value, at in places.items() if len(at) > 1]


def _polls(history: list[Event], partitions: dict[int, _Partition]) -> list[Finding]:
    """A reader's positions: the offset that has to come next, None where it may be any."""
    found: list[Finding] = []
    expected: dict[tuple[str, int], int | None] = {}
    for event in history:
        if isinstance(event, Placed):
            expected[event.by, event.partition] = event.offset
        elif isinstance(event, Polled):
            position = expected.get((event.by, event.partition))
            for offset, value in event.records:
                where = f"{event.by} at {event.at:.3f} in {event.partition}: {value} at offset {offset}"
                if position is not None and offset < position:
                    found.append(Finding(NONMONOTONIC_POLL, f"{where}, {position} was next"))
                elif position is not None:
                    known = partitions[event.partition].values
                    between = [one for one in range(position, offset) if one in known]
                    if between:
                        some = ", ".join(map(str, between[:5]))
                        found.append(Finding(POLL_SKIP, f"{where}, {position} was next; left out: {some}"))
                position = offset + 1
            expected[event.by, event.partition] = position
    return found


def _sends(partitions: dict[int, _Partition]) -> list[Finding]:
    """A value names its producer and its number among what that sent."""
    found: list[Finding] = []
    for number in sorted(partitions):
        newest: dict[str, tuple[int, int]] = {}
        for offset in sorted(partitions[number].read):
            value = partitions[number].read[offset]
            producer, _, count = value.rpartition(".")
            before = newest.get(producer)
            if before is not None and int(count) < before[0]:
                what = f"{number}: {value} at offset {offset}, behind {producer}.{before[0]} at {before[1]}"
                found.append(Finding(NONMONOTONIC_SEND, what))
            else:
                newest[producer] = (int(count), offset)
    return found
