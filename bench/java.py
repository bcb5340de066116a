"""Apache Kafka's jars and Java processes: its servers and its performance tools."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

KAFKA_VERSION = "3.9.1"
_PERFORMANCE = (
    "-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20", "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent", "-XX:MaxInlineLevel=15", "-Djava.awt.headless=true",
)  # fmt: skip
"""What Apache Kafka's scripts set."""

SERVER_HEAP = ("-Xms1G", "-Xmx1G")
ZOOKEEPER_HEAP = ("-Xms512M", "-Xmx512M")
TOOL_HEAP = ("-Xmx512M",)

_LOGGING = """log4j.rootLogger={level}, out
log4j.appender.out=org.apache.log4j.ConsoleAppender
log4j.appender.out.target=System.err
log4j.appender.out.layout=org.apache.log4j.PatternLayout
log4j.appender.out.layout.ConversionPattern=[%d] %p %m (%c)%n
"""


class LoadFailed(RuntimeError):
    """A load ended without a result; the message carries its output."""


@dataclass(frozen=True, slots=True)
class LoadResult:
    """What a client saw. Latencies are those of requests, or of records where the tool knows no others."""

    bytes: int
    seconds: float
    requests: int
    p50_ms: float | None = None
    p99_ms: float | None = None


def jars() -> Path:
    """The folder that scripts/fetch-jars.sh fills; it is run when the jars are not there."""
    cache = Path(os.environ.get("OTTLA_CACHE") or Path.home() / ".cache" / "ottla")
    folder = cache / "jars"
    if not (folder / f"kafka_2.13-{KAFKA_VERSION}.jar").exists():
        script = Path(__file__).parents[1] / "scripts" / "fetch-jars.sh"
        subprocess.run([str(script), "kafka"], check=True)
    return folder


def command(work: Path, heap: tuple[str, ...], main: str, *arguments: str, level: str = "INFO") -> list[str]:
    """The command line of a Java program of Apache Kafka's; `work` takes its logging configuration."""
    java = shutil.which("java")
    if java is None:
        raise LoadFailed("java is missing: apt-get install openjdk-17-jre-headless")
    logging = work / f"log4j-{level.lower()}.properties"
    if not logging.exists():
        logging.write_text(_LOGGING.format(level=level))
    return [java, *heap, *_PERFORMANCE, f"-Dlog4j.configuration=file:{logging}", "-cp", f"{jars()}/*", main, *arguments]


def produce(
    work: Path,
    bootstrap: str,
    topic: str,
    *,
    records: int,
    record_bytes: int,
    rate: int = -1,
    security: Mapping[str, str] = MappingProxyType({}),
    **properties: object,
) -> LoadResult:
    """Kafka's ProducerPerformance.

    Args:
        rate: records/s.
        security: the keys of its connections.
        properties: producer keys with underscores for dots.
    """
    names = {**{name.replace("_", "."): value for name, value in properties.items()}, **security}
    text = _run(
        command(
            work, TOOL_HEAP, "org.apache.kafka.tools.ProducerPerformance",
            "--topic", topic, "--num-records", str(records), "--record-size", str(record_bytes),
            "--throughput", str(rate), "--print-metrics",
            "--producer-props", f"bootstrap.servers={bootstrap}", *(f"{name}={value}" for name, value in names.items()),
            level="WARN",
        )
    )  # fmt: skip
    summary = re.search(r"(\d+) records sent, ([\d.]+) records/sec .*?(\d+) ms 50th, \d+ ms 95th, (\d+) ms 99th", text)
    if summary is None or int(summary[1]) != records:
        raise LoadFailed(f"ProducerPerformance sent {summary[1] if summary else 'none'} of {records} records:\n{text}")
    return LoadResult(
        bytes=records * record_bytes,
        seconds=records / float(summary[2]),
        requests=_metric(text, "producer-metrics:request-total"),
        p50_ms=float(summary[3]),
        p99_ms=float(summary[4]),
    )


def consume(
    work: Path,
    bootstrap: str,
    topic: str,
    *,
    records: int,
    record_bytes: int,
    security: Mapping[str, str] = MappingProxyType({}),
) -> LoadResult:
    """Kafka's ConsumerPerformance with a new group; the time is that of fetching, without the rebalance."""
    config = work / "consumer.properties"
    config.write_text("".join(f"{name}={value}\n" for name, value in security.items()))
    text = _run(
        command(
            work, TOOL_HEAP, "org.apache.kafka.tools.ConsumerPerformance",
            "--bootstrap-server", bootstrap, "--topic", topic, "--messages", str(records), "--print-metrics",
            "--timeout", "60000", "--consumer.config", str(config), level="WARN",
        )
    )  # fmt: skip
    # start, end, MB, MB/s, records, records/s, rebalance ms, fetch ms, MB/s of fetching, records/s of fetching
    row = re.search(r"^\d{4}-[^,]*,[^,]*, ([\d.]+), [\d.]+, (\d+), [\d.]+, -?\d+, (\d+), ", text, re.MULTILINE)
    if row is None or int(row[2]) < records:
        raise LoadFailed(f"ConsumerPerformance read {row[2] if row else 'none'} of {records} records:\n{text}")
    return LoadResult(
        bytes=int(row[2]) * record_bytes,
        seconds=int(row[3]) / 1000,
        requests=_metric(text, "consumer-fetch-manager-metrics:fetch-total"),
    )


def _metric(text: str, name: str) -> int:
    found = re.search(rf"^{re.escape(name)}:\{{[^}}]*\}}\s*: ([\d.]+)", text, re.MULTILINE)
    return int(float(found[1])) if found else 0


def _run(line: list[str]) -> str:
    done = subprocess.run(line, capture_output=True, text=True, timeout=900)
    if done.returncode:
        raise LoadFailed(f"{line[-1]}: status {done.returncode}\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}")
    return done.stdout
