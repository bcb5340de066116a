"""Limits the partition replicas of a broker: the limit that it registers, and which requests that refuses.

A replica keeps a file open, so a broker's limit of open files bounds its replicas. The controller applies the limit
that each broker of ours registers; for an Apache Kafka broker, or one that is not alive, it knows none and refuses
nothing. A broker that gets more replicas all the same, for example by a topic that another program writes into
ZooKeeper, answers KAFKA_STORAGE_ERROR for that partition (`storage`).

    >>> max_partition_replicas(-1, 1024), max_partition_replicas(700, 1024), max_partition_replicas(0, 1024)
    (512, 700, None)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from ottla_broker.controller.context import ControllerContext
from ottla_broker.protocol.errors import ErrorCode, KafkaError

_PART_FOR_REPLICAS = 2
"""One open file in so many is the active segment of a replica; the others are connections and segments being read."""


def max_partition_replicas(configured: int, open_files: int | None) -> int | None:
    """How many replicas a broker may have; None without a limit.

    Args:
        configured: ottla.max.partition.replicas; -1 derives it, 0 is no limit.
        open_files: the broker's share of its process's limit of open files (RLIMIT_NOFILE), None without one.
    """
    if configured >= 0:
        return configured or None
    return None if open_files is None else max(open_files // _PART_FOR_REPLICAS, 1)


class Capacity:
    """The room for replicas on each live broker during one request; what the request has taken counts."""

    def __init__(self, context: ControllerContext) -> None:
        self._limits = {
            broker.id: broker.max_partition_replicas
            for broker in context.brokers.values()
            if broker.max_partition_replicas is not None
        }
        self._held: Counter[int] = context.replica_counts() if self._limits else Counter()

    def take(self, what: str, replicas: Iterable[int], error: ErrorCode = ErrorCode.POLICY_VIOLATION) -> None:
        """Takes room for one replica on each of these brokers, which may be named several times; all or none.

        Args:
            what: the beginning of the message of the error.
            error: by default POLICY_VIOLATION, as with a CreateTopicPolicy (KIP-108).

        Raises:
            KafkaError: `error`, a broker has no room.
        """
        if not self._limits:
            return
        added = Counter(replicas)
        for broker, count in sorted(added.items()):
            limit = self._limits.get(broker)
            if limit is not None and self._held[broker] + count > limit:
                raise KafkaError(
                    error,
                    f"{what} would put {count} more partition replicas on broker {broker}, which has "
                    f"{self._held[broker]} of the {limit} that it may hold (its ottla.max.partition.replicas; without "
                    "the key, half of its limit of open files). Ask for fewer partitions, delete topics, add brokers, "
                    "or raise the limit of open files (ulimit -n, LimitNOFILE) and restart the broker.",
                )
        self._held.update(added)
