"""Shares: the meter of every group of clients that shares one bound. Pure.

The look-up of a client is one of a dict; the levels of precedence are gone through once after each change of a quota.

Source: kafka.server.SensorAccess, kafka.server.ClientQuotaManager.getOrCreateQuotaSensors.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import Final, Generic, TypeVar

from ottla_broker.quotas.entities import QuotaEntity
from ottla_broker.quotas.precedence import QuotaTable, Tags
from ottla_broker.quotas.sampled_rate import SampledRate

INACTIVE_S: Final = 3600.0
"""A share that no client has used for so long is forgotten. Source: InactiveSensorExpirationTimeSeconds."""

Meter = TypeVar("Meter")

MAX_LOOKUPS: Final = 10_000
"""Clients whose share is remembered: client ids are the clients' own choice, and there may be any number of them."""


class Share(Generic[Meter]):
    """One bound, the clients that share it, and what they have used."""

    __slots__ = ("_delayed", "_throttles", "bound", "meter", "tags", "used_at")

    def __init__(self, tags: Tags, bound: float, meter: Meter, throttles: ThrottleTimes, delayed: DelayQueue) -> None:
        self.tags = tags
        self.bound = bound
        self.meter = meter
        self._throttles = throttles
        self._delayed = delayed
        self.used_at = 0.0

    def add_throttle(self, throttle_ms: float, now: float) -> None:
        """A client was throttled."""
        self._throttles.add(throttle_ms, now)
        self._delayed.add(now + throttle_ms / 1000, now)

    def average_throttle_ms(self, now: float) -> float:
        """The average of the throttle times above 0 in the samples."""
        return self._throttles.average(now)


class ThrottleTimes:
    """The average of the throttle times of the last samples. Source: org.apache.kafka.common.metrics.stats.Avg."""

    __slots__ = ("_count", "_sum")

    def __init__(self, samples: int, sample_s: float) -> None:
        self._sum = SampledRate(samples, sample_s)
        self._count = SampledRate(samples, sample_s)

    def add(self, throttle_ms: float, now: float) -> None:
        self._sum.record(throttle_ms, now)
        self._count.record(1, now)

    def average(self, now: float) -> float:
        count = self._count.measure(now)
        return self._sum.measure(now) / count if count else 0.0


class DelayQueue:
    """How many throttles have not ended. Source: kafka.server.ClientQuotaManager, its delay queue.

    >>> delayed = DelayQueue()
    >>> delayed.add(5.0, now=1.0)
    >>> delayed.add(7.5, now=1.0)
    >>> delayed.size(4.9), delayed.size(5.0), delayed.size(8.0)
    (2, 1, 0)
    """

    __slots__ = ("_ends",)

    def __init__(self) -> None:
        self._ends: list[float] = []

    def add(self, end: float, now: float) -> None:
        """A throttle begins `now` and ends at `end` (seconds). Those that are over are forgotten: nobody may ask."""
        self.size(now)
        heapq.heappush(self._ends, end)

    def size(self, now: float) -> int:
        while self._ends and self._ends[0] <= now:
            heapq.heappop(self._ends)
        return len(self._ends)


class Shares(Generic[Meter]):
    """The shares of one quota type.

    Args:
        make_meter: a new meter.
        samples: samples kept of the throttle times.
        sample_s: length of one, in seconds.
    """

    def __init__(self, make_meter: Callable[[], Meter], samples: int, sample_s: float) -> None:
        self._make_meter = make_meter
        self._samples = samples
        self._sample_s = sample_s
        self._table = QuotaTable()
        self._by_tags: dict[Tags, Share[Meter]] = {}
        self._by_client: dict[tuple[str, str], Share[Meter]] = {}
        self.is_enabled = False
        """Whether any entity has a quota of this type."""
        self.delayed = DelayQueue()
        self.on_added: Callable[[Share[Meter]], None] = _ignore
        self.on_removed: Callable[[Share[Meter]], None] = _ignore

    def set_bound(self, entity: QuotaEntity, bound: float | None) -> None:
        """Sets or removes the bound of an entity. What clients have used still counts."""
        self._table.set(entity, bound)
        self.is_enabled = bool(self._table)
        self._by_client.clear()

    def of(self, user: str, client_id: str, now: float) -> Share[Meter]:
        """The share of a client, which uses it now (seconds)."""
        share = self._by_client.get((user, client_id))
        if share is None:
            if len(self._by_client) >= MAX_LOOKUPS:
                self._by_client.clear()
            share = self._by_client[user, client_id] = self._find(user, client_id)
        share.used_at = now
        return share

    def forget_inactive(self, now: float) -> None:
        """Forgets the shares that were not used for `INACTIVE_S`."""
        inactive = [share for share in self._by_tags.values() if now - share.used_at >= INACTIVE_S]
        for share in inactive:
            del self._by_tags[share.tags]
            self.on_removed(share)
        if inactive:
            self._by_client.clear()

    def _find(self, user: str, client_id: str) -> Share[Meter]:
        bound, tags = self._table.match(user, client_id)
        share = self._by_tags.get(tags)
        if share is None:
            throttles = ThrottleTimes(self._samples, self._sample_s)
            share = self._by_tags[tags] = Share(tags, bound, self._make_meter(), throttles, self.delayed)
            self.on_added(share)
        share.bound = bound
        return share


def _ignore(share: object) -> None:
    pass
