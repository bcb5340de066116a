"""The clients of the compatibility suite that the drivers of tests/integration/clients do not have, over TLS."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.compatibility.clients import CLIENTS
from tests.compatibility.runner import run
from tests.compatibility.scenarios import SCENARIOS
from tests.integration.clients.tls_stores import Stores

ROOT = Path(__file__).parents[2]

pytestmark = [pytest.mark.java, pytest.mark.kcat]

NAMES = ("franz-go", "sarama", "kafkajs", "platformatic", "kafka-python-2")
TRIED = ("produce", "records", "group", "transactions", "topics")


def test_what_a_client_does_without_tls_it_does_with_tls(tmp_path: Path) -> None:
    subprocess.run(["scripts/setup-clients.sh"], check=True, cwd=ROOT)
    clients = [client for client in CLIENTS if client.name in NAMES]
    scenarios = [scenario for scenario in SCENARIOS if scenario.name in TRIED]
    outcomes = run(clients, scenarios, tmp_path, stores=Stores(tmp_path))
    assert len(outcomes) == len(NAMES) * len(TRIED)
    unexpected = [
        f"{outcome.client.name}, {outcome.scenario.name}: {outcome.reason or 'passed'}"
        for outcome in outcomes
        if not outcome.is_expected
    ]
    assert not unexpected, "\n".join(unexpected)
