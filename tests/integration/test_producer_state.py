"""What a partition remembers of its producers, by the configuration that is in force while the broker runs."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from ottla.testing import RunningCluster, cluster
from ottla_broker.protocol import codec
from ottla_broker.protocol.api import ApiKey
from ottla_broker.protocol.errors import ErrorCode
from ottla_broker.records.record import build_batch, build_records
from tests.integration.clients.driver import await_that
from tests.integration.wire import Wire, create_topic, produce_request

EXPIRATION = "producer.id.expiration.ms"
VERIFICATION = "transaction.partition.verification.enable"
TRANSACTIONAL = 0x10


@pytest.fixture(scope="module")
def broker() -> Iterator[RunningCluster]:
    with cluster(brokers=1, config={"producer.id.expiration.check.interval.ms": "50"}) as found:
        yield found


@pytest.fixture
def wire(broker: RunningCluster) -> Iterator[Wire]:
    with Wire(broker.bootstrap) as wire:
        yield wire


def configure(wire: Wire, key: str, value: str | None) -> None:
    """The cluster-wide dynamic value; None deletes it."""
    api = codec.module(ApiKey.INCREMENTAL_ALTER_CONFIGS)
    change = api.AlterableConfig(name=key, config_operation=0 if value is not None else 1, value=value)
    every_broker = api.AlterConfigsResource(resource_type=4, resource_name="", configs=[change])
    request = api.IncrementalAlterConfigsRequest(resources=[every_broker])
    response = wire.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, request)
    assert response.responses[0].error_code == 0, response.responses[0].error_message


def producers(wire: Wire, topic: str) -> list[int]:
    api = codec.module(ApiKey.DESCRIBE_PRODUCERS)
    asked = api.TopicRequest(name=topic, partition_indexes=[0])
    response = wire.ask(ApiKey.DESCRIBE_PRODUCERS, 0, api.DescribeProducersRequest(topics=[asked]))
    return [one.producer_id for one in response.topics[0].partitions[0].active_producers]


def produce(wire: Wire, topic: str, producer_id: int, attributes: int = 0) -> ErrorCode:
    """One record of now: producers expire by the timestamps of their records."""
    records = build_batch(
        build_records([(None, b"v")], timestamp=int(time.time() * 1000)),
        attributes=attributes,
        producer_id=producer_id,
        producer_epoch=0,
        base_sequence=0,
    )
    request = produce_request(topic, records)
    request.transactional_id = "tx" if attributes else None
    answer = wire.ask(ApiKey.PRODUCE, 11, request).responses[0].partition_responses[0]
    return ErrorCode.of(answer.error_code)


def test_idle_producers_expire_by_the_dynamic_value(broker: RunningCluster, wire: Wire) -> None:
    create_topic(broker.bootstrap, "idle")
    configure(wire, VERIFICATION, "false")
    assert produce(wire, "idle", 7) is ErrorCode.NONE
    assert produce(wire, "idle", 8, attributes=TRANSACTIONAL) is ErrorCode.NONE
    assert producers(wire, "idle") == [7, 8]
    configure(wire, EXPIRATION, "1")
    await_that(lambda: producers(wire, "idle") == [8], "the idle one is forgotten, the one in a transaction is not")


def test_verification_is_turned_off_and_on_while_the_broker_runs(broker: RunningCluster, wire: Wire) -> None:
    create_topic(broker.bootstrap, "verified")
    configure(wire, VERIFICATION, None)
    # Nobody has a transactional id yet, so there is no coordinator to ask.
    assert produce(wire, "verified", 7, attributes=TRANSACTIONAL) is ErrorCode.NOT_ENOUGH_REPLICAS
    configure(wire, VERIFICATION, "false")
    assert produce(wire, "verified", 7, attributes=TRANSACTIONAL) is ErrorCode.NONE
    configure(wire, VERIFICATION, "true")
    assert produce(wire, "verified", 8, attributes=TRANSACTIONAL) is ErrorCode.NOT_ENOUGH_REPLICAS
