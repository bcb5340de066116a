"""The controller's metrics: those of kafka.controller:type=KafkaController and ControllerStats.

Every broker has them. On brokers that are not the active controller they are 0, so that sums over the fleet are right.
They are computed when /metrics is read. Names by the rule of docs/reference/metrics.md.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

from ottla_broker.controller.context import ControllerContext
from ottla_broker.controller.replica_states import ReplicaState
from ottla_broker.metrics import Counter, Metrics

PREFIX: Final = "kafka_controller_kafkacontroller_"


def offline_partitions(context: ControllerContext) -> int:
    """Partitions whose leader is offline or none, without those of topics that are being deleted."""
    return sum(
        1
        for partition in context.partitions()
        if not context.is_deleting(partition.topic)
        and (partition not in context.leadership or context.is_leader_offline(partition))
    )


def preferred_replica_imbalance(context: ControllerContext) -> int:
    """Partitions whose leader is not the first replica of their assignment."""
    return sum(
        1
        for partition, leadership in context.leadership.items()
        if not context.is_deleting(partition.topic) and leadership.leader != context.replicas_of(partition)[0]
    )


def _replicas_to_delete(context: ControllerContext, *states: ReplicaState) -> int:
    return sum(
        1
        for topic in context.topics_to_delete
        for replica in context.replicas_of_topic(topic)
        if not states or context.replica_state(replica) in states
    )


GAUGES: Final[Mapping[str, tuple[str, Callable[[ControllerContext], int]]]] = MappingProxyType(
    {
        "activecontrollercount": ("1 on the broker that is the active controller.", lambda context: 1),
        "activebrokercount": ("Brokers that are registered.", lambda context: len(context.brokers)),
        "offlinepartitionscount": ("Partitions without a usable leader.", offline_partitions),
        "preferredreplicaimbalancecount": (
            "Partitions that the first replica of their assignment does not lead.",
            preferred_replica_imbalance,
        ),
        "globaltopiccount": ("Topics of the cluster.", lambda context: len(context.topic_names())),
        "globalpartitioncount": ("Partitions of the cluster.", lambda context: sum(1 for _ in context.partitions())),
        "topicstodeletecount": ("Topics that are being deleted.", lambda context: len(context.topics_to_delete)),
        "replicastodeletecount": ("Replicas of topics that are being deleted.", _replicas_to_delete),
        "replicasineligibletodeletecount": (
            "Replicas whose deletion waits for their broker.",
            lambda context: _replicas_to_delete(context, ReplicaState.DELETION_INELIGIBLE),
        ),
    }
)


def register(metrics: Metrics, context: Callable[[], ControllerContext | None]) -> None:
    """Registers the gauges; `context` gives that of the active controller, None on other brokers."""

    def reader(count: Callable[[ControllerContext], int]) -> Callable[[], float]:
        def read() -> float:
            present = context()
            return 0.0 if present is None else float(count(present))

        return read

    for name, (help_text, count) in GAUGES.items():
        metrics.gauge(PREFIX + name, help_text, reader(count))


def unclean_elections(metrics: Metrics) -> Counter:
    """Counts elections of replicas outside the ISR: each may have lost committed records."""
    return metrics.counter(
        "kafka_controller_controllerstats_uncleanleaderelections", "Leaders elected from outside the ISR."
    )
