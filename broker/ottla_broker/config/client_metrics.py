"""Client-metrics resources (KIP-714): which clients push which metrics, and how often. Pure.

A resource has three keys: `metrics` lists prefixes of metric names, `*` for all; `interval.ms` is the push interval;
`match` lists `attribute=pattern`, and a client is matched when each pattern fits its attribute as a whole.

Source: org.apache.kafka.server.metrics.ClientMetricsConfigs of Apache Kafka.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from ottla_broker.config.types import INT, ConfigError, parse_value
from ottla_broker.protocol.errors import ErrorCode, KafkaError

METRICS: Final = "metrics"
INTERVAL_MS: Final = "interval.ms"
MATCH: Final = "match"
LIST_KEYS: Final = frozenset({METRICS, MATCH})

ALL_METRICS: Final = "*"
DEFAULT_INTERVAL_MS: Final = 5 * 60 * 1000
LOWEST_INTERVAL_MS: Final = 100
HIGHEST_INTERVAL_MS: Final = 60 * 60 * 1000

ATTRIBUTES: Final = (
    "client_instance_id",
    "client_id",
    "client_software_name",
    "client_software_version",
    "client_source_address",
    "client_source_port",
)
"""What `match` may name."""


@dataclass(frozen=True, slots=True)
class Subscription:
    """One client-metrics resource."""

    metrics: frozenset[str]
    interval_ms: int
    match: Mapping[str, re.Pattern[str]]

    def matches(self, attributes: Mapping[str, str]) -> bool:
        """Whether each pattern fits the client's attribute as a whole. Without patterns every client is matched.

        >>> found = parse_subscription("s", {"match": "client_id=app-.*, client_software_name=librdkafka"})
        >>> found.matches({"client_id": "app-7", "client_software_name": "librdkafka"})
        True
        >>> found.matches({"client_id": "app-7"}), found.matches({"client_id": "my-app-7"})
        (False, False)
        """
        return all(
            name in attributes and pattern.fullmatch(attributes[name]) is not None
            for name, pattern in self.match.items()
        )


def parse_subscription(name: str, values: Mapping[str, str]) -> Subscription:
    """The resource of this name.

    Raises:
        KafkaError: INVALID_REQUEST (no name, an unknown key, an interval out of bounds), INVALID_CONFIG (an interval
            that is no number, a pattern that cannot be used).
    """
    if not name:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Subscription name can't be empty")
    unknown = [key for key in values if key not in (METRICS, INTERVAL_MS, MATCH)]
    if unknown:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unknown client metrics configuration: {unknown[0]}")
    return Subscription(
        frozenset(_items(values.get(METRICS, ""))),
        _interval_ms(values.get(INTERVAL_MS, str(DEFAULT_INTERVAL_MS))),
        dict(_pattern(item) for item in _items(values.get(MATCH, ""))),
    )


def _interval_ms(text: str) -> int:
    try:
        found = int(parse_value(INTERVAL_MS, INT, text))
    except ConfigError:
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"Invalid value {text} for {INTERVAL_MS}: not a number") from None
    if not LOWEST_INTERVAL_MS <= found <= HIGHEST_INTERVAL_MS:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"Invalid value {found} for {INTERVAL_MS}, interval must be between {LOWEST_INTERVAL_MS} and "
            f"{HIGHEST_INTERVAL_MS} (1 hour)",
        )
    return found


def _pattern(item: str) -> tuple[str, re.Pattern[str]]:
    parts = item.split("=")
    attribute = parts[0].strip()
    if len(parts) != 2 or not parts[1] or attribute not in ATTRIBUTES:
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"Illegal client matching pattern: {item}")
    try:
        return attribute, re.compile(parts[1].strip())
    except (re.error, ValueError, OverflowError, RecursionError) as error:  # also a{9999999999}, and too many of (
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"Illegal client matching pattern: {item} ({error})") from None


def _items(text: str) -> list[str]:
    """
    >>> _items(" a , b"), _items("")
    (['a', 'b'], [])
    """
    return [item.strip() for item in text.split(",")] if text.strip() else []
