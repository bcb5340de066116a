"""Kafka 3.9's configuration: the keys, a broker's values, a topic's values, dynamic updates. Pure: no file, no socket.

config = BrokerConfig.from_properties(text, ["broker.id=7"])
config.num_partitions, config.log_dirs, config.listeners.advertised
config.topic_config({"retention.ms": "1000"}).retention_ms

Code outside this package reads values through attributes named after the key, never by the key's name.
"""

from __future__ import annotations

from ottla_broker.config.broker import BrokerConfig, check_static_value, unknown_broker_keys
from ottla_broker.config.broker_values import BrokerValues
from ottla_broker.config.definitions import BROKER_KEYS, find_key
from ottla_broker.config.definitions.topics import TOPIC_KEYS
from ottla_broker.config.description import ConfigDescription, Synonym
from ottla_broker.config.dynamic import is_changeable, text_when_absent
from ottla_broker.config.listeners import Endpoint, Listeners, ZooKeeperAddress
from ottla_broker.config.releases import canonical_release, level, protocol_version
from ottla_broker.config.suggestions import broker_key_is_meant, is_meant, topic_key_is_meant
from ottla_broker.config.topic_values import TopicValues
from ottla_broker.config.topics import COORDINATOR_TOPICS, INTERNAL_TOPICS, TopicConfig, validate_topic_config
from ottla_broker.config.types import ConfigError, ConfigKey, ConfigSource, ConfigType, UpdateMode

__all__ = [
    "BROKER_KEYS",
    "COORDINATOR_TOPICS",
    "INTERNAL_TOPICS",
    "TOPIC_KEYS",
    "BrokerConfig",
    "BrokerValues",
    "ConfigDescription",
    "ConfigError",
    "ConfigKey",
    "ConfigSource",
    "ConfigType",
    "Endpoint",
    "Listeners",
    "Synonym",
    "TopicConfig",
    "TopicValues",
    "UpdateMode",
    "ZooKeeperAddress",
    "broker_key_is_meant",
    "canonical_release",
    "check_static_value",
    "find_key",
    "is_changeable",
    "is_meant",
    "level",
    "protocol_version",
    "text_when_absent",
    "topic_key_is_meant",
    "unknown_broker_keys",
    "validate_topic_config",
]
