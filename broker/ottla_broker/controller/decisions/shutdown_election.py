"""Decides leaders and ISRs when brokers shut down in an orderly way (controlled shutdown).

Pure. `decide_shutdown_election` takes the assignment, the present leadership and the brokers that shut down, and gives
an Election with a reason. `movable_leaderships` says what a broker should wait for. Not here: writing and sending
(`acts.broker_shutdown`), brokers that are gone without a controlled shutdown (`leader_election`).

The rules
1. A broker that shuts down leaves the ISR too: no record waits for a follower that stops fetching.
2. The next leader is in sync, online and does not shut down; the first such one in the order of the assignment.
3. Nothing changes when no other replica of the ISR stays: the leader leads until it stops, and the first replica of the
   ISR that returns leads next. So a partition with one replica stays where it is.

Worked example: replicas 1, 2, 3, all in sync, broker 1 leads and shuts down.

    >>> from ottla_broker.controller.values import LeaderAndIsr
    >>> before = LeaderAndIsr(leader=1, leader_epoch=4, isr=(1, 2, 3), partition_epoch=7, controller_epoch=1)
    >>> decision = decide_shutdown_election((1, 2, 3), before, online={1, 2, 3}, shutting_down={1})
    >>> decision.leadership.leader, decision.leadership.isr, decision.leadership.leader_epoch
    (2, (2, 3), 5)
    >>> decision.reason
    'leader 1 shuts down: 2 is the first of the ISR 1,2,3 that stays'

Then 3, a follower, shuts down as well; after it broker 2 is the only one left:

    >>> decision = decide_shutdown_election((1, 2, 3), decision.leadership, online={2, 3}, shutting_down={3})
    >>> decision.leadership.leader, decision.leadership.isr, decision.reason
    (2, (2,), '3 shut down: removed from the ISR 2,3')
    >>> decide_shutdown_election((1, 2, 3), decision.leadership, online={2}, shutting_down={2}) is None
    True
"""

from __future__ import annotations

from collections.abc import Sequence, Set

from ottla_broker.controller.context import ControllerContext
from ottla_broker.controller.decisions.leader_election import Election
from ottla_broker.controller.values import LeaderAndIsr
from ottla_broker.records.ids import TopicPartition


def decide_shutdown_election(
    replicas: Sequence[int], current: LeaderAndIsr, *, online: Set[int], shutting_down: Set[int]
) -> Election | None:
    """The leadership without the brokers in `shutting_down`.

    Args:
        online: the brokers whose replica is online, those that shut down included.

    Returns:
        None when nothing changes, or no replica of the ISR stays.
    """
    staying = tuple(broker for broker in current.isr if broker in online and broker not in shutting_down)
    if not staying:
        return None
    if current.leader in staying:
        gone = [broker for broker in current.isr if broker not in staying]
        if not gone:
            return None
        return Election(
            current.led_by(current.leader, staying, current.recovery_state),
            f"{_join(gone)} shut down: removed from the ISR {_join(current.isr)}",
        )
    leader = next((broker for broker in replicas if broker in staying), staying[0])
    return Election(
        current.led_by(leader, staying, current.recovery_state),
        f"leader {current.leader} shuts down: {leader} is the first of the ISR {_join(current.isr)} that stays",
    )


def movable_leaderships(context: ControllerContext, broker: int) -> list[TopicPartition]:
    """The partitions that this broker leads and that a later try may move: it should wait and ask again.

    None with a single replica. None at all when every live broker shuts down: there is no other leader to wait for.
    """
    if context.shutting_down.issuperset(context.brokers):
        return []
    return [
        partition
        for partition in replicated_partitions(context, broker)
        if context.leadership[partition].leader == broker
    ]


def replicated_partitions(context: ControllerContext, broker: int) -> list[TopicPartition]:
    """The partitions of which this broker has one of several replicas."""
    return [
        replica.topic_partition
        for replica in context.replicas_on([broker])
        if len(context.replicas_of(replica.topic_partition)) > 1
        and replica.topic_partition in context.leadership
        and not context.is_deleting(replica.topic)
    ]


def _join(brokers: Sequence[int]) -> str:
    return ",".join(str(broker) for broker in brokers)
