"""The assignor `range`: contiguous ranges of each topic, in one order of members: equal topics are co-partitioned.

Static members come first, by instance id, then the others by member id: a static member that comes back with another
member id has the same ranges. Of a topic with n partitions and m subscribers each gets n // m, the first n % m of them
one more.

Source: RangeAssignor of Apache Kafka's group coordinator.

>>> from ottla_broker.groups.consumer.assignors.assignor import MemberSubscription
>>> both = MemberSubscription((b"t", b"u"))
>>> for member, assignment in assign_range({"m1": both, "m0": both}, {b"t": 3, b"u": 3}).items():
...     print(member, {topic.decode(): sorted(partitions) for topic, partitions in assignment.items()})
m0 {'t': [0, 1], 'u': [0, 1]}
m1 {'t': [2], 'u': [2]}
"""

from __future__ import annotations

from ottla_broker.groups.consumer.assignors.assignor import Members, PartitionCounts
from ottla_broker.groups.consumer.group_image import Assignment, TopicId

RANGE = "range"


def assign_range(members: Members, counts: PartitionCounts) -> dict[str, Assignment]:
    """See `assignor.Assignor`."""
    order = sorted(members, key=lambda member_id: _rank(member_id, members[member_id].instance_id))
    subscribers: dict[TopicId, int] = {}
    for member_id in order:
        for topic_id in members[member_id].topic_ids:
            subscribers[topic_id] = subscribers.get(topic_id, 0) + 1
    served = dict.fromkeys(subscribers, 0)
    """How many subscribers of the topic have their range."""
    assignments: dict[str, Assignment] = {}
    for member_id in order:
        assignment: dict[TopicId, frozenset[int]] = {}
        for topic_id in members[member_id].topic_ids:
            quota, extra = divmod(counts[topic_id], subscribers[topic_id])
            index = served[topic_id]
            served[topic_id] += 1
            start = index * quota + min(index, extra)
            end = start + quota + (index < extra)
            if start < end:
                assignment[topic_id] = frozenset(range(start, end))
        assignments[member_id] = assignment
    return assignments


def _rank(member_id: str, instance_id: str | None) -> tuple[bool, str]:
    return (True, member_id) if instance_id is None else (False, instance_id)
