"""Checks topic names, partition counts and assignments that a client gives.

Pure. Each check raises a KafkaError whose code and message go to the client. Not here: the order in which an API
applies them (`topic_plans`), the configuration (`ottla_broker.config.topics`), choosing brokers (`assignment`).

Source: Topic and AdminZkClient of Apache Kafka.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence, Set

from ottla_broker.controller.values import metric_name
from ottla_broker.protocol.errors import ErrorCode, KafkaError

MAX_NAME_LENGTH = 249
"""With "-<partition>" and a suffix for deletion, a directory name stays within 255."""

MAX_PARTITIONS = 100_000
"""Above it a topic's znode cannot stay under ZooKeeper's 1 MB (`jute.maxbuffer`)."""

CLUSTER_METADATA_TOPIC = "__cluster_metadata"

_LEGAL_NAME = re.compile(r"[a-zA-Z0-9._-]+")


def check_name(name: str) -> None:
    """Raises INVALID_TOPIC_EXCEPTION unless Kafka allows the name."""

    def refuse(why: str) -> KafkaError:
        return KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic name is invalid: {why}")

    if not name:
        raise refuse("the empty string is not allowed")
    if name in (".", ".."):
        raise refuse("'.' or '..' is not allowed")
    if len(name) > MAX_NAME_LENGTH:
        raise refuse(f"the length of '{name}' is longer than the max allowed length {MAX_NAME_LENGTH}")
    if _LEGAL_NAME.fullmatch(name) is None:
        raise refuse(f"'{name}' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'")


def collides(one: str, other: str) -> bool:
    """True when the names differ at most in '.' and '_': their metrics would have one name.

    >>> collides("a.b", "a_b"), collides("a.b", "a-b")
    (True, False)
    """
    return metric_name(one) == metric_name(other)


def check_collisions(name: str, existing: Iterable[str]) -> None:
    """Raises INVALID_TOPIC_EXCEPTION when another topic's name differs from `name` only in '.' and '_'."""
    if "." not in name and "_" not in name:
        return
    colliding = sorted(other for other in existing if other != name and collides(name, other))
    if colliding:
        raise KafkaError(
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            f"Topic '{name}' collides with existing topics: {', '.join(colliding)}",
        )


def check_partition_count(count: int) -> None:
    """Raises INVALID_PARTITIONS for a topic whose znode would be too large."""
    if count > MAX_PARTITIONS:
        raise KafkaError(
            ErrorCode.INVALID_PARTITIONS,
            f"Number of partitions {count} is larger than {MAX_PARTITIONS}, what the coordination store can hold.",
        )


def check_new_assignment(assignment: Mapping[int, Sequence[int]]) -> None:
    """Raises INVALID_REPLICA_ASSIGNMENT unless this can be the assignment of a new topic.

    As in Kafka's ZooKeeper mode it may name a broker that is not alive.
    """
    for partition, replicas in sorted(assignment.items()):
        _check_replicas(partition, replicas)
    if len({len(replicas) for replicas in assignment.values()}) != 1:
        raise _bad_assignment("All partitions should have the same number of replicas")
    if sorted(assignment) != list(range(len(assignment))):
        raise _bad_assignment("partitions should be a consecutive 0-based integer sequence")


def check_added_assignment(added: Mapping[int, Sequence[int]], replication_factor: int, available: Set[int]) -> None:
    """Raises INVALID_REPLICA_ASSIGNMENT unless these can be the replicas of partitions that a topic gets."""
    unknown = sorted({broker for replicas in added.values() for broker in replicas} - available)
    if unknown:
        raise _bad_assignment(f"Unknown broker(s) in replica assignment: {', '.join(map(str, unknown))}.")
    for partition, replicas in sorted(added.items()):
        _check_replicas(partition, replicas)
    wrong = {partition: len(replicas) for partition, replicas in added.items() if len(replicas) != replication_factor}
    if wrong:
        partitions = ", ".join(str(partition) for partition in sorted(wrong))
        factors = ", ".join(str(wrong[partition]) for partition in sorted(wrong))
        raise _bad_assignment(
            f"Inconsistent replication factor between partitions, partition 0 has {replication_factor} while "
            f"partitions [{partitions}] have replication factors [{factors}], respectively."
        )


def _check_replicas(partition: int, replicas: Sequence[int]) -> None:
    if not replicas:
        raise _bad_assignment(f"Cannot have replication factor of 0 for partition id {partition}.")
    if len(set(replicas)) != len(replicas):
        raise _bad_assignment(
            f"Duplicate brokers not allowed in replica assignment: {', '.join(map(str, replicas))} for partition id "
            f"{partition}."
        )
    if min(replicas) < 0:
        raise _bad_assignment(f"Broker id {min(replicas)} for partition id {partition} is negative.")


def _bad_assignment(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)
