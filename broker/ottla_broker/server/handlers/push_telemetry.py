"""PushTelemetry (key 72, KIP-714): takes the metrics of a client.

Behaviour
    The metrics go to the receiver of the broker (`telemetry.receiver`), which exposes them on /metrics. A push without
    metrics is fine. A terminating client may push before its interval is over, and nothing afterwards.
Errors, in this order
    INVALID_REQUEST (a zero or reserved instance id, the client had said that it ends), THROTTLING_QUOTA_EXCEEDED (too
    early), UNKNOWN_SUBSCRIPTION_ID, UNSUPPORTED_COMPRESSION_TYPE, TELEMETRY_TOO_LARGE, INVALID_RECORD (the metrics
    cannot be read).
Versions
    0 alone.
"""

from __future__ import annotations

from ottla_broker.protocol.generated.push_telemetry import PushTelemetryRequest, PushTelemetryResponse
from ottla_broker.server.handler_api import RequestContext, Services
from ottla_broker.server.handlers.shared.client_contexts import client_context
from ottla_broker.telemetry.client_telemetry import Push


async def handle(services: Services, context: RequestContext, request: PushTelemetryRequest) -> PushTelemetryResponse:
    """Waits where the metrics are read in a worker."""
    push = Push(request.subscription_id, request.terminating, request.compression_type, bytes(request.metrics))
    error = await services.client_telemetry.push(client_context(context, request.client_instance_id), push)
    return PushTelemetryResponse(error_code=int(error))
