"""Preferred leader elections outside of rolls: after drains and crashes, once every broker is ready again.

During a roll the roller restores each broker's leaderships before it restarts the next one (`roller.machine`): a
leadership that moves to a broker that restarts next would move twice. With auto.leader.rebalance.enable=false the
operator asks for no election, during a roll neither.
"""

from __future__ import annotations

from collections.abc import Collection

from ottla_operator.api import names
from ottla_operator.api.objects import POD, has_condition, is_terminating
from ottla_operator.planning.snapshot import Snapshot
from ottla_operator.roller.leader_elections import PartitionId, restorable, step

AUTO_REBALANCE = "auto.leader.rebalance.enable"
SOON_S = 1.0


def restores_leaders(snapshot: Snapshot) -> bool:
    """Whether the operator may ask for elections: auto.leader.rebalance.enable, true by default."""
    return str(snapshot.cluster.brokers.config.get(AUTO_REBALANCE, "true")).strip().lower() != "false"


def decide_elections(snapshot: Snapshot, broker_ids: Collection[int], *, is_rolling: bool) -> tuple[PartitionId, ...]:
    """The partitions to ask an election for now. Ordered checks."""
    if is_rolling or snapshot.kafka is None or not restores_leaders(snapshot):
        return ()
    for broker_id in broker_ids:
        pod = snapshot.get(POD, names.pod_of(names.broker_name(snapshot.cluster.name, broker_id)))
        if pod is None or is_terminating(pod) or not has_condition(pod, "Ready"):
            return ()  # wait until it is back: no leadership moves twice
    if not set(broker_ids) <= set(snapshot.kafka.brokers):
        return ()
    return step(restorable(snapshot.kafka, broker_ids, snapshot.refused_elections))
