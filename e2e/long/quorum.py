"""The ensemble: its majority is lost in the middle of a roll, and it grows and shrinks."""

from __future__ import annotations

import time

from e2e.kubernetes_api import is_ready
from e2e.long.fleet import Size
from e2e.long.rolls import KEY, expect_restarted, next_value
from e2e.long.scenario import FleetScenario, ScenarioStage
from ottla_operator.api.objects import POD, uid_of

SERVERS = (1, 2, 3)
LEFT = 1
"""The server that is left."""
QUIET_S = 90.0
"""How long the roll is watched without a quorum: longer than leaderships have to leave a batch."""


def quorum_lost(stage: ScenarioStage) -> None:
    """Two of three servers are gone after the first batch of a roll, and stay away: their nodes take no pods. No other
    batch is stopped, the fleet says why, and the roll ends once they are back."""
    fleet, kubernetes = stage.fleet, stage.fleet.kubernetes
    lost = [f"orders-zookeeper-{server}-0" for server in SERVERS if server != LEFT]
    nodes = {fleet.node_of(pod) for pod in lost}
    before = fleet.uids()
    with stage.window("roll") as batches:
        fleet.configure({KEY: next_value(stage)})
        fleet.until(lambda: fleet.roll().get("batchesDone"), "the first batch is done")
        try:
            for node in nodes:
                kubernetes.cordon(node, True)
            for pod in lost:
                kubernetes.delete(POD, pod, grace_s=0)
            stage.say("no quorum")
            fleet.until(lambda: fleet.condition("ZooKeeperReady").get("reason") == "NoQuorum", "NoQuorum is reported")
            stopped = _replaced(stage, before) | set(fleet.roll().get("batch") or ())
            time.sleep(QUIET_S)
            more = sorted(_replaced(stage, before) - stopped)
            stage.found.expect(not more, f"brokers {more} were restarted without a quorum")
            stage.found.figures["roll without a quorum"] = str(fleet.condition("Rolled").get("message", ""))[:200]
            stage.load.until_more(2)
        finally:
            for node in nodes:
                kubernetes.cordon(node, False)
        stage.say("the quorum is back")
        for pod in lost:
            fleet.until(lambda pod=pod: is_ready(kubernetes.get(POD, pod)), f"{pod} is back")
        fleet.until_ready()
    stage.found.figures["batches"] = len(batches)
    expect_restarted(stage, before)


def _replaced(stage: ScenarioStage, before: dict[int, str]) -> set[int]:
    """Brokers whose pod is another one now, or none."""
    pods = stage.fleet.pods()
    return {broker for broker, uid in before.items() if broker not in pods or uid_of(pods[broker]) != uid}


def resized(stage: ScenarioStage) -> None:
    """1 -> 3 -> 1, without a restart of any broker."""
    before = stage.fleet.uids()
    for servers in (3, 1):
        stage.say(f"{servers} servers")
        with stage.window(f"to {servers}"):
            stage.fleet.resize(Size(6, servers))
    same = stage.fleet.uids() == before
    stage.found.expect(same, "brokers were restarted")


QUORUM_LOST = FleetScenario(
    "quorum-lost", "two of three ZooKeeper servers are lost in the middle of a roll", quorum_lost
)
ENSEMBLE = FleetScenario("ensemble", "one ZooKeeper server, three and one again", resized, Size(brokers=6, servers=1))
