"""The installed operator, the fleet of manifests/, and clients that send and read in pods.

Tests run in the order of their files: 1 installs, 4 takes everything away again. A test that breaks something puts it
right before it ends.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from e2e.__main__ import load_cluster
from e2e.client_pod import client_pod
from e2e.installation import OPERATOR, Helm, OperatorDeployment, manifests
from e2e.kubernetes_api import Kubernetes
from e2e.providers import SYSTEM, KubernetesCluster
from e2e.tests.record_traffic import ConnectionProbe, RecordTraffic
from ottla_operator.api.objects import KAFKA_TOPIC

CLIENT = "client"


@pytest.fixture(scope="session")
def cluster() -> KubernetesCluster:
    """The cluster that `python -m e2e up` has brought up."""
    if "OTTLA_E2E" not in os.environ:
        pytest.skip("run by `make e2e`")
    return load_cluster(Path(os.environ["OTTLA_E2E"]))


@pytest.fixture(scope="session")
def kubernetes(cluster: KubernetesCluster) -> Kubernetes:
    return Kubernetes(cluster.kubeconfig, cluster.kubectl)


@pytest.fixture(scope="session")
def helm(cluster: KubernetesCluster) -> Helm:
    return Helm(cluster)


@pytest.fixture(scope="session")
def operator(kubernetes: Kubernetes, helm: Helm) -> OperatorDeployment:
    """Installed by the chart."""
    helm.install()
    found = OperatorDeployment(kubernetes)
    found.until_ready()
    return found


@pytest.fixture(scope="session")
def orders(kubernetes: Kubernetes, operator: OperatorDeployment, cluster: KubernetesCluster) -> str:
    """The name of the fleet of manifests/cluster.yaml, in the namespace default; it is Ready."""
    kubernetes.kubectl("apply", "-f", "-", text=manifests(cluster, "cluster.yaml", "topics.yaml"))
    kubernetes.until_ready("orders")
    return "orders"


@pytest.fixture(scope="session")
def client(kubernetes: Kubernetes, cluster: KubernetesCluster, orders: str) -> Iterator[str]:
    """The name of a pod with the official clients."""
    with client_pod(kubernetes, cluster, CLIENT, orders):
        yield CLIENT


@pytest.fixture(scope="session")
def pipeline_image(cluster: KubernetesCluster) -> str:
    """The image of drivers, with Spark."""
    if cluster.images.pipeline is None:
        pytest.skip("without the image of Spark: make e2e E2E=--pipelines")
    return cluster.images.pipeline.reference


@pytest.fixture
def records(
    kubernetes: Kubernetes, client: str, request: pytest.FixtureRequest, tmp_path: Path
) -> Iterator[RecordTraffic]:
    """A topic of the test's own, with a producer and consumers."""
    topic = f"t-{hashlib.sha256(request.node.name.encode()).hexdigest()[:8]}-{os.getpid()}"
    kubernetes.create(
        {
            "apiVersion": "kafka.ottla.dev/v1alpha1",
            "kind": "KafkaTopic",
            "metadata": {"name": topic, "namespace": "default"},
            "spec": {"clusterRef": {"name": "orders"}, "partitions": 6, "replicas": 3},
        }
    )
    kubernetes.until_condition(KAFKA_TOPIC, topic, "Ready")
    found = RecordTraffic(kubernetes, client, topic, tmp_path)
    yield found
    found.close()


@pytest.fixture
def knocking(
    kubernetes: Kubernetes, cluster: KubernetesCluster, orders: str, tmp_path: Path
) -> Iterator[ConnectionProbe]:
    """A program in a pod of its own that connects to the advertised address of every broker."""
    with client_pod(kubernetes, cluster, "knocking", orders) as pod:
        found = ConnectionProbe(kubernetes, pod, tmp_path, *(f"{orders}-broker-{broker}:9092" for broker in range(3)))
        yield found
        found.kill()


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    """Shows the operator's log and the pods when a test fails."""
    outcome = yield
    report = outcome.get_result()  # type: ignore[attr-defined]
    funcargs = getattr(item, "funcargs", {})
    if report.when != "call" or not report.failed or "kubernetes" not in funcargs:
        return
    kubernetes: Kubernetes = funcargs["kubernetes"]
    for title, command in {
        "pods": ["get", "pods", "--all-namespaces", "--output", "wide"],
        "clusters": ["get", "kafkaclusters,kafkatopics", "--all-namespaces", "--output", "json"],
        "operator": ["logs", "--namespace", SYSTEM, f"deployment/{OPERATOR}", "--tail", "60"],
    }.items():
        try:
            text = kubernetes.kubectl(*command)
        except Exception as error:
            text = str(error)
        if title == "clusters" and text.startswith("{"):
            statuses = {item["metadata"]["name"]: item.get("status") for item in json.loads(text)["items"]}
            text = json.dumps(statuses, indent=1)
        report.sections.append((title, text[-6000:]))
