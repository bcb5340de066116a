"""The kinds of values that options have, for readers and writers. Pure.

Each function takes the options with their names in lower case, and the name in the spelling of the documentation, which
an OptionError repeats.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from enum import Enum
from typing import Any, TypeVar

from ottla_broker.protocol.number_text import whole_number
from ottla_pipeline.errors import OptionError
from ottla_pipeline.topic_partition import TopicPartition

Chosen = TypeVar("Chosen", bound=Enum)

INT32_MAX = 2**31 - 1
INT64_MAX = 2**63 - 1


def boolean(given: Mapping[str, str], name: str, default: bool) -> bool:
    """true or false, in any case."""
    value = given.get(name.lower())
    if value is None:
        return default
    if value.lower() not in ("true", "false"):
        raise OptionError(name, f"must be true or false, not {value!r}")
    return value.lower() == "true"


def number(given: Mapping[str, str], name: str, default: int | None, least: int, most: int = INT64_MAX) -> int | None:
    """A whole number from `least` to `most`."""
    value = given.get(name.lower())
    if value is None:
        return default
    found = whole_number(value.strip())
    if found is None:
        raise OptionError(name, f"must be a whole number, not {value!r}")
    if found < least:
        raise OptionError(name, f"must be at least {least}, not {found}")
    if found > most:
        raise OptionError(name, f"must be at most {most}, not {found}")
    return found


def required_number(
    given: Mapping[str, str], name: str, least: int, default: int | None = None, most: int = INT64_MAX
) -> int:
    """As `number`, where the option is given or has a default."""
    found = number(given, name, default, least, most)
    assert found is not None
    return found


def choice(given: Mapping[str, str], name: str, kind: type[Chosen], default: Chosen) -> Chosen:
    """One of the values of an Enum, in any case."""
    value = given.get(name.lower())
    if value is None:
        return default
    try:
        return kind(value.lower())
    except ValueError:
        raise OptionError(name, f"must be {' or '.join(one.value for one in kind)}, not {value!r}") from None


def by_partition(
    name: str, value: str, form: str = 'must be JSON such as {"topic": {"0": 23}}'
) -> dict[TopicPartition, int]:
    """A number of 64 bits for each partition, from the JSON of Spark's Kafka connector; at least one."""
    found: dict[TopicPartition, int] = {}
    for topic, partitions in json_object(name, value, form).items():
        if not isinstance(partitions, dict):
            raise OptionError(name, f"{form}, not {partitions!r} for {topic}")
        for partition, offset in partitions.items():
            number = partition_number(partition)
            if number is None or not is_int(offset):
                raise OptionError(name, f"{form}, not {partition!r}: {offset!r} for {topic}")
            if abs(offset) > INT64_MAX:
                raise OptionError(name, f"{offset} for {topic}-{partition} has more than 64 bits")
            found[TopicPartition(topic, number)] = offset
    if not found:
        raise OptionError(name, "names no partition")
    return found


def json_object(name: str, value: str, form: str) -> dict[str, Any]:
    """A JSON object; `form` says in the error what it must look like."""
    try:
        found = json.loads(value)
    except ValueError:
        raise OptionError(name, f"{form}, not {value!r}") from None
    if not isinstance(found, dict):
        raise OptionError(name, f"{form}, not {value!r}")
    return found


def partition_number(text: str) -> int | None:
    """The partition that a key of JSON names; None where it names none."""
    number = whole_number(text) if text[:1].isdecimal() else None
    return number if number is not None and number <= INT32_MAX else None


def is_int(value: object) -> bool:
    """Whether a value of JSON is a whole number; true and false are none."""
    return isinstance(value, int) and not isinstance(value, bool)


_UNITS_MS = {"": 1, "us": 1e-3, "ms": 1, "s": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}


def duration_ms(given: Mapping[str, str], name: str, default: int) -> int:
    """A time such as 15m or 500ms, in ms; without a unit in ms, as Spark's JavaUtils.timeStringAs reads it."""
    value = given.get(name.lower())
    if value is None:
        return default
    found = re.fullmatch(r"([0-9]+)\s*([a-z]*)", value.strip().lower())
    length = None if found is None else whole_number(found.group(1))
    if found is None or length is None or found.group(2) not in _UNITS_MS:
        raise OptionError(name, f"must be a time such as 15m or 500ms, not {value!r}")
    return int(length * _UNITS_MS[found.group(2)])
