"""What must hold while brokers are restarted for a change: windows, and the two rolls of an upgrade.

It looks at the KafkaCluster and the pods as they change, and keeps what it has seen.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime, timedelta

from ottla_broker.config import level
from ottla_documents.kafka_cluster import parse_cluster
from ottla_operator.api import names
from ottla_operator.api.objects import KAFKA_CLUSTER, POD, Obj, annotation, dig, has_condition, label, name_of
from ottla_operator.facts.maintenance import is_open

STEPS_BACK = 4


class RestartWatch:
    """Args:
    now, monotonic: the time, as text and in seconds.
    pods: every pod that there is.
    unseen_s: how long before an act the operator may have looked.
    has_failed_volume: whether a volume of a broker is being replaced.
    """

    def __init__(
        self,
        now: Callable[[], str],
        monotonic: Callable[[], float],
        pods: Callable[[], list[Obj]],
        unseen_s: float,
        has_failed_volume: Callable[[int], bool],
    ) -> None:
        self._has_failed_volume = has_failed_volume
        self._now = now
        self._monotonic = monotonic
        self._pods = pods
        self._unseen_s = unseen_s
        self._batch: frozenset[tuple[str, int]] = frozenset()
        self._windows: object = None
        self._windows_at = 0.0
        self._protocol = ""
        self._pod_protocols: dict[str, str] = {}
        self._ready_at: dict[str, float] = {}
        self._started_at = 0.0
        self.highest = ""
        """The highest protocol that a broker of this KafkaCluster has started with."""

    def is_too_low(self, version: str) -> bool:
        """Whether brokers have started with a higher protocol than this one. "": none is declared."""
        return bool(version) and _is_below(version, self.highest)

    def see(self, event: str, obj: Obj) -> Iterator[str]:
        """What is wrong with a change."""
        if obj["kind"] == POD.kind:
            yield from self._see_pod(event, obj)
        elif obj["kind"] == KAFKA_CLUSTER.kind and event == "DELETED":
            self._pod_protocols.clear()
            self._batch, self._protocol, self.highest = frozenset(), "", ""
        elif obj["kind"] == KAFKA_CLUSTER.kind:
            yield from self._see_cluster(obj)

    def _see_pod(self, event: str, pod: Obj) -> Iterator[str]:
        name, protocol = name_of(pod), annotation(pod, names.PROTOCOL) or ""
        if event == "DELETED" or not has_condition(pod, "Ready"):
            self._ready_at.pop(name, None)
        else:
            self._ready_at.setdefault(name, self._monotonic())
        if event != "ADDED" or label(pod, names.BROKER_ID) is None or not protocol:
            return
        self._started_at = self._monotonic()
        before = self._pod_protocols.get(name, "")
        if _is_below(protocol, before):
            yield f"{name} had protocol {before}, and starts with {protocol}"
        self._pod_protocols[name] = protocol
        self.highest = protocol if _is_below(self.highest, protocol) else self.highest

    def _see_cluster(self, cluster: Obj) -> Iterator[str]:
        windows = (dig(cluster, "spec", "maintenanceWindows"), annotation(cluster, names.MAINTENANCE_UNTIL))
        if windows != self._windows:
            self._windows, self._windows_at = windows, self._monotonic()
        role = str(dig(cluster, "status", "roll", "role") or "")
        batch = frozenset((role, number) for number in dig(cluster, "status", "roll", "batch") or ())
        if new := batch - self._batch:
            yield from self._batch_is_chosen(cluster, role, sorted(number for _, number in new))
        self._batch = batch
        protocol = str(dig(cluster, "status", "interBrokerProtocolVersion") or "")
        if self._protocol and _is_below(self._protocol, protocol):
            yield from self._protocol_is_raised(protocol)
        self._protocol = protocol or self._protocol

    def _batch_is_chosen(self, cluster: Obj, role: str, batch: list[int]) -> Iterator[str]:
        """Only within a window, unless that brings back what does not serve."""
        parsed, problems = parse_cluster(cluster)
        has_windows = bool(dig(cluster, "spec", "maintenanceWindows"))
        passed = self._monotonic()
        if not has_windows or passed - self._windows_at < self._unseen_s:
            return
        name_of_member = names.broker_name if role == names.BROKER else names.zookeeper_name
        for number in batch:
            ready_at = self._ready_at.get(names.pod_of(name_of_member(parsed.name, number)))
            if ready_at is None or passed - ready_at < self._unseen_s:
                return
            if role == names.BROKER and self._has_failed_volume(number):
                return
        if any(problem.path.startswith("spec.maintenanceWindows") for problem in problems):
            yield f"{role} {batch} are restarted, and it is not known when they may be"
            return
        now = datetime.fromisoformat(self._now())
        until = _time(annotation(cluster, names.MAINTENANCE_UNTIL) or "")
        for step in range(STEPS_BACK + 1):
            then = now - timedelta(seconds=self._unseen_s * step / STEPS_BACK)
            if (until is not None and then < until) or any(is_open(one, then) for one in parsed.maintenance_windows):
                return
        yield f"{role} {batch} are restarted while no maintenance window is open"

    def _protocol_is_raised(self, protocol: str) -> Iterator[str]:
        """Only once all brokers run one image: an earlier release might not speak it."""
        if self._monotonic() - self._started_at < self._unseen_s:
            return
        images = {dig(pod, "spec", "containers", 0, "image") for pod in self._pods() if label(pod, names.BROKER_ID)}
        if len(images) > 1:
            yield f"the protocol is raised to {protocol} while brokers run {', '.join(map(str, sorted(images)))}"


def _is_below(one: str, other: str) -> bool:
    return (level(one) or (0, 0, 0)) < (level(other) or (0, 0, 0))


def _time(text: str) -> datetime | None:
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        return None
    return found if found.tzinfo is not None else None
