"""Maintenance windows of a cluster: what waits for them, what does not, and what status says."""

from __future__ import annotations

import copy
from datetime import datetime, timedelta
from typing import Any

import pytest

from ottla_documents.maintenance_windows import MaintenanceWindow
from ottla_operator.api import names
from ottla_operator.api.objects import KAFKA_CLUSTER, POD, uid_of
from ottla_operator.facts.maintenance import is_open, next_opening
from tests.operator.fleet import CLUSTER, Fleet
from tests.operator.kubernetes import NOW

SATURDAYS = {"schedule": "0 22 * * SAT", "duration": "4h", "timeZone": "Europe/Berlin"}
OPENS = "2026-01-03T21:00:00Z"
"""The first Saturday after NOW, a Thursday."""


def _seconds_until(time: str) -> int:
    return int((datetime.fromisoformat(time) - datetime.fromisoformat(NOW)).total_seconds())


@pytest.mark.parametrize(
    ("schedule", "zone", "duration", "now", "expected"),
    [
        ("0 22 * * SAT", "Europe/Berlin", "1h", "2026-01-03T21:00:00Z", True),
        ("0 22 * * SAT", "Europe/Berlin", "1h", "2026-01-03T22:00:00Z", False),
        ("0 22 * * SAT", "Etc/UTC", "1h", "2026-01-03T21:30:00Z", False),
        ("0 22 * * *", "Etc/UTC", "24h", "2026-01-03T13:00:00Z", True),
        ("*/5 * * * *", "Etc/UTC", "1m", "2026-01-03T13:06:00Z", False),
        ("0 1 29 2 *", "Etc/UTC", "1h", "2026-03-01T01:30:00Z", False),
        # Berlin, 2026-03-29: clocks go from 02:00 to 03:00, and 02:30 is missing.
        ("30 2 * * *", "Europe/Berlin", "1h", "2026-03-29T01:30:00Z", True),
        # 2026-10-25: 02:30 comes twice, and the window opens once.
        ("30 2 * * *", "Europe/Berlin", "1h", "2026-10-25T01:00:00Z", True),
        ("30 2 * * *", "Europe/Berlin", "1h", "2026-10-25T01:15:00Z", True),
        ("30 2 * * *", "Europe/Berlin", "1h", "2026-10-25T01:45:00Z", False),
        ("* * * * *", "Europe/Berlin", "1m", "2026-10-25T01:15:30Z", True),
    ],
)
def test_a_window_is_open_for_its_duration_in_real_time(
    schedule: str, zone: str, duration: str, now: str, expected: bool
) -> None:
    assert is_open(MaintenanceWindow(schedule, duration, zone), datetime.fromisoformat(now)) is expected


def test_the_next_opening_is_that_of_the_first_window_and_later_than_now() -> None:
    windows = [MaintenanceWindow("0 22 * * SAT", "1m", "Europe/Berlin"), MaintenanceWindow("0 3 * * FRI", "1m")]
    now = datetime.fromisoformat("2026-01-02T03:00:00Z")
    assert next_opening(windows, now) == OPENS
    assert next_opening(windows, now - timedelta(seconds=1)) == "2026-01-02T03:00:00Z"


async def _running(**spec: Any) -> Fleet:
    document = copy.deepcopy(CLUSTER)
    document["spec"] |= {"maintenanceWindows": [SATURDAYS], **spec}
    fleet = Fleet(document)
    fleet.kafka.partitions = [("t", 0, (0, 1, 2)), ("t", 1, (1, 2, 0))]
    await fleet.converge()
    return fleet


def _annotate(fleet: Fleet, value: str) -> None:
    document = fleet.kubernetes.there(KAFKA_CLUSTER, "orders")
    document["metadata"].setdefault("annotations", {})[names.MAINTENANCE_UNTIL] = value
    fleet.kubernetes.put(document)


def _deleted(fleet: Fleet) -> list[str]:
    return [name for verb, kind, name in fleet.kubernetes.writes if (verb, kind) == ("delete", "Pod")]


async def _change_config(fleet: Fleet) -> None:
    fleet.kubernetes.writes.clear()
    fleet.edit("spec.brokers.config", {"log.retention.hours": 7})
    await fleet.converge()


