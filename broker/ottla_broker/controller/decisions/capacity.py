"""How many partition replicas a broker may hold: what it registers, and what that refuses.

A replica keeps a file open, so a broker's limit of open files bounds them. The limit is a policy of the controller,
which sees it in the registration of each broker of ours; of an Apache Kafka broker, or one that is not alive, none is
known and nothing is refused. A broker that is told to hold more than it may all the same, say by a topic that another
program writes into ZooKeeper, answers KAFKA_STORAGE_ERROR for that partition (`storage.creation`).

    >>> max_partition_replicas(-1, 1024), max_partition_replicas(700, 1024), max_partition_replicas(0, 1024)
    (512, 700, None)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from ottla_broker.controller.context import ControllerContext
from ottla_broker.protocol.errors import ErrorCode, KafkaError

_PART_FOR_REPLICAS = 2
"""One file in so many is a replica's active segment; the others are for connections and segments that are read."""


def max_partition_replicas(configured: int, open_files: int | None) -> int | None:
    """What a broker may hold; None without a limit.

    Args:
        configured: ottla.max.partition.replicas; -1 derives it, 0 is no limit.
        open_files: the broker's part of its process's limit of open files (RLIMIT_NOFILE), None without one.
    """
    if configured >= 0:
        return configured or None
    return None if open_files is None else max(open_files // _PART_FOR_REPLICAS, 1)


class Capacity:
    """The room for replicas on each live broker, in the course of one request: what it is granted counts."""

    def __init__(self, context: ControllerContext) -> None:
        self._limits = {
            broker.id: broker.max_partition_replicas
            for broker in context.brokers.values()
            if broker.max_partition_replicas is not None
        }
        self._held: Counter[int] = context.replica_counts() if self._limits else Counter()

    def take(self, what: str, replicas: Iterable[int], error: ErrorCode = ErrorCode.POLICY_VIOLATION) -> None:
        """Room for one replica on each of these brokers, which may be named several times; all or none.

        `what` begins the message. Raises KafkaError `error`: POLICY_VIOLATION as with a CreateTopicPolicy (KIP-108).
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
