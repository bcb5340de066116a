"""What the context keeps beside the topics themselves, compared with what counting from the start gives."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from ottla_broker.controller.context import ControllerContext
from ottla_broker.controller.decisions.topic_rules import collides
from ottla_broker.controller.values import ReplicaAssignment, Topic
from ottla_broker.records.ids import TopicPartition

NAMES = ("a.b", "a_b", "a-b", "ab", "a.b.c", "a_b.c")


@pytest.mark.parametrize("seed", range(20))
def test_replicas_and_colliding_names_are_counted_right_through_random_changes(seed: int) -> None:
    source = random.Random(seed)
    context = ControllerContext(1, 0)
    for _ in range(60):
        name = source.choice(NAMES)
        assignments = {
            index: ReplicaAssignment(tuple(source.sample(range(4), source.randint(1, 3))))
            for index in range(source.randint(1, 3))
        }
        if source.random() < 0.3 or not context.has_topic(name):
            context.add_topic(Topic(name, bytes([NAMES.index(name)]) * 16, assignments))
        elif source.random() < 0.5:
            context.set_assignment(TopicPartition(name, 0), assignments[0])
        else:
            context.remove_topic(name)
        counted = Counter(broker for one in context.partitions() for broker in context.replicas_of(one))
        assert +context.replica_counts() == counted
        for like in NAMES:
            assert context.names_like(like) == [other for other in context.topic_names() if collides(like, other)]
