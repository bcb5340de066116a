"""Throttling: counts what requests use of the quotas of their clients, and says for how long to throttle.

Lives here: which quota a request is counted for, and when. Not here: the quotas and their arithmetic
(`ottla_broker.quotas`), the pause of a connection and the order of its responses (`connection`). It uses Clock.

    Produce            its bytes when it arrives, so that pipelined requests are throttled too, with acks=0 also
    Fetch              the bytes of its records before the response; when throttled the response is empty (KIP-219)
    CreateTopics, ...  the partitions that change (KIP-599), through what the handler gets from `mutation_charge`
    any request        the time of the loop that it takes, in percent of the loop, when it is answered; requests between
                       brokers and Produce with acks=0 are counted apart and never throttled (KIP-124)

A throttled request is answered at once with its throttle time, and its connection is not read for so long (KIP-219).
While no entity has a quota of a kind, requests are not counted: `is_active` is all that is asked.

The time of a request is that of its dispatch, of the steps of its coroutine, and of encoding its response. What
happens when a delayed operation completes is the work of the request that completes it, as in Apache Kafka.

Source: kafka.server.QuotaFactory, RequestHandlerHelper, KafkaApis; kafka.server.ThrottledChannel.

What others may rely on:

- `throttle.is_active` is false while nobody has a quota on bytes or request time. Then `context.usage` is None, and
  nobody calls the rest. A request that arrived before the first quota has no usage either.
- A client is `context.principal_name` and `context.client_id`. Authentication sets `principal_name` on the
  connection.
- The connection counts and mutes; a handler does neither. Two exceptions: a fetch of a consumer asks `is_throttled`
  of its reply once, before its session is told what is sent, and sends `context.throttled()` instead; a handler that
  changes topics gives the controller a `charge`, which is called before each write and may raise
  THROTTLING_QUOTA_EXCEEDED.
- A muted connection is not read, and responses leave all the same. Whatever resumes reading asks for the mute, a full
  queue and unsent bytes.
- Quotas reach `on_quotas` at the start, with each notification and after a lost session, also when nothing has
  changed.
"""

from __future__ import annotations

import logging
import types
from collections.abc import Callable, Coroutine, Generator, Mapping
from typing import Any, Final

from ottla_broker.config import BrokerConfig
from ottla_broker.controller.acts.topic_administration import Charge, free_of_charge
from ottla_broker.metrics import Metrics
from ottla_broker.ports.clock import Clock
from ottla_broker.protocol.api import ApiKey
from ottla_broker.quotas.alterations import parse_bounds
from ottla_broker.quotas.client_quotas import ClientQuota
from ottla_broker.quotas.entities import (
    CONSUMER_BYTE_RATE,
    CONTROLLER_MUTATION_RATE,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
    QuotaEntity,
)
from ottla_broker.quotas.mutation_quotas import MutationQuota
from ottla_broker.quotas.sampled_rate import SampledRate
from ottla_broker.server.edge.quota_metrics import register_mutation_metrics, register_quota_metrics
from ottla_broker.server.handler_api import RequestContext, RequestUsage

logger = logging.getLogger("ottla.server")

_PERCENT: Final = 100.0
_INACTIVE_CHECK_S: Final = 600.0

_PRODUCE = int(ApiKey.PRODUCE)

EXEMPT: Final = frozenset(
    int(key)
    for key in (
        ApiKey.LEADER_AND_ISR,
        ApiKey.STOP_REPLICA,
        ApiKey.UPDATE_METADATA,
        ApiKey.CONTROLLED_SHUTDOWN,
        ApiKey.WRITE_TXN_MARKERS,
        ApiKey.ALTER_PARTITION,
    )
)
"""Requests between brokers; a fetch of a follower is another. Source: KafkaApis, sendResponseExemptThrottle."""


