"""docs/reference/compatibility.md says what every client does: each cell is tried again."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.compatibility.clients import CLIENTS, Client
from tests.compatibility.page import mark, marks
from tests.compatibility.runner import run
from tests.compatibility.scenarios import SCENARIOS

ROOT = Path(__file__).parents[2]

pytestmark = [pytest.mark.java, pytest.mark.kcat]

LONG = ("java-3", "kafka-python-2", "kafkajs", "console-tools", "tools-0.8")
"""A minute and more each: older releases of clients that are here, and what starts a program for each step."""


@pytest.mark.parametrize(
    "client",
    [
        pytest.param(client, id=client.name, marks=[pytest.mark.long] if client.name in LONG else [])
        for client in CLIENTS
    ],
)
def test_the_page_says_what_a_client_does(client: Client, tmp_path: Path) -> None:
    subprocess.run(["scripts/setup-clients.sh"], check=True, cwd=ROOT)
    told = marks((ROOT / "docs/reference/compatibility.md").read_text(encoding="utf-8"))
    outcomes = run([client], SCENARIOS, tmp_path)
    differences = [
        f"{outcome.scenario.name}: {mark(outcome)}, the page says {told[client.title, outcome.scenario.title]}: "
        f"{outcome.reason}"
        for outcome in outcomes
        if mark(outcome) != told[client.title, outcome.scenario.title]
    ]
    assert not differences, "\n".join(differences)
