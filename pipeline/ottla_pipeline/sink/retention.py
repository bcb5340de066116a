"""How long the brokers keep what tells a batch from one that was written before: asked, not assumed."""

from __future__ import annotations

from typing import NamedTuple

from ottla_broker.protocol.number_text import whole_number
from ottla_pipeline.sink.transaction import GROUP, TRANSACTION, Coordinators

_MS = 60_000


class MarkerRetention(NamedTuple):
    """Times in ms; None where the brokers do not say: they need DescribeConfigs of the cluster for it."""

    marker_ms: int | None
    id_ms: int | None


def kept_ms(coordinators: Coordinators, group: str, transactional_id: str) -> MarkerRetention:
    """How long the marker and the transactional id are kept by the brokers that have them.

    Source: offsets.retention.minutes (KIP-211) and transactional.id.expiration.ms (KIP-98).
    """
    minutes = whole_number(coordinators.config(GROUP, group, "offsets.retention.minutes") or "")
    id_ms = whole_number(coordinators.config(TRANSACTION, transactional_id, "transactional.id.expiration.ms") or "")
    return MarkerRetention(minutes if minutes is None else minutes * _MS, id_ms)
