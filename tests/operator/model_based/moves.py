"""A KafkaCluster of two disks a broker, whose replicas the operator moves."""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

from ottla_operator.api import names
from ottla_operator.api.objects import CLAIM, POD, Obj, annotation, dig, has_condition, label, name_of
from ottla_operator.facts.broker_claims import log_dir
from ottla_operator.facts.fleet_values import MoveRequests
from ottla_operator.facts.intervals import RESYNC_S
from tests.operator.fleet import THROTTLE_RATES
from tests.operator.model_based.cluster_invariants import violations_of_cluster
from tests.operator.model_based.clusters import OWN_ENSEMBLE
from tests.operator.model_based.move_rules import MoveRules, disks
from tests.operator.model_based.world import UNSEEN_S

PARTITIONS = [
    ("data", 0, (0, 1)), ("data", 1, (1, 2)), ("data", 2, (2, 0)),
    ("logs", 0, (0, 2)), ("logs", 1, (1, 0)), ("logs", 2, (2, 1)),
]  # fmt: skip
MOST_DIFFERENCE = 2
"""The largest difference between the numbers of replicas of two brokers that are in balance."""


def _two_disks() -> dict[str, Any]:
    document = copy.deepcopy(OWN_ENSEMBLE)
    document["spec"]["brokers"] |= {"replicas": 3, "disks": disks()}
    document["spec"]["zookeeper"] = {"connect": "zk:2181"}
    return document


