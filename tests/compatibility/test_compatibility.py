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


@pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.name)
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
