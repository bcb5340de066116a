"""From an empty cluster to records."""

from __future__ import annotations

import json

import pytest
import yaml

from e2e import audit
from e2e.audit import Call
from e2e.installation import Helm, OperatorDeployment
from e2e.kubernetes_api import Kubernetes, Refused
from e2e.machine import CommandFailed
from e2e.providers import KubernetesCluster
from e2e.tests.record_traffic import PROGRAM, RecordTraffic
from ottla_operator.api.objects import (
    CLAIM,
    CONFIG_MAP,
    KAFKA_CLUSTER,
    KAFKA_TOPIC,
    NODE,
    SERVICE,
    STATEFUL_SET,
    dig,
    label,
)

BROKERS = (0, 1, 2)


def test_the_chart_is_what_helm_and_the_api_server_accept(helm: Helm, kubernetes: Kubernetes) -> None:
    assert "0 chart(s) failed" in helm.lint()
    documents = [document for document in yaml.safe_load_all(helm.template()) if document]
    assert {"Deployment", "CustomResourceDefinition", "Job"} <= {document["kind"] for document in documents}
    kubernetes.kubectl("create", "--dry-run=client", "-f", "-", text=yaml.safe_dump_all(documents))


def test_the_operator_is_ready_after_the_installation(operator: OperatorDeployment, kubernetes: Kubernetes) -> None:
    assert len(operator.pods()) == 1
    kinds = kubernetes.kubectl("api-resources", "--api-group=kafka.ottla.dev", "-o", "name").split()
    assert kinds == [f"{name}.kafka.ottla.dev" for name in ("kafkaclusters", "kafkapipelines", "kafkatopics")]


def test_the_manifests_become_three_brokers_in_three_zones(orders: str, kubernetes: Kubernetes) -> None:
    status = kubernetes.there(KAFKA_CLUSTER, orders)["status"]
    assert [broker["ready"] for broker in status["brokers"]] == [True] * 3
    zones = {node["metadata"]["name"]: label(node, "topology.kubernetes.io/zone") for node in kubernetes.list(NODE)}
    assert sorted(zones[broker["node"]] or "" for broker in status["brokers"]) == ["zone-a", "zone-b", "zone-c"]
    assert all(zones[broker["node"]] == broker["rack"] for broker in status["brokers"])
    assert status["bootstrap"] == "orders-bootstrap.default.svc:9092" and status["clusterId"]
    assert dig(kubernetes.there(KAFKA_CLUSTER, orders), "status", "replicas") == 3
    table = kubernetes.kubectl("get", "kafkaclusters")
    assert "orders" in table and "True" in table


def test_kubectl_scale_reads_the_number_of_brokers(orders: str, kubernetes: Kubernetes) -> None:
    path = "/apis/kafka.ottla.dev/v1alpha1/namespaces/default/kafkaclusters/orders/scale"
    scale = kubernetes.request("GET", path)
    assert scale["spec"]["replicas"] == 3 and scale["status"]["replicas"] == 3
    assert "kafka.ottla.dev/cluster=orders" in scale["status"]["selector"]


def test_a_kafka_topic_of_the_manifests_becomes_a_topic(orders: str, kubernetes: Kubernetes) -> None:
    kubernetes.until_condition(KAFKA_TOPIC, "flights", "Ready")
    status = kubernetes.there(KAFKA_TOPIC, "flights")["status"]
    assert (status["partitions"], status["replicas"]) == (12, 3) and status["topicId"]


def test_unmodified_clients_produce_and_consume(records: RecordTraffic, kubernetes: Kubernetes, client: str) -> None:
    records.send(20_000)
    assert records.assert_nothing_is_lost()["read"] == 20_000
    said = kubernetes.execute(client, "python3", PROGRAM, "python", "flights", "500")
    assert json.loads(said.splitlines()[-1]) == {"sent": 500, "read": 500}


@pytest.mark.parametrize("pod", ["orders-broker-0-0", "orders-zookeeper-1-0"])
def test_pods_run_without_root_and_write_only_to_their_volumes(orders: str, kubernetes: Kubernetes, pod: str) -> None:
    assert kubernetes.execute(pod, "id", "-u").strip() == "10001"
    with pytest.raises(CommandFailed, match="Read-only file system"):
        kubernetes.execute(pod, "touch", "/opt/file")


def test_every_claim_records_its_directory_id_and_no_broker_may_format_a_disk(
    orders: str, kubernetes: Kubernetes
) -> None:
    def settled() -> bool:
        leave = [kubernetes.there(CONFIG_MAP, f"orders-broker-{number}-format") for number in BROKERS]
        return all(dig(found, "data", "dirs") == "" for found in leave)

    kubernetes.until(settled, "permission to format is withdrawn")
    selector = "kafka.ottla.dev/cluster=orders,app.kubernetes.io/component=broker"
    ids = [
        dig(claim, "metadata", "annotations", "kafka.ottla.dev/directory-id")
        for claim in kubernetes.list(CLAIM, selector=selector)
    ]
    assert len(ids) == 6 and all(ids) and len(set(ids)) == 6


def test_the_operator_writes_nothing_when_the_cluster_is_as_declared(
    orders: str, kubernetes: Kubernetes, operator: OperatorDeployment, cluster: KubernetesCluster
) -> None:
    kubernetes.until_ready(orders)

    def versions() -> dict[str, str]:
        found = {}
        for kind in (KAFKA_CLUSTER, KAFKA_TOPIC, STATEFUL_SET, SERVICE, CONFIG_MAP, CLAIM):
            for obj in kubernetes.list(kind):
                found[f"{kind.kind}/{obj['metadata']['name']}"] = obj["metadata"]["resourceVersion"]
        return found

    before, since = versions(), audit.mark(cluster.audit) if cluster.audit else 0
    operator.kill()
    operator.until_ready()
    kubernetes.delete(SERVICE, "orders-broker-1")  # once it is back, the new operator has looked at everything
    kubernetes.until(lambda: kubernetes.get(SERVICE, "orders-broker-1") is not None, "the Service is back")
    kubernetes.until_ready(orders)
    after = versions()
    assert {name for name in before if before[name] != after.get(name)} == {"Service/orders-broker-1"}
    if cluster.audit:
        assert dict(audit.writes(cluster.audit, since)) == {Call("patch", "services"): 1}


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ({"spec": {"brokers": {"replicas": 0}}}, "spec.brokers.replicas"),
        ({"spec": {"brokers": {"rackKey": "other"}}}, "rackKey"),
        ({"spec": {"zookeeper": {"connect": "zk:2181"}}}, "zookeeper cannot change between an ensemble of its own"),
        ({"spec": {"brokers": {"disks": []}}}, "spec.brokers.disks"),
    ],
)
def test_the_api_server_refuses_what_can_never_work(
    orders: str, kubernetes: Kubernetes, document: dict[str, object], message: str
) -> None:
    with pytest.raises(Refused, match=message) as refused:
        kubernetes.patch(KAFKA_CLUSTER, orders, document)
    assert refused.value.status == 422
