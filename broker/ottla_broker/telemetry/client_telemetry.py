"""ClientTelemetry: answers clients that ask for a subscription, and takes what they push (KIP-714).

Lives here: the order of checks, where a push is read, and the metrics of it all. Not here: the rules of one instance
(`client_instances`), how a push is read (`push_reading`), what becomes of the data (`receiver`), the wire
(`server.handlers`). It uses the Clock.

Source: org.apache.kafka.server.ClientMetricsManager of Apache Kafka.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol, TypeAlias

from ottla_broker.config.client_metrics import Subscription
from ottla_broker.metrics import Metrics
from ottla_broker.ports import Clock
from ottla_broker.protocol.codec import ZERO_UUID
from ottla_broker.protocol.errors import ErrorCode
from ottla_broker.records.compression import Codec
from ottla_broker.records.errors import BatchTooLarge, RecordsError
from ottla_broker.telemetry.client_instances import ClientContext, ClientInstances, ClientSubscription
from ottla_broker.telemetry.push_reading import (
    LITTLE_PUSH_BYTES,
    MOST_EXPANSION,
    PushedPoints,
    pushed_points_of,
    read_push,
)
from ottla_broker.telemetry.receiver import ClientMetricsReceiver

logger = logging.getLogger("ottla.server")

ACCEPTED_CODECS: Final = (Codec.ZSTD, Codec.LZ4, Codec.GZIP, Codec.SNAPPY)
"""In the order of preference."""

_SWEEP_S = 30.0

ReadElsewhere: TypeAlias = "Callable[[int, bytes, int], Awaitable[Any]]"
"""Runs `push_reading.read_push_job` in a worker, with its arguments."""


class ClientMetricsResources(Protocol):
    """The client-metrics resources; `version` grows with every change."""

    @property
    def subscriptions(self) -> Mapping[str, Subscription]: ...

    @property
    def version(self) -> int: ...


@dataclass(frozen=True, slots=True)
class Push:
    """What a client pushes. `codec` is as on the wire."""

    subscription_id: int
    is_terminating: bool
    codec: int
    data: bytes


class ClientTelemetry:
    """See the module. `start` for the sweep of silent instances; everything runs on the broker's loop."""

    def __init__(
        self,
        clock: Clock,
        resources: ClientMetricsResources,
        receiver: ClientMetricsReceiver,
        metrics: Metrics,
        max_bytes: int,
        read_elsewhere: ReadElsewhere,
    ) -> None:
        """`max_bytes` is telemetry.max.bytes: the longest push, compressed."""
        self._read_elsewhere = read_elsewhere
        self._clock = clock
        self._resources = resources
        self._receiver = receiver
        self.max_bytes = max_bytes
        self._instances = ClientInstances(receiver.forget)
        metrics.gauge(
            "kafka_server_client_metrics_instance_count",
            "Client instances that push metrics, or ask for a subscription.",
            lambda: len(self._instances),
        )
        self._throttled = metrics.counter(
            "kafka_server_client_metrics_throttle", "Requests about client metrics that came too early."
        )
        self._unknown = metrics.counter(
            "kafka_server_client_metrics_unknown_subscription_request",
            "Pushes of client metrics with a subscription that has changed.",
        )
        self._exported = metrics.counter(
            "kafka_server_client_metrics_plugin_export", "Pushes of client metrics that were taken."
        )
        self._failed = metrics.counter(
            "kafka_server_client_metrics_plugin_error", "Pushes of client metrics that could not be read."
        )

    def start(self) -> None:
        self._clock.call_later(_SWEEP_S, self._sweep)

    def new_instance_id(self) -> bytes:
        """A random id that no instance has."""
        while (found := self._clock.uuid4().bytes) in self._instances:
            pass
        return found

    def subscription(self, context: ClientContext) -> ClientSubscription | ErrorCode:
        """The subscription of a client; THROTTLING_QUOTA_EXCEEDED when it asks too early."""
        now_ms = self._now_ms()
        instance = self._instances.find(context, self._resources.subscriptions, self._resources.version, now_ms)
        if not instance.accept_get(now_ms):
            self._throttled.inc()
            return ErrorCode.THROTTLING_QUOTA_EXCEEDED
        instance.last_error = ErrorCode.NONE
        return instance.subscription

    async def push(self, context: ClientContext, push: Push) -> ErrorCode:
        """Takes a push, and waits where it is read in a worker.

        The error codes in the order of Apache Kafka: see `server.handlers.push_telemetry`.
        """
        if context.instance_id in (ZERO_UUID, _RESERVED_ID):
            return ErrorCode.INVALID_REQUEST
        now_ms = self._now_ms()
        instance = self._instances.find(context, self._resources.subscriptions, self._resources.version, now_ms)
        was_terminating, instance.is_terminating = instance.is_terminating, push.is_terminating
        if was_terminating:
            error = ErrorCode.INVALID_REQUEST
        elif not instance.accept_push(now_ms) and not push.is_terminating:
            self._throttled.inc()
            error = ErrorCode.THROTTLING_QUOTA_EXCEEDED
        elif push.subscription_id != instance.subscription.subscription_id:
            self._unknown.inc()
            error = ErrorCode.UNKNOWN_SUBSCRIPTION_ID
        else:
            error = await self._take(context, push)
        instance.last_error = error
        return error

    async def _take(self, context: ClientContext, push: Push) -> ErrorCode:
        if push.codec != Codec.NONE and push.codec not in ACCEPTED_CODECS:
            return ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
        if len(push.data) > self.max_bytes:
            return ErrorCode.TELEMETRY_TOO_LARGE
        if not push.data:
            return ErrorCode.NONE
        try:
            pushed = await self._read(push)
        except (ValueError, RecordsError) as error:
            self._failed.inc()
            logger.warning("client metrics of %s (%s) are refused: %s", context.client_id, context.address, error)
            return ErrorCode.INVALID_RECORD
        except RuntimeError as error:
            self._failed.inc()
            logger.warning("client metrics of %s (%s) are lost: %s", context.client_id, context.address, error)
            return ErrorCode.UNKNOWN_SERVER_ERROR
        if context.instance_id not in self._instances:
            return ErrorCode.NONE  # silent for so long that its series are gone
        self._receiver.export(context, pushed)
        self._exported.inc()
        return ErrorCode.NONE

    async def _read(self, push: Push) -> PushedPoints:
        if len(push.data) <= LITTLE_PUSH_BYTES:
            try:
                return read_push(push.codec, push.data, LITTLE_PUSH_BYTES)
            except BatchTooLarge:
                pass  # small, but it grows
        arguments = (push.codec, push.data, MOST_EXPANSION * self.max_bytes)
        return pushed_points_of(await self._read_elsewhere(*arguments))

    def _now_ms(self) -> float:
        return self._clock.monotonic() * 1000

    def _sweep(self) -> None:
        self._instances.forget_expired(self._now_ms())
        self.start()


_RESERVED_ID: Final = bytes(15) + b"\x01"
"""Uuid.ONE_UUID of Apache Kafka."""
