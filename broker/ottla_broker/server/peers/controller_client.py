"""Sends this broker's requests to the active controller: AlterPartition, ControlledShutdown, CreateTopics.

The active controller is the one that the metadata names. After NOT_CONTROLLER or a broken connection the request is
sent again within the caller's time limit, to the active controller by then. A controller that hangs delays nothing: the
connection to it is closed as soon as the metadata names another one.

Source: kafka.server.BrokerToControllerChannelManager.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ottla_broker.ports import Clock
from ottla_broker.ports.network import Connector
from ottla_broker.protocol.api import ApiKey
from ottla_broker.protocol.errors import ErrorCode
from ottla_broker.protocol.generated import create_topics as create_topics_api
from ottla_broker.server.peers.broker_client import BrokerClient, BrokerDisconnected

if TYPE_CHECKING:
    from ottla_broker.metadata.cache import MetadataCache

_PAUSE_S = 0.05
_CREATE_TOPICS_VERSION = 7


class ControllerClient:
    """One connection to the current controller, opened when it is first needed.

    Args:
        listener: name of the inter-broker listener.
        request_timeout_ms: `controller.socket.timeout.ms`, for one try and for a call as a whole.
    """

    def __init__(
        self,
        broker_id: int,
        connector: Connector,
        clock: Clock,
        metadata: MetadataCache,
        listener: str,
        request_timeout_ms: int,
    ) -> None:
        self._broker_id = broker_id
        self._connector = connector
        self._clock = clock
        self._metadata = metadata
        self._listener = listener
        self._timeout_s = request_timeout_ms / 1000.0
        self._client: BrokerClient | None = None
        self._connecting: set[asyncio.Future[None]] = set()
        metadata.add_listener(self._disconnect_former_controller)

    async def ask(self, api_key: int, version: int, request: Any, timeout_s: float | None = None) -> Any:
        """The controller's response, whatever its error code.

        Raises:
            BrokerDisconnected: there is none within `timeout_s` (default: the client's).
        """
        deadline = self._clock.monotonic() + (self._timeout_s if timeout_s is None else timeout_s)
        while True:
            try:
                client = self._client_of_controller()
                await self._connect(client, self._left_s(deadline))
                return await client.send(api_key, version, request, timeout_s=self._left_s(deadline))
            except BrokerDisconnected:
                if self._clock.monotonic() >= deadline:
                    raise
            await self._clock.sleep(_PAUSE_S)

    async def create_topics(
        self, topics: Sequence[create_topics_api.CreatableTopic], timeout_ms: int
    ) -> dict[str, tuple[int, str | None]]:
        """(error code, message) per name. After a failover the new controller is asked, until `timeout_ms`."""
        deadline = self._clock.monotonic() + timeout_ms / 1000.0
        request = create_topics_api.CreateTopicsRequest(topics=list(topics), timeout_ms=timeout_ms, validate_only=False)
        while True:
            try:
                response = await self.ask(ApiKey.CREATE_TOPICS, _CREATE_TOPICS_VERSION, request, self._left_s(deadline))
            except BrokerDisconnected as error:
                return {topic.name: (int(ErrorCode.REQUEST_TIMED_OUT), str(error)) for topic in topics}
            results = {result.name: (result.error_code, result.error_message) for result in response.topics}
            moved = any(code == ErrorCode.NOT_CONTROLLER for code, _message in results.values())
            if not moved or self._clock.monotonic() >= deadline:
                return results
            await self._clock.sleep(_PAUSE_S)

    def close(self) -> None:
        if self._client is not None:
            self._client.close()
            self._client = None
        for connecting in self._connecting:  # the address of a pod that is gone answers nothing for as long as it may
            connecting.cancel()

    def _left_s(self, deadline: float) -> float:
        return max(deadline - self._clock.monotonic(), _PAUSE_S)

    async def _connect(self, client: BrokerClient, limit_s: float) -> None:
        connecting = asyncio.ensure_future(client.connect())
        self._connecting.add(connecting)
        try:
            await asyncio.wait([connecting], timeout=limit_s)
        finally:
            self._connecting.discard(connecting)
            if not connecting.done():
                connecting.cancel()
        if not connecting.done():
            raise BrokerDisconnected(f"{client.host}:{client.port} does not answer in time")
        if connecting.cancelled():
            raise BrokerDisconnected(f"{client.host}:{client.port} is the controller no more")
        connecting.result()

    def _disconnect_former_controller(self) -> None:
        """Requests in flight fail, and are sent again to the new one."""
        endpoint = self._metadata.endpoint(self._metadata.controller_id, self._listener)
        client = self._client
        if client is not None and endpoint is not None and (client.host, client.port) != (endpoint.host, endpoint.port):
            self.close()

    def _client_of_controller(self) -> BrokerClient:
        endpoint = self._metadata.endpoint(self._metadata.controller_id, self._listener)
        if endpoint is None:
            raise BrokerDisconnected("no controller is known yet")
        client = self._client  # to that endpoint: one to another was closed when the metadata named this one
        if client is None:
            client = self._client = BrokerClient(
                self._connector,
                self._clock,
                endpoint.host,
                endpoint.port,
                client_id=f"broker-{self._broker_id}",
                connect_timeout_s=self._timeout_s,
                request_timeout_s=self._timeout_s,
            )
        return client
