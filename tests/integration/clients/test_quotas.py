"""Client quotas of a real broker: what throttled clients get, and the tools that set quotas."""

from __future__ import annotations

import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer

from ottla.testing import RunningCluster, cluster
from ottla_broker.protocol import codec
from ottla_broker.protocol.api import ApiKey
from ottla_broker.protocol.errors import ErrorCode
from tests.integration.broker_errors import BrokerErrors
from tests.integration.clients.driver import LIMIT_S, await_that
from tests.integration.clients.java import JavaMachine
from tests.integration.clients.topics import create
from tests.integration.wire import Wire, batch, produce_request

CONFIGS = "kafka.admin.ConfigCommand"
FETCH_VERSION = 12
Names = dict[str, str | None]


@pytest.fixture(scope="module")
def fleet(_watched: BrokerErrors) -> Iterator[RunningCluster]:
    """One broker: a quota that it was told of is in force when it has answered."""
    with cluster(brokers=1) as found:
        yield found


@pytest.fixture
def wire(fleet: RunningCluster) -> Iterator[Wire]:
    with Wire(fleet.address(0)) as found:
        yield found


@pytest.fixture
def set_quota(fleet: RunningCluster) -> Iterator[Any]:
    """Sets keys of an entity, None removes one. What a test has set is removed in the end."""
    given: list[tuple[Names, str]] = []

    def change(names: Names, **values: float | None) -> None:
        given.extend((names, key) for key in values)
        alter(fleet, names, **values)

    yield change
    for names, key in given:
        alter(fleet, names, **{key: None})


def alter(fleet: RunningCluster, names: Names, **values: float | None) -> None:
    api = codec.module(ApiKey.ALTER_CLIENT_QUOTAS)
    entity = [api.EntityData(entity_type=kind, entity_name=name) for kind, name in names.items()]
    ops = [api.OpData(key=key, value=value or 0.0, remove=value is None) for key, value in values.items()]
    request = api.AlterClientQuotasRequest(entries=[api.EntryData(entity=entity, ops=ops)])
    with Wire(fleet.address(0)) as wire:
        (result,) = wire.ask(ApiKey.ALTER_CLIENT_QUOTAS, 1, request).entries
    assert result.error_code == 0, result.error_message


def fetch(wire: Wire, topic: str, offset: int, *, session_id: int = 0, session_epoch: int = 0) -> Any:
    api = codec.module(ApiKey.FETCH)
    partition = api.FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=61_000)
    request = api.FetchRequest(
        max_wait_ms=0,
        min_bytes=1,
        max_bytes=61_000,
        session_id=session_id,
        session_epoch=session_epoch,
        topics=[api.FetchTopic(topic=topic, partitions=[partition])],
    )
    return wire.ask(ApiKey.FETCH, FETCH_VERSION, request)


def metrics(fleet: RunningCluster) -> str:
    with urllib.request.urlopen(f"http://{fleet.http(0)}/metrics", timeout=LIMIT_S) as page:
        return str(page.read().decode())


def test_a_producer_over_its_quota_learns_of_its_throttle_and_loses_nothing(
    fleet: RunningCluster, bootstrap: str, name: str, set_quota: Any
) -> None:
    create(bootstrap, name, replicas=1)
    set_quota({"client-id": name}, producer_byte_rate=1_000_000)
    throttles: list[float] = []
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "client.id": name,
            "throttle_cb": lambda event: throttles.append(event.throttle_time),
        }
    )
    delivered: list[Any] = []
    for _ in range(120):
        producer.produce(name, b"x" * 100_000, on_delivery=lambda error, message: delivered.append(error))
        producer.poll(0)
    assert producer.flush(LIMIT_S) == 0
    assert delivered == [None] * 120
    await_that(lambda: producer.poll(0.1) is not None and any(throttles), "librdkafka reports a throttle")
    assert f'kafka_server_produce_throttle_time{{client_id="{name}",user=""}}' in metrics(fleet)


