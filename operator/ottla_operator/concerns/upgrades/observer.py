"""Reads what the decision about spec.version needs beyond the snapshot."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from ottla_operator.concerns.upgrades.versions import is_too_low
from ottla_operator.facts.snapshot import Snapshot
from ottla_operator.ports import KafkaAdmin, KafkaUnavailable


async def observe_features(
    snapshot: Snapshot, admin: KafkaAdmin | None, log: logging.Logger
) -> Mapping[str, int] | None:
    """The finalized levels by feature (KIP-584), while spec.version is too low. Asks for none at rest."""
    if snapshot.kafka is None or admin is None or not is_too_low(snapshot):
        return None
    try:
        return await admin.finalized_features()
    except KafkaUnavailable as error:
        log.info("no broker reports the finalized features: %s", error)
        return None
