"""A broker of the simulator whose callbacks are measured: not in time, but in lines of Python that each runs."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from types import FrameType
from typing import Any

from bench.hostile.many_elements import TOPIC, Content, Row, request
from ottla_broker.authorization.acls import EVERYONE
from ottla_broker.authorization.resources import CLUSTER_NAME, AclOperation, PatternType, PermissionType, ResourceType
from ottla_broker.protocol import codec
from ottla_broker.protocol.api import ApiKey
from ottla_broker.protocol.errors import ErrorCode
from ottla_broker.records.record import Record, build_batch
from simulation.client import Client
from simulation.cluster import SimulatedFleet
from simulation.loop import PROCESS, VirtualTimeLoop
from simulation.world import World

MOST_LINES = 20_000
"""Of Python in one callback. A line takes a tenth of a microsecond to half of one, so this is 2 to 8 ms; the largest
slice that is meant has 10 000. What grows with the request has 25 000 and more at this size."""


class CountingLoop(VirtualTimeLoop):
    """Counts the lines of Python of each callback of a broker while `is_counting`, without those of the simulator."""

    def __init__(self) -> None:
        super().__init__()
        self.is_counting = False
        self.counted = ""
        """Part of the name of the tasks that are counted; "" for all callbacks."""
        self.most_lines = 0
        self.longest = ""
        """The callback of `most_lines`."""
        self._lines = 0

    def call_soon(self, callback: Callable[..., Any], *args: Any, context: Any = None) -> Any:
        return super().call_soon(partial(self._counted, callback), *args, context=context)

    def call_at(self, when: float, callback: Callable[..., Any], *args: Any, context: Any = None) -> Any:
        return super().call_at(when, partial(self._counted, callback), *args, context=context)

    def _counted(self, callback: Callable[..., Any], *args: Any) -> None:
        owner = getattr(callback, "__self__", callback)
        if not self.is_counting or PROCESS.get() is None or (self.counted and self.counted not in repr(owner)):
            callback(*args)
            return
        self._lines = 0
        sys.settrace(self._trace)
        try:
            callback(*args)
        finally:
            sys.settrace(None)
            if self._lines > self.most_lines:
                self.most_lines, self.longest = self._lines, repr(owner)

    def _trace(self, frame: FrameType, event: str, argument: Any) -> Any:
        if "/simulation/" in frame.f_code.co_filename:
            return None
        self._lines += 1
        return self._trace


class Broker:
    """One broker of the simulator with a topic, and connections that send raw frames."""

    def __init__(self, world: World, loop: CountingLoop, brokers: int = 1, **keys: str) -> None:
        self._world = world
        self._loop = loop
        one = ("offsets.topic", "transaction.state.log")
        self._fleet = SimulatedFleet(
            world,
            brokers,
            {f"{prefix}.{key}": "1" for prefix in one for key in ("num.partitions", "replication.factor")}
            | {"transaction.state.log.min.isr": "1", "auto.create.topics.enable": "false"}
            | {key.replace("_", "."): value for key, value in keys.items()},
        )
        self._connections = 0

    async def start(self, partitions: int = 1, replication_factor: int = 1) -> None:
        await self._fleet.start()
        topics = codec.module(ApiKey.CREATE_TOPICS)
        topic = topics.CreatableTopic(name=TOPIC, num_partitions=partitions, replication_factor=replication_factor)
        client = self.client()
        request = topics.CreateTopicsRequest(topics=[topic], timeout_ms=60_000)
        for address in self._fleet.bootstrap:  # one of them is the controller
            response = await client.request(address, ApiKey.CREATE_TOPICS, 5, request, timeout_s=60)
            if response.topics[0].error_code != ErrorCode.NOT_CONTROLLER:
                break
        assert response.topics[0].error_code == 0, response.topics[0].error_message
        client.close()

    async def deny(self) -> None:
        """Nothing of topics, groups and transactional ids is allowed any more, nor to describe or change the cluster.

        With an authorizer that allows everything else.
        """
        acls = codec.module(ApiKey.CREATE_ACLS)
        denied = {
            (kind, "*"): (AclOperation.ALL,)
            for kind in (ResourceType.TOPIC, ResourceType.GROUP, ResourceType.TRANSACTIONAL_ID)
        }
        denied[ResourceType.CLUSTER, CLUSTER_NAME] = (
            *(AclOperation.DESCRIBE, AclOperation.DESCRIBE_CONFIGS, AclOperation.ALTER_CONFIGS),
            *(AclOperation.CREATE, AclOperation.ALTER),
        )
        creations = [
            acls.AclCreation(
                resource_type=int(kind),
                resource_name=name,
                resource_pattern_type=int(PatternType.LITERAL),
                principal=EVERYONE,
                host="*",
                operation=int(operation),
                permission_type=int(PermissionType.DENY),
            )
            for (kind, name), operations in denied.items()
            for operation in operations
        ]
        client = self.client()
        request = acls.CreateAclsRequest(creations=creations)
        response = await client.request(self.address, ApiKey.CREATE_ACLS, 3, request, timeout_s=60)
        assert not any(one.error_code for one in response.results), response
        client.close()

    async def send(self, row: Row, content: Content, size: int) -> tuple[int, int | str]:
        """The most lines of a callback until the answer, and its size, or how the connection ended."""
        api_key = row.definition.api_key or 0
        client = self.client()
        link: Any = await client._link(self._fleet.bootstrap[0])
        answer = self._loop.create_future()
        link.on_frame = lambda frame: answer.done() or answer.set_result(len(frame))
        link.on_close = lambda reason: answer.done() or answer.set_result("closed")
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

    @contextlib.contextmanager
    def counting(self, counted: str = "") -> Iterator[None]:
        """Afterwards `most_lines` is that of the longest callback meanwhile, of the tasks of this name where given."""
        self._loop.most_lines, self._loop.is_counting, self._loop.counted = 0, True, counted
        try:
            yield
        finally:
            self._loop.is_counting, self._loop.counted = False, ""

    @property
    def most_lines(self) -> int:
        return self._loop.most_lines

    @property
    def longest(self) -> str:
        return self._loop.longest

    @property
    def address(self) -> tuple[str, int]:
        return self._fleet.bootstrap[0]

    def client(self) -> Client:
        self._connections += 1
        host = f"10.1.0.{self._connections % 250 + 1}"
        return Client(self._world, self._fleet.fabric, f"c{self._connections}", host, self._fleet.bootstrap)


def answered(
    scenario: Callable[[Broker], Any], *, brokers: int = 1, partitions: int = 1, replication_factor: int = 1
) -> Any:
    """What a scenario gives, with one broker by default."""

    async def run(world: World, loop: CountingLoop) -> Any:
        broker = Broker(world, loop, brokers)
        await broker.start(partitions, replication_factor)
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