def test_a_consumer_over_its_quota_is_throttled_and_misses_nothing(
    fleet: RunningCluster, bootstrap: str, name: str, set_quota: Any
) -> None:
    create(bootstrap, name, replicas=1)
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(120):
        producer.produce(name, b"%d" % number + b"x" * 100_000)
    producer.flush(LIMIT_S)
    set_quota({"user": "ANONYMOUS", "client-id": None}, consumer_byte_rate=1_000_000)
    throttles: list[float] = []
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "client.id": name,
            "group.id": name,
            "auto.offset.reset": "earliest",
            "throttle_cb": lambda event: throttles.append(event.throttle_time),
        }
    )
    consumer.subscribe([name])
    seen: list[int] = []

    def poll() -> bool:
        message = consumer.poll(0.1)
        if message is not None:
            assert message.error() is None
            seen.append(int((message.value() or b"").split(b"x")[0]))
        return any(throttles)

    await_that(poll, "librdkafka reports a throttle")
    assert len(seen) < 120, "ten seconds of the quota are less than there is"
    set_quota({"user": "ANONYMOUS", "client-id": None}, consumer_byte_rate=None)
    await_that(lambda: poll() and len(seen) == 120, "every record is there")
    consumer.close()
    assert seen == list(range(120))


def test_a_throttled_fetch_is_empty_keeps_its_session_and_continues_after_the_quota_is_raised(
    fleet: RunningCluster, bootstrap: str, name: str, wire: Wire, set_quota: Any
) -> None:
    create(bootstrap, name, replicas=1)
    for _ in range(3):
        records = batch(b"x" * 60_000)
        assert wire.ask(ApiKey.PRODUCE, 9, produce_request(name, records)).throttle_time_ms == 0
    # Two batches in the ten to eleven seconds of the measure are above it, one is not.
    set_quota({"client-id": "wire"}, consumer_byte_rate=11_000)
    first = fetch(wire, name, 0)
    assert (first.throttle_time_ms, first.error_code) == (0, 0)
    assert len(first.responses[0].partitions[0].records) > 60_000 and first.session_id
    throttled = fetch(wire, name, 1, session_id=first.session_id, session_epoch=1)
    assert throttled.throttle_time_ms > 0
    assert (throttled.responses, throttled.error_code, throttled.session_id) == ([], 0, first.session_id)
    set_quota({"client-id": "wire"}, consumer_byte_rate=1_000_000)
    again = fetch(wire, name, 1, session_id=first.session_id, session_epoch=2)
    assert (again.throttle_time_ms, again.error_code) == (0, 0)
    assert len(again.responses[0].partitions[0].records) > 60_000


def test_a_first_fetch_that_is_throttled_opens_no_session(
    bootstrap: str, name: str, wire: Wire, set_quota: Any
) -> None:
    create(bootstrap, name, replicas=1)
    wire.ask(ApiKey.PRODUCE, 9, produce_request(name, batch(b"x" * 60_000)))
    set_quota({"user": "ANONYMOUS"}, consumer_byte_rate=5_900)
    throttled = fetch(wire, name, 0)
    assert throttled.throttle_time_ms > 0
    assert (throttled.responses, throttled.session_id) == ([], 0)


def test_every_request_of_a_user_without_request_time_is_throttled_until_the_quota_is_removed(
    wire: Wire, set_quota: Any
) -> None:
    set_quota({"user": "ANONYMOUS"}, request_percentage=0.0)
    api = codec.module(ApiKey.METADATA)
    assert wire.ask(ApiKey.METADATA, 9, api.MetadataRequest(topics=[])).throttle_time_ms == 1000
    set_quota({"user": "ANONYMOUS"}, request_percentage=None)
    assert wire.ask(ApiKey.METADATA, 9, api.MetadataRequest(topics=[])).throttle_time_ms == 0


def test_topics_over_the_quota_on_changes_are_refused(name: str, wire: Wire, set_quota: Any) -> None:
    set_quota({"client-id": "wire"}, controller_mutation_rate=0.1)
    api = codec.module(ApiKey.CREATE_TOPICS)

    def create_one(topic: str, version: int) -> Any:
        topics = [api.CreatableTopic(name=topic, num_partitions=2, replication_factor=1)]
        return wire.ask(ApiKey.CREATE_TOPICS, version, api.CreateTopicsRequest(topics=topics, timeout_ms=60_000))

    assert create_one(f"{name}-1", 7).topics[0].error_code == 0
    refused = create_one(f"{name}-2", 7)
    assert refused.topics[0].error_code == ErrorCode.THROTTLING_QUOTA_EXCEEDED
    assert refused.throttle_time_ms > 0


