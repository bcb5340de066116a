"""The HTTP port of a driver: /status, /metrics in the Prometheus text format, and the probes /livez and /readyz.

It answers from a thread of its own, also while Spark starts. Nothing of it needs Spark.
"""

from __future__ import annotations

import asyncio
import json
import os
import threading
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

from ottla_broker.exposition import CONTENT_TYPE, Exposition
from ottla_broker.http_server import HttpServer
from ottla_broker.metrics import Metrics
from ottla_broker.protocol.number_text import whole_number
from ottla_pipeline.errors import PipelineError
from ottla_pipeline.running.driver_metrics import metric_families

JSON = "application/json"
PATHS = ("/status", "/metrics", "/livez", "/readyz")
READY_PHASES = ("Running", "Waiting")


class EndpointError(PipelineError):
    """The address cannot be listened on."""


class HttpAnswer(NamedTuple):
    """HTTP status, content type and body."""

    status: int
    content_type: str
    body: bytes


class StatusEndpoint:
    """Answers within `with`.

    Args:
        address: "HOST:PORT"; port 0 for a free one.
        status: the status now, as `ottla pipeline status -o json` shows it.
    """

    def __init__(self, address: str, status: Callable[[], Mapping[str, Any]]) -> None:
        metrics = Metrics()
        metrics.add_source(lambda: metric_families(status()))
        exposition = Exposition(metrics, of_process=True)
        host, port = host_and_port(address)
        self._server = HttpServer({path: partial(_answered, path, status, exposition.text) for path in PATHS})
        self._loop = asyncio.new_event_loop()
        try:
            self._loop.run_until_complete(self._server.start(host, port))
        except OSError as error:
            self._loop.close()
            reason = os.strerror(error.errno) if error.errno else str(error)
            raise EndpointError(f"--http {address}: {reason}") from None
        self._thread = threading.Thread(target=self._loop.run_forever, name="http", daemon=True)

    @property
    def port(self) -> int:
        """The port that is listened on."""
        return self._server.port

    def __enter__(self) -> StatusEndpoint:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.run_coroutine_threadsafe(self._end_connections(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _end_connections(self) -> None:
        self._server.close()
        served = asyncio.all_tasks() - {asyncio.current_task()}
        for task in served:
            task.cancel()
        await asyncio.gather(*served, return_exceptions=True)


def _answered(path: str, status: Callable[[], Mapping[str, Any]], metrics: Callable[[], bytes]) -> HttpAnswer:
    return answer(path, status(), metrics)


def answer(path: str, status: Mapping[str, Any], metrics: Callable[[], bytes]) -> HttpAnswer:
    """What a path of `PATHS` answers.

    >>> answer("/readyz", {"phase": "Restarting", "lastError": "no broker"}, bytes).body.decode().strip()
    '{"phase": "Restarting", "lastError": "no broker"}'
    >>> answer("/livez", {"phase": "Failed"}, bytes).status, answer("/readyz", {"phase": "Failed"}, bytes).status
    (200, 503)
    """
    if path == "/metrics":
        return HttpAnswer(200, CONTENT_TYPE, metrics())
    phase = {"phase": status.get("phase", ""), "lastError": status.get("lastError", "")}
    if path == "/status":
        return HttpAnswer(200, JSON, _text(status))
    is_good = path == "/livez" or status.get("phase") in READY_PHASES
    return HttpAnswer(200 if is_good else 503, JSON, _text(phase))


def host_and_port(address: str) -> tuple[str, int]:
    """
    >>> host_and_port("0.0.0.0:8080"), host_and_port("[::1]:0")
    (('0.0.0.0', 8080), ('::1', 0))

    Raises:
        EndpointError: it is none.
    """
    host, _, port = address.rpartition(":")
    number = whole_number(port)
    if not host or number is None or not 0 <= number <= 65535:
        raise EndpointError(f"--http {address}: must be HOST:PORT")
    return host.strip("[]"), number


def _text(value: Mapping[str, Any]) -> bytes:
    return (json.dumps(value) + "\n").encode()
