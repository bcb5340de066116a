"""The keys of one listener: those with the prefix `listener.name.NAME.` win over those without (KIP-103). Pure.

A key of a SASL mechanism has its name in lower case between the two: `listener.name.internal.plain.sasl.jaas.config`.

Source: AbstractConfig.valuesWithPrefixOverride, ListenerName.
"""

from __future__ import annotations

from typing import Any, NoReturn

from ottla_broker.config.broker_values import BrokerValues
from ottla_broker.config.definitions import BROKER_KEYS
from ottla_broker.config.types import ConfigError


class ListenerKeys:
    """The keys of one listener by name."""

    def __init__(self, values: BrokerValues, listener: str) -> None:
        self._values = values
        self._prefix = f"listener.name.{listener.lower()}."

    def is_own(self, key: str) -> bool:
        """Whether the listener has the key for itself."""
        return self._values.is_given(self._prefix + key)

    def name(self, key: str) -> str:
        """The key that is in force: with the prefix if that is given."""
        return self._prefix + key if self.is_own(key) else key

    def value(self, key: str) -> Any:
        """Its typed value in force."""
        name = self.name(key)
        return self._values.by_name[key] if name == key else self._parsed(key, name)

    def of_mechanism(self, mechanism: str, key: str) -> str:
        """The name of a key of a SASL mechanism."""
        return f"{self._prefix}{mechanism.lower()}.{key}"

    def value_of_mechanism(self, mechanism: str, key: str) -> Any:
        """The typed value that is given for a mechanism of the listener; None without one."""
        name = self.of_mechanism(mechanism, key)
        return self._parsed(key, name) if self._values.is_given(name) else None

    def _parsed(self, key: str, name: str) -> Any:
        return BROKER_KEYS[key].parse(self._values.original(name) or "", name=name)

    def refuse(self, key: str, allowed: str) -> NoReturn:
        """Raises ConfigError, which shows no secret."""
        name = self.name(key)
        raise ConfigError(name, None if BROKER_KEYS[key].is_sensitive else self.value(key), allowed)
