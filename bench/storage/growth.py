"""log-growth: one partition that grows, with a consumer that keeps up: latencies against the size of the log, and the
bytes that the broker has read from the disk.

Per step a gigabyte is written as fast as it goes while a consumer reads along; the bytes that the broker reads from the
disk meanwhile are counted. Then, without that load, records of 100 bytes are written one at a time, and fetches of
64 KB are made one at a time, at the end of the log and at random places of it. The series goes to log-growth.json and
log-growth.png; the figures in the report compare its last third with its first.
"""

from __future__ import annotations

import json
import random
import shutil
import socket
import statistics
import subprocess
import sys
import time
from typing import Any

from bench import librdkafka
from bench.storage import growth_plot
from bench.storage.surroundings import Surroundings, create_topic, disk_read_bytes
from bench.systems import System, SystemFailed, ask
from ottla_broker.protocol import codec
from ottla_broker.protocol.api import ApiKey

NAME = "log-growth"
_TOPIC = "growth"
_RECORD_BYTES = 1000
_WANTED_BYTES = 50_000_000_000
_RESERVE_BYTES = 12_000_000_000
"""Disk space that is left to everything else on the machine."""
_FETCH_VERSION = 4
_FETCH_BYTES = 65_536


def run(given: Surroundings) -> None:
    """Fills log-growth and writes its series, also of a run that is interrupted. Systems one after the other: each may
    take the whole disk."""
    series: dict[str, list[dict[str, float]]] = {}
    try:
        for name in given.brokers:
            system = System(name, given.work / f"{name}-{NAME}")
            try:
                system.start()
                create_topic(system, _TOPIC, 1, **{"retention.ms": "-1", "retention.bytes": "-1"})
                _grow(given, system, series.setdefault(name, []))
            finally:
                system.stop()
    finally:
        _report(given, {name: points for name, points in series.items() if points})


