"""Values that Kafka allows and this release refuses, because what they ask for is not served yet. Pure.

A refusal is an error to whoever sets the value, never a silent difference in behaviour. A row disappears in the
change that serves the value.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

_Refusal = tuple[Callable[[Any], bool], str]

_NO_TIERED_STORAGE = "tiered storage is not built"
_JAVA_CLASS = "leave it out: Java classes cannot be loaded"

TOPIC_REFUSALS: Mapping[str, _Refusal] = MappingProxyType(
    {
        "remote.storage.enable": (lambda value: value, _NO_TIERED_STORAGE),
        "remote.log.copy.disable": (lambda value: value, _NO_TIERED_STORAGE),
        "remote.log.delete.on.disable": (lambda value: value, _NO_TIERED_STORAGE),
    }
)
"""(is it refused, what is allowed) by topic-level key."""

INTERNAL_TOPIC_MAY = frozenset({"cleanup.policy"})
"""Keys that internal topics carry with any value: compact from the first day."""

LEADER_SELECTOR = "org.apache.kafka.common.replica.LeaderSelector"
RACK_AWARE_SELECTOR = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
_REPLICA_SELECTORS = (LEADER_SELECTOR, RACK_AWARE_SELECTOR)

ACL_AUTHORIZER = "kafka.security.authorizer.AclAuthorizer"

DEFAULT_PRINCIPALS = "org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder"

LOADED_CLASSES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "metric.reporters": ("org.apache.kafka.common.metrics.JmxReporter",),
        "principal.builder.class": (DEFAULT_PRINCIPALS,),
    }
)
"""Keys that name Java classes and can change while a broker runs, with the classes whose work is done without Java."""


def has_default_principals(builder: str) -> bool:
    """Whether principals are those of Apache Kafka without a class for them."""
    return builder == DEFAULT_PRINCIPALS


BROKER_REFUSALS: Mapping[str, _Refusal] = MappingProxyType(
    {
        "authorizer.class.name": (
            lambda value: "." in value and value != ACL_AUTHORIZER,
            f"{ACL_AUTHORIZER}, or the name of an installed entry point of the group ottla.authorizers: "
            "org.apache.kafka.metadata.authorizer.StandardAuthorizer needs KRaft, which is not built, and other Java "
            "classes cannot be loaded",
        ),
        "alter.config.policy.class.name": (bool, _JAVA_CLASS),
        "create.topic.policy.class.name": (bool, _JAVA_CLASS),
        "client.quota.callback.class": (bool, _JAVA_CLASS),
        "principal.builder.class": (
            lambda value: not value or ("." in value and value != DEFAULT_PRINCIPALS),
            f"{DEFAULT_PRINCIPALS}, or the name of an installed entry point of the group ottla.principal_builders: "
            "other Java classes cannot be loaded",
        ),
        "replica.selector.class": (
            lambda value: value not in (None, "", *_REPLICA_SELECTORS),
            f"one of {', '.join(_REPLICA_SELECTORS)}: other Java classes cannot be loaded",
        ),
        "process.roles": (bool, "KRaft is not built: leave it empty and give zookeeper.connect"),
        "zookeeper.metadata.migration.enable": (lambda value: value, "KRaft is not built"),
        "zookeeper.ssl.crl.enable": (lambda value: value, "put lists of revoked certificates into the trust store"),
        "zookeeper.ssl.ocsp.enable": (lambda value: value, "OCSP is not served"),
        "remote.log.storage.system.enable": (lambda value: value, _NO_TIERED_STORAGE),
    }
)
"""(is it refused, what is allowed) by broker key."""
