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
import yaml

from e2e.__main__ import load_cluster
from e2e.binaries import CHECKOUT
from e2e.kubernetes_api import DEPLOYMENT, Kubernetes, is_leaving, is_ready
from e2e.machine import run
from e2e.providers import Cluster
from e2e.tests.records import Records
from ottla_operator.api.objects import KAFKA_TOPIC, POD, Obj

RELEASE, SYSTEM = "ottla", "ottla-system"
OPERATOR = f"{RELEASE}-operator"
CHART = CHECKOUT / "charts" / "ottla"
MANIFESTS = CHECKOUT / "manifests"
CLIENT = "client"


@pytest.fixture(scope="session")
def cluster() -> Cluster:
    """The cluster that `python -m e2e up` has brought up."""
    if "OTTLA_E2E" not in os.environ:
        pytest.skip("run by `make e2e`")
    return load_cluster(Path(os.environ["OTTLA_E2E"]))


@pytest.fixture(scope="session")
def kubernetes(cluster: Cluster) -> Kubernetes:
    return Kubernetes(cluster.kubeconfig, cluster.kubectl)


class Helm:
    """helm with the chart and the images of this run."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        ours = cluster.images.ottla
        values = {
            "image.repository": ours.name,
            "image.tag": ours.tag,
            "zookeeperImage": cluster.images.zookeeper.reference,
        }
        self._values = [part for name, value in values.items() for part in ("--set-string", f"{name}={value}")]

    def lint(self) -> str:
        return self._run("lint", str(CHART), "--strict", *self._values)

    def template(self) -> str:
        return self._run("template", RELEASE, str(CHART), "--namespace", SYSTEM, *self._values)

    def install(self) -> None:
        self._run("upgrade", "--install", RELEASE, str(CHART), "--namespace", SYSTEM, "--create-namespace",
                  "--wait", "--timeout", "3m", *self._values)  # fmt: skip

    def uninstall(self) -> None:
        self._run("uninstall", RELEASE, "--namespace", SYSTEM, "--wait", "--timeout", "4m")

    def _run(self, *arguments: str) -> str:
        kubeconfig = ["--kubeconfig", str(self._cluster.kubeconfig)]
        return run([self._cluster.helm, *arguments, *kubeconfig], timeout_s=300)


@pytest.fixture(scope="session")
def helm(cluster: Cluster) -> Helm:
    return Helm(cluster)


class Operator:
    """The operator's Deployment and pod."""

    def __init__(self, kubernetes: Kubernetes) -> None:
        self._kubernetes = kubernetes

    def pods(self) -> list[Obj]:
        selector = f"app.kubernetes.io/instance={RELEASE},app.kubernetes.io/component=operator"
        return [pod for pod in self._kubernetes.list(POD, SYSTEM, selector) if not is_leaving(pod)]

    def until_ready(self) -> None:
        self._kubernetes.until(lambda: any(is_ready(pod) for pod in self.pods()), "the operator is ready")

    def kill(self) -> None:
        """The pod goes without grace, as when its node loses power; a new one comes."""
        for pod in self.pods():
            self._kubernetes.delete(POD, pod["metadata"]["name"], SYSTEM, grace_s=0)

    def scale(self, replicas: int) -> None:
        """Returns when it is so."""
        self._kubernetes.patch(DEPLOYMENT, OPERATOR, {"spec": {"replicas": replicas}}, SYSTEM)
        if replicas:
            self.until_ready()
        else:
            selector = f"app.kubernetes.io/instance={RELEASE},app.kubernetes.io/component=operator"
            self._kubernetes.until(lambda: not self._kubernetes.list(POD, SYSTEM, selector), "the operator is gone")

    def log(self) -> str:
        return self._kubernetes.kubectl("logs", "--namespace", SYSTEM, f"deployment/{OPERATOR}", "--tail", "4000")


@pytest.fixture(scope="session")
def operator(kubernetes: Kubernetes, helm: Helm) -> Operator:
    """Installed by the chart."""
    helm.install()
    found = Operator(kubernetes)
    found.until_ready()
    return found


@pytest.fixture(scope="session")
def orders(kubernetes: Kubernetes, operator: Operator) -> str:
    """The name of the fleet of manifests/cluster.yaml, in the namespace default; it is Ready."""
    kubernetes.kubectl("apply", "-f", str(MANIFESTS / "cluster.yaml"), "-f", str(MANIFESTS / "topics.yaml"))
    kubernetes.until_ready("orders", timeout_s=300)
    return "orders"


@pytest.fixture(scope="session")
def client(kubernetes: Kubernetes, cluster: Cluster, orders: str) -> Iterator[str]:
    """The name of a pod with the official clients."""
    kubernetes.kubectl("apply", "-f", "-", text=yaml.safe_dump(client_pod(cluster, f"{orders}-bootstrap:9092")))
    kubernetes.until(lambda: is_ready(kubernetes.get(POD, CLIENT)), "the client's pod runs")
    yield CLIENT
    if kubernetes.get(POD, CLIENT) is not None:
        kubernetes.delete(POD, CLIENT, grace_s=0)


@pytest.fixture
def records(kubernetes: Kubernetes, client: str, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Records]:
    """A topic of the test's own, and who sends to it and reads it."""
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
    found = Records(kubernetes, client, topic, tmp_path)
    yield found
    found.close()


def client_pod(cluster: Cluster, bootstrap: str) -> Obj:
    container = {
        "name": "client",
        "image": cluster.images.client.reference,
        "command": ["sleep", "infinity"],
        "env": [{"name": "BOOTSTRAP", "value": bootstrap}],
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": CLIENT, "namespace": "default"},
        "spec": {"containers": [container], "terminationGracePeriodSeconds": 0},
    }


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    """A failed test shows what the operator said and what the pods did."""
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
