"""What a connection keeps of the headers of its requests, so that it reads each once."""

from __future__ import annotations

import pytest

from ottla_broker.protocol.api import ApiKey
from ottla_broker.protocol.generated.heartbeat import HeartbeatRequest
from ottla_broker.server.edge.connection import LONGEST_KNOWN_HEADER
from tests.broker.server.edge.test_throttling import Edge, answer


@pytest.mark.parametrize(("size", "is_kept"), [(100, True), (2 * LONGEST_KNOWN_HEADER, False)])
def test_a_header_of_usual_length_is_kept_and_a_long_one_fills_no_memory(size: int, is_kept: bool) -> None:
    edge = Edge()
    edge.answers = answer
    client_id = "c" * size
    for _ in range(2):
        edge.receive(HeartbeatRequest(), ApiKey.HEARTBEAT, 4, client_id)
    assert [request.client_id for request in edge.requests] == [client_id] * 2
    assert bool(edge.connection._routes) is is_kept
