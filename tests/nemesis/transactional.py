"""Transactional clients as processes that are killed again and again, and what they leave, read at the end.

Whoever is killed is started again at once with the same transactional id: that fences it, and aborts what it had open.
Some are stopped instead, and go on when their successor has begun.
"""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from tests.nemesis.checker import FINAL
from tests.nemesis.elle import Outcome
from tests.nemesis.history import ClientEnded, Committed, Copied, History, Transacted, now
from tests.nemesis.load import TOPIC, Client
from tests.nemesis.transactional_client import Options, appended
from tests.watermarks import watermarks

LISTS, COPY = "nemesis-lists", "nemesis-copy"
LIST_PARTITIONS = 3
COPY_GROUP = "nemesis-copying"
_LIVES_S = (2.0, 10.0)
"""The shortest and the longest time between two kills of a client."""
_ZOMBIES = 0.3
_END_S = 60.0
_NUMBERS = 1_000_000
"""Transactions of a client have numbers from its index times so many up."""
_GAP = 100
_LAST = 10**9
_POLL_S = 0.2


class _Incarnation:
    """One process of a client, and what it said last. `ready` is set when it has its transactional id, `ended` when it
    says nothing any more."""

    def __init__(self, options: Options, history: History, began: Callable[[int], None]) -> None:
        command = [sys.executable, "-m", "tests.nemesis.transactional_client", json.dumps(asdict(options))]
        self.name = options.transactional_id
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
        self.ready = threading.Event()
        self.ended = threading.Event()
        self.reason = ""
        self.late_commit: int | None = None
        """A transaction that it began when its successor was ready, and committed all the same."""
        self._history = history
        self._began = began
        self._successor: _Incarnation | None = None
        self._open: dict[str, Any] | None = None
        self._is_committing = False
        self._is_late = False
        threading.Thread(target=self._read, name=self.name, daemon=True).start()

    def is_replaced_by(self, successor: _Incarnation) -> None:
        self._successor = successor

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.endswith("\n"):  # else it was killed in the middle of it
                self._on(json.loads(line))
        status = self.process.wait(_END_S)
        self.reason = self.reason or {0: "stopped", -signal.SIGKILL: "killed"}.get(status, f"status {status}")
        number = None if self._open is None else self._open["began"]
        self._history.add(ClientEnded(now(), self.name, self.reason, number))
        if self._open is not None:
            # What it had not asked to commit, its successor aborts.
            self._has_ended(now(), Outcome.INFO if self._is_committing else Outcome.FAIL, ())
        self.ended.set()

    def _on(self, step: Mapping[str, Any]) -> None:
        if "ready" in step:
            self.ready.set()
        elif "began" in step:
            self._open = dict(step)
            self._is_committing = False
            self._is_late = self._successor is not None and self._successor.ready.is_set()
            self._began(step["began"])
        elif "committing" in step:
            self._is_committing = True
        elif "ended" in step:
            if self._is_late and step["outcome"] == Outcome.OK.value:
                self.late_commit = step["ended"]
            reads = tuple((key, tuple(values)) for key, values in step["reads"])
            self._has_ended(step["at"], Outcome(step["outcome"]), reads)
        elif "failed" in step:
            self.reason = step["failed"]

    def _has_ended(self, at: float, outcome: Outcome, reads: tuple[tuple[str, tuple[int, ...]], ...]) -> None:
        assert self._open is not None
        began, number = self._open["at"], self._open["began"]
        appends = tuple((key, value) for key, value in self._open["appends"])
        self._history.add(Transacted(at, began, self.name, number, outcome.value, appends, reads))
        self._open = None


