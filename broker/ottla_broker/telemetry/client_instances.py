"""Client instances (KIP-714): what a broker remembers of each client that asks for a subscription or pushes. Pure.

A client instance is one client of one process; it has a random id. The rules here decide whether a request comes too
early, what its subscription is, and when the instance is forgotten. Not here: the requests on the wire, the metrics
themselves (`receiver`).

Source: org.apache.kafka.server.metrics.ClientMetricsInstance and ClientMetricsManager of Apache Kafka.
"""

from __future__ import annotations

import base64
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

import crc32c

from ottla_broker.config.client_metrics import ALL_METRICS, DEFAULT_INTERVAL_MS, Subscription
from ottla_broker.protocol.errors import ErrorCode

MOST_INSTANCES: Final = 16_384
"""Beyond that the instance that has been silent for longest is forgotten."""

LEAST_LIFETIME_MS: Final = 60_000
"""An instance is forgotten when it has been silent for so long, and for three push intervals."""

_NEVER: Final = float("-inf")
_ASKS_AGAIN: Final = (ErrorCode.UNKNOWN_SUBSCRIPTION_ID, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)


@dataclass(frozen=True, slots=True)
class ClientContext:
    """Who a client is. `instance_id` is 16 bytes."""

    instance_id: bytes
    client_id: str
    software_name: str
    software_version: str
    address: str
    port: int

    def attributes(self) -> dict[str, str]:
        """What the `match` patterns of a client-metrics resource are held against."""
        return {
            "client_instance_id": instance_name(self.instance_id),
            "client_id": self.client_id,
            "client_software_name": self.software_name,
            "client_software_version": self.software_version,
            "client_source_address": self.address,
            "client_source_port": str(self.port),
        }


@dataclass(frozen=True, slots=True)
class ClientSubscription:
    """What one client is asked for: the union of the resources that match it, at the shortest of their intervals."""

    subscription_id: int
    metrics: tuple[str, ...]
    interval_ms: int


@dataclass(slots=True)
class ClientInstance:
    """One client instance. Times are of a monotonic clock, in milliseconds."""

    subscription: ClientSubscription
    configs_version: int
    last_get_ms: float = _NEVER
    last_push_ms: float = _NEVER
    is_terminating: bool = False
    last_error: ErrorCode = ErrorCode.NONE
    expires_at_ms: float = field(default=0.0)

    def accept_get(self, now_ms: float) -> bool:
        """Whether a GetTelemetrySubscriptions does not come too early; its time is recorded then.

        Apache Kafka means to let a client ask at once after an error that sends it here, but throttles it.
        """
        elapsed_ms = now_ms - max(self.last_get_ms, self.last_push_ms)
        if elapsed_ms < self.subscription.interval_ms and self.last_error not in _ASKS_AGAIN:
            return False
        self.last_get_ms = now_ms
        return True

    def accept_push(self, now_ms: float) -> bool:
        """Whether a PushTelemetry does not come too early; its time is recorded then.

        The first push after a subscription may come at any time: clients spread it over the interval.
        """
        is_first = self.last_get_ms > self.last_push_ms
        if not is_first and now_ms - self.last_push_ms < self.subscription.interval_ms:
            return False
        self.last_push_ms = now_ms
        return True


def client_subscription(context: ClientContext, subscriptions: Iterable[Subscription]) -> ClientSubscription:
    """The subscription of a client. Every broker of the fleet gives it the same id.

    >>> context = ClientContext(bytes(16), "c", "s", "1", "127.0.0.1", 1)
    >>> some = [Subscription(frozenset({"b."}), 2000, {}), Subscription(frozenset({"a."}), 1000, {})]
    >>> found = client_subscription(context, some)
    >>> found.metrics, found.interval_ms
    (('a.', 'b.'), 1000)
    >>> client_subscription(context, [*some, Subscription(frozenset({"*", "c."}), 5000, {})]).metrics
    ('*',)
    """
    attributes = context.attributes()
    wanted: set[str] = set()
    interval_ms = DEFAULT_INTERVAL_MS
    for subscription in subscriptions:
        if subscription.matches(attributes):
            wanted |= subscription.metrics
            interval_ms = min(interval_ms, subscription.interval_ms)
    metrics = (ALL_METRICS,) if ALL_METRICS in wanted else tuple(sorted(wanted))
    checksum = crc32c.crc32c("\n".join((*metrics, str(interval_ms))).encode() + context.instance_id)
    return ClientSubscription(checksum - (checksum >> 31 << 32), metrics, interval_ms)


class ClientInstances:
    """The instances that a broker remembers.

    Args:
        on_forgotten: called with the id of each instance that is forgotten.
    """

    def __init__(self, on_forgotten: Callable[[bytes], None], most: int = MOST_INSTANCES) -> None:
        self._on_forgotten = on_forgotten
        self._most = most
        self._instances: OrderedDict[bytes, ClientInstance] = OrderedDict()

    def __len__(self) -> int:
        return len(self._instances)

    def __contains__(self, instance_id: bytes) -> bool:
        return instance_id in self._instances

    def find(
        self, context: ClientContext, subscriptions: Mapping[str, Subscription], configs_version: int, now_ms: float
    ) -> ClientInstance:
        """The instance of a client that has sent a request; a new one when the subscriptions have changed since."""
        found = self._instances.get(context.instance_id)
        if found is None or found.configs_version != configs_version:
            found = ClientInstance(client_subscription(context, subscriptions.values()), configs_version)
            self._instances[context.instance_id] = found
        found.expires_at_ms = now_ms + max(LEAST_LIFETIME_MS, 3 * found.subscription.interval_ms)
        self._instances.move_to_end(context.instance_id)
        while len(self._instances) > self._most:
            self._forget(next(iter(self._instances)))
        return found

    def forget_expired(self, now_ms: float) -> None:
        """Forgets the instances that have been silent for too long."""
        for instance_id in [one for one, found in self._instances.items() if found.expires_at_ms <= now_ms]:
            self._forget(instance_id)

    def _forget(self, instance_id: bytes) -> None:
        del self._instances[instance_id]
        self._on_forgotten(instance_id)


def instance_name(instance_id: bytes) -> str:
    """22 characters of URL-safe base64, as Kafka prints its uuids.

    >>> instance_name(bytes(16))
    'AAAAAAAAAAAAAAAAAAAAAA'
    """
    return base64.urlsafe_b64encode(instance_id).rstrip(b"=").decode()
