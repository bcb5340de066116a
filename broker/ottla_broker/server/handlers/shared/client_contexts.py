"""Who the client of a request is, for its metrics (KIP-714)."""

from __future__ import annotations

from ottla_broker.server.handler_api import RequestContext
from ottla_broker.telemetry.client_instances import ClientContext


def client_context(context: RequestContext, instance_id: bytes) -> ClientContext:
    """`instance_id` is 16 bytes, of the request or new."""
    name, version = context.connection.client_software
    address, port = context.peer
    return ClientContext(instance_id, context.client_id or "", name, version, address, port)
