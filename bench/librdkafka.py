"""Loads by librdkafka (confluent-kafka), each in its own process: `python -m bench.librdkafka '{"load": ...}'`.

The parent calls `run`; the child prints one line of JSON.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from bench.java import LoadFailed, LoadResult

_WAIT_S = 60.0
_MESSAGES_PER_CALL = 1000
_PLAIN: Mapping[str, str] = MappingProxyType({})


def run(load: str, bootstrap: str, topic: str, **options: object) -> LoadResult:
    """Runs one of the loads below in a child and gives its result."""
    request = json.dumps({"load": load, "bootstrap": bootstrap, "topic": topic, **options})
    done = subprocess.run(
        [sys.executable, "-m", "bench.librdkafka", request], capture_output=True, text=True, timeout=900
    )
    if done.returncode:
        raise LoadFailed(f"librdkafka {load}: status {done.returncode}\n{done.stderr[-4000:]}")
    return LoadResult(**json.loads(done.stdout.splitlines()[-1]))


class _Requests:
    """Counts what librdkafka sends, from its statistics."""

    def __init__(self) -> None:
        self.count = 0

    def take(self, text: str, kind: str) -> None:
        brokers = json.loads(text)["brokers"].values()
        self.count = sum(broker.get("req", {}).get(kind, 0) for broker in brokers)


def produce(
    bootstrap: str,
    topic: str,
    records: int,
    record_bytes: int,
    acks: str,
    security: Mapping[str, str] = _PLAIN,
) -> LoadResult:
    """As fast as it goes, batches of up to 1 MB, one partition."""
    from confluent_kafka import Producer

    requests = _Requests()
    failed: list[object] = []
    producer = Producer(
        {
            **security,
            "bootstrap.servers": bootstrap,
            "acks": acks,
            "batch.size": 1_000_000,
            "batch.num.messages": 100_000,
            "linger.ms": 50,
            "queue.buffering.max.messages": 2_000_000,
            "queue.buffering.max.kbytes": 256 * 1024,
            "statistics.interval.ms": 250,
            "stats_cb": lambda text: requests.take(text, "Produce"),
            "error_cb": failed.append,
        }
    )
    payload = _payload(record_bytes)
    producer.list_topics(topic, timeout=_WAIT_S)
    messages = [{"value": payload} for _ in range(_MESSAGES_PER_CALL)]
    started = time.perf_counter()
    left = records
    while left:
        queued = producer.produce_batch(topic, messages[: min(left, _MESSAGES_PER_CALL)], partition=0)
        left -= queued
        producer.poll(0)
        if queued < _MESSAGES_PER_CALL and left:
            producer.poll(0.005)
    remaining = producer.flush(_WAIT_S)
    seconds = time.perf_counter() - started
    if remaining:
        raise LoadFailed(f"{remaining} of {records} records were not acknowledged {failed}")
    producer.poll(0.3)
    return LoadResult(records * record_bytes, seconds, requests.count)


def consume(
    bootstrap: str,
    topic: str,
    records: int,
    record_bytes: int,
    partitions: int,
    security: Mapping[str, str] = _PLAIN,
) -> LoadResult:
    """Every partition from its beginning, without a group, until `records` have come."""
    from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

    requests = _Requests()
    consumer = Consumer(
        {
            **security,
            "bootstrap.servers": bootstrap,
            "group.id": "bench",
            "enable.auto.commit": False,
            "enable.partition.eof": False,
            "statistics.interval.ms": 250,
            "stats_cb": lambda text: requests.take(text, "Fetch"),
        }
    )
    consumer.list_topics(topic, timeout=_WAIT_S)
    started = time.perf_counter()
    consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING) for partition in range(partitions)])
    seen = 0
    while seen < records:
        messages = consumer.consume(_MESSAGES_PER_CALL * 10, timeout=_WAIT_S)
        if not messages:
            raise LoadFailed(f"{seen} of {records} records came")
        if messages[-1].error() is not None:
            raise LoadFailed(str(messages[-1].error()))
        seen += len(messages)
        # A list of ten thousand messages is freed here and not while the next one is fetched.
        del messages
    seconds = time.perf_counter() - started
    deadline = time.perf_counter() + 0.3
    while time.perf_counter() < deadline:
        consumer.poll(0.05)
    consumer.close()
    return LoadResult(seen * record_bytes, seconds, requests.count)


def requests(
    bootstrap: str,
    topic: str,
    records: int,
    record_bytes: int,
    in_flight: int,
    security: Mapping[str, str] = _PLAIN,
) -> LoadResult:
    """One record a request, `in_flight` of them unanswered at any time; latencies from produce to acknowledgement."""
    from confluent_kafka import Producer

    producer = Producer(
        {
            **security,
            "bootstrap.servers": bootstrap,
            "acks": "all",
            "linger.ms": 0,
            "batch.num.messages": 1,
            "max.in.flight.requests.per.connection": in_flight,
            "socket.nagle.disable": True,
        }
    )
    payload = _payload(record_bytes)
    clock = time.perf_counter
    latencies: list[float] = []
    started_at: list[float] = []
    failed: list[object] = []

    def acknowledged(error: object, message: Any) -> None:
        if error is not None:
            failed.append(error)
        latencies.append(clock() - started_at[len(latencies)])

    def send() -> None:
        started_at.append(clock())
        producer.produce(topic, payload, partition=0, on_delivery=acknowledged)

    producer.list_topics(topic, timeout=_WAIT_S)
    started = clock()
    while len(latencies) < records and not failed:
        while len(started_at) < records and len(started_at) - len(latencies) < in_flight:
            send()
        if not producer.poll(_WAIT_S):
            raise LoadFailed(f"{len(latencies)} of {records} records were acknowledged")
    seconds = clock() - started
    if failed:
        raise LoadFailed(f"a record was refused: {failed[0]}")
    latencies.sort()
    return LoadResult(
        records * record_bytes,
        seconds,
        records,
        p50_ms=latencies[len(latencies) // 2] * 1000,
        p99_ms=latencies[int(len(latencies) * 0.99)] * 1000,
    )


def spread(bootstrap: str, topic: str, records: int, record_bytes: int, partitions: int, rate: int) -> LoadResult:
    """One record a batch, one partition after the other, `rate` records a second (0: as fast as it goes)."""
    from confluent_kafka import Producer

    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "acks": "1",
            "linger.ms": 0,
            "batch.num.messages": 1,
            "queue.buffering.max.messages": 1_000_000,
            "socket.nagle.disable": True,
        }
    )
    payload = _payload(record_bytes)
    clock = time.perf_counter
    latencies: list[float] = []
    failed: list[object] = []

    def acknowledged(error: object, message: Any) -> None:
        if error is not None:
            failed.append(error)
        latencies.append(message.latency())

    producer.list_topics(topic, timeout=_WAIT_S)
    started = clock()
    for number in range(records):
        while rate and (ahead := number / rate - (clock() - started)) > 0:
            producer.poll(ahead)
        producer.produce(topic, payload, partition=number % partitions, on_delivery=acknowledged)
        if number % 100 == 0:
            producer.poll(0)
    if producer.flush(_WAIT_S) or failed:
        raise LoadFailed(f"{len(latencies)} of {records} records were answered {failed[:1]}")
    seconds = clock() - started
    latencies.sort()
    return LoadResult(
        records * record_bytes,
        seconds,
        records,
        p50_ms=latencies[len(latencies) // 2] * 1000,
        p99_ms=latencies[int(len(latencies) * 0.99)] * 1000,
    )


def _payload(size: int) -> bytes:
    return bytes(ord("A") + number % 26 for number in range(size))


def main() -> None:
    options = json.loads(sys.argv[1])
    loads: dict[str, Callable[..., LoadResult]] = {
        "produce": produce, "consume": consume, "requests": requests, "spread": spread,
    }  # fmt: skip
    load = loads[options.pop("load")]
    result = load(**options)
    print(json.dumps({name: getattr(result, name) for name in LoadResult.__slots__}))


if __name__ == "__main__":
    main()
