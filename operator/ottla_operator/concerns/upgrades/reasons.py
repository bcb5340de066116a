"""The conditions of versions, and their reasons."""

from __future__ import annotations

from ottla_operator.api.condition_reasons import CONFIG_VALID, ROLLED, of_cluster

REASONS = (
    of_cluster(
        CONFIG_VALID, "False", "VersionDowngrade",
        "spec.version is lower than inter.broker.protocol.version of brokers. Brokers keep theirs.",
        "Set spec.version to the release that the message names.",
        needs_person=True,
    ),
    of_cluster(
        CONFIG_VALID, "False", "FeatureFinalized",
        "As VersionDowngrade, and features are finalized that earlier releases do not support.",
        "Set spec.version to the release that the message names. `kafka-features.sh describe` shows the features.",
        needs_person=True,
    ),
    of_cluster(
        ROLLED, "False", "RaisesProtocol",
        "spec.version is higher than inter.broker.protocol.version of the brokers. They restart once more for it when "
        "all run what is declared and every replica is in sync.",
        "Nothing; if it lasts, remove the blocker that the message names.",
    ),
)  # fmt: skip
