"""Metrics of the group coordinator, named after Kafka's MBeans (docs/reference/metrics.md)."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from ottla_broker.groups.consumer.states import ConsumerGroupState
from ottla_broker.groups.group_factory import AnyLiveGroup
from ottla_broker.groups.live_consumer_group import LiveConsumerGroup
from ottla_broker.groups.live_group import LiveGroup
from ottla_broker.groups.states import GroupState
from ottla_broker.metrics import Metrics

_GROUPS = "kafka_coordinator_group_groupmetadatamanager"
_SENSORS = "kafka_server_group_coordinator_metrics"
_LOAD_BUCKETS_S = (0.001, 0.01, 0.1, 0.5, 1.0, 5.0, 30.0, 120.0)


class GroupMetrics:
    """Counters are bumped by the coordinator; gauges walk its groups when somebody looks."""

    def __init__(self, metrics: Metrics, live_groups: Callable[[], Iterable[AnyLiveGroup]]) -> None:
        self.offset_commits = metrics.counter(f"{_SENSORS}_offset_commit", "Offset commit appends that succeeded.")
        self.offset_expirations = metrics.counter(f"{_SENSORS}_offset_expiration", "Offsets removed by retention.")
        self.offset_deletions = metrics.counter(
            f"{_SENSORS}_offset_deletion", "Offsets deleted by administrators (OffsetDelete)."
        )
        self.completed_rebalances = metrics.counter(
            f"{_SENSORS}_group_completed_rebalance", "Rebalances whose assignment was handed in by the leader."
        )
        self.consumer_group_rebalances = metrics.counter(
            f"{_SENSORS}_consumer_group_rebalance", "Group epochs of the consumer protocol: each is a rebalance."
        )
        self.partition_load = metrics.histogram(
            f"{_SENSORS}_partition_load_time_seconds",
            "How long loading a partition of __consumer_offsets took.",
            _LOAD_BUCKETS_S,
        )

        def count(state: GroupState) -> Callable[[], float]:
            return lambda: sum(isinstance(live, LiveGroup) and live.group.state is state for live in live_groups())

        metrics.gauge(f"{_GROUPS}_numgroups", "Groups this broker coordinates.", lambda: sum(1 for _ in live_groups()))
        metrics.gauge(
            f"{_GROUPS}_numoffsets",
            "Committed offsets of these groups.",
            lambda: sum(len(live.offsets) for live in live_groups()),
        )
        for state in GroupState:
            metrics.gauge(f"{_GROUPS}_numgroups{state.value.lower()}", f"Groups in state {state.value}.", count(state))

        def count_consumer(state: ConsumerGroupState) -> Callable[[], float]:
            return lambda: sum(
                isinstance(live, LiveConsumerGroup) and live.group.state is state for live in live_groups()
            )

        for consumer_state in ConsumerGroupState:
            metrics.gauge(
                f"{_SENSORS}_consumer_group_count_{consumer_state.value.lower()}",
                f"Groups of the consumer protocol in state {consumer_state.value}.",
                count_consumer(consumer_state),
            )
