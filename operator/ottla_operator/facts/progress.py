"""What a roll excuses: the members that it restarts now, as long as the restart progresses.

A roll stops one batch of pods at a time, which is no failure. Everything else makes a condition False, whatever
status.roll says: a container in a crash loop, an image that cannot be pulled, a pod that cannot be scheduled, a step
that takes too long, and a fleet without a ready member.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ottla_operator.api.objects import Obj, dig, has_condition, is_terminating, label
from ottla_operator.api.times import seconds_between
from ottla_operator.facts.snapshot import Snapshot

STARTING = ("ContainerCreating", "PodInitializing")
"""The reasons for which a starting container waits. Any other reason of waiting is an error."""
PATIENCE_S = 120.0
"""How long one step of a roll may take before it counts as blocked. A restart takes 5 to 30 s."""


def excused(snapshot: Snapshot, role: str, pods: Mapping[int, Obj | None]) -> tuple[int, ...]:
    """The members of `pods` whose missing readiness the roll in status excuses.

    None while no pod of the role is ready: then no client is served, for whatever reason.
    """
    if not any(pod is not None and has_condition(pod, "Ready") and not is_terminating(pod) for pod in pods.values()):
        return ()
    lasted = seconds_between(str(snapshot.status("roll", "since") or ""), snapshot.now)
    if lasted is None or lasted > PATIENCE_S:
        return ()
    return tuple(number for number in snapshot.rolling(role) if number in pods and is_progressing(pods[number]))


def is_progressing(pod: Obj | None) -> bool:
    """Whether a pod that is not ready may become ready by itself: it is absent, terminating or starts.

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


def is_running(pod: Obj) -> bool:
    """Whether the container of the broker or server may run: the node has not reported that it waits or has ended.

    Other containers in the pod do not matter: they hold no replicas.
    """
    component = label(pod, "app.kubernetes.io/component")
    statuses = dig(pod, "status", "containerStatuses") or []
    containers = [one for one in statuses if one.get("name") == component] or statuses
    on_node = dig(pod, "spec", "nodeName") is not None
    return on_node and (not containers or any(dig(one, "state", "running") is not None for one in containers))


def unready_are_down(pods: Iterable[Obj | None]) -> bool:
    """Whether there are pods that are not ready, and the container of each of these has failed and does not run: they
    serve nothing and recover nothing, so an eviction takes nothing away.

    A container that runs may be recovering its logs, whatever happened to it before.
    """
    unready = [pod for pod in pods if pod is not None and not is_terminating(pod) and not has_condition(pod, "Ready")]
    return bool(unready) and not any(is_running(pod) or is_progressing(pod) for pod in unready)
