"""Replication quotas: limit the bytes per second that throttled replicas send as leader and fetch as follower (KIP-73).

Lives here: the rate of throttled replicas and whether it exceeds the quota. Not here: which partitions a leader
(`fetch`) or a follower (`fetcher`) excludes because of it; the throttle of future replicas (`storage`). On the calling
side of the Clock port.

1. The topic configurations `leader.replication.throttled.replicas` and `follower.replication.throttled.replicas` list
   the throttled replicas as PARTITION:BROKER or `*`. The rates are dynamic broker configurations. Without a rate
   nothing is throttled, but bytes are still measured.
2. Bytes of throttled replicas always count. While the rate exceeds the quota, a leader returns no records of throttled
   partitions to followers and a follower does not fetch them. Other partitions are not affected.
3. A follower in the ISR is never throttled, because a throttle must not remove a replica from the ISR. In Apache Kafka
   this holds from the leader's first response on, here from the LeaderAndIsr request on. A leader does not throttle a
   caught-up follower outside the ISR either, because the high watermark and acks=all wait for it.

Source: kafka.server.ReplicationQuotaManager.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from ottla_broker.config import BrokerConfig
from ottla_broker.metrics import Metrics
from ottla_broker.ports import Clock
from ottla_broker.rates import WindowedRate

NO_LIMIT: Final = 2**63 - 1
"""The quota when no rate is configured."""


class ReplicationQuota:
    """One quota and the measured rate of the throttled replicas."""

    def __init__(self, clock: Clock, bound: Callable[[], int], windows: int, window_s: float) -> None:
        """
        Args:
            bound: gives the current quota in bytes per second.
            windows: replication.quota.window.num.
            window_s: replication.quota.window.size.seconds.
        """
        self._clock = clock
        self._bound = bound
        self._rate = WindowedRate(windows, window_s)

    @property
    def is_exceeded(self) -> bool:
        """Whether the rate exceeds the quota, so that throttled replicas have to wait."""
        bound = self._bound()
        return bound < NO_LIMIT and self._rate.measure(self._clock.monotonic()) > bound

    def byte_rate(self) -> float:
        return self._rate.measure(self._clock.monotonic())

    def record(self, size: int) -> None:
        """Counts `size` bytes of throttled replicas."""
        self._rate.record(size, self._clock.monotonic())

    def wait_s(self) -> float:
        """Seconds until `is_exceeded` may have become false."""
        return self._rate.wait_s(self._bound(), self._clock.monotonic())


class ReplicationQuotas:
    """The leader and the follower quota of a broker, and the byte counters of replication."""

    def __init__(self, config: BrokerConfig, clock: Clock, metrics: Metrics) -> None:
        windows, window_s = config.replication_quota_window_num, config.replication_quota_window_size_seconds
        self.leader = ReplicationQuota(clock, lambda: config.leader_replication_throttled_rate, windows, window_s)
        self.follower = ReplicationQuota(clock, lambda: config.follower_replication_throttled_rate, windows, window_s)
        prefix = "kafka_server_brokertopicmetrics_"
        self.bytes_out = metrics.counter(f"{prefix}replicationbytesout", "Bytes that followers fetched.")
        self.reassigned_out = metrics.counter(
            f"{prefix}reassignmentbytesout", "Bytes fetched by followers that a reassignment adds."
        )
        self.reassigned_in = metrics.counter(
            f"{prefix}reassignmentbytesin", "Bytes fetched for local replicas that a reassignment adds."
        )
        for name, quota in (("leader", self.leader), ("follower", self.follower)):
            metrics.gauge(
                f"kafka_server_{name}replication_byte_rate",
                f"Bytes per second of replicas that this broker throttles as {name}.",
                quota.byte_rate,
            )
