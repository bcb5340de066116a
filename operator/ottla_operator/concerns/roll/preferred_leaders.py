"""Preferred leader elections outside of rolls: after drains and crashes, once every broker is ready again.

During a roll the roller restores each broker's leaderships before it restarts the next one (`concerns.roll.machine`): a
leadership that moves to a broker that restarts next would move twice. With auto.leader.rebalance.enable=false the
operator asks for no election, during a roll neither.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from ottla_operator.api import names
from ottla_operator.api.objects import POD, has_condition, is_terminating
from ottla_operator.concerns.roll.leader_elections import restorable, step
from ottla_operator.concerns.roll.observation import RollObservation
from ottla_operator.facts.fleet_values import PartitionId
from ottla_operator.facts.snapshot import Snapshot
from ottla_operator.objects.pods import is_reachable

AUTO_REBALANCE = "auto.leader.rebalance.enable"
SOON_S = 1.0


def restores_leaders(snapshot: Snapshot) -> bool:
    """Whether the operator may ask for elections: auto.leader.rebalance.enable, true by default."""
    return str(snapshot.cluster.brokers.config.get(AUTO_REBALANCE, "true")).strip().lower() != "false"


class Elections(NamedTuple):
    """`partitions`: whose preferred leaders to ask for now. `requeue_after_s`: until the next decision."""

    partitions: tuple[PartitionId, ...] = ()
    requeue_after_s: float | None = None


def decide_elections(
    snapshot: Snapshot, broker_ids: Collection[int], observation: RollObservation, *, is_rolling: bool
) -> Elections:
    """The elections outside of rolls. Ordered checks."""
    if is_rolling or snapshot.kafka is None or not restores_leaders(snapshot):
        return Elections()
    are_reachable = True
    for broker_id in broker_ids:
        pod = snapshot.get(POD, names.pod_of(names.broker_name(snapshot.cluster.name, broker_id)))
        if pod is None or is_terminating(pod) or not has_condition(pod, "Ready"):
            return Elections()  # wait until it is back: no leadership moves twice
        are_reachable = are_reachable and is_reachable(pod, snapshot.now)
    if not set(broker_ids) <= set(snapshot.kafka.brokers):
        return Elections()
    to_elect = step(restorable(snapshot.kafka, broker_ids, observation.refused_elections))
    return Elections(to_elect if are_reachable else (), SOON_S if to_elect else None)
