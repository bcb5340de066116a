"""The cost of the Produce and Fetch handlers alone: `python -m bench.handlers`.

One broker in this process; its handlers are called as the dispatcher calls them, without sockets, frames or a client.
What remains is the Python work of one request. Times are CPU of the broker's thread in µs per request, the minimum of
several rounds. To compare two commits, run it in a checkout of each, alternating, on an idle machine.
"""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Awaitable, Callable
from typing import Any

from rich.console import Console
from rich.table import Table

from ottla.testing import cluster
from ottla_broker.authorization.access import Access
from ottla_broker.controller.decisions.topic_plans import NewTopic
from ottla_broker.protocol.api import ApiKey
from ottla_broker.protocol.generated import fetch as wire_fetch
from ottla_broker.protocol.generated import produce as wire_produce
from ottla_broker.records.record import Record, build_batch
from ottla_broker.security.principals import ANONYMOUS
from ottla_broker.server.broker import Broker
from ottla_broker.server.handler_api import RequestContext
from ottla_broker.server.handlers import fetch, produce

ROUNDS = 7
REQUESTS = 1_000
PARTITIONS = 8
FETCH_VERSION = 17
PRODUCE_VERSION = 9


class _Source:
    """The connection that a request comes from; nothing is sent to it."""

    listener = "CLIENT"
    is_privileged = False
    has_cluster_action = True
    number = 1
    peer = ("127.0.0.1", 1)
    principal = ANONYMOUS
    principal_name = ANONYMOUS.name
    access: Access | None = None
    client_software = ("unknown", "unknown")
    is_closed = False

    def complete(self, context: RequestContext, response: Any) -> None:
        raise AssertionError("handlers respond through the callable they are given")

    def fail(self, reason: str) -> None:
        raise RuntimeError(reason)


class _Handlers:
    def __init__(self, broker: Broker, topic_id: bytes) -> None:
        services = broker._core.dispatcher.services
        assert services is not None
        self._services = services
        self._topic_id = topic_id
        self._responses: list[Any] = []

    async def run(self) -> dict[str, float]:
        """µs by what was asked."""
        await self._produce(1, -1)
        return {
            "Fetch, no session": await self._least(self._fetch_alone),
            "Fetch, session of 8 partitions": await self._least(self._fetch_in_session),
            "Produce, acks=1": await self._least(lambda: self._produce(REQUESTS, 1)),
            "Produce, acks=all": await self._least(lambda: self._produce(REQUESTS, -1)),
        }

    async def _least(self, once: Callable[[], Awaitable[float]]) -> float:
        gc.collect()
        gc.disable()
        try:
            return min([await once() for _ in range(ROUNDS)])
        finally:
            gc.enable()

    def _context(self, key: ApiKey, version: int) -> RequestContext:
        return RequestContext(_Source(), int(key), version, 1, "bench", 0.0)

    def _fetch_request(self, partitions: int, session_id: int = 0, epoch: int = -1) -> Any:
        asked = [wire_fetch.FetchPartition(partition=i, partition_max_bytes=1 << 20) for i in range(partitions)]
        topic = wire_fetch.FetchTopic(topic="t", topic_id=self._topic_id, partitions=asked)
        return wire_fetch.FetchRequest(
            max_wait_ms=500, min_bytes=1, max_bytes=50 << 20, session_id=session_id, session_epoch=epoch, topics=[topic]
        )

    def _fetch(self, request: Any) -> Any:
        fetch.handle(self._services, self._context(ApiKey.FETCH, FETCH_VERSION), request, self._responses.append)
        response = self._responses.pop()
        for partition in response.responses[0].partitions:
            assert partition.error_code == 0
            for chunk in partition.records:
                chunk.release()
        return response

    async def _fetch_alone(self) -> float:
        request = self._fetch_request(1)
        began = time.thread_time()
        for _ in range(REQUESTS):
            self._fetch(request)
        return (time.thread_time() - began) / REQUESTS * 1e6

    async def _fetch_in_session(self) -> float:
        session_id = self._fetch(self._fetch_request(PARTITIONS, epoch=0)).session_id
        assert session_id
        requests = [self._fetch_request(1, session_id, epoch) for epoch in range(1, REQUESTS + 1)]
        began = time.thread_time()
        for request in requests:
            self._fetch(request)
        return (time.thread_time() - began) / REQUESTS * 1e6

    async def _produce(self, requests: int, acks: int) -> float:
        batch = build_batch([Record(0, 1_000, None, b"x" * 100)])
        spent = 0.0
        for _ in range(requests):
            data = wire_produce.PartitionProduceData(index=0, records=memoryview(bytearray(batch)))
            topic = wire_produce.TopicProduceData(name="t", partition_data=[data])
            request = wire_produce.ProduceRequest(
                transactional_id=None, acks=acks, timeout_ms=30_000, topic_data=[topic]
            )
            context = self._context(ApiKey.PRODUCE, PRODUCE_VERSION)
            responded = asyncio.get_running_loop().create_future()
            began = time.thread_time()
            produce.handle(self._services, context, request, responded.set_result)
            spent += time.thread_time() - began
            response = await responded
            assert response.responses[0].partition_responses[0].error_code == 0
        return spent / requests * 1e6


def measure() -> dict[str, float]:
    """µs of CPU a request, by what was asked."""
    with cluster() as running:
        assert running.fleet is not None
        broker = running.fleet.brokers[0]
        controller = broker.controller
        assert controller is not None
        running.run(controller.create_topics([NewTopic("t", PARTITIONS, 1)], timeout_ms=10_000))
        manager = broker.replica_manager
        assert manager is not None
        topic_id = manager.topics["t"][0].topic_id
        return running.run(_Handlers(broker, topic_id).run())


def main() -> None:
    table = Table("handler", "µs of CPU a request")
    for name, spent in measure().items():
        table.add_row(name, f"{spent:.2f}")
    Console().print(table)


if __name__ == "__main__":
    main()
