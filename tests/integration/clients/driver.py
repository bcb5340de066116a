"""One interface to all clients, so that one test can be run with each of them.

A driver does with its client what a user would: it hides only spelling. Failures of the client come out as they are.
"""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from tests.integration.clients.security import PLAIN, Security

LIMIT_S = 120.0
"""Nothing here takes that long; what does, fails its test."""

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")

LARGEST_REQUEST_BYTES = 10_000_000
"""A producer sends what is smaller: what is too large for the broker is the broker's to refuse."""


@dataclass(frozen=True, slots=True)
class Record:
    """A record as it is produced and as it is read. `timestamp_ms` None: the client's clock.

    `has_append_time`: its reader was told that the timestamp is the broker's.
    """

    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    timestamp_ms: int | None = None
    partition: int = 0
    offset: int = -1
    has_append_time: bool = False

    def sent(self) -> Record:
        """Without what only a reader knows."""
        return replace(self, offset=-1)


@dataclass(frozen=True, slots=True)
class TopicDescription:
    """Replicas and leaders are broker ids, by partition."""

    leaders: dict[int, int]
    replicas: dict[int, tuple[int, ...]]
    in_sync_replicas: dict[int, frozenset[int]]


class Gathering:
    """What the members of one group have been assigned and have read so far. Every change wakes who waits."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self.assignments: dict[str, frozenset[int]] = {}
        self.records: dict[str, list[Record]] = {}
        self.failures: list[str] = []
        self.commits = 0
        self._committed: dict[str, int] = {}

    def assigned(self, member: str, partitions: frozenset[int]) -> None:
        with self._changed:
            self.assignments[member] = partitions
            self._changed.notify_all()

    def left(self, member: str) -> None:
        with self._changed:
            self.assignments.pop(member, None)
            self._changed.notify_all()

    def received(self, member: str, records: Sequence[Record]) -> None:
        with self._changed:
            self.records.setdefault(member, []).extend(records)
            self._changed.notify_all()

    def committed(self, member: str) -> None:
        """The member has committed all that it has received."""
        with self._changed:
            self.commits += 1
            self._committed[member] = len(self.records.get(member, []))
            self._changed.notify_all()

    def failed(self, member: str, why: str) -> None:
        with self._changed:
            self.failures.append(f"{member}: {why}")
            self._changed.notify_all()

    def values(self) -> list[bytes | None]:
        """The values read by all members, those that were read twice twice."""
        return [record.value for records in self.records.values() for record in records]

    def has_committed(self, count: int) -> bool:
        """True when the members have read so many records, and none of them would be read again by anybody else."""
        return len(self.values()) >= count and all(
            self._committed.get(member, 0) == len(records) for member, records in self.records.items()
        )

    def shares(self, *expected: int) -> bool:
        """True when as many members as numbers have disjoint parts of these sizes."""
        parts = list(self.assignments.values())
        return sorted(map(len, parts)) == sorted(expected) and len(frozenset().union(*parts)) == sum(expected)

    def wait_until(self, is_so: Callable[[Gathering], bool], what: str) -> None:
        with self._changed:
            found = self._changed.wait_for(lambda: bool(self.failures) or is_so(self), LIMIT_S)
            assert not self.failures, self.failures
            counts = {member: len(records) for member, records in self.records.items()}
            assert found, f"not {what}: assigned {self.assignments}, read {counts}"


class Member(ABC):
    """A member of a group that polls, reports to its gathering and commits what it has read, until it is closed."""

    @abstractmethod
    def close(self) -> None:
        """Leaves the group in order."""


QUICK_MEMBER = {"heartbeat.interval.ms": "200", "session.timeout.ms": "30000"}
"""A member hears of a rebalance by its heartbeat: with the default of 3 s everything would wait for it. Its session is
long enough for a machine that has no time for it: what it had not committed yet would be read twice."""


@dataclass(frozen=True, slots=True)
class GroupMember:
    """What a member is started with. `config` is in Kafka's words (`session.timeout.ms`)."""

    name: str
    group: str
    topic: str
    config: Mapping[str, str] = field(default_factory=lambda: QUICK_MEMBER)


class Driver(ABC):
    """One client."""

    name: str
    can_send_null_headers = True
    codecs: tuple[str, ...] = CODECS

    def __init__(self, security: Security = PLAIN) -> None:
        self.security = security

    @abstractmethod
    def produce(
        self,
        bootstrap: str,
        topic: str,
        records: Sequence[Record],
        *,
        codec: str = "none",
        acks: str = "all",
        is_idempotent: bool = False,
    ) -> list[int] | None:
        """Sends all and waits for their answers; their offsets, None when the client does not tell."""

    @abstractmethod
    def read(self, bootstrap: str, topic: str, partitions: int = 1) -> list[Record]:
        """Everything in a topic, by partition in order of offsets."""

    @abstractmethod
    def join(self, bootstrap: str, member: GroupMember, gathering: Gathering) -> Member:
        """Starts a member of a group that begins at the earliest offset. Returns at once."""


class Administrator(Driver):
    """A client that administers topics too."""

    @abstractmethod
    def create_topic(
        self, bootstrap: str, topic: str, partitions: int, replicas: int, config: Mapping[str, str]
    ) -> None:
        """Returns when the client says that it is done, as all of these do."""

    @abstractmethod
    def describe_topic(self, bootstrap: str, topic: str) -> TopicDescription: ...

    @abstractmethod
    def grow_topic(self, bootstrap: str, topic: str, partitions: int) -> None:
        """To that many partitions."""

    @abstractmethod
    def alter_topic(self, bootstrap: str, topic: str, config: Mapping[str, str]) -> None: ...

    @abstractmethod
    def topic_config(self, bootstrap: str, topic: str) -> Mapping[str, str]:
        """Every key with the value in force."""

    @abstractmethod
    def delete_topic(self, bootstrap: str, topic: str) -> None: ...

    @abstractmethod
    def topics(self, bootstrap: str) -> frozenset[str]:
        """Names of all topics."""


def await_that(is_so: Callable[[], bool], what: str) -> None:
    """Asks again and again: for what is known only by asking, such as a broker's metadata."""
    deadline = time.monotonic() + LIMIT_S
    while not is_so():
        assert time.monotonic() < deadline, f"never came true: {what}"
        time.sleep(0.02)
