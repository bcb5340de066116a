"""A pod with the unmodified clients of e2e/images/client, while it is needed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import yaml

from e2e.kubernetes_api import Kubernetes, is_ready
from e2e.providers import KubernetesCluster
from ottla_operator.api.objects import POD

IDLE = ("sleep", "infinity")


@contextmanager
def client_pod(
    kubernetes: Kubernetes,
    cluster: KubernetesCluster,
    name: str,
    fleet: str,
    *,
    command: Sequence[str] = IDLE,
    node: str | None = None,
) -> Iterator[str]:
    """Its name, once it runs. `fleet`: whose bootstrap Service $BOOTSTRAP names. `node`: where alone it may run."""
    container = {
        "name": "client",
        "image": cluster.images.client.reference,
        "command": list(command),
        "env": [{"name": "BOOTSTRAP", "value": f"{fleet}-bootstrap:9092"}],
    }
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "containers": [container],
            "terminationGracePeriodSeconds": 0,
            "restartPolicy": "Never",
            **({"nodeSelector": {"kubernetes.io/hostname": node}} if node else {}),
        },
    }
    kubernetes.kubectl("apply", "-f", "-", text=yaml.safe_dump(pod))
    kubernetes.until(lambda: is_ready(kubernetes.get(POD, name)), f"the pod {name} runs")
    yield name
    if kubernetes.get(POD, name) is not None:
        kubernetes.delete(POD, name, grace_s=0)
