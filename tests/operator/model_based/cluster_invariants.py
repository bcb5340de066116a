"""Checks that the status of a KafkaCluster is true, from the objects, Kafka and the volumes."""

from __future__ import annotations

from collections.abc import Iterator

from ottla_broker.config import text_when_absent
from ottla_documents.broker_pools import BrokerPool, surplus
from ottla_documents.kafka_cluster import KafkaCluster, parse_cluster
from ottla_documents.quantity import quantity_bytes
from ottla_documents.schema.marks import Problem
from ottla_operator.api import names
from ottla_operator.api.fleet import BrokerValue
from ottla_operator.api.objects import (
    CLAIM,
    CONFIG_MAP,
    POD,
    SERVICE,
    STATEFUL_SET,
    Obj,
    dig,
    has_condition,
    is_owned_by,
    is_terminating,
    label,
    name_of,
)
from ottla_operator.concerns.config.config import FILE
from ottla_operator.concerns.config.dynamic_config import TRANSIENT, needs_no_restart
from tests.operator.model_based.invariants import condition_of
from tests.operator.model_based.world import World

NEVER_AT_REST = ("WriteFailed", "NotOwned", "InternalError", "Rolling")
"""Reasons that nothing in these machines accounts for once all faults have ended."""


def violations_of_cluster(world: World) -> Iterator[str]:
    """The statements in the status of a KafkaCluster at rest that are not true."""
    document = world.cluster
    if document is None:
        if left := [name for kind in (STATEFUL_SET, POD, SERVICE) for name in _mine(world, kind)]:
            yield f"the KafkaCluster is gone, and there are {', '.join(left)}"
        return
    cluster, problems = parse_cluster(document)
    if dig(document, "status", "observedGeneration") != document["metadata"]["generation"]:
        yield f"status is of generation {dig(document, 'status', 'observedGeneration')}"
    checks = {
        "BrokersReady": lambda: _brokers(world, cluster),
        "ZooKeeperReady": lambda: _servers(world, cluster),
        "DisksReady": lambda: _disks(world, cluster),
        "ServicesReady": lambda: _services(world, document),
        "ConfigValid": lambda: _config(world, cluster, problems),
        "Rolled": lambda: _rolled(world, cluster),
        "Ready": lambda: _ready(world, cluster, document),
    }
    for item in dig(document, "status", "conditions") or []:
        said = f"{item['type']} is {item['status']} {item['reason']} {item['message'][:300]}"
        if item["status"] == "True" and item["type"] in checks:
            yield from (f"{said}, but {why}" for why in checks[item["type"]]())
        elif not cluster.paused and item["reason"].endswith(NEVER_AT_REST):
            yield f"{said}, at rest"
    if condition_of(document).get("status") != "True" and _is_served(world, cluster, problems == []):
        yield f"{condition_of(document)}, and nothing is wrong"


def _mine(world: World, kind: object) -> list[str]:
    return [name_of(obj) for obj in world.all(kind) if label(obj, names.CLUSTER) == "orders"]  # type: ignore[arg-type]


def _members(world: World, key: str) -> dict[int, Obj]:
    return {int(number): obj for obj in world.all(STATEFUL_SET) if (number := label(obj, key)) is not None}


def _not_ready(world: World, key: str) -> Iterator[str]:
    for number, stateful_set in sorted(_members(world, key).items()):
        pod = world.find(POD, names.pod_of(name_of(stateful_set)))
        if pod is None or not has_condition(pod, "Ready"):
            yield f"the pod of {key} {number} is not ready"


def _brokers(world: World, cluster: KafkaCluster) -> Iterator[str]:
    members = _pool_of(world, cluster)
    for pool in cluster.brokers.pools:
        mine = [number for number, other in members.items() if other is pool]
        if len(mine) != pool.replicas:
            yield f"pool {pool.name} has brokers {mine}, not {pool.replicas}"
    if others := _members(world, names.BROKER_ID).keys() - members.keys():
        yield f"brokers {sorted(others)} are of no pool"
    yield from _not_ready(world, names.BROKER_ID)


def _pool_of(world: World, cluster: KafkaCluster) -> dict[int, BrokerPool]:
    """The pool of each broker, as its claims record it; those whose pool the document does not name are not there."""
    found: dict[int, BrokerPool] = {}
    for number in _members(world, names.BROKER_ID):
        recorded = {
            label(claim, names.POOL)
            for claim in world.all(CLAIM)
            if label(claim, names.BROKER_ID) == str(number)
            and label(claim, names.RETIRED) is None
            and label(claim, names.REMOVED) != "true"
        }
        for pool in cluster.brokers.pools:
            if pool.name in recorded:
                found[number] = pool
    return found


def _servers(world: World, cluster: KafkaCluster) -> Iterator[str]:
    if not cluster.zookeeper.connect:
        count = len(_members(world, names.SERVER_ID))
        if count != cluster.zookeeper.replicas:
            yield f"there are {count} servers of {cluster.zookeeper.replicas}"
        yield from _not_ready(world, names.SERVER_ID)


