"""The scenarios: one row each, with its load as a function of a running system."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from bench import java, librdkafka
from bench.availability.outage_table import AVAILABILITY
from bench.coordinators import transactional
from bench.coordinators.coordinator_table import COORDINATORS
from bench.java import LoadResult
from bench.storage.storage_table import STORAGE
from bench.systems import System

RECORD_BYTES = 1000
SMALL_RECORD_BYTES = 100
PARTITIONS = 16


@dataclass(frozen=True, slots=True)
class Volume:
    """How much one round moves. `records` of 1 kB, `requests` of 100 bytes; rates in records per second."""

    records: int
    requests: int
    warm_up_bytes: int
    rate_seconds: float
    idle_seconds: float
    starts: int
    fills_page_cache: bool = True

    def of(self, records: int) -> Volume:
        """A small load of the same kind: so many records, a tenth of the requests, a fifth of the time."""
        return replace(
            self, records=max(1, records), requests=max(1, self.requests // 10), rate_seconds=self.rate_seconds / 5
        )


FULL = Volume(
    records=1_500_000, requests=40_000, warm_up_bytes=4_000_000_000, rate_seconds=15, idle_seconds=10, starts=3
)
QUICK = Volume(
    records=100_000,
    requests=2_000,
    warm_up_bytes=100_000_000,
    rate_seconds=2,
    idle_seconds=1,
    starts=1,
    fills_page_cache=False,
)


@dataclass(frozen=True, slots=True)
class Request:
    """One measured load: where, on what, how much. `rate` in records per second, −1 for as fast as it goes."""

    work: Path
    system: System
    topic: str
    volume: Volume
    rate: int = -1
    is_tls: bool = False

    @property
    def bootstrap(self) -> str:
        return self.system.tls_bootstrap if self.is_tls else self.system.bootstrap

    @property
    def java(self) -> Mapping[str, str]:
        """The keys of a Java client's connections."""
        return self.system.tls.java if self.is_tls and self.system.tls is not None else {}

    @property
    def librdkafka(self) -> Mapping[str, str]:
        """The keys of a client of librdkafka."""
        return dict(self.system.tls.librdkafka) if self.is_tls and self.system.tls is not None else {}


Load = Callable[[Request], LoadResult]


@dataclass(frozen=True, slots=True)
class Scenario:
    """One row of the report. `writes` scenarios have a floor, made of blocks of `block_bytes`.

    `when_named`: only where it is asked for by its name. `is_tls`: the load goes over TLS.
    """

    name: str
    description: str
    load: Load
    partitions: int = PARTITIONS
    brokers: int = 1
    writes: bool = True
    block_bytes: int = 0
    with_null_broker: bool = True
    has_latency: bool = False
    half_rate_of: str | None = None
    when_named: bool = False
    is_tls: bool = False


def _java(batch_bytes: int, acks: str, *, linger_ms: int, replicas: int = 1) -> Load:
    def load(request: Request) -> LoadResult:
        # Every byte is written `replicas` times: the disk space of a round stays the same.
        records = request.volume.records // replicas
        if request.rate > 0:
            records = int(request.rate * request.volume.rate_seconds)
        return java.produce(
            request.work, request.bootstrap, request.topic, records=records, record_bytes=RECORD_BYTES,
            security=request.java,
            rate=request.rate, acks=acks, batch_size=batch_bytes, linger_ms=linger_ms, buffer_memory=64 * 1024 * 1024,
        )  # fmt: skip

    return load


def _librdkafka_produce(request: Request) -> LoadResult:
    return librdkafka.run(
        "produce", request.bootstrap, request.topic,
        records=request.volume.records, record_bytes=RECORD_BYTES, acks="all", security=request.librdkafka,
    )  # fmt: skip


def _java_consume(request: Request) -> LoadResult:
    return java.consume(
        request.work, request.bootstrap, request.topic,
        records=request.volume.records, record_bytes=RECORD_BYTES, security=request.java,
    )  # fmt: skip


def _librdkafka_consume(request: Request) -> LoadResult:
    return librdkafka.run(
        "consume", request.bootstrap, request.topic,
        records=request.volume.records, record_bytes=RECORD_BYTES, partitions=PARTITIONS, security=request.librdkafka,
    )  # fmt: skip


def _requests(in_flight: int) -> Load:
    def load(request: Request) -> LoadResult:
        return librdkafka.run(
            "requests", request.bootstrap, request.topic,
            records=request.volume.requests, record_bytes=SMALL_RECORD_BYTES, in_flight=in_flight,
            security=request.librdkafka,
        )  # fmt: skip

    return load


def _transactional(name: str) -> Load:
    """What `bench.profile` samples the broker under; the benchmark runs these scenarios on systems of their own."""
    load = next((item for item in transactional.LOADS if item.name == name), None)
    if load is None:
        return _java(65536, "1", linger_ms=5)

    def run(request: Request) -> LoadResult:
        system = request.system
        seen, _ = transactional.drive(
            load, system.bootstrap, request.topic, request.work, system.cpu_seconds, is_quick=False
        )
        sent = int(seen["records"]) * transactional.RECORD_BYTES
        return LoadResult(
            sent, seen["seconds"], int(seen["transactions"]), seen["commit_p50_ms"], seen["commit_p99_ms"]
        )

    return run


IDLE = "idle"
SPARK_READ = "spark-read"
SPARK_READ_SMALL = "spark-read-100b"
SPARK_WRITE = "spark-write"
SPARK_STREAM = "spark-stream"
OPERATOR = "operator"
FAILOVER = "partitions-10000-failover"

