"""BrokerClient over real sockets: order, time limits, and requests in flight when the connection closes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest

from ottla_broker.adapters.clock import LoopClock
from ottla_broker.adapters.network import SocketNetwork
from ottla_broker.ports.network import Connection, Listener
from ottla_broker.protocol import codec
from ottla_broker.protocol.api import ApiKey
from ottla_broker.protocol.generated.heartbeat import HeartbeatRequest, HeartbeatResponse
from ottla_broker.server.peers.broker_client import BrokerClient, BrokerDisconnected

VERSION = 4


class Server:
    """Responds to Heartbeats with their generation as throttle time, when `answer` is called."""

    def __init__(self) -> None:
        self.connections: list[Connection] = []
        self.requests: asyncio.Queue[tuple[Connection, int, int]] = asyncio.Queue()
        self.listener: Listener

    def accept(self, connection: Connection) -> _Session:
        self.connections.append(connection)
        return _Session(self, connection)

    async def answer(self, change: Callable[[int], int] = lambda correlation_id: correlation_id) -> None:
        connection, correlation_id, generation = await self.requests.get()
        response = HeartbeatResponse(throttle_time_ms=generation)
        connection.send(codec.frame_response(int(ApiKey.HEARTBEAT), VERSION, change(correlation_id), response))


class _Session:
    def __init__(self, server: Server, connection: Connection) -> None:
        self._server = server
        self._connection = connection

    def on_frame(self, frame: memoryview) -> None:
        header = codec.read_request_header(frame)
        request = codec.module(header.api_key).read_request(header.api_version, frame, header.body_offset)
        self._server.requests.put_nowait((self._connection, header.correlation_id, request.generation_id))

    def on_sent(self) -> None: ...

    def on_close(self, reason: str) -> None: ...


@pytest.fixture
async def network() -> AsyncIterator[SocketNetwork]:
    network = SocketNetwork()
    yield network
    network.close()


@pytest.fixture
async def server(network: SocketNetwork) -> Server:
    server = Server()
    server.listener = await network.listen("127.0.0.1", 0, server.accept, max_frame_bytes=1 << 20)
    return server


@pytest.fixture
async def client(network: SocketNetwork, server: Server) -> BrokerClient:
    client = BrokerClient(network, LoopClock(), "127.0.0.1", server.listener.port, client_id="test")
    await client.connect()
    return client


def heartbeat(client: BrokerClient, generation: int, timeout_s: float = 30.0) -> asyncio.Future[HeartbeatResponse]:
    request = HeartbeatRequest(group_id="g", generation_id=generation, member_id="m")
    return client.send(int(ApiKey.HEARTBEAT), VERSION, request, timeout_s=timeout_s)


async def test_several_requests_are_in_flight_and_each_gets_its_own_response(
    client: BrokerClient, server: Server
) -> None:
    answers = [heartbeat(client, generation) for generation in range(50)]
    for _ in answers:
        await server.answer()
    assert [(await answer).throttle_time_ms for answer in answers] == list(range(50))


async def test_a_closed_connection_fails_the_requests_in_flight_and_connect_opens_a_new_one(
    client: BrokerClient, server: Server
) -> None:
    lost = heartbeat(client, 1)
    await server.requests.get()
    server.connections[0].close()
    with pytest.raises(BrokerDisconnected):
        await lost
    assert not client.is_connected
    with pytest.raises(BrokerDisconnected):
        await heartbeat(client, 2)
    await client.connect()
    answer = heartbeat(client, 3)
    await server.answer()
    assert (await answer).throttle_time_ms == 3


async def test_a_request_timeout_closes_the_connection_and_fails_later_requests_too(
    client: BrokerClient, server: Server
) -> None:
    patient = heartbeat(client, 1, timeout_s=60.0)
    hasty = heartbeat(client, 2, timeout_s=0.02)
    with pytest.raises(BrokerDisconnected, match="no response in time"):
        await hasty
    with pytest.raises(BrokerDisconnected):
        await patient
    assert not client.is_connected


async def test_a_response_with_another_correlation_id_closes_the_connection(
    client: BrokerClient, server: Server
) -> None:
    answer = heartbeat(client, 1)
    await server.answer(lambda correlation_id: correlation_id + 1)
    with pytest.raises(BrokerDisconnected, match="is due"):
        await answer
    assert not client.is_connected


async def test_connect_raises_a_disconnect_when_nothing_listens(network: SocketNetwork, free_port: int) -> None:
    client = BrokerClient(network, LoopClock(), "127.0.0.1", free_port, client_id="test")
    with pytest.raises(BrokerDisconnected):
        await client.connect()


async def test_close_fails_the_requests_in_flight_and_is_idempotent(client: BrokerClient, server: Server) -> None:
    answer = heartbeat(client, 1)
    client.close()
    client.close()
    with pytest.raises(BrokerDisconnected, match="closed"):
        await answer


async def test_concurrent_connects_share_one_connection(network: SocketNetwork, server: Server) -> None:
    client = BrokerClient(network, LoopClock(), "127.0.0.1", server.listener.port, client_id="test")
    await asyncio.gather(client.connect(), client.connect())
    answer = heartbeat(client, 1)
    await server.answer()
    assert (await answer).throttle_time_ms == 1
    assert len(server.connections) == 1


async def test_close_while_connecting_leaves_no_connection(network: SocketNetwork, server: Server) -> None:
    client = BrokerClient(network, LoopClock(), "127.0.0.1", server.listener.port, client_id="test")
    connecting = asyncio.ensure_future(client.connect())
    await asyncio.sleep(0)
    client.close()
    with pytest.raises(BrokerDisconnected):
        await connecting
    assert not client.is_connected
