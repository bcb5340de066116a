"""What DescribeConfigs tells of one configuration value. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from ottla_broker.config.types import ConfigError, ConfigKey, ConfigSource, ConfigType, format_value


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
