"""MutationQuota: the quota on what the controller creates and deletes, by partitions (KIP-599). Pure.

A request is strict or permissive, by its version:

    strict       (CreateTopics 6, DeleteTopics 5, CreatePartitions 3 and later) while the quota is used up, what would
                 change something gets THROTTLING_QUOTA_EXCEEDED, and nothing of it is counted
    permissive   (before) everything is done and counted, and the client is throttled for what is over the quota

Either way one request may take more than is left: the quota is used up after it, not before.

Source: kafka.server.ControllerMutationQuotaManager.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

from ottla_broker.protocol.errors import ErrorCode, KafkaError
from ottla_broker.quotas.sampled_rate import SampledRate
from ottla_broker.quotas.shares import Share, Shares
from ottla_broker.quotas.token_bucket import TokenBucket

_MAX_THROTTLE_MS = 2**31 - 1


class MutationMeter(NamedTuple):
    """The tokens, and the rate for its metric."""

    bucket: TokenBucket
    rate: SampledRate


class MutationQuota:
    """See the module."""

    def __init__(self, samples: int, sample_s: float) -> None:
        self.shares = Shares(
            lambda: MutationMeter(TokenBucket(samples * sample_s), SampledRate(samples, sample_s)), samples, sample_s
        )

    def of_request(
        self, user: str, client_id: str, *, is_strict: bool, monotonic: Callable[[], float]
    ) -> MutationCharge:
        """What one request charges for its changes."""
        return MutationCharge(self.shares.of(user, client_id, monotonic()), is_strict, monotonic)

    def add_throttle(self, user: str, client_id: str, throttle_ms: int, now: float) -> None:
        """The client was throttled for this quota; for its metric."""
        self.shares.of(user, client_id, now).add_throttle(throttle_ms, now)


class MutationCharge:
    """The changes of one request."""

    __slots__ = ("_at", "_is_strict", "_monotonic", "_share", "_throttle_s")

    def __init__(self, share: Share[MutationMeter], is_strict: bool, monotonic: Callable[[], float]) -> None:
        self._share = share
        self._is_strict = is_strict
        self._monotonic = monotonic
        self._throttle_s = 0.0
        self._at = 0.0

    def record(self, partitions: int) -> None:
        """Counts partitions that are about to be created or deleted.

        Raises:
            KafkaError: THROTTLING_QUOTA_EXCEEDED; the request is strict and the quota is used up.
        """
        now, share = self._monotonic(), self._share
        bucket, rate = share.meter
        if self._is_strict:
            self._note(bucket.throttle_s(share.bound, now), now)
            if self._throttle_s:
                raise KafkaError(ErrorCode.THROTTLING_QUOTA_EXCEEDED)
        bucket.take(partitions, share.bound, now)
        rate.record(partitions, now)
        if not self._is_strict:
            self._note(bucket.throttle_s(share.bound, now), now)

    def throttle_ms(self) -> int:
        """For how long the client is throttled from now on; the time since the record has passed already.

        A rate of 0 has no end to wait for: what is over it is refused, and as in Apache Kafka nobody is throttled.
        """
        if math.isinf(self._throttle_s):
            return 0
        left_s = self._throttle_s - (self._monotonic() - self._at)
        return max(0, min(_MAX_THROTTLE_MS, round(left_s * 1000)))

    def _note(self, throttle_s: float, now: float) -> None:
        if throttle_s:
            self._throttle_s, self._at = throttle_s, now
