"""Features of KIP-584: which ones this release supports, and how a finalized level is compared with a range. Pure.

A broker registers the range of levels that it supports of each feature. The controller finalizes a level only when it
is in the range of every registered broker; `/feature` has the finalized levels. Apache Kafka 3.9 in ZooKeeper mode
supports no feature, so a fleet that has finalized one has no broker of Apache Kafka, and none can join.

Not here: who reads and writes `/feature` (`controller.acts.feature_finalization`, `server.store.fleet_features`).

Source: kafka.server.BrokerFeatures of Apache Kafka.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, TypeAlias

Ranges: TypeAlias = Mapping[str, tuple[int, int]]
"""The lowest and the highest supported level by feature. Level 0 stands for "not finalized"."""

Levels: TypeAlias = Mapping[str, int]
"""The finalized level by feature."""

GROUP_VERSION: Final = "group.version"
"""Level 1: the consumer rebalance protocol (KIP-848)."""

TRANSACTION_VERSION: Final = "transaction.version"
"""Level 1: flexible records in `__transaction_state`. Level 2: every transaction ends with a raised producer epoch, and
producers leave it to brokers to add partitions (KIP-890)."""

SUPPORTED: Final[Ranges] = MappingProxyType({GROUP_VERSION: (0, 1), TRANSACTION_VERSION: (0, 2)})
"""What this release supports. A feature is here when everything that its levels promise is complete."""


def registered(supported: Ranges) -> dict[str, tuple[int, int]]:
    """The ranges as a registration has them: from level 1, because Apache Kafka before 3.9 refuses to read a 0.

    >>> registered({"group.version": (0, 1)})
    {'group.version': (1, 1)}
    """
    return {name: (max(1, lowest), highest) for name, (lowest, highest) in supported.items()}


def incompatible(finalized: Levels, supported: Ranges) -> dict[str, int]:
    """The finalized levels that a broker with these ranges does not support, in the order of their names.

    >>> incompatible({"group.version": 1, "transaction.version": 2}, {"transaction.version": (1, 2)})
    {'group.version': 1}
    """
    found = {}
    for name, level in sorted(finalized.items()):
        lowest, highest = supported.get(name, (0, -1))
        if not lowest <= level <= highest:
            found[name] = level
    return found
