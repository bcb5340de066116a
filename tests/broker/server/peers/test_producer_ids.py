"""Producer ids: blocks of 1000 from one znode, never allocated twice."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine

import pytest

from ottla_broker.coordination.producer_id_blocks import ProducerIdsExhausted
from ottla_broker.coordination.znodes import PRODUCER_ID_BLOCK, ProducerIdBlock
from ottla_broker.server.peers.producer_ids import ProducerIds
from simulation.clock import SimulatedClock
from simulation.coordination import SimulatedCoordination, SimulatedStore
from simulation.world import World


def with_two_brokers(
    scenario: Callable[
        [SimulatedStore, SimulatedCoordination, SimulatedCoordination, SimulatedClock], Coroutine[None, None, None]
    ],
) -> None:
    world = World(3)
    store = SimulatedStore(world)
    processes = [world.machine(f"m{number}", f"10.0.0.{number}").start_process() for number in (1, 2)]
    first, second = (SimulatedCoordination(process, store) for process in processes)
    clock = SimulatedClock(processes[0])

    async def run() -> None:
        await first.start()
        await second.start()
        await scenario(store, first, second, clock)

    world.run(run())
    assert world.problems == []


def test_a_block_lasts_a_thousand_ids_and_is_written_as_kafka_does() -> None:
    async def scenario(
        store: SimulatedStore, first: SimulatedCoordination, second: SimulatedCoordination, clock: SimulatedClock
    ) -> None:
        ids = ProducerIds(7, first)
        assert [await ids.next() for _ in range(1000)] == list(range(1000))
        data = store.data(PRODUCER_ID_BLOCK)
        assert data is not None
        assert json.loads(data) == {"version": 1, "broker": 7, "block_start": "0", "block_end": "999"}
        assert await ids.next() == 1000
        assert await ProducerIds(8, second).next() == 2000

    with_two_brokers(scenario)


def test_brokers_that_allocate_concurrently_never_get_the_same_producer_id() -> None:
    async def scenario(
        store: SimulatedStore, first: SimulatedCoordination, second: SimulatedCoordination, clock: SimulatedClock
    ) -> None:
        await first.create(PRODUCER_ID_BLOCK)  # made empty at the first start of a cluster
        brokers = [ProducerIds(1, first), ProducerIds(2, second)]
        given = await asyncio.gather(*[broker.next() for _ in range(1500) for broker in brokers])
        assert len(set(given)) == 3000
        data = store.data(PRODUCER_ID_BLOCK)
        assert data is not None
        assert ProducerIdBlock.decode(data).last == 3999

    with_two_brokers(scenario)


def test_producer_ids_are_exhausted_before_they_wrap() -> None:
    async def scenario(
        store: SimulatedStore, first: SimulatedCoordination, second: SimulatedCoordination, clock: SimulatedClock
    ) -> None:
        await first.create(PRODUCER_ID_BLOCK, ProducerIdBlock(1, 2**63 - 1200, 2**63 - 201).encode())
        with pytest.raises(ProducerIdsExhausted):
            await ProducerIds(1, first).next()

    with_two_brokers(scenario)