class Throttling:
    """The quotas of one broker. See the module."""

    def __init__(self, clock: Clock, config: BrokerConfig, metrics: Metrics) -> None:
        samples, sample_s = config.quota_window_num, float(config.quota_window_size_seconds)
        self._clock = clock
        self._monotonic = clock.monotonic
        self.is_active = False
        """Whether any entity has a quota on bytes or request time."""
        self.produce = ClientQuota(samples, sample_s)
        self.fetch = ClientQuota(samples, sample_s)
        self.request = ClientQuota(samples, sample_s, longest_throttle_s=sample_s)
        self.mutations = MutationQuota(
            config.controller_quota_window_num, float(config.controller_quota_window_size_seconds)
        )
        self._exempt_time = SampledRate(samples, sample_s)
        self._is_watching = False
        for quota, kind, rate_name, rate_help in (
            (self.produce, "produce", "byte_rate", "Bytes per second that a client produces."),
            (self.fetch, "fetch", "byte_rate", "Bytes per second that a client fetches."),
            (self.request, "request", "request_time", "Time of a client's requests, in percent of the loop."),
        ):
            register_quota_metrics(metrics, clock.monotonic, quota, kind, rate_name, rate_help)
        register_mutation_metrics(metrics, clock.monotonic, self.mutations)
        metrics.gauge(
            "kafka_server_request_exempt_request_time",
            "Time of requests that are not throttled, in percent of the loop, while a quota on request time exists.",
            lambda: self._exempt_time.measure(clock.monotonic()),
        )

    def set_quotas(self, entity: QuotaEntity, values: Mapping[str, str]) -> None:
        """Sets the quotas of a user or client id from its stored values; a key without a value has none."""
        bounds, problems = parse_bounds(entity, values)
        for problem in problems:
            logger.warning("a stored quota of %s is not in force: %s", entity, problem)
        self.produce.shares.set_bound(entity, bounds.get(PRODUCER_BYTE_RATE))
        self.fetch.shares.set_bound(entity, bounds.get(CONSUMER_BYTE_RATE))
        self.request.shares.set_bound(entity, bounds.get(REQUEST_PERCENTAGE))
        self.mutations.shares.set_bound(entity, bounds.get(CONTROLLER_MUTATION_RATE))
        self.is_active = any(quota.shares.is_enabled for quota in (self.produce, self.fetch, self.request))
        if (self.is_active or self.mutations.shares.is_enabled) and not self._is_watching:
            self._is_watching = True
            self._clock.call_later(_INACTIVE_CHECK_S, self._forget_inactive)

    # For connections

    def receive(self, context: RequestContext, size: int) -> int:
        """A request of `size` bytes has arrived; gives the milliseconds for which its connection is not read."""
        now = self._monotonic()
        usage = context.usage = RequestUsage()
        usage.start(now)
        if context.api_key != _PRODUCE or not self.produce.shares.is_enabled:
            return 0
        user, client_id = context.principal_name, context.client_id or ""
        usage.throttle_ms = self.produce.record(user, client_id, size, now)
        if usage.throttle_ms:
            self.produce.add_throttle(user, client_id, usage.throttle_ms, now)
        return usage.throttle_ms

    def answer(self, context: RequestContext, usage: RequestUsage, response: Any) -> int:
        """A request is about to be answered; sets the throttle time of its response, None for none.

        Returns:
            The milliseconds from now on for which the connection is not read, besides those of `receive`.
        """
        now = self._monotonic()
        mute_ms = 0
        if not usage.is_counted:
            mute_ms = self._count_time(context, usage, now, is_exempt=response is None)
            if usage.charge is not None:
                mutation_ms = usage.charge.throttle_ms()
                if mutation_ms > mute_ms:
                    mute_ms = mutation_ms
                    self.mutations.add_throttle(context.principal_name, context.client_id or "", mute_ms, now)
            mute_ms = mute_ms if mute_ms > usage.throttle_ms else 0
        else:
            mute_ms = usage.throttle_ms
        throttle_ms = max(mute_ms, usage.throttle_ms)
        if throttle_ms and hasattr(response, "throttle_time_ms"):
            response.throttle_time_ms = throttle_ms
        return mute_ms

    def finish(self, context: RequestContext, usage: RequestUsage) -> None:
        """The response is encoded and sent: this time counts for the next request."""
        now = self._monotonic()
        usage.stop(now)
        if self.request.shares.is_enabled:
            percent = usage.take(now) * _PERCENT
            if usage.is_exempt or context.api_key in EXEMPT:
                self._exempt_time.record(percent, now)
            else:
                self.request.record_unchecked(context.principal_name, context.client_id or "", percent, now)

    # For handlers

    def most_fetch_bytes(self, context: RequestContext) -> float:
        """The largest response that is not throttled after silence; more would never pass."""
        if not self.fetch.shares.is_enabled:
            return float("inf")
        return self.fetch.most_at_once(context.principal_name, context.client_id or "", self._monotonic())

    def is_fetch_throttled(self, context: RequestContext, size: int) -> bool:
        """Counts a response of `size` bytes to a consumer; whether an empty one is sent instead."""
        usage = context.usage
        if usage is None:
            return False  # it arrived before there was a quota
        now, user, client_id = self._monotonic(), context.principal_name, context.client_id or ""
        request_ms = self._count_time(context, usage, now)
        fetch_ms = 0
        if self.fetch.shares.is_enabled:
            fetch_ms = self.fetch.record(user, client_id, size, now)
            if fetch_ms > request_ms:
                self.fetch.add_throttle(user, client_id, fetch_ms, now)
            if fetch_ms or request_ms:
                self.fetch.record_unchecked(user, client_id, -size, now)
        usage.is_counted = True
        usage.throttle_ms = max(fetch_ms, request_ms)
        return usage.throttle_ms > 0

    def exempt(self, context: RequestContext) -> None:
        """The request is one of another broker: it is never throttled."""
        if context.usage is not None:
            context.usage.is_exempt = True

    def mutation_charge(self, context: RequestContext, *, is_strict: bool) -> Charge:
        """What the controller calls with the number of partitions that it is about to create or delete.

        Args:
            is_strict: what is called raises KafkaError(THROTTLING_QUOTA_EXCEEDED) while the quota is used up.
        """
        if not self.mutations.shares.is_enabled:
            return free_of_charge
        if context.usage is None:
            context.usage = RequestUsage()
        charge = context.usage.charge = self.mutations.of_request(
            context.principal_name, context.client_id or "", is_strict=is_strict, monotonic=self._monotonic
        )
        return charge.record

    def _count_time(self, context: RequestContext, usage: RequestUsage, now: float, *, is_exempt: bool = False) -> int:
        """Counts the time until now; gives the milliseconds to throttle for."""
        if not self.request.shares.is_enabled:
            return 0
        percent = usage.take(now) * _PERCENT
        if is_exempt or usage.is_exempt or context.api_key in EXEMPT:
            usage.is_exempt = True
            self._exempt_time.record(percent, now)
            return 0
        user, client_id = context.principal_name, context.client_id or ""
        throttle_ms = self.request.record(user, client_id, percent, now)
        if throttle_ms > usage.throttle_ms:
            self.request.add_throttle(user, client_id, throttle_ms, now)
        return throttle_ms

    def _forget_inactive(self) -> None:
        now = self._monotonic()
        for shares in (self.produce.shares, self.fetch.shares, self.request.shares, self.mutations.shares):
            shares.forget_inactive(now)
        self._clock.call_later(_INACTIVE_CHECK_S, self._forget_inactive)


async def measured(coroutine: Coroutine[Any, Any, None], usage: RequestUsage, monotonic: Callable[[], float]) -> None:
    """The coroutine of a request, whose steps are measured: what it awaits is not."""
    await _steps(coroutine, usage, monotonic)


@types.coroutine
def _steps(
    coroutine: Coroutine[Any, Any, None], usage: RequestUsage, monotonic: Callable[[], float]
) -> Generator[Any, Any, None]:
    send: Callable[[Any], Any] = coroutine.send
    value: Any = None
    while True:
        usage.start(monotonic())
        try:
            awaited = send(value)
        except StopIteration:
            return
        finally:
            usage.stop(monotonic())
        try:
            value, send = (yield awaited), coroutine.send
        except GeneratorExit:
            coroutine.close()
            raise
        except BaseException as error:
            value, send = error, coroutine.throw
