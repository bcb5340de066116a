"""What a roll excuses: one member that is down because it has its turn, as long as it progresses.

A condition tells the truth about now. A roll takes one pod away at a time, which is no failure; everything else is,
whatever status.roll says: a container that ends again and again, an image that cannot be pulled, a pod that no node
takes, a step that lasts, and a fleet of which nobody is ready.
"""

from __future__ import annotations

from collections.abc import Mapping

from ottla_operator.api.objects import Obj, dig, has_condition, is_terminating
from ottla_operator.api.times import seconds_between
from ottla_operator.planning.snapshot import Snapshot

STARTING = ("ContainerCreating", "PodInitializing")
"""What a container waits for on its way up. Any other reason of waiting is an error that Kubernetes names."""
PATIENCE_S = 120.0
"""How long one step of a roll may take before it counts as an obstacle. A restart takes 5 to 30 s."""


def excused(snapshot: Snapshot, role: str, pods: Mapping[int, Obj | None]) -> tuple[int, ...]:
    """The members of `pods` that are not ready because of the roll that status tells of, and are no failure.

    Nobody when no pod of the role is ready: then nothing is served, by intent or not.
    """
    if not any(pod is not None and has_condition(pod, "Ready") and not is_terminating(pod) for pod in pods.values()):
        return ()
    lasted = seconds_between(str(snapshot.status("roll", "since") or ""), snapshot.now)
    if lasted is None or lasted > PATIENCE_S:
        return ()
    return tuple(number for number in snapshot.rolling(role)[:1] if number in pods and is_progressing(pods[number]))


def is_progressing(pod: Obj | None) -> bool:
    """Whether a pod that is not ready may become so by itself: it is going, coming, or starts for the first time.

    >>> is_progressing({"metadata": {}, "status": {"containerStatuses": [{"state": {"running": {}}}]}})
    True
    >>> waiting = {"waiting": {"reason": "CrashLoopBackOff"}}
    >>> is_progressing({"metadata": {}, "status": {"containerStatuses": [{"state": waiting}]}})
    False
    >>> crashed = {"state": {"running": {}}, "restartCount": 1}
    >>> is_progressing({"metadata": {}, "status": {"containerStatuses": [crashed]}})
    False
    """
    if pod is None or is_terminating(pod):
        return True
    if has_condition(pod, "PodScheduled", "False") or dig(pod, "status", "phase") == "Failed":
        return False
    statuses = [
        *(dig(pod, "status", "initContainerStatuses") or []),
        *(dig(pod, "status", "containerStatuses") or []),
    ]
    for status in statuses:
        waiting = dig(status, "state", "waiting", "reason")
        if waiting is not None and waiting not in STARTING:
            return False
        if dig(status, "state", "terminated", "exitCode") or status.get("restartCount"):
            return False
    return True
