"""The HTTP endpoints of a broker: /metrics, /livez, /readyz and /status.

/livez succeeds while the loop runs, from before log recovery on. /readyz succeeds when the logs are recovered, the
listeners are open, the broker is registered and has metadata; whether its replicas are in sync is not its question.
/status gives the state, the session with the coordination store, the progress of recovery and the log directories as
JSON. Before the broker is ready both say what it logged last: nothing else tells why a broker that runs is not ready.
Not here: the server (`http_server`).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
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
    """HTTP status, content type, body, whole or in parts."""

    status: int
    content_type: str
    body: bytes | Iterator[bytes]


def routes(broker: ObservedBroker, last_line: Callable[[], str] = str) -> dict[str, Callable[[], HttpResponse]]:
    """The paths and what answers them.

    Args:
        last_line: the last problem that the broker has logged, else its last line; "" for none.
    """
    exposition = Exposition(broker.metrics, of_process=True)

    def metrics() -> HttpResponse:
        return HttpResponse(200, CONTENT_TYPE, exposition.parts())

    def livez() -> HttpResponse:
        return HttpResponse(200, "text/plain", b"ok\n")

    def readyz() -> HttpResponse:
        if broker.is_ready:
            return HttpResponse(200, "text/plain", b"ok\n")
        said = "".join(f"\n{line}" for line in [last_line()] if line)
        return HttpResponse(503, "text/plain", f"not ready: {broker.state}{said}\n".encode())

    def status() -> HttpResponse:
        found = broker.status()
        if not broker.is_ready and (line := last_line()):
            found = {**found, "last_line": line}
        return HttpResponse(200, "application/json", json.dumps(found).encode() + b"\n")

    return {"/metrics": metrics, "/livez": livez, "/readyz": readyz, "/status": status}
