"""What clients did and were told, in the order in which it happened: one JSON object a line.

A partition is a number of the one topic that everybody reads; transactions have topics of their own. Times are seconds
since the epoch. A value names its producer and its place among what that producer sent to the partition's topic
(`"7.1234"`), so no value is ever sent twice on purpose.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeAlias, get_args


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
    """A consumer reads a partition from another offset: assigned, or told to seek. None: where its group stands."""

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


@dataclass(frozen=True, slots=True)
class Transacted:
    """A transaction has ended, or its client has. `began` is when it began, `outcome` one of `elle.Outcome` by value.

    A key is a list, a value a number that is appended to it once. `reads` are the lists that changed since the client
    read last, each from its beginning. A transaction that copies records of another topic appends nothing here.
    """

    at: float
    began: float
    by: str
    number: int
    outcome: str
    appends: tuple[tuple[str, int], ...]
    reads: tuple[tuple[str, tuple[int, ...]], ...]


@dataclass(frozen=True, slots=True)
class ClientEnded:
    """A transactional client has ended: killed, fenced or stopped. `number` is its open transaction."""

    at: float
    by: str
    reason: str
    number: int | None


@dataclass(frozen=True, slots=True)
class Copied:
    """What a read_committed reader found in a partition of the copy at the end, from its beginning to its end."""

    at: float
    partition: int
    values: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Committed:
    """The offset that the group of the copying clients has at the end. None: it has none."""

    at: float
    partition: int
    offset: int | None


Event: TypeAlias = (
    Sent
    | Acknowledged
    | Refused
    | Indeterminate
    | Subscribed
    | Placed
    | Polled
    | FaultBegan
    | FaultEnded
    | Transacted
    | ClientEnded
    | Copied
    | Committed
)
_KINDS: dict[str, type[Event]] = {kind.__name__: kind for kind in get_args(Event)}


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

    def events(self, first: int = 0) -> list[Event]:
        """All so far, from the one with this index on."""
        with self._changed:
            return self._events[first:]

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
            yield kind(**{name: _frozen(value) for name, value in members.items()})


def _frozen(value: Any) -> Any:
    """JSON knows no tuples."""
    return tuple(map(_frozen, value)) if isinstance(value, list) else value
