"""Reads the fields of a document, and collects every problem with the path of its field.

A wrong value becomes a problem and a usable default, so that one problem stops only what depends on that field.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ottla_broker.config import is_meant
from ottla_documents.quantity import quantity, quantity_bytes

LABEL_FORM = "lower case letters, digits and -, with a letter or digit at both ends"
SUBDOMAIN_FORM = "lower case letters, digits, - and ., with a letter or digit at both ends"


@dataclass(frozen=True, slots=True)
class Problem:
    """A wrong value. `path`: the field as a user writes it, such as "spec.brokers.disks[1].name"."""

    path: str
    message: str

    def __str__(self) -> str:
        return f"{self.path}: {self.message}"


@dataclass(slots=True)
class Fields:
    """A mapping in a document, with its path. Every read marks its field as known; `finish` reports unknown fields."""

    values: Mapping[str, Any]
    path: str
    problems: list[Problem]
    known: set[str] = field(default_factory=set)

    def problem(self, name: str, message: str) -> None:
        self.problems.append(Problem(f"{self.path}.{name}" if self.path else name, message))

    def has(self, name: str) -> bool:
        """True when the field is written and not null."""
        self.known.add(name)
        return self.values.get(name) is not None

    def text(self, name: str, default: str | None = None, *, pattern: str | None = None, form: str = "") -> str:
        """A string; required when there is no default. `form`: the pattern in words."""
        self.known.add(name)
        value = self.values.get(name)
        if value is None:
            if default is None:
                self.problem(name, "is required")
            return default or ""
        if not isinstance(value, str):
            self.problem(name, f"must be a string, not {value!r}")
            return default or ""
        if pattern is not None and not re.fullmatch(pattern, value):
            self.problem(name, f"must be {form or pattern}, not {value!r}")
        return value

    def whole(self, name: str, default: int | None = None, *, lowest: int = 1, highest: int = 2**31 - 1) -> int:
        """A whole number within bounds; required when there is no default."""
        self.known.add(name)
        value = self.values.get(name)
        if value is None:
            if default is None:
                self.problem(name, "is required")
            return lowest if default is None else default
        if isinstance(value, bool) or not isinstance(value, int):
            self.problem(name, f"must be a whole number, not {value!r}")
        elif not lowest <= value <= highest:
            self.problem(name, f"must be between {lowest} and {highest}, not {value}")
        else:
            return value
        return lowest if default is None else default

    def flag(self, name: str) -> bool:
        """True or false; false when it is not written."""
        self.known.add(name)
        value = self.values.get(name)
        if value is not None and not isinstance(value, bool):
            self.problem(name, f"must be true or false, not {value!r}")
        return value is True

    def choice(self, name: str, allowed: Sequence[str], default: str) -> str:
        value = self.text(name, default)
        if value not in allowed:
            self.problem(name, f"must be one of {', '.join(filter(None, allowed))}, not {value!r}")
            return default
        return value

    def size(self, name: str) -> str:
        """A Kubernetes quantity ("100Gi"), or "" when it is not written."""
        self.known.add(name)
        value = self.values.get(name)
        if value is None:
            return ""
        try:
            if quantity_bytes(value) > 0:
                return str(value)
            self.problem(name, f"must be more than nothing, not {value}")
        except ValueError as error:
            self.problem(name, str(error))
        return ""

    def quantities(self, name: str) -> dict[str, str]:
        """A mapping of names to Kubernetes quantities, none below zero; empty when it is not written."""
        child = self.child(name)
        found: dict[str, str] = {}
        for key, value in child.values.items():
            try:
                if quantity(value) >= 0:
                    found[str(key)] = str(value)
                else:
                    child.problem(str(key), f"must not be less than nothing, not {value}")
            except ValueError as error:
                child.problem(str(key), str(error))
        return found

    def child(self, name: str) -> Fields:
        """A mapping below this one; empty when it is not written, and without problems of its own when it is none."""
        self.known.add(name)
        value = self.values.get(name)
        path = f"{self.path}.{name}" if self.path else name
        if value is None:
            return Fields({}, path, self.problems)
        if not isinstance(value, Mapping):
            self.problem(name, f"must be a mapping, not {value!r}")
            return Fields({}, path, [])
        return Fields(value, path, self.problems)

    def items(self, name: str) -> Iterator[Fields]:
        """The mappings of a list; none when it is not written."""
        self.known.add(name)
        value = self.values.get(name)
        if value is None:
            return
        if not isinstance(value, list):
            self.problem(name, f"must be a list, not {value!r}")
            return
        for index, item in enumerate(value):
            if isinstance(item, Mapping):
                yield Fields(item, f"{self.path}.{name}[{index}]", self.problems)
            else:
                self.problem(f"{name}[{index}]", f"must be a mapping, not {item!r}")

    def texts(self, name: str) -> tuple[str, ...]:
        """A list of distinct strings; empty when it is not written."""
        self.known.add(name)
        value = self.values.get(name)
        if value is None:
            return ()
        if not isinstance(value, list) or not all(isinstance(item, str) and item for item in value):
            self.problem(name, f"must be a list of strings, not {value!r}")
            return ()
        if len(set(value)) != len(value):
            self.problem(name, f"names something twice: {value!r}")
        return tuple(dict.fromkeys(value))

    def config(self, name: str = "config") -> dict[str, str]:
        """Kafka's own keys with values of any scalar type, as Kafka would write them."""
        self.known.add(name)
        child = self.child(name)
        config: dict[str, str] = {}
        for key, value in child.values.items():
            if isinstance(value, Mapping | list) or value is None:
                child.problem(str(key), f"must be a single value, not {value!r}")
            else:
                config[str(key)] = scalar_text(value)
        return config

    def finish(self) -> None:
        """Reports the fields that were not read: they are unknown."""
        for name in self.values:
            if name not in self.known:
                expected = ", ".join(sorted(self.known))
                self.problem(str(name), f"is not a field here; there are {expected}{is_meant(str(name), self.known)}")


def scalar_text(value: object) -> str:
    """A configuration value as text that Kafka reads, from any scalar type of YAML or JSON.

    >>> scalar_text(True), scalar_text(6.048e+08), scalar_text(0.5), scalar_text("a,b"), scalar_text(7)
    ('true', '604800000', '0.5', 'a,b', '7')
    """
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and math.isfinite(value) and value == int(value):
        return str(int(value))
    return str(value)
