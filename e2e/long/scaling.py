"""More and fewer brokers, with the rebalance that comes with them."""

from __future__ import annotations

import json
from collections.abc import Collection

from e2e.long.fleet import NAME, Size
from e2e.long.load import POD_NAME, TOPICS
from e2e.long.scenario import FleetScenario, ScenarioStage
from e2e.tests.record_traffic import PROGRAM
from ottla_operator.api.objects import CLAIM

REMOVED = f"kafka.ottla.dev/cluster={NAME},kafka.ottla.dev/removed=true"
DISKS = 2


def scale_out_and_in(stage: ScenarioStage) -> None:
    """3 -> 6 -> 3. Afterwards everybody has a share, and nobody who left has anything."""
    for brokers in (6, 3):
        stage.say(f"{brokers} brokers")
        with stage.window(f"to {brokers}"):
            stage.fleet.resize(Size(brokers, 3))
        there = sorted(stage.fleet.pods())
        stage.found.expect(there == list(range(brokers)), f"to {brokers}: the brokers are {there}")
        check_placement(stage, f"to {brokers}", range(brokers))
    claims = stage.fleet.kubernetes.list(CLAIM, selector=REMOVED)
    stage.found.expect(len(claims) == 3 * DISKS, f"{len(claims)} claims of removed brokers are left")


def check_placement(stage: ScenarioStage, name: str, brokers: Collection[int]) -> None:
    """Every partition is in three racks and on these brokers alone, and each of them has a share."""
    racks = stage.fleet.racks()
    shares = dict.fromkeys(sorted(brokers), 0)
    for topic in TOPICS:
        said = stage.fleet.kubernetes.execute(POD_NAME, "python3", PROGRAM, "placement", topic)
        for partition, replicas in json.loads(said.splitlines()[-1]).items():
            where = f"{name}: {topic}-{partition} is on {replicas}"
            stage.found.expect(len({racks.get(broker) for broker in replicas}) == 3, f"{where}: not in three racks")
            stage.found.expect(set(replicas) <= shares.keys(), f"{where}: a broker that has left")
            for broker in set(replicas) & shares.keys():
                shares[broker] += 1
    stage.found.figures[f"{name}: replicas by broker"] = " ".join(map(str, shares.values()))
    stage.found.expect(all(shares.values()), f"{name}: somebody has no replicas: {shares}")


SCALE = FleetScenario("scale", "three brokers, six and three again", scale_out_and_in, Size(brokers=3, servers=3))
