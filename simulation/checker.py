"""The guarantees that hold in every run, checked from outside the brokers.

The workload reports what it sent, what was acknowledged and what consumers received; faults report what they may lose.
At the end the contents of each partition are compared with that. The checker does not read a broker's state. A
`Violation` fails the run.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

Partition = tuple[str, int]


class Violation(AssertionError):
    """A promise was broken."""


class Written(NamedTuple):
    """A record of a compacted partition as it was appended; `name` is None for a deletion of its key."""

    key: bytes
    name: str | None
    time_s: float


@dataclass
class _PartitionRecord:
    """What is known of one partition. Offsets are keys, names of records values."""

    acknowledged: dict[int, str] = field(default_factory=dict)
    """Acknowledged records that no fault so far may have taken."""
    delivered: dict[int, str] = field(default_factory=dict)
    """What consumers were given, likewise."""
    unplaced: dict[str, None] = field(default_factory=dict)
    """Acknowledged as a duplicate, without an offset."""
    high_watermarks: dict[tuple[int, int], int] = field(default_factory=dict)
    """(leader epoch, life of the leader) → the highest one seen."""
    log_start: int = 0


class Checker:
    """The oracle of one run."""

    def __init__(self) -> None:
        self._histories: dict[Partition, _PartitionRecord] = {}
        self._once: dict[str, None] = {}
        """Names sent by idempotent producers that may not stand twice in a log."""
        self._topics: dict[str, int] = {}
        """Created topics (acknowledged) → number of partitions; taken out when a deletion is asked for."""
        self._perhaps: dict[str, int] = {}
        """Topics that may have grown to so many partitions: nobody was told."""
        self.acknowledged_count = 0
        self.delivered_count = 0

    def _of(self, partition: Partition) -> _PartitionRecord:
        return self._histories.setdefault(partition, _PartitionRecord())

    # -- what the workload tells ------------------------------------------------------------------------------------

    def sent_once(self, names: Iterable[str]) -> None:
        """An idempotent producer sends these: each may stand in the log at most once."""
        for name in names:
            self._once[name] = None

    def may_repeat(self, names: Iterable[str]) -> None:
        """The producer had to start again with another id: these may stand twice after all."""
        for name in names:
            self._once.pop(name, None)

    def acknowledged(self, partition: Partition, base_offset: int, names: Iterable[str]) -> None:
        """These records were acknowledged, at these offsets, with a promise that the run's faults do not weaken."""
        history = self._of(partition)
        for offset, name in enumerate(names, base_offset):
            self.acknowledged_count += 1
            if base_offset < 0:
                history.unplaced[name] = None
                continue
            self._same(partition, history.acknowledged, offset, name, "acknowledged")
            self._same(partition, history.delivered, offset, name, "delivered", add=False)

    def delivered(self, partition: Partition, records: Iterable[tuple[int, str]]) -> None:
        """A consumer was given these records."""
        history = self._of(partition)
        for offset, name in records:
            self.delivered_count += 1
            self._same(partition, history.delivered, offset, name, "delivered")
            self._same(partition, history.acknowledged, offset, name, "acknowledged", add=False)

    def high_watermark(self, partition: Partition, leader_epoch: int, life: int, offset: int) -> None:
        """A client saw this high watermark from this life of a leader in this epoch: it never goes back."""
        seen = self._of(partition).high_watermarks
        key = (leader_epoch, life)
        before = seen.get(key, 0)
        if offset < before:
            raise Violation(
                f"{_text(partition)}: the high watermark went back from {before} to {offset}"
                f" in leader epoch {leader_epoch} of the same leader"
            )
        seen[key] = offset

    def topic_created(self, topic: str, partitions: int) -> None:
        self._topics[topic] = partitions

    def may_have(self, topic: str, partitions: int) -> None:
        """The topic may have so many partitions by now, or those that it had."""
        self._perhaps[topic] = partitions

    def topic_deletion_asked(self, topic: str) -> None:
        """From here on the topic may be there or not."""
        self._topics.pop(topic, None)
        for partition in [p for p in self._histories if p[0] == topic]:
            del self._histories[partition]

    # -- what faults may take ---------------------------------------------------------------------------------------

    def power_lost(self, partition: Partition, safe_end: int) -> None:
        """The only copy lost what was not flushed: nothing is promised from `safe_end` on, all below still is."""
        history = self._of(partition)
        for kept in (history.acknowledged, history.delivered):
            for offset in [o for o in kept if o >= safe_end]:
                del kept[offset]
        history.unplaced.clear()
        history.high_watermarks.clear()

    def log_start_moved(self, partition: Partition, offset: int) -> None:
        """Retention or a request for it deletes what is below."""
        history = self._of(partition)
        history.log_start = max(history.log_start, offset)

    # -- the result -------------------------------------------------------------------------------------------------

    @property
    def topics(self) -> Mapping[str, int]:
        return self._topics

    def contents(self, partition: Partition, log_start: int, records: Iterable[tuple[int, str]]) -> None:
        """The whole partition as it reads at the end of the run."""
        history = self._of(partition)
        if log_start > history.log_start:
            raise Violation(f"{_text(partition)}: starts at {log_start}, nothing below it was to be deleted")
        found: dict[int, str] = {}
        places: dict[str, int] = {}
        order: dict[str, tuple[int, int]] = {}
        for offset, name in records:
            found[offset] = name
            if name in self._once:
                if name in places:
                    raise Violation(f"{_text(partition)}: {name} stands at offsets {places[name]} and {offset}")
                places[name] = offset
                producer, _, number = name.rpartition("/")
                before = order.get(producer, (-1, -1))
                if int(number) < before[0]:
                    raise Violation(
                        f"{_text(partition)}: {name} at {offset} comes after {producer}/{before[0]} at {before[1]}"
                    )
                order[producer] = (int(number), offset)
        for promise, kept in (("acknowledged", history.acknowledged), ("delivered", history.delivered)):
            for offset, name in kept.items():
                if offset >= log_start and found.get(offset) != name:
                    raise Violation(
                        f"{_text(partition)}: offset {offset} was {promise} as {name},"
                        f" now it is {found.get(offset, 'not there')} (log {log_start}..{max(found, default=-1)})"
                    )
        names = dict.fromkeys(found.values())
        for name in history.unplaced:
            if name not in names:
                raise Violation(f"{_text(partition)}: {name} was acknowledged and is not there")

    def compacted(
        self,
        partition: Partition,
        written: Mapping[int, Written],
        found: Sequence[tuple[int, bytes | None, str | None]],
        *,
        start: int,
        safe_end: int,
        untouched_from: int,
        now_s: float,
        delete_retention_s: float,
        changing: Container[bytes] = (),
    ) -> None:
        """A compacted partition as it reads: (offset, key, name or None for a deletion), in order.

        `written`: everything that was ever appended, by offset, as it stands now; below `safe_end` it must not be lost,
        from `untouched_from` on compaction had no business. What a reader makes of it, key by key, must be what was
        written, every record at its offset, in order, and a deletion must be readable for `delete_retention_s`. Keys in
        `changing` have been written beyond while it was read: their last value may have given way to that.
        """
        name = _text(partition)
        before = -1
        present: dict[int, None] = {}
        state: dict[bytes | None, tuple[int, str | None]] = {}
        for offset, key, value in found:
            if offset <= before:
                raise Violation(f"{name}: offset {offset} comes after {before}")
            before = offset
            known = written.get(offset)
            if known is None or (known.key, known.name) != (key, value):
                raise Violation(f"{name}: offset {offset} is {key!r}={value}, it was written as {known}")
            present[offset] = None
            state[key] = (offset, value)
        latest: dict[bytes, int] = {}
        for offset, record in sorted(written.items()):
            if start <= offset < safe_end and record.key not in changing:
                latest[record.key] = offset
        for key, offset in latest.items():
            is_deletion = written[offset].name is None
            at, value = state.get(key, (-1, None))
            if at < offset and not (is_deletion and value is None):
                raise Violation(
                    f"{name}: the last value of {key!r} is {written[offset].name} at {offset},"
                    f" it reads as {value} at {at}"
                )
            if is_deletion and at < offset and now_s - written[offset].time_s < delete_retention_s:
                raise Violation(f"{name}: the deletion of {key!r} at {offset} is gone too early")
        for offset in written:
            if max(start, untouched_from) <= offset < safe_end and offset not in present:
                raise Violation(
                    f"{name}: offset {offset} is gone; nothing was to be compacted from {untouched_from} on"
                )

    def topics_present(self, present: Mapping[str, int]) -> None:
        """The topics that the metadata tells at the end, with their partitions."""
        for topic, partitions in self._topics.items():
            if present.get(topic) not in (partitions, self._perhaps.get(topic, partitions)):
                raise Violation(f"topic {topic} was created with {partitions} partitions, now {present.get(topic)}")

    def _same(
        self, partition: Partition, known: dict[int, str], offset: int, name: str, what: str, *, add: bool = True
    ) -> None:
        before = known.get(offset)
        if before is None:
            if add:
                known[offset] = name
        elif before != name:
            raise Violation(f"{_text(partition)}: offset {offset} was {what} as {before}, now it is {name}")


def _text(partition: Partition) -> str:
    return f"{partition[0]}-{partition[1]}"
