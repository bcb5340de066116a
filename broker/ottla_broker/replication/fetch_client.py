"""What a follower needs of a connection to its leader; `server.peers.broker_client.BrokerClient` is one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Protocol, TypeAlias


class LeaderConnection(Protocol):
    @property
    def is_connected(self) -> bool: ...

    async def connect(self) -> None:
        """OSError when nobody answers."""
        ...

    def send(self, api_key: int, version: int, request: Any, *, timeout_s: float | None = None) -> asyncio.Future[Any]:
        """The decoded response; OSError when the connection goes or time is up."""
        ...

    def close(self) -> None: ...


ConnectToBroker: TypeAlias = Callable[[str, int], LeaderConnection]
"""Makes an unconnected client for (host, port)."""
