"""The benchmark's own parts: what it measures with, and what it reports."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from bench import handlers, machine, null_broker, plots, report
from bench.floor import write_plainly
from bench.page_cache import PageCache
from bench.report import entries, goal_of
from bench.runner import FLOOR, Measured
from bench.scenarios import FULL, SCENARIOS, Request
from bench.systems import APACHE_KAFKA, NULL_BROKER, OURS, System
from bench.usage import cpu_seconds, memory_bytes, resident_bytes
from ottla_broker.protocol.errors import ErrorCode
from ottla_broker.protocol.generated import produce
from ottla_broker.records.record import Record, build_batch

SPIN = "import sys, time\nend = time.process_time() + 0.3\nwhile time.process_time() < end: pass\nprint(flush=True)\n"


def test_the_cpu_time_of_a_process_counts_its_children_living_and_ended() -> None:
    parent = (
        "import subprocess, sys\n"
        f"subprocess.run([sys.executable, '-c', {SPIN!r}], stdout=subprocess.DEVNULL)\n"
        f"child = subprocess.Popen([sys.executable, '-c', {SPIN + 'sys.stdin.read()'!r}],"
        " stdin=subprocess.PIPE, stdout=subprocess.PIPE)\n"
        "child.stdout.readline()\nprint(flush=True)\nsys.stdin.read()\n"
    )
    process = subprocess.Popen([sys.executable, "-c", parent], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdout is not None and process.stdin is not None
    process.stdout.readline()
    assert cpu_seconds([process.pid]) >= 0.58
    assert resident_bytes([process.pid]) > 2_000_000
    process.stdin.close()
    process.wait()
    process.stdout.close()
    assert cpu_seconds([process.pid]) == 0


def test_the_floor_writes_what_it_says(tmp_path: Path) -> None:
    floor = write_plainly(tmp_path / "floor", 1_000_000, 65536)
    assert floor.bytes == (tmp_path / "floor").stat().st_size >= 1_000_000
    assert floor.seconds > 0


def test_a_full_page_cache_is_not_filled_again(tmp_path: Path) -> None:
    cache = PageCache(tmp_path)
    cache.free_bytes_wanted = memory_bytes("MemTotal")
    cache.fill()
    assert list(tmp_path.iterdir()) == []
    cache.close()


def filled() -> Measured:
    measured = Measured()
    for system, rates, cpu in ((OURS, (180, 200, 220), 0.5), (APACHE_KAFKA, (100, 90, 110), 2.0)):
        for rate in rates:
            measured.add("produce-java-64k", "throughput_mb_s", system, rate)
            measured.add("produce-java-64k", "cpu_s_per_gb", system, cpu)
    measured.add("produce-java-64k", "throughput_mb_s", NULL_BROKER, 300)
    measured.add("produce-java-64k", "throughput_mb_s", FLOOR, 3000)
    measured.add("idle", "start_s", OURS, 0.3)
    measured.bytes_per_request["produce-java-64k"] = {OURS: [500_000.4]}
    measured.cold.append(
        {"scenario": "produce-java-64k", "system": OURS, "bytes": 1, "throughput_mb_s": 1.0, "cpu_s_per_gb": 2.0}
    )
    return measured


def test_an_entry_has_the_medians_their_ratio_and_the_number_of_rounds() -> None:
    first = entries(filled())[0]
    assert first == {
        "scenario": "produce-java-64k",
        "metric": "throughput_mb_s",
        "ours": 200.0,
        "apache_kafka": 100.0,
        "ratio": 2.0,
        "floor": 3000.0,
        "null_broker": 300.0,
        "rounds": 3,
        "bytes_per_request": 500000,
    }
    assert [entry["ratio"] for entry in entries(filled())] == [2.0, 0.25, None]


def test_a_goal_is_met_or_not_or_cannot_be_told() -> None:
    throughput, cpu, start = entries(filled())
    assert goal_of(cpu) == ("≤ 0.6", True)
    assert goal_of(throughput) == ("≥ 1", True)
    assert goal_of(start) == ("≤ 0.25", None)


@pytest.mark.parametrize(("null_cpu", "met"), [(0.4, True), (0.3, False)])
def test_a_broker_is_held_to_the_floor_of_its_language(null_cpu: float, met: bool) -> None:
    """Half a second of CPU is a quarter of Apache Kafka's."""
    measured = filled()
    measured.add("produce-java-64k", "cpu_s_per_gb", NULL_BROKER, null_cpu)
    assert goal_of(entries(measured)[1]) == ("≤ 0.6, ≤ 1.3 × null", met)


def test_the_page_of_the_manual_says_when_and_where_it_was_made(tmp_path: Path) -> None:
    page = tmp_path / "benchmark.md"
    report.write_page(page, filled(), machine.description())
    text = page.read_text()
    assert text.startswith("# Beside Apache Kafka 3.9.1\n\n<!-- Written by `make bench`")
    assert f"{os.cpu_count()} cores of " in text and "CPython 3." in text
    assert "| produce-java-64k | cpu_s_per_gb | 0.5 (0.5 to 0.5) | 2 (2 to 2) | 0.25 | ≤ 0.6 | yes |" in text


