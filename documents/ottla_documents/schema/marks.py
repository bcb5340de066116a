"""What is declared of a field beside its type, as marks of `typing.Annotated`.

The names of limits are those of a JSON schema: minLength is `Text.least`, maximum is `WholeNumber.highest`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any

from ottla_documents.quantity import PATTERN as QUANTITY

INT32 = 2**31 - 1
QUANTITY_SCHEMA: Mapping[str, Any] = {
    "x-kubernetes-int-or-string": True,
    "anyOf": [{"type": "integer"}, {"type": "string"}],
    "pattern": "^" + QUANTITY.replace("[+-]?", r"\+?", 1) + "$",
}
"""A quantity that is not below zero, in a CustomResourceDefinition."""


@dataclass(frozen=True, slots=True)
class Problem:
    """A wrong value. `path`: the field as a user writes it, such as "spec.brokers.disks[1].name"."""

    path: str
    message: str

    def __str__(self) -> str:
        return f"{self.path}: {self.message}"


@dataclass(frozen=True, slots=True)
class Named:
    """The name of the field in documents, where it is not the attribute's in camelCase."""

    name: str


@dataclass(frozen=True, slots=True)
class Text:
    """A string of `least` to `most` characters (0: no limit).

    `pattern`: a regular expression that the whole text matches, of what Python (re.ASCII) and RE2 read alike.
    `form`: the pattern in words, which complete "must be ...".
    """

    pattern: str = ""
    form: str = ""
    least: int = 0
    most: int = 0
    format: str = ""
    """A format of OpenAPI, such as date-time. It is not checked."""
    is_hidden: bool = False
    """A wrong value is not shown: it may be a password."""


@dataclass(frozen=True, slots=True)
class WholeNumber:
    """A whole number from `lowest` to `highest`; None for no bound but that of its `bits`."""

    lowest: int | None = 1
    highest: int | None = None
    bits: int = 32


@dataclass(frozen=True, slots=True)
class Amount:
    """A quantity of Kubernetes, such as 100Gi, as a string or a number."""

    takes_zero: bool = False


@dataclass(frozen=True, slots=True)
class Items:
    """A list of `least` to `most` items (0: no limit).

    `key`: the field by which no two items are alike. `is_atomic`: items may be alike, and server-side apply replaces
    the whole list.
    """

    least: int = 0
    most: int = 0
    key: str = ""
    is_atomic: bool = False
    keeps_places: bool = False
    """What is no mapping stays as an empty item, so that the others keep their indexes."""


@dataclass(frozen=True, slots=True)
class OnlyRight:
    """A value of this field, or an item of this list, that has a problem does not count."""


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule in CEL, which the API server checks. `message`: what it answers."""

    rule: str
    message: str


@dataclass(frozen=True, slots=True)
class ReadBy:
    """A value of a kind of its own: how it is read, and its schema.

    `read`: takes the value, its path and the list that its problems go to.
    """

    read: Callable[[object, str, list[Problem]], Any]
    schema: Mapping[str, Any] = field(hash=False)


Number = Annotated[int, WholeNumber(lowest=None)]
"""A whole number of 32 bits, as status has it."""
LongNumber = Annotated[int, WholeNumber(lowest=None, bits=64)]
"""One of 64 bits."""
Time = Annotated[str, Text(format="date-time")]
Names = Annotated[tuple[str, ...], Items(is_atomic=True)]
"""Strings in an order."""
Numbers = Annotated[tuple[Number, ...], Items(is_atomic=True)]
