"""Describes a broker's configuration for DescribeConfigs: values with their synonyms and sources. Pure.

Here live the descriptions of single values and of all keys of a broker. Not here: the values of a topic (`topics`).
Source: ConfigHelper and DynamicBrokerConfig of Apache Kafka.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ottla_broker.config.broker_values import BrokerValues
from ottla_broker.config.definitions import BROKER_KEYS, SYNONYMS, find_key
from ottla_broker.config.types import (
    ConfigError,
    ConfigKey,
    ConfigSource,
    ConfigType,
    Known,
    UpdateMode,
    format_value,
)


@dataclass(frozen=True, slots=True)
class Synonym:
    """One place a value is given in; those of a description stand in order of precedence."""

    name: str
    value: str | None
    source: ConfigSource


@dataclass(frozen=True, slots=True)
class ConfigDescription:
    """A value with its history. `value` is None when it is not set, sensitive, or of an unknown key."""

    name: str
    value: str | None
    type: ConfigType | None
    is_read_only: bool
    is_sensitive: bool
    source: ConfigSource
    synonyms: tuple[Synonym, ...]
    documentation: str | None

    @property
    def is_default(self) -> bool:
        return self.source is ConfigSource.DEFAULT_CONFIG


def shown(key: ConfigKey, text: str) -> str | None:
    """A value as DescribeConfigs shows it: parsed and printed, as it is written where it cannot be read."""
    try:
        return format_value(key.parse(text))
    except ConfigError:
        return text


def documentation_of(key: ConfigKey) -> str:
    return f"{key.documentation} {key.note}" if key.note else key.documentation


def synonyms(values: BrokerValues, name: str) -> tuple[Synonym, ...]:
    """Every place that gives a value of `name`, or of a key with the same meaning; the one in force first."""
    known = find_key(name)
    names = SYNONYMS.get(name, (name,) if known is None else (known.name,))  # of one listener: the key for all
    return synonyms_of(values, (name, *(other for other in names if other != name)))


def synonyms_of(values: BrokerValues, names: Sequence[str]) -> tuple[Synonym, ...]:
    """The same for keys in order of precedence."""
    found: list[Synonym] = []
    layers = (
        (values.layers.per_broker, ConfigSource.DYNAMIC_BROKER_CONFIG),
        (values.layers.default, ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG),
        (values.static, ConfigSource.STATIC_BROKER_CONFIG),
    )
    for layer, source in layers:
        for name in names:
            if name in layer:
                found.append(Synonym(name, _shown_of_broker(name, layer[name]), source))
    for name in names:
        known = BROKER_KEYS.get(name)
        # A key that only a dynamic update sets has a default, and no place where it would be given.
        if known is not None and known.default is not None and known.known is not Known.DYNAMIC:
            text = _shown_of_broker(name, format_value(known.default))
            found.append(Synonym(name, text, ConfigSource.DEFAULT_CONFIG))
    # Apache Kafka leaves out what stands before the first mention of the key itself, so that log.retention.ms looks
    # unset where only log.retention.hours is given.
    first = next((index for index, synonym in enumerate(found) if names and synonym.name == names[0]), len(found))
    return tuple(found[first:])


def describe(values: BrokerValues, name: str) -> ConfigDescription:
    """A key of a broker. An unknown key has no value: it might be a secret."""
    known = find_key(name)
    found = synonyms(values, name)
    if known is None:
        return ConfigDescription(name, None, None, True, True, _source(values, name), found, None)
    return ConfigDescription(
        name=name,
        value=None if known.is_sensitive else _described_value(values, name),
        type=known.type,
        is_read_only=_is_shown_read_only(known, name),
        is_sensitive=known.is_sensitive,
        source=found[0].source if found else ConfigSource.DEFAULT_CONFIG,
        synonyms=found,
        documentation=documentation_of(known),
    )


def describe_all(values: BrokerValues) -> list[ConfigDescription]:
    """Every key of Kafka's and ours that is not internal, and every other key that is given."""
    names = {
        entry.name for entry in BROKER_KEYS.values() if entry.known in (Known.KAFKA, Known.OWN) and not entry.internal
    }
    return [describe(values, name) for name in sorted(names | values.given_keys)]


def describe_dynamic_defaults(values: BrokerValues) -> list[ConfigDescription]:
    """The cluster-wide dynamic values: what DescribeConfigs gives for the broker named ""."""
    found: list[ConfigDescription] = []
    source = ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG
    for name, written in sorted(values.layers.default.items()):
        known = find_key(name)
        text = None if known is None or known.is_sensitive else written
        found.append(
            ConfigDescription(
                name=name,
                value=text,
                type=None if known is None else known.type,
                is_read_only=known is None or _is_shown_read_only(known, name),
                is_sensitive=known is None or known.is_sensitive,
                source=source,
                synonyms=(Synonym(name, text, source),),
                documentation=None if known is None else documentation_of(known),
            )
        )
    return found


def _described_value(values: BrokerValues, name: str) -> str | None:
    """As it is read; as written where Kafka keeps text: of one listener, or where only a dynamic update sets it."""
    known = BROKER_KEYS.get(name)
    if known is None or known.known is Known.DYNAMIC:
        return values.original(name)
    return format_value(values.by_name[name])


def _source(values: BrokerValues, name: str) -> ConfigSource:
    if name in values.layers.per_broker:
        return ConfigSource.DYNAMIC_BROKER_CONFIG
    if name in values.layers.default:
        return ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG
    return ConfigSource.STATIC_BROKER_CONFIG if name in values.static else ConfigSource.DEFAULT_CONFIG


def _shown_of_broker(name: str, text: str | None) -> str | None:
    known = find_key(name)
    return None if known is None or known.is_sensitive else text


def _is_shown_read_only(known: ConfigKey, name: str) -> bool:
    """Kafka shows only keys of all listeners as changeable. Source: DynamicBrokerConfig.AllDynamicConfigs."""
    return known.update_mode is UpdateMode.READ_ONLY or known.known is Known.DYNAMIC or name not in BROKER_KEYS
