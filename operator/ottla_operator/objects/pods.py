"""What StatefulSets and pods of brokers and of ZooKeeper servers share, and why a pod is not ready."""

from __future__ import annotations

import re
from collections.abc import Mapping

from ottla_documents.resources import Resources
from ottla_operator.api.fleet import BrokerReport
from ottla_operator.api.objects import STATEFUL_SET, Obj, dig, new, uid_of
from ottla_operator.api.times import seconds_between

USER = 10001
CONTAINER_SECURITY: Obj = {
    "allowPrivilegeEscalation": False,
    "readOnlyRootFilesystem": True,
    "capabilities": {"drop": ["ALL"]},
}
REVISION_HISTORY = 2
UPDATE_STRATEGY: Obj = {"type": "OnDelete"}
MESSAGE_LENGTH = 240
"""How much of a message of a container or the kubelet a condition quotes, so that several pods have room."""
REACHABLE_AFTER_S = 3.0
"""How long a pod has to be ready until every node sends connections to it. kube-proxy writes its rules once a second at
most (minSyncPeriod), and times have whole seconds: two full seconds at least."""
TERMINATION_POLICY = "FallbackToLogsOnError"
"""Kubernetes reads why a container ended from its termination message, else from the end of its log."""


def pod_security() -> Obj:
    """Not root; the group owns the volumes, and ownership changes at mount time only where it is wrong."""
    return {
        "runAsNonRoot": True,
        "runAsUser": USER,
        "runAsGroup": USER,
        "fsGroup": USER,
        "fsGroupChangePolicy": "OnRootMismatch",
        "seccompProfile": {"type": "RuntimeDefault"},
    }


def resource_requirements(resources: Resources) -> Obj:
    found = {"requests": dict(resources.requests), "limits": dict(resources.limits)}
    return {name: values for name, values in found.items() if values}


def stateful_set(
    namespace: str, name: str, labels: Mapping[str, str], service: str, pod_spec: Obj, annotations: Mapping[str, str]
) -> Obj:
    """A StatefulSet of one pod that only the roller replaces (OnDelete)."""
    spec = {
        "replicas": 1,
        "serviceName": service,
        "podManagementPolicy": "Parallel",
        "updateStrategy": UPDATE_STRATEGY,
        "revisionHistoryLimit": REVISION_HISTORY,
        "selector": {"matchLabels": dict(labels)},
        "template": {"metadata": {"labels": dict(labels), "annotations": dict(annotations)}, "spec": pod_spec},
    }
    return new(STATEFUL_SET, namespace, name, labels, spec=spec)


def container_status(pod: Obj | None, name: str) -> Obj | None:
    """The status of one container of a pod; others may run beside it."""
    statuses = dig(pod, "status", "containerStatuses") or []
    return next((status for status in statuses if status.get("name") == name), None)


def ready_since(pod: Obj) -> str:
    """Since when the condition Ready has been what it is, by the clock of the pod's node; "" when that is not known."""
    conditions = dig(pod, "status", "conditions") or []
    return next((str(one.get("lastTransitionTime") or "") for one in conditions if one.get("type") == "Ready"), "")


def is_reachable(pod: Obj, now: str) -> bool:
    """Whether Services send clients to a pod that is ready: the rules of the nodes follow its readiness with a delay.

    Until then a node refuses connections to the Service of a broker, so whatever it leads takes no records. Nobody
    waits for the time of a node whose clock is ahead by more than that.

    >>> ready = {"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:01:00Z"}
    >>> pod = {"metadata": {}, "status": {"conditions": [ready]}}
    >>> [is_reachable(pod, f"2026-01-01T00:{time}Z") for time in ("01:00", "01:02", "01:03", "00:58", "00:10")]
    [False, False, True, False, True]
    """
    since = ready_since(pod)
    lasted, ahead = seconds_between(since, now), seconds_between(now, since)
    return lasted is None or lasted >= REACHABLE_AFTER_S or (ahead or 0.0) >= REACHABLE_AFTER_S


