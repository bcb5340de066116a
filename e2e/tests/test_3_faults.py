"""Faults that people and machines cause beside the operator."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from e2e import network
from e2e.installation import OperatorDeployment, manifests
from e2e.kubernetes_api import VOLUME, Kubernetes, is_ready
from e2e.providers import KubernetesCluster
from e2e.providers.processes import NODES
from e2e.tests.record_traffic import PROGRAM, RecordTraffic
from e2e.tests.test_2_rolls import BROKERS, pod_of, uids
from ottla_operator.api.objects import (
    CLAIM,
    CONFIG_MAP,
    DISRUPTION_BUDGET,
    KAFKA_CLUSTER,
    KAFKA_TOPIC,
    NAMESPACE,
    NODE,
    POD,
    SERVICE,
    STATEFUL_SET,
    Obj,
    ResourceKind,
    dig,
    label,
    uid_of,
)

OTHER = "payments"
"""A second fleet in a namespace of its own, on the ensemble of the first."""

ROOM = "example.com/room"
"""The rackKey of the second cluster: a node label that divides the nodes otherwise than their zones."""


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        (SERVICE, "orders-bootstrap"),
        (CONFIG_MAP, "orders-broker-0-format"),
        (DISRUPTION_BUDGET, "orders-brokers"),
        (STATEFUL_SET, "orders-broker-1"),
        (STATEFUL_SET, "orders-zookeeper-2"),
    ],
    ids=lambda value: value if isinstance(value, str) else value.kind,
)
def test_a_deleted_object_is_created_again(orders: str, kubernetes: Kubernetes, kind: ResourceKind, name: str) -> None:
    before = uid_of(kubernetes.there(kind, name))
    pod = kubernetes.get(POD, f"{name}-0")
    kubernetes.delete(kind, name)
    kubernetes.until(
        lambda: (found := kubernetes.get(kind, name)) is not None and uid_of(found) != before, f"{name} is back"
    )
    if pod is not None:  # it goes with its StatefulSet
        kubernetes.until_replaced(f"{name}-0", uid_of(pod))
    kubernetes.until_ready()


def test_brokers_keep_ids_and_racks_when_status_is_erased(
    orders: str, kubernetes: Kubernetes, operator: OperatorDeployment
) -> None:
    before, pods = _brokers(kubernetes), uids(kubernetes)
    operator.scale(0)
    live = kubernetes.there(KAFKA_CLUSTER, orders)
    path = "/apis/kafka.ottla.dev/v1alpha1/namespaces/default/kafkaclusters/orders/status"
    kubernetes.request("PUT", path, {**live, "status": {}})
    operator.scale(1)
    kubernetes.until_ready()
    assert _brokers(kubernetes) == before and uids(kubernetes) == pods


def test_an_empty_mount_is_an_offline_log_directory_and_not_formatted(
    records: RecordTraffic, kubernetes: Kubernetes, cluster: KubernetesCluster
) -> None:
    """A node comes back without one of its disks: its folder is empty. The broker runs on with the other one."""
    if cluster.volumes is None:
        pytest.skip("the nodes' volumes cannot be reached")
    records.send(5000)
    node = str(dig(kubernetes.there(POD, pod_of(1)), "spec", "nodeName"))
    folder = _folder_of(kubernetes, "orders-broker-1-d0-1")
    aside = folder.with_name(f"{folder.name}.aside")
    before = uids(kubernetes)[1]
    kubernetes.cordon(node, True)
    try:
        kubernetes.delete(POD, pod_of(1))
        kubernetes.until_replaced(pod_of(1), before, ready=False)  # it stands still: its node takes no pods
        aside.mkdir()
        for entry in folder.iterdir():
            entry.rename(aside / entry.name)
    finally:
        kubernetes.cordon(node, False)
    missed = "/var/lib/ottla/d0/log has no meta.properties"
    kubernetes.until(lambda: missed in kubernetes.kubectl("logs", pod_of(1)), "the broker misses its disk")
    # The pod is ready; the cluster need not be: what the disk held is not in sync before it is back.
    kubernetes.until_replaced(pod_of(1), before)
    assert not list(folder.rglob("meta.properties")) and not list(folder.rglob("*.log")), "it was formatted"
    assert records.check()["lost"] == 0
    before = uids(kubernetes)[1]
    kubernetes.cordon(node, True)
    try:
        kubernetes.delete(POD, pod_of(1))
        kubernetes.until_replaced(pod_of(1), before, ready=False)  # it stands still: its node takes no pods
        for entry in folder.iterdir():
            shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
        for entry in aside.iterdir():
            entry.rename(folder / entry.name)
        aside.rmdir()
    finally:
        kubernetes.cordon(node, False)
    kubernetes.until_ready()
    records.assert_nothing_is_lost()


def test_no_acknowledged_record_is_lost_when_the_network_of_a_node_fails(
    records: RecordTraffic, kubernetes: Kubernetes, client: str, cluster: KubernetesCluster
) -> None:
    """Its broker runs on alone, believes to lead what others lead now, and registers again later."""
    if cluster.volumes is None:
        pytest.skip("the nodes' links cannot be reached")
    kubernetes.until_ready()
    sender = dig(kubernetes.there(POD, client), "spec", "nodeName")
    cut = next(node for node in NODES if node.name != sender)
    nodes = {number: dig(kubernetes.there(POD, pod_of(number)), "spec", "nodeName") for number in BROKERS}
    broker = next(number for number, node in nodes.items() if node == cut.name)
    before = uids(kubernetes)
    records.start()
    network.cut(cut)
    try:
        # The partitions that the broker led have new leaders once its session has ended.
        kubernetes.until(lambda: not leads(kubernetes, client, records.topic, broker), f"broker {broker} leads nothing")
        records.until_more(1000)
    finally:
        network.heal(cut)
    kubernetes.until_ready()
    records.until_more(1000)
    said = records.stop()
    assert said["refused"] == [] and said["unknown"] == 0
    records.assert_nothing_is_lost()
    assert uids(kubernetes) == before, "a cut link is no reason to restart a pod"


def test_a_second_cluster_runs_on_an_existing_ensemble(
    kubernetes: Kubernetes, orders: str, cluster: KubernetesCluster
) -> None:
    kubernetes.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": OTHER}})
    text = manifests(cluster, "cluster-existing-zookeeper.yaml")
    servers = ",".join(f"orders-zookeeper-{n}-0.orders-zookeeper.default.svc:2181" for n in (1, 2, 3))
    text = text.replace("zk-0.zk:2181,zk-1.zk:2181,zk-2.zk:2181", servers)
    assert servers in text, "the manifest names an ensemble"
    for number, node in enumerate(kubernetes.list(NODE)):
        _label(kubernetes, node, ("room-a", "room-a", "room-b")[number])
    text = text.replace("    replicas: 3\n", f"    replicas: 3\n    rackKey: {ROOM}\n")
    assert ROOM in text
    kubernetes.kubectl("apply", "--namespace", OTHER, "-f", "-", text=text)
    # Where the scheduler puts both brokers of a room on one node, SpreadOverNodes says SharedNode.
    kubernetes.until_condition(KAFKA_CLUSTER, "payments", "BrokersReady", namespace=OTHER)
    topic = {
        "apiVersion": "kafka.ottla.dev/v1alpha1",
        "kind": "KafkaTopic",
        "metadata": {"name": "invoices", "namespace": OTHER},
        "spec": {"clusterRef": {"name": "payments"}, "partitions": 6, "replicas": 2},
    }
    kubernetes.create(topic)
    kubernetes.until_condition(KAFKA_TOPIC, "invoices", "Ready", namespace=OTHER)


def test_replicas_are_spread_over_racks(kubernetes: Kubernetes, client: str, orders: str) -> None:
    """Three brokers in two rooms, two replicas each: the only broker of its room has one of every partition."""
    brokers = kubernetes.there(KAFKA_CLUSTER, "payments", OTHER)["status"]["brokers"]
    rooms = {node["metadata"]["name"]: label(node, ROOM) for node in kubernetes.list(NODE)}
    racks = {broker["id"]: rooms[broker["node"]] for broker in brokers}
    assert sorted(str(rack) for rack in racks.values()) == ["room-a", "room-a", "room-b"]
    assert all(broker["rack"] == racks[broker["id"]] for broker in brokers)
    bootstrap = f"BOOTSTRAP=payments-bootstrap.{OTHER}:9092"
    said = kubernetes.execute(client, "env", bootstrap, "python3", PROGRAM, "placement", "invoices")
    placement = json.loads(said.splitlines()[-1])
    assert len(placement) == 6
    for partition, replicas in placement.items():
        assert {racks[broker] for broker in replicas} == {"room-a", "room-b"}, (partition, replicas, racks)


def test_a_claim_deleted_under_a_running_broker_is_reported_as_lost(kubernetes: Kubernetes, orders: str) -> None:
    """The broker runs on, and no empty volume replaces it."""
    claim, pod = "payments-broker-2-d0-1", "payments-broker-2-0"
    kubernetes.delete(CLAIM, claim, OTHER)
    kubernetes.until_condition(KAFKA_CLUSTER, "payments", "DisksReady", "ClaimTerminating", namespace=OTHER)
    assert is_ready(kubernetes.get(POD, pod, OTHER))
    before = uid_of(kubernetes.there(POD, pod, OTHER))
    kubernetes.delete(POD, pod, OTHER)
    condition = kubernetes.until_condition(KAFKA_CLUSTER, "payments", "DisksReady", "ClaimLost", namespace=OTHER)
    assert claim in condition["message"]
    kubernetes.until_replaced(pod, before, OTHER, ready=False)
    assert kubernetes.get(CLAIM, claim, OTHER) is None, "it was made again"
    assert not is_ready(kubernetes.get(POD, pod, OTHER))
    others = [f"payments-broker-{number}-0" for number in (0, 1)]
    assert all(is_ready(kubernetes.get(POD, name, OTHER)) for name in others)


def test_a_namespace_deleted_without_an_operator_is_gone_when_an_operator_is_back(
    kubernetes: Kubernetes, operator: OperatorDeployment
) -> None:
    operator.scale(0)
    try:
        kubernetes.delete(NAMESPACE, OTHER)
        kubernetes.until(lambda: not kubernetes.list(STATEFUL_SET, OTHER), "the fleet goes without the operator")
        topic = kubernetes.there(KAFKA_TOPIC, "invoices", OTHER)
        assert dig(topic, "metadata", "finalizers") == ["kafka.ottla.dev/topic"]
    finally:
        operator.scale(1)
    kubernetes.until(lambda: kubernetes.get(NAMESPACE, OTHER) is None, "the namespace is gone")
    for node in kubernetes.list(NODE):
        _label(kubernetes, node, None)
    kubernetes.until_ready("orders")


def leads(kubernetes: Kubernetes, client: str, topic: str, broker: int) -> bool:
    """Whether the broker leads a partition of the topic in the metadata of the others."""
    said = kubernetes.execute(client, "python3", PROGRAM, "leaders", topic)
    return broker in json.loads(said.splitlines()[-1]).values()


def _brokers(kubernetes: Kubernetes) -> list[tuple[int, str]]:
    brokers = kubernetes.there(KAFKA_CLUSTER, "orders")["status"]["brokers"]
    return [(broker["id"], broker["rack"]) for broker in brokers]


def _label(kubernetes: Kubernetes, node: Obj, room: str | None) -> None:
    kubernetes.patch(NODE, node["metadata"]["name"], {"metadata": {"labels": {ROOM: room}}})


def _folder_of(kubernetes: Kubernetes, claim: str) -> Path:
    volume: Obj = kubernetes.there(VOLUME, str(dig(kubernetes.there(CLAIM, claim), "spec", "volumeName")))
    return Path(str(dig(volume, "spec", "local", "path")))
