"""Two faults on a real fleet, for every run of the tests; all of them: `python -m tests.nemesis --minutes 10`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.integration.file_systems import why_not as why_not_mount
from tests.nemesis.network import why_not as why_not_network

pytestmark = [pytest.mark.root, pytest.mark.java]
_LIMIT_S = 540.0


def test_a_fleet_loses_nothing_when_its_controller_is_killed_and_a_leader_is_cut_off(tmp_path: Path) -> None:
    reason = why_not_network() or why_not_mount()
    if reason and os.environ.get("OTTLA_TEST_ALL") != "1":
        pytest.skip(reason)
    out = tmp_path / "campaign"
    arguments = ["--count", "2", "--faults", "kill-controller,isolate-broker", "--session-timeout-ms", "2000"]
    ran = subprocess.run(
        [sys.executable, "-m", "tests.nemesis", *arguments, "--no-java", "--out", str(out)],
        capture_output=True,
        text=True,
        timeout=_LIMIT_S,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    report = json.loads((out / "report.json").read_text())
    assert report["faults"] == 2 and not report["findings"] and not report["errors"]
    assert report["acknowledged"] > 500
    assert set(report["availability"]) == {"kill-controller", "isolate-broker"}
