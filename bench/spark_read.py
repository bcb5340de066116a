"""The scenarios spark-read and spark-read-100b: Ottla's Spark source and the stock connector, both reading from an
Ottla broker, in rows/s, with the CPU time of the Spark process and its children.

Here `apache_kafka` is the stock connector (spark-sql-kafka-0-10 with its Java client). Each connector has its own Spark
process (`spark_job`); both run for all rounds, and only one reads at a time.

The connector's jars come from Maven Central. An artifact that it loads for delegation tokens is replaced by the three
classes in stock_connector/, which add none.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from bench import java
from bench.java import LoadFailed
from bench.systems import APACHE_KAFKA, OURS, System
from bench.usage import cpu_seconds

METRIC = "rows_per_s"
SPARK_CPU = "spark_cpu_s_per_gb"
"""Of the Spark process and its children; `cpu_s_per_gb` is the broker's."""
TOPIC = "bench-spark-read"
PARTITIONS = 16
RECORD_BYTES = 1000
UNCOUNTED_ROUNDS = 2
"""The Java virtual machine compiles the code of a read during its first seconds."""

FORMATS = {OURS: "ottla", APACHE_KAFKA: "kafka"}
_STAND_INS = Path(__file__).parent / "stock_connector"
_ANSWER_S = 600.0


class SparkReadResults(Protocol):
    """Where figures go: `runner.Measured`."""

    def add(self, scenario: str, metric: str, system: str, value: float | None) -> None: ...


@dataclass(frozen=True, slots=True)
class Read:
    """One read of a topic."""

    rows: int
    seconds: float


@dataclass(frozen=True, slots=True)
class StreamRead:
    """One read of a topic as a stream. `batches` has the times of each micro-batch in ms, by Spark's names."""

    rows: int
    batches: list[dict[str, int]]


class SparkJob:
    """A running `bench.spark_job`."""

    def __init__(self, connector: str, jars: list[Path], log: Path) -> None:
        self._log = log
        with log.open("wb") as errors:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "bench.spark_job", connector, ",".join(map(str, jars))],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True,
            )  # fmt: skip
        self._answer()

    def read(self, bootstrap: str, topic: str, **options: str) -> Read:
        """Counts the topic's rows and adds up the lengths of their values. LoadFailed with the end of the log."""
        assert self._process.stdin is not None
        print(
            json.dumps({"bootstrap": bootstrap, "topic": topic, "options": options}),
            file=self._process.stdin, flush=True,
        )  # fmt: skip
        answer = self._answer()
        return Read(answer["rows"], answer["seconds"])

    def write(self, bootstrap: str, topic: str, records: int, record_bytes: int) -> float:
        """Seconds that it takes to write so many rows. LoadFailed with the end of the log."""
        assert self._process.stdin is not None
        request = {"bootstrap": bootstrap, "topic": topic, "records": records, "record_bytes": record_bytes}
        print(json.dumps(request), file=self._process.stdin, flush=True)
        seconds: float = self._answer()["seconds"]
        return seconds

    def stream(self, bootstrap: str, topic: str, trigger_offsets: int, checkpoint: Path) -> StreamRead:
        """Reads the topic in micro-batches of so many offsets. LoadFailed with the end of the log."""
        assert self._process.stdin is not None
        request = {
            "bootstrap": bootstrap, "topic": topic, "trigger_offsets": trigger_offsets, "checkpoint": str(checkpoint),
        }  # fmt: skip
        print(json.dumps(request), file=self._process.stdin, flush=True)
        answer = self._answer()
        return StreamRead(answer["rows"], answer["batches"])

    def cpu_seconds(self) -> float:
        """The CPU time of the session, its JVM and its Python processes so far."""
        return cpu_seconds([self._process.pid])

    def close(self) -> None:
        """Ends it, also in the middle of a read."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.close()
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()

    def _answer(self) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise LoadFailed(f"the Spark process ended:\n{self._log.read_text(errors='replace')[-4000:]}")
        return json.loads(line)


def run(
    name: str, work: Path, rounds: int, records: int, measured: SparkReadResults, record_bytes: int = RECORD_BYTES
) -> None:
    """Fills a topic of our broker with `records` of `record_bytes`, and measures both connectors in alternating rounds.

    LoadFailed when a connector does not see exactly the records that were written.
    """
    system = System(OURS, work / name)
    jobs: dict[str, SparkJob] = {}
    try:
        system.start()
        fill(work, system, records, record_bytes)
        jobs = start_jobs(work, name)
        for number in range(UNCOUNTED_ROUNDS + rounds):
            for connector in list(FORMATS)[:: 1 if number % 2 == 0 else -1]:
                before, spark_before = system.cpu_seconds(), jobs[connector].cpu_seconds()
                found = jobs[connector].read(system.bootstrap, TOPIC)
                system.check()
                if found.rows != records:
                    raise LoadFailed(f"{FORMATS[connector]} read {found.rows} rows of {records}")
                if number >= UNCOUNTED_ROUNDS:
                    measured.add(name, METRIC, connector, found.rows / found.seconds)
                    gigabytes = records * record_bytes / 1e9
                    measured.add(name, "cpu_s_per_gb", connector, (system.cpu_seconds() - before) / gigabytes)
                    used = jobs[connector].cpu_seconds() - spark_before
                    measured.add(name, SPARK_CPU, connector, used / gigabytes)
    finally:
        for job in jobs.values():
            job.close()
        system.stop()


def fill(work: Path, system: System, records: int, record_bytes: int) -> None:
    """Makes the topic with so many records."""
    system.create_topic(TOPIC, PARTITIONS, 1)
    java.produce(
        work, system.bootstrap, TOPIC, records=records, record_bytes=record_bytes,
        acks="1", batch_size=65536, linger_ms=5, buffer_memory=64 * 1024 * 1024,
    )  # fmt: skip


def start_jobs(work: Path, name: str) -> dict[str, SparkJob]:
    """A Spark process for each connector, by the column of its figures."""
    jars = {OURS: [], APACHE_KAFKA: stock_jars(work)}
    return {
        column: SparkJob(connector, jars[column], work / f"{name}-{column}.log")
        for column, connector in FORMATS.items()
    }


def stock_jars(work: Path) -> list[Path]:
    """The stock connector's jars and, compiled into `work`, the classes that stand in for what it lacks."""
    import pyspark

    folder = java.jars().parent / "spark-connector-jars"
    if not any(folder.glob("spark-sql-kafka-*.jar")):
        subprocess.run([str(Path(__file__).parents[1] / "scripts" / "fetch-jars.sh"), "spark-connector"], check=True)
    compiler, archiver = shutil.which("javac"), shutil.which("jar")
    if compiler is None or archiver is None:
        raise LoadFailed("javac is missing: run scripts/install-system.sh (Debian: openjdk-17-jdk-headless)")
    classes = work / "stock-connector"
    shutil.rmtree(classes, ignore_errors=True)
    classes.mkdir(parents=True)
    assert pyspark.__file__ is not None
    class_path = f"{Path(pyspark.__file__).parent / 'jars'}/*"
    sources = [str(path) for path in sorted(_STAND_INS.glob("*.java"))]
    subprocess.run([compiler, "-nowarn", "-cp", class_path, "-d", str(classes), *sources], check=True)
    archive = work / "stock-connector.jar"
    subprocess.run([archiver, "--create", "--file", str(archive), "-C", str(classes), "."], check=True)
    return [*sorted(folder.glob("*.jar")), archive]
