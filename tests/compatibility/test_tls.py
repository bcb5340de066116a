"""The clients of the compatibility suite that the drivers of tests/integration/clients do not have, over TLS, and by
SASL within it."""

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


WITHOUT_SCRAM = ("sarama",)
"""It leaves SCRAM to a library of the user's choice."""


@pytest.mark.parametrize("mechanism", ["", "PLAIN", "SCRAM-SHA-512"])
def test_what_a_client_does_without_tls_it_does_with_tls(tmp_path: Path, mechanism: str) -> None:
    subprocess.run(["scripts/setup-clients.sh"], check=True, cwd=ROOT)
    names = [name for name in NAMES if mechanism != "SCRAM-SHA-512" or name not in WITHOUT_SCRAM]
    clients = [client for client in CLIENTS if client.name in names]
    scenarios = [scenario for scenario in SCENARIOS if scenario.name in TRIED]
    outcomes = run(clients, scenarios, tmp_path, stores=Stores(tmp_path), mechanism=mechanism)
    assert len(outcomes) == len(names) * len(TRIED)
    unexpected = [
        f"{outcome.client.name}, {outcome.scenario.name}: {outcome.reason or 'passed'}"
        for outcome in outcomes
        if not outcome.is_expected
    ]
    assert not unexpected, "\n".join(unexpected)
