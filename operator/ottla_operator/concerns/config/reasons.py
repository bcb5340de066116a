"""The conditions of the broker configuration, and their reasons."""

from __future__ import annotations

from ottla_operator.api.condition_reasons import CLUSTER, CONFIG_VALID, ConditionType, of_cluster, usual_reasons

TYPES = (
    ConditionType(CLUSTER, CONFIG_VALID, "The broker configuration is valid and in effect"),
)  # fmt: skip

REASONS = (
    *usual_reasons(CONFIG_VALID),
    of_cluster(
        CONFIG_VALID, "False", "DynamicOverride",
        "Brokers have dynamic values that nobody declares (KIP-226), as kafka-configs sets them. The operator removes "
        "them.",
        "Declare the value in spec.brokers.config, or name the key in spec.brokers.unmanagedConfig.",
    ),
    of_cluster(
        CONFIG_VALID, "False", "DynamicRefused",
        "Brokers refuse a declared value while they run. They keep the value of before, also when they restart; a roll "
        "for another change brings the declared one.",
        "Correct the value by what the message says. The operator tries it again in ten minutes.",
        needs_person=True,
    ),
    of_cluster(
        CONFIG_VALID, "False", "DynamicPending",
        "Values that change without a restart are not in effect yet, because the brokers do not take requests.",
        "Nothing; if it lasts, see BrokersReady.",
    ),
    of_cluster(
        CONFIG_VALID, "False", "StoreRefused",
        "A store of keys and certificates holds what brokers cannot use. They keep what it held before, until that "
        "expires or they restart: then they do not start.",
        "Correct the store by what the message says. Brokers look at it every five seconds.",
        needs_person=True,
    ),
    of_cluster(
        CONFIG_VALID, "False", "ChangedByOthers",
        "Something else sets a dynamic value of brokers again each time. The operator writes one at most three times "
        "in ten minutes.",
        "Stop what sets it, declare the same value, or name the key in spec.brokers.unmanagedConfig.",
    ),
)  # fmt: skip
