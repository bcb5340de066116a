"""What clients did and were told, in the order in which it happened: one JSON object a line.

There is one topic, so a partition is a number. Times are seconds since the epoch. A value names its producer and its
place among what that producer sent to the partition's topic (`"7.1234"`), so no value is ever sent twice on purpose.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TypeAlias


@dataclass(frozen=True, slots=True)
class Sent:
    """A producer was given a record. Java's producers do not say so: theirs begin with the acknowledgement."""

    at: float
    by: str
    partition: int
    value: str


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """acks=all was answered. `offset` is None where the answer was to a repetition and told none."""

    at: float
    by: str
    partition: int
    value: str
    offset: int | None


@dataclass(frozen=True, slots=True)
class Refused:
    """An error that says for certain that the record was not written (MESSAGE_TOO_LARGE)."""

    at: float
    by: str
    partition: int
    value: str
    reason: str


@dataclass(frozen=True, slots=True)
class Indeterminate:
    """An error after which the record may or may not be there."""

    at: float
    by: str
    value: str
    reason: str


@dataclass(frozen=True, slots=True)
class Subscribed:
    """A consumer begins as a member of a group, which is to be given every record of every partition."""

    at: float
    by: str
    group: str


@dataclass(frozen=True, slots=True)
class Placed:
    """A consumer begins to read a partition anew: it was assigned, or told to seek. None: wherever its group stands."""

    at: float
    by: str
    partition: int
    offset: int | None


@dataclass(frozen=True, slots=True)
class Polled:
    """What one poll gave of one partition, offsets and values in the order in which they came."""

    at: float
    by: str
    partition: int
    records: tuple[tuple[int, str], ...]


@dataclass(frozen=True, slots=True)
class FaultBegan:
    """`name` as in `faults`, `target` the node it hits, `partitions` those that the target led."""

    at: float
    name: str
    target: str
    partitions: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class FaultEnded:
    at: float
    name: str


Event: TypeAlias = (
    Sent | Acknowledged | Refused | Indeterminate | Subscribed | Placed | Polled | FaultBegan | FaultEnded
)
_KINDS = {
    kind.__name__: kind
    for kind in (Sent, Acknowledged, Refused, Indeterminate, Subscribed, Placed, Polled, FaultBegan, FaultEnded)
}


class History:
    """Takes events from any thread and writes each down at once, so that a crash leaves what led to it."""

    def __init__(self, path: Path) -> None:
        self._changed = threading.Condition()
        self._file = path.open("w", encoding="utf-8")
        self._events: list[Event] = []

    def add(self, event: Event) -> None:
        line = json.dumps({"event": type(event).__name__, **asdict(event)}) + "\n"
        with self._changed:
            self._events.append(event)
            self._file.write(line)
            self._changed.notify_all()

    def events(self) -> list[Event]:
        """All so far."""
        with self._changed:
            return list(self._events)

    def wait_until(self, holds: Callable[[list[Event]], bool], limit_s: float) -> bool:
        """Whether what happens makes `holds` true of all events in time; it is asked again when some were added."""
        deadline = time.monotonic() + limit_s
        while not holds(events := self.events()):
            with self._changed:
                while (left := deadline - time.monotonic()) > 0 and len(self._events) == len(events):
                    self._changed.wait(left)
            if left <= 0:
                return False
        return True

    def close(self) -> None:
        with self._changed:
            self._file.close()


def now() -> float:
    """The time of an event."""
    return time.time()


def read(path: Path) -> Iterator[Event]:
    """What a `History` wrote."""
    with path.open(encoding="utf-8") as lines:
        for line in lines:
            members = json.loads(line)
            kind = _KINDS[members.pop("event")]
            if "records" in members:
                members["records"] = tuple((offset, value) for offset, value in members["records"])
            if "partitions" in members:
                members["partitions"] = tuple(members["partitions"])
            yield kind(**members)
