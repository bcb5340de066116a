"""Two faults each on a real fleet, for every run of the tests; all of them: `python -m tests.nemesis --minutes 10`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.integration.file_systems import skip_reason as mount_skip_reason
from tests.nemesis.history import ClientEnded, Copied, read
from tests.nemesis.network import skip_reason as network_skip_reason

pytestmark = [pytest.mark.root, pytest.mark.java, pytest.mark.long]
_LIMIT_S = 540.0


def campaign(out: Path, faults: str, *options: str) -> dict[str, Any]:
    """The report of a campaign in which nothing was wrong."""
    reason = network_skip_reason() or mount_skip_reason()
    if reason and os.environ.get("OTTLA_TEST_ALL") != "1":
        pytest.skip(reason)
    names = faults.split(",")
    arguments = ["--count", str(len(names)), "--faults", faults, "--session-timeout-ms", "2000", "--no-java", *options]
    ran = subprocess.run(
        [sys.executable, "-m", "tests.nemesis", *arguments, "--out", str(out)],
        capture_output=True,
        text=True,
        timeout=_LIMIT_S,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    report: dict[str, Any] = json.loads((out / "report.json").read_text())
    assert report["faults"] == len(names) and not report["findings"] and not report["errors"]
    assert set(report["availability"]) == set(names)
    return report


def test_a_fleet_loses_nothing_when_its_controller_is_killed_and_a_leader_is_cut_off(tmp_path: Path) -> None:
    report = campaign(tmp_path / "campaign", "kill-controller,isolate-broker", "--no-transactions")
    assert report["acknowledged"] > 500 and not report["transactions"]


def test_transactions_are_whole_when_coordinator_and_leader_and_clients_are_killed(tmp_path: Path) -> None:
    out = tmp_path / "campaign"
    report = campaign(out, "kill-coordinator,kill-broker")
    assert report["transactions"]["ok"] > 50 and report["transactions"]["fail"] > 0
    events = list(read(out / "history.jsonl"))
    killed = [one for one in events if isinstance(one, ClientEnded) and one.reason == "killed"]
    assert any(one.number is not None for one in killed), "a client is killed in the middle of a transaction"
    assert sum(len(one.values) for one in events if isinstance(one, Copied)) == report["acknowledged"]
