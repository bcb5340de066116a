"""Several KafkaClusters of one operator: however they roll, get stuck and come back, only so many restart brokers.

Each has a Kubernetes and a Kafka of its own; what they share is what an operator process shares, the turns of rolls.
"""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Sequence

from hypothesis import given, settings
from hypothesis import strategies as st

from ottla_operator.api import names
from ottla_operator.api.objects import KAFKA_CLUSTER, POD, Obj, dig, has_condition, name_of
from ottla_operator.concerns.roll.turns import queued_roll
from ottla_operator.runtime.object_cache import Key, ObjectCache
from ottla_operator.runtime.roll_turns import SILENT_S, RollTurns
from tests.operator.fleet import CLUSTER, Fleet

COUNT = 3
EVENTS = ("change", "step", "wait", "wait long", "break", "mend", "pause", "go on", "restart")
"""What may happen to a cluster; `wait` and `restart` are of the whole operator."""


class _Seat:
    """The turns as the task of one cluster has them: in its own Kubernetes every cluster has the same name."""

    def __init__(self, turns: RollTurns, key: Key) -> None:
        self._turns = turns
        self._key = key

    def ask(self, _: Key, started: str) -> tuple[str, ...]:
        return self._turns.ask(self._key, started)

    def reconciled(self, _: Key) -> None:
        self._turns.reconciled(self._key)


class Operator:
    """An operator with several clusters of three brokers each. `most`: how many may roll at the same time."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.passed_s = 0
        document = copy.deepcopy(CLUSTER)
        document["spec"]["zookeeper"] = {"connect": "zk:2181"}
        self.fleets = [Fleet(copy.deepcopy(document)) for _ in range(COUNT)]
        self.images = 0
        self.restart()

    def restart(self) -> None:
        """A new process: the cache is read again, what it remembered is gone."""
        self.cache = ObjectCache()
        self.reconciled_s = [self.passed_s] * COUNT
        self.turns = RollTurns(self.most, self.cache, self.fleets[0].environment.now, lambda: float(self.passed_s))
        for number, fleet in enumerate(self.fleets):
            fleet.restart_operator()
            fleet.task._turns = _Seat(self.turns, ("n", f"c{number}"))  # type: ignore[assignment]
            self._watch(number)

    def _watch(self, number: int) -> None:
        found = self._cluster(number)
        self.cache.put({**found, "metadata": {**found["metadata"], "namespace": "n", "name": f"c{number}"}})

    def _cluster(self, number: int) -> Obj:
        return self.fleets[number].kubernetes.there(KAFKA_CLUSTER, "orders")

    def let_pass(self, seconds: int) -> None:
        self.passed_s += seconds
        for fleet in self.fleets:
            fleet.environment.passed_s = self.passed_s
            fleet.time = float(self.passed_s)

    async def happen(self, event: str, number: int) -> None:
        fleet = self.fleets[number]
        if event == "change":
            self.images += 1
            fleet.edit("spec.image", f"ottla:next-{self.images}")
        elif event == "wait":
            self.let_pass(5)
        elif event == "wait long":
            self.let_pass(130)
        elif event == "break":
            fleet.kubernetes.refuses_pods = "exceeded quota"
        elif event == "mend":
            fleet.kubernetes.refuses_pods = ""
        elif event in ("pause", "go on"):
            fleet.edit("spec.paused", event == "pause")
        elif event == "restart":
            self.restart()
        self._watch(number)
        if event == "step":
            await self.step(number)

    async def step(self, number: int) -> None:
        """One reconciliation. A batch of running brokers is chosen only while fewer than `most` others restart some."""
        fleet = self.fleets[number]
        before = dig(self._cluster(number), "status", "roll", "batch")
        pods = [fleet.kubernetes.there(POD, name) for name in fleet.kubernetes.names(POD)]
        ready = [name_of(pod) for pod in pods if has_condition(pod, "Ready")]
        others = [other for other in range(COUNT) if other != number and self._restarts(other)]
        await fleet.step()
        self.reconciled_s[number] = self.passed_s
        self._watch(number)
        batch = dig(self._cluster(number), "status", "roll", "batch") or []
        stops = any(names.pod_of(names.broker_name("orders", broker)) in ready for broker in batch)
        if batch and not before and stops:
            assert len(others) < self.most, f"c{number} restarts {batch} while {others} restart some"

    def _restarts(self, number: int) -> bool:
        """Whether a batch of the cluster is under way, is not stuck, and its reconciliations succeed."""
        roll = queued_roll(self._cluster(number), self.fleets[number].environment.now())
        return roll is not None and roll.restarts and self.passed_s - self.reconciled_s[number] < SILENT_S

    async def converge(self) -> None:
        """Once nothing keeps them, all clusters get what they declare."""
        for number, fleet in enumerate(self.fleets):
            fleet.kubernetes.refuses_pods = ""
            fleet.edit("spec.paused", False)
            self._watch(number)
        for _ in range(120):
            for number in range(COUNT):
                await self.step(number)
            self.let_pass(10)
            if all(fleet.condition("Rolled")[0] == fleet.condition("Ready")[0] == "True" for fleet in self.fleets):
                break
        for number, fleet in enumerate(self.fleets):
            assert fleet.condition("Rolled")[0] == "True" and fleet.condition("Ready")[0] == "True", f"c{number}"


async def test_a_roll_that_was_stuck_waits_for_its_turn_again_before_the_next_batch() -> None:
    operator = Operator(1)
    for fleet in operator.fleets:
        await fleet.converge()
    await operator.happen("change", 0)
    await operator.happen("break", 0)
    for _ in range(10):
        await operator.happen("step", 0)
    operator.let_pass(130)
    await operator.happen("step", 0)
    await operator.happen("change", 1)
    for _ in range(6):
        await operator.happen("step", 1)
    assert dig(operator._cluster(1), "status", "roll", "batch"), "the other one has the turn"
    await operator.happen("break", 1)
    await operator.happen("mend", 0)
    for _ in range(30):
        await operator.happen("step", 0)
        operator.let_pass(2)
    assert dig(operator._cluster(0), "status", "roll", "waiting", "reason") == "AwaitingTurn"
    assert dig(operator._cluster(0), "status", "roll", "batchesDone") == 1
    await operator.converge()


@settings(deadline=None, max_examples=15, derandomize=True, database=None)
@given(
    st.integers(1, 2),
    st.lists(st.tuples(st.sampled_from((*EVENTS, *["step"] * 12)), st.integers(0, COUNT - 1)), max_size=80),
)
def test_only_so_many_clusters_restart_brokers_at_a_time_and_all_get_what_they_declare(
    most: int, events: Sequence[tuple[str, int]]
) -> None:
    async def run() -> None:
        operator = Operator(most)
        for fleet in operator.fleets:
            await fleet.converge()
        for event, number in events:
            await operator.happen(event, number)
        await operator.converge()

    asyncio.run(run())
