"""What a driver answers over HTTP: its status, metrics that Prometheus reads, and probes."""

from __future__ import annotations

import json
import socket
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from ottla_pipeline.running.end_status import MOST_BYTES, end_status
from ottla_pipeline.running.status_endpoint import EndpointError, StatusEndpoint, host_and_port

BATCH = {
    "lastBatchId": 3, "lastBatchDurationMs": 250, "numInputRows": 10, "totalInputRows": 40,
    "processedRowsPerSecond": 80.5, "stateRows": 0, "lag": {"flights": {"0": 5, "1": 0}}, "totalLag": 5,
}  # fmt: skip


@pytest.fixture
def status() -> dict[str, Any]:
    return {"pipeline": "late", "phase": "Running", "restarts": 2, "lastError": "", "queries": {"late": dict(BATCH)}}


@pytest.fixture
def url(status: dict[str, Any]) -> Iterator[str]:
    with StatusEndpoint("127.0.0.1:0", lambda: status) as endpoint:
        yield f"http://127.0.0.1:{endpoint.port}"


def read(url: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(url) as response:
            return response.status, response.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def test_the_status_is_the_one_of_ottla_pipeline_status(url: str, status: dict[str, Any]) -> None:
    assert json.loads(read(f"{url}/status")[1]) == status


def test_metrics_have_rows_lag_by_partition_the_last_batch_and_restarts(url: str) -> None:
    code, text = read(f"{url}/metrics")
    assert code == 200
    found = {
        (sample.name, *sorted(sample.labels.values())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }
    assert found["ottla_pipeline_input_rows_total", "late"] == 40
    assert found["ottla_pipeline_lag", "0", "flights", "late"] == 5
    assert found["ottla_pipeline_batch_duration_seconds", "late"] == 0.25
    assert found["ottla_pipeline_processed_rows_per_second", "late"] == 80.5
    assert found["ottla_pipeline_restarts_total",] == 2
    assert (found["ottla_pipeline_phase", "Running"], found["ottla_pipeline_phase", "Failed"]) == (1, 0)
    assert found["process_resident_memory_bytes",] > 0


@pytest.mark.parametrize(
    ("phase", "ready"),
    [("Starting", 503), ("Running", 200), ("Waiting", 200), ("Restarting", 503), ("Failed", 503), ("Stopped", 503)],
)
def test_a_driver_is_ready_while_its_query_runs_and_alive_always(
    url: str, status: dict[str, Any], phase: str, ready: int
) -> None:
    status |= {"phase": phase, "lastError": "why"}
    code, text = read(f"{url}/readyz")
    assert code == ready and json.loads(text) == {"phase": phase, "lastError": "why"}
    assert read(f"{url}/livez")[0] == 200


def test_another_path_names_those_that_there_are(url: str) -> None:
    code, text = read(f"{url}/statu")
    assert code == 404 and "/status" in text


def test_an_address_in_use_is_an_error_that_names_the_option() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(EndpointError, match=f"--http {address}: Address already in use"):
            StatusEndpoint(address, dict)


@pytest.mark.parametrize("text", ["8080", "h:", "h:x", "h:70000", "h:" + "1" * 5000, ""])
def test_an_address_without_host_or_port_is_refused(text: str) -> None:
    with pytest.raises(EndpointError, match="must be HOST:PORT"):
        host_and_port(text)


def test_what_a_driver_leaves_behind_fits_into_a_termination_message() -> None:
    query = {**BATCH, "lag": {f"topic-{number}": {"0": 1} for number in range(500)}}
    status = {"phase": "Failed", "lastError": "é" * 5000, "queries": {"late": query}}
    text = end_status(status)
    assert len(text.encode()) <= MOST_BYTES
    assert json.loads(text)["phase"] == "Failed"
