"""What the StatefulSets and pods of brokers and ZooKeeper servers have in common."""

from __future__ import annotations

from collections.abc import Mapping

from ottla_operator.api.objects import STATEFUL_SET, Obj, dig, new

USER = 10001
CONTAINER_SECURITY: Obj = {
    "allowPrivilegeEscalation": False,
    "readOnlyRootFilesystem": True,
    "capabilities": {"drop": ["ALL"]},
}
REVISION_HISTORY = 2


def pod_security() -> Obj:
    """Not root; the group owns the volumes, and only what is wrong is changed when they are mounted."""
    return {
        "runAsNonRoot": True,
        "runAsUser": USER,
        "runAsGroup": USER,
        "fsGroup": USER,
        "fsGroupChangePolicy": "OnRootMismatch",
        "seccompProfile": {"type": "RuntimeDefault"},
    }


def stateful_set(
    namespace: str, name: str, labels: Mapping[str, str], service: str, pod_spec: Obj, annotations: Mapping[str, str]
) -> Obj:
    """A StatefulSet of one pod that nobody but the roller replaces (OnDelete)."""
    spec = {
        "replicas": 1,
        "serviceName": service,
        "podManagementPolicy": "Parallel",
        "updateStrategy": {"type": "OnDelete"},
        "revisionHistoryLimit": REVISION_HISTORY,
        "selector": {"matchLabels": dict(labels)},
        "template": {"metadata": {"labels": dict(labels), "annotations": dict(annotations)}, "spec": pod_spec},
    }
    return new(STATEFUL_SET, namespace, name, labels, spec=spec)


def trouble(pod: Obj) -> str:
    """Why a pod is not ready, in the words of Kubernetes."""
    for item in dig(pod, "status", "conditions") or []:
        if item.get("type") == "PodScheduled" and item.get("status") == "False":
            return f"is not scheduled ({item.get('message', '')[:200]})"
    for status in dig(pod, "status", "containerStatuses") or []:
        waiting = dig(status, "state", "waiting", "reason")
        if waiting:
            return f"waits ({waiting})"
    return "is not ready"
