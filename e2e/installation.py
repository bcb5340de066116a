"""Installs the operator as a user does: the chart of this checkout with the images of the cluster."""

from __future__ import annotations

import re
from pathlib import Path

from e2e.binaries import CHECKOUT
from e2e.kubernetes_api import DEPLOYMENT, Kubernetes, is_ready, is_terminating
from e2e.machine import run
from e2e.providers import SYSTEM, KubernetesCluster
from ottla_operator.api.objects import POD, Obj

RELEASE = "ottla"
OPERATOR = f"{RELEASE}-operator"
CHART = CHECKOUT / "charts" / "ottla"
MANIFESTS = CHECKOUT / "manifests"
PODS = f"app.kubernetes.io/instance={RELEASE},app.kubernetes.io/component=operator"


def manifests(cluster: KubernetesCluster, *names: str) -> str:
    """Files of manifests/ with the storage class of this cluster; fleets run the images of this checkout."""
    text = "\n---\n".join((MANIFESTS / name).read_text() for name in names)
    text = text.replace("\nspec:\n  brokers:\n", "\nspec:\n  imageUpdatePolicy: FollowOperator\n  brokers:\n")
    return re.sub(r"(storageClassName: )local\b", rf"\g<1>{cluster.storage_class}", text)


class Helm:
    """helm with the chart and the images of this run."""

    def __init__(self, cluster: KubernetesCluster) -> None:
        self._program = cluster.helm
        self._kubeconfig: Path = cluster.kubeconfig
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
                  "--wait", "--timeout", "5m", *self._values)  # fmt: skip

    def uninstall(self) -> None:
        self._run("uninstall", RELEASE, "--namespace", SYSTEM, "--wait", "--timeout", "5m")

    def _run(self, *arguments: str) -> str:
        return run([self._program, *arguments, "--kubeconfig", str(self._kubeconfig)], timeout_s=330)


class OperatorDeployment:
    """The operator's Deployment and pod."""

    def __init__(self, kubernetes: Kubernetes) -> None:
        self._kubernetes = kubernetes

    def pods(self) -> list[Obj]:
        return [pod for pod in self._kubernetes.list(POD, SYSTEM, PODS) if not is_terminating(pod)]

    def until_ready(self) -> None:
        self._kubernetes.until(lambda: any(is_ready(pod) for pod in self.pods()), "the operator is ready")

    def kill(self) -> None:
        """Deletes the pod without grace, as when its node loses power; a new one is created."""
        for pod in self.pods():
            self._kubernetes.delete(POD, pod["metadata"]["name"], SYSTEM, grace_s=0)

    def scale(self, replicas: int) -> None:
        """Scales the Deployment and waits until it is scaled."""
        self._kubernetes.patch(DEPLOYMENT, OPERATOR, {"spec": {"replicas": replicas}}, SYSTEM)
        if replicas:
            self.until_ready()
        else:
            self._kubernetes.until(lambda: not self._kubernetes.list(POD, SYSTEM, PODS), "the operator is gone")

    def log(self, lines: int = 4000) -> str:
        return self._kubernetes.kubectl("logs", "--namespace", SYSTEM, f"deployment/{OPERATOR}", "--tail", str(lines))

    def read(self, path: str) -> str:
        """The content of a file in the operator's container."""
        return self._kubernetes.kubectl("exec", "--namespace", SYSTEM, f"deployment/{OPERATOR}", "--", "cat", path)
