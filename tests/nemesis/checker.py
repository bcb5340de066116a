"""What is wrong with a history, in the error classes of Jepsen's Kafka tests. Pure: events in, findings out.

| class | what is found |
|---|---|
| lost-write | a record was acknowledged, or given to a consumer, and the log goes on past its offset without it |
| unseen | a record was acknowledged, and the log ends before it |
| duplicate | one value stands at two offsets |
| inconsistent-offsets | one offset has had two values |
| G1a | a record was read though its producer was told for certain that it is not written |
| poll-skip | a consumer, or a group as a whole, was given a later record without those before, and nobody moved it |
| nonmonotonic-poll | a consumer was given an offset again, or an earlier one, and nobody moved it |
| nonmonotonic-send | the records of one producer stand in another order than that in which it sent them |
| stopped | when all was over a consumer, or a group as a whole, had not been given the end of a partition |

`stopped` is none of Jepsen's: there a consumer that nothing comes to is merely not seen. A group may be given a record
again, after a member has died or a partition has moved; it may leave none out, and begins at the beginning.

G1a as Jepsen means it, a read of an aborted transaction, is checked in `transactions`: what is checked here is the part
of it that other producers leave. Jepsen's `lost-write` is about acknowledged records; that a record which was read once
has to stay as well is more than it asks for.

Where the history has a reader called FINAL, which reads every partition from its beginning to its end when all is over,
it decides what is there; otherwise everything that was ever polled does, and nobody has to have reached the end.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

from tests.nemesis.history import Acknowledged, Event, Placed, Polled, Refused, Subscribed

FINAL = "final"
LOST_WRITE = "lost-write"
UNSEEN = "unseen"
DUPLICATE = "duplicate"
INCONSISTENT_OFFSETS = "inconsistent-offsets"
ABORTED_READ = "G1a"
POLL_SKIP = "poll-skip"
NONMONOTONIC_POLL = "nonmonotonic-poll"
NONMONOTONIC_SEND = "nonmonotonic-send"
STOPPED = "stopped"
CLASSES = (
    LOST_WRITE,
    UNSEEN,
    DUPLICATE,
    INCONSISTENT_OFFSETS,
    ABORTED_READ,
    POLL_SKIP,
    NONMONOTONIC_POLL,
    NONMONOTONIC_SEND,
    STOPPED,
)
_SHOWN = 5
"""Of the offsets that were left out."""


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
    found += _polls(history, partitions, has_final)
    found += _sends(partitions)
    found += stopped(history)
    return sorted(found, key=lambda finding: CLASSES.index(finding.kind))


def stopped(events: Iterable[Event]) -> list[Finding]:
    """Who has not been given what FINAL, which has read everything, was given last. Looks at the last of each poll
    only, so that it can be asked while they read."""
    history = list(events)
    groups = _groups(history)
    ends: dict[int, int] = {}
    readers: dict[tuple[str, int], int] = {}
    shared: dict[tuple[str, int], int] = {}
    for event in history:
        if not isinstance(event, Polled | Placed):
            continue
        number = event.partition
        position = event.records[-1][0] + 1 if isinstance(event, Polled) else event.offset
        if event.by == FINAL:
            ends[number] = position or 0
        elif event.by not in groups:
            readers[event.by, number] = position or 0
        elif isinstance(event, Polled) and position is not None:
            key = groups[event.by], number
            shared[key] = max(shared.get(key, 0), position)
    found = []
    for number, end in sorted(ends.items()):
        positions = {f"reader {name}": at for (name, one), at in readers.items() if one == number}
        positions |= {f"group {name}": shared.get((name, number), 0) for name in dict.fromkeys(groups.values())}
        for who, at in positions.items():
            if at < end:
                what = f"{who} stopped at offset {at} of partition {number}, the end is {end}"
                found.append(Finding(STOPPED, what))
    return found


def counts(found: Iterable[Finding], classes: Iterable[str] = CLASSES) -> dict[str, int]:
    """How many of each class, all classes named."""
    result = dict.fromkeys(classes, 0)
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


def _groups(history: list[Event]) -> dict[str, str]:
    """The group of each consumer that has one; one that is placed where "its group" stands and names none is alone."""
    groups = {event.by: event.by for event in history if isinstance(event, Placed) and event.offset is None}
    return groups | {event.by: event.group for event in history if isinstance(event, Subscribed)}


def _polls(history: list[Event], partitions: dict[int, _Partition], has_final: bool) -> list[Finding]:
    """A reader's positions: the offset that has to come next, None where it may be any, but for one thing: a group's
    member has to begin where all before has been given to the group."""
    found: list[Finding] = []
    groups = _groups(history)
    expected: dict[tuple[str, int], int | None] = {}
    given: dict[tuple[str, int], set[int]] = defaultdict(set)
    told: dict[tuple[str, int], set[int]] = defaultdict(set)
    for event in history:
        if isinstance(event, Placed):
            expected[event.by, event.partition] = event.offset
        elif isinstance(event, Polled):
            position = expected.get((event.by, event.partition))
            known = partitions[event.partition].values
            group = groups.get(event.by)
            key = group or event.by, event.partition
            for offset, value in event.records:
                where = f"{event.by} at {event.at:.3f} in {event.partition}: {value} at offset {offset}"
                if position is not None and offset < position:
                    found.append(Finding(NONMONOTONIC_POLL, f"{where}, {position} was next"))
                elif position is not None:
                    between = [one for one in range(position, offset) if one in known]
                    if between:
                        found.append(Finding(POLL_SKIP, f"{where}, {position} was next; left out: {_some(between)}"))
                        told[key].update(between)
                elif group is not None:
                    before = [one for one in range(offset) if one in known and one not in given[key]]
                    if before:
                        what = f"{where} first, {group} was given {_some(before)} by nobody before"
                        found.append(Finding(POLL_SKIP, what))
                        told[key].update(before)
                given[key].add(offset)
                position = offset + 1
            expected[event.by, event.partition] = position
    if has_final:
        found += _holes(set(groups.values()), partitions, given, told)
    return found


def _holes(
    groups: set[str],
    partitions: dict[int, _Partition],
    given: dict[tuple[str, int], set[int]],
    told: dict[tuple[str, int], set[int]],
) -> list[Finding]:
    """What is there, below the last that a group was given, and was given to none of its members."""
    found: list[Finding] = []
    for group in sorted(groups):
        for number in sorted(partitions):
            had = given[group, number]
            last = max(had, default=-1)
            read = partitions[number].read
            missing = [one for one in sorted(read) if one < last and one not in had and one not in told[group, number]]
            if missing:
                what = f"{group} in {number}: {len(missing)} below offset {last} given to nobody: {_some(missing)}"
                found.append(Finding(POLL_SKIP, what))
    return found


def _some(offsets: list[int]) -> str:
    return ", ".join(map(str, offsets[:_SHOWN])) + (f" … {offsets[-1]}" if len(offsets) > _SHOWN else "")


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
