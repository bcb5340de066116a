"""Runs the scenarios: starts the systems, warms them up, measures in alternating rounds without a restart.

One round of one system: fill the page cache, let the disk finish, read the brokers' CPU time, run the load, read it
again. The order of the systems rotates from round to round.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from bench import failover, spark_read, spark_stream, spark_write, tls
from bench.availability import outage_table as availability
from bench.coordinators import coordinator_table as coordinators
from bench.floor import write_plainly
from bench.java import LoadResult
from bench.operator_scale import scenario as operator_scale
from bench.page_cache import PageCache
from bench.scenarios import (
    BY_NAME,
    FAILOVER,
    IDLE,
    OPERATOR,
    PARTITIONS,
    RECORD_BYTES,
    RUN_ALONE,
    SMALL_RECORD_BYTES,
    SPARK_READ,
    SPARK_READ_SMALL,
    SPARK_STREAM,
    SPARK_WRITE,
    TLS,
    Request,
    Scenario,
    Volume,
)
from bench.storage.storage_table import STORAGE, TITLES
from bench.storage.surroundings import Surroundings
from bench.systems import APACHE_KAFKA, NULL_BROKER, System
from bench.tls import BenchTls

METRICS = (
    "throughput_mb_s", "cpu_s_per_gb", "cpu_us_per_request", "p50_ms", "p99_ms", "rss_mb", "start_s", "rows_per_s",
    spark_read.SPARK_CPU, *(f"{step}_ms" for step in spark_stream.STEPS),
    *TITLES, *availability.TITLES, *coordinators.TITLES, "writes_at_rest", "topics_ready_s", "noop_pass_ms",
    "failover_s", "election_s",
)  # fmt: skip
FLOOR = "floor"


@dataclass
class Measured:
    """Everything that was measured: values[scenario][metric][system] is a list with one value per round."""

    values: dict[str, dict[str, dict[str, list[float]]]] = field(default_factory=dict)
    bytes_per_request: dict[str, dict[str, list[float]]] = field(default_factory=dict)
    cold: list[dict[str, object]] = field(default_factory=list)

    def add(self, scenario: str, metric: str, system: str, value: float | None) -> None:
        if value is not None:
            self.values.setdefault(scenario, {}).setdefault(metric, {}).setdefault(system, []).append(value)

    def median(self, scenario: str, metric: str, system: str) -> float | None:
        found = self.values.get(scenario, {}).get(metric, {}).get(system)
        return statistics.median(found) if found else None


class BenchRunner:
    """One run of the benchmark. `names` are the systems to compare, in the order of the first round."""

    def __init__(self, work: Path, names: Sequence[str], volume: Volume, rounds: int, console: Console) -> None:
        self.measured = Measured()
        self._work = work
        self._names = tuple(names)
        self._volume = volume
        self._rounds = rounds
        self._cache = PageCache(work)
        self._fills_page_cache = volume.fills_page_cache
        self._progress = Progress(
            SpinnerColumn(), TextColumn("{task.description:<28}"), BarColumn(), MofNCompleteColumn(),
            TimeElapsedColumn(), TextColumn("{task.fields[step]}"), console=console,
        )  # fmt: skip

    def run(self, scenarios: Sequence[Scenario]) -> Measured:
        """Measures the scenarios; whatever was started is stopped, also after an error."""
        with self._progress:
            self._total = self._progress.add_task("all scenarios", total=len(scenarios), step="")
            try:
                for brokers, is_tls in ((1, False), (1, True), (3, False)):
                    group = [
                        item
                        for item in scenarios
                        if (item.brokers, item.is_tls) == (brokers, is_tls) and item.name not in RUN_ALONE
                    ]
                    if group:
                        self._run_group(group, brokers, tls.make(self._work) if is_tls else None)
                for item in scenarios:
                    if item.name == IDLE:
                        self._run_idle()
                    elif item.name == SPARK_READ:
                        self._step("both Spark connectors")
                        spark_read.run(item.name, self._work, self._rounds, self._volume.records, self.measured)
                        self._progress.advance(self._total)
                    elif item.name == SPARK_READ_SMALL:
                        self._step("both Spark connectors")
                        spark_read.run(
                            item.name, self._work, self._rounds, self._volume.records * 4, self.measured,
                            record_bytes=SMALL_RECORD_BYTES,
                        )  # fmt: skip
                        self._progress.advance(self._total)
                    elif item.name == SPARK_STREAM:
                        self._step("both Spark connectors")
                        batches = 60 if self._volume.fills_page_cache else 5
                        spark_stream.run(self._work, self._rounds, batches, self.measured)
                        self._progress.advance(self._total)
                    elif item.name == SPARK_WRITE:
                        self._step("both Spark connectors")
                        spark_write.run(self._work, self._rounds, self._volume.records, self.measured)
                        self._progress.advance(self._total)
                    elif item.name == FAILOVER:
                        self._step("a broker of three dies")
                        failover.run(self._work, self._volume.fills_page_cache, self._rounds, self.measured)
                        self._progress.advance(self._total)
                    elif item.name == OPERATOR:
                        self._step("an API server, a fleet and an operator")
                        operator_scale.run(self._work, self._volume.fills_page_cache, self.measured)
                        self._progress.advance(self._total)
                self._run_storage([item.name for item in scenarios])
            finally:
                self._cache.close()
        return self.measured

    # -- groups of scenarios on one set of systems

    def _run_group(self, scenarios: Sequence[Scenario], brokers: int, over: BenchTls | None) -> None:
        has_null = brokers == 1 and over is None
        names = tuple(name for name in self._names if has_null or name != NULL_BROKER)
        with self._started(names, brokers, over) as systems:
            for system in systems:
                self._warm_up(system, brokers)
            for scenario in scenarios:
                self._run_scenario(scenario, systems)
                self._progress.advance(self._total)

    @contextmanager
    def _started(self, names: Sequence[str], brokers: int, over: BenchTls | None) -> Iterator[list[System]]:
        systems = [System(name, self._work / f"{name}-{brokers}", brokers, tls=over) for name in names]
        try:
            for system in systems:
                self._step(f"starting {system.name}")
                system.start()
            yield systems
        finally:
            for system in systems:
                system.stop()

    def _warm_up(self, system: System, brokers: int) -> None:
        """At least `warm_up_bytes` written and read, in quarters; the first quarter is the cold figure."""
        self._step(f"warming up {system.name}")
        suffix = "" if system.tls is None else TLS
        scenario = BY_NAME["rf3-java-64k" if brokers == 3 else "produce-java-64k" + suffix]
        share = 3 if brokers == 3 else 1
        records = max(1, self._volume.warm_up_bytes // RECORD_BYTES // 4)
        volume = self._volume.of(records * share)
        system.create_topic("warm-up", PARTITIONS, brokers)
        for quarter in range(4):
            self._fill()
            request = Request(self._work, system, "warm-up", volume)
            result, cpu = self._loaded(scenario, request)
            if quarter == 0:
                self._note_cold(scenario.name, system, result, cpu)
        if system.name != NULL_BROKER and brokers == 1:
            for name in ("consume-java" + suffix, "consume-librdkafka" + suffix):
                request = Request(self._work, system, "warm-up", self._volume.of(records))
                result, cpu = self._loaded(BY_NAME[name], request)
                self._note_cold(name, system, result, cpu)
        if brokers == 1:
            system.create_topic("warm-up-requests", 1, 1)
            for name in ("single-100b" + suffix, "sync-100b" + suffix):
                request = Request(self._work, system, "warm-up-requests", self._volume)
                self._loaded(BY_NAME[name], request)
            system.delete_topic("warm-up-requests")
        system.delete_topic("warm-up")

    def _note_cold(self, scenario: str, system: System, result: LoadResult, cpu: float) -> None:
        self.measured.cold.append(
            {
                "scenario": scenario,
                "system": system.name,
                "bytes": result.bytes,
                "throughput_mb_s": result.bytes / result.seconds / 1e6,
                "cpu_s_per_gb": cpu / (result.bytes / 1e9),
            }
        )

    # -- one scenario

    def _run_scenario(self, scenario: Scenario, systems: Sequence[System]) -> None:
        taking_part = [item for item in systems if scenario.with_null_broker or item.name != NULL_BROKER]
        rate = self._half_rate(scenario, systems)
        task = self._progress.add_task(scenario.name, total=self._rounds * len(taking_part), step="")
        topic = f"bench-{scenario.name}"
        for system in taking_part:
            self._step(f"{system.name}: preparing")
            system.create_topic(topic, scenario.partitions, scenario.brokers)
            if scenario.name.startswith("consume"):
                self._fill()
                self._loaded(BY_NAME["produce-java-64k"], Request(self._work, system, topic, self._volume))
        # One uncounted round: what is read is in the page cache, and the code of this load is compiled.
        for system in taking_part:
            self._step(f"{system.name}: uncounted round")
            small = self._volume.of(
                self._volume.records if scenario.name.startswith("consume") else self._volume.records // 10
            )
            self._loaded(scenario, Request(self._work, system, topic, small, rate))
        for number in range(self._rounds):
            order = taking_part if number % 2 == 0 else taking_part[::-1]
            moved = 0
            for system in order:
                self._step(f"round {number + 1}, {system.name}")
                if scenario.writes:
                    self._fill()
                result, cpu = self._loaded(scenario, Request(self._work, system, topic, self._volume, rate))
                self._note(scenario, system, result, cpu)
                moved = max(moved, result.bytes)
                self._progress.advance(task)
            if scenario.writes and scenario.block_bytes:
                self._floor(scenario, moved, number)
        for system in taking_part:
            self._step(f"{system.name}: deleting the topic")
            system.delete_topic(topic)
        for path in self._work.glob("floor-*"):
            path.unlink()
        self._progress.update(task, step="")

    def _half_rate(self, scenario: Scenario, systems: Sequence[System]) -> int:
        """Half of Apache Kafka's warm rate in records per second; measured once when it is not known yet."""
        if scenario.half_rate_of is None:
            return -1
        known = self.measured.median(scenario.half_rate_of, "throughput_mb_s", APACHE_KAFKA)
        if known is None:
            system = next((item for item in systems if item.name == APACHE_KAFKA), systems[0])
            self._step(f"{system.name}: its full rate")
            other = BY_NAME[scenario.half_rate_of]
            system.create_topic("full-rate", other.partitions, other.brokers)
            self._fill()
            result, _ = self._loaded(other, Request(self._work, system, "full-rate", self._volume))
            system.delete_topic("full-rate")
            known = result.bytes / result.seconds / 1e6
        return int(known * 1e6 / RECORD_BYTES / 2)

    def _loaded(self, scenario: Scenario, request: Request) -> tuple[LoadResult, float]:
        """Runs the load once: its result and the CPU seconds of all brokers of the system."""
        before = request.system.cpu_seconds()
        result = scenario.load(replace(request, is_tls=scenario.is_tls))
        request.system.check()
        return result, request.system.cpu_seconds() - before

    def _note(self, scenario: Scenario, system: System, result: LoadResult, cpu: float) -> None:
        name, measured = scenario.name, self.measured
        measured.add(name, "throughput_mb_s", system.name, result.bytes / result.seconds / 1e6)
        measured.add(name, "cpu_s_per_gb", system.name, cpu / (result.bytes / 1e9))
        if result.requests:
            measured.add(name, "cpu_us_per_request", system.name, cpu / result.requests * 1e6)
            sizes = measured.bytes_per_request.setdefault(name, {}).setdefault(system.name, [])
            sizes.append(result.bytes / result.requests)
        if scenario.has_latency:
            measured.add(name, "p50_ms", system.name, result.p50_ms)
            measured.add(name, "p99_ms", system.name, result.p99_ms)
        measured.add(name, "rss_mb", system.name, system.resident_bytes() / 1e6)

    def _floor(self, scenario: Scenario, total_bytes: int, number: int) -> None:
        self._step(f"round {number + 1}, plain writes")
        self._fill()
        path = self._work / f"floor-{scenario.name}-{number}"
        floor = write_plainly(path, total_bytes, scenario.block_bytes)
        self.measured.add(scenario.name, "throughput_mb_s", FLOOR, floor.bytes / floor.seconds / 1e6)
        self.measured.add(scenario.name, "cpu_s_per_gb", FLOOR, floor.cpu_seconds / (floor.bytes / 1e9))

    # -- storage

    def _run_storage(self, names: Sequence[str]) -> None:
        given = Surroundings(
            work=self._work,
            out=self._work.parent,
            systems=self._names,
            rounds=self._rounds,
            is_quick=not self._fills_page_cache,
            measured=self.measured,
            step=self._step,
            fill=self._fill,
        )
        for scenario in (*STORAGE, *availability.AVAILABILITY, *coordinators.COORDINATORS):
            if scenario.name in names:
                scenario.run(given)
                self._progress.advance(self._total)

    # -- start and idle

    def _run_idle(self) -> None:
        task = self._progress.add_task(IDLE, total=self._volume.starts * len(self._names), step="")
        for name in self._names:
            system = System(name, self._work / f"{name}-idle")
            try:
                for number in range(self._volume.starts):
                    self._step(f"{name}: start {number + 1}")
                    system.start()
                    time.sleep(self._volume.idle_seconds)
                    self.measured.add(IDLE, "start_s", name, system.start_seconds[-1])
                    self.measured.add(IDLE, "rss_mb", name, system.resident_bytes() / 1e6)
                    system.stop_brokers()
                    self._progress.advance(task)
            finally:
                system.stop()
        self._progress.update(task, step="")
        self._progress.advance(self._total)

    def _fill(self) -> None:
        if not self._fills_page_cache:
            return
        # What earlier rounds wrote goes to the disk first: nobody pays for the writeback of another.
        os.sync()
        self._cache.fill()

    def _step(self, text: str) -> None:
        self._progress.update(self._total, step=text)
        if not self._progress.console.is_terminal:
            self._progress.console.print(f"{time.strftime('%H:%M:%S')} {text}", markup=False, highlight=False)
