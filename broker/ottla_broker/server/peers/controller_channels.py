"""The active controller's request queue to each broker, over the Network port.

Implements `controller.channels_port.ControllerChannels`. One task per broker sends the head of its queue until it is
answered. After a broken connection it is unknown whether the request arrived, so it is sent again: the broker compares
epochs. The broker of the controller is reached the same way.

Source: kafka.controller.ControllerChannelManager.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple

from ottla_broker.controller.values import RegisteredBroker
from ottla_broker.metrics import Metrics
from ottla_broker.ports import Clock
from ottla_broker.ports.network import Connector
from ottla_broker.protocol.api import ApiKey
from ottla_broker.server.peers.broker_client import BrokerClient, BrokerDisconnected

_PAUSE_S = 0.1


class _QueuedRequest(NamedTuple):
    api_key: int
    version: int
    request: Any
    on_response: Callable[[Any], None]


class _Channel:
    """The queue of one broker, for one registration of it."""

    def __init__(self, broker_id: int, client: BrokerClient, clock: Clock, logger: logging.LoggerAdapter[Any]) -> None:
        self._broker_id = broker_id
        self._client = client
        self._clock = clock
        self._logger = logger
        self._wake = clock.create_future()
        self._is_closed = False
        self.queue: deque[_QueuedRequest] = deque()
        self._task = clock.spawn(self._run(), name=f"controller channel to broker {broker_id}")

    def put(self, queued: _QueuedRequest) -> None:
        self.queue.append(queued)
        if not self._wake.done():
            self._wake.set_result(None)

    def close(self) -> None:
        self._is_closed = True
        self._client.close()
        self._task.cancel()

    async def _run(self) -> None:
        while True:
            if not self.queue:
                self._wake = self._clock.create_future()
                await self._wake
            response = await self._send(self.queue[0])
            if self._is_closed:
                return
            queued = self.queue.popleft()
            try:
                queued.on_response(response)
            except Exception:
                # A bug, and no reason to keep all later requests from the broker.
                name = ApiKey(queued.api_key).name
                self._logger.exception("the response of broker %d to %s cannot be used", self._broker_id, name)

    async def _send(self, queued: _QueuedRequest) -> Any:
        logged: type[Exception] | None = None
        while True:
            try:
                await self._client.connect()
                return await self._client.send(queued.api_key, queued.version, queued.request)
            except Exception as error:
                if type(error) is not logged:
                    logged = type(error)
                    unforeseen = None if isinstance(error, BrokerDisconnected) else error
                    level = logging.WARNING if unforeseen is None else logging.ERROR
                    text = "%s to broker %d: %s; trying again"
                    name = ApiKey(queued.api_key).name
                    self._logger.log(level, text, name, self._broker_id, error, exc_info=unforeseen)
                await self._clock.sleep(_PAUSE_S)


class NetworkControllerChannels:
    """See `ControllerChannels`.

    Args:
        connector_to: gives what connects to a listener by its name.
        listener: name of the inter-broker listener, whose endpoints are used.
        control_plane: `control.plane.listener.name`, used where a broker has it (KIP-291).
        request_timeout_ms: `controller.socket.timeout.ms`.
    """

    def __init__(
        self,
        broker_id: int,
        connector_to: Callable[[str], Connector],
        clock: Clock,
        listener: str,
        request_timeout_ms: int,
        metrics: Metrics,
        logger: logging.LoggerAdapter[Any],
        control_plane: str | None = None,
    ) -> None:
        self._broker_id = broker_id
        self._connector_to = connector_to
        self._control_plane = control_plane
        self._clock = clock
        self._listener = listener
        self._timeout_s = request_timeout_ms / 1000.0
        self._logger = logger
        self._channels: dict[int, _Channel] = {}
        metrics.gauge(
            "kafka_controller_controllerchannelmanager_totalqueuesize",
            "Requests of the controller that wait for a broker.",
            lambda: float(sum(len(channel.queue) for channel in self._channels.values())),
        )

    def open(self, broker: RegisteredBroker) -> None:
        self.close(broker.id)
        listener, endpoint = self._listener, broker.endpoint(self._listener)
        if self._control_plane is not None and (control_plane := broker.endpoint(self._control_plane)) is not None:
            # While a cluster is rolled to use one, some brokers do not have it yet.
            listener, endpoint = self._control_plane, control_plane
        if endpoint is None:
            self._logger.error("broker %d has no listener %s: it cannot be reached", broker.id, self._listener)
            return
        client = BrokerClient(
            self._connector_to(listener),
            self._clock,
            endpoint.host,
            endpoint.port,
            client_id=f"controller-{self._broker_id}",
            connect_timeout_s=self._timeout_s,
            request_timeout_s=self._timeout_s,
        )
        self._channels[broker.id] = _Channel(broker.id, client, self._clock, self._logger)

    def close(self, broker_id: int) -> None:
        channel = self._channels.pop(broker_id, None)
        if channel is not None:
            channel.close()

    def close_all(self) -> None:
        for broker_id in list(self._channels):
            self.close(broker_id)

    def send(
        self, broker_id: int, api_key: int, version: int, request: Any, on_response: Callable[[Any], None]
    ) -> None:
        self._channels[broker_id].put(_QueuedRequest(api_key, version, request, on_response))
