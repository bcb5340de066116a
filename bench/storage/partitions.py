"""Many partitions in one broker: what an idle one costs, how fast all of them lead, and the CPU of a light load.

partitions-5000: a topic of 5 000 partitions with one small batch each. Per round the broker is stopped in order and
started; the time counts from exec until ListOffsets is answered for every partition. Memory and descriptors are the
difference to the same broker, started the same way, before it had the topic.

partitions-1000: the CPU time of a broker with 1 000 partitions, without clients and under 1 000 records of 100 bytes a
second, each a batch of its own, spread over all partitions.
"""

from __future__ import annotations

import time

from bench import librdkafka
from bench.java import LoadResult
from bench.storage.surroundings import (
    Surroundings,
    create_topic,
    descriptors,
    mappings,
    restart,
    wait_for_leaders,
)
from bench.systems import System
from bench.usage import resident_bytes

MANY, LIGHT = "partitions-5000", "partitions-1000"
_TOPIC = "many"
_SETTLE_S = 10.0


def run_many(given: Surroundings) -> None:
    """Fills partitions-5000."""
    count = 50 if given.is_quick else 5000
    settle_s = 1.0 if given.is_quick else _SETTLE_S
    for name in given.brokers:
        system = System(name, given.work / f"{name}-{MANY}")
        try:
            given.step(f"{name}: without partitions")
            system.start()
            restart(system)
            time.sleep(settle_s)
            empty_rss, empty_fds = resident_bytes(system.pids), descriptors(system)
            given.step(f"{name}: creating {count} partitions")
            started = time.monotonic()
            create_topic(system, _TOPIC, count)
            given.measured.add(MANY, "create_s", name, time.monotonic() - started)
            _load(system, count, 1, rate=0)
            for number in range(given.rounds):
                given.step(f"{name}: restart {number + 1}")
                before = time.monotonic()
                stop_s = restart(system)
                wait_for_leaders(system, _TOPIC, count, end_offset=1)
                given.measured.add(MANY, "leading_s", name, time.monotonic() - before - stop_s)
                given.measured.add(MANY, "leading_cpu_s", name, system.cpu_seconds())
                given.measured.add(MANY, "stop_s", name, stop_s)
                time.sleep(settle_s)
                per_partition = (resident_bytes(system.pids) - empty_rss) / count / 1024
                given.measured.add(MANY, "rss_kib_per_partition", name, per_partition)
                given.measured.add(MANY, "fds_per_partition", name, (descriptors(system) - empty_fds) / count)
                given.measured.add(MANY, "mappings_per_partition", name, mappings(system) / count)
        finally:
            system.stop()


def run_light(given: Surroundings) -> None:
    """Fills partitions-1000. The systems take turns, both running."""
    count, seconds = (20, 2) if given.is_quick else (1000, 30)
    systems = [System(name, given.work / f"{name}-{LIGHT}") for name in given.brokers]
    try:
        for system in systems:
            given.step(f"{system.name}: creating {count} partitions")
            system.start()
            create_topic(system, _TOPIC, count)
            _load(system, count, 5)  # the code of this load is compiled
        time.sleep(1 if given.is_quick else _SETTLE_S)
        for number in range(given.rounds):
            for system in systems[:: 1 if number % 2 == 0 else -1]:
                given.step(f"round {number + 1}, {system.name}: idle")
                before = system.cpu_seconds()
                time.sleep(seconds)
                share = (system.cpu_seconds() - before) / seconds * 100
                given.measured.add(LIGHT, "cpu_idle_percent", system.name, share)
                given.step(f"round {number + 1}, {system.name}: lightly loaded")
                before = system.cpu_seconds()
                found = _load(system, count, seconds)
                share = (system.cpu_seconds() - before) / found.seconds * 100
                given.measured.add(LIGHT, "cpu_light_percent", system.name, share)
                given.measured.add(LIGHT, "p50_ms", system.name, found.p50_ms)
                given.measured.add(LIGHT, "p99_ms", system.name, found.p99_ms)
    finally:
        for system in systems:
            system.stop()


def _load(system: System, count: int, seconds: int, rate: int | None = None) -> LoadResult:
    """`seconds` records for each of `count` partitions, one a second, or `rate` a second of all together."""
    system.check()
    return librdkafka.run(
        "spread",
        system.bootstrap,
        _TOPIC,
        records=count * seconds,
        record_bytes=100,
        partitions=count,
        rate=count if rate is None else rate,
    )
