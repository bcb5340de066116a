"""The metrics of client quotas: what each client uses, and for how long it is throttled.

They appear with the first request of a client while a quota of that kind exists, and go when the client has sent
nothing for an hour. Labels: `user` and `client_id`, "" for the one that the quota does not go by. The size of the
queue of each kind is there always.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from ottla_broker.metrics import Metrics
from ottla_broker.quotas.client_quotas import ClientQuota
from ottla_broker.quotas.mutation_quotas import MutationMeter, MutationQuota
from ottla_broker.quotas.sampled_rate import SampledRate
from ottla_broker.quotas.shares import Share, Shares

Read = Callable[[Any, float], float]
"""Reads a share at a time in seconds."""

_THROTTLE_HELP = "Average throttle time of a client in milliseconds, of the throttles above 0."


def register_quota_metrics(
    metrics: Metrics, monotonic: Callable[[], float], quota: ClientQuota, kind: str, rate_name: str, rate_help: str
) -> None:
    """Has the rate and the throttle time of each client in the registry.

    Args:
        kind: the type of Kafka's MBean, in lower case.
        rate_name: the name of its rate.
        rate_help: the meaning of the rate.
    """

    def rate(share: Share[SampledRate], now: float) -> float:
        return share.meter.measure(now)

    _register(metrics, monotonic, quota.shares, kind, {rate_name: (rate_help, rate)})


def register_mutation_metrics(metrics: Metrics, monotonic: Callable[[], float], quota: MutationQuota) -> None:
    """Has the tokens, the rate and the throttle time of each client in the registry."""

    def tokens(share: Share[MutationMeter], now: float) -> float:
        return share.meter.bucket.tokens(share.bound, now)

    def rate(share: Share[MutationMeter], now: float) -> float:
        return share.meter.rate.measure(now)

    reads: dict[str, tuple[str, Read]] = {
        "tokens": ("Partitions that a client may create or delete at once.", tokens),
        "mutation_rate": ("Partitions per second that a client creates or deletes.", rate),
    }
    _register(metrics, monotonic, quota.shares, "controllermutation", reads)


def _register(
    metrics: Metrics,
    monotonic: Callable[[], float],
    shares: Shares[Any],
    kind: str,
    reads: dict[str, tuple[str, Read]],
) -> None:
    def throttle_ms(share: Share[Any], now: float) -> float:
        return share.average_throttle_ms(now)

    metrics.gauge(
        f"kafka_server_{kind}_queue_size",
        "Throttled requests whose throttle time is not over.",
        lambda: float(shares.delayed.size(monotonic())),
    )
    every: dict[str, tuple[str, Read]] = {**reads, "throttle_time": (_THROTTLE_HELP, throttle_ms)}

    def add(share: Share[Any]) -> None:
        for name, (help_text, read) in every.items():
            metrics.gauge(
                f"kafka_server_{kind}_{name}",
                help_text,
                partial(_read_now, read, share, monotonic),
                user=share.tags.user,
                client_id=share.tags.client_id,
            )

    def remove(share: Share[Any]) -> None:
        for name in every:
            metrics.remove(f"kafka_server_{kind}_{name}", user=share.tags.user, client_id=share.tags.client_id)

    shares.on_added, shares.on_removed = add, remove


def _read_now(read: Read, share: Share[Any], monotonic: Callable[[], float]) -> float:
    return read(share, monotonic())
