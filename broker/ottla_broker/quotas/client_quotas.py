"""ClientQuota: the quota of one type on bytes or request time: counts, and says for how long to throttle. Pure.

    quota        amount counted                      unit      longest throttle
    produce      bytes of a Produce request          bytes/s   none
    fetch        bytes of a Fetch response           bytes/s   none
    request      time of the loop                    percent   one sample (quota.window.size.seconds)

A byte rate of 0 throttles nothing: the throttle would have no end, and Apache Kafka makes none of it. A percentage of 0
throttles every request for one sample. What is below 0 throttles nothing.

Source: kafka.server.ClientQuotaManager and ClientRequestQuotaManager (KIP-13, KIP-124).
"""

from __future__ import annotations

import math

from ottla_broker.quotas.sampled_rate import SampledRate
from ottla_broker.quotas.shares import Share, Shares

_MAX_THROTTLE_MS = 2**31 - 1
"""What a response can say."""


class ClientQuota:
    """See the module. Where no entity has a quota, `shares.is_enabled` is false and nobody calls.

    >>> from ottla_broker.quotas.entities import QuotaEntity
    >>> quota = ClientQuota(samples=11, sample_s=1.0)
    >>> quota.shares.set_bound(QuotaEntity(client_id="reports"), 100.0)
    >>> quota.record("ANONYMOUS", "reports", 1000, now=50.0)    # 100 bytes/s over ten seconds
    0
    >>> quota.record("ANONYMOUS", "reports", 500, now=50.0)     # 1500 bytes take fifteen
    5000
    >>> quota.record("ANONYMOUS", "other", 10**9, now=50.0)
    0
    """

    def __init__(self, samples: int, sample_s: float, longest_throttle_s: float = math.inf) -> None:
        self._samples = samples
        self._sample_s = sample_s
        self._longest_throttle_s = longest_throttle_s
        self.shares = Shares(lambda: SampledRate(samples, sample_s), samples, sample_s)

    def record(self, user: str, client_id: str, amount: float, now: float) -> int:
        """Counts an amount, and gives the milliseconds to throttle the client for: 0 within the quota."""
        share = self.shares.of(user, client_id, now)
        share.meter.record(amount, now)
        return self._throttle_ms(share, now)

    def record_unchecked(self, user: str, client_id: str, amount: float, now: float) -> None:
        """Counts an amount without a check: the next request is throttled for it. A negative one takes back."""
        self.shares.of(user, client_id, now).meter.record(amount, now)

    def add_throttle(self, user: str, client_id: str, throttle_ms: int, now: float) -> None:
        """The client was throttled for this quota; for its metric."""
        self.shares.of(user, client_id, now).add_throttle(throttle_ms, now)

    def most_at_once(self, user: str, client_id: str, now: float) -> float:
        """The largest amount that may pass without a throttle after silence."""
        return self.shares.of(user, client_id, now).bound * (self._samples - 1) * self._sample_s

    def _throttle_ms(self, share: Share[SampledRate], now: float) -> int:
        throttle_s = min(share.meter.throttle_s(share.bound, now), self._longest_throttle_s)
        return 0 if math.isinf(throttle_s) else min(round(throttle_s * 1000), _MAX_THROTTLE_MS)
