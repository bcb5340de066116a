"""Requests to the current controller of a fleet, which any broker names, tried again while errors are temporary."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ottla_broker.ports import Clock
from ottla_broker.ports.network import Connector
from ottla_broker.protocol import codec
from ottla_broker.protocol.api import ApiKey
from ottla_broker.protocol.errors import ErrorCode
from ottla_broker.server.peers.broker_client import BrokerClient, BrokerDisconnected

TIMEOUT_MS = 30_000
PAUSE_S = 0.05
METADATA_VERSION = 12
_PASSING = (ErrorCode.NOT_CONTROLLER, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
"""Temporary errors. UNKNOWN_TOPIC_OR_PARTITION: the broker does not have the metadata of a new topic yet."""


class ControllerRequests:
    """Args:
    first: host and port of a broker, which says where the controller is.
    """

    def __init__(self, connector: Connector, clock: Clock, first: tuple[str, int]) -> None:
        self._connector = connector
        self._clock = clock
        self._first = first
        self._clients: dict[tuple[str, int], BrokerClient] = {}

    def close(self) -> None:
        for client in self._clients.values():
            client.close()

    async def ask(
        self, api_key: ApiKey, version: int, request: Any, result: Callable[[Any], tuple[int, str]]
    ) -> tuple[int, str]:
        """(error code, message) of the response, as `result` finds them. Retries temporary errors for `TIMEOUT_MS`."""
        deadline = self._clock.monotonic() + TIMEOUT_MS / 1000
        while True:
            why = "the fleet has no controller"
            try:
                await self._client(*self._first).connect()
                metadata = await self._client(*self._first).send(
                    ApiKey.METADATA, METADATA_VERSION, metadata_request([])
                )
                controller = next((b for b in metadata.brokers if b.node_id == metadata.controller_id), None)
                if controller is not None:
                    client = self._client(controller.host, controller.port)
                    await client.connect()
                    code, message = result(await client.send(api_key, version, request))
                    why = message or ErrorCode.of(code).message
                    if code not in _PASSING:
                        return code, why
            except BrokerDisconnected as error:
                why = str(error)
            if self._clock.monotonic() > deadline:
                return int(ErrorCode.REQUEST_TIMED_OUT), why
            await self._clock.sleep(PAUSE_S)

    def _client(self, host: str, port: int) -> BrokerClient:
        address = (host, port)
        if address not in self._clients:
            self._clients[address] = BrokerClient(self._connector, self._clock, host, port, client_id="ottla-local")
        return self._clients[address]


def metadata_request(names: Sequence[str]) -> Any:
    """Asks for these topics; for none when there are none."""
    api = codec.module(ApiKey.METADATA)
    topics = [api.MetadataRequestTopic(name=name) for name in names]
    return api.MetadataRequest(topics=topics, allow_auto_topic_creation=False)
