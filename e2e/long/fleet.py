"""The fleet of a long run, and what people do to it."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import yaml

from e2e.installation import Helm, OperatorDeployment, manifests
from e2e.kubernetes_api import Kubernetes, Refused, condition_of, is_ready
from e2e.long.timeline import ChangeLog, FleetChange
from e2e.long.watch import Observation, Watch
from e2e.machine import CommandFailed, kill_and_wait
from e2e.nodes import processes_of_pod
from e2e.providers import KubernetesCluster
from ottla_operator.api.objects import KAFKA_CLUSTER, POD, STATEFUL_SET, Obj, dig, label, uid_of

NAME = "orders"
BROKERS = f"kafka.ottla.dev/cluster={NAME},app.kubernetes.io/component=broker"
BROKER_ID = "kafka.ottla.dev/broker-id"
RACK = "kafka.ottla.dev/rack"
LONGEST_LIFE_S = 30.0
"""Of an operator that is to be killed, from when it is ready. A new one waits up to 14 s for the Lease."""
LONGEST_S = 1800.0
"""For everything that a fleet does by itself: two cores carry a whole cluster, and others may use them."""


@dataclass(frozen=True, slots=True)
class Size:
    """Numbers of brokers and of ZooKeeper servers. `pools`: spec.brokers.pools, which have so many brokers together."""

    brokers: int
    servers: int
    pools: tuple[Obj, ...] = ()

    def __str__(self) -> str:
        pools = "".join(f", {pool['replicas']} of them {pool['name']}" for pool in self.pools)
        return f"{self.brokers} brokers{pools}; {self.servers} ZooKeeper servers"

    def spec(self) -> Obj:
        """The merge patch of spec that asks for it."""
        brokers = {"replicas": None if self.pools else self.brokers, "pools": list(self.pools) or None}
        return {"brokers": brokers, "zookeeper": {"replicas": self.servers}}


class OperatedFleet:
    """The KafkaCluster `orders` and the operator. Everything waits for `LONGEST_S` at most, and raises NotInTime."""

    def __init__(self, kubernetes: Kubernetes, cluster: KubernetesCluster) -> None:
        self.kubernetes = kubernetes
        self.cluster = cluster
        self.operator = OperatorDeployment(kubernetes)

    def install(self, size: Size) -> None:
        """The operator and the fleet of manifests/, with that many members; also where both are there already."""
        Helm(self.cluster).install()
        self.operator.until_ready()
        if self.kubernetes.get(KAFKA_CLUSTER, NAME) is not None:
            self.resize(size)
        self.kubernetes.kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", text=self._document(size))
        self.until_ready()

    def resize(self, size: Size) -> None:
        """Asks for that many members and waits until they are all there, and everybody has a share.

        A fleet without pools first gets as many brokers as the first pool has: the others would join the other pools.
        """
        if size.pools and not dig(self.kubernetes.there(KAFKA_CLUSTER, NAME), "spec", "brokers", "pools"):
            self.resize(Size(size.pools[0]["replicas"], size.servers))
        self.patch(size.spec())
        self.until_ready()

    def patch(self, spec: Obj) -> None:
        """A merge patch of spec."""
        self.kubernetes.patch(KAFKA_CLUSTER, NAME, {"spec": spec})

    def configure(self, config: Mapping[str, Any]) -> None:
        """Other keys of the brokers' configuration: a roll."""
        self.patch({"brokers": {"config": dict(config)}})

    def until_ready(self) -> None:
        """Waits until the fleet is as declared: Ready, rolled, nothing left to move."""
        self.kubernetes.until_ready(NAME, timeout_s=LONGEST_S)
        self.until(lambda: self.status().get("rebalance") is None, "nothing is left to move")
        self.kubernetes.until_ready(NAME, timeout_s=LONGEST_S)

    def until(self, holds: Any, what: str) -> None:
        self.kubernetes.until(holds, what, LONGEST_S)

    def status(self) -> Obj:
        return dict(self.kubernetes.there(KAFKA_CLUSTER, NAME).get("status") or {})

    def roll(self) -> Obj:
        return dict(self.status().get("roll") or {})

    def condition(self, kind: str) -> Obj:
        return condition_of(self.kubernetes.there(KAFKA_CLUSTER, NAME), kind)

    def pods(self) -> dict[int, Obj]:
        """The pods of brokers by id."""
        return {int(label(pod, BROKER_ID) or -1): pod for pod in self.kubernetes.list(POD, selector=BROKERS)}

    def uids(self) -> dict[int, str]:
        return {broker: uid_of(pod) for broker, pod in self.pods().items()}

    def racks(self) -> dict[int, str]:
        sets = self.kubernetes.list(STATEFUL_SET, selector=BROKERS)
        return {int(label(one, BROKER_ID) or -1): label(one, RACK) or "" for one in sets}

    def _wanted(self) -> set[int]:
        """The brokers that should run: one that the operator has stopped to remove it is empty."""
        sets = self.kubernetes.list(STATEFUL_SET, selector=BROKERS)
        return {int(label(one, BROKER_ID) or -1) for one in sets if dig(one, "spec", "replicas")}

    def node_of(self, pod: str) -> str:
        return str(dig(self.kubernetes.there(POD, pod), "spec", "nodeName"))

    @contextmanager
    def watched(self) -> Iterator[list[Observation]]:
        """Fills the list with what was seen, at the end."""
        found: list[Observation] = []
        watch = Watch(self._look, (Refused, CommandFailed, AssertionError))
        watch.start()
        try:
            yield found
        finally:
            found += watch.stop()

    @contextmanager
    def followed(self) -> Iterator[list[FleetChange]]:
        """Fills the list with every change, at the end."""
        found: list[FleetChange] = []
        log = ChangeLog(self.kubernetes, NAME, BROKERS, BROKER_ID)
        log.start()
        try:
            yield found
        finally:
            found += log.stop()

    def kill_operator(self) -> None:
        """SIGKILL to its processes, as when it runs out of memory; and another pod, without the kubelet's back-off."""
        for pod in self.operator.pods():
            kill_and_wait(processes_of_pod(uid_of(pod)))
        self.operator.kill()

    def kill_operator_until(self, holds: Any, what: str, draw: random.Random, kills: int) -> int:
        """Kills the operator at random times until a condition holds, `kills` times at most. Returns how often."""
        done = 0
        next_kill = time.monotonic()

        def holds_or_kill() -> bool:
            nonlocal done, next_kill
            if holds():
                return True
            if done < kills and time.monotonic() >= next_kill:
                self.kill_operator()
                self.operator.until_ready()
                done += 1
                next_kill = time.monotonic() + draw.uniform(0.0, LONGEST_LIFE_S)
            return False

        self.until(holds_or_kill, what)
        return done

    def _look(self) -> tuple[str, tuple[int, ...], frozenset[int]]:
        roll, pods = self.roll(), self.pods()
        is_of_brokers = roll.get("role") == "broker"
        down = frozenset(broker for broker in self._wanted() if not is_ready(pods.get(broker)))
        step, batch = (str(roll["step"]), tuple(roll["batch"])) if is_of_brokers else ("", ())
        return step, batch, down

    def _document(self, size: Size) -> str:
        found = yaml.safe_load(manifests(self.cluster, "cluster.yaml"))
        spec = found["spec"]
        for part, change in size.spec().items():
            spec[part] = {field: value for field, value in {**spec[part], **change}.items() if value is not None}
        for disk in (*spec["brokers"]["disks"], spec["zookeeper"]["disk"]):
            disk["onFailure"] = "Replace"
        spec["brokers"]["config"]["group.coordinator.rebalance.protocols"] = "classic,consumer"
        spec["rebalance"] = {"mode": "Auto"}
        return yaml.safe_dump(found)
