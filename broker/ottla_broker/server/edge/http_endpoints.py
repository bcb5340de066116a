"""The HTTP endpoints of a broker: /metrics, /livez, /readyz and /status.

/livez succeeds while the loop runs, from before log recovery on. /readyz succeeds when the logs are recovered, the
listeners are open, the broker is registered and has metadata; whether its replicas are in sync is not its question.
/status gives the state, the session with the coordination store, the progress of recovery and the log directories as
JSON. Not here: the server (`adapters.http_server`).
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

from ottla_broker.exposition import CONTENT_TYPE, Exposition
from ottla_broker.metrics import Metrics


class ObservedBroker(Protocol):
    """The broker as its endpoints see it."""

    @property
    def metrics(self) -> Metrics: ...

    @property
    def state(self) -> str: ...

    @property
    def is_ready(self) -> bool: ...

    def status(self) -> dict[str, Any]: ...


class HttpResponse(NamedTuple):
    """HTTP status, content type, body."""

    status: int
    content_type: str
    body: bytes


def routes(broker: ObservedBroker) -> dict[str, Callable[[], HttpResponse]]:
    """The paths and what answers them."""
    exposition = Exposition(broker.metrics, of_process=True)

    def metrics() -> HttpResponse:
        return HttpResponse(200, CONTENT_TYPE, exposition.text())

    def livez() -> HttpResponse:
        return HttpResponse(200, "text/plain", b"ok\n")

    def readyz() -> HttpResponse:
        if broker.is_ready:
            return HttpResponse(200, "text/plain", b"ok\n")
        return HttpResponse(503, "text/plain", f"not ready: {broker.state}\n".encode())

    def status() -> HttpResponse:
        return HttpResponse(200, "application/json", json.dumps(broker.status()).encode() + b"\n")

    return {"/metrics": metrics, "/livez": livez, "/readyz": readyz, "/status": status}
