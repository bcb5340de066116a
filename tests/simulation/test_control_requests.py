"""A flood of produce and fetch requests delays no request of the controller (KIP-291), where handling takes time.

The simulated broker is one thread: each produce or fetch request takes it a millisecond of virtual time here.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import statistics
from collections.abc import Awaitable, Callable, Iterator
from typing import Any
from unittest.mock import patch

import pytest

from ottla_broker.protocol import codec
from ottla_broker.protocol.api import ApiKey
from ottla_broker.protocol.codec import ZERO_UUID
from ottla_broker.protocol.errors import ErrorCode
from ottla_broker.server.edge.dispatch import Dispatcher
from ottla_broker.server.edge.request_scheduling import DATA_SLICE_S
from simulation.batches import build_batch
from simulation.checker import Checker
from simulation.client import Client
from simulation.cluster import CLIENT_PORT, SimulatedFleet
from simulation.scenarios.single import broker_settings
from simulation.workload import Guarantees, Workload, create_topic
from simulation.world import EPOCH_MS, World

REQUEST_S = 0.001
CLIENTS = 200
BURST = 50
"""Produce requests that a client sends at once: a broker reads them all in one go."""
TOPIC = "t"
CONTROL = (ApiKey.LEADER_AND_ISR, ApiKey.UPDATE_METADATA, ApiKey.STOP_REPLICA)


def with_flood(settings: dict[str, str], use: Callable[[World, SimulatedFleet, list[float]], Awaitable[None]]) -> None:
    """`use` runs during the flood, and gets the virtual seconds that its requests take."""
    world = World(1)

    async def main() -> None:
        fleet = SimulatedFleet(world, 1, broker_settings(random.Random(1), flush_every_message=False) | settings)
        await fleet.start()
        workload = Workload(world, Checker(), Guarantees(durable_acks=(-1,), life_of=fleet.life_of))
        first = Client(world, fleet.fabric, "first", "10.2.0.1", fleet.bootstrap)
        assert await create_topic(workload, first, TOPIC, 1, 1, {})
        await first.refresh()
        version = 13 if TOPIC in first.state.topic_ids else 12
        topic_id = first.state.topic_ids.get(TOPIC, b"")
        taken: list[float] = []
        address = (fleet.brokers[0].host, CLIENT_PORT)

        async def flood(number: int) -> None:
            client = Client(world, fleet.fabric, f"flood-{number}", f"10.3.{number // 200}.{number % 200}", [address])
            while True:
                began = world.loop.time()
                if number % 2:
                    sent = [await client.post(address, ApiKey.PRODUCE, 11, _produce(number)) for _ in range(BURST)]
                    await asyncio.gather(*(future for future in sent if future is not None))
                else:
                    await client.request(address, ApiKey.FETCH, version, _fetch(topic_id))
                taken.append(world.loop.time() - began)

        tasks = [world.spawn(flood(number), name=f"flood-{number}") for number in range(CLIENTS)]
        await asyncio.sleep(2.0)
        await use(world, fleet, taken)
        for task in tasks:
            assert not task.done(), task.exception()
            task.cancel()

    with _data_requests_take_time(world):
        world.run(main())
    assert world.problems == []


@contextlib.contextmanager
def _data_requests_take_time(world: World) -> Iterator[None]:
    dispatch = Dispatcher.dispatch

    def slow(dispatcher: Dispatcher, context: Any, frame: memoryview, body_offset: int) -> None:
        if context.api_key in (ApiKey.PRODUCE, ApiKey.FETCH):
            world.loop.spend(REQUEST_S)
        dispatch(dispatcher, context, frame, body_offset)

    with patch.object(Dispatcher, "dispatch", slow):
        yield


def _produce(number: int) -> Any:
    api = codec.module(ApiKey.PRODUCE)
    batch = build_batch([f"x/{number}"], timestamp_ms=EPOCH_MS, padding=0, producer_id=-1, producer_epoch=-1)
    data = api.PartitionProduceData(index=0, records=batch)
    return api.ProduceRequest(
        acks=1, timeout_ms=3000, topic_data=[api.TopicProduceData(name=TOPIC, partition_data=[data])]
    )


def _fetch(topic_id: bytes) -> Any:
    api = codec.module(ApiKey.FETCH)
    part = api.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1000)
    topic = api.FetchTopic(topic=TOPIC, topic_id=topic_id or ZERO_UUID, partitions=[part])
    return api.FetchRequest(max_wait_ms=0, min_bytes=0, session_epoch=-1, topics=[topic])


def _stale(api_key: ApiKey) -> tuple[int, Any]:
    """A request of a former controller: refused at once, without effect."""
    if api_key is ApiKey.LEADER_AND_ISR:
        return 7, codec.module(api_key).LeaderAndIsrRequest(
            controller_id=0, controller_epoch=0, broker_epoch=-1, type=1
        )
    if api_key is ApiKey.UPDATE_METADATA:
        return 8, codec.module(api_key).UpdateMetadataRequest(controller_id=0, controller_epoch=0, broker_epoch=-1)
    return 4, codec.module(api_key).StopReplicaRequest(controller_id=0, controller_epoch=0, broker_epoch=-1)


@pytest.mark.parametrize("listeners", ["one listener", "control.plane.listener.name"])
def test_a_flood_of_produce_and_fetch_delays_no_request_of_the_controller(listeners: str) -> None:
    settings: dict[str, str] = {}
    port = CLIENT_PORT
    if listeners != "one listener":
        port = CLIENT_PORT + 1
        named = f"PLAINTEXT://10.0.0.1:{CLIENT_PORT},CONTROL://10.0.0.1:{port}"
        settings = {
            "listeners": named,
            "advertised.listeners": named,
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROL:PLAINTEXT",
            "control.plane.listener.name": "CONTROL",
        }

    async def use(world: World, fleet: SimulatedFleet, taken: list[float]) -> None:
        address = (fleet.brokers[0].host, port)
        controller = Client(world, fleet.fabric, "controller", "10.2.0.2", [address])
        waited = []
        for number in range(60):
            api_key = CONTROL[number % len(CONTROL)]
            began = world.loop.time()
            version, request = _stale(api_key)
            response = await controller.request(address, api_key, version, request)
            assert response.error_code == ErrorCode.STALE_CONTROLLER_EPOCH
            waited.append(world.loop.time() - began)
            await asyncio.sleep(0.05)
        # A request of the flood waits for all the others: that is what a controller's request would do, too.
        assert statistics.median(taken) > CLIENTS * REQUEST_S
        # A few iterations of the loop, each of one slice, and the way there and back; the flood takes 270 ms.
        assert statistics.median(waited) < 4 * (DATA_SLICE_S + REQUEST_S)
        assert max(waited) < 0.2  # one message in fifty is slow by up to 50 ms

    with_flood(settings, use)
