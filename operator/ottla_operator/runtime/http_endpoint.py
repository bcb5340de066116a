"""The HTTP port of the operator: the liveness probe, and /metrics in the Prometheus text format."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import NamedTuple
from urllib.parse import urlsplit

from ottla_broker.exposition import CONTENT_TYPE, Exposition
from ottla_broker.http_server import HttpServer
from ottla_operator.runtime.operator_metrics import OperatorMetrics

METRICS_PATH = "/metrics"
DEFAULT_PORT = 80


class _Answer(NamedTuple):
    status: int
    content_type: str
    body: bytes


class HttpEndpoint:
    """Answers from `start` to `close`, also while another operator holds the Lease.

    Args:
        url: where the probe is answered, such as "http://0.0.0.0:8080/healthz"; "" for no endpoint at all.
        stuck_tasks: the tasks that make no progress; the probe fails while there is one.
    """

    def __init__(self, url: str, metrics: OperatorMetrics, stuck_tasks: Callable[[], list[str]]) -> None:
        self._url = url
        self._exposition = Exposition(metrics.registry, of_process=True)
        self._stuck_tasks = stuck_tasks
        self._server: HttpServer | None = None

    async def start(self) -> None:
        """Listens.

        Raises:
            OSError: the address is in use, or is none of this machine.
        """
        if not self._url:
            return
        parts = urlsplit(self._url)
        self._server = HttpServer({parts.path or "/": self._probe, METRICS_PATH: self._metrics})
        await self._server.start(parts.hostname or "", parts.port or DEFAULT_PORT)

    async def close(self) -> None:
        server, self._server = self._server, None
        if server is not None:
            server.close()

    def _probe(self) -> _Answer:
        stuck = self._stuck_tasks()
        body = {"tasks": f"no step for ten minutes: {', '.join(stuck)}" if stuck else "stepping"}
        return _Answer(503 if stuck else 200, "application/json", f"{json.dumps(body)}\n".encode())

    def _metrics(self) -> _Answer:
        return _Answer(200, CONTENT_TYPE, self._exposition.text())
