"""What a configuration key is: its type, its bounds, where its value may come from.

Here live the value types of the definition tables and the parsing and printing of single values by Kafka's rules.
Not here: the keys themselves (`definitions`), rules that join several keys (`rules`), or any file. Pure.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from enum import Enum, IntEnum
from math import isfinite
from typing import Any, TypeAlias

from ottla_broker.protocol.number_text import double_number, whole_number


class ConfigError(ValueError):
    """A configuration that cannot be used. The message names the key, the value, and what is allowed."""

    def __init__(self, key: str, value: object, allowed: str) -> None:
        self.key = key
        self.value = value
        self.allowed = allowed
        shown = "" if value is None else f" {value!r}"
        self.reason = f"invalid value{shown}: {allowed}"
        """The message without the key, for whoever names the field or the option instead."""
        super().__init__(f"invalid value{shown} for configuration {key}: {allowed}")


class NotServed(ConfigError):
    """A good value that cannot be had: this release does not serve it yet, or the broker lacks what it needs."""


class ConfigType(IntEnum):
    """Types of values, with their codes in DescribeConfigs (KIP-569)."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


class ConfigSource(IntEnum):
    """Where a value comes from, with the codes of DescribeConfigs (KIP-226). A lower code wins over a higher one."""

    TOPIC_CONFIG = 1
    DYNAMIC_BROKER_CONFIG = 2
    DYNAMIC_DEFAULT_BROKER_CONFIG = 3
    STATIC_BROKER_CONFIG = 4
    DEFAULT_CONFIG = 5


class Importance(Enum):
    HIGH = "high"
    MEDIUM = "medium"
    LOW = "low"


class UpdateMode(Enum):
    """How a broker key can change while the broker runs (KIP-226)."""

    READ_ONLY = "read-only"
    PER_BROKER = "per-broker"
    CLUSTER_WIDE = "cluster-wide"


class Known(Enum):
    """Why a key is known."""

    KAFKA = "a key of Apache Kafka 3.9"
    LEGACY = "a key of an older release, accepted so that old files load"
    DYNAMIC = "a key that only a dynamic update can set"
    OWN = "a key of Ottla's own"


BOOLEAN, STRING, INT, SHORT, LONG = (
    ConfigType.BOOLEAN,
    ConfigType.STRING,
    ConfigType.INT,
    ConfigType.SHORT,
    ConfigType.LONG,
)
DOUBLE, LIST, PASSWORD = ConfigType.DOUBLE, ConfigType.LIST, ConfigType.PASSWORD
READ_ONLY, PER_BROKER = UpdateMode.READ_ONLY, UpdateMode.PER_BROKER

LONG_MAX = 9223372036854775807
INT_MAX = 2147483647

_RANGES = {
    ConfigType.SHORT: (-32768, 32767),
    ConfigType.INT: (-2147483648, INT_MAX),
    ConfigType.LONG: (-LONG_MAX - 1, LONG_MAX),
}

