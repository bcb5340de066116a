"""Twenty of the kills, for every run of the tests; five hundred: `python -m tests.kills --runs 500`."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.kills.runs import Kills

RUNS = 20


@pytest.mark.long
def test_a_broker_killed_at_random_points_loses_doubles_and_garbles_nothing(tmp_path: Path) -> None:
    seed = random.randrange(1_000_000)  # told by the failure
    summary = Kills(tmp_path, seed).run(RUNS)
    assert summary.runs == RUNS
    assert summary.acknowledged > RUNS
