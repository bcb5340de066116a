"""Deletion of clusters and topics, uninstallation, and what stays after each."""

from __future__ import annotations

from e2e.installation import OPERATOR, RELEASE, Helm, OperatorDeployment, manifests
from e2e.kubernetes_api import DEPLOYMENT, Kubernetes
from e2e.providers import SYSTEM, KubernetesCluster
from e2e.tests.record_traffic import RecordTraffic
from ottla_operator.api.objects import (
    CLAIM,
    CONFIG_MAP,
    DISRUPTION_BUDGET,
    KAFKA_CLUSTER,
    KAFKA_TOPIC,
    POD,
    SERVICE,
    STATEFUL_SET,
    dig,
)

OURS = "kafka.ottla.dev/cluster=orders"


def test_a_cluster_that_is_deleted_and_applied_again_has_its_data(
    records: RecordTraffic, kubernetes: Kubernetes, cluster: KubernetesCluster
) -> None:
    records.send(10_000)
    status = kubernetes.there(KAFKA_CLUSTER, "orders")["status"]
    claims = {claim["metadata"]["name"]: claim["metadata"]["uid"] for claim in kubernetes.list(CLAIM, selector=OURS)}
    kubernetes.delete(KAFKA_CLUSTER, "orders")
    kubernetes.until(lambda: not kubernetes.list(POD, selector=OURS), "every pod of the fleet is gone")
    kubernetes.until(lambda: not kubernetes.list(STATEFUL_SET, selector=OURS), "and every StatefulSet")
    kubernetes.kubectl("apply", "-f", "-", text=manifests(cluster, "cluster.yaml"))
    kubernetes.until_ready()
    again = kubernetes.there(KAFKA_CLUSTER, "orders")["status"]
    assert [(b["id"], b["rack"]) for b in again["brokers"]] == [(b["id"], b["rack"]) for b in status["brokers"]]
    assert again["clusterId"] == status["clusterId"]
    assert claims == {c["metadata"]["name"]: c["metadata"]["uid"] for c in kubernetes.list(CLAIM, selector=OURS)}
    assert records.assert_nothing_is_lost()["read"] == 10_000


def test_a_topic_is_deleted_in_kafka_when_its_kafka_topic_is_deleted(
    records: RecordTraffic, kubernetes: Kubernetes, client: str
) -> None:
    records.send(100)
    kubernetes.delete(KAFKA_TOPIC, records.topic)
    kubernetes.until(lambda: kubernetes.get(KAFKA_TOPIC, records.topic) is None, "the document is gone")
    program = "import os, kafka; print(kafka.KafkaAdminClient(bootstrap_servers=os.environ['BOOTSTRAP']).list_topics())"
    kubernetes.until(
        lambda: records.topic not in kubernetes.execute(client, "python3", "-c", program), "so is the topic"
    )


def test_the_operators_log_has_what_it_did_and_no_error(operator: OperatorDeployment) -> None:
    """It has what the operator did and why, and no line for each watch event."""
    log = operator.log()
    assert "ottla.operator" in log
    assert [line for line in log.splitlines() if " INFO kopf" in line or " INFO kafka" in line] == []
    assert "Traceback" not in log, log[log.index("Traceback") :][:3000]


def test_uninstalling_the_operator_keeps_the_cluster_and_its_custom_resources(
    orders: str, kubernetes: Kubernetes, helm: Helm
) -> None:
    finalizers = [dig(topic, "metadata", "finalizers") for topic in kubernetes.list(KAFKA_TOPIC)]
    assert any(finalizers), "a topic that the operator made would be deleted with its document"
    helm.uninstall()
    assert kubernetes.get(DEPLOYMENT, OPERATOR, SYSTEM) is None
    assert [
        dig(topic, "metadata", "finalizers")
        for topic in kubernetes.list(KAFKA_TOPIC)
        if dig(topic, "metadata", "finalizers")
    ] == []
    assert len(kubernetes.list(STATEFUL_SET, selector=OURS)) == 6

    def left() -> list[str]:
        names = kubernetes.kubectl(
            "get", "all,clusterroles,clusterrolebindings", "--all-namespaces", "--output", "name"
        )
        return [name for name in names.split() if f"{RELEASE}-operator" in name or "release-topics" in name]

    kubernetes.until(lambda: not left(), "nothing of the operator is left")


def test_nothing_is_left_when_everything_is_deleted(kubernetes: Kubernetes) -> None:
    kubernetes.kubectl("delete", "kafkapipelines,kafkatopics,kafkaclusters", "--all", timeout_s=300)
    for kind in (POD, STATEFUL_SET, SERVICE, CONFIG_MAP, DISRUPTION_BUDGET):
        kubernetes.until(lambda kind=kind: not kubernetes.list(kind, selector=OURS), f"every {kind.kind} is gone")  # type: ignore[misc]
    assert len(kubernetes.list(CLAIM, selector=OURS)) == 12
    kubernetes.kubectl("delete", "pvc", "--selector", OURS)
    kinds = ("kafkaclusters", "kafkapipelines", "kafkatopics")
    kubernetes.kubectl("delete", "crd", *(f"{kind}.kafka.ottla.dev" for kind in kinds))
    assert kubernetes.kubectl("api-resources", "--api-group=kafka.ottla.dev", "-o", "name").split() == []
