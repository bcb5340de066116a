"""What people are told about a fleet: `ottla local status` and the first lines of `up`."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from ottla.cli.local_output import StartProgress, failed_topics, print_started
from ottla.local.fleet_state import disks_of, fleet_state, starting_brokers


def broker(number: int, *states: str, pid: int | None = 7, ready: bool = True) -> dict[str, Any]:
    log_dirs = [{"path": f"/b/d{index}", "state": state} for index, state in enumerate(states)]
    return {"id": number, "pid": pid, "ready": ready and pid is not None, "log_dirs": log_dirs, "recreation": {}}


def fleet(*brokers: dict[str, Any], start_s: float | None = 1.0) -> dict[str, Any]:
    is_ready = start_s is not None and all(one["ready"] for one in brokers)
    return {"cluster": "orders", "ready": is_ready, "start_s": start_s, "brokers": brokers, "rss_bytes": 0,
            "passed_over": []}  # fmt: skip


@pytest.mark.parametrize(
    ("brokers", "state"),
    [
        ([broker(0, "online", "online"), broker(1, "online", "online")], "ready"),
        ([broker(0, "full", "full"), broker(1, "full")], "ready, but every disk is full: producers are refused"),
        ([broker(0, "full", "online"), broker(1, "online")], "ready; 1 of 3 disks is full"),
        ([broker(0, "full", "full"), broker(1, "online")], "ready; 2 of 3 disks are full"),
        (
            [broker(0, "full", "offline"), broker(1, "full")],
            "ready, but no disk takes records (2 full, 1 offline): producers are refused",
        ),
        ([broker(0, "online", "offline")], "ready"),
        ([broker(0, "online"), broker(1, "unknown", pid=None)], "not ready, broker 1 is down"),
        (
            [broker(0, "full"), broker(1, "unknown", pid=None)],
            "not ready, broker 1 is down; every disk is full: producers are refused",
        ),
        ([broker(0, "online"), broker(1, "unknown", ready=False)], "not ready, broker 1 does not answer"),
        ([broker(0, "online", ready=False)], "not ready"),
    ],
)
def test_ready_is_said_with_what_producers_are_refused_for(brokers: list[dict[str, Any]], state: str) -> None:
    assert fleet_state(fleet(*brokers)) == state


def test_a_fleet_that_starts_is_not_called_down() -> None:
    found = fleet(broker(0, "unknown", pid=None), broker(1, "online"), start_s=None)
    assert fleet_state(found) == "starts"
    assert starting_brokers(found) == "broker 0 is not ready"


def test_the_disks_of_a_broker_that_is_down_are_not_called_offline() -> None:
    assert disks_of(broker(0, "unknown", "unknown", pid=None)) == "d0 –, d1 –"
    assert disks_of(broker(0, "online", "unknown")) == "d0 online, d1 unknown"


def test_up_says_that_every_disk_is_full(capsys: pytest.CaptureFixture[str]) -> None:
    print_started(fleet(broker(0, "full")), 2.34)
    assert capsys.readouterr().out.splitlines() == [
        "orders: 1 broker ready in 2.3 s, 0 MB",
        "orders: ready, but every disk is full: producers are refused",
    ]


@pytest.mark.parametrize(
    ("topics", "line"),
    [
        ([{"name": "a", "error": ""}], ""),
        ([{"name": "a", "error": "no", "exists": False}], "1 of 1 topics was not created: a"),
        (
            [{"name": name, "error": "no", "exists": False} for name in "ab"] + [{"name": "c", "error": ""}],
            "2 of 3 topics were not created: a, b",
        ),
        ([{"name": "a", "error": "no", "exists": True}], "1 of 1 topics is not as declared: a"),
    ],
)
def test_topics_that_are_not_there_are_the_last_line(topics: list[dict[str, Any]], line: str) -> None:
    assert failed_topics(topics) == line


def test_a_start_that_takes_long_says_every_ten_seconds_what_it_waits_for(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    times = iter((0.0, 0.0, 9.0, 11.0, 15.0, 22.0))
    monkeypatch.setattr("ottla.cli.local_output.time", SimpleNamespace(monotonic=lambda: next(times)))
    with StartProgress("the fleet starts") as progress:
        for _ in range(5):
            progress.waits_for("broker 1 is not ready")
    assert capsys.readouterr().out.splitlines() == [
        "the fleet starts: broker 1 is not ready (11 s)",
        "the fleet starts: broker 1 is not ready (22 s)",
    ]