Validator: TypeAlias = Callable[[Any], str | None]
"""Gives None for a good value, else what is allowed."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """A closed range of numbers; None leaves a side open. `also` is one more value that is allowed."""

    low: float | None = None
    high: float | None = None
    also: float | None = None

    def __call__(self, value: Any) -> str | None:
        if self.also is not None and value == self.also:
            return None
        if (self.low is not None and value < self.low) or (self.high is not None and value > self.high):
            return str(self)
        return None

    def __str__(self) -> str:
        if self.high is None:
            text = f"at least {self.low}"
        elif self.low is None:
            text = f"at most {self.high}"
        else:
            text = f"between {self.low} and {self.high}"
        return text if self.also is None else f"{text}, or {self.also}"


@dataclass(frozen=True, slots=True)
class OneOf:
    """A closed set of words; for a list, every element must be one of them."""

    words: tuple[str, ...]

    def __call__(self, value: Any) -> str | None:
        values = value if isinstance(value, tuple) else (value,)
        return None if all(item in self.words for item in values) else str(self)

    def __str__(self) -> str:
        return f"one of {', '.join(self.words)}"


def between(low: float, high: float, *, also: float | None = None) -> Bounds:
    return Bounds(low, high, also)


@dataclass(frozen=True, slots=True)
class ConfigKey:
    """One key. `default` is typed (lists are tuples); `note` says so where the value changes nothing."""

    name: str
    type: ConfigType
    default: Any
    importance: Importance
    update_mode: UpdateMode
    documentation: str
    validator: Validator | None = None
    note: str = ""
    internal: bool = False
    known: Known = Known.KAFKA

    @property
    def is_sensitive(self) -> bool:
        return self.type is ConfigType.PASSWORD

    def parse(self, text: str, *, name: str | None = None) -> Any:
        """The typed value of a properties value; ConfigError names `name` (the key as it was written)."""
        try:
            value = parse_value(name or self.name, self.type, text)
        except ConfigError as error:
            if isinstance(self.validator, Bounds) and double_number(trimmed(text)) is None:
                kind = "a number" if self.type is ConfigType.DOUBLE else "a whole number"
                raise ConfigError(error.key, error.value, f"{kind}, {self.validator}") from None
            raise
        self.check(value, name=name)
        return value

    def check(self, value: Any, *, name: str | None = None) -> None:
        allowed = self.validator(value) if self.validator is not None else None
        if allowed is not None:
            raise ConfigError(name or self.name, "[hidden]" if self.is_sensitive else format_value(value), allowed)


def parse_value(name: str, type: ConfigType, text: str) -> Any:
    """Parses one value as Kafka does: blanks around it are dropped, lists are split at commas.

    Booleans are true or false in any case. Numbers are plain decimal integers within the type's range (a double may
    carry a fraction and an exponent). ConfigError for anything else.

    >>> parse_value("log.cleanup.policy", LIST, "compact , delete")
    ('compact', 'delete')
    """
    text = trimmed(text)
    if type is ConfigType.BOOLEAN:
        if text.lower() in ("true", "false"):
            return text.lower() == "true"
        raise ConfigError(name, text, "true or false")
    if type in _RANGES:
        low, high = _RANGES[type]
        whole = whole_number(text)
        if whole is None or not low <= whole <= high:
            raise ConfigError(name, text, f"a whole number between {low} and {high}")
        return whole
    if type is ConfigType.DOUBLE:
        double = double_number(text)
        if double is None:
            raise ConfigError(name, text, "a number")
        return double
    if type is ConfigType.LIST:
        return tuple(trimmed(part) for part in text.split(",")) if text else ()
    return text


_TRIMMED = "".join(map(chr, range(0x21)))


def trimmed(text: str) -> str:
    """Without the blanks of Java's String.trim around it, which are those of ASCII: a path may end with another."""
    return text.strip(_TRIMMED)


def _java_double(value: float) -> str:
    """A double as Java's Double.toString: with an exponent below 0.001 and from 10 million on.

    >>> [_java_double(value) for value in (0.0, 12345678.0, 9999999.0, 0.00012, -2147483648.0)]
    ['0.0', '1.2345678E7', '9999999.0', '1.2E-4', '-2.147483648E9']
    """
    if value == 0 or not isfinite(value) or 1e-3 <= abs(value) < 1e7:
        return {"inf": "Infinity", "-inf": "-Infinity", "nan": "NaN"}.get(repr(value), repr(value))
    sign, digits, exponent = Decimal(repr(value)).as_tuple()
    text = "".join(map(str, digits)).rstrip("0") or "0"
    power = len(digits) - 1 + int(exponent)
    return f"{'-' if sign else ''}{text[0]}.{text[1:] or '0'}E{power}"


def format_value(value: Any) -> str | None:
    """A typed value as Kafka prints it: true/false, lists joined by commas, None stays None.

    >>> format_value((1.7976931348623157e308)), format_value(0.5), format_value(("compact", "delete"))
    ('1.7976931348623157E308', '0.5', 'compact,delete')
    """
    if value is None:
        return None
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return _java_double(value)
    if isinstance(value, tuple):
        return ",".join(value)
    return str(value)
