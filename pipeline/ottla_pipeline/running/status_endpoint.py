"""The HTTP port of a driver: /status, /metrics in the Prometheus text format, and the probes /livez and /readyz.

It answers from a thread of its own, also while Spark starts. Nothing of it needs Spark.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

from ottla_broker.exposition import CONTENT_TYPE, Exposition
from ottla_broker.metrics import Metrics
from ottla_broker.protocol.number_text import whole_number
from ottla_pipeline.errors import PipelineError
from ottla_pipeline.running.driver_metrics import metric_families

JSON = "application/json"
READY_PHASES = ("Running", "Waiting")
POLL_S = 0.1
"""How soon it notices that it is to end."""
IDLE_S = 10.0
"""How long a connection may say nothing."""


class EndpointError(PipelineError):
    """The address cannot be listened on."""


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

        class Handler(BaseHTTPRequestHandler):
            timeout = IDLE_S

            def do_GET(self) -> None:
                code, kind, body = answer(urlsplit(self.path).path, status(), exposition.text)
                self.send_response(code)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                """Nothing: a probe each second is no news."""

        try:
            self._server = ThreadingHTTPServer((host, port), Handler)
        except OSError as error:
            raise EndpointError(f"--http {address}: {error.strerror or error}") from None
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(POLL_S,), name="http", daemon=True)

    @property
    def port(self) -> int:
        """The port that is listened on."""
        return int(self._server.server_address[1])

    def __enter__(self) -> StatusEndpoint:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()


def answer(path: str, status: Mapping[str, Any], metrics: Callable[[], bytes]) -> tuple[int, str, bytes]:
    """Code, content type and body for a path.

    >>> answer("/readyz", {"phase": "Restarting", "lastError": "no broker"}, bytes)
    (503, 'application/json', b'{"phase": "Restarting", "lastError": "no broker"}\\n')
    >>> answer("/livez", {"phase": "Failed"}, bytes)[0], answer("/x", {}, bytes)[0]
    (200, 404)
    """
    if path == "/metrics":
        return 200, CONTENT_TYPE, metrics()
    phase = {"phase": status.get("phase", ""), "lastError": status.get("lastError", "")}
    if path == "/status":
        return 200, JSON, _text(status)
    if path == "/livez":
        return 200, JSON, _text(phase)
    if path == "/readyz":
        return 200 if status.get("phase") in READY_PHASES else 503, JSON, _text(phase)
    return 404, JSON, _text({"error": "there are /status, /metrics, /livez and /readyz"})


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
