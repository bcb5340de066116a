"""Sends the requests of a `RequestBatch` to the brokers, and passes on what they answer.

One per controller epoch. A LeaderAndIsr or StopReplica response becomes a `ControlResponse`, which the controller
queues as an event of its own. An UpdateMetadata response of the controller's own broker completes the waits for its
metadata (`metadata_waits`). Not here: the connections and their order (`channels_port`), what a response changes
(`broker_responses`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ottla_broker.config.inter_broker import InterBrokerVersions
from ottla_broker.controller.acts.metadata_waits import MetadataWaits
from ottla_broker.controller.channels_port import ControllerChannels
from ottla_broker.controller.context import ControllerContext
from ottla_broker.controller.control_requests import RequestBatch, deleted_partitions
from ottla_broker.ports import Clock
from ottla_broker.protocol.api import ApiKey
from ottla_broker.records.ids import TopicPartition

logger = logging.getLogger("ottla.controller")


@dataclass(frozen=True, slots=True)
class ControlResponse:
    """A broker's response to LeaderAndIsr or StopReplica; `deleted` are the partitions that the latter deletes."""

    broker: int
    broker_epoch: int
    api_key: ApiKey
    response: Any
    deleted: tuple[TopicPartition, ...] = ()


class RequestSender:
    """Sends batches until `close`.

    Args:
        broker_id: the broker that is the controller.
        listener: the name of the inter-broker listener.
        on_response: called for each response to LeaderAndIsr and StopReplica; must only queue.
    """

    def __init__(
        self,
        *,
        broker_id: int,
        clock: Clock,
        context: ControllerContext,
        channels: ControllerChannels,
        listener: str,
        versions: InterBrokerVersions,
        waits: MetadataWaits,
        on_response: Callable[[ControlResponse], None],
    ) -> None:
        self._broker_id = broker_id
        self._clock = clock
        self._context = context
        self._channels = channels
        self._listener = listener
        self._versions = versions
        self._waits = waits
        self._on_response = on_response
        self._is_closed = False

    def open_channel(self, broker: int) -> None:
        """Opens the channel to a live broker, unless it has no inter-broker listener."""
        if self._context.brokers[broker].endpoint(self._listener) is None:
            logger.error("broker %d cannot be reached: it has no listener %s", broker, self._listener)
            return
        self._channels.open(self._context.brokers[broker])

    def close_channel(self, broker: int) -> None:
        """Closes the channel to a broker and drops the requests that it has not answered."""
        self._channels.close(broker)
        if broker == self._broker_id:
            self._waits.reset()

    def close(self) -> None:
        """Closes every channel. Nothing is sent and no response is passed on any more."""
        self._is_closed = True
        self._channels.close_all()

    async def send(self, batch: RequestBatch, on_answer: Callable[[], None] | None = None) -> int:
        """Sends a batch. The loop does other work while a large one is built; the caller is the only one that changes
        the context.

        Args:
            on_answer: called once for each request, when its broker has answered it; perhaps before this returns.

        Returns:
            The number of requests.
        """
        if self._is_closed:
            return 0
        count = 0
        for request in batch.build_in_steps(self._context, self._broker_id, self._listener, self._versions):
            if request is None:
                await self._clock.sleep(0)
                if self._is_closed:
                    return count
                continue
            if self._context.brokers[request.broker].endpoint(self._listener) is None:
                continue
            count += 1
            if request.broker == self._broker_id and request.api_key is ApiKey.UPDATE_METADATA:
                self._waits.sent(frozenset(topic.topic_name for topic in request.body.topic_states))
            self._channels.send(
                request.broker,
                request.api_key,
                request.version,
                request.body,
                self._response_handler(request.broker, request.api_key, request.body, on_answer),
            )
        return count

    def _response_handler(
        self, broker: int, api_key: ApiKey, body: Any, on_answer: Callable[[], None] | None
    ) -> Callable[[Any], None]:
        epoch = self._context.brokers[broker].epoch
        deleted = tuple(deleted_partitions(body)) if api_key is ApiKey.STOP_REPLICA else ()

        def on_response(response: Any) -> None:
            if self._is_closed:
                return
            if api_key is not ApiKey.UPDATE_METADATA:
                self._on_response(ControlResponse(broker, epoch, api_key, response, deleted))
            elif broker == self._broker_id:
                self._waits.answered()
            if on_answer is not None:
                on_answer()

        return on_response
