"""Transactional clients as processes that are killed again and again, and what they leave, read at the end.

Whoever is killed is started again at once with the same transactional id: that fences it, and aborts what it had open.
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
from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from tests.nemesis.checker import FINAL
from tests.nemesis.elle import Outcome
from tests.nemesis.history import ClientEnded, Committed, Copied, History, Transacted, now
from tests.nemesis.load import TOPIC, Client
from tests.nemesis.transactional_client import Options, appended

LISTS, COPY = "nemesis-lists", "nemesis-copy"
LIST_PARTITIONS = 3
COPY_GROUP = "nemesis-copying"
_LIVES_S = (2.0, 10.0)
"""The shortest and the longest time between two kills of a client."""
_END_S = 60.0
_NUMBERS = 100_000
"""Transactions of a client have numbers from its index times so many up."""
_LAST = 10**9
_POLL_S = 0.2


class TransactionalClient(Client):
    """One client, and the process that it is at present. `seed` draws when it is killed and what it does."""

    def __init__(self, index: int, history: History, options: Options) -> None:
        super().__init__(options.transactional_id, history)
        self._draw = random.Random(options.seed)
        self._next = (index + 1) * _NUMBERS
        self._options = options
        self._lock = threading.Lock()
        self._process: subprocess.Popen[str] | None = None
        self._is_spared = False
        self._open: dict[str, Any] | None = None
        self._is_committing = False

    def spare(self) -> None:
        """Kills it no more."""
        self._is_spared = True

    def stop(self) -> None:
        self.spare()
        with self._lock:
            self._stopping.set()
            if self._process is not None:
                self._process.send_signal(signal.SIGTERM)
        super().stop()

    def _run(self) -> None:
        while not self._stopping.is_set():
            self._live_once()

    def _live_once(self) -> None:
        options = replace(self._options, first=self._next, seed=self._draw.randrange(2**31))
        command = [sys.executable, "-m", "tests.nemesis.transactional_client", json.dumps(asdict(options))]
        with self._lock:
            if self._stopping.is_set():
                return
            self._process = process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True
            )
        killer = threading.Timer(self._draw.uniform(*_LIVES_S), self._kill, [process])
        reason = ""
        assert process.stdout is not None
        for line in process.stdout:
            if not line.endswith("\n"):
                break  # it was killed in the middle of it
            step = json.loads(line)
            if "ready" in step:
                killer.start()
            reason = step.get("failed", "")
            self._on(step)
        killer.cancel()
        status = process.wait(_END_S)
        if status not in (0, -signal.SIGKILL):
            self.errors.append(f"{self.name} ended with status {status}")
        number = None if self._open is None else self._open["began"]
        why = reason or {0: "stopped", -signal.SIGKILL: "killed"}.get(status, f"status {status}")
        self._history.add(ClientEnded(now(), self.name, why, number))
        if self._open is not None:
            # What it had not asked to commit, its successor aborts.
            self._ended(now(), Outcome.INFO if self._is_committing else Outcome.FAIL, ())

    def _kill(self, process: subprocess.Popen[str]) -> None:
        if not self._is_spared:
            process.kill()

    def _on(self, step: Mapping[str, Any]) -> None:
        if "began" in step:
            self._open = dict(step)
            self._is_committing = False
            self._next = step["began"] + 1
        elif "committing" in step:
            self._is_committing = True
        elif "ended" in step:
            reads = tuple((key, tuple(values)) for key, values in step["reads"])
            self._ended(step["at"], Outcome(step["outcome"]), reads)

    def _ended(self, at: float, outcome: Outcome, reads: tuple[tuple[str, tuple[int, ...]], ...]) -> None:
        assert self._open is not None
        began, number = self._open["at"], self._open["began"]
        appends = tuple((key, value) for key, value in self._open["appends"])
        self._history.add(Transacted(at, began, self.name, number, outcome.value, appends, reads))
        self._open = None


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
        ends = {
            number: consumer.get_watermark_offsets(TopicPartition(topic, number), timeout=_END_S)[1]
            for number in range(partitions)
        }
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
