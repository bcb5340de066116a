"""Rack-aware assignment held against Kafka's: the situations of its AdminRackAwareTest, and what its classes say."""

from __future__ import annotations

import random
import subprocess
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import pytest

from ottla_broker.controller.decisions.assignment import (
    BrokerRack,
    alternate_racks,
    assign_added_partitions,
    assign_replicas,
)

SIX = {0: "rack1", 1: "rack2", 2: "rack2", 3: "rack3", 4: "rack3", 5: "rack1"}
TWELVE = {broker: f"rack{1 + broker % 3}" for broker in range(12)}


def with_racks(racks: Mapping[int, str | None]) -> list[BrokerRack]:
    return [BrokerRack(broker, rack) for broker, rack in sorted(racks.items())]


def test_the_racks_alternate_also_when_one_has_fewer_brokers() -> None:
    racks = {0: "rack1", 1: "rack3", 2: "rack3", 3: "rack2", 4: "rack2", 5: "rack1"}
    assert alternate_racks(racks) == [0, 3, 1, 5, 4, 2]
    del racks[5]
    assert alternate_racks(racks) == [0, 3, 1, 4, 2]


# Racks, partitions, replicas, start; and what is promised: racks per partition, leaders and replicas per broker where
# they come out even.
SITUATIONS: list[tuple[str, dict[int, str], int, int, int, int, int | None, int | None]] = [
    ("any start", SIX, 6, 3, 4, 3, 1, 3),
    ("uneven replicas", {0: "a", 1: "a", 2: "b", 3: "b", 4: "c", 5: "c"}, 13, 3, 0, 3, None, None),
    ("uneven racks", {0: "a", 1: "a", 2: "b", 3: "c", 4: "c", 5: "a"}, 12, 3, 0, 3, 2, None),
    ("two replicas", {0: "a", 1: "b", 2: "b", 3: "c", 4: "c", 5: "a"}, 12, 2, 0, 2, 2, 4),
    ("two replicas, six partitions", {0: "a", 1: "b", 2: "b", 3: "c", 4: "c", 5: "a"}, 6, 2, 0, 2, 1, 2),
    ("two replicas on three brokers", {0: "a", 1: "b", 4: "c"}, 3, 2, 0, 2, 1, 2),
    ("many partitions", TWELVE, 96, 3, 0, 3, 8, 24),
    ("more replicas than racks", SIX, 6, 5, 0, 3, 1, 5),
    ("fewer replicas than racks", SIX, 6, 2, 0, 2, 1, 2),
    ("one rack", dict.fromkeys(range(6), "a"), 6, 3, 0, 1, 1, 3),
    ("a broker that has a replica is passed over", {0: "a", 1: "b", 2: "c", 3: "a", 4: "a"}, 6, 4, 0, 3, None, None),
]


@pytest.mark.parametrize(
    ("racks", "partitions", "factor", "start", "spread", "leaders", "replicas"),
    [pytest.param(*situation[1:], id=situation[0]) for situation in SITUATIONS],
)
def test_replicas_are_spread_over_racks_and_brokers(
    racks: dict[int, str],
    partitions: int,
    factor: int,
    start: int,
    spread: int,
    leaders: int | None,
    replicas: int | None,
) -> None:
    assigned = assign_replicas(with_racks(racks), partitions, factor, start_index=start, shift=start)
    assert all(len(set(brokers)) == factor for brokers in assigned.values())
    assert all(len({racks[broker] for broker in brokers}) == spread for brokers in assigned.values())
    if leaders is not None:
        assert Counter(brokers[0] for brokers in assigned.values()) == dict.fromkeys(racks, leaders)
    if replicas is not None:
        assert Counter(broker for brokers in assigned.values() for broker in brokers) == dict.fromkeys(racks, replicas)


def test_partitions_added_after_brokers_came_use_all_racks() -> None:
    racks = {6: "a", 7: "b", 8: "b", 9: "c", 10: "c", 11: "a"}
    assigned = assign_replicas(with_racks(racks), 12, 2, start_index=12, shift=12, first_partition=12)
    assert sorted(assigned) == list(range(12, 24))
    assert all(len({racks[broker] for broker in brokers}) == 2 for brokers in assigned.values())
    assert Counter(brokers[0] for brokers in assigned.values()) == dict.fromkeys(racks, 2)


def cases() -> list[tuple[dict[int, str | None], int, int, int, int]]:
    """(racks, partitions, replication factor, start, first partition): the situations above and drawn ones."""
    found: list[tuple[dict[int, str | None], int, int, int, int]] = []
    for _, racks, partitions, factor, start, *_ in SITUATIONS:
        found.append((dict(racks), partitions, factor, start, 0))
    source = random.Random(1)
    for _ in range(300):
        brokers = source.sample(range(40), source.randint(1, 15))
        names = source.choice((1, 2, 3, 5))
        has_racks = source.random() < 0.7
        drawn: dict[int, str | None] = {
            broker: f"rack{source.randrange(names)}" if has_racks else None for broker in brokers
        }
        factor = source.randint(1, len(brokers))
        first = source.choice((0, 0, source.randrange(50)))
        found.append((drawn, source.randint(1, 60), factor, source.randrange(len(brokers)), first))
    return found


@pytest.mark.java
def test_every_assignment_is_the_one_of_kafka_itself() -> None:
    """New topics, and partitions added to old ones, which go on at the index of their first broker."""
    from ottla.local.jars import find_java, kafka_class_path

    asked = cases()
    lines = [
        f"{partitions} {factor} {start} {first} "
        + " ".join(f"{broker}:{rack}" if rack else str(broker) for broker, rack in sorted(racks.items()))
        for racks, partitions, factor, start, first in asked
    ]
    program = Path(__file__).with_name("KafkaAssignments.java")
    done = subprocess.run(
        [find_java(), "-cp", kafka_class_path(), str(program)],
        input="\n".join(lines),
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    answers = done.stdout.splitlines()
    assert len(answers) == len(asked)
    for (racks, partitions, factor, start, first), answer in zip(asked, answers, strict=True):
        theirs = {
            int(partition): tuple(int(broker) for broker in replicas.split(","))
            for partition, _, replicas in (word.partition("=") for word in answer.split(" "))
        }
        brokers = with_racks(racks)
        assert theirs == assign_replicas(
            brokers, partitions, factor, start_index=start, shift=start, first_partition=first
        )
        if first:
            # What CreatePartitions asks of it: the place of partition 0's first replica among the brokers by id.
            existing = {partition: [sorted(racks)[start], *[-1] * (factor - 1)] for partition in range(first)}
            assert theirs == assign_added_partitions(brokers, existing, first + partitions)
