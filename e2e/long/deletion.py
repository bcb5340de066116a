"""A namespace that is deleted with everything in it while nobody can help: the operator is away."""

from __future__ import annotations

import yaml

from e2e.installation import manifests
from e2e.kubernetes_api import LIMIT_S
from e2e.long.fleet import LONGEST_S
from e2e.long.scenario import FleetScenario, ScenarioStage
from ottla_operator.api.objects import KAFKA_CLUSTER, KAFKA_TOPIC, NAMESPACE, STATEFUL_SET, Obj, dig

WHERE = "long"
NAME = "payments"
TOPICS = ("invoices", "refunds")


def namespace_deleted(stage: ScenarioStage) -> None:
    """A second fleet with topics is in the middle of a roll when the operator goes and its namespace is deleted. Its
    pods go; its topics wait for the operator, and go once it is back."""
    fleet, kubernetes = stage.fleet, stage.fleet.kubernetes
    kubernetes.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": WHERE}})
    kubernetes.kubectl("apply", "--namespace", WHERE, "-f", "-", text=_documents(stage))
    kubernetes.until_ready(NAME, namespace=WHERE, timeout_s=LONGEST_S)
    for topic in TOPICS:
        kubernetes.until_condition(KAFKA_TOPIC, topic, "Ready", namespace=WHERE, timeout_s=LONGEST_S)
    with stage.window("deletion"):
        change: Obj = {"spec": {"brokers": {"config": {"log.retention.hours": 11}}}}
        kubernetes.patch(KAFKA_CLUSTER, NAME, change, WHERE)
        fleet.until(lambda: dig(kubernetes.there(KAFKA_CLUSTER, NAME, WHERE), "status", "roll"), "a roll")
        fleet.operator.scale(0)
        stage.say("the operator is away, and the namespace is deleted")
        try:
            kubernetes.delete(NAMESPACE, WHERE)
            fleet.until(lambda: not kubernetes.list(STATEFUL_SET, WHERE), "its StatefulSets are gone")
            left = kubernetes.list(KAFKA_TOPIC, WHERE)
            stage.found.figures["topics that wait for the operator"] = len(left)
            stage.load.until_more(2)
        finally:
            fleet.operator.scale(1)
        kubernetes.until(lambda: kubernetes.get(NAMESPACE, WHERE) is None, "the namespace is gone", LIMIT_S)
        fleet.until_ready()


def _documents(stage: ScenarioStage) -> str:
    found = yaml.safe_load(manifests(stage.fleet.cluster, "cluster.yaml"))
    found["metadata"]["name"] = NAME
    found["spec"]["brokers"]["disks"] = found["spec"]["brokers"]["disks"][:1]
    found["spec"]["zookeeper"]["replicas"] = 1
    topics = [
        {
            "apiVersion": KAFKA_TOPIC.api_version,
            "kind": KAFKA_TOPIC.kind,
            "metadata": {"name": name},
            "spec": {"clusterRef": {"name": NAME}, "partitions": 3, "replicas": 3},
        }
        for name in TOPICS
    ]
    return yaml.safe_dump_all([found, *topics])


NAMESPACE_DELETED = FleetScenario(
    "namespace-deleted", "a namespace with a fleet is deleted while the operator is away", namespace_deleted
)