class TransactionalClient(Client):
    """One client after another with the same transactional id. `seed` draws when each is killed and what it does.

    Every third one that appends is stopped instead, and goes on when its successor is ready: it must be fenced.
    """

    def __init__(self, index: int, history: History, options: Options) -> None:
        super().__init__(options.transactional_id, history)
        self._draw = random.Random(options.seed)
        self._next = (index + 1) * _NUMBERS
        self._options = options
        self._spared = threading.Event()

    def spare(self) -> None:
        """Kills it no more."""
        self._spared.set()

    def stop(self) -> None:
        self.spare()
        super().stop()

    def _run(self) -> None:
        current = self._start()
        while not self._stopping.is_set():
            life_s = self._draw.uniform(*_LIVES_S)
            is_zombie = self._options.work == "append" and self._draw.random() < _ZOMBIES
            if self._has_ended_within(current, life_s):
                current = self._start()
            elif not self._spared.is_set() and current.ready.is_set():
                current = self._replace(current, is_zombie=is_zombie)
        if not current.ended.is_set():
            current.process.send_signal(signal.SIGTERM)
        if not current.ended.wait(_END_S):
            self.errors.append(f"{self.name} does not end")
            current.process.kill()

    def _replace(self, current: _Incarnation, *, is_zombie: bool) -> _Incarnation:
        if not is_zombie:
            current.process.kill()
            current.ended.wait(_END_S)
            return self._start()
        current.process.send_signal(signal.SIGSTOP)
        successor = self._start(_GAP)
        current.is_replaced_by(successor)
        while not successor.ready.wait(_POLL_S):
            if successor.ended.is_set():  # a coordinator that does not answer may cost it its life, as any other
                successor = self._start()
                current.is_replaced_by(successor)
        current.process.send_signal(signal.SIGCONT)
        if not current.ended.wait(_END_S):
            self.errors.append(f"{self.name} goes on beside its successor")
            current.process.kill()
        if current.late_commit is not None:
            self.errors.append(f"{self.name} was fenced, and committed T{current.late_commit} all the same")
        return successor

    def _has_ended_within(self, current: _Incarnation, seconds: float) -> bool:
        """Or is to be stopped, whichever comes first."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline and not self._stopping.is_set():
            if current.ended.wait(_POLL_S):
                return True
        return current.ended.is_set()

    def _start(self, gap: int = 0) -> _Incarnation:
        """`gap` numbers are left for a predecessor that is not dead."""
        self._next += gap
        options = replace(self._options, first=self._next, seed=self._draw.randrange(2**31))
        return _Incarnation(options, self._history, self._has_begun)

    def _has_begun(self, number: int) -> None:
        self._next = max(self._next, number + 1)


def transactional_clients(history: History, bootstrap: str, partitions: int, seed: int) -> list[TransactionalClient]:
    """Three that append to lists, and two that copy the topic of everybody, which has `partitions`."""
    names = ("append-1", "append-2", "append-3", "copy-1", "copy-2")
    found = []
    for index, name in enumerate(names):
        work, _, _ = name.partition("-")
        options = Options(work, bootstrap, name, LISTS, LIST_PARTITIONS, 0, seed * len(names) + index)
        if work == "copy":
            options = replace(options, topic=COPY, partitions=partitions, source=TOPIC, group=COPY_GROUP)
        found.append(TransactionalClient(index, history, options))
    return found


def await_copies(bootstrap: str, ends: Mapping[int, int], limit_s: float) -> None:
    """Waits until the group of the copies has committed `ends`; whether it has is for the checker to say."""
    deadline = time.monotonic() + limit_s
    while time.monotonic() < deadline and _committed(bootstrap, ends) != ends:
        time.sleep(_POLL_S)


def read_transactions(history: History, bootstrap: str, ends: Mapping[int, int], limit_s: float) -> None:
    """When all transactional clients have ended: the lists, the copy, and the offsets of the group that copied.

    AssertionError where a partition cannot be read to its high watermark: a transaction in it never ends.
    """
    deadline = time.monotonic() + limit_s
    lists: dict[str, list[int]] = defaultdict(list)
    for message in _all_committed(bootstrap, LISTS, LIST_PARTITIONS, deadline):
        key, value = appended(message)
        lists[key].append(value)
    reads = tuple((key, tuple(values)) for key, values in lists.items())
    history.add(Transacted(now(), now(), FINAL, _LAST, Outcome.OK.value, (), reads))
    copies: dict[int, list[str]] = {partition: [] for partition in ends}
    for message in _all_committed(bootstrap, COPY, len(ends), deadline):
        data, partition = message.value(), message.partition()
        assert data is not None and partition is not None
        copies[partition].append(data.decode())
    committed = _committed(bootstrap, ends)
    for partition, values in copies.items():
        history.add(Copied(now(), partition, tuple(values)))
        history.add(Committed(now(), partition, committed.get(partition)))


def _committed(bootstrap: str, partitions: Mapping[int, int]) -> dict[int, int]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": COPY_GROUP, "log_level": 0})
    try:
        found = consumer.committed([TopicPartition(TOPIC, number) for number in partitions], timeout=_END_S)
    except KafkaException:
        return {}
    finally:
        consumer.close()
    return {one.partition: one.offset for one in found if one.offset >= 0}


def _all_committed(bootstrap: str, topic: str, partitions: int, deadline: float) -> list[Message]:
    """Every record that a read_committed consumer gets, up to the high watermark of each partition."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": FINAL,
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "log_level": 0,
        }
    )
    try:
        ends = {number: watermarks(consumer, topic, number, _END_S)[1] for number in range(partitions)}
        consumer.assign([TopicPartition(topic, number, 0) for number in range(partitions)])
        found = []
        positions = dict.fromkeys(ends, 0)
        while any(positions[number] < end for number, end in ends.items()):
            assert time.monotonic() < deadline, f"a transaction in {topic} does not end: {positions} of {ends}"
            for message in consumer.consume(1000, _POLL_S):
                error = message.error()
                if error is None:
                    found.append(message)
                elif error.code() == KafkaError._PARTITION_EOF:
                    partition, offset = message.partition(), message.offset()
                    assert partition is not None and offset is not None
                    positions[partition] = offset
        return found
    finally:
        consumer.close()
