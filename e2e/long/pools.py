"""Pools of brokers: a fleet that is created with two, gets a third one, and loses one."""

from __future__ import annotations

from e2e.long.fleet import BROKER_ID, NAME, Size
from e2e.long.hardware import ZONE
from e2e.long.scaling import REMOVED, check_placement
from e2e.long.scenario import FleetScenario, ScenarioStage
from e2e.nodes import STORAGE_CLASS
from e2e.providers.processes import NODES
from ottla_documents.kafka_cluster import DEFAULT_BROKER_RESOURCES
from ottla_operator.api import names
from ottla_operator.api.objects import CLAIM, KAFKA_CLUSTER, NODE, Obj, dig, label

ZONE_A, ZONE_B, ZONE_C = (node.zone for node in NODES)


def _disks(count: int, size: str) -> list[Obj]:
    return [{"name": f"d{number}", "size": size, "storageClassName": STORAGE_CLASS} for number in range(count)]


WIDE: Obj = {"name": "wide", "replicas": 3}
"""With what all brokers have: two disks, every rack, the resources that are the default."""
NARROW: Obj = {
    "name": "narrow",
    "replicas": 2,
    "idRange": {"first": 10, "last": 19},
    "racks": [ZONE_B, ZONE_C],
    "disks": _disks(1, "50Gi"),
    "resources": {"requests": {"cpu": "100m", "memory": "128Mi"}},
}
EXTRA: Obj = {
    "name": "extra",
    "replicas": 2,
    "idRange": {"first": 20, "last": 29},
    "racks": [ZONE_A, ZONE_B],
    "disks": _disks(3, "60Gi"),
    "resources": {"requests": {"cpu": "50m"}},
    "config": {"num.io.threads": 3},
}


def change_pools(stage: ScenarioStage) -> None:
    """Two pools, three, two others, and none. Nobody who stays restarts, and nobody who left has anything."""
    _check(stage, "created", WIDE, NARROW)
    for name, pools in (("a pool more", (WIDE, NARROW, EXTRA)), ("a pool less", (WIDE, EXTRA))):
        _change(stage, name, _size(*pools))
        _check(stage, name, *pools)
    removed = {label(claim, BROKER_ID) or "" for claim in stage.fleet.kubernetes.list(CLAIM, selector=REMOVED)}
    gone = {str(broker) for broker in _ids(NARROW)}
    stage.found.expect(gone <= removed, f"of brokers {sorted(gone)} claims are left of {sorted(removed)}")
    _change(stage, "no pools", Size(WIDE["replicas"], 3))
    check_placement(stage, "no pools", _ids(WIDE))


def _change(stage: ScenarioStage, name: str, size: Size) -> None:
    before = stage.fleet.uids()
    stage.say(f"{name}: {size}")
    with stage.window(name):
        stage.fleet.resize(size)
    after = stage.fleet.uids()
    restarted = [broker for broker, uid in before.items() if after.get(broker, uid) != uid]
    stage.found.expect(not restarted, f"{name}: brokers {restarted} were restarted")


def _check(stage: ScenarioStage, name: str, *pools: Obj) -> None:
    """The brokers are those of the pools, each with what its pool declares, and everybody has a share."""
    fleet, expect = stage.fleet, stage.found.expect
    document, pods, racks = fleet.kubernetes.there(KAFKA_CLUSTER, NAME), fleet.pods(), fleet.racks()
    wanted = {broker: pool for pool in pools for broker in _ids(pool)}
    expect(sorted(pods) == sorted(wanted), f"{name}: the brokers are {sorted(pods)}, not {sorted(wanted)}")
    told = {item["id"]: item["pool"] for item in fleet.status().get("brokers") or []}
    declared = {broker: pool["name"] for broker, pool in wanted.items()}
    expect(told == declared, f"{name}: status.brokers has {told}, not {declared}")
    for broker in pods.keys() & wanted.keys():
        pool, spec = wanted[broker], pods[broker]["spec"]
        of_pool = {**document["spec"]["brokers"], **pool}
        zone = label(fleet.kubernetes.there(NODE, spec["nodeName"]), ZONE)
        allowed = of_pool.get("racks") or [ZONE_A, ZONE_B, ZONE_C]
        expect(zone == racks[broker] and zone in allowed, f"{name}: broker {broker} of {pool['name']} is in {zone}")
        claims = [dig(one, "persistentVolumeClaim", "claimName") for one in spec["volumes"]]
        disks = {
            label(claim, names.DISK): dig(claim, "spec", "resources", "requests", "storage")
            for claim in (fleet.kubernetes.there(CLAIM, claim) for claim in claims if claim)
        }
        asked = {disk["name"]: disk["size"] for disk in of_pool["disks"]}
        expect(disks == asked, f"{name}: broker {broker} of {pool['name']} has the disks {disks}, not {asked}")
        requests = dig(spec, "containers", 0, "resources", "requests") or {}
        needed = dig(of_pool, "resources", "requests") or DEFAULT_BROKER_RESOURCES.requests
        expect(requests == needed, f"{name}: broker {broker} of {pool['name']} asks for {requests}, not {needed}")
    check_placement(stage, name, wanted)


def _size(*pools: Obj) -> Size:
    return Size(sum(pool["replicas"] for pool in pools), 3, pools)


def _ids(pool: Obj) -> range:
    first = dig(pool, "idRange", "first") or 0
    return range(first, first + pool["replicas"])


POOLS = FleetScenario("pools", "pools of brokers are added and taken out", change_pools, _size(WIDE, NARROW))
