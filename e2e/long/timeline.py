"""Where the seconds of a roll go: the steps of the operator and the states of the pods, as the API server reports them.

`phases` is pure. `ChangeLog` follows the KafkaCluster and the pods of its brokers by watches of their own: what it sees
comes within milliseconds, and costs the machine less than to ask often.
"""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from e2e.kubernetes_api import Kubernetes, Refused, is_ready, is_terminating
from ottla_operator.api.objects import KAFKA_CLUSTER, POD, Obj, ResourceKind, dig, label, name_of, uid_of

BETWEEN = "between batches"
_PODS = ("pods end", "pods are created and start", "brokers start")
PHASES = ("ApplyTemplate", "MoveLeaders", "DeletePod", *_PODS, "WaitReady", "WaitInSync", "RestoreLeaders", BETWEEN)
"""In their order. The step that replaces pods is shown by what its pods wait for; what is left of the steps DeletePod
and WaitReady is the time in which no pod changes: the operator's own."""
_RETRY_S = 0.2


@dataclass(frozen=True, slots=True)
class FleetChange:
    """What the fleet was from `at` on (seconds since the epoch): the step of the roll ("" without one), its batch, and
    of each broker its pod: "ending", "created", "running" or "ready". A pod that is gone is not there."""

    at: float
    step: str
    batch: tuple[int, ...]
    pods: tuple[tuple[int, str], ...]


def phase_of(change: FleetChange) -> str:
    """
    >>> phase_of(FleetChange(1.0, "DeletePod", (0, 3), ((0, "ending"), (3, "ready"))))
    'pods end'
    >>> phase_of(FleetChange(1.0, "WaitReady", (0, 3), ((0, "running"),)))
    'pods are created and start'
    >>> phase_of(FleetChange(1.0, "WaitReady", (0,), ((0, "ready"),)))
    'WaitReady'
    """
    if not change.batch:
        return BETWEEN
    if change.step not in ("DeletePod", "WaitReady"):
        return change.step
    pods = dict(change.pods)
    states = [pods.get(broker, "gone") for broker in change.batch]
    if "ending" in states:
        return _PODS[0]
    if "gone" in states or "created" in states:
        return _PODS[1]
    if "running" in states:
        return _PODS[2]
    return change.step


def phases(changes: Iterable[FleetChange]) -> dict[str, float]:
    """Seconds in each phase, from the choice of the first batch to the end of the last one.

    >>> steps = [(1.0, "PickNext", ()), (2.0, "MoveLeaders", (0,)), (2.5, "PickNext", ()), (3.0, "WaitInSync", (1,))]
    >>> phases(FleetChange(at, step, batch, ()) for at, step, batch in [*steps, (4.0, "PickNext", ()), (5.0, "", ())])
    {'MoveLeaders': 0.5, 'WaitInSync': 1.0, 'between batches': 0.5}
    """
    seen = list(changes)
    of_batches = [number for number, change in enumerate(seen) if change.batch]
    found: dict[str, float] = defaultdict(float)
    if of_batches:
        for change, following in zip(seen[of_batches[0] :], seen[of_batches[0] + 1 : of_batches[-1] + 2], strict=False):
            found[phase_of(change)] += following.at - change.at
    return {name: round(found[name], 3) for name in PHASES if name in found}


class ChangeLog:
    """What changes of a fleet between `start` and `stop`."""

    def __init__(self, kubernetes: Kubernetes, name: str, selector: str, broker_id: str) -> None:
        self._kubernetes = kubernetes
        self._name = name
        self._selector = selector
        self._broker_id = broker_id
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self._roll: Obj = {}
        self._pods: dict[str, Obj] = {}
        self._seen: list[FleetChange] = []

    def start(self) -> None:
        for kind, selector in ((KAFKA_CLUSTER, ""), (POD, self._selector)):
            threading.Thread(target=self._follow, args=(kind, selector), name="timeline", daemon=True).start()

    def stop(self) -> Sequence[FleetChange]:
        """The threads end by themselves, at the next change at the latest."""
        self._stopping.set()
        with self._lock:
            return list(self._seen)

    def _follow(self, kind: ResourceKind, selector: str) -> None:
        while not self._stopping.is_set():
            try:
                for event, obj in self._kubernetes.changes(kind, selector=selector):
                    if self._stopping.is_set():
                        return
                    self._note(event, obj)
            except Refused:
                self._stopping.wait(_RETRY_S)

    def _note(self, event: str, obj: Obj) -> None:
        with self._lock:
            if obj["kind"] == POD.kind:
                if event != "DELETED":
                    self._pods[name_of(obj)] = obj
                elif uid_of(self._pods.get(name_of(obj), obj)) == uid_of(obj):
                    self._pods.pop(name_of(obj), None)
            elif name_of(obj) == self._name:
                self._roll = dig(obj, "status", "roll") or {}
            roll = self._roll if self._roll.get("role") == "broker" else {}
            change = FleetChange(
                time.time(),
                str(roll.get("step", "")),
                tuple(roll.get("batch", ())),
                tuple(sorted((int(label(pod, self._broker_id) or -1), _state(pod)) for pod in self._pods.values())),
            )
            last = self._seen[-1] if self._seen else None
            if last is None or (last.step, last.batch, last.pods) != (change.step, change.batch, change.pods):
                self._seen.append(change)


def _state(pod: Obj) -> str:
    if is_terminating(pod):
        return "ending"
    if is_ready(pod):
        return "ready"
    statuses = dig(pod, "status", "containerStatuses") or []
    return "running" if any(dig(one, "state", "running") is not None for one in statuses) else "created"
