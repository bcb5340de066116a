"""The HTTP port of the operator: the liveness probe, and /metrics in the Prometheus text format."""

from __future__ import annotations

import json
from collections.abc import Callable
from urllib.parse import urlsplit

from aiohttp import web

from ottla_broker.exposition import CONTENT_TYPE, Exposition
from ottla_operator.runtime.operator_metrics import OperatorMetrics

METRICS_PATH = "/metrics"
DEFAULT_PORT = 80


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
        self._runner: web.AppRunner | None = None

    async def start(self) -> None:
        """Listens.

        Raises:
            OSError: the address is in use, or is none of this machine.
        """
        if not self._url:
            return
        parts = urlsplit(self._url)
        app = web.Application()
        app.router.add_get(parts.path or "/", self._probe)
        app.router.add_get(METRICS_PATH, self._metrics)
        self._runner = web.AppRunner(app, access_log=None, handle_signals=False)
        await self._runner.setup()
        await web.TCPSite(self._runner, parts.hostname, parts.port or DEFAULT_PORT).start()

    async def close(self) -> None:
        runner, self._runner = self._runner, None
        if runner is not None:
            await runner.cleanup()

    async def _probe(self, _: web.Request) -> web.Response:
        stuck = self._stuck_tasks()
        body = {"tasks": f"no step for ten minutes: {', '.join(stuck)}" if stuck else "stepping"}
        return web.Response(status=503 if stuck else 200, text=json.dumps(body) + "\n", content_type="application/json")

    async def _metrics(self, _: web.Request) -> web.Response:
        return web.Response(body=self._exposition.text(), headers={"Content-Type": CONTENT_TYPE})
