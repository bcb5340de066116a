"""Normalizes and compares values of topic configuration.

A document has text or what YAML makes of it ("compact, delete", 0.50, 6.048e+08, True, a block with its newline), and
brokers answer with their own form of the value. So both are parsed by the type of the key before they are compared.
"""

from __future__ import annotations

from typing import Any

from ottla_broker.config import TOPIC_KEYS, ConfigError, ConfigKey, ConfigType
from ottla_broker.config.types import format_value

_WHOLE = (ConfigType.SHORT, ConfigType.INT, ConfigType.LONG)


def canonical_text(key: str, text: str) -> str:
    """The value as a broker prints it; unchanged for an unknown key and for a value that cannot be parsed.

    A whole number may have an exponent: templates often render 604800000 as 6.048e+08, also in quotes.

    >>> canonical_text("cleanup.policy", "compact, delete"), canonical_text("retention.ms", "6.048e+08")
    ('compact,delete', '604800000')
    >>> canonical_text("min.cleanable.dirty.ratio", "0.50"), canonical_text("preallocate", " TRUE ")
    ('0.5', 'true')
    >>> canonical_text("retention.ms", "soon"), canonical_text("retention.ms", "007")
    ('soon', '7')
    """
    config_key = TOPIC_KEYS.get(key)
    if config_key is None:
        return text
    try:
        return format_value(_parse(config_key, text)) or ""
    except ConfigError:
        return text


def is_same_value(key: str, one: str, other: str) -> bool:
    """Whether two texts are the same value for a broker, with the items of a list in any order.

    >>> is_same_value("cleanup.policy", "compact,delete", "delete, compact"), is_same_value("retention.ms", "1", "2")
    (True, False)
    """
    return bool(_comparable(key, one) == _comparable(key, other))


def _comparable(key: str, text: str) -> Any:
    config_key = TOPIC_KEYS.get(key)
    if config_key is None:
        return text
    try:
        value = _parse(config_key, text)
    except ConfigError:
        return text
    return frozenset(value) if isinstance(value, tuple) else value


def _parse(config_key: ConfigKey, text: str) -> Any:
    try:
        return config_key.parse(text)
    except ConfigError:
        whole = _whole(text) if config_key.type in _WHOLE else None
        if whole is None:
            raise
        return config_key.parse(whole)


def _whole(text: str) -> str | None:
    """The digits of a whole number that has an exponent or a fraction of zeros; None for other text.

    >>> _whole("1e3"), _whole("2.0"), _whole("2.5"), _whole("1e400"), _whole("0x10")
    ('1000', '2', None, None, None)
    """
    try:
        value = float(text)
        return str(int(value)) if value == int(value) and "_" not in text and abs(value) < 2**53 else None
    except (ValueError, OverflowError):
        return None
