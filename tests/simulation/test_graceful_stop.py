"""What producers notice of a broker that stops in order, in virtual time: this machine's speed plays no part."""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass, field

import pytest

from ottla_broker.protocol import codec
from ottla_broker.protocol.api import ApiKey
from ottla_broker.protocol.errors import ErrorCode
from ottla_broker.records.record import build_batch, build_records
from simulation.client import Client, Unavailable
from simulation.cluster import Fleet
from simulation.scenarios.single import broker_settings
from simulation.world import World

PARTITIONS = 6
TOPIC = "t"
BATCH = bytes(build_batch(build_records([(b"key", b"value")], 0)))
PAUSE_S = 0.004


@dataclass
class Notes:
    """Of one partition: who led first, and the longest times in ms, as `bench.availability` measures them."""

    leader: int = -1
    refused_ms: float = 0.0
    silent_ms: float = 0.0
    errors: list[int] = field(default_factory=list)


async def produce(world: World, client: Client, partition: int, notes: Notes, until: asyncio.Event) -> None:
    api = codec.module(ApiKey.PRODUCE)
    data = api.PartitionProduceData(index=partition, records=BATCH)
    request = api.ProduceRequest(
        acks=-1, timeout_ms=30_000, topic_data=[api.TopicProduceData(name=TOPIC, partition_data=[data])]
    )
    refused_at: float | None = None
    last = world.loop.time()
    while not until.is_set():
        try:
            address = client.leader_of((TOPIC, partition))
            if address is None:
                raise Unavailable("no leader")
            answer = await client.request(address, ApiKey.PRODUCE, 9, request)
            error = answer.responses[0].partition_responses[0].error_code
        except Unavailable:
            error = -1
        now = world.loop.time()
        if error == 0:
            if refused_at is not None:
                notes.refused_ms = max(notes.refused_ms, (now - refused_at) * 1000)
                refused_at = None
            notes.silent_ms = max(notes.silent_ms, (now - last) * 1000)
            last = now
        else:
            notes.errors.append(error)
            refused_at = now if refused_at is None else refused_at
            try:
                await client.refresh([TOPIC])
            except Unavailable:
                pass
        await asyncio.sleep(PAUSE_S)


async def until_known(client: Client) -> None:
    state = await client.refresh([TOPIC])
    if len(state.partitions) < PARTITIONS:
        await asyncio.sleep(0.1)
        await until_known(client)


def stop_under_load(victim: int) -> list[Notes]:
    """Every partition has a producer of its own while one broker of three stops."""
    world = World(victim)
    found = [Notes() for _ in range(PARTITIONS)]

    async def main() -> None:
        settings = broker_settings(random.Random(1), flush_every_message=False)
        settings |= {"min.insync.replicas": "2", "default.replication.factor": "3"}
        settings |= {"zookeeper.session.timeout.ms": "6000"}
        fleet = Fleet(world, 3, settings)
        await fleet.start()
        clients = [
            Client(world, fleet.fabric, f"client-{number}", f"10.1.0.{number + 1}", fleet.bootstrap)
            for number in range(PARTITIONS)
        ]
        admin = codec.module(ApiKey.CREATE_TOPICS)
        topic = admin.CreatableTopic(name=TOPIC, num_partitions=PARTITIONS, replication_factor=3)
        controller = fleet.controller()
        assert controller is not None
        await clients[0].request(
            (controller.host, 9092),
            ApiKey.CREATE_TOPICS,
            7,
            admin.CreateTopicsRequest(topics=[topic], timeout_ms=10_000),
        )
        for client in clients:
            await until_known(client)
        for number, notes in enumerate(found):
            notes.leader = clients[0].state.partitions[(TOPIC, number)].leader
        until = asyncio.Event()
        producing = [
            world.spawn(produce(world, clients[number], number, found[number], until), name=f"producer-{number}")
            for number in range(PARTITIONS)
        ]
        await asyncio.sleep(1)
        for notes in found:
            notes.silent_ms = 0.0
        assert await fleet.brokers[victim].stop_gracefully()
        await asyncio.sleep(2)
        until.set()
        await asyncio.gather(*producing)

    world.run(main())
    assert world.problems == []
    return found


@pytest.mark.parametrize("victim", [0, 1, 2])
def test_a_producer_is_refused_once_and_finds_the_next_leader_ready(victim: int) -> None:
    """One of the three is the controller. The simulated network delays some messages by 40 ms."""
    notes = stop_under_load(victim)
    led = [one for one in notes if one.leader == victim]
    assert led and all(one.errors == [ErrorCode.NOT_LEADER_OR_FOLLOWER] for one in led), led
    assert max(one.refused_ms for one in led) < 150
    others = [one for one in notes if one.leader != victim]
    assert all(not one.errors for one in others), others
    # Nobody waits for a follower that has stopped, nor for the end of a session.
    assert max(one.silent_ms for one in notes) < 300
