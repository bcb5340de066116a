"""Which replica a consumer is sent to: the closest one by rack (KIP-392).

Lives here: the choice, and what replica.selector.class may name. Not here: who is asked when (`fetch.checks`).
Pure.

Only a leader chooses, and only among replicas that can go on at the consumer's offset: itself, and those in the ISR
whose log holds the offset. A replica out of the ISR may lag behind for good, and the consumer would come back for the
same advice again and again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import NamedTuple

from ottla_broker.config.served import RACK_AWARE_SELECTOR
from ottla_broker.replication.isr import FollowerState


class Selection(NamedTuple):
    """A follower's broker id, -1 for the leader itself, and why."""

    broker_id: int
    reason: str


def chooses_by_rack(selector_class: str | None) -> bool:
    """Whether this value of replica.selector.class sends consumers to followers.

    >>> chooses_by_rack(RACK_AWARE_SELECTOR), chooses_by_rack(None)
    (True, False)
    """
    return selector_class == RACK_AWARE_SELECTOR


def candidates(
    followers: Iterable[FollowerState], in_sync: Collection[int], fetch_offset: int
) -> Iterable[FollowerState]:
    """The followers that can serve `fetch_offset`, as far as their leader knows.

    >>> two = FollowerState(2); two.on_fetch(50, 10, now_ms=0, leader_end_offset=50, broker_epoch=-1)
    >>> [[one.broker_id for one in candidates([two], (1, 2), offset)] for offset in (9, 10, 50, 51)]
    [[], [2], [2], []]
    """
    for follower in followers:
        if follower.broker_id in in_sync and follower.log_start_offset <= fetch_offset <= follower.log_end_offset:
            yield follower


def closest(rack: str, leader_rack: str | None, followers: Iterable[tuple[FollowerState, str | None]]) -> Selection:
    """Where a consumer in `rack` reads; `followers` are the candidates with their racks.

    In the consumer's rack the leader comes first, then who has most records, then who was caught up last; of equals
    the highest id, as in Kafka.

    >>> two, three = FollowerState(2), FollowerState(3)
    >>> two.on_fetch(50, 0, now_ms=100, leader_end_offset=50, broker_epoch=-1)
    >>> three.on_fetch(40, 0, now_ms=100, leader_end_offset=50, broker_epoch=-1)
    >>> closest("a", "b", [(two, "a"), (three, "a")])
    Selection(broker_id=2, reason='the most caught up in the rack')
    >>> closest("a", "a", [(two, "a")])
    Selection(broker_id=-1, reason='the leader is in the rack')
    >>> closest("c", "b", [(two, "a")])
    Selection(broker_id=-1, reason='no replica in the rack')
    """
    if not rack:
        return Selection(-1, "the consumer names no rack")
    if leader_rack == rack:
        return Selection(-1, "the leader is in the rack")
    best = max(
        (follower for follower, its_rack in followers if its_rack == rack),
        key=lambda follower: (follower.log_end_offset, follower.last_caught_up_ms, follower.broker_id),
        default=None,
    )
    if best is None:
        return Selection(-1, "no replica in the rack")
    return Selection(best.broker_id, "the most caught up in the rack")