def not_ready_reason(pod: Obj) -> str:
    """Why a pod is not ready, in the words of Kubernetes, and how its container ended last."""
    for item in dig(pod, "status", "conditions") or []:
        if item.get("type") == "PodScheduled" and item.get("status") == "False":
            return f"is not scheduled ({item.get('message', '')[:MESSAGE_LENGTH]})"
    statuses = [
        *(dig(pod, "status", "initContainerStatuses") or []),
        *(dig(pod, "status", "containerStatuses") or []),
    ]
    for status in statuses:
        if reason := dig(status, "state", "waiting", "reason"):
            return f"waits ({_waiting(pod, status, str(reason))}){_end(status)}"
    ends = [end for status in statuses if not status.get("ready") and (end := _end(status))]
    return f"is not ready{ends[0]}" if ends else "is not ready"


def broker_not_ready_reason(pod: Obj, report: BrokerReport | None) -> str:
    """Why the pod of a broker is not ready: what Kubernetes says, and of a container that runs what the broker says.

    Kubernetes keeps the last line of a container that has ended, and has nothing about one that runs and never becomes
    ready.
    """
    found = not_ready_reason(pod)
    statuses = dig(pod, "status", "containerStatuses") or []
    is_running = any(dig(status, "state", "running") is not None and not status.get("ready") for status in statuses)
    if report is None or report.pod_uid != uid_of(pod) or not is_running:
        return found
    said = [f"it is {report.state}"] if report.state else []
    if report.session not in ("", "connected"):
        said.append(f"its session with ZooKeeper is {report.session}")
    if line := gist_of(report.last_line):
        said.append(f"it says: {line}")
    return f"{found}; {', '.join(said)}" if said else found


def _waiting(pod: Obj, status: Obj, reason: str) -> str:
    """The reason for which a container waits, with the missing image or the kubelet's message."""
    if reason in ("ErrImagePull", "ImagePullBackOff", "InvalidImageName"):
        images = [
            container.get("image")
            for container in dig(pod, "spec", "containers") or []
            if container.get("name") == status.get("name")
        ]
        return f"{reason}: {images[0]}" if images else reason
    message = dig(status, "state", "waiting", "message")
    return f"{reason}: {str(message)[:MESSAGE_LENGTH]}" if message and reason != "CrashLoopBackOff" else reason


def _end(status: Obj) -> str:
    ended = dig(status, "state", "terminated") or dig(status, "lastState", "terminated")
    if ended is None or ended.get("exitCode") == 0:
        return ""
    gist = gist_of(str(ended.get("message") or ""))
    if not gist:
        gist = f"{ended.get('reason') or 'Error'}, exit code {ended.get('exitCode')}"
    return f"; it ended with: {gist}"


_TIME = re.compile(r"^\d{4}-\d\d-\d\d[T ][\d:.,]+Z?\s+")


def gist_of(message: str) -> str:
    """The line of a termination message with the cause: of a log the last line, or the last `Caused by`.

    Without the time of the line: status would change with every restart.

    >>> gist_of("2026-11-21T20:27:41.866Z CRITICAL [broker 5] ottla: no log directory is left\\n")
    'CRITICAL [broker 5] ottla: no log directory is left'
    >>> gist_of("2026-11-21 20:27:41,866 ERROR Main Invalid\\nX: e\\n\\tat a.b\\nCaused by: Y: no port\\n\\tat c.d\\n"
    ...         "2026-11-21 20:27:41,867 ERROR ServiceUtils Exiting JVM with code 2\\n")
    'Y: no port'
    >>> gist_of("")
    ''
    """
    lines = [line.rstrip() for line in message.splitlines() if line.strip() and not line[0].isspace()]
    causes = [line.removeprefix("Caused by: ") for line in lines if line.startswith("Caused by: ")]
    said = causes or [line for line in lines if "Exiting JVM with code" not in line] or [""]
    return _TIME.sub("", said[-1])[:MESSAGE_LENGTH]
