"""How long a ZooKeeper server is waited for while a session connects."""

from __future__ import annotations

import logging
import socket

import pytest
from kazoo.retry import ForceRetryError

from ottla_broker.coordination.kazoo_session import LinkState, SessionClient, first_patience_s

TIMEOUT_S = 0.4


def _rounds(client: SessionClient, count: int) -> float:
    """So many rounds over all servers, none of which gets a session; how long the last one waited for a server."""
    for _ in range(count):
        with pytest.raises(ForceRetryError):
            client._connection._connect_loop(client._connection.retry_sleeper)
    patience: float = client._connection._patience_s
    return patience


def _client(port: int) -> SessionClient:
    def ignore(_client: SessionClient, _state: LinkState) -> None:
        return

    client = SessionClient(f"127.0.0.1:{port}", TIMEOUT_S, None, ignore, logging.getLogger("test"))
    client._stopped.clear()  # as its start does
    return client


def test_a_server_that_refuses_connections_while_it_starts_is_not_waited_for_longer(free_port: int) -> None:
    """The first connection that it takes may get no response: then the next attempt has to come soon."""
    assert _rounds(_client(free_port), 5) == first_patience_s(TIMEOUT_S, 1)


def test_a_server_that_responds_to_nobody_is_waited_for_twice_as_long() -> None:
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        client = _client(deaf.getsockname()[1])
        assert [_rounds(client, 1) for _ in range(5)] == [0.05, 0.1, 0.2, 0.4, 0.4]
