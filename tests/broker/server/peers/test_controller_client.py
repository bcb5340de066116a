"""ControllerClient over real sockets: a controller that hangs delays no request."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import ExitStack, closing
from types import SimpleNamespace

import pytest

from ottla_broker.adapters.clock import LoopClock
from ottla_broker.adapters.network import SocketNetwork
from ottla_broker.metadata.cache import MetadataCache
from ottla_broker.protocol.api import ApiKey
from ottla_broker.protocol.generated.heartbeat import HeartbeatRequest
from ottla_broker.protocol.generated.update_metadata import (
    UpdateMetadataBroker,
    UpdateMetadataEndpoint,
    UpdateMetadataRequest,
)
from ottla_broker.server.peers.broker_client import BrokerDisconnected
from ottla_broker.server.peers.controller_client import ControllerClient
from tests.broker.server.peers.test_broker_client import VERSION, Server

LONG_MS = 3_600_000
LISTENER = "INTERNAL"


@pytest.fixture
async def network() -> AsyncIterator[SocketNetwork]:
    network = SocketNetwork()
    yield network
    network.close()


async def start(network: SocketNetwork) -> Server:
    server = Server()
    server.listener = await network.listen("127.0.0.1", 0, server.accept, max_frame_bytes=1 << 20)
    return server


def name_controller(metadata: MetadataCache, controller: int, *servers: Server) -> None:
    """Applies an UpdateMetadata of that controller; the servers are brokers 0, 1, ..."""
    brokers = [
        UpdateMetadataBroker(
            id=number,
            endpoints=[
                UpdateMetadataEndpoint(
                    host="127.0.0.1", port=server.listener.port, listener=LISTENER, security_protocol=0
                )
            ],
        )
        for number, server in enumerate(servers)
    ]
    metadata.update(UpdateMetadataRequest(controller_id=controller, controller_epoch=controller, live_brokers=brokers))


def client_of(network: SocketNetwork, metadata: MetadataCache) -> ControllerClient:
    return ControllerClient(7, network, LoopClock(), metadata, LISTENER, LONG_MS)


def ask(client: ControllerClient, generation: int, timeout_s: float | None = None) -> asyncio.Task[object]:
    request = HeartbeatRequest(group_id="g", generation_id=generation, member_id="m")
    return asyncio.ensure_future(client.ask(ApiKey.HEARTBEAT, VERSION, request, timeout_s))


async def test_a_request_to_a_controller_that_hangs_goes_to_the_next_one(network: SocketNetwork) -> None:
    hanging, next_one = await start(network), await start(network)
    metadata = MetadataCache(7)
    client = client_of(network, metadata)
    name_controller(metadata, 0, hanging, next_one)
    answer = ask(client, 5)
    await hanging.requests.get()
    name_controller(metadata, 1, hanging, next_one)
    await next_one.answer()
    assert (await answer).throttle_time_ms == 5  # type: ignore[attr-defined]
    client.close()


async def test_a_request_that_waits_for_a_controller_whose_pod_is_gone_goes_to_the_next_one(
    network: SocketNetwork,
) -> None:
    """Nothing answers at its address, not even with a refusal: here, because its queue of connections is full."""
    next_one = await start(network)
    metadata = MetadataCache(7)
    client = client_of(network, metadata)
    with closing(socket.socket()) as gone, ExitStack() as queued:
        gone.bind(("127.0.0.1", 0))
        gone.listen(0)
        for _ in range(3):
            other = queued.enter_context(closing(socket.socket()))
            other.setblocking(False)
            other.connect_ex(gone.getsockname())
        silent = Server()
        silent.listener = SimpleNamespace(port=gone.getsockname()[1])  # type: ignore[assignment]
        name_controller(metadata, 0, silent, next_one)
        answer = ask(client, 5)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        name_controller(metadata, 1, silent, next_one)
        await next_one.answer()
        assert (await answer).throttle_time_ms == 5  # type: ignore[attr-defined]
    client.close()


async def test_a_request_in_flight_stays_when_metadata_names_the_same_controller(network: SocketNetwork) -> None:
    server = await start(network)
    metadata = MetadataCache(7)
    client = client_of(network, metadata)
    name_controller(metadata, 0, server)
    answer = ask(client, 6)
    name_controller(metadata, 0, server)
    await server.answer()
    assert (await answer).throttle_time_ms == 6  # type: ignore[attr-defined]
    assert len(server.connections) == 1
    client.close()


async def test_a_request_to_the_controller_ends_at_the_time_limit_of_its_caller(network: SocketNetwork) -> None:
    hanging = await start(network)
    metadata = MetadataCache(7)
    client = client_of(network, metadata)
    name_controller(metadata, 0, hanging)
    with pytest.raises(BrokerDisconnected, match="no response in time"):
        await ask(client, 1, timeout_s=0.02)
    client.close()