async def test_a_new_cluster_starts_and_a_change_waits_for_the_window_and_says_so_once() -> None:
    fleet = await _running()
    assert fleet.status("readyReplicas") == 3 and fleet.status("maintenance") is None
    await _change_config(fleet)
    status, reason, message = fleet.condition("Rolled")
    assert (status, reason) == ("False", "AwaitingWindow")
    assert OPENS in message and names.MAINTENANCE_UNTIL in message and "1: ConfigChanged" in message
    assert fleet.status("maintenance") == {"waiting": ["roll of broker 1, 2, 0"], "nextWindow": OPENS}
    assert fleet.status("roll", "summary") == f"broker: waits for the maintenance window at {OPENS}, 0 of 3 done"
    assert fleet.condition("Ready")[0] == "True" and _deleted(fleet) == []
    fleet.kubernetes.writes.clear()
    for hours in range(1, 60):
        fleet.environment.passed_s = hours * 3600
        await fleet.step()
    assert fleet.kubernetes.writes == [], "a window that is closed writes nothing"


async def test_a_paused_cluster_with_a_pending_change_writes_nothing_when_windows_open_and_close() -> None:
    often = {"schedule": "*/10 * * * *", "duration": "3m"}
    fleet = await _running(maintenanceWindows=[often])
    fleet.environment.passed_s = 240
    await _change_config(fleet)
    assert fleet.condition("Rolled")[1] == "AwaitingWindow"
    fleet.edit("spec.paused", True)
    await fleet.converge()
    fleet.environment.passed_s = 301  # that it is paused is one Event once it lasts
    await fleet.converge()
    fleet.kubernetes.writes.clear()
    for minutes in range(6, 65):
        fleet.environment.passed_s = minutes * 60
        await fleet.step()
    assert fleet.kubernetes.writes == []
    fleet.edit("spec.paused", None)
    await fleet.step()
    assert fleet.condition("Rolled")[1] == "AwaitingWindow"
    fleet.environment.passed_s = 70 * 60 + 1
    await fleet.converge(200)
    assert fleet.condition("Rolled")[0] == "True"


async def test_the_roll_goes_on_in_the_window_and_stops_after_the_batch_when_it_closes() -> None:
    fleet = await _running()
    await _change_config(fleet)
    fleet.environment.passed_s = _seconds_until(OPENS)
    while len(_deleted(fleet)) < 1:
        await fleet.step()
    fleet.environment.passed_s += 4 * 3600
    await fleet.converge()
    assert len(_deleted(fleet)) == 1 and len(fleet.status("roll", "done")) == 1
    assert fleet.condition("Rolled")[1] == "AwaitingWindow"
    assert fleet.status("maintenance", "nextWindow") == "2026-01-10T21:00:00Z"
    fleet.environment.passed_s = _seconds_until("2026-01-10T21:00:00Z")
    await fleet.converge()
    assert fleet.condition("Rolled")[0] == "True" and len(_deleted(fleet)) == 3
    assert fleet.status("maintenance") is None


async def test_the_annotation_opens_a_window_until_its_time_and_a_wrong_one_is_named() -> None:
    fleet = await _running()
    await _change_config(fleet)
    for wrong, text in (("tomorrow", "is no time such as"), ("2026-01-01T04:00:00", "has no time zone")):
        _annotate(fleet, wrong)
        await fleet.converge()
        assert text in fleet.condition("Rolled")[2] and _deleted(fleet) == []
    _annotate(fleet, "2025-12-31T00:00:00Z")
    await fleet.converge()
    assert _deleted(fleet) == [], "that time is over"
    _annotate(fleet, "2026-01-01T04:00:00Z")
    await fleet.converge()
    assert fleet.condition("Rolled")[0] == "True" and len(_deleted(fleet)) == 3


async def test_an_approval_and_a_window_are_both_needed() -> None:
    fleet = await _running(rolling={"approval": "Manual"})
    await _change_config(fleet)
    assert fleet.condition("Rolled")[1] == "AwaitingApproval"
    document = fleet.kubernetes.there(KAFKA_CLUSTER, "orders")
    document["metadata"].setdefault("annotations", {})[names.APPROVE_ROLL] = fleet.status("roll", "awaitingApproval")
    fleet.kubernetes.put(document)
    await fleet.converge()
    assert fleet.condition("Rolled")[1] == "AwaitingWindow" and _deleted(fleet) == []
    fleet.environment.passed_s = _seconds_until(OPENS)
    await fleet.converge()
    assert fleet.condition("Rolled")[0] == "True"


