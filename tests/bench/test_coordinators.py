"""The benchmark of transactions and groups: its clients do what the figures are said to be of."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from bench.coordinators.members import Members, assignment
from bench.coordinators.transactional import LOADS, PARTITIONS, drive, figures
from bench.java import LoadFailed
from ottla.testing import cluster

GROUPS, SIZE = 3, 5


def test_members_of_many_groups_rebalance_and_send_heartbeats() -> None:
    with cluster(brokers=1, config={"group.initial.rebalance.delay.ms": "0"}) as fleet:
        members = Members(int(fleet.bootstrap.rpartition(":")[2]), GROUPS, SIZE)
        try:
            everything = {assignment(number) for number in range(SIZE)}
            # Without a delay the first member is a group of its own, and the others make it rebalance.
            members.form()
            for _ in range(2):
                assert members.rebalance() > 0
                assert members.assignments == {f"group-{number}": everything for number in range(GROUPS)}
            # Each is answered without an error: a group that rebalances says so.
            assert len(members.heartbeats(interval_s=0.01, count=2)) == 2 * GROUPS * SIZE
        finally:
            members.close()


@pytest.mark.java
def test_transactional_clients_count_what_is_committed_and_consumed(tmp_path: Path) -> None:
    by_name = {load.name: load for load in LOADS}
    load = replace(by_name["transactions-consumed-paced"], producers=2)
    with cluster(brokers=1, config={"num.partitions": str(PARTITIONS)}) as fleet:
        seen, cpu_s = drive(load, fleet.bootstrap, "t", tmp_path, lambda: 1.0, is_quick=True)
        assert cpu_s == 0
        assert 0 < seen["transactions"] < seen["records"]
        assert seen["consumed"] > 0
        assert 0 < seen["commit_p50_ms"] <= seen["commit_p99_ms"]
        assert 0 < seen["end_to_end_p50_ms"] <= seen["end_to_end_p99_ms"]
        assert figures(seen, 1.0, 1e6)["cpu_us_per_transaction"] == pytest.approx(1e6 / seen["transactions"])


@pytest.mark.java
def test_a_client_that_is_refused_ends_the_load_with_its_error(tmp_path: Path) -> None:
    with (
        cluster(brokers=1, config={"transaction.max.timeout.ms": "1000"}) as fleet,
        pytest.raises(LoadFailed, match="transaction timeout"),
    ):
        drive(LOADS[0], fleet.bootstrap, "t", tmp_path, lambda: 0.0, is_quick=True)
