"""The leaderships of a run, from the coordination store: leader and ISR of each partition in each leader epoch.

It checks every change of a state znode at once, and records a problem of the run for: an ISR outside the assignment, a
leader outside the ISR, an epoch that decreases or has two leaders, two controllers with one epoch, a reassignment that
ends before all target replicas are in sync. `oracle` compares the state of the brokers with it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from ottla_broker.coordination import znodes
from simulation.checker import Partition
from simulation.coordination import SimulatedStore
from simulation.world import World

_STATE = re.compile(r"/brokers/topics/([^/]+)/partitions/(\d+)/state")
_TOPIC = re.compile(r"/brokers/topics/([^/]+)")
_NO_TOPIC = znodes.TopicAssignment({})
NOBODY = -1


@dataclass(frozen=True, slots=True)
class Leadership:
    """One state znode, and since when it stands."""

    leader: int
    epoch: int
    in_sync: tuple[int, ...]
    since_s: float


Observer = Callable[[Partition, Leadership | None, Leadership | None], None]
"""(partition, before, after); None where the node was not or is not there any more."""


class Leaderships:
    """See the module. `states` has every partition that has a state znode now."""

    def __init__(self, world: World, store: SimulatedStore) -> None:
        self.world = world
        self.store = store
        self.states: dict[Partition, Leadership] = {}
        self.observers: list[Observer] = []
        self.before_change: Callable[[], None] = lambda: None
        """Called while `states` still tells what was before."""
        self.unclean_allowed: dict[str, None] = {}
        """Topics of which somebody has asked for, or configured, elections outside the ISR."""
        self.unclean_elections = 0
        self.changed_at: dict[Partition, float] = {}
        """When a partition last got another leader or epoch."""
        self.controller_changed_at = -1.0
        self._assignments: dict[str, znodes.TopicAssignment] = {}
        self._leaders: dict[Partition, dict[int, int]] = {}
        self._controllers: dict[int, int] = {}
        store.observers.append(self._on_change)

    def leads(self, partition: Partition, epoch: int, broker: int) -> None:
        """A broker believes to lead in this epoch."""
        known = self._leaders.setdefault(partition, {}).setdefault(epoch, broker)
        if known != broker:
            self._problem(partition, f"brokers {known} and {broker} both lead in epoch {epoch}")

    def is_deleting(self, topic: str) -> bool:
        """Its deletion has been asked for: brokers may have deleted what their controller still has them lead."""
        return self.store.data(znodes.delete_topic_path(topic)) is not None

    def min_in_sync(self, partition: Partition, defaults: Mapping[str, str]) -> int:
        """So many replicas must hold what is committed: min.insync.replicas, at most as many as there are, before and
        after a reassignment. `defaults` are the brokers' settings."""
        name = "min.insync.replicas"
        path = znodes.config_path("topics", partition[0])
        config = self.store.data(path)
        wanted = {**defaults, **({} if config is None else znodes.decode_config(path, config))}.get(name, "1")
        topic = self._assignments.get(partition[0], _NO_TOPIC)
        replicas = topic.partitions.get(partition[1], ())
        changing = (topic.adding_replicas.get(partition[1], ()), topic.removing_replicas.get(partition[1], ()))
        return min(int(wanted), *(len(replicas) - len(some) for some in changing))

    def _on_change(self, path: str) -> None:
        if path.endswith("/state"):
            found = _STATE.fullmatch(path)
            if found is not None:
                self._on_state((found[1], int(found[2])), path)
        elif (topic := _TOPIC.fullmatch(path)) is not None:
            self._on_topic(topic[1], path)
        elif path == znodes.CONTROLLER:
            self._on_controller()

    def _on_controller(self) -> None:
        self.controller_changed_at = self.world.loop.time()
        session = self.store.owner(znodes.CONTROLLER)
        epoch = self.store.data(znodes.CONTROLLER_EPOCH)
        if session and epoch is not None:
            number = znodes.decode_controller_epoch(epoch)
            if self._controllers.setdefault(number, session) != session:
                self.world.problem(f"two sessions were controller in epoch {number}")

    def _on_state(self, partition: Partition, path: str) -> None:
        self.before_change()
        before = self.states.get(partition)
        data = self.store.data(path)
        if data is None:
            # The topic is gone; one of its name would start again.
            self.states.pop(partition, None)
            self.changed_at.pop(partition, None)
            self._leaders.pop(partition, None)
            self._tell(partition, before, None)
            return
        state = znodes.PartitionStateZnode.decode(*partition, data)
        after = Leadership(state.leader, state.leader_epoch, state.isr, self.world.loop.time())
        self.states[partition] = after
        self._check(partition, before, after)
        if before is None or before.epoch != after.epoch or before.leader != after.leader:
            self.changed_at[partition] = after.since_s
        if after.leader >= 0:
            self.leads(partition, after.epoch, after.leader)
        self._tell(partition, before, after)

    def _on_topic(self, name: str, path: str) -> None:
        before = self._assignments.pop(name, None)
        data = self.store.data(path)
        if data is None:
            return
        after = self._assignments[name] = znodes.TopicAssignment.decode(name, data)
        for number in sorted(after.partitions):
            state = self.states.get((name, number))
            if state is None:
                continue
            self._check_strangers((name, number), state)
            if before is not None and _is_end(before, after, number):
                missing = [broker for broker in after.partitions[number] if broker not in state.in_sync]
                if missing:
                    replicas = list(after.partitions[number])
                    self._problem((name, number), f"is reassigned to {replicas}, and {missing} are not in the ISR")

    def _check_strangers(self, partition: Partition, state: Leadership) -> None:
        topic = self._assignments.get(partition[0])
        if topic is not None:
            replicas = topic.partitions.get(partition[1], ())
            strangers = [broker for broker in state.in_sync if broker not in replicas]
            if strangers:
                self._problem(partition, f"{strangers} are in the ISR and hold no replica ({list(replicas)})")

    def _check(self, partition: Partition, before: Leadership | None, after: Leadership) -> None:
        self._check_strangers(partition, after)
        if not after.in_sync:
            self._problem(partition, "the ISR is empty")
        if after.leader != NOBODY and after.leader not in after.in_sync:
            self._problem(partition, f"leader {after.leader} is not in the ISR {list(after.in_sync)}")
        if before is None:
            return
        if after.epoch < before.epoch:
            self._problem(partition, f"the leader epoch went back from {before.epoch} to {after.epoch}")
        if after.leader != before.leader and after.leader != NOBODY:
            if after.epoch == before.epoch:
                self._problem(partition, f"epoch {after.epoch} has the leaders {before.leader} and {after.leader}")
            if after.leader not in before.in_sync:
                self.unclean_elections += 1
                if partition[0] not in self.unclean_allowed:
                    self._problem(partition, f"{after.leader} leads, and was not in the ISR {list(before.in_sync)}")

    def _tell(self, partition: Partition, before: Leadership | None, after: Leadership | None) -> None:
        for observer in self.observers:
            observer(partition, before, after)

    def _problem(self, partition: Partition, text: str) -> None:
        self.world.problem(f"{partition[0]}-{partition[1]}: {text}")


def _is_end(before: znodes.TopicAssignment, after: znodes.TopicAssignment, number: int) -> bool:
    """Has the reassignment of a partition come to its end? One that is cancelled ends with other replicas."""
    removing = before.removing_replicas.get(number, ())
    target = tuple(broker for broker in before.partitions.get(number, ()) if broker not in removing)
    is_ongoing = after.adding_replicas.get(number) or after.removing_replicas.get(number)
    was_ongoing = before.adding_replicas.get(number) or removing
    return bool(was_ongoing) and not is_ongoing and after.partitions[number] == target