class MoveMachine(MoveRules):
    """`spec_changed_at`: when a rule last changed what the operator may move."""

    document: ClassVar[dict[str, Any]] = _two_disks()
    rest_s: ClassVar[float] = RESYNC_S + 20

    def __init__(self) -> None:
        super().__init__()
        self.spec_changed_at = 0.0
        kafka, kubernetes = self.world.kafka, self.world.kubernetes
        kafka.partitions = list(PARTITIONS)
        move, is_deleted, changed = kafka.move, kubernetes.before_delete, kubernetes.on_change
        assert is_deleted is not None and changed is not None, "the world sets them"

        async def checked_move(requests: MoveRequests) -> Mapping[tuple[str, int], str]:
            self.world.violations += self._wrong_moves(requests)
            return await move(requests)

        def before_delete(obj: Obj) -> None:
            self.world.violations += self._acts_at_once(obj)
            is_deleted(obj)

        def on_change(event: str, obj: Obj) -> None:
            if event == "MODIFIED" and obj["kind"] == CLAIM.kind:
                self.world.violations += self._lost_replicas(obj)
            changed(event, obj)

        kafka.move = checked_move  # type: ignore[method-assign]
        kubernetes.before_delete, kubernetes.on_change = before_delete, on_change

    def violations(self) -> Iterator[str]:
        yield from violations_of_cluster(self.world)
        yield from self._not_moved()

    def at_rest(self) -> None:
        self.world.kafka.finishes_moves, self.world.kafka.moves_are_slow = True, False
        self.finish_moves()
        self.nodes_are_uncordoned()
        super().at_rest()

    # What must never happen

    def _wrong_moves(self, requests: MoveRequests) -> Iterator[str]:
        """Replicas go to brokers that stay, as many as before, and only where spec asks for it."""
        world = self.world
        document = world.cluster
        if document is None or world.loop.time() - max(self.spec_changed_at, world.fleet_changed_at) < UNSEEN_S:
            return
        there = {(topic, index): replicas for topic, index, replicas in world.kafka.partitions}
        staying = range(dig(document, "spec", "brokers", "replicas"))
        for partition, target in requests.reassign.items():
            if target is None or partition not in there or partition in world.kafka.moving:
                continue
            before, said = there[partition], f"{partition[0]}-{partition[1]} goes from {there[partition]} to {target}"
            if len({*target}) != len(before):
                yield f"{said}: another number of replicas"
            if {*target} - {*before} - {*staying}:
                yield f"{said}: a broker that leaves"
            if {*target} != {*before} and dig(document, "spec", "rebalance", "mode") not in (None, "Auto"):
                yield f"{said}, and spec.rebalance.mode does not ask for it"

    def _acts_at_once(self, obj: Obj) -> Iterator[str]:
        """The operator deletes the pod or the claim of a broker only while every other broker is there."""
        world = self.world
        number, document = label(obj, names.BROKER_ID), world.cluster
        changed_at = max(world.fleet_changed_at, world.behind_since, self.spec_changed_at)
        if number is None or document is None or obj["kind"] not in (POD.kind, CLAIM.kind):
            return
        if world.loop.time() - changed_at < UNSEEN_S or world.kafka.unregistered or not world.controllers_run:
            return
        batch = (
            {str(one) for one in dig(document, "status", "roll", "batch") or []} if obj["kind"] == POD.kind else set()
        )
        away = [
            name_of(pod)
            for pod in world.all(POD)
            if (other := label(pod, names.BROKER_ID)) not in (None, number, *batch)
            and int(str(other)) < dig(document, "spec", "brokers", "replicas")
            and not has_condition(pod, "Ready")
        ]
        if away:
            yield f"{obj['kind']} {name_of(obj)} is deleted while {', '.join(away)} is not ready"

    def _lost_replicas(self, claim: Obj) -> Iterator[str]:
        """A volume is given up only when its log directory is empty: none fails here."""
        is_given_up = annotation(claim, names.REPLACED_BY) or annotation(claim, names.REMOVING) == "true"
        number, disk = label(claim, names.BROKER_ID), label(claim, names.DISK)
        if number is None or disk is None or not is_given_up or label(claim, names.RETIRED) is not None:
            return
        kafka = self.world.kafka
        for topic, index, replicas in kafka.partitions:
            key = (int(number), topic, index)
            places = (kafka.places.get(key), kafka.moving_log_dirs.get(key))
            is_seen = self.world.loop.time() - self.world.fleet_changed_at >= UNSEEN_S
            if int(number) in replicas and log_dir(disk) in places and is_seen:
                yield f"claim {name_of(claim)} is given up and has {topic}-{index}"

    # What must be so at rest

    def _not_moved(self) -> Iterator[str]:
        document = self.world.cluster
        assert document is not None, "no rule deletes it"
        kafka = self.world.kafka
        if kafka.throttled_topics or any(THROTTLE_RATES[0] in values for values in kafka.dynamic.values()):
            yield f"throttles are left: {kafka.throttled_topics} {kafka.dynamic}"
        drained = [disk["name"] for disk in dig(document, "spec", "brokers", "disks") if disk.get("state") == "Drain"]
        for number, values in kafka.dynamic.items():
            cordoned = {path for path in values.get("cordoned.log.dirs", "").split(",") if path}
            if wrong := cordoned - {log_dir(disk) for disk in drained}:
                yield f"broker {number} has {', '.join(sorted(wrong))} cordoned"
        for topic, index, replicas in kafka.partitions:
            for number in replicas:
                if kafka.places.get((number, topic, index)) in map(log_dir, drained):
                    yield f"{topic}-{index} is in a log directory of broker {number} that is drained"
        if dig(document, "spec", "rebalance", "mode") not in (None, "Auto"):
            return
        staying = range(dig(document, "spec", "brokers", "replicas"))
        held = Counter(broker for _, _, replicas in kafka.partitions for broker in replicas)
        if kafka.moving:
            yield f"{sorted(kafka.moving)} are still being moved"
        if leaving := set(held) - set(staying):
            yield f"brokers {sorted(leaving)} are to leave and have replicas"
        counts = [held[number] for number in staying]
        if max(counts) - min(counts) > MOST_DIFFERENCE:
            yield f"brokers have {dict(held)} replicas, and {dig(document, 'status', 'rebalance')}"
