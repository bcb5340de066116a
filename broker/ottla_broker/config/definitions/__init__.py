"""The tables of broker keys, one file for each area, and their union."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType

from ottla_broker.config.definitions.key_table import read_keys
from ottla_broker.config.types import ConfigKey, Known

_TABLES = ("cluster", "network", "logs", "replication", "groups", "security", "kraft", "tiered")
_OTHERS = {"own": Known.OWN, "legacy": Known.LEGACY, "dynamic": Known.DYNAMIC}
"""Keys that Apache Kafka 3.9 does not have in server.properties."""


def _all_keys() -> Iterator[ConfigKey]:
    for table in _TABLES:
        yield from read_keys(table)
    for table, known in _OTHERS.items():
        yield from read_keys(table, known)


BROKER_KEYS: Mapping[str, ConfigKey] = MappingProxyType(
    {entry.name: entry for entry in sorted(_all_keys(), key=lambda entry: entry.name)}
)
"""Every broker key by name, in alphabetical order."""

LEGACY_ALIASES: Mapping[str, str] = MappingProxyType(
    {
        "delegation.token.master.key": "delegation.token.secret.key",
        "log.delete.delay.ms": "log.segment.delete.delay.ms",
        "offsets.topic.retention.minutes": "offsets.retention.minutes",
    }
)
"""Older names of keys that still exist: they set the newer one where that is not given itself."""

AUTHORIZER_ZOOKEEPER = "authorizer.zookeeper."
"""Prefix of the keys of AclAuthorizer's own session with ZooKeeper."""

_RETENTION = ("log.retention.ms", "log.retention.minutes", "log.retention.hours")
_ROLL = ("log.roll.ms", "log.roll.hours")
_JITTER = ("log.roll.jitter.ms", "log.roll.jitter.hours")

SYNONYMS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        **dict.fromkeys(_RETENTION, _RETENTION),
        **dict.fromkeys(_ROLL, _ROLL),
        **dict.fromkeys(_JITTER, _JITTER),
        "log.flush.interval.ms": ("log.flush.interval.ms", "log.flush.scheduler.interval.ms"),
    }
)
"""Keys with several names, in order of precedence: the first name that is set wins."""


def find_key(name: str) -> ConfigKey | None:
    """The definition of a key; None when unknown.

    With the prefix `listener.name.<listener>.` it is that of the key for all listeners (KIP-103); with that of the
    authorizer's own session with ZooKeeper, that of the broker's.
    """
    found = BROKER_KEYS.get(name)
    if found is None and name.startswith(AUTHORIZER_ZOOKEEPER):
        key = name.removeprefix(AUTHORIZER_ZOOKEEPER)
        return BROKER_KEYS.get("zookeeper.connect" if key == "url" else f"zookeeper.{key}")
    if found is None and name.startswith("listener.name."):
        rest = name.split(".", 3)[3:]
        # A SASL mechanism may precede the key: listener.name.internal.plain.sasl.jaas.config.
        if rest:
            found = BROKER_KEYS.get(rest[0]) or BROKER_KEYS.get(rest[0].partition(".")[2])
    return found


__all__ = ["AUTHORIZER_ZOOKEEPER", "BROKER_KEYS", "LEGACY_ALIASES", "SYNONYMS", "find_key"]