def _disks(world: World, cluster: KafkaCluster) -> Iterator[str]:
    for number, pool in _pool_of(world, cluster).items():
        for disk in pool.disks:
            claims = [
                claim
                for claim in world.all(CLAIM)
                if label(claim, names.BROKER_ID) == str(number)
                and label(claim, names.DISK) == disk.name
                and label(claim, names.RETIRED) is None
            ]
            if not any(dig(claim, "status", "phase") == "Bound" and not is_terminating(claim) for claim in claims):
                yield f"broker {number} has no bound claim of {disk.name}"
            if failed := world.environment.offline & set(world.mounted_claims()):
                yield f"the log directories of {', '.join(sorted(failed))} are offline"
            for claim in claims:
                if quantity_bytes(str(dig(claim, "spec", "resources", "requests", "storage"))) < quantity_bytes(
                    disk.size
                ):
                    yield f"claim {name_of(claim)} is smaller than {disk.size}"


def _config(world: World, cluster: KafkaCluster, problems: list[Problem]) -> Iterator[str]:
    """Every broker that serves has the declared value of each key that changes while it runs, and no other."""
    yield from (str(one) for one in problems if one.path.startswith("spec.brokers") and ".config" in one.path)
    pools = _pool_of(world, cluster)
    for number in world.kafka.ready_brokers():
        if number not in pools:
            continue
        values, config = world.kafka._values(number), pools[number].config
        for key in {*(key for key in config if needs_no_restart(key, config[key])),
                    *(key for key in values if values[key].is_dynamic and key not in TRANSIENT)}:  # fmt: skip
            declared = config.get(key) or text_when_absent(key, config)
            found = values.get(key, BrokerValue()).in_effect or text_when_absent(key, {})
            if found != declared:
                yield f"broker {number} runs with {key}={found}, not {declared}"


def _services(world: World, document: Obj) -> Iterator[str]:
    wanted = ["orders-brokers", "orders-bootstrap"]
    wanted += [names.broker_name("orders", number) for number in _members(world, names.BROKER_ID)]
    for name in wanted:
        service = world.find(SERVICE, name)
        if service is None or not is_owned_by(service, document):
            yield f"there is no Service {name} of this cluster"
        elif dig(service, "spec", "selector", names.CLUSTER) != "orders":
            yield f"Service {name} selects {service['spec']['selector']}"


def _rolled(world: World, cluster: KafkaCluster) -> Iterator[str]:
    document = world.cluster
    assert document is not None
    if condition_of(document, "ConfigValid").get("status") != "True":
        return
    if condition_of(document, "DisksReady").get("status") != "True":
        return  # a template that a disk holds back
    pools = _pool_of(world, cluster)
    for number, stateful_set in sorted(_members(world, names.BROKER_ID).items()):
        pod = world.find(POD, names.pod_of(name_of(stateful_set)))
        if pod is None:
            continue
        if number in pools and dig(pod, "spec", "containers", 0, "image") != world.images.broker:
            yield f"broker {number} runs {dig(pod, 'spec', 'containers', 0, 'image')}"
        volumes = dig(pod, "spec", "volumes") or []
        name = next((dig(item, "configMap", "name") for item in volumes if item["name"] == "config"), "")
        text = str(dig(world.find(CONFIG_MAP, str(name)), "data", FILE))
        for key, value in pools[number].config.items() if number in pools else ():
            if f"{key}={value}\n" not in text:
                yield f"broker {number} does not run with {key}={value}"


def _ready(world: World, cluster: KafkaCluster, document: Obj) -> Iterator[str]:
    yield from _not_ready(world, names.BROKER_ID)
    yield from _not_ready(world, names.SERVER_ID)
    if cluster.paused:
        yield "it is paused"
    for item in dig(document, "status", "conditions") or []:
        if item["status"] != "True" and item["type"] not in ("Rolled", "SpreadOverNodes"):
            yield f"{item['type']} is {item['status']}"


def _is_served(world: World, cluster: KafkaCluster, is_valid: bool) -> bool:
    """Whether this document, on these volumes, is one that has to become Ready."""
    if not is_valid or cluster.paused or world.lost or cluster.brokers.config.get("log.retention.hours") == "13":
        return False
    pools = cluster.brokers.pools
    if any(disk.on_failure == "Keep" for pool in pools for disk in pool.disks) and world.has_failed_volumes():
        return False
    if world.restarts.is_too_low(cluster.version):
        return False
    racks = {rack for pool in pools for rack in pool.racks}
    if "zone-x" in racks or world.was_resized:
        return False
    members = _pool_of(world, cluster)
    return not surplus(members, _members(world, names.BROKER_ID)) and (not racks or cluster.brokers.replicas <= 2)
