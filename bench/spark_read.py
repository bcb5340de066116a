"""The scenario spark-read: Ottla's Spark source and the stock connector, both reading from an Ottla broker, in rows/s.

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
from bench.scenarios import SPARK_READ as NAME
from bench.systems import APACHE_KAFKA, OURS, System

METRIC = "rows_per_s"
TOPIC = "bench-spark-read"
PARTITIONS = 16
RECORD_BYTES = 1000
UNCOUNTED_ROUNDS = 2
"""The Java virtual machine compiles the code of a read during its first seconds."""

_FORMATS = {OURS: "ottla", APACHE_KAFKA: "kafka"}
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


def run(work: Path, rounds: int, records: int, measured: SparkReadResults) -> None:
    """Starts our broker, fills a topic with `records` of 1 kB, and measures both connectors in alternating rounds.

    LoadFailed when a connector does not see exactly the records that were written.
    """
    system = System(OURS, work / "spark-read")
    jobs: dict[str, SparkJob] = {}
    try:
        system.start()
        system.create_topic(TOPIC, PARTITIONS, 1)
        java.produce(
            work, system.bootstrap, TOPIC, records=records, record_bytes=RECORD_BYTES,
            acks="1", batch_size=65536, linger_ms=5, buffer_memory=64 * 1024 * 1024,
        )  # fmt: skip
        for name, connector in _FORMATS.items():
            jars = stock_jars(work) if name == APACHE_KAFKA else []
            jobs[name] = SparkJob(connector, jars, work / f"spark-{name}.log")
        for number in range(UNCOUNTED_ROUNDS + rounds):
            for name in list(_FORMATS)[:: 1 if number % 2 == 0 else -1]:
                before = system.cpu_seconds()
                found = jobs[name].read(system.bootstrap, TOPIC)
                system.check()
                if found.rows != records:
                    raise LoadFailed(f"{_FORMATS[name]} read {found.rows} rows of {records}")
                if number >= UNCOUNTED_ROUNDS:
                    measured.add(NAME, METRIC, name, found.rows / found.seconds)
                    gigabytes = records * RECORD_BYTES / 1e9
                    measured.add(NAME, "cpu_s_per_gb", name, (system.cpu_seconds() - before) / gigabytes)
    finally:
        for job in jobs.values():
            job.close()
        system.stop()


def stock_jars(work: Path) -> list[Path]:
    """The stock connector's jars and, compiled into `work`, the classes that stand in for what it lacks."""
    import pyspark

    folder = java.jars().parent / "spark-connector-jars"
    if not any(folder.glob("spark-sql-kafka-*.jar")):
        subprocess.run([str(Path(__file__).parents[1] / "scripts" / "fetch-jars.sh")], check=True)
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
