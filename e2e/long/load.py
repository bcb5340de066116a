"""The load that runs through all scenarios: a pod with fleet_load.py, and the history that it leaves."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from e2e.client_pod import client_pod
from e2e.kubernetes_api import Kubernetes
from e2e.providers import KubernetesCluster
from ottla_operator.api.objects import KAFKA_TOPIC, POD, Obj
from tests.nemesis import checker, transactions
from tests.nemesis.checker import Finding
from tests.nemesis.history import Event
from tests.nemesis.load import TOPIC
from tests.nemesis.transactional import COPY, LIST_PARTITIONS, LISTS

POD_NAME = "long-load"
PROGRAM = "fleet_load.py"
PARTITIONS = 12
TOPICS = {TOPIC: PARTITIONS, COPY: PARTITIONS, LISTS: LIST_PARTITIONS}
_FILE = "/tmp/history.jsonl"
_COMMAND = f"python3 /opt/client/{PROGRAM} {_FILE} {PARTITIONS}; sleep infinity"
"""The pod outlives the program, so that the history can be taken out of it."""
_START_S = 600.0
_END_S = 3600.0


class LoadEnded(RuntimeError):
    """The program has ended by itself: the message is its last output."""


class FleetLoad:
    """The running program. `progress` is the last line that it printed."""

    def __init__(self, kubernetes: Kubernetes, pod: str) -> None:
        self._kubernetes = kubernetes
        self._pod = pod

    def progress(self) -> dict[str, Any]:
        """{} before the first line. Raises LoadEnded."""
        lines = self._kubernetes.kubectl("logs", self._pod, "--tail", "20").splitlines()
        for line in reversed(lines):
            if line.startswith("{"):
                found: dict[str, Any] = json.loads(line)
                if "ended" in found:
                    raise LoadEnded(str(found["ended"]))
                return found
        if any(line.startswith("Traceback ") for line in lines):  # it has ended before its first line
            raise LoadEnded("\n".join(lines))
        return {}

    def until_more(self, rounds: int = 1, *, timeout_s: float = _START_S) -> None:
        """Waits until everybody has made progress: producers, groups and copier."""
        for _ in range(rounds):
            before = work(self.progress())
            self._kubernetes.until(lambda before=before: self._goes_on(before), "the load goes on", timeout_s)  # type: ignore[misc]

    def _goes_on(self, before: dict[str, int]) -> bool:
        now = work(self.progress())
        return all(now[name] > count for name, count in before.items())

    def stop(self, path: Path) -> dict[str, Any]:
        """Ends producers, waits until all is read and copied, and writes the history to a file. The last line."""
        self._kubernetes.execute(self._pod, "pkill", "-TERM", "-f", f"^python3 .*{PROGRAM}")
        try:
            self._kubernetes.until(lambda: self.progress().get("done"), "everything is read and copied", _END_S)
        finally:
            self.save(path)
        return self.progress()

    def save(self, path: Path) -> None:
        """Copies the history as far as it has come."""
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(self._kubernetes.execute(self._pod, "cat", _FILE, timeout_s=600))


def work(progress: dict[str, Any]) -> dict[str, int]:
    """How far each kind of client has come.

    >>> work({"acknowledged": 4, "read classic-0": 1, "read classic-1": 2, "transactions ok": 1})
    {'acknowledged': 4, 'classic': 3, 'consumer': 0, 'copies': 1}
    """
    groups = {
        group: sum(count for name, count in progress.items() if name.startswith(f"read {group}-"))
        for group in ("classic", "consumer")
    }
    acknowledged, copies = int(progress.get("acknowledged", 0)), int(progress.get("transactions ok", 0))
    return {"acknowledged": acknowledged, **groups, "copies": copies}


@contextmanager
def running_load(kubernetes: Kubernetes, cluster: KubernetesCluster, fleet: str, node: str) -> Iterator[FleetLoad]:
    """The load on its own topics, in a pod on `node`, once everybody has made progress."""
    _clear(kubernetes)
    for name, partitions in TOPICS.items():
        kubernetes.create(_topic(fleet, name, partitions))
    for name in TOPICS:
        kubernetes.until_condition(KAFKA_TOPIC, name, "Ready", timeout_s=_START_S)
    with client_pod(kubernetes, cluster, POD_NAME, fleet, command=("sh", "-c", _COMMAND), node=node) as pod:
        load = FleetLoad(kubernetes, pod)
        load.until_more()
        yield load
    _clear(kubernetes)


def _clear(kubernetes: Kubernetes) -> None:
    """Takes away the pod and the topics, also those of a run that was interrupted."""
    for kind, names in ((POD, (POD_NAME,)), (KAFKA_TOPIC, tuple(TOPICS))):
        for name in names:
            if kubernetes.get(kind, name) is not None:
                kubernetes.delete(kind, name, grace_s=0)
            kubernetes.until(lambda kind=kind, name=name: kubernetes.get(kind, name) is None, f"{name} is gone")  # type: ignore[misc]


def findings(history: list[Event]) -> list[Finding]:
    """Everything that is lost, there twice, out of order, or not given to a group."""
    return [*checker.findings(history), *transactions.findings(history)]


def _topic(fleet: str, name: str, partitions: int) -> Obj:
    return {
        "apiVersion": KAFKA_TOPIC.api_version,
        "kind": KAFKA_TOPIC.kind,
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "clusterRef": {"name": fleet},
            "partitions": partitions,
            "replicas": 3,
            "deletionPolicy": "Delete",  # also of a topic that a run before this one has left
        },
    }
