"""What makes replicas move: brokers that join and leave, skew, drained disks and nodes, moves that take their time."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import initialize, rule

from ottla_operator.api import names
from ottla_operator.api.objects import NODE, POD, dig, label, name_of
from ottla_operator.ports import ApiError
from tests.operator.model_based.fleet_rules import FleetRules
from tests.operator.model_based.world import UNSEEN_S

DISKS = ("d0", "d1")
SIZES = (0, 1 << 20, 40 << 30)


def disks(drained: str = "") -> list[dict[str, Any]]:
    """spec.brokers.disks."""
    return [
        {"name": name, "size": "100Gi", **({"state": "Drain"} if name == drained else {})} for name in DISKS
    ]  # fmt: skip


class MoveRules(FleetRules):
    """Rules only; the world is the machine's."""

    @initialize(what=st.sampled_from(("nothing", "join", "leave", "skew", "drain", "replace")))
    def begins_with(self, what: str) -> None:
        """Something to move, so that the other rules come while it moves."""
        if what in ("join", "leave"):
            self.brokers_join_or_leave(5 if what == "join" else 2)
        elif what == "skew":
            self.somebody_puts_every_replica_on_two_brokers(0, 1)
        elif what == "drain":
            self.drain_a_disk("d0")
        elif what == "replace":
            self.replace_a_disk_of_a_broker(1, "d0", 2)
        self.world.advance(5.0)

    @rule(count=st.sampled_from((2, 3, 3, 4, 5)))
    def brokers_join_or_leave(self, count: int) -> None:
        self.world.edit("spec.brokers.replicas", count)
        self.spec_changed_at = self.world.loop.time()

    @rule(mode=st.sampled_from((None, None, "DryRun", "Off")), throttle=st.sampled_from((None, "0", "10Mi")))
    def change_the_rebalance(self, mode: str | None, throttle: str | None) -> None:
        chosen = {key: value for key, value in (("mode", mode), ("throttle", throttle)) if value is not None}
        self.world.edit("spec.rebalance", chosen or None)
        self.spec_changed_at = self.world.loop.time()

    @rule(drained=st.sampled_from(("", "", *DISKS)))
    def drain_a_disk(self, drained: str) -> None:
        self.world.edit("spec.brokers.disks", disks(drained))

    @rule(broker=st.integers(0, 2), disk=st.sampled_from(DISKS), generation=st.sampled_from((1, 2, 3)))
    def replace_a_disk_of_a_broker(self, broker: int, disk: str, generation: int) -> None:
        override = {"id": broker, "disks": [{"name": disk, "generation": generation}]}
        self.world.edit("spec.brokers.overrides", [override])

    @rule(hours=st.sampled_from((5, 6, 7)))
    def change_a_key_that_needs_a_roll(self, hours: int) -> None:
        self.world.edit("spec.brokers.config", {"log.retention.hours": hours})

    @rule(first=st.integers(0, 4), second=st.integers(0, 4))
    def somebody_puts_every_replica_on_two_brokers(self, first: int, second: int) -> None:
        """With Kafka's own tools, and done at once."""
        kafka = self.world.kafka
        if first != second and {first, second} <= set(kafka.ready_brokers()) and not kafka.moving:
            kafka.partitions = [(topic, index, (first, second)) for topic, index, _ in kafka.partitions]
            self.world.fleet_changed_at = self.world.loop.time()

    @rule(index=st.integers(0, 5), wanted=st.tuples(st.integers(0, 4), st.integers(0, 4)))
    def somebody_reassigns_a_partition(self, index: int, wanted: tuple[int, int]) -> None:
        kafka = self.world.kafka
        topic, number, replicas = kafka.partitions[index]
        if len(set(wanted)) == 2 and set(wanted) <= set(kafka.ready_brokers()) and (topic, number) not in kafka.moving:
            kafka.moving[topic, number] = (replicas, wanted)
            kafka._replace(topic, number, (*wanted, *(one for one in replicas if one not in wanted)))
            self.world.fleet_changed_at = self.world.loop.time()

    @rule(topic=st.sampled_from(("data", "logs")), size=st.sampled_from(SIZES))
    def a_topic_grows(self, topic: str, size: int) -> None:
        self.world.kafka.sizes[topic] = size

    @rule(slow=st.booleans())
    def moves_take_their_time(self, slow: bool) -> None:
        self.world.kafka.finishes_moves = not slow
        self.world.kafka.moves_are_slow = slow

    @rule()
    def moves_are_done(self) -> None:
        self.finish_moves()

    @rule(index=st.integers(0, 2))
    def a_node_is_drained(self, index: int) -> None:
        """`kubectl drain`: cordons the node, and evicts what disruption budgets let go."""
        world = self.world
        node = world.all(NODE)[index]
        world.put({**node, "spec": {"unschedulable": True}})
        for pod in world.all(POD):
            number = label(pod, names.BROKER_ID)
            if number is None or dig(pod, "spec", "nodeName") != name_of(node):
                continue
            is_known = world.loop.time() - max(world.fleet_changed_at, world.behind_since) >= UNSEEN_S
            before = world.is_below_minimum(int(number), {int(number)})
            try:
                world.kubernetes.evict(name_of(pod))
            except ApiError:
                continue
            if is_known and before and world.process.alive:
                world.violations.append(f"a budget lets broker {number} go: {before}")
            world.behind_since = world.fleet_changed_at = world.loop.time()

    @rule()
    def nodes_are_uncordoned(self) -> None:
        for node in self.world.all(NODE):
            self.world.put({**node, "spec": {}})

    def finish_moves(self) -> None:
        """Replicas have arrived, on other brokers and in other log directories."""
        kafka = self.world.kafka
        kafka.finish_moves()
        kafka.places |= kafka.moving_log_dirs
        kafka.moving_log_dirs = {}
