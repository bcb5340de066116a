"""Nodes that are drained or lost with their disks, and a disk that fails."""

from __future__ import annotations

from pathlib import Path

from e2e.kubernetes_api import VOLUME, Refused
from e2e.long.fleet import NAME
from e2e.long.scenario import FleetScenario, ScenarioStage
from e2e.providers.processes import SPARE, ProcessProvider
from ottla_operator.api.objects import CLAIM, KAFKA_CLUSTER, NODE, POD, dig, label, name_of, uid_of

ZONE = "topology.kubernetes.io/zone"
FLEET = f"kafka.ottla.dev/cluster={NAME}"
DRAINED = "n3"
SEES_S = 600.0
"""For a condition to say what has happened."""


def node_drained(stage: ScenarioStage) -> None:
    """Every pod on a node is evicted as soon as its budget allows it. Its volumes are there alone, so it waits for the
    node: no other broker is evicted meanwhile, and the load goes on. The node is uncordoned, and the drain goes on."""
    kubernetes = stage.fleet.kubernetes
    left = _pods_on(stage, DRAINED)
    stage.say(f"{DRAINED} is drained of {', '.join(left)}")
    rounds = 0
    with stage.window("drain"):
        while left:
            kubernetes.cordon(DRAINED, True)
            try:
                stage.fleet.until(lambda: _evict(stage, left), "an eviction is allowed")
                brokers = {pod: uid for pod, uid in left.items() if "-broker-" in pod}
                allowed = sorted(set(brokers) - set(_refused(stage, brokers)))
                stage.found.expect(not allowed, f"{', '.join(allowed)} evicted while another broker waits for its node")
                kubernetes.until_condition(KAFKA_CLUSTER, NAME, "NodesSchedulable", "VolumesOnNode", timeout_s=SEES_S)
                stage.load.until_more(2)
            finally:
                kubernetes.cordon(DRAINED, False)
            stage.fleet.until_ready()
            rounds += 1
    stage.found.figures["drain: times that the node was uncordoned"] = rounds


def node_lost(stage: ScenarioStage) -> None:
    """A node loses its power, and its Node object is deleted: its disks are gone. Brokers and server get empty volumes
    on another node of the zone, and fetch everything."""
    fleet, provider = stage.fleet, ProcessProvider()
    provider.add_spare(fleet.cluster.images)
    victim = fleet.node_of(f"{NAME}-broker-1-0")
    assert label(fleet.kubernetes.there(NODE, victim), ZONE) == SPARE.zone, "the spare node is in the zone of broker 1"
    lost = _pods_on(stage, victim)
    stage.say(f"{victim} is lost with {', '.join(lost)}")
    with stage.window("lost"):
        provider.lose_node(victim)
        fleet.until(lambda: all(_is_elsewhere(stage, pod, victim) for pod in lost), "everybody runs elsewhere")
        fleet.until_ready()
    stage.say(f"{victim} is back")
    provider.start_node(victim)
    fleet.until_ready()
    back = _pods_on(stage, victim)
    stage.found.expect(not back, f"{', '.join(back)} went back to {victim}")


def disk_lost(stage: ScenarioStage) -> None:
    """A log directory can no longer be read or written. The broker goes on without it; the operator gives it an empty
    volume, and the broker fetches what was on it."""
    fleet, kubernetes = stage.fleet, stage.fleet.kubernetes
    broker, disk = 4, "d0"
    old = _claim(stage, broker, disk)
    volume = kubernetes.there(VOLUME, str(dig(kubernetes.there(CLAIM, old), "spec", "volumeName")))
    folder = Path(str(dig(volume, "spec", "local", "path")))
    mode = folder.stat().st_mode
    stage.say(f"{old} fails")
    with stage.window("lost"):
        folder.chmod(0)
        try:
            reason = "LogDirNotOnline"
            kubernetes.until_condition(KAFKA_CLUSTER, NAME, "DisksReady", reason, timeout_s=SEES_S)
            stage.load.until_more(2)
            fleet.until(lambda: _claim(stage, broker, disk) != old, "another claim")
            fleet.until_ready()
        finally:
            folder.chmod(mode)
    stage.found.figures["claim"] = f"{old}, then {_claim(stage, broker, disk)}"


def _pods_on(stage: ScenarioStage, node: str) -> dict[str, str]:
    """The uids of the fleet's pods on a node, by name."""
    pods = stage.fleet.kubernetes.list(POD, selector=FLEET)
    return {name_of(pod): uid_of(pod) for pod in pods if dig(pod, "spec", "nodeName") == node}


def _evict(stage: ScenarioStage, left: dict[str, str]) -> bool:
    """Evicts what may be evicted, as `kubectl drain` does, and takes it out of `left`. Whether that was anything."""
    refused = _refused(stage, left)
    evicted = [pod for pod in left if pod not in refused]
    for pod in evicted:
        del left[pod]
    return bool(evicted)


def _refused(stage: ScenarioStage, pods: dict[str, str]) -> list[str]:
    """Asks for the eviction of each of the pods; those whose budget does not allow it."""
    found = []
    for pod in pods:
        try:
            stage.fleet.kubernetes.evict(pod)
        except Refused as refused:
            if refused.status != 429:
                raise
            found.append(pod)
    return found


def _is_elsewhere(stage: ScenarioStage, pod: str, node: str) -> bool:
    found = stage.fleet.kubernetes.get(POD, pod)
    return found is not None and dig(found, "spec", "nodeName") not in (None, node)


def _claim(stage: ScenarioStage, broker: int, disk: str) -> str:
    """The claim that the broker's pod mounts, "" while it has none."""
    pod = stage.fleet.kubernetes.get(POD, f"{NAME}-broker-{broker}-0")
    claims = [dig(one, "persistentVolumeClaim", "claimName") for one in dig(pod, "spec", "volumes") or []]
    of_disk = [str(claim) for claim in claims if claim and f"-{disk}-" in str(claim)]
    return of_disk[0] if of_disk else ""


NODE_DRAINED = FleetScenario("node-drained", "a node is cordoned and drained of its pods", node_drained)
NODE_LOST = FleetScenario("node-lost", "a node is gone with its disks, another one is there", node_lost)
DISK_LOST = FleetScenario("disk-lost", "a disk can no longer be used and is replaced", disk_lost)
