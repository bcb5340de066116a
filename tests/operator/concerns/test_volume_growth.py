"""A log directory that fills up is reported a day ahead, and its volume grows where that is wanted."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla_operator.api.objects import CLAIM, STORAGE_CLASS, dig, new
from ottla_operator.concerns.disks.disk_fill import WARNING_HOURS, FreeSpaceHistory, hours_until_full
from tests.operator.fleet import CLUSTER, Fleet

GIB = 1 << 30
CLAIM_NAME = "orders-broker-1-d1-1"


async def _running(**grow: str) -> Fleet:
    document = copy.deepcopy(CLUSTER)
    if grow:
        for disk in document["spec"]["brokers"]["disks"]:
            disk["autoGrow"] = grow
    fleet = Fleet(document)
    fleet.kubernetes.put({**new(STORAGE_CLASS, "", "local", {}), "allowVolumeExpansion": True})
    fleet.restart_operator()
    await fleet.converge()
    fleet.kubernetes.writes.clear()
    return fleet


async def _fill(fleet: Fleet, *, gib_per_h: float, hours: int = 2, free: float = 40.0) -> float:
    """The log directory fills up at a steady rate. Returns what is free at the end, in GiB."""
    for _ in range(hours * 12):
        fleet.environment.free_bytes = {CLAIM_NAME: int(free * GIB)}
        await fleet.step()
        fleet.environment.passed_s += 300
        free -= gib_per_h / 12
    return free


async def _fill_once(fleet: Fleet) -> None:
    """A twelfth of an hour at 1 GiB an hour, with less than 5 GiB free."""
    free = 5.0 - fleet.environment.passed_s / 3600
    fleet.environment.free_bytes = {CLAIM_NAME: int(max(0.0, free) * GIB)}
    await fleet.step()
    fleet.environment.passed_s += 300


def _requested(fleet: Fleet) -> Any:
    return dig(fleet.kubernetes.there(CLAIM, CLAIM_NAME), "spec", "resources", "requests", "storage")


async def test_a_log_directory_that_will_be_full_within_a_day_is_reported_and_the_cluster_stays_ready() -> None:
    fleet = await _running()
    await _fill(fleet, gib_per_h=8.0)
    status, reason, message = fleet.condition("DiskSpace")
    assert (status, reason) == ("False", "FillingUp")
    assert message == "at the rate of the last day log directory d1 of broker 1 is full within 6 h"
    assert fleet.condition("Ready")[0] == "True" and _requested(fleet) == "100Gi"


async def test_a_new_process_says_what_status_says_until_it_knows_a_rate() -> None:
    fleet = await _running()
    left = await _fill(fleet, gib_per_h=8.0)
    told = fleet.condition("DiskSpace")
    assert told[1] == "FillingUp"
    fleet.restart_operator()
    fleet.kubernetes.writes.clear()
    for _ in range(6):
        await fleet.step()
        assert fleet.condition("DiskSpace") == told
        fleet.environment.passed_s += 290
    assert fleet.kubernetes.writes == []
    await _fill(fleet, gib_per_h=0, hours=1, free=left)  # and nothing fills up any more
    assert fleet.condition("DiskSpace")[0] == "True"


async def test_a_steady_rate_is_written_once_for_each_step_and_not_with_each_look() -> None:
    fleet = await _running()
    await _fill(fleet, gib_per_h=2.0, hours=10, free=30.0)
    writes = [name for verb, kind, name in fleet.kubernetes.writes if (verb, kind) == ("status", "KafkaCluster")]
    assert len(writes) <= len(WARNING_HOURS)


async def test_nothing_is_reported_of_a_directory_whose_retention_keeps_pace() -> None:
    fleet = await _running()
    for look in range(100):
        fleet.environment.free_bytes = {CLAIM_NAME: (20 - look % 6) * GIB}
        await fleet.step()
        fleet.environment.passed_s += 300
        if look == 24:
            fleet.kubernetes.writes.clear()
        assert fleet.condition("DiskSpace")[0] == "True" or look < 24
    assert fleet.kubernetes.writes == []


async def test_a_volume_grows_step_by_step_up_to_its_maximum() -> None:
    fleet = await _running(max="125Gi", step="10Gi")
    sizes = ["100Gi"]
    for _ in range(5):
        for _ in range(12):
            await _fill_once(fleet)
            if _requested(fleet) != sizes[-1]:
                sizes.append(_requested(fleet))
    assert sizes == ["100Gi", "110Gi", "120Gi", "125Gi"]
    assert fleet.condition("DisksReady")[0] == "True", "larger than declared, and on purpose"
    fleet.edit("spec.brokers.config", {"log.retention.hours": 7})
    await fleet.converge()
    assert _requested(fleet) == "125Gi"


async def test_the_next_step_waits_until_the_volume_has_grown() -> None:
    fleet = await _running(max="200Gi", step="10Gi")
    fleet.kubernetes.resizes = False
    await _fill(fleet, gib_per_h=8.0, hours=4)
    assert _requested(fleet) == "110Gi" and fleet.condition("DisksReady")[1] == "Resizing"


async def test_a_volume_whose_class_does_not_let_it_grow_stays_as_it_is() -> None:
    fleet = await _running(max="200Gi", step="10Gi")
    fleet.kubernetes.put({**new(STORAGE_CLASS, "", "local", {}), "provisioner": "csi.example"})
    fleet.restart_operator()
    await _fill(fleet, gib_per_h=8.0)
    assert _requested(fleet) == "100Gi" and fleet.condition("DiskSpace")[0] == "False"


@pytest.mark.parametrize(
    ("grow", "named"),
    [
        ({"max": "50Gi", "step": "10Gi"}, "spec.brokers.disks[0].autoGrow.max: 50Gi is less than the size 100Gi"),
        ({"max": "150Gi"}, "spec.brokers.disks[0].autoGrow.step: is required"),
        ({"max": "150Gi", "step": "much"}, "spec.brokers.disks[0].autoGrow.step"),
    ],
)
async def test_a_wrong_policy_is_named(grow: dict[str, str], named: str) -> None:
    fleet = await _running(**grow)
    assert named in fleet.condition("DisksReady")[2]


@given(st.integers(1, 10**13), st.integers(1, 10**10), st.integers(7, 40))
def test_the_estimate_of_a_steady_rate_is_exact(free: int, bytes_per_sample: int, count: int) -> None:
    samples = [(index * 300.0, free - index * bytes_per_sample) for index in range(count)]
    hours = hours_until_full(samples)
    assert hours is not None
    assert hours == pytest.approx(samples[-1][1] / (bytes_per_sample / 300.0) / 3600, rel=1e-3, abs=1e-6)


def test_a_warning_eases_only_with_half_as_much_again() -> None:
    history = FreeSpaceHistory()
    history.samples["d"] = [(0.0, 1000), (3600.0, 850)]
    assert history.warning("d") == 6
    history.samples["d"] = [(0.0, 1100), (3600.0, 963)]
    assert history.warning("d") == 6, "7 hours"
    history.samples["d"] = [(0.0, 1100), (3600.0, 1000)]
    assert history.warning("d") == 12, "10 hours"
