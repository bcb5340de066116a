"""Checks the broker keys of a document as a broker does when it starts, and names the field of each problem. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from ottla_broker.config import BrokerConfig, ConfigError, broker_key_is_meant, check_static_value, find_key
from ottla_documents.schema.marks import Problem

_SET_FOR_BROKERS = {
    "listeners": "INTERNAL://127.0.0.1:9091,CLIENT://127.0.0.1:9092",
    "listener.security.protocol.map": "INTERNAL:PLAINTEXT,CLIENT:PLAINTEXT",
    "inter.broker.listener.name": "INTERNAL",
    "zookeeper.connect": "zookeeper:2181",
}
"""What stands for the keys that every broker has and no document."""


def broker_value_problem(key: str, text: str) -> str:
    """What is wrong with one key of spec.brokers.config; "" when nothing is.

    >>> broker_value_problem("min.insync.replicas", "two")
    "invalid value 'two': a whole number, at least 1"
    >>> broker_value_problem("min.insync.replica", "2")
    'is not a broker configuration key of Kafka 3.9; is min.insync.replicas meant?'
    """
    if find_key(key) is None:
        return f"is not a broker configuration key of Kafka 3.9{broker_key_is_meant(key)}"
    try:
        check_static_value(key, text)
    except ConfigError as error:
        return error.reason
    return ""


def joint_problem(path: str, config: Mapping[str, str], defaults: Mapping[str, str]) -> Problem | None:
    """The first rule that keys break together, each of them good by itself.

    Args:
        path: of the field that has the keys, such as "spec.brokers.config".
        defaults: the keys that follow from other fields.
    """
    try:
        BrokerConfig.from_mapping({**defaults, **config, **_SET_FOR_BROKERS})
    except ConfigError as error:
        if error.key in config:
            return Problem(f"{path}.{error.key}", error.reason)
        return Problem(path, str(error))
    return None