async def test_windows_that_cannot_be_read_let_nothing_begin() -> None:
    fleet = await _running(maintenanceWindows=[{"schedule": "0 25 * * *", "duration": "4h"}])
    await _change_config(fleet)
    assert fleet.condition("Ready")[:2] == ("False", "InvalidSpec")
    assert "spec.maintenanceWindows[0].schedule" in fleet.condition("Ready")[2]
    assert "spec.maintenanceWindows, which cannot be read" in fleet.condition("Rolled")[2] and _deleted(fleet) == []
    fleet.edit("spec.maintenanceWindows", None)
    await fleet.converge()
    assert fleet.condition("Rolled")[0] == "True"


async def test_a_broker_that_fails_is_corrected_at_once_and_one_that_is_evicted_keeps_its_template() -> None:
    fleet = await _running()
    await _change_config(fleet)
    fleet.kubernetes.remove(POD, "orders-broker-2-0")
    await fleet.converge()
    assert "log.retention.hours" not in fleet.properties(2), "it came back by itself, as it was"
    fails = {"name": "broker", "ready": False, "state": fleet.kubernetes.container_state}
    pod = uid_of(fleet.kubernetes.there(POD, "orders-broker-1-0"))
    fleet.kubernetes.container_status = lambda obj: fails if uid_of(obj) == pod else None
    fleet.kubernetes.settle()
    await fleet.converge()
    assert fleet.status("readyReplicas") == 3 and "log.retention.hours=7" in fleet.properties(1)
    assert fleet.condition("Rolled")[1] == "AwaitingWindow" and fleet.status("roll", "done") == [1]
    assert [one["id"] for one in fleet.status("roll", "plan")] == [2, 0]


async def test_a_failed_disk_is_replaced_at_once_and_a_new_generation_waits_for_the_window() -> None:
    disks = [{**disk, "onFailure": "Replace"} for disk in CLUSTER["spec"]["brokers"]["disks"]]
    fleet = await _running()
    fleet.edit("spec.brokers.disks", disks)
    fleet.environment.offline = {"orders-broker-1-d1-1"}
    fleet.environment.passed_s = 301
    await fleet.converge()
    assert "orders-broker-1-d1-2" in str(fleet.kubernetes.there(POD, "orders-broker-1-0")["spec"]["volumes"])
    fleet.environment.offline = set()
    await fleet.converge()
    fleet.edit("spec.brokers.overrides", [{"id": 2, "disks": [{"name": "d1", "generation": 2}]}])
    await fleet.converge()
    assert fleet.kafka.dynamic.get(2, {}) == {} and fleet.condition("DisksReady")[0] == "True"
    assert fleet.status("maintenance", "waiting") == ["drain of log directory d1 of broker 2"]
    fleet.environment.passed_s = _seconds_until(OPENS)
    for _ in range(12):
        await fleet.step()
    await fleet.converge()
    assert "orders-broker-2-d1-2" in str(fleet.kubernetes.there(POD, "orders-broker-2-0")["spec"]["volumes"])
    assert fleet.status("maintenance") is None


async def test_the_rebalance_waits_for_the_window_and_growing_logs_write_nothing() -> None:
    fleet = await _running()
    fleet.kafka.sizes = {"t": 1 << 30}
    fleet.edit("spec.brokers.replicas", 4)
    await fleet.converge()
    assert fleet.status("readyReplicas") == 4 and fleet.kafka.moves == []
    assert fleet.status("rebalance", "reason") == f"waits for the maintenance window at {OPENS}"
    count = fleet.status("rebalance", "partitionsToGo")
    assert fleet.status("maintenance", "waiting") == [f"rebalance of {count} partitions"]
    for minute in range(1, 20):
        fleet.environment.passed_s, fleet.time = 60 * minute, 60.0 * minute
        fleet.kafka.sizes = {"t": (1 << 30) + minute * 1000}
        await fleet.step()
        if minute == 1:  # the sizes are known now
            fleet.kubernetes.writes.clear()
    assert fleet.kubernetes.writes == []
    fleet.environment.passed_s, fleet.time, fleet.kafka.sizes = _seconds_until(OPENS), 1e6, {}
    await fleet.converge(300)
    assert fleet.kafka.moves != [] and fleet.status("rebalance") is None and fleet.status("maintenance") is None
