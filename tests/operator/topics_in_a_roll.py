"""`python -m tests.operator.topics_in_a_roll`: how long until KafkaTopics that are applied during a roll are Ready.

Brokers are real ones, each stopped and started in turn; Kubernetes is the one in memory, each of whose writes takes
`WRITE_S`. Of the operator runs what reconciles KafkaTopics; the roll itself is played here. Prints JSON.
"""

from __future__ import annotations

import argparse
import asyncio
import copy
import json
import logging
import sys
import time
from collections.abc import Sequence
from typing import Any

from ottla.testing import RunningCluster, cluster
from ottla_operator.api import names
from ottla_operator.api.objects import KAFKA_TOPIC, POD, STATEFUL_SET, Obj, dig, new
from ottla_operator.effects.kafka_admin import KafkaPythonAdmin
from ottla_operator.facts.snapshot import ContainerImages
from ottla_operator.ports import KafkaAdmin
from ottla_operator.runtime.object_cache import Key, ObjectCache
from ottla_operator.runtime.supervisor import TaskSupervisor
from tests.operator.fleet import CLUSTER, InMemoryKafka, InMemorySurroundings
from tests.operator.kubernetes import InMemoryKubernetes
from tests.operator.task_contexts import task_context
from tests.operator.topic_fleet import document

BROKERS = 3
WRITE_S = 0.01
MOST_S = 600.0


class _SlowKubernetes(InMemoryKubernetes):
    async def set_finalizers(self, *args: Any, **given: Any) -> Obj:
        await asyncio.sleep(WRITE_S)
        return await super().set_finalizers(*args, **given)

    async def replace_status(self, obj: Obj) -> Obj:
        await asyncio.sleep(WRITE_S)
        return await super().replace_status(obj)

    async def create(self, obj: Obj) -> Obj:
        await asyncio.sleep(WRITE_S)
        return await super().create(obj)


class _RealBrokers(InMemorySurroundings):
    """`bootstrap`: of the brokers that the operator asks, instead of those of Kubernetes."""

    bootstrap: tuple[str, ...] = ()

    def kafka(self, bootstrap: Sequence[str]) -> KafkaAdmin:
        return KafkaPythonAdmin(self.bootstrap)


class _TopicsAlone(TaskSupervisor):
    async def _run_cluster(self, key: Key) -> None:
        """The roll is played, and nothing else of the cluster is the operator's."""


def _show(kubernetes: InMemoryKubernetes, broker: int, *, is_ready: bool) -> None:
    """The pod of a broker, as Kubernetes shows it."""
    name = names.broker_name("orders", broker)
    labels = names.labels("orders", names.BROKER, broker_id=str(broker))
    conditions = [{"type": "Ready", "status": "True" if is_ready else "False"}]
    pod = new(POD, "default", names.pod_of(name), labels, spec={"nodeName": "n1"})
    kubernetes.put({**pod, "status": {"phase": "Running", "conditions": conditions, "podIP": "127.0.0.1"}})


async def measure(fleet: RunningCluster, topics: int, down_s: float, up_s: float) -> dict[str, float]:
    kubernetes = _SlowKubernetes()
    environment = _RealBrokers(kubernetes, InMemoryKafka(kubernetes))
    environment.bootstrap = tuple(fleet.bootstrap.split(","))

    async def may_write() -> None:
        return

    context = task_context(ObjectCache(), kubernetes, environment, time.monotonic)
    supervisor = _TopicsAlone(context, ContainerImages("", ""), reads_nodes=False, may_write=may_write)
    kubernetes.on_change = supervisor.on_event
    kubernetes.put(copy.deepcopy(CLUSTER))
    for broker in range(BROKERS):
        labels = names.labels("orders", names.BROKER, broker_id=str(broker))
        kubernetes.put(new(STATEFUL_SET, "default", names.broker_name("orders", broker), labels, spec={}))
        _show(kubernetes, broker, is_ready=True)
    begun = time.monotonic()

    async def roll() -> float:
        for broker in range(BROKERS):
            _show(kubernetes, broker, is_ready=False)
            await asyncio.to_thread(fleet.stop, broker)
            await asyncio.sleep(down_s)
            await asyncio.to_thread(fleet.start, broker)
            _show(kubernetes, broker, is_ready=True)
            await asyncio.sleep(up_s)
        return time.monotonic() - begun

    rolled = asyncio.create_task(roll())
    await asyncio.sleep(down_s / 2)
    applied = time.monotonic()
    for number in range(topics):
        kubernetes.put(document(f"topic-{number}", partitions=1, replicas=3))

    def ready() -> int:
        found = (kubernetes.there(KAFKA_TOPIC, name) for name in kubernetes.names(KAFKA_TOPIC))
        return sum(1 for obj in found if dig(obj, "status", "conditions", 0, "status") == "True")

    half_s, most = 0.0, applied + MOST_S
    try:
        while (count := ready()) < topics and time.monotonic() < most:
            half_s = half_s or (time.monotonic() - applied if count >= topics / 2 else 0.0)
            await asyncio.sleep(0.25)
        all_s = time.monotonic() - applied
        roll_s = await rolled
    finally:
        await supervisor.close()
    return {
        "topics": topics, "ready": ready(), "half_s": round(half_s, 1), "all_s": round(all_s, 1),
        "roll_s": round(roll_s, 1), "writes": len(kubernetes.writes), "cpu_s": round(time.process_time(), 1),
    }  # fmt: skip


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--topics", type=int, default=300)
    arguments.add_argument("--down", type=float, default=8.0, help="seconds that a broker is away beside its restart")
    arguments.add_argument("--up", type=float, default=6.0, help="seconds until the next broker is stopped")
    given = arguments.parse_args()
    logging.disable(logging.CRITICAL)
    with cluster(brokers=BROKERS, racks=BROKERS) as fleet:
        sys.stdout.write(json.dumps(asyncio.run(measure(fleet, given.topics, given.down, given.up))) + "\n")


if __name__ == "__main__":
    main()
