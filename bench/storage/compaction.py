"""compaction-1k, compaction-100b: the same closed segments compacted by both; and produce p99 while that goes on.

Four segments of keyed records, each key some four times, are put into the one partition of a topic while its broker is
down; the broker recovers them with cleanup.policy=delete. Then the policy becomes compact (min.cleanable.dirty.ratio
0.01, log.cleaner.backoff.ms 100 for both), and the time runs until cleaner-offset-checkpoint tells the end. Meanwhile a
producer sends 200 records a second of 1 kB with acks=all to another topic, as it did for ten seconds before: the ratio
of both p99 is what cleaning costs the others.
"""

from __future__ import annotations

import os
import random
import threading
import time
from pathlib import Path
from struct import Struct

from bench.storage.surroundings import Surroundings, create_topic, wait_for_leaders
from bench.systems import System, SystemFailed
from ottla_broker.records.record import Record, build_batch

SIZES = {"1k": 1000, "100b": 100}
_TOPIC = "compacted"
_OTHER = "beside"
_SEGMENTS = 4
_REPEATS = 4
_BATCH_BYTES = 16_384
_START_MS = 1_700_000_000_000
_LIMIT_S = 900.0
_QUIET_S = 10.0
_RATE = 200
_BASE_OFFSET = Struct(">q")


def scenario(size: str) -> str:
    """The scenario's name, such as compaction-1k."""
    return f"compaction-{size}"


