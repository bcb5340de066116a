"""Adds this broker's own offline replicas to what the metadata says: the controller learns of them later, or not."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Protocol

from ottla_broker.records.ids import TopicPartition
from ottla_broker.server.handler_api import Services


class DescribedTopic(Protocol):
    """A topic of a generated response; its partitions have replica_nodes and offline_replicas."""

    @property
    def name(self) -> str | None: ...

    @property
    def partitions(self) -> Sequence[Any]: ...


def add_own_offline_replicas(services: Services, topics: Iterable[DescribedTopic]) -> None:
    """Changes `offline_replicas` of the partitions in place."""
    manager = services.replica_manager
    if not manager.has_offline:
        return
    for topic in topics:
        for partition in topic.partitions:
            is_listed = services.broker_id in partition.offline_replicas
            if (
                services.broker_id in partition.replica_nodes
                and not is_listed
                and manager.is_offline(TopicPartition(topic.name or "", partition.partition_index))
            ):
                partition.offline_replicas = [*partition.offline_replicas, services.broker_id]
