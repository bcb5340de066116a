"""GetTelemetrySubscriptions (key 71, KIP-714): which metrics a client is to push, and how often.

Behaviour
    The union of the client-metrics resources that match the client, at the shortest of their intervals; no metrics
    where none matches. A zero instance id gets a new one. The clients are to send cumulative values, so that a push
    that is lost loses nothing (Apache Kafka asks for deltas).
Errors, in this order
    THROTTLING_QUOTA_EXCEEDED (too early, with the subscription that the client has).
Versions
    0 alone.
"""

from __future__ import annotations

from ottla_broker.protocol.codec import ZERO_UUID
from ottla_broker.protocol.errors import ErrorCode
from ottla_broker.protocol.generated.get_telemetry_subscriptions import (
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
)
from ottla_broker.server.handler_api import RequestContext, Services
from ottla_broker.server.handlers.shared.client_contexts import client_context
from ottla_broker.telemetry.client_telemetry import ACCEPTED_CODECS


async def handle(
    services: Services, context: RequestContext, request: GetTelemetrySubscriptionsRequest
) -> GetTelemetrySubscriptionsResponse:
    """Answers at once."""
    telemetry = services.client_telemetry
    given = request.client_instance_id
    instance_id = telemetry.new_instance_id() if given == ZERO_UUID else given
    found = telemetry.subscription(client_context(context, instance_id))
    if isinstance(found, ErrorCode):
        return GetTelemetrySubscriptionsResponse(error_code=int(found))
    return GetTelemetrySubscriptionsResponse(
        client_instance_id=instance_id,
        subscription_id=found.subscription_id,
        accepted_compression_types=[int(codec) for codec in ACCEPTED_CODECS],
        push_interval_ms=found.interval_ms,
        telemetry_max_bytes=telemetry.max_bytes,
        delta_temporality=False,
        requested_metrics=list(found.metrics),
    )