def test_the_null_broker_writes_what_is_intact_and_refuses_the_rest(tmp_path: Path) -> None:
    broker = null_broker.NullBroker(9092, null_broker.PartitionFiles(tmp_path))
    good = bytes(build_batch([Record(0, 0, None, b"a")]))
    sent = [
        produce.PartitionProduceData(index=index, records=memoryview(records))
        for index, records in enumerate((good, good[:-1] + b"!"))
    ]
    request = produce.ProduceRequest(acks=1, topic_data=[produce.TopicProduceData(name="t", partition_data=sent)])
    response: Any = broker._produce(11, request)
    codes = [one.error_code for one in response.responses[0].partition_responses]
    assert codes == [ErrorCode.NONE, ErrorCode.CORRUPT_MESSAGE]
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {"t-0": good}


def test_the_null_broker_keeps_the_bytes_of_the_topic_that_is_written_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(null_broker, "FILE_BYTES", 10)
    files = null_broker.PartitionFiles(tmp_path)
    for index, records in ((0, b"abcde"), (1, b"f"), (0, b"ghijk")):
        files.append("first", index, memoryview(records))
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {"first-0": b"abcdeghijk", "first-1": b"f"}
    files.append("first", 0, memoryview(b"lm"))
    assert (tmp_path / "first-0").read_bytes() == b"lm"
    files.append("second", 0, memoryview(b"n"))
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {"second-0": b"n"}


def test_the_report_is_written_as_json_as_a_table_and_as_plots(tmp_path: Path) -> None:
    found = report.write(tmp_path, filled())
    assert json.loads((tmp_path / "report.json").read_text()) == found
    text = (tmp_path / "report.md").read_text()
    assert "| produce-java-64k | throughput_mb_s | 200 (180 to 220) | 100 (90 to 110) | 2 |" in text
    assert "Cold" in text
    drawn = plots.draw(tmp_path, filled())
    assert {path.name for path in drawn} == {"throughput_mb_s.png", "cpu_s_per_gb.png", "start_s.png", "ratios.png"}


def test_every_scenario_and_metric_of_the_report_is_there() -> None:
    assert [scenario.name for scenario in SCENARIOS] == [
        "produce-java-256k", "produce-java-64k", "produce-java-16k", "produce-librdkafka-1m", "consume-java",
        "consume-librdkafka", "single-100b", "sync-100b", "produce-java-64k-half-rate", "rf3-java-64k",
        "rf3-java-64k-half-rate", "idle", "spark-read", "spark-read-100b", "spark-write", "spark-stream",
        "partitions-5000", "partitions-1000", "append-read-1m", "append-read-64k", "append-read-1k", "append-roll",
        "recovery-64k", "recovery-1k", "compaction-1k", "compaction-100b", "log-growth",
        "controlled-shutdown", "failover-6s", "failover-18s", "transactions-100ms", "transactions-10-records",
        "transactions-10-records-many", "transactions-100ms-paced", "transactions-10-records-many-paced",
        "transactions-consumed", "transactions-consumed-paced", "groups-1000", "operator", "partitions-10000-failover",
        "produce-java-64k-tls", "produce-librdkafka-1m-tls", "consume-java-tls", "consume-librdkafka-tls",
        "single-100b-tls", "sync-100b-tls",
    ]  # fmt: skip
    named = [scenario.name for scenario in SCENARIOS if scenario.when_named]
    assert named == ["log-growth", "operator", "partitions-10000-failover"]


def test_librdkafka_produces_to_the_null_broker_and_its_requests_are_counted(tmp_path: Path) -> None:
    system = System(NULL_BROKER, tmp_path)
    by_name = {scenario.name: scenario for scenario in SCENARIOS}
    try:
        system.start()
        volume = FULL.of(2_000)
        result = by_name["produce-librdkafka-1m"].load(Request(tmp_path, system, "t", volume))
        assert result.bytes == 2_000_000
        assert result.requests >= 2
        result = by_name["sync-100b"].load(Request(tmp_path, system, "t", volume))
        assert result.requests == volume.requests
        assert result.p50_ms is not None and result.p99_ms is not None and result.p50_ms <= result.p99_ms
        assert system.resident_bytes() > 10_000_000
        assert system.start_seconds[0] > 0
    finally:
        system.stop()
    assert not os.path.exists(tmp_path)


def test_the_cost_of_the_handlers_is_measured_of_requests_that_succeed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handlers, "ROUNDS", 1)
    monkeypatch.setattr(handlers, "REQUESTS", 5)
    found = handlers.measure()
    assert len(found) == 4 and all(spent > 0 for spent in found.values())
