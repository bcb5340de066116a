"""Topic-level configuration: its overrides over the broker's values. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ottla_broker.config.broker_values import BrokerValues
from ottla_broker.config.definitions.topics import BROKER_DEFAULTS, MILLISECONDS, TOPIC_KEYS
from ottla_broker.config.description import ConfigDescription, Synonym, documentation_of, shown, synonyms_of
from ottla_broker.config.served import INTERNAL_TOPIC_MAY, TOPIC_REFUSALS
from ottla_broker.config.topic_values import TopicValues
from ottla_broker.config.types import ConfigError, ConfigSource, format_value
from ottla_broker.protocol.errors import ErrorCode, KafkaError

CONSUMER_OFFSETS = "__consumer_offsets"
TRANSACTION_STATE = "__transaction_state"
COORDINATOR_TOPICS = (CONSUMER_OFFSETS, TRANSACTION_STATE)
"""Those that the coordinators of this broker keep."""
INTERNAL_TOPICS = (*COORDINATOR_TOPICS, "__share_group_state")
"""Those that clients may read and not write; of the last one Apache Kafka 3.9 knows the name alone. Source: Topic."""


class TopicDefaults:
    """The values of a topic without overrides. Computed once for a broker's values: a fleet may have 10 000 topics."""

    def __init__(self, broker: BrokerValues) -> None:
        self.values: Mapping[str, Any] = {name: default_of(name, broker) for name in TOPIC_KEYS}
        self._broker = broker
        self._descriptions: dict[str, ConfigDescription] = {}

    def describe(self, name: str) -> ConfigDescription:
        """KeyError for an unknown name."""
        found = self._descriptions.get(name)
        if found is None:
            found = self._descriptions[name] = _described(name, self.values[name], self.synonyms(name))
        return found

    def synonyms(self, name: str) -> tuple[Synonym, ...]:
        """The broker's keys that give the value."""
        return synonyms_of(self._broker, BROKER_DEFAULTS.get(name, ()))


class TopicConfig(TopicValues):
    """The values of one topic, and where each comes from.

    A snapshot: a change of the topic's overrides or of a broker default makes a new one. `problems` names the
    overrides that this release cannot read (another program stored them); they are left out.
    """

    def __init__(self, overrides: Mapping[str, str], broker: BrokerValues) -> None:
        self.overrides: dict[str, str] = dict(overrides)
        if broker.topic_defaults is None:
            broker.topic_defaults = TopicDefaults(broker)
        self._defaults: TopicDefaults = broker.topic_defaults
        values = dict(self._defaults.values)
        problems: list[str] = []
        for name, text in self.overrides.items():
            known = TOPIC_KEYS.get(name)
            if known is None:
                problems.append(f"unknown topic configuration {name}")
                continue
            try:
                values[name] = known.parse(text)
            except ConfigError as error:
                problems.append(str(error))
        super().__init__(values)
        self.problems: tuple[str, ...] = tuple(problems)

    def source(self, name: str) -> ConfigSource:
        """Where the value in force comes from; KeyError for an unknown name."""
        synonyms = self.synonyms(name)
        return synonyms[0].source if synonyms else ConfigSource.DEFAULT_CONFIG

    def synonyms(self, name: str) -> tuple[Synonym, ...]:
        """Every place a value of `name` is given in, the one in force first (KIP-226)."""
        known = TOPIC_KEYS[name]
        found = self._defaults.describe(name).synonyms
        if name in self.overrides:
            found = (Synonym(name, shown(known, self.overrides[name]), ConfigSource.TOPIC_CONFIG), *found)
        return found

    def describe(self, name: str) -> ConfigDescription:
        """KeyError for an unknown name."""
        if name not in self.overrides:
            return self._defaults.describe(name)
        return _described(name, self.by_name[name], self.synonyms(name))

    def describe_all(self) -> list[ConfigDescription]:
        return [self.describe(name) for name in TOPIC_KEYS]


def _described(name: str, value: Any, synonyms: tuple[Synonym, ...]) -> ConfigDescription:
    known = TOPIC_KEYS[name]
    return ConfigDescription(
        name=name,
        value=format_value(value),
        type=known.type,
        is_read_only=False,
        is_sensitive=False,
        source=synonyms[0].source if synonyms else ConfigSource.DEFAULT_CONFIG,
        synonyms=synonyms,
        documentation=documentation_of(known),
    )


def default_of(name: str, broker: BrokerValues) -> Any:
    """A topic-level value without an override: the first broker synonym that is given, else the default.

    >>> default_of("retention.ms", BrokerValues({"log.retention.hours": "2"}))
    7200000
    """
    names = BROKER_DEFAULTS.get(name)
    if names is None:
        return TOPIC_KEYS[name].default
    chosen = broker.first_given(names)
    value = broker.by_name[chosen]
    if chosen in MILLISECONDS:
        value *= MILLISECONDS[chosen]
    if name == "retention.ms" and value < 0:
        return -1
    return value


def validate_topic_config(overrides: Mapping[str, str], *, internal: bool = False) -> None:
    """Checks overrides before they are stored; `internal` for the topics of INTERNAL_TOPICS.

    Raises KafkaError(INVALID_CONFIG) naming the key: an unknown one, a bad value, a value that is not served yet,
    or min.compaction.lag.ms above max.compaction.lag.ms.
    """
    values: dict[str, Any] = {}
    for name, text in overrides.items():
        known = TOPIC_KEYS.get(name)
        if known is None:
            raise KafkaError(ErrorCode.INVALID_CONFIG, f"Unknown topic config name: {name}")
        try:
            values[name] = known.parse(text)
        except ConfigError as error:
            raise KafkaError(ErrorCode.INVALID_CONFIG, str(error)) from None
        refusal = TOPIC_REFUSALS.get(name)
        if refusal is not None and not (internal and name in INTERNAL_TOPIC_MAY) and refusal[0](values[name]):
            raise KafkaError(ErrorCode.INVALID_CONFIG, str(ConfigError(name, text, refusal[1])))
    shortest = values.get("min.compaction.lag.ms", TOPIC_KEYS["min.compaction.lag.ms"].default)
    longest = values.get("max.compaction.lag.ms", TOPIC_KEYS["max.compaction.lag.ms"].default)
    if shortest > longest:
        raise KafkaError(
            ErrorCode.INVALID_CONFIG,
            str(ConfigError("min.compaction.lag.ms", shortest, f"at most max.compaction.lag.ms ({longest})")),
        )
