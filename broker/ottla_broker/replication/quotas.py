"""Replication quotas (KIP-73): how much a leader sends for, and a follower takes for, the replicas that are throttled.

Lives here: which replicas those are, and whether their rate is above the bound. Not here: what a leader (`server`,
fetch) or a follower (`fetchers`) leaves out because of it; the pace of moves between log directories (`storage`). On
the calling side of Clock.

The rules (KIP-73)
1. `leader.replication.throttled.replicas` and `follower.…` of a topic name them, as PARTITION:BROKER or `*`; the rates
   are dynamic configurations of the broker. Without a rate nothing is held back, but all is measured.
2. Bytes of throttled replicas always count. While the rate over the last windows is above the bound, a leader gives a
   follower nothing of them, and a follower does not ask for them; other partitions go on.
3. A follower that is in sync is never held back: a throttle must not take anybody out of an ISR. It counts as such from
   the controller's word on; in Apache Kafka only from its leader's first answer. Nor does a leader hold one back that
   is about to join, for which the high watermark waits already, and acks=all with it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from ottla_broker.config import BrokerConfig
from ottla_broker.metrics import Metrics
from ottla_broker.ports import Clock
from ottla_broker.rates import WindowedRate

NO_LIMIT: Final = 2**63 - 1
"""The rate where none is configured."""


class ReplicationQuota:
    """One bound, and what passes under it."""

    def __init__(self, clock: Clock, bound: Callable[[], int], windows: int, window_s: float) -> None:
        """`bound` gives the bytes per second in force now."""
        self._clock = clock
        self._bound = bound
        self._rate = WindowedRate(windows, window_s)

    @property
    def is_exceeded(self) -> bool:
        """Whether throttled replicas are to be held back now."""
        bound = self._bound()
        return bound < NO_LIMIT and self._rate.measure(self._clock.monotonic()) > bound

    def byte_rate(self) -> float:
        return self._rate.measure(self._clock.monotonic())

    def record(self, size: int) -> None:
        """So many bytes of throttled replicas have passed."""
        self._rate.record(size, self._clock.monotonic())

    def wait_s(self) -> float:
        """Seconds until `is_exceeded` may have become false."""
        return self._rate.wait_s(self._bound(), self._clock.monotonic())


class ReplicationQuotas:
    """Both quotas of a broker, and the counters of what replication moves."""

    def __init__(self, config: BrokerConfig, clock: Clock, metrics: Metrics) -> None:
        windows, window_s = config.replication_quota_window_num, config.replication_quota_window_size_seconds
        self.leader = ReplicationQuota(clock, lambda: config.leader_replication_throttled_rate, windows, window_s)
        self.follower = ReplicationQuota(clock, lambda: config.follower_replication_throttled_rate, windows, window_s)
        prefix = "kafka_server_brokertopicmetrics_"
        self.bytes_out = metrics.counter(f"{prefix}replicationbytesout", "Bytes that followers fetched.")
        self.reassigned_out = metrics.counter(
            f"{prefix}reassignmentbytesout", "Bytes that followers fetched which a reassignment adds."
        )
        self.reassigned_in = metrics.counter(
            f"{prefix}reassignmentbytesin", "Bytes fetched for replicas here that a reassignment adds."
        )
        for name, quota in (("leader", self.leader), ("follower", self.follower)):
            metrics.gauge(
                f"kafka_server_{name}replication_byte_rate",
                f"Bytes per second of replicas that this broker throttles as {name}.",
                quota.byte_rate,
            )
