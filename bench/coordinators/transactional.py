"""transactions-*: the Java producer with a transactional id, and a read_committed consumer, one broker of each system.

Both systems run at the same time, and rounds alternate between them in turned order. A round is a JVM of its own
(`TransactionalLoad.java`): it warms up, then measures for a fixed time. Its commits are timed after a flush, so that
the time is that of the coordinator and not that of the producer's queue. A transaction counts when its commit begins
and ends within the measured time.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from bench import java
from bench.storage.surroundings import Surroundings
from bench.systems import System

RECORD_BYTES = 1000
PARTITIONS = 16
_FOREVER = 2_000_000_000
_TOPIC = "transactions"


@dataclass(frozen=True, slots=True)
class TransactionalLoad:
    """What the clients do. A transaction ends after `commit_records` records or `commit_ms`, whichever comes first;
    `rate` in records per second of all producers, 0 for as fast as it goes."""

    name: str
    description: str
    producers: int = 1
    consumers: int = 0
    commit_records: int = _FOREVER
    commit_ms: int = 2_000_000
    rate: int = 0
    batch_bytes: int = 65_536
    linger_ms: int = 5


LOADS = (
    TransactionalLoad("transactions-100ms", "transactional producer, a commit every 100 ms", commit_ms=100),
    TransactionalLoad(
        "transactions-10-records",
        "transactional producer, a commit every 10 records",
        commit_records=10,
        batch_bytes=16_384,
        linger_ms=0,
    ),
    TransactionalLoad(
        "transactions-10-records-many",
        "sixteen transactional producers, a commit every 10 records",
        producers=16,
        commit_records=10,
        batch_bytes=16_384,
        linger_ms=0,
    ),
    TransactionalLoad(
        "transactions-100ms-paced",
        "a commit every 100 ms at 80 000 records a second, half of what Apache Kafka takes",
        commit_ms=100,
        rate=80_000,
    ),
    TransactionalLoad(
        "transactions-10-records-many-paced",
        "sixteen producers, a commit every 10 records at 8 000 records a second, half of what Apache Kafka takes",
        producers=16,
        commit_records=10,
        rate=8_000,
        batch_bytes=16_384,
        linger_ms=0,
    ),
    TransactionalLoad(
        "transactions-consumed",
        "transactional producer, a commit every 100 ms, and a read_committed consumer",
        consumers=1,
        commit_ms=100,
    ),
    TransactionalLoad(
        "transactions-consumed-paced",
        "the same at 5 000 records a second",
        consumers=1,
        commit_ms=100,
        rate=5_000,
    ),
)


def run(load: TransactionalLoad, given: Surroundings) -> None:
    """Measures one load on the systems of the run, `rounds` times."""
    with ExitStack() as ended:
        systems = []
        for name in given.brokers:
            given.step(f"{load.name}: starting {name}")
            system = System(name, given.work / f"{name}-{load.name}")
            ended.callback(system.stop)
            system.start()
            systems.append(system)
        for number in range(-1, given.rounds):
            for system in systems if number % 2 == 0 else systems[::-1]:
                given.step(f"{load.name}: {system.name}, " + (f"round {number + 1}" if number >= 0 else "warm-up"))
                given.fill()
                found = measure(load, system, given.work, is_quick=given.is_quick)
                if number >= 0:
                    for metric, value in found.items():
                        given.measured.add(load.name, metric, system.name, value)


def measure(load: TransactionalLoad, system: System, work: Path, *, is_quick: bool) -> dict[str, float]:
    """The metrics of one round, on a topic of its own. Raises LoadFailed."""
    system.create_topic(_TOPIC, PARTITIONS, 1)
    seen, cpu_s = drive(load, system.bootstrap, _TOPIC, work, system.cpu_seconds, is_quick=is_quick)
    system.check()
    system.delete_topic(_TOPIC)
    return figures(seen, cpu_s, system.resident_bytes())


def drive(
    load: TransactionalLoad,
    bootstrap: str,
    topic: str,
    work: Path,
    cpu_seconds: Callable[[], float],
    *,
    is_quick: bool,
) -> tuple[dict[str, float], float]:
    """Runs the clients: what they have counted, and the growth of `cpu_seconds` within the measured time.

    Raises LoadFailed: a client has ended with an error; the message carries the end of its log.
    """
    program = Path(__file__).with_name("TransactionalLoad.java")
    arguments = {
        "bootstrap": bootstrap,
        "topic": topic,
        "producers": load.producers,
        "consumers": load.consumers,
        "record-bytes": RECORD_BYTES,
        "commit-records": load.commit_records,
        "commit-ms": load.commit_ms,
        "rate": load.rate,
        "batch-size": load.batch_bytes,
        "linger-ms": load.linger_ms,
        "warm-up-ms": 500 if is_quick else 5_000,
        "measured-ms": 1_000 if is_quick else 12_000,
    }
    line = java.command(
        work,
        java.TOOL_HEAP,
        str(program),
        *(f"{name}={value}" for name, value in arguments.items()),
        level="WARN",
    )
    log = work / f"{load.name}.log"
    with log.open("w") as errors, subprocess.Popen(line, stdout=subprocess.PIPE, stderr=errors, text=True) as process:
        assert process.stdout is not None
        begins = process.stdout.readline().strip() == "measuring"
        before = cpu_seconds()
        answer = process.stdout.readline()
        cpu_s = cpu_seconds() - before
    if not begins or not answer or process.returncode:
        raise java.LoadFailed(f"{load.name}: status {process.returncode}\n{log.read_text()[-4000:]}")
    seen = {name: float(value) for name, _, value in (pair.partition("=") for pair in answer.split())}
    return seen, cpu_s


def figures(seen: Mapping[str, float], cpu_s: float, resident_bytes: float) -> dict[str, float]:
    """The metrics out of what the clients have counted and what the broker has spent.

    >>> seen = {"seconds": 2.0, "transactions": 10, "records": 4000, "commit_p50_ms": 1.0, "commit_p99_ms": 2.0}
    >>> found = figures(seen, 0.5, 3e6)
    >>> found["throughput_mb_s"], found["transactions_s"], found["cpu_us_per_transaction"], found["cpu_s_per_gb"]
    (2.0, 5.0, 50000.0, 125.0)
    >>> consumed = {"consumed": 1000, "end_to_end_p50_ms": 3.0, "end_to_end_p99_ms": 4.0}
    >>> figures({**seen, **consumed}, 0.5, 3e6)["consumed_mb_s"]
    0.5
    """
    found = {
        "throughput_mb_s": seen["records"] * RECORD_BYTES / seen["seconds"] / 1e6,
        "transactions_s": seen["transactions"] / seen["seconds"],
        "cpu_us_per_transaction": cpu_s / max(1.0, seen["transactions"]) * 1e6,
        "cpu_s_per_gb": cpu_s / (max(1.0, seen["records"]) * RECORD_BYTES / 1e9),
        "commit_p50_ms": seen["commit_p50_ms"],
        "commit_p99_ms": seen["commit_p99_ms"],
        "rss_mb": resident_bytes / 1e6,
    }
    if "consumed" in seen:
        found["consumed_mb_s"] = seen["consumed"] * RECORD_BYTES / seen["seconds"] / 1e6
        found["end_to_end_p50_ms"] = seen["end_to_end_p50_ms"]
        found["end_to_end_p99_ms"] = seen["end_to_end_p99_ms"]
    return found
