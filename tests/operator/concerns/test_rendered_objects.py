"""Everything the operator writes is made of fields that Kubernetes has."""

from __future__ import annotations

import copy

from ottla_broker.config import BrokerConfig
from ottla_operator.api.objects import annotation, dig
from ottla_operator.concerns.brokers import brokers
from tests.operator.chart.test_chart import rendered
from tests.operator.fleet import CLUSTER, Fleet
from tests.operator.kubernetes_fields import faults_of

OWN_KINDS = ("KafkaCluster", "KafkaTopic")


async def test_the_objects_of_a_cluster_have_only_fields_that_kubernetes_knows() -> None:
    fleet = Fleet(copy.deepcopy(CLUSTER))
    provisioner = "kubernetes.io/no-provisioner"
    local = {"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": "local"}}
    fleet.kubernetes.put({**local, "provisioner": provisioner})
    await fleet.converge()
    checked = set()
    for (kind, _, name), obj in fleet.kubernetes.objects.items():
        if kind in OWN_KINDS:
            continue
        assert faults_of(obj) == [], f"{kind} {name}"
        checked.add(kind)
    ours = {"StatefulSet", "Service", "ConfigMap", "Secret", "PersistentVolumeClaim", "PodDisruptionBudget", "Event"}
    assert ours < checked


async def test_names_and_label_values_fit_kubernetes_limits_for_the_longest_cluster_name() -> None:
    document = copy.deepcopy(CLUSTER)
    document["metadata"]["name"] = "orders"
    fleet = Fleet(document)
    await fleet.converge()
    longest = "a" * 40
    for (_, _, name), obj in fleet.kubernetes.objects.items():
        assert len(name.replace("orders", longest)) <= 63, name
        for value in (dig(obj, "metadata", "labels") or {}).values():
            assert len(value.replace("orders", longest)) <= 63


def test_the_charts_objects_and_the_crds_have_only_fields_that_kubernetes_knows() -> None:
    for document in [*rendered(), *rendered(watchNamespaces=["kafka", "other"], readNodes=False)]:
        assert faults_of(document) == [], f"{document['kind']} {document['metadata']['name']}"


async def test_clients_are_never_sent_to_a_pod_that_is_gone() -> None:
    """A pod's address goes before Kubernetes says that the pod is gone. A broker is out of its Service by then: it is
    unready from SIGTERM on, and stays for as long as the kubelet takes to notice and two seconds more."""
    fleet = Fleet(copy.deepcopy(CLUSTER))
    await fleet.converge()
    objects = {(kind, name): obj for (kind, _, name), obj in fleet.kubernetes.objects.items()}
    specs = [obj["spec"] for (kind, _), obj in objects.items() if kind == "Service"]
    brokers_specs = [spec for spec in specs if spec["selector"]["app.kubernetes.io/component"] == "broker"]
    for_clients = [spec for spec in brokers_specs if spec["ports"][0]["name"] == "client"]
    assert len(for_clients) == CLUSTER["spec"]["brokers"]["replicas"] + 1, "each broker's and the bootstrap"
    assert not any(spec["publishNotReadyAddresses"] for spec in for_clients)
    template = objects["StatefulSet", "orders-broker-0"]["spec"]["template"]
    probe = dig(template, "spec", "containers", 0, "readinessProbe")
    config_map = objects["ConfigMap", annotation(template, "kafka.ottla.dev/config")]
    serve_ms = BrokerConfig.from_properties(config_map["data"]["server.properties"]).ottla_shutdown_serve_ms
    assert serve_ms >= (probe["periodSeconds"] * probe["failureThreshold"] + 2) * 1000


async def test_a_field_that_an_earlier_release_has_set_is_written_back() -> None:
    fleet = Fleet(copy.deepcopy(CLUSTER))
    await fleet.converge()
    service = fleet.kubernetes.objects["Service", "default", "orders-broker-0"]
    fleet.kubernetes.put({**service, "spec": {**service["spec"], "publishNotReadyAddresses": True}})
    await fleet.converge()
    assert fleet.kubernetes.objects["Service", "default", "orders-broker-0"]["spec"] == service["spec"]


def test_a_controlled_shutdown_ends_before_kubernetes_kills_the_broker() -> None:
    default_ms = BrokerConfig.from_mapping({"zookeeper.connect": "h:1"}).ottla_shutdown_timeout_ms
    assert brokers.GRACE_S * 1000 - default_ms == 15_000
