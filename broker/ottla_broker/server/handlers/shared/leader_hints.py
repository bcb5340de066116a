"""Leader hints for Produce and Fetch responses: CurrentLeader and NodeEndpoints (KIP-951).

Not here: which versions have them.
"""

from __future__ import annotations

from collections.abc import Iterator

from ottla_broker.metadata.cache import NO_LEADER, BrokerEndpoint, BrokerMetadata
from ottla_broker.replication.replica_states.local_replica import NO_EPOCH
from ottla_broker.server.handler_api import Services


def current_leader(services: Services, topic: str, index: int) -> tuple[int, int]:
    """(leader id, leader epoch) as far as this broker knows, each -1 where it does not.

    Its own replica's state is newer than the metadata, unless StopReplica has stopped it.
    """
    partition = services.replica_manager.partition(topic, index)
    known = services.metadata.partition(topic, index)
    if partition is not None and not (
        partition.replica.is_idle and known is not None and known.leader_epoch > partition.leader_epoch
    ):
        return partition.leader_id, partition.leader_epoch
    return (NO_LEADER, NO_EPOCH) if known is None else (known.leader, known.leader_epoch)


class NodeHints:
    """The leaders of a response, each once, with their endpoints on the client's listener."""

    def __init__(self, services: Services, listener: str) -> None:
        self._services = services
        self._listener = listener
        self._found: dict[int, tuple[BrokerMetadata, BrokerEndpoint]] = {}

    def add(self, broker_id: int) -> None:
        metadata = self._services.metadata
        endpoint = metadata.endpoint(broker_id, self._listener)
        if endpoint is not None:
            self._found[broker_id] = (metadata.brokers[broker_id], endpoint)

    def __iter__(self) -> Iterator[tuple[BrokerMetadata, BrokerEndpoint]]:
        return iter(self._found.values())
