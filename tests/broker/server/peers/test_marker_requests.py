"""Where markers go: the leaders that the metadata name, over one connection to each broker."""

from __future__ import annotations

from collections.abc import AsyncIterator, Container

import pytest

from ottla_broker.adapters.clock import LoopClock
from ottla_broker.adapters.network import SocketNetwork
from ottla_broker.config import BrokerConfig
from ottla_broker.metadata.cache import MetadataCache
from ottla_broker.ports.network import Connection
from ottla_broker.protocol import codec
from ottla_broker.protocol.errors import ErrorCode
from ottla_broker.protocol.generated import update_metadata as um
from ottla_broker.protocol.generated import write_txn_markers as api
from ottla_broker.records.ids import TopicPartition
from ottla_broker.server.peers.marker_requests import MarkerRequests
from ottla_broker.transactions.markers import NO_LEADER, Marker

T0, T1, S0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("s", 0)
CONFIG = {"listeners": "PLAINTEXT://127.0.0.1:0", "request.timeout.ms": "60000"}


class Leader:
    """A broker that answers each WriteTxnMarkers with NONE, but t-1 with NOT_LEADER_OR_FOLLOWER."""

    def __init__(self) -> None:
        self.requests: list[api.WriteTxnMarkersRequest] = []
        self.versions: list[int] = []
        self.connections = 0

    def accept(self, connection: Connection) -> _Session:
        self.connections += 1
        return _Session(self, connection)


class _Session:
    def __init__(self, leader: Leader, connection: Connection) -> None:
        self._leader = leader
        self._connection = connection

    def on_frame(self, frame: memoryview) -> None:
        header = codec.read_request_header(frame)
        request = api.read_request(header.api_version, frame, header.body_offset)
        self._leader.requests.append(request)
        self._leader.versions.append(header.api_version)
        response = api.WriteTxnMarkersResponse(
            markers=[
                api.WritableTxnMarkerResult(
                    producer_id=marker.producer_id,
                    topics=[
                        api.WritableTxnMarkerTopicResult(
                            name=topic.name,
                            partitions=[
                                api.WritableTxnMarkerPartitionResult(
                                    partition_index=index, error_code=6 if (topic.name, index) == T1 else 0
                                )
                                for index in topic.partition_indexes
                            ],
                        )
                        for topic in marker.topics
                    ],
                )
                for marker in request.markers
            ]
        )
        answer = codec.frame_response(header.api_key, header.api_version, header.correlation_id, response)
        self._connection.send(answer)  # type: ignore[arg-type]

    def on_sent(self) -> None: ...

    def on_close(self, reason: str) -> None: ...


@pytest.fixture
async def network() -> AsyncIterator[SocketNetwork]:
    found = SocketNetwork()
    yield found
    found.close()


def metadata(port: int, leaders: dict[TopicPartition, int]) -> MetadataCache:
    """Broker 2 is alive at this port."""
    cache = MetadataCache(1)
    topics: dict[str, list[um.UpdateMetadataPartitionState]] = {}
    for (topic, index), leader in leaders.items():
        topics.setdefault(topic, []).append(um.UpdateMetadataPartitionState(partition_index=index, leader=leader))
    endpoint = um.UpdateMetadataEndpoint(host="127.0.0.1", port=port, listener="PLAINTEXT")
    states = [um.UpdateMetadataTopicState(topic_name=name, partition_states=found) for name, found in topics.items()]
    cache.update(
        um.UpdateMetadataRequest(
            topic_states=states, live_brokers=[um.UpdateMetadataBroker(id=2, endpoints=[endpoint])]
        )
    )
    return cache


def requests(
    network: SocketNetwork, cache: MetadataCache, deleted: Container[TopicPartition] = (), **config: str
) -> MarkerRequests:
    settings = BrokerConfig.from_mapping({**CONFIG, **config})
    return MarkerRequests(1, network, LoopClock(), cache, settings, lambda: False, deleted.__contains__)


async def test_a_partition_that_the_metadata_lack_has_no_leader_until_it_is_known_to_be_deleted(
    network: SocketNetwork,
) -> None:
    hole, other, gone = TopicPartition("t", 7), TopicPartition("u", 0), TopicPartition("t", 9)
    assert requests(network, MetadataCache(1), [T0]).leader(T0) == NO_LEADER, "nothing is known"
    found = requests(network, metadata(1, {T0: 2, T1: 3, S0: -1}), [T0, gone])
    assert [found.leader(one) for one in (T0, T1, S0)] == [2, NO_LEADER, NO_LEADER]
    assert [found.leader(one) for one in (hole, other, gone)] == [NO_LEADER, NO_LEADER, None]


@pytest.mark.parametrize(("protocol", "version"), [("3.9", 1), ("2.8", 1)])
async def test_markers_of_several_transactions_go_in_one_request(
    network: SocketNetwork, protocol: str, version: int
) -> None:
    leader = Leader()
    port = (await network.listen("127.0.0.1", 0, leader.accept, max_frame_bytes=1 << 20)).port
    sender = requests(network, metadata(port, {T0: 2}), **{"inter.broker.protocol.version": protocol})
    markers = [Marker(0, "a", 7, 3, 5, True, (S0, T0, T1)), Marker(0, "b", 8, 0, 5, False, (T0,))]
    for _ in range(2):
        assert await sender.write_markers(2, markers) == {
            7: {S0: ErrorCode.NONE, T0: ErrorCode.NONE, T1: ErrorCode.NOT_LEADER_OR_FOLLOWER},
            8: {T0: ErrorCode.NONE},
        }
    assert (leader.connections, leader.versions) == (1, [version] * 2)
    first, second = leader.requests[0].markers
    assert (first.producer_id, first.producer_epoch, first.coordinator_epoch, first.transaction_result) == (
        7,
        3,
        5,
        True,
    )
    assert [(topic.name, topic.partition_indexes) for topic in first.topics] == [("s", [0]), ("t", [0, 1])]
    assert (second.producer_id, second.transaction_result) == (8, False)
    sender.close()


async def test_a_broker_that_is_dead_or_does_not_listen_is_a_connection_error(network: SocketNetwork) -> None:
    listening = await network.listen("127.0.0.1", 0, Leader().accept, max_frame_bytes=1 << 20)
    listening.close()
    sender = requests(network, metadata(listening.port, {T0: 2}))
    for broker in (2, 3):
        with pytest.raises(ConnectionError):
            await sender.write_markers(broker, [Marker(0, "a", 7, 3, 5, True, (T0,))])