SCENARIOS: tuple[Scenario, ...] = (
    Scenario(
        "produce-java-256k", "Kafka's producer tool, batches of 256 KB, acks=1, 16 partitions",
        _java(262144, "1", linger_ms=5), block_bytes=262144, has_latency=True,
    ),
    Scenario(
        "produce-java-64k", "Kafka's producer tool, batches of 64 KB, acks=1, 16 partitions",
        _java(65536, "1", linger_ms=5), block_bytes=65536, has_latency=True,
    ),
    Scenario(
        "produce-java-16k", "Kafka's producer tool, batches of 16 KB, linger 0, acks=1, 16 partitions",
        _java(16384, "1", linger_ms=0), block_bytes=16384, has_latency=True,
    ),
    Scenario(
        "produce-librdkafka-1m", "librdkafka, batches of 1 MB, acks=all, 1 partition",
        _librdkafka_produce, partitions=1, block_bytes=1_000_000,
    ),
    Scenario(
        "consume-java", "Kafka's consumer tool, all in the page cache, 16 partitions",
        _java_consume, writes=False, with_null_broker=False,
    ),
    Scenario(
        "consume-librdkafka", "librdkafka's consumer, all in the page cache, 16 partitions",
        _librdkafka_consume, writes=False, with_null_broker=False,
    ),
    Scenario(
        "single-100b", "single records of 100 bytes, acks=all, five requests in flight, 1 partition",
        _requests(5), partitions=1, has_latency=True,
    ),
    Scenario(
        "sync-100b", "single records of 100 bytes, acks=all, one at a time, 1 partition",
        _requests(1), partitions=1, has_latency=True,
    ),
    Scenario(
        "produce-java-64k-half-rate", "batches of 64 KB at half of Apache Kafka's warm rate",
        _java(65536, "1", linger_ms=5), block_bytes=65536, has_latency=True, half_rate_of="produce-java-64k",
    ),
    Scenario(
        "rf3-java-64k", "three brokers, replication factor 3, acks=all, batches of 64 KB, 16 partitions",
        _java(65536, "all", linger_ms=5, replicas=3), brokers=3, block_bytes=65536, with_null_broker=False,
        has_latency=True,
    ),
    Scenario(
        "rf3-java-64k-half-rate", "the same at half of Apache Kafka's warm rate",
        _java(65536, "all", linger_ms=5, replicas=3), brokers=3, block_bytes=65536, with_null_broker=False,
        has_latency=True, half_rate_of="rf3-java-64k",
    ),
    Scenario(
        IDLE, "start until ApiVersions and Metadata are answered; memory without clients",
        _java(65536, "1", linger_ms=5), writes=False, with_null_broker=True,
    ),
    Scenario(
        SPARK_READ, "Spark reads our broker, records of 1 kB: our source, and as apache_kafka Spark's own connector",
        _java(65536, "1", linger_ms=5), writes=False, with_null_broker=False,
    ),
    Scenario(
        SPARK_READ_SMALL, "the same with records of 100 bytes",
        _java(65536, "1", linger_ms=5), writes=False, with_null_broker=False,
    ),
    Scenario(
        SPARK_WRITE,
        "Spark writes our broker, rows of 1 kB: our sink exactly once, as apache_kafka its own connector at least once",
        _java(65536, "1", linger_ms=5), writes=False, with_null_broker=False,
    ),
    Scenario(
        SPARK_STREAM, "what a micro-batch of few records takes in Spark: our source, as apache_kafka its own connector",
        _java(65536, "1", linger_ms=5), writes=False, with_null_broker=False,
    ),
    *(
        Scenario(
            item.name, item.description, _java(65536, "1", linger_ms=5),
            writes=False, with_null_broker=False, when_named=item.when_named,
        )
        for item in (*STORAGE, *AVAILABILITY)
    ),
    *(
        Scenario(
            item.name, item.description, _transactional(item.name), writes=False, with_null_broker=False,
        )
        for item in COORDINATORS
    ),
    Scenario(
        OPERATOR, "the Kubernetes operator with 10 000 topics, a real API server and a fleet of ours on this machine",
        _java(65536, "1", linger_ms=5), writes=False, with_null_broker=False, when_named=True,
    ),
    Scenario(
        FAILOVER, "three brokers, 10 000 partitions of two replicas: one broker is killed, until all have leaders",
        _java(65536, "1", linger_ms=5), writes=False, with_null_broker=False, when_named=True,
    ),
)  # fmt: skip

TLS = "-tls"
"""How the name of a scenario over TLS ends; before it stands that of the plain one."""

_OVER_TLS = (
    "produce-java-64k", "produce-librdkafka-1m", "consume-java", "consume-librdkafka", "single-100b", "sync-100b",
)  # fmt: skip


def _over_tls(plain: Scenario) -> Scenario:
    return replace(
        plain, name=plain.name + TLS, description=f"{plain.description}; TLS 1.3", with_null_broker=False, is_tls=True
    )


SCENARIOS = (*SCENARIOS, *(_over_tls(item) for item in SCENARIOS if item.name in _OVER_TLS))

RUN_ALONE = (
    IDLE, SPARK_READ, SPARK_READ_SMALL, SPARK_WRITE, SPARK_STREAM, OPERATOR, FAILOVER,
    *(item.name for item in (*STORAGE, *AVAILABILITY, *COORDINATORS)),
)  # fmt: skip
"""Scenarios that start their own systems."""

BY_NAME = {scenario.name: scenario for scenario in SCENARIOS}
