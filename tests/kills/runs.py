"""The kills and the checks. `Kills(...).run(n)`; every finding is an AssertionError that names the run and the seed."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from ottla.local.ports import free_port
from tests.broker.storage.agreement import disagreements_of
from tests.kills.broker import LOG_DIR
from tests.kills.load import PARTITIONS, Load, number_of
from tests.watermarks import watermarks

TOPICS: dict[str, tuple[bool, dict[str, str]]] = {
    "plain": (False, {"segment.bytes": "40000"}),
    "idempotent": (True, {"segment.bytes": "30000", "flush.ms": "200"}),
    "idempotent-lz4": (True, {"segment.bytes": "20000", "flush.messages": "5"}),
    "retained": (True, {"segment.bytes": "20000", "retention.bytes": "100000", "file.delete.delay.ms": "100"}),
}
"""(is the producer idempotent, topic configuration) by topic."""

_LIMIT_S = 120.0
_POLL_S = 0.01
_DELETE_EVERY = 20


@dataclass
class Summary:
    """What was done."""

    runs: int = 0
    kills_during_start: int = 0
    acknowledged: int = 0
    checked: int = 0
    repeated: int = 0
    """Records of the plain producer that are there more than once, as its promise allows."""


@dataclass
class _Seen:
    """One partition as it has been read: the values by offset, and where to read on."""

    values: dict[int, int] = field(default_factory=dict)
    next_offset: int = 0
    next_value: int = 0


class Kills:
    """One data directory and its broker, killed again and again. `tell` takes a line per run."""

    def __init__(self, directory: Path, seed: int, tell: Callable[[str], None] = lambda line: None) -> None:
        self._directory = directory
        self._seed = seed
        self._tell = tell
        self._random = random.Random(seed)
        self._port, self._http_port = free_port(), free_port()
        self._process: subprocess.Popen[bytes] | None = None
        self._seen = {(topic, partition): _Seen() for topic in TOPICS for partition in range(PARTITIONS)}
        self._loads: list[Load] = []
        self._began = time.monotonic()
        self.summary = Summary()

    def run(self, runs: int) -> Summary:
        """Raises AssertionError with what does not hold."""
        try:
            self._launch()
            self._wait_until_ready()
            self._create_topics()
            self._loads = [
                Load(self._bootstrap, topic, is_idempotent=is_idempotent, seed=self._seed)
                for topic, (is_idempotent, _) in TOPICS.items()
            ]
            for load in self._loads:
                load.start()
            for number in range(runs):
                self._one(number)
            for load in self._loads:
                load.stop()
                assert not load.failed, load.failed[:3]
            self._check("at the end", is_complete=True)
            self.summary.acknowledged = sum(load.count for load in self._loads)
        finally:
            for load in self._loads:
                load._stopping.set()
            self._kill()
        return self.summary

    def _one(self, number: int) -> None:
        where = f"run {number} of seed {self._seed}"
        during_start = self._load_and_kill()
        found = disagreements_of(self._log_dir, was_killed=True)
        assert not found, f"{where}, after the kill: {found[:5]}"
        self._launch()
        if during_start:
            self.summary.kills_during_start += 1
            time.sleep(self._random.uniform(0, 1.2))
            self._kill()
            found = disagreements_of(self._log_dir, was_killed=True)
            assert not found, f"{where}, after a kill during the start: {found[:5]}"
            self._launch()
        self._wait_until_ready()
        self._check(where)
        if number % _DELETE_EVERY == _DELETE_EVERY - 1:
            self._delete_checked(where)
        self.summary.runs += 1
        acknowledged = sum(load.count for load in self._loads)
        seconds = time.monotonic() - self._began
        self._tell(f"{where}: {seconds:.1f} s, {acknowledged} acknowledged, {self.summary.checked} read")

    def _load_and_kill(self) -> bool:
        """Under load until a random point; gives whether the next start is to be killed too."""
        load = self._random.choice(self._loads)
        assert load.wait_for(load.count + self._random.randrange(1, 150), _LIMIT_S), self._last_lines()
        time.sleep(self._random.uniform(0, 0.05))
        self._kill()
        return self._random.random() < 0.2

    # -- the process --------------------------------------------------------------------------------------------

    @property
    def _bootstrap(self) -> str:
        return f"127.0.0.1:{self._port}"

    @property
    def _log_dir(self) -> Path:
        return self._directory / LOG_DIR

    def _launch(self) -> None:
        arguments = [str(self._directory), str(self._port), str(self._http_port)]
        with (self._directory / "broker.log").open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.kills.broker", *arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def _kill(self) -> None:
        if self._process is not None and self._process.poll() is None:
            os.kill(self._process.pid, signal.SIGKILL)
            self._process.wait(_LIMIT_S)

    def _wait_until_ready(self) -> None:
        deadline = time.monotonic() + _LIMIT_S
        while not self._is_ready():
            assert self._process is not None and self._process.poll() is None, self._last_lines()
            assert time.monotonic() < deadline, self._last_lines()
            time.sleep(_POLL_S)

    def _is_ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self._http_port}/readyz", timeout=_LIMIT_S) as answer:
                return bool(answer.status == 200)
        except (urllib.error.URLError, OSError):
            return False

    def _last_lines(self) -> str:
        return (self._directory / "broker.log").read_text(errors="replace")[-3000:]

    # -- as a client --------------------------------------------------------------------------------------------

    def _create_topics(self) -> None:
        admin = AdminClient({"bootstrap.servers": self._bootstrap})
        new = [
            NewTopic(topic, PARTITIONS, 1, config={"index.interval.bytes": "300", **config})
            for topic, (_, config) in TOPICS.items()
        ]
        for future in admin.create_topics(new).values():
            future.result(_LIMIT_S)

    def _consumer(self) -> Consumer:
        return Consumer(
            {
                "bootstrap.servers": self._bootstrap,
                "group.id": "checks",
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
                "fetch.wait.max.ms": 20,
                "reconnect.backoff.max.ms": 100,
                "log_level": 0,
            }
        )

    def _check(self, where: str, *, is_complete: bool = False) -> None:
        """Reads what is new (with `is_complete` everything there is) and holds it against all that is known."""
        consumer = self._consumer()
        try:
            for load in self._loads:
                for partition in range(PARTITIONS):
                    # Before the log's end is asked for: all of it is there.
                    known, latest = load.acknowledged(partition, 0), load.acknowledged_without_offset(partition)
                    self._check_partition(where, consumer, load, partition, known, is_complete)
                    # The values of an idempotent load are in order: what comes before the next one has been read.
                    is_read = latest < self._seen[load.topic, partition].next_value
                    assert is_read, f"{where}, {load.topic}-{partition}: {latest} is acknowledged and not there"
        finally:
            consumer.close()

    def _check_partition(
        self, where: str, consumer: Consumer, load: Load, partition: int, known: dict[int, int], is_complete: bool
    ) -> None:
        where = f"{where}, {load.topic}-{partition}"
        seen = self._seen[load.topic, partition]
        start, end = watermarks(consumer, load.topic, partition)
        is_retained = load.topic == "retained"
        assert is_retained or start <= seen.next_offset, f"{where}: begins at {start}, {seen.next_offset} was next"
        first = start if is_complete else max(start, seen.next_offset)
        read = _read(consumer, load.topic, partition, first, end)
        end = max([end, *(offset + 1 for offset in read)])  # the load went on meanwhile
        for offset in sorted(read):
            value = read[offset]
            before = seen.values.get(offset, value)
            assert before == value, f"{where}: offset {offset} was {before} and is {value}"
            if offset >= seen.next_offset:
                if load.is_idempotent:
                    # Retention may have taken some before they were read; none comes twice.
                    fits = value >= seen.next_value if is_retained else value == seen.next_value
                    assert fits, f"{where}: offset {offset} is {value}, {seen.next_value} was next"
                elif value < seen.next_value:
                    self.summary.repeated += 1
                seen.next_value = max(seen.next_value, value + 1)
            seen.values[offset] = value
        start, _ = watermarks(consumer, load.topic, partition)  # retention went on meanwhile
        lost = {
            offset: value for offset, value in known.items() if offset >= start and seen.values.get(offset) != value
        }
        assert not lost, f"{where}: acknowledged and not there: {dict(sorted(lost.items())[:5])} (of {len(lost)})"
        gone = [offset for offset in seen.values if offset >= end]
        assert not gone, f"{where}: ends at {end}, {max(gone)} was read before"
        if is_complete:
            missing = [offset for offset in seen.values if offset >= start and offset not in read]
            assert not missing, f"{where}: read before and gone: {missing[:5]}"
        self.summary.checked += len(read)
        seen.next_offset = max(seen.next_offset, end)

    def _delete_checked(self, where: str) -> None:
        """DeleteRecords up to what has been checked, so that a long run stays small."""
        admin = AdminClient({"bootstrap.servers": self._bootstrap})
        ends = {
            (topic, partition): seen.next_offset
            for (topic, partition), seen in self._seen.items()
            if topic != "retained" and seen.next_offset
        }
        asked = [TopicPartition(topic, partition, end) for (topic, partition), end in ends.items()]
        for at, future in admin.delete_records(asked, request_timeout=_LIMIT_S).items():
            low = future.result(_LIMIT_S).low_watermark
            assert low >= at.offset, f"{where}: {at.topic}-{at.partition} begins at {low}, not {at.offset}"
        for load in self._loads:
            for partition in range(PARTITIONS):
                if (load.topic, partition) in ends:
                    # Nothing is asked of these again: the log begins behind them. Where it does not, a record that has
                    # been read may be acknowledged later, to a producer that sends it again.
                    load.forget(partition, ends[load.topic, partition])
                    self._seen[load.topic, partition].values = {}


def _read(consumer: Consumer, topic: str, partition: int, first: int, end: int) -> dict[int, int]:
    """The values of a partition by offset; what retention takes away meanwhile is left out."""
    found: dict[int, int] = {}
    deadline = time.monotonic() + _LIMIT_S
    consumer.assign([TopicPartition(topic, partition, first)])
    position = first
    while position < end:
        assert time.monotonic() < deadline, f"{topic}-{partition} cannot be read at {position}, it ends at {end}"
        for message in consumer.consume(500, 0.02):
            if (message.topic(), message.partition()) != (topic, partition):
                continue  # of the partition read before: what had been fetched of it may come after `unassign`
            offset, value = message.offset(), message.value()
            if message.error() is not None or offset is None or value is None or offset > position:
                low, _ = watermarks(consumer, topic, partition)
                assert low > position, f"{topic}-{partition}: {offset} comes at {position}: {message.error()}"
                position = low  # retention was faster
                consumer.assign([TopicPartition(topic, partition, low)])
                break
            found[offset] = number_of(value)
            position = offset + 1
    consumer.unassign()
    return found
