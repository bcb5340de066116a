"""What a client pushes, from the request to /metrics: the checks in their order, the series and their bounds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest
from opentelemetry.proto.metrics.v1.metrics_pb2 import MetricsData

from ottla_broker.config.client_metrics import Subscription
from ottla_broker.exposition import Exposition
from ottla_broker.metrics import Metrics
from ottla_broker.protocol.errors import ErrorCode
from ottla_broker.records.compression import Codec, compress
from ottla_broker.telemetry.client_instances import ClientContext, ClientSubscription
from ottla_broker.telemetry.client_telemetry import ClientTelemetry, Push
from ottla_broker.telemetry.push_reading import LITTLE_PUSH_BYTES, MOST_POINTS, read_push_job
from ottla_broker.telemetry.receiver import SeriesReceiver

INTERVAL_MS = 1000
MAX_BYTES = 10_000
CLIENT = ClientContext(bytes(range(16)), "app", "apache-kafka-java", "3.9.1", "127.0.0.1", 1234)
OTHER = ClientContext(bytes(range(1, 17)), "app", "librdkafka", "2.11.0", "127.0.0.1", 1235)
WHO = 'client_id="app",client_instance_id="AAECAwQFBgcICQoLDA0ODw",client_software_name="apache-kafka-java"'


@dataclass(slots=True)
class Resources:
    subscriptions: Mapping[str, Subscription] = field(
        default_factory=lambda: {"s": Subscription(frozenset({"*"}), INTERVAL_MS, {})}
    )
    version: int = 1


class Broker:
    """ClientTelemetry with a clock that the test sets."""

    def __init__(self, most_series: int = 100) -> None:
        self.now_s = 0.0
        self.metrics = Metrics()
        self.resources = Resources()
        self.receiver = SeriesReceiver(most_series, self.metrics)
        self._sweep: Any = None
        clock: Any = SimpleNamespace(monotonic=lambda: self.now_s, call_later=self._call_later)
        self.read_elsewhere = 0
        self.telemetry = ClientTelemetry(
            clock, self.resources, self.receiver, self.metrics, MAX_BYTES, self._read_elsewhere
        )
        self.telemetry.start()

    async def _read_elsewhere(self, codec: int, data: bytes, max_bytes: int) -> Any:
        self.read_elsewhere += 1
        disk: Any = None
        return await read_push_job(disk, codec, data, max_bytes)

    def _call_later(self, _delay_s: float, callback: Any) -> None:
        self._sweep = callback

    def sweep(self) -> None:
        self._sweep()

    def subscription(self, context: ClientContext = CLIENT) -> ClientSubscription:
        found = self.telemetry.subscription(context)
        assert isinstance(found, ClientSubscription)
        return found

    async def push(self, data: bytes, context: ClientContext = CLIENT, **how: Any) -> ErrorCode:
        """The push of a client that has just asked for its subscription."""
        self.now_s += INTERVAL_MS / 1000
        subscription_id = self.subscription(context).subscription_id
        push = Push(how.get("subscription_id", subscription_id), how.get("ends", False), how.get("codec", 0), data)
        return await self.telemetry.push(context, push)

    def samples(self) -> list[str]:
        """The lines of /metrics that clients have pushed."""
        text = Exposition(self.metrics).text().decode()
        return [line for line in text.splitlines() if line.startswith("kafka_client_")]

    def dropped(self) -> int:
        return self.metrics.counter("ottla_client_metrics_dropped_points", "").value


def gauge(name: str, value: float, **attributes: str) -> MetricsData:
    found = MetricsData()
    metric = found.resource_metrics.add().scope_metrics.add().metrics.add(name=name)
    point = metric.gauge.data_points.add(as_double=value)
    for key, text in attributes.items():
        point.attributes.add(key=key).value.string_value = text
    return found


def counter(name: str, value: int, *, is_delta: bool) -> bytes:
    found = MetricsData()
    metric = found.resource_metrics.add().scope_metrics.add().metrics.add(name=name)
    metric.sum.is_monotonic = True
    metric.sum.aggregation_temporality = 1 if is_delta else 2
    metric.sum.data_points.add(as_int=value)
    return bytes(found.SerializeToString())


GAUGE = bytes(gauge("org.apache.kafka.producer.latency.avg", 1.5, node_id="2").SerializeToString())
GAUGE_SAMPLE = f'kafka_client_producer_latency_avg{{{WHO},client_software_version="3.9.1",node_id="2"}} 1.5'


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD])
async def test_a_gauge_is_a_series_with_the_client_and_the_attributes_as_labels(codec: Codec) -> None:
    broker = Broker()
    data = GAUGE if codec is Codec.NONE else compress(codec, GAUGE)
    assert await broker.push(data, codec=int(codec)) is ErrorCode.NONE
    assert broker.samples() == [GAUGE_SAMPLE]


async def test_the_latest_value_of_a_series_counts() -> None:
    broker = Broker()
    for value in (1.0, 3.0, 2.0):
        assert await broker.push(bytes(gauge("a", value).SerializeToString())) is ErrorCode.NONE
    (sample,) = broker.samples()
    assert sample.startswith("kafka_client_a{") and sample.endswith(" 2.0")


@pytest.mark.parametrize(("is_delta", "value"), [(False, 5.0), (True, 9.0)])
async def test_a_monotonic_sum_is_a_counter_with_and_without_deltas(is_delta: bool, value: float) -> None:
    broker = Broker()
    for number in (4, 5):
        assert await broker.push(counter("org.apache.kafka.consumer.records.total", number, is_delta=is_delta)) == 0
    (sample,) = broker.samples()
    assert sample.startswith("kafka_client_consumer_records_total{") and sample.endswith(f" {value}")


async def test_attributes_of_the_resource_are_labels_and_cannot_say_who_the_client_is() -> None:
    broker = Broker()
    data = gauge("a", 1.0)
    for key, text in {"group.id": "g", "client_id": "somebody else", "9lives": "cat"}.items():
        data.resource_metrics[0].resource.attributes.add(key=key).value.string_value = text
    assert await broker.push(bytes(data.SerializeToString())) is ErrorCode.NONE
    (sample,) = broker.samples()
    assert '_9lives="cat",client_id="app"' in sample and 'group_id="g"' in sample


async def test_two_clients_of_one_client_id_have_a_series_each_and_a_silent_one_loses_its_own() -> None:
    broker = Broker()
    assert await broker.push(GAUGE) is await broker.push(GAUGE, OTHER) is ErrorCode.NONE
    assert len(broker.samples()) == 2
    broker.now_s += 59.5
    broker.subscription(OTHER)
    broker.now_s += 1
    broker.sweep()
    (left,) = broker.samples()
    assert 'client_software_name="librdkafka"' in left


async def test_no_client_makes_more_series_than_are_allowed() -> None:
    broker = Broker(most_series=2)
    for name in ("a", "b", "c"):
        assert await broker.push(bytes(gauge(name, 1.0).SerializeToString())) is ErrorCode.NONE
    assert [sample.partition("{")[0] for sample in broker.samples()] == ["kafka_client_a", "kafka_client_b"]
    assert broker.dropped() == 1
    assert await broker.push(bytes(gauge("a", 2.0).SerializeToString())) is ErrorCode.NONE
    assert broker.samples()[0].endswith(" 2.0"), "a series that is there goes on"
    broker.now_s += 61
    broker.sweep()
    assert broker.samples() == []
    assert await broker.push(bytes(gauge("c", 1.0).SerializeToString())) is ErrorCode.NONE
    assert len(broker.samples()) == 1


async def test_one_push_has_no_more_points_than_are_read() -> None:
    broker = Broker(most_series=10 * MOST_POINTS)
    data = MetricsData()
    metrics = data.resource_metrics.add().scope_metrics.add().metrics
    for number in range(MOST_POINTS + 3):
        metrics.add(name=f"m{number}").gauge.data_points.add(as_double=1)
    pushed = compress(Codec.ZSTD, bytes(data.SerializeToString()))
    assert await broker.push(pushed, codec=int(Codec.ZSTD)) == ErrorCode.NONE
    assert (len(broker.samples()), broker.dropped()) == (MOST_POINTS, 3)


async def test_a_name_keeps_its_kind() -> None:
    broker = Broker()
    assert await broker.push(counter("a", 1, is_delta=False)) is ErrorCode.NONE
    assert await broker.push(bytes(gauge("a", 1.0).SerializeToString())) is ErrorCode.NONE
    assert [sample.partition("{")[0] for sample in broker.samples()] == ["kafka_client_a_total"]
    assert broker.dropped() == 1


@pytest.mark.parametrize(
    ("data", "how", "error"),
    [
        (GAUGE, {"subscription_id": 0}, ErrorCode.UNKNOWN_SUBSCRIPTION_ID),
        (GAUGE, {"codec": 5}, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
        (GAUGE, {"codec": -1}, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
        (bytes(MAX_BYTES + 1), {}, ErrorCode.TELEMETRY_TOO_LARGE),
        (b"\xff\xff\xff", {}, ErrorCode.INVALID_RECORD),
        (GAUGE, {"codec": int(Codec.ZSTD)}, ErrorCode.INVALID_RECORD),
        (compress(Codec.ZSTD, bytes(30 * MAX_BYTES)), {"codec": int(Codec.ZSTD)}, ErrorCode.INVALID_RECORD),
        (b"", {}, ErrorCode.NONE),
    ],
)
async def test_what_cannot_be_taken_is_refused_and_leaves_no_series(
    data: bytes, how: dict[str, Any], error: ErrorCode
) -> None:
    broker = Broker()
    assert await broker.push(data, **how) is error
    assert broker.samples() == []


@pytest.mark.parametrize("instance_id", [bytes(16), bytes(15) + b"\x01"])
async def test_a_push_without_an_instance_id_is_invalid(instance_id: bytes) -> None:
    context = ClientContext(instance_id, "c", "s", "1", "127.0.0.1", 1)
    assert await Broker().telemetry.push(context, Push(0, False, 0, GAUGE)) is ErrorCode.INVALID_REQUEST


async def test_a_second_push_within_the_interval_is_throttled_unless_the_client_ends() -> None:
    broker = Broker()
    assert await broker.push(GAUGE) is ErrorCode.NONE
    subscription_id = broker.telemetry._instances.find(
        CLIENT, broker.resources.subscriptions, 1, broker.now_s * 1000
    ).subscription.subscription_id
    again, last = Push(subscription_id, False, 0, GAUGE), Push(subscription_id, True, 0, GAUGE)
    assert await broker.telemetry.push(CLIENT, again) is ErrorCode.THROTTLING_QUOTA_EXCEEDED
    assert broker.telemetry.subscription(CLIENT) is ErrorCode.THROTTLING_QUOTA_EXCEEDED
    assert await broker.telemetry.push(CLIENT, last) is ErrorCode.NONE
    assert await broker.telemetry.push(CLIENT, last) is ErrorCode.INVALID_REQUEST


async def test_a_client_whose_subscription_has_changed_is_sent_to_ask_for_it() -> None:
    broker = Broker()
    before = broker.subscription()
    broker.resources.subscriptions = {"s": Subscription(frozenset({"a."}), INTERVAL_MS, {})}
    broker.resources.version = 2
    error = await broker.telemetry.push(CLIENT, Push(before.subscription_id, False, 0, GAUGE))
    assert error is ErrorCode.UNKNOWN_SUBSCRIPTION_ID
    broker.now_s += 0.001
    after = broker.subscription()
    assert after.metrics == ("a.",)
    assert await broker.telemetry.push(CLIENT, Push(after.subscription_id, False, 0, GAUGE)) is ErrorCode.NONE


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
async def test_a_push_of_many_points_is_read_in_a_worker(codec: Codec) -> None:
    broker = Broker(most_series=1000)
    data = MetricsData()
    metrics = data.resource_metrics.add().scope_metrics.add().metrics
    for number in range(400):
        metrics.add(name=f"m{number}").gauge.data_points.add(as_double=1)
    plain = bytes(data.SerializeToString())
    assert LITTLE_PUSH_BYTES < len(plain) <= MAX_BYTES
    assert await broker.push(plain if codec is Codec.NONE else compress(codec, plain), codec=int(codec)) == 0
    assert (len(broker.samples()), broker.read_elsewhere) == (400, 1)
    assert await broker.push(GAUGE) is ErrorCode.NONE
    assert broker.read_elsewhere == 1, "a small push is read at once"


async def test_a_worker_that_dies_loses_one_push() -> None:
    broker = Broker()

    async def dies(*_: Any) -> Any:
        raise RuntimeError("the worker process died")

    broker.telemetry._read_elsewhere = dies
    assert await broker.push(bytes(LITTLE_PUSH_BYTES + 1)) is ErrorCode.UNKNOWN_SERVER_ERROR
    assert await broker.push(GAUGE) is ErrorCode.NONE
    assert broker.samples() == [GAUGE_SAMPLE]