def _report(given: Surroundings, series: dict[str, list[dict[str, float]]]) -> None:
    given.out.mkdir(parents=True, exist_ok=True)
    (given.out / f"{NAME}.json").write_text(json.dumps(series, indent=1) + "\n")
    growth_plot.draw(given.out / f"{NAME}.png", series)
    for name, points in series.items():
        third = max(1, len(points) // 3)
        given.measured.add(NAME, "grown_gb", name, points[-1]["gb"])
        given.measured.add(NAME, "disk_read_mb", name, sum(point["disk_read_mb"] for point in points))
        for metric in ("append_p50_ms", "append_p99_ms", "tail_p50_ms", "tail_p99_ms", "random_p50_ms"):
            first, last = (
                statistics.median(point[metric] for point in part) for part in (points[:third], points[-third:])
            )
            given.measured.add(NAME, metric, name, last)
            given.measured.add(NAME, f"{metric.removesuffix('_ms')}_growth", name, last / first)


def _grow(given: Surroundings, system: System, points: list[dict[str, float]]) -> None:
    step = 20_000_000 if given.is_quick else 1_000_000_000
    wanted = 3 * step if given.is_quick else _WANTED_BYTES
    consumer = _Consumer(system)
    size = 0
    try:
        while size < wanted and (given.is_quick or shutil.disk_usage(given.work).free > _RESERVE_BYTES + step):
            given.step(f"{system.name}: {size / 1e9:.0f} GB")
            before = disk_read_bytes(system)
            records = step // _RECORD_BYTES
            librdkafka.run("produce", system.bootstrap, _TOPIC, records=records, record_bytes=_RECORD_BYTES, acks="all")
            size += step
            consumer.wait_for_end()
            from_disk = disk_read_bytes(system) - before
            point = {"gb": size / 1e9, "disk_read_mb": from_disk / 1e6}
            point.update(_latencies(system, 20 if given.is_quick else 300))
            points.append(point)
            system.check()
    finally:
        consumer.close()


def _latencies(system: System, count: int) -> dict[str, float]:
    found = librdkafka.run("requests", system.bootstrap, _TOPIC, records=count, record_bytes=100, in_flight=1)
    assert found.p50_ms is not None and found.p99_ms is not None
    result = {"append_p50_ms": found.p50_ms, "append_p99_ms": found.p99_ms}
    with socket.create_connection(("127.0.0.1", system.ports[0]), timeout=60) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        end = _end_offset(connection)
        draw = random.Random(end)
        for place, last in (("tail", True), ("random", False)):
            times = sorted(
                _fetch(connection, end - 50 - draw.randrange(50) if last else draw.randrange(end)) for _ in range(count)
            )
            result[f"{place}_p50_ms"] = times[len(times) // 2] * 1000
            result[f"{place}_p99_ms"] = times[int(len(times) * 0.99)] * 1000
    return result


def _end_offset(connection: socket.socket) -> int:
    offsets = codec.module(ApiKey.LIST_OFFSETS)
    request = offsets.ListOffsetsRequest(
        replica_id=-1,
        topics=[
            offsets.ListOffsetsTopic(
                name=_TOPIC,
                partitions=[offsets.ListOffsetsPartition(partition_index=0, current_leader_epoch=-1, timestamp=-1)],
            )
        ],
    )
    end: int = ask(connection, ApiKey.LIST_OFFSETS, 5, request).topics[0].partitions[0].offset
    return end


def _fetch(connection: socket.socket, offset: int) -> float:
    """Seconds of one fetch of 64 KB at `offset`."""
    fetch = codec.module(ApiKey.FETCH)
    partition = fetch.FetchPartition(
        partition=0, current_leader_epoch=-1, fetch_offset=offset, partition_max_bytes=_FETCH_BYTES
    )
    request = fetch.FetchRequest(
        replica_id=-1, max_wait_ms=0, min_bytes=1, max_bytes=_FETCH_BYTES,
        topics=[fetch.FetchTopic(topic=_TOPIC, partitions=[partition])],
    )  # fmt: skip
    started = time.perf_counter()
    answer: Any = ask(connection, ApiKey.FETCH, _FETCH_VERSION, request)
    seconds = time.perf_counter() - started
    error = answer.responses[0].partitions[0].error_code
    if error:
        raise SystemFailed(f"a fetch at {offset} was answered with error {error}")
    return seconds


class _Consumer:
    """A consumer in a process of its own that reads everything from the end on; it tells when it has it all."""

    def __init__(self, system: System) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "bench.storage.growth", system.bootstrap],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        self._ask()

    def wait_for_end(self) -> None:
        """Returns when the consumer stands at the end of the log."""
        self._ask()

    def close(self) -> None:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(60)
        self._process.stdout.close()

    def _ask(self) -> None:
        assert self._process.stdin is not None and self._process.stdout is not None
        print("?", file=self._process.stdin, flush=True)
        if not self._process.stdout.readline():
            raise SystemFailed("the consumer of log-growth ended")


def consume(bootstrap: str) -> None:
    """Reads and drops; each line of the input is answered when the position is the log's end."""
    import select

    from confluent_kafka import OFFSET_END, Consumer, TopicPartition

    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "bench", "enable.auto.commit": False})
    consumer.assign([TopicPartition(_TOPIC, 0, OFFSET_END)])
    is_asked = False
    while True:
        consumer.consume(10_000, timeout=0.1)
        if not is_asked and select.select([sys.stdin], [], [], 0)[0]:
            if not sys.stdin.readline():
                break
            is_asked = True
        if is_asked:
            partition = TopicPartition(_TOPIC, 0)
            end = consumer.get_watermark_offsets(partition, timeout=30)[1]
            position = consumer.position([partition])[0].offset
            if position >= end or (position < 0 and not end):
                print("!", flush=True)
                is_asked = False
    consumer.close()


if __name__ == "__main__":
    consume(sys.argv[1])
