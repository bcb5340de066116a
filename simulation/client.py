"""A Kafka client for the simulator: one connection per broker, requests by the product's codec, metadata, leaders.

It does not retry; `Unavailable` means that the caller may. Producers, consumers and the conclusions from responses are
in `simulation.workload`.
"""

from __future__ import annotations

import asyncio
import struct
from dataclasses import dataclass, field
from typing import Any

from ottla_broker.ports.network import Connection
from ottla_broker.protocol import codec
from ottla_broker.protocol.api import ApiKey
from simulation.network import Fabric, SimulatedNetwork
from simulation.world import World

MAX_FRAME_BYTES = 64 << 20


class Unavailable(Exception):
    """No answer: nobody there, a broken connection, a timeout. Whether the request was done is unknown."""


class _NoAnswer(Exception):
    """It did not come in time."""


def _give_up(future: asyncio.Future[Any], reason: str) -> None:
    if not future.done():
        future.set_exception(_NoAnswer(reason))
        future.exception()  # whoever gave up waiting need not hear of it


class _Link:
    """One connection with the requests that wait for their answers, which come in order."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.is_closed = False
        self._waiting: dict[int, tuple[int, int, asyncio.Future[Any]]] = {}

    def send(self, api_key: int, version: int, correlation_id: int, name: str, body: Any, future: Any) -> None:
        chunks = codec.frame_request(api_key, version, correlation_id, name, body)
        if future is not None:
            self._waiting[correlation_id] = (api_key, version, future)
        self.connection.send(chunks)  # type: ignore[arg-type]

    def on_frame(self, frame: memoryview) -> None:
        (correlation_id,) = struct.unpack_from(">i", frame)
        api_key, version, future = self._waiting.pop(correlation_id)
        _, response = codec.read_response_frame(api_key, version, frame)
        if not future.done():
            future.set_result(response)

    def on_sent(self) -> None:
        pass

    def on_close(self, reason: str) -> None:
        self.is_closed = True
        waiting, self._waiting = self._waiting, {}
        for _, _, future in waiting.values():
            if not future.done():
                future.set_exception(Unavailable(reason or "the broker closed the connection"))
                future.exception()  # whoever gave up waiting need not hear of it


@dataclass
class KnownPartition:
    """What metadata told of one partition."""

    leader: int
    leader_epoch: int
    replicas: list[int]
    in_sync: list[int]


@dataclass
class ClusterState:
    """What metadata told."""

    brokers: dict[int, tuple[str, int]] = field(default_factory=dict)
    controller: int = -1
    partitions: dict[tuple[str, int], KnownPartition] = field(default_factory=dict)
    topic_ids: dict[str, bytes] = field(default_factory=dict)
    topic_errors: dict[str, int] = field(default_factory=dict)


class Client:
    """A client on a machine of its own."""

    def __init__(self, world: World, fabric: Fabric, name: str, host: str, bootstrap: list[tuple[str, int]]) -> None:
        self.world = world
        self.name = name
        self.host = host
        self.random = world.stream(f"client/{name}")
        self.network = SimulatedNetwork(fabric, world.machine(name, host))
        self.bootstrap = bootstrap
        self.state = ClusterState()
        self._newest: dict[tuple[str, int], KnownPartition] = {}
        """The latest leadership of every partition that was ever told, whatever the last answer left out."""
        self._links: dict[tuple[str, int], _Link] = {}
        self._opening: dict[tuple[str, int], asyncio.Task[_Link]] = {}
        self._correlation_id = 0

    async def _link(self, address: tuple[str, int]) -> _Link:
        link = self._links.get(address)
        if link is not None and not link.is_closed:
            return link
        opening = self._opening.get(address)
        if opening is None:
            opening = self.world.spawn(self._open(address), name=f"{self.name}-connect")
            opening.add_done_callback(lambda task: task.cancelled() or task.exception())
            self._opening[address] = opening
        try:
            return await asyncio.shield(opening)
        except OSError as error:
            raise Unavailable(f"{address[0]}:{address[1]}: {error}") from error

    async def _open(self, address: tuple[str, int]) -> _Link:
        links: list[_Link] = []

        def attach(connection: Connection) -> _Link:
            links.append(_Link(connection))
            return links[0]

        try:
            await self.network.connect(*address, attach, timeout_s=3.0, max_frame_bytes=MAX_FRAME_BYTES)
            self._links[address] = links[0]
            return links[0]
        finally:
            self._opening.pop(address, None)

    async def post(
        self, address: tuple[str, int], api_key: int, version: int, body: Any, *, answered: bool = True
    ) -> asyncio.Future[Any] | None:
        """Sends and gives the future of the answer; None when none will come (`acks=0`)."""
        link = await self._link(address)
        if link.is_closed:
            raise Unavailable("the connection closed at once")
        self._correlation_id += 1
        future = self.world.loop.create_future() if answered else None
        link.send(api_key, version, self._correlation_id, self.name, body, future)
        return future

    async def request(
        self, address: tuple[str, int], api_key: int, version: int, body: Any, *, timeout_s: float = 10.0
    ) -> Any:
        """Sends and waits. Raises Unavailable."""
        future = await self.post(address, api_key, version, body)
        assert future is not None
        return await self.answer(future, address, timeout_s)

    async def answer(self, future: asyncio.Future[Any], address: tuple[str, int], timeout_s: float) -> Any:
        """Waits for an answer; after `timeout_s` the connection is given up, as clients do. Raises Unavailable."""
        if future.done():
            return future.result()
        # A timer of our own: `asyncio.timeout` costs as much as all the rest of a request.
        timer = self.world.call_later(timeout_s, _give_up, future, f"no answer within {timeout_s} s")
        try:
            return await future
        except _NoAnswer as late:
            link = self._links.pop(address, None)
            if link is not None:
                link.connection.close()
            raise Unavailable(str(late)) from late
        finally:
            timer.cancel()

    async def refresh(self, topics: list[str] | None = None) -> ClusterState:
        """Metadata of all topics, or of these, from any broker. Raises Unavailable."""
        metadata = codec.module(ApiKey.METADATA)
        version = self.random.randrange(9, 13)
        asked = None if topics is None else [metadata.MetadataRequestTopic(name=name) for name in topics]
        body = metadata.MetadataRequest(topics=asked, allow_auto_topic_creation=False)
        address = self.random.choice(self.bootstrap)
        response = await self.request(address, ApiKey.METADATA, version, body, timeout_s=5.0)
        state = ClusterState({b.node_id: (b.host, b.port) for b in response.brokers}, response.controller_id)
        for topic in response.topics:
            state.topic_errors[topic.name] = topic.error_code
            if topic.error_code:
                continue
            if version >= 10:
                state.topic_ids[topic.name] = bytes(topic.topic_id)
            for part in topic.partitions:
                fresh = KnownPartition(
                    part.leader_id, part.leader_epoch, list(part.replica_nodes), list(part.isr_nodes)
                )
                known = self._newest.get((topic.name, part.partition_index))
                # A broker that has been replaced as leader may not know it yet: clients never go back (KIP-320).
                if known is None or known.leader_epoch <= fresh.leader_epoch:
                    self._newest[(topic.name, part.partition_index)] = known = fresh
                state.partitions[(topic.name, part.partition_index)] = known
        self.state = state
        return state

    def leader_of(self, partition: tuple[str, int]) -> tuple[str, int] | None:
        """The address of the leader as far as is known."""
        known = self.state.partitions.get(partition)
        return None if known is None else self.state.brokers.get(known.leader)

    def close(self) -> None:
        self.network.close()