def test_quotas_are_in_force_after_a_restart() -> None:
    with cluster(brokers=1) as fleet:
        alter(fleet, {"user": "ANONYMOUS"}, request_percentage=0.0)
        fleet.kill(0)
        fleet.start(0)
        api = codec.module(ApiKey.METADATA)
        with Wire(fleet.address(0)) as wire:
            assert wire.ask(ApiKey.METADATA, 9, api.MetadataRequest(topics=[])).throttle_time_ms == 1000


def test_a_connection_above_the_rate_of_its_address_is_closed_unread(
    fleet: RunningCluster, wire: Wire, set_quota: Any
) -> None:
    api = codec.module(ApiKey.ALTER_CLIENT_QUOTAS)

    def rate(value: float | None) -> Any:
        op = api.OpData(key="connection_creation_rate", value=value or 0.0, remove=value is None)
        entity = [api.EntityData(entity_type="ip", entity_name=None)]
        entry = api.EntryData(entity=entity, ops=[op])
        return wire.ask(ApiKey.ALTER_CLIENT_QUOTAS, 1, api.AlterClientQuotasRequest(entries=[entry])).entries[0]

    assert rate(0).error_code == 0
    with Wire(fleet.address(0)) as refused:
        metadata = codec.module(ApiKey.METADATA)
        refused.send(refused.request_bytes(ApiKey.METADATA, 9, metadata.MetadataRequest(topics=[])))
        assert refused.frame() is None
    assert rate(None).error_code == 0
    with Wire(fleet.address(0)) as served:
        served.ask(ApiKey.METADATA, 9, metadata.MetadataRequest(topics=[]))
    values = dict(line.rsplit(" ", 1) for line in metrics(fleet).splitlines() if not line.startswith("#"))
    assert float(values["kafka_server_socketservermetrics_connectionsthrottled_total"]) == 1
    assert float(values["kafka_server_socketservermetrics_ip_connection_accept_throttle_time"]) > 0


@pytest.mark.java
def test_kafka_configs_sets_describes_and_removes_quotas(machine: JavaMachine, bootstrap: str) -> None:
    def tool(*arguments: str) -> str:
        done = machine.tool(CONFIGS, "--bootstrap-server", bootstrap, *arguments)
        assert done.status == 0, f"{arguments}: {done.out}{done.err}"
        return done.out

    both = ("--entity-type", "users", "--entity-name", "alice", "--entity-type", "clients", "--entity-name", "my app")
    tool("--alter", *both, "--add-config", "producer_byte_rate=1024,request_percentage=12.5")
    described = tool("--describe", *both)
    assert "Quota configs for user-principal 'alice', client-id 'my app' are " in described
    assert "producer_byte_rate=1024.0" in described and "request_percentage=12.5" in described
    tool("--alter", "--entity-type", "clients", "--entity-default", "--add-config", "controller_mutation_rate=10")
    assert "controller_mutation_rate=10.0" in tool("--describe", "--entity-type", "clients", "--entity-default")
    tool("--alter", "--entity-type", "ips", "--entity-name", "10.0.0.1", "--add-config", "connection_creation_rate=7")
    assert "ip 10.0.0.1 are connection_creation_rate=7.0" in tool("--describe", "--entity-type", "ips").replace("'", "")
    tool("--alter", *both, "--delete-config", "producer_byte_rate,request_percentage")
    tool("--alter", "--entity-type", "clients", "--entity-default", "--delete-config", "controller_mutation_rate")
    ips = ("--entity-type", "ips", "--entity-name", "10.0.0.1")
    tool("--alter", *ips, "--delete-config", "connection_creation_rate")
    for kind in ("users", "clients", "ips"):
        assert tool("--describe", "--entity-type", kind).strip() == ""