def run(size: str, given: Surroundings) -> None:
    """Fills the figures of one record size."""
    name = scenario(size)
    total = (32 if given.is_quick else 512 if size == "1k" else 256) * 1024 * 1024
    given.step(f"{name}: writing the segments")
    files = given.work / name
    files.mkdir()
    end = write_segments(files, SIZES[size], total // _SEGMENTS)
    for number in range(given.rounds):
        for system_name in given.brokers[:: 1 if number % 2 == 0 else -1]:
            _measure(given, name, files, end, total, System(system_name, given.work / f"{system_name}-{name}"))
    for file in files.iterdir():
        file.unlink()
    files.rmdir()


def write_segments(files: Path, record_bytes: int, segment_bytes: int) -> int:
    """`<base>.log` files of about that size, and one with a last record; gives the offset where that one begins."""
    draw = random.Random(1)
    per_batch = max(1, _BATCH_BYTES // record_bytes)
    key_count = max(1, _SEGMENTS * segment_bytes // record_bytes // _REPEATS)
    offset = 0
    for _ in range(_SEGMENTS):
        with (files / f"{offset:020d}.log").open("wb") as file:
            written = 0
            while written < segment_bytes:
                records = [
                    Record(
                        offset + number,
                        _START_MS + offset,
                        b"key-%09d" % draw.randrange(key_count),
                        _value(record_bytes, draw),
                    )
                    for number in range(per_batch)
                ]
                batch = build_batch(records, leader_epoch=0)
                written += file.write(batch)
                offset += per_batch
    last = build_batch([Record(offset, _START_MS + offset, b"last", b"")], leader_epoch=0)
    (files / f"{offset:020d}.log").write_bytes(last)
    return offset


def _value(record_bytes: int, draw: random.Random) -> bytes:
    return draw.randbytes(max(1, record_bytes - 30))


def _measure(given: Surroundings, name: str, files: Path, end: int, total: int, system: System) -> None:
    from confluent_kafka.admin import (  # type: ignore[attr-defined]
        AdminClient,
        AlterConfigOpType,
        ConfigEntry,
        ConfigResource,
        ResourceType,
    )

    def alter(kind: ResourceType, target: str, **values: str) -> None:
        entries = [
            ConfigEntry(key.replace("_", "."), value, incremental_operation=AlterConfigOpType.SET)
            for key, value in values.items()
        ]
        resource = ConfigResource(kind, target, incremental_configs=entries)
        admin.incremental_alter_configs([resource])[resource].result(60)

    try:
        given.step(f"{name}: {system.name}, recovering")
        system.start()
        create_topic(system, _TOPIC, 1, **{"min.cleanable.dirty.ratio": "0.01", "retention.ms": "-1"})
        create_topic(system, _OTHER, 1)
        system.stop_brokers()
        folder = system.work / "log-0" / f"{_TOPIC}-0"
        for old in folder.iterdir():
            if old.name[:20].isdigit() or old.name == "leader-epoch-checkpoint":
                old.unlink()
        for file in files.iterdir():
            os.link(file, folder / file.name) if file.stat().st_size > 1000 else _copy(file, folder / file.name)
        (system.work / "log-0" / ".kafka_cleanshutdown").unlink()
        system.start()
        wait_for_leaders(system, _TOPIC, 1, end_offset=end + 1)
        admin = AdminClient({"bootstrap.servers": system.bootstrap})
        alter(ResourceType.BROKER, "0", log_cleaner_backoff_ms="100")
        time.sleep(16)  # the wait of 15 s that was begun before
        with _Producer(system) as producer:
            given.step(f"{name}: {system.name}, producing without a cleaning")
            time.sleep(_QUIET_S / (5 if given.is_quick else 1))
            before = producer.take()
            given.step(f"{name}: {system.name}, compacting {total // 1024**2} MiB")
            cpu = system.cpu_seconds()
            started = time.monotonic()
            alter(ResourceType.TOPIC, _TOPIC, cleanup_policy="compact")
            _until_clean(system, end)
            seconds = time.monotonic() - started
            during = producer.take()
        given.measured.add(name, "compaction_s", system.name, seconds)
        given.measured.add(name, "compaction_mb_s", system.name, total / 1e6 / seconds)
        given.measured.add(name, "compaction_cpu_s", system.name, system.cpu_seconds() - cpu)
        given.measured.add(name, "produce_p99_before_ms", system.name, _p99(before))
        given.measured.add(name, "produce_p99_cleaning_ms", system.name, _p99(during))
        given.measured.add(name, "produce_p99_growth", system.name, _p99(during) / _p99(before))
        left = sum(file.stat().st_size for file in folder.glob("*.log"))
        given.measured.add(name, "compacted_share", system.name, left / total)
    finally:
        system.stop()


def _copy(source: Path, target: Path) -> None:
    """The last segment is appended to: no link."""
    target.write_bytes(source.read_bytes())


def _until_clean(system: System, end: int) -> None:
    checkpoint = system.work / "log-0" / "cleaner-offset-checkpoint"
    deadline = time.monotonic() + _LIMIT_S
    while time.monotonic() < deadline:
        system.check()
        lines = checkpoint.read_text().splitlines()[2:] if checkpoint.exists() else []
        if any(line.split() == [_TOPIC, "0", str(end)] for line in lines):
            return
        time.sleep(0.02)
    raise SystemFailed(f"{system.name} has not compacted {_TOPIC} within {_LIMIT_S:.0f} s")


def _p99(latencies: list[float]) -> float:
    """In ms."""
    return sorted(latencies)[int(len(latencies) * 0.99)] * 1000


class _Producer:
    """Sends at a steady rate in a thread of its own; `take` gives the latencies since the last call, in seconds."""

    def __init__(self, system: System) -> None:
        self._bootstrap = system.bootstrap
        self._latencies: list[float] = []
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> _Producer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()

    def take(self) -> list[float]:
        taken, self._latencies = self._latencies, []
        return taken

    def _run(self) -> None:
        from confluent_kafka import KafkaError, Message, Producer

        producer = Producer({"bootstrap.servers": self._bootstrap, "acks": "all", "linger.ms": 0})
        value = bytes(1000)

        def send() -> None:
            sent = time.perf_counter()

            def delivered(error: KafkaError | None, _: Message) -> None:
                if error is None:
                    self._latencies.append(time.perf_counter() - sent)

            producer.produce(_OTHER, value, on_delivery=delivered)

        due = time.perf_counter()
        while not self._is_over.is_set():
            send()
            due += 1 / _RATE
            while (wait := due - time.perf_counter()) > 0:
                producer.poll(wait)
        producer.flush(30)
