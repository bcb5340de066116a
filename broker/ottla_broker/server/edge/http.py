"""What a broker answers over HTTP: /metrics, /livez, /readyz and /status.

/livez says that the loop turns, from before recovery. /readyz says yes when the logs are recovered, the listeners are
open, the broker is registered and has metadata; whether its replicas are in sync is the operator's question. /status
tells the progress of recovery as JSON.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from ottla_broker.exposition import CONTENT_TYPE, Exposition

if TYPE_CHECKING:
    from ottla_broker.server.broker import Broker


class Answer(NamedTuple):
    """HTTP status, content type, body."""

    status: int
    content_type: str
    body: bytes


def routes(broker: Broker) -> dict[str, Callable[[], Answer]]:
    """The paths that are served and what answers them."""
    exposition = Exposition(broker.metrics, of_process=True)

    def metrics() -> Answer:
        return Answer(200, CONTENT_TYPE, exposition.text())

    def livez() -> Answer:
        return Answer(200, "text/plain", b"ok\n")

    def readyz() -> Answer:
        if broker.is_ready:
            return Answer(200, "text/plain", b"ok\n")
        return Answer(503, "text/plain", f"not ready: {broker.state}\n".encode())

    def status() -> Answer:
        return Answer(200, "application/json", json.dumps(broker.status()).encode() + b"\n")

    return {"/metrics": metrics, "/livez": livez, "/readyz": readyz, "/status": status}
