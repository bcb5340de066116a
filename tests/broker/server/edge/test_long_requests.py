"""No request, whatever is in it, holds the loop: every field of every API that repeats, with as many elements as fit.

The map of requests comes from the definitions of the wire protocol (`bench.hostile.many_elements`), so that a new API
or field is in it. A broker of the simulator gets each. What is measured is not time but how many lines of Python one
callback of the loop runs. `python -m bench.hostile` measures time and memory, in larger requests and beside Apache
Kafka.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from types import FrameType
from typing import Any

import pytest

from bench.hostile.many_elements import TOPIC, Content, Row, request, rows
from ottla_broker.protocol import codec
from ottla_broker.protocol.api import ApiKey
from ottla_broker.records.record import Record, build_batch
from ottla_broker.server.edge.dispatch import served
from simulation.client import Client, Unavailable
from simulation.cluster import SimulatedFleet
from simulation.loop import VirtualTimeLoop
from simulation.world import World

SIZE = 24_000
"""Of a request, in bytes: far more than a slice, and small enough for a run of thousands of them."""

MOST_LINES = 20_000
"""Of Python in one callback. A line takes a tenth of a microsecond to half of one, so this is 2 to 8 ms; the largest
slice that is meant has 10 000. What grows with the request has 25 000 and more at this size."""

LARGER = {"Fetch": (100_000, 60_000), "Produce": (100_000, 60_000)}
"""(size, most lines) of the APIs that handle 500 elements at once: hot ones, whose short requests take no turns."""

SERVED = {int(listing.api_key): (listing.lowest, listing.highest) for listing in served({})}

NOT_SLICED = {
    "WriteTxnMarkers": "of brokers alone",
    "UpdateMetadata": "of the controller alone, and seen as one change",
    "LeaderAndIsr": "of the controller alone, 100 partitions in a turn",
    "StopReplica": "of the controller alone, 100 partitions in a turn",
    "AlterPartition": "of brokers alone, one event of the controller",
    "AlterClientQuotas": "element_limits bounds it",
}
"""APIs whose handler is not interrupted, and why."""


class CountingLoop(VirtualTimeLoop):
    """Counts the lines of Python of each callback while `is_counting`."""

    def __init__(self) -> None:
        super().__init__()
        self.is_counting = False
        self.most_lines = 0
        self._lines = 0

    def call_soon(self, callback: Callable[..., Any], *args: Any, context: Any = None) -> Any:
        return super().call_soon(partial(self._counted, callback), *args, context=context)

    def call_at(self, when: float, callback: Callable[..., Any], *args: Any, context: Any = None) -> Any:
        return super().call_at(when, partial(self._counted, callback), *args, context=context)

    def _counted(self, callback: Callable[..., Any], *args: Any) -> None:
        if not self.is_counting:
            callback(*args)
            return
        self._lines = 0
        sys.settrace(self._trace)
        try:
            callback(*args)
        finally:
            sys.settrace(None)
            self.most_lines = max(self.most_lines, self._lines)

    def _trace(self, frame: FrameType, event: str, argument: Any) -> Any:
        self._lines += 1
        return self._trace


class Broker:
    """One broker of the simulator with a topic, and connections that send raw frames."""

    def __init__(self, world: World, loop: CountingLoop) -> None:
        self._world = world
        self._loop = loop
        one = ("offsets.topic", "transaction.state.log")
        self._fleet = SimulatedFleet(
            world,
            1,
            {f"{prefix}.{key}": "1" for prefix in one for key in ("num.partitions", "replication.factor")}
            | {"transaction.state.log.min.isr": "1", "auto.create.topics.enable": "false"},
        )
        self._connections = 0

    async def start(self) -> None:
        await self._fleet.start()
        topics = codec.module(ApiKey.CREATE_TOPICS)
        topic = topics.CreatableTopic(name=TOPIC, num_partitions=1, replication_factor=1)
        client = self.client()
        await client.request(
            self._fleet.bootstrap[0],
            ApiKey.CREATE_TOPICS,
            5,
            topics.CreateTopicsRequest(topics=[topic], timeout_ms=5000),
        )
        client.close()

    async def send(self, row: Row, content: Content) -> tuple[int, int | str]:
        """The most lines of a callback until the answer, and its size, or how the connection ended."""
        api_key = row.definition.api_key or 0
        client = self.client()
        link: Any = await client._link(self._fleet.bootstrap[0])
        answer = self._loop.create_future()
        link.on_frame = lambda frame: answer.done() or answer.set_result(len(frame))
        link.on_close = lambda reason: answer.done() or answer.set_result("closed")
        size, _ = LARGER.get(row.definition.name, (SIZE, MOST_LINES))
        chunks = codec.frame_request(api_key, row.version, 1, "hostile", request(row, content, size))
        await asyncio.sleep(0)
        self._loop.most_lines, self._loop.is_counting = 0, True
        link.connection.send(chunks)
        try:
            found = await asyncio.wait_for(answer, 600)
        finally:
            self._loop.is_counting = False
            client.close()
        return self._loop.most_lines, found

    @property
    def address(self) -> tuple[str, int]:
        return self._fleet.bootstrap[0]

    def client(self) -> Client:
        self._connections += 1
        host = f"10.1.0.{self._connections % 250 + 1}"
        return Client(self._world, self._fleet.fabric, f"c{self._connections}", host, self._fleet.bootstrap)


def the_rows() -> Iterator[Row]:
    for row in rows(SERVED):
        if row.version == SERVED[row.definition.api_key or 0][1] and row.definition.name not in NOT_SLICED:
            yield row


BY_API: dict[str, list[Row]] = {}
for _row in the_rows():
    BY_API.setdefault(_row.definition.name, []).append(_row)


def measured(wanted: list[Row]) -> dict[str, tuple[int, int | str]]:
    found: dict[str, tuple[int, int | str]] = {}

    async def run(world: World, loop: CountingLoop) -> None:
        broker = Broker(world, loop)
        await broker.start()
        for row in wanted:
            for content in Content:
                found[f"{row.name} {content.value}"] = await broker.send(row, content)

    loop = CountingLoop()
    world = World(1, loop=loop)
    world.run(run(world, loop))
    assert world.problems == []
    return found


@pytest.mark.parametrize("api", BY_API)
def test_no_callback_of_the_loop_grows_with_what_a_request_holds(api: str) -> None:
    _, most_lines = LARGER.get(api, (SIZE, MOST_LINES))
    found = measured(BY_API[api])
    assert {name: lines for name, (lines, _) in found.items() if lines > most_lines} == {}


def answered(scenario: Callable[[Broker], Any]) -> Any:
    """What a scenario with one broker gives."""

    async def run(world: World, loop: CountingLoop) -> Any:
        broker = Broker(world, loop)
        await broker.start()
        return await scenario(broker)

    loop = CountingLoop()
    world = World(2, loop=loop)
    found = world.run(run(world, loop))
    assert world.problems == []
    return found


def produced(partitions: Iterable[int]) -> Any:
    """A Produce request of one record for each of these partitions of the topic."""
    produce = codec.module(ApiKey.PRODUCE)
    data = [
        produce.PartitionProduceData(index=index, records=memoryview(build_batch([Record(0, 1_000, None, b"x")])))
        for index in partitions
    ]
    return produce.ProduceRequest(
        acks=-1, timeout_ms=5_000, topic_data=[produce.TopicProduceData(name=TOPIC, partition_data=data)]
    )


def test_the_partitions_of_a_long_produce_are_answered_in_their_order() -> None:
    async def scenario(broker: Broker) -> Any:
        return await broker.client().request(broker.address, ApiKey.PRODUCE, 9, produced([*range(1, 2000), 0]))

    (topic,) = answered(scenario).responses
    assert [entry.index for entry in topic.partition_responses] == [*range(1, 2000), 0]
    assert [entry.error_code for entry in topic.partition_responses] == [3] * 1999 + [0]
    assert topic.partition_responses[-1].base_offset == 0


def test_a_produce_behind_a_long_one_is_appended_behind_it() -> None:
    async def scenario(broker: Broker) -> list[int]:
        client = broker.client()
        long = await client.post(broker.address, ApiKey.PRODUCE, 9, produced([*range(1, 2000), 0]))
        short = await client.post(broker.address, ApiKey.PRODUCE, 9, produced([0]))
        assert long is not None and short is not None
        return [(await each).responses[0].partition_responses[-1].base_offset for each in (long, short)]

    assert answered(scenario) == [0, 1]


@pytest.mark.parametrize("session_epoch", [-1, 0])
def test_a_long_fetch_answers_each_partition_once(session_epoch: int) -> None:
    async def scenario(broker: Broker) -> Any:
        client = broker.client()
        await client.request(broker.address, ApiKey.PRODUCE, 9, produced([0]))
        fetch = codec.module(ApiKey.FETCH)
        wanted = [
            fetch.FetchPartition(partition=index % 600, fetch_offset=0, partition_max_bytes=1000)
            for index in range(6000)
        ]
        request = fetch.FetchRequest(
            max_wait_ms=500,
            min_bytes=1,
            max_bytes=1_000_000,
            session_epoch=session_epoch,
            topics=[fetch.FetchTopic(topic=TOPIC, partitions=wanted)],
        )
        return await client.request(broker.address, ApiKey.FETCH, 12, request)

    entries = [data for topic in answered(scenario).responses for data in topic.partitions]
    assert sorted(data.partition_index for data in entries) == [*range(600)]
    assert {data.error_code for data in entries if data.partition_index} == {3}
    (found,) = (data for data in entries if not data.partition_index)
    assert (found.error_code, found.high_watermark, len(found.records) > 0) == (0, 1, True)


def test_a_long_answer_is_the_same_as_a_short_one() -> None:
    groups = codec.module(ApiKey.DESCRIBE_GROUPS)

    async def scenario(broker: Broker) -> tuple[list[Any], Any]:
        client = broker.client()
        names = [f"group-{number}" for number in range(3000)]
        long = await client.request(
            broker.address, ApiKey.DESCRIBE_GROUPS, 6, groups.DescribeGroupsRequest(groups=names)
        )
        short = [
            await client.request(broker.address, ApiKey.DESCRIBE_GROUPS, 6, groups.DescribeGroupsRequest(groups=[name]))
            for name in names[::500]
        ]
        return [response.groups[0] for response in short], long.groups

    short, long = answered(scenario)
    assert len(long) == 3000
    assert long[::500] == short


def test_names_that_are_repeated_in_a_long_request_are_answered_a_hundred_times() -> None:
    groups = codec.module(ApiKey.DESCRIBE_GROUPS)

    async def scenario(broker: Broker) -> Any:
        request = groups.DescribeGroupsRequest(groups=["g"] * 5000)
        return await broker.client().request(broker.address, ApiKey.DESCRIBE_GROUPS, 6, request)

    assert [group.group_id for group in answered(scenario).groups] == ["g"] * 100


def test_a_request_beyond_the_limit_of_elements_closes_its_connection() -> None:
    join = codec.module(ApiKey.JOIN_GROUP)

    async def scenario(broker: Broker) -> str:
        request = join.JoinGroupRequest(
            group_id="g",
            protocol_type="consumer",
            protocols=[join.JoinGroupRequestProtocol(name=f"p{number}") for number in range(1001)],
        )
        with pytest.raises(Unavailable) as closed:
            await broker.client().request(broker.address, ApiKey.JOIN_GROUP, 5, request)
        return str(closed.value)

    assert answered(scenario) == "the broker closed the connection"
