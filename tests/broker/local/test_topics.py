"""What `ottla local up` asks of a fleet that has just come up, and what it makes of the answers."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from ottla_broker.adapters.clock import LoopClock
from ottla_broker.adapters.network import SocketNetwork
from ottla_broker.local.topics import TopicOutcome, apply_topics
from ottla_broker.ports.network import Connection
from ottla_broker.protocol import codec
from ottla_broker.protocol.api import ApiKey
from ottla_broker.protocol.errors import ErrorCode
from ottla_operator.model.documents import load_documents

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
        self.port = 0

    def accept(self, connection: Connection) -> _Session:
        return _Session(self, connection)

    def answer(self, api_key: int, request: Any) -> Any:
        self.asked.append(ApiKey(api_key).name)
        if api_key == ApiKey.CREATE_TOPICS:
            api = codec.module(ApiKey.CREATE_TOPICS)
            topic = api.CreatableTopicResult(name="flights", error_code=int(ErrorCode.TOPIC_ALREADY_EXISTS))
            return api.CreateTopicsResponse(topics=[topic])
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
    listener = await network.listen(HOST, 0, broker.accept, max_frame_bytes=1 << 20)
    broker.port = listener.port
    topics = load_documents([("", DECLARED)]).topics
    assert await apply_topics(network, LoopClock(), HOST, listener.port, topics) == [
        TopicOutcome("flights", "unchanged")
    ]
    assert broker.late == -1
