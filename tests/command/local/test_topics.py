"""What `ottla local up` asks of a fleet that has just come up, and what it makes of the answers."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from ottla.local.topic_documents import TopicOutcome, apply_topics
from ottla_broker.adapters.clock import LoopClock
from ottla_broker.adapters.network import SocketNetwork
from ottla_broker.config import ConfigSource
from ottla_broker.ports.network import Connection
from ottla_broker.protocol import codec
from ottla_broker.protocol.api import ApiKey
from ottla_broker.protocol.errors import ErrorCode
from ottla_documents.documents import load_documents

HOST = "127.0.0.1"
DECLARED = """
apiVersion: kafka.ottla.dev/v1alpha1
kind: KafkaTopic
metadata: {name: flights}
spec: {clusterRef: {name: orders}, partitions: 12, replicas: 3}
"""


class Broker:
    """A broker that is its own controller, where `flights` exists; it hears of it when it was asked `late` times."""

    def __init__(self, late: int) -> None:
        self.late = late
        self.asked: list[str] = []
        self.config = {"retention.ms": "1000", "segment.bytes": "1048576", "cleanup.policy": "compact,delete"}
        self.altered: list[tuple[str, int, str | None]] = []
        self.port = 0

    def accept(self, connection: Connection) -> _Session:
        return _Session(self, connection)

    def answer(self, api_key: int, request: Any) -> Any:
        self.asked.append(ApiKey(api_key).name)
        if api_key == ApiKey.CREATE_TOPICS:
            api = codec.module(ApiKey.CREATE_TOPICS)
            topic = api.CreatableTopicResult(name="flights", error_code=int(ErrorCode.TOPIC_ALREADY_EXISTS))
            return api.CreateTopicsResponse(topics=[topic])
        if api_key == ApiKey.DESCRIBE_CONFIGS:
            api = codec.module(ApiKey.DESCRIBE_CONFIGS)
            own = [_config(api, name, value, ConfigSource.TOPIC_CONFIG) for name, value in self.config.items()]
            default = _config(api, "flush.ms", "9223372036854775807", ConfigSource.DEFAULT_CONFIG)
            return api.DescribeConfigsResponse(results=[api.DescribeConfigsResult(configs=[*own, default])])
        if api_key == ApiKey.INCREMENTAL_ALTER_CONFIGS:
            api = codec.module(ApiKey.INCREMENTAL_ALTER_CONFIGS)
            (resource,) = request.resources
            self.altered = [(entry.name, entry.config_operation, entry.value) for entry in resource.configs]
            return api.IncrementalAlterConfigsResponse(responses=[api.AlterConfigsResourceResponse()])
        api = codec.module(ApiKey.METADATA)
        brokers = [api.MetadataResponseBroker(node_id=0, host=HOST, port=self.port)]
        return api.MetadataResponse(
            brokers=brokers, controller_id=0, topics=[self._topic(api) for _ in request.topics or ()]
        )

    def _topic(self, api: Any) -> Any:
        self.late -= 1
        if self.late >= 0:
            code = int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            return api.MetadataResponseTopic(name="flights", error_code=code)
        partitions = [
            api.MetadataResponsePartition(partition_index=number, replica_nodes=[0, 1, 2]) for number in range(12)
        ]
        return api.MetadataResponseTopic(name="flights", partitions=partitions)


def _config(api: Any, name: str, value: str, source: ConfigSource) -> Any:
    return api.DescribeConfigsResourceResult(name=name, value=value, config_source=int(source))


class _Session:
    def __init__(self, broker: Broker, connection: Connection) -> None:
        self._broker = broker
        self._connection = connection

    def on_frame(self, frame: memoryview) -> None:
        header = codec.read_request_header(frame)
        request = codec.module(header.api_key).read_request(header.api_version, frame, header.body_offset)
        response = self._broker.answer(header.api_key, request)
        self._connection.send(codec.frame_response(header.api_key, header.api_version, header.correlation_id, response))

    def on_sent(self) -> None: ...

    def on_close(self, reason: str) -> None: ...


@pytest.fixture
async def network() -> AsyncIterator[SocketNetwork]:
    network = SocketNetwork()
    yield network
    network.close()


@pytest.mark.parametrize("late", [0, 2], ids=["at once", "a moment later"])
async def test_a_topic_that_exists_is_compared_once_the_broker_knows_it(network: SocketNetwork, late: int) -> None:
    broker = Broker(late)
    broker.config = {}
    assert await applied(network, broker, DECLARED) == TopicOutcome("flights", "unchanged")
    assert broker.late == -1


async def test_a_changed_configuration_is_applied_and_named_key_by_key(network: SocketNetwork) -> None:
    broker = Broker(late=0)
    config = "{retention.ms: 2000, cleanup.policy: 'compact, delete', min.insync.replicas: 2}"
    found = await applied(network, broker, DECLARED.replace("replicas: 3", f"replicas: 3, config: {config}"))
    assert found == TopicOutcome(
        "flights",
        "retention.ms from 1000 to 2000, min.insync.replicas set to 2, segment.bytes from 1048576 to its default",
    )
    assert broker.altered == [
        ("retention.ms", 0, "2000"),
        ("min.insync.replicas", 0, "2"),
        ("segment.bytes", 1, None),
    ]


async def test_a_configuration_written_another_way_is_unchanged(network: SocketNetwork) -> None:
    broker = Broker(late=0)
    config = "{retention.ms: 1.0e+3, cleanup.policy: 'compact, delete', segment.bytes: '01048576'}"
    found = await applied(network, broker, DECLARED.replace("replicas: 3", f"replicas: 3, config: {config}"))
    assert found == TopicOutcome("flights", "unchanged")
    assert broker.altered == []


async def applied(network: SocketNetwork, broker: Broker, document: str) -> TopicOutcome:
    listener = await network.listen(HOST, 0, broker.accept, max_frame_bytes=1 << 20)
    broker.port = listener.port
    topics = load_documents([("", document)]).topics
    (outcome,) = await apply_topics(network, LoopClock(), HOST, listener.port, topics)
    return outcome
