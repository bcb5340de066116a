"""Who leads, and who is in sync, once brokers leave by a controlled shutdown (wire-protocol.md 5.19, 5.23).

Pure: `decide_leaving` takes the assignment, the present leadership and who leaves, and gives an Election with a reason;
`still_led` says what a leaving broker is to wait for. Not here: writing and telling (`controlled_shutdown`), brokers
that went without a word (`elections`).

The rules
1. Who leaves leaves the ISR too: a record is not to wait for a follower that stops fetching.
2. The next leader is in sync, online and stays; the first such in the order of the assignment.
3. Nothing changes while nobody of the ISR stays: the leader leads until it stops, and whoever returns of the ISR leads
   next. So a partition with one replica stays where it is.

Worked example: replicas 1, 2, 3, all in sync, broker 1 leads and leaves.

    >>> from ottla_broker.controller.values import LeaderAndIsr
    >>> before = LeaderAndIsr(leader=1, leader_epoch=4, isr=(1, 2, 3), partition_epoch=7, controller_epoch=1)
    >>> decision = decide_leaving((1, 2, 3), before, online={1, 2, 3}, leaving={1})
    >>> decision.leadership.leader, decision.leadership.isr, decision.leadership.leader_epoch
    (2, (2, 3), 5)
    >>> decision.reason
    'leader 1 shuts down: 2 is the first of the ISR 1,2,3 that stays'

Then 3, a follower, leaves as well; after it nobody is left for 2 to hand over to:

    >>> decision = decide_leaving((1, 2, 3), decision.leadership, online={2, 3}, leaving={3})
    >>> decision.leadership.leader, decision.leadership.isr, decision.reason
    (2, (2,), '3 shut down: taken out of the ISR 2,3')
    >>> decide_leaving((1, 2, 3), decision.leadership, online={2}, leaving={2}) is None
    True
"""

from __future__ import annotations

from collections.abc import Sequence, Set

from ottla_broker.controller.context import ControllerContext
from ottla_broker.controller.decisions.leader_election import Election
from ottla_broker.controller.values import LeaderAndIsr
from ottla_broker.records.ids import TopicPartition


def decide_leaving(
    replicas: Sequence[int], current: LeaderAndIsr, *, online: Set[int], leaving: Set[int]
) -> Election | None:
    """The leadership without the brokers in `leaving`; `online` are those whose replica is usable, leaving or not.

    None when nothing changes, or nobody of the ISR stays.
    """
    staying = tuple(broker for broker in current.isr if broker in online and broker not in leaving)
    if not staying:
        return None
    if current.leader in staying:
        gone = [broker for broker in current.isr if broker not in staying]
        if not gone:
            return None
        return Election(
            current.led_by(current.leader, staying, current.recovery_state),
            f"{_join(gone)} shut down: taken out of the ISR {_join(current.isr)}",
        )
    leader = next((broker for broker in replicas if broker in staying), staying[0])
    return Election(
        current.led_by(leader, staying, current.recovery_state),
        f"leader {current.leader} shuts down: {leader} is the first of the ISR {_join(current.isr)} that stays",
    )


def still_led(context: ControllerContext, broker: int) -> list[TopicPartition]:
    """The partitions that this broker leads and that a later try may move, so that it is worth waiting.

    None of those with one replica. None at all when every live broker shuts down: a whole fleet that goes waits for
    nobody.
    """
    if context.shutting_down.issuperset(context.brokers):
        return []
    return [partition for partition in concerned(context, broker) if context.leadership[partition].leader == broker]


def concerned(context: ControllerContext, broker: int) -> list[TopicPartition]:
    """The partitions of which this broker holds one of several replicas."""
    return [
        replica.topic_partition
        for replica in context.replicas_on([broker])
        if len(context.replicas_of(replica.topic_partition)) > 1
        and replica.topic_partition in context.leadership
        and not context.is_deleting(replica.topic)
    ]


def _join(brokers: Sequence[int]) -> str:
    return ",".join(str(broker) for broker in brokers)
