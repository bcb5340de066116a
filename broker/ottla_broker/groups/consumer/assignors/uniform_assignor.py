"""The assignor `uniform`: as even as can be, and of the even assignments one that moves few partitions.

Balance comes before stickiness. Where all members subscribe to the same topics, the sizes of two assignments differ by
one at most, and a member gives up only what is above its share. Where the subscriptions differ, every topic is balanced
among its subscribers, as far as moves of single partitions get.

Source: UniformHomogeneousAssignmentBuilder, UniformHeterogeneousAssignmentBuilder of Apache Kafka's group coordinator.

>>> from ottla_broker.groups.consumer.assignors.assignor import MemberSubscription
>>> def show(assignments):
...     for member, assignment in assignments.items():
...         print(member, {topic.decode(): sorted(partitions) for topic, partitions in assignment.items()})
>>> first = assign_uniform({"a": MemberSubscription((b"t",))}, {b"t": 5})
>>> members = {"a": MemberSubscription((b"t",), None, first["a"]), "b": MemberSubscription((b"t",))}
>>> show(assign_uniform(members, {b"t": 5}))
a {'t': [0, 1, 2]}
b {'t': [3, 4]}
"""

from __future__ import annotations

import heapq

from ottla_broker.groups.consumer.assignors.assignor import Members, PartitionCounts, kept_partitions
from ottla_broker.groups.consumer.group_image import Assignment, TopicId, assignment_of

UNIFORM = "uniform"

MAX_BALANCE_ROUNDS = 16
"""Rounds over all topics where subscriptions differ. Topics whose subscribers have the same subscriptions need one;
chains of overlapping subscriptions could go on for long."""


def assign_uniform(members: Members, counts: PartitionCounts) -> dict[str, Assignment]:
    """See `assignor.Assignor`."""
    if not members:
        return {}
    subscriptions = {member.topic_ids for member in members.values()}
    kept = kept_partitions(members, counts)
    if len(subscriptions) == 1:
        return _assign_alike(kept, counts, next(iter(subscriptions)))
    return _Balancer(members, counts, kept).assign()


def _assign_alike(
    kept: dict[str, list[tuple[TopicId, int]]], counts: PartitionCounts, topic_ids: tuple[TopicId, ...]
) -> dict[str, Assignment]:
    """All members subscribe to the same topics.

    The `extra` members with one partition more than the others are those that have it already, else the last ones.
    """
    owned = {partition for partitions in kept.values() for partition in partitions}
    every = [(topic_id, partition) for topic_id in topic_ids for partition in range(counts[topic_id])]
    free = [partition for partition in every if partition not in owned]
    quota, extra = divmod(len(every), len(kept))
    rooms: dict[str, int] = {}
    for left, member_id in zip(range(len(kept), 0, -1), kept, strict=True):
        partitions = kept[member_id]
        share = quota
        if extra and (len(partitions) > quota or left <= extra):
            share += 1
            extra -= 1
        free.extend(partitions[share:])
        del partitions[share:]
        rooms[member_id] = share - len(partitions)
    unassigned = iter(free)
    for member_id, room in rooms.items():
        kept[member_id].extend(next(unassigned) for _ in range(room))
    return {member_id: assignment_of(partitions) for member_id, partitions in kept.items()}


class _Balancer:
    """Assigns what is free to the least loaded subscriber, then moves partitions from the most to the least loaded."""

    def __init__(self, members: Members, counts: PartitionCounts, kept: dict[str, list[tuple[TopicId, int]]]) -> None:
        self._counts = counts
        self._loads = {member_id: len(partitions) for member_id, partitions in kept.items()}
        self._owners: dict[TopicId, dict[int, str]] = {}
        self._subscribers: dict[TopicId, list[str]] = {}
        for member_id in kept:
            for topic_id in members[member_id].topic_ids:
                self._subscribers.setdefault(topic_id, []).append(member_id)
        for topic_id in self._subscribers:
            self._owners[topic_id] = {}
        for member_id, partitions in kept.items():
            for topic_id, partition in partitions:
                self._owners[topic_id][partition] = member_id

    def assign(self) -> dict[str, Assignment]:
        # Topics with the most partitions for each subscriber first: the later ones even out what they leave.
        topics = sorted(
            self._subscribers,
            key=lambda topic: (
                -self._counts[topic] / len(self._subscribers[topic]),
                len(self._subscribers[topic]),
                topic,
            ),
        )
        for topic_id in topics:
            self._assign_free(topic_id)
        shared = [topic_id for topic_id in topics if len(self._subscribers[topic_id]) > 1]
        for _ in range(MAX_BALANCE_ROUNDS):
            if not sum(self._balance(topic_id) for topic_id in shared):
                break
        found: dict[str, list[tuple[TopicId, int]]] = {member_id: [] for member_id in self._loads}
        for topic_id, owners in self._owners.items():
            for partition, member_id in owners.items():
                found[member_id].append((topic_id, partition))
        return {member_id: assignment_of(partitions) for member_id, partitions in found.items()}

    def _assign_free(self, topic_id: TopicId) -> None:
        owners = self._owners[topic_id]
        least = [(self._loads[member_id], member_id) for member_id in self._subscribers[topic_id]]
        heapq.heapify(least)
        for partition in range(self._counts[topic_id]):
            if partition not in owners:
                load, member_id = least[0]
                owners[partition] = member_id
                self._loads[member_id] = load + 1
                heapq.heapreplace(least, (load + 1, member_id))

    def _balance(self, topic_id: TopicId) -> int:
        """Moves partitions of the topic until no move evens out its subscribers' loads; how many it moved."""
        owned: dict[str, list[int]] = {member_id: [] for member_id in self._subscribers[topic_id]}
        for partition in range(self._counts[topic_id]):
            owned[self._owners[topic_id][partition]].append(partition)
        loads = self._loads
        givers = [(-loads[member_id], member_id) for member_id, partitions in owned.items() if partitions]
        takers = [(loads[member_id], member_id) for member_id in owned]
        heapq.heapify(givers)
        heapq.heapify(takers)
        moved = 0
        while givers:
            negative_load, giver = givers[0]
            load, taker = takers[0]
            if load != loads[taker]:  # a giver until now
                heapq.heapreplace(takers, (loads[taker], taker))
                continue
            if -negative_load - load <= 1:
                break
            partition = owned[giver].pop()
            self._owners[topic_id][partition] = taker
            loads[giver] -= 1
            loads[taker] += 1
            moved += 1
            heapq.heapreplace(takers, (loads[taker], taker))
            if owned[giver]:
                heapq.heapreplace(givers, (-loads[giver], giver))
            else:
                heapq.heappop(givers)
        return moved
