"""Requests that only brokers send are served on the brokers' listeners alone."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from ipaddress import ip_network
from pathlib import Path
from typing import Any

import pytest

from ottla_broker.config import BrokerConfig
from ottla_broker.config.types import ConfigError
from ottla_broker.protocol import codec
from ottla_broker.protocol.api import ApiKey
from ottla_broker.protocol.errors import ErrorCode
from ottla_broker.server.edge.cluster_action import ONLY_FROM_BROKERS, ClusterActionRule
from tests.broker.replication.fleet import CLIENT, INTERNAL, Fleet, fetch_request

_DENIED = int(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)


@pytest.fixture
async def one(tmp_path: Path) -> AsyncIterator[Fleet]:
    """A broker with the listeners INTERNAL, of the brokers, and CLIENT; it leads "orders"."""
    fleet = Fleet(tmp_path)
    await fleet.start(1)
    await fleet.create("orders", (1,))
    yield fleet
    fleet.stop()


def _deletion() -> Any:
    stop = codec.module(ApiKey.STOP_REPLICA)
    state = stop.StopReplicaPartitionState(partition_index=0, leader_epoch=-2, delete_partition=True)
    topics = [stop.StopReplicaTopicState(topic_name="orders", partition_states=[state])]
    return stop.StopReplicaRequest(controller_epoch=999, broker_epoch=-1, topic_states=topics)


async def test_a_client_cannot_delete_a_replica_with_the_request_of_a_controller(
    one: Fleet, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "ottla.server"):
        answers = [await one.ask(1, ApiKey.STOP_REPLICA, 4, _deletion(), CLIENT) for _ in range(3)]
    assert [(answer.error_code, answer.partition_errors) for answer in answers] == [(_DENIED, [])] * 3
    assert one.nodes[1].manager.partition("orders", 0) is not None
    assert (tmp_path / "broker-1" / "orders-0").exists()
    (record,) = caplog.records
    assert record.message.startswith("refusing STOP_REPLICA of User:ANONYMOUS from 127.0.0.1:")
    assert " on CLIENT: brokers alone send it" in record.message

    answer = await one.ask(1, ApiKey.STOP_REPLICA, 4, _deletion(), INTERNAL)
    assert [error.error_code for error in answer.partition_errors] == [0]


@pytest.mark.parametrize("api_key", ONLY_FROM_BROKERS, ids=lambda key: key.name)
async def test_a_request_that_only_brokers_send_is_refused_as_a_whole_on_the_listener_of_clients(
    one: Fleet, api_key: ApiKey
) -> None:
    name = api_key.name.replace("_", "").lower() + "request"
    kind = next(kind for class_name, kind in vars(codec.module(api_key)).items() if class_name.lower() == name)
    answer = await one.ask(1, api_key, max(ONLY_FROM_BROKERS[api_key], 0), kind(), CLIENT)
    assert answer.error_code == _DENIED


async def test_a_fetch_as_a_follower_is_refused_on_the_listener_of_clients(one: Fleet) -> None:
    def request(replica_id: int) -> Any:
        asked = fetch_request(one.topics["orders"].topic_id, "orders", 0)
        asked.replica_state = codec.module(ApiKey.FETCH).ReplicaState(replica_id=replica_id, replica_epoch=1)
        return asked

    async def code(replica_id: int, listener: str) -> int:
        answer = await one.ask(1, ApiKey.FETCH, 17, request(replica_id), listener)
        return int(answer.responses[0].partitions[0].error_code)

    assert await code(2, CLIENT) == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert await code(2, INTERNAL) == ErrorCode.NOT_LEADER_OR_FOLLOWER, "it is no replica"
    assert await code(-1, CLIENT) == ErrorCode.NONE


async def test_markers_are_refused_on_the_listener_of_clients(one: Fleet) -> None:
    markers = codec.module(ApiKey.WRITE_TXN_MARKERS)
    topics = [markers.WritableTxnMarkerTopic(name="orders", partition_indexes=[0])]
    marker = markers.WritableTxnMarker(producer_id=7, producer_epoch=0, transaction_result=True, topics=topics)
    answer = await one.ask(1, ApiKey.WRITE_TXN_MARKERS, 1, markers.WriteTxnMarkersRequest(markers=[marker]), CLIENT)
    (result,) = answer.markers
    assert result.producer_id == 7
    assert [(one.name, [p.error_code for p in one.partitions]) for one in result.topics] == [("orders", [_DENIED])]
    assert one.nodes[1].manager.partition("orders", 0).log.state.log_end_offset == 0  # type: ignore[union-attr]


def _config(*lines: str) -> BrokerConfig:
    return BrokerConfig.from_properties(
        "broker.id=1\nzookeeper.connect=z:2181\n"
        "listeners=CLIENT://h:1,INTERNAL://h:2,CONTROL://h:3,NEW://h:4\n"
        "listener.security.protocol.map=CLIENT:PLAINTEXT,INTERNAL:PLAINTEXT,CONTROL:PLAINTEXT,NEW:PLAINTEXT\n"
        "inter.broker.listener.name=INTERNAL\n",
        lines,
    )


def test_the_listeners_of_brokers_are_those_that_the_keys_name() -> None:
    assert _config().listeners.of_brokers == {"INTERNAL"}
    named = _config("control.plane.listener.name=CONTROL", "ottla.broker.request.listeners=new")
    assert named.listeners.of_brokers == {"INTERNAL", "CONTROL", "NEW"}
    with pytest.raises(ConfigError, match=r"ottla\.broker\.request\.listeners: listeners named in listeners"):
        _config("ottla.broker.request.listeners=OTHER")


def test_a_single_listener_is_one_of_the_brokers() -> None:
    config = BrokerConfig.from_properties("broker.id=1\nzookeeper.connect=z:2181\nlisteners=PLAINTEXT://h:9092")
    assert config.listeners.of_brokers == {"PLAINTEXT"}


def test_addresses_narrow_the_listeners_of_brokers() -> None:
    rule = ClusterActionRule({"ONLY"}, ())
    assert (rule.allows("ONLY", "10.0.0.1"), rule.allows("OTHER", "10.0.0.1")) == (True, False)
    narrow = ClusterActionRule({"ONLY"}, (ip_network("10.1.0.0/16"), ip_network("::1")))
    found = [narrow.allows("ONLY", one) for one in ("10.1.2.3", "::ffff:10.1.2.3", "::1", "10.2.0.1", "127.0.0.1")]
    assert found == [True, True, True, False, False]
    assert not narrow.allows("OTHER", "10.1.2.3")


@pytest.mark.parametrize("text", ["broker-1", "10.0.0.1/8", "10.0.0.256"])
def test_what_is_no_address_and_no_network_is_refused_at_the_start(text: str) -> None:
    with pytest.raises(ConfigError, match=r"ottla\.broker\.request\.addresses"):
        _config(f"ottla.broker.request.addresses={text}")
