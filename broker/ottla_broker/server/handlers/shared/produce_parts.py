"""A produce request of many partitions, as several of a few: each is handled at once, and the loop does other work
between two of them. Not here: what becomes of a batch (the Produce handler).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from ottla_broker.protocol.generated.produce import ProduceRequest, ProduceResponse, TopicProduceData
from ottla_broker.server.handler_api import RequestContext, Respond

PARTITIONS_PER_PART: Final = 50


class ProduceParts:
    """The responses of the parts of one request, until all are there.

    Args:
        respond: gets the response of the whole request, once; None when the parts have none (acks=0).
    """

    def __init__(self, respond: Respond[ProduceResponse]) -> None:
        self._respond = respond
        self._responses: list[ProduceResponse | None] = []
        self._pending = 1
        """Parts without a response, and one until `end`."""

    def begin(self) -> Respond[ProduceResponse]:
        """Where the response of the next part goes."""
        self._responses.append(None)
        self._pending += 1
        return partial(self._on_response, len(self._responses) - 1)

    def end(self) -> None:
        """There is no other part."""
        self._pending -= 1
        if not self._pending:
            self._respond(_joined([response for response in self._responses if response is not None]))

    def _on_response(self, number: int, response: ProduceResponse | None) -> None:
        self._responses[number] = response
        self.end()


async def handle_in_parts(
    context: RequestContext,
    request: ProduceRequest,
    respond: Respond[ProduceResponse],
    handle: Callable[[ProduceRequest, Respond[ProduceResponse]], None],
) -> None:
    """Gives `handle` the request part by part, in its order. Raises ClientIsGone."""
    parts = ProduceParts(respond)
    topics: list[TopicProduceData] = []
    count = 0
    async for topic in context.each(request.topic_data):
        data = topic.partition_data
        async for first in context.each(range(0, len(data) or 1, PARTITIONS_PER_PART)):
            some = data[first : first + PARTITIONS_PER_PART]
            topics.append(TopicProduceData(name=topic.name, topic_id=topic.topic_id, partition_data=some))
            count += len(some) + 1
            if count >= PARTITIONS_PER_PART:
                handle(_part(request, topics), parts.begin())
                topics, count = [], 0
                assert context.work is not None
                await context.work.turn()
    if topics:
        handle(_part(request, topics), parts.begin())
    parts.end()


def _part(request: ProduceRequest, topics: list[TopicProduceData]) -> ProduceRequest:
    return ProduceRequest(
        transactional_id=request.transactional_id, acks=request.acks, timeout_ms=request.timeout_ms, topic_data=topics
    )


def _joined(responses: list[ProduceResponse]) -> ProduceResponse | None:
    """One response; a topic that was divided is one topic again."""
    if not responses:
        return None
    joined = ProduceResponse(responses=[])
    endpoints = {}
    for response in responses:
        topics = response.responses
        last = joined.responses[-1] if joined.responses else None
        if last is not None and topics and (last.name, last.topic_id) == (topics[0].name, topics[0].topic_id):
            last.partition_responses += topics[0].partition_responses
            topics = topics[1:]
        joined.responses += topics
        endpoints.update({endpoint.node_id: endpoint for endpoint in response.node_endpoints})
    joined.node_endpoints = list(endpoints.values())
    return joined
