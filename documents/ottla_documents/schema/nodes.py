"""The kinds of values that a document has, and how each is read.

A node is made from the type of a field and its marks (`shape_of`). Reading never fails. What is wrong becomes a
problem, and the default stands in its place, so that one problem stops only what depends on that field.
"""

from __future__ import annotations

import dataclasses
import math
import re
import types
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import MISSING, dataclass
from typing import Annotated, Any, Literal, Protocol, TypeAlias, Union, get_args, get_origin, get_type_hints

from ottla_broker.config import is_meant
from ottla_documents.quantity import quantity
from ottla_documents.schema.marks import (
    INT32,
    Amount,
    Items,
    Named,
    OnlyRight,
    Problem,
    ReadBy,
    Rule,
    Text,
    WholeNumber,
)
from ottla_documents.shown_values import shown

Problems: TypeAlias = list[Problem]


class _Wrong:
    """Stands in place of a value that cannot be used."""


WRONG = _Wrong()


class SchemaNode(Protocol):
    """A kind of value."""

    def read(self, value: object, path: str, problems: Problems) -> Any:
        """The value, or WRONG; `value` is not None."""

    @property
    def empty(self) -> Any:
        """What stands in place of a required value that is missing or wrong."""


@dataclass(frozen=True, slots=True)
class TextNode:
    mark: Text
    empty: str = ""

    def read(self, value: object, path: str, problems: Problems) -> Any:
        if not isinstance(value, str):
            problems.append(Problem(path, f"must be a string, not {shown(value)}"))
            return WRONG
        if wrong := self._wrong(value):
            problems.append(Problem(path, wrong))
        return value

    def _wrong(self, value: str) -> str:
        mark = self.mark
        if mark.most and len(value) > mark.most:
            return f"is longer than {mark.most} characters"
        if mark.pattern and not re.fullmatch(mark.pattern, value, re.ASCII):
            form = mark.form or mark.pattern
            return f"must be {form}" if mark.is_hidden else f"must be {form}, not {shown(value)}"
        if not value and mark.least:
            return "is empty"
        return f"is shorter than {mark.least} characters" if len(value) < mark.least else ""


@dataclass(frozen=True, slots=True)
class WholeNode:
    mark: WholeNumber

    @property
    def empty(self) -> int:
        return self.mark.lowest or 0

    def read(self, value: object, path: str, problems: Problems) -> Any:
        bound = INT32 if self.mark.bits == 32 else 2**63 - 1
        lowest = -bound - 1 if self.mark.lowest is None else self.mark.lowest
        highest = bound if self.mark.highest is None else self.mark.highest
        if isinstance(value, bool) or not isinstance(value, int):
            problems.append(Problem(path, f"must be a whole number, not {shown(value)}"))
        elif not lowest <= value <= highest:
            problems.append(Problem(path, f"must be between {lowest} and {highest}, not {shown(value)}"))
        else:
            return value
        return WRONG


@dataclass(frozen=True, slots=True)
class FlagNode:
    empty: bool = False

    def read(self, value: object, path: str, problems: Problems) -> Any:
        if isinstance(value, bool):
            return value
        problems.append(Problem(path, f"must be true or false, not {shown(value)}"))
        return WRONG


@dataclass(frozen=True, slots=True)
class ChoiceNode:
    """One of some strings. "" among them is for a field that is not written, and cannot be written."""

    allowed: tuple[str, ...]
    empty: str = ""

    def read(self, value: object, path: str, problems: Problems) -> Any:
        if not isinstance(value, str):
            problems.append(Problem(path, f"must be a string, not {shown(value)}"))
        elif not value or value not in self.allowed:
            problems.append(
                Problem(path, f"must be one of {', '.join(filter(None, self.allowed))}, not {shown(value)}")
            )
        else:
            return value
        return WRONG


@dataclass(frozen=True, slots=True)
class AmountNode:
    mark: Amount
    empty: str = ""

    def read(self, value: object, path: str, problems: Problems) -> Any:
        if isinstance(value, float) and math.isfinite(value):
            problems.append(Problem(path, f"must be a string or a whole number; write '{value}' in quotes"))
            return WRONG
        try:
            found = quantity(value)
        except ValueError as error:
            problems.append(Problem(path, str(error)))
            return WRONG
        if found < 0 and self.mark.takes_zero:
            problems.append(Problem(path, f"must not be less than nothing, not {shown(value)}"))
        elif found <= 0 and not self.mark.takes_zero:
            problems.append(Problem(path, f"must be more than nothing, not {shown(value)}"))
        else:
            return str(value)
        return WRONG


@dataclass(frozen=True, slots=True)
class ListNode:
    item: SchemaNode
    mark: Items
    make: type[tuple[Any, ...]] | type[frozenset[Any]] = tuple
    only_right: bool = False

    @property
    def empty(self) -> Any:
        return self.make()

    def read(self, value: object, path: str, problems: Problems) -> Any:
        if not isinstance(value, list):
            problems.append(Problem(path, f"must be a list, not {shown(value)}"))
            return WRONG
        if len(value) < self.mark.least:
            problems.append(Problem(path, f"must have at least {_counted(self.mark.least)}, not {len(value)}"))
        if self.mark.most and len(value) > self.mark.most:
            problems.append(Problem(path, f"must have at most {self.mark.most} items, not {len(value)}"))
        found: list[Any] = []
        seen: set[Any] = set()
        for index, item in enumerate(value[: self.mark.most or None]):
            problems_before = len(problems)
            place = f"{path}[{index}]"
            read = self.item.read(item, place, problems)
            is_right = read is not WRONG and len(problems) == problems_before
            if read is not WRONG and not self.mark.is_atomic and (is_right or not self._leaves_out_wrong):
                if not self._has_wrong_key(place, problems[problems_before:]):
                    self._check_unique(read, place, seen, problems)
                is_right = len(problems) == problems_before
            if is_right or not self._leaves_out_wrong:
                if read is not WRONG:
                    found.append(read)
                elif self.mark.keeps_places:
                    found.append(self.item.empty)
        return self.make(found)

    @property
    def _leaves_out_wrong(self) -> bool:
        """A wrong string says nothing; of a mapping the other fields are right."""
        return self.only_right or not isinstance(self.item, ObjectNode)

    def _has_wrong_key(self, path: str, of_item: Problems) -> bool:
        """What stands in place of a wrong key is nobody's."""
        return any(problem.path == f"{path}.{self.mark.key}" for problem in of_item)

    def _check_unique(self, read: Any, path: str, seen: set[Any], problems: Problems) -> None:
        """Reports what is there for the second time."""
        key = self.mark.key
        if not key:
            if read in seen:
                problems.append(Problem(path, f"{read!r} is there twice"))
            seen.add(read)
            return
        assert isinstance(self.item, ObjectNode)
        name = getattr(read, shape_of(self.item.type).by_name[key].attribute)
        if name in seen:
            problems.append(Problem(f"{path}.{key}", f"{name!r} is there twice"))
        seen.add(name)


@dataclass(frozen=True, slots=True)
class ObjectNode:
    """A mapping with the fields of a dataclass."""

    type: type[Any]

    @property
    def empty(self) -> Any:
        return self.read({}, "", [])

    def read(self, value: object, path: str, problems: Problems) -> Any:
        if not isinstance(value, Mapping):
            problems.append(Problem(path, f"must be a mapping, not {shown(value)}"))
            return WRONG
        return read_object(self.type, value, path, problems)


@dataclass(frozen=True, slots=True)
class OwnNode:
    """A value that is read by a function of its own (the mark ReadBy)."""

    mark: ReadBy

    @property
    def empty(self) -> Any:
        return self.mark.read({}, "", [])

    def read(self, value: object, path: str, problems: Problems) -> Any:
        return self.mark.read(value, path, problems)


@dataclass(frozen=True, slots=True)
class FieldShape:
    """One field of a dataclass. `default`: MISSING where it is required."""

    attribute: str
    name: str
    node: SchemaNode
    default: Any
    rules: tuple[Rule, ...] = ()
    only_right: bool = False


@dataclass(frozen=True, slots=True)
class Shape:
    """The fields of a dataclass, by their names in documents."""

    by_name: Mapping[str, FieldShape]
    rules: tuple[Rule, ...] = ()


def _counted(number: int) -> str:
    return "one item" if number == 1 else f"{number} items"


_SHAPES: dict[type[Any], Shape] = {}


def shape_of(declared: type[Any]) -> Shape:
    """What a dataclass declares."""
    if declared not in _SHAPES:
        _SHAPES[declared] = _shape(declared)
    return _SHAPES[declared]


def _shape(declared: type[Any]) -> Shape:
    hints = get_type_hints(declared, include_extras=True)
    found: dict[str, FieldShape] = {}
    for one in dataclasses.fields(declared):
        marks, kind = _unwrapped(hints[one.name])
        named = next((mark.name for mark in marks if isinstance(mark, Named)), _camel_case(one.name))
        default = one.default
        if default is MISSING and one.default_factory is not MISSING:
            default = one.default_factory()
        found[named] = FieldShape(
            one.name,
            named,
            _node(kind, marks),
            default,
            tuple(mark for mark in marks if isinstance(mark, Rule)),
            any(isinstance(mark, OnlyRight) for mark in marks),
        )
    return Shape(found, getattr(declared, "RULES", ()))


def read_object(declared: type[Any], values: Mapping[str, Any], path: str, problems: Problems) -> Any:
    """A value of a dataclass from a mapping; `path`: of the mapping, "" for a document."""
    shape = shape_of(declared)
    prefix = f"{path}." if path else ""
    before = len(problems)
    arguments: dict[str, Any] = {}
    for name, field in shape.by_name.items():
        read = _read_field(field, values.get(name), f"{prefix}{name}", problems)
        if read is not WRONG:
            arguments[field.attribute] = read
        elif field.default is MISSING or _is_there(field, values.get(name)):
            arguments[field.attribute] = field.node.empty
    for name in values:
        if name not in shape.by_name:
            expected = ", ".join(sorted(shape.by_name))
            meant = is_meant(str(name), shape.by_name)
            problems.append(Problem(f"{prefix}{name}", f"is not a field here; there are {expected}{meant}"))
    found = declared(**arguments)
    wrong = {problem.path for problem in problems[before:]}
    for name, message in compared(found):
        place = f"{prefix}{name}" if name else path
        if place not in wrong:  # what stands in place of a wrong value is not the user's
            problems.append(Problem(place, message))
    return found


def _is_there(field: FieldShape, written: object) -> bool:
    """Whether a wrong value counts as written: where None means that nothing is, others ask for that. A number has no
    value that says nothing."""
    is_asked = field.default is None and not field.only_right and not isinstance(field.node, WholeNode)
    return is_asked and written is not None


def compared(found: Any) -> Iterable[tuple[str, str]]:
    """What a dataclass itself finds wrong: the name of a field, "" for the whole mapping, and why."""
    return found.problems() if hasattr(found, "problems") else ()


def _read_field(field: FieldShape, written: object, path: str, problems: Problems) -> Any:
    """The value, or WRONG where the default stands in its place. null is the same as no field."""
    if written is None:
        if field.default is MISSING:
            problems.append(Problem(path, "is required"))
        return WRONG
    problems_before = len(problems)
    read = field.node.read(written, path, problems)
    is_one = field.only_right and not isinstance(field.node, ListNode)  # a list leaves out its own items
    return WRONG if is_one and len(problems) > problems_before else read


def _unwrapped(hint: Any) -> tuple[list[Any], Any]:
    """The marks of a type, the outer ones first, and the type without marks and without None."""
    marks: list[Any] = []
    while True:
        if get_origin(hint) is Annotated:
            hint, *inner = get_args(hint)
            marks += inner
        elif get_origin(hint) in (Union, types.UnionType) and type(None) in get_args(hint):
            (hint,) = [one for one in get_args(hint) if one is not type(None)]
        else:
            return marks, hint


def _node(kind: Any, marks: Sequence[Any]) -> SchemaNode:
    def mark(wanted: type[Any], default: Any = None) -> Any:
        return next((one for one in marks if isinstance(one, wanted)), default)

    origin = get_origin(kind)
    if own := mark(ReadBy):
        return OwnNode(own)
    if amount := mark(Amount):
        return AmountNode(amount)
    if origin is Literal:
        return ChoiceNode(get_args(kind))
    if kind is bool:
        return FlagNode()
    if kind is int:
        return WholeNode(mark(WholeNumber, WholeNumber()))
    if kind is str:
        return TextNode(mark(Text, Text()))
    if origin in (tuple, frozenset):
        inner, item = _unwrapped(get_args(kind)[0])
        only_right = mark(OnlyRight) is not None
        return ListNode(_node(item, inner), mark(Items, Items()), origin, only_right)
    if dataclasses.is_dataclass(kind) and isinstance(kind, type):
        return ObjectNode(kind)
    raise TypeError(f"{kind!r} is no type of a document's field")


def _camel_case(name: str) -> str:
    """
    >>> _camel_case("max_partitions_per_topic"), _camel_case("from_")
    ('maxPartitionsPerTopic', 'from')
    """
    first, *rest = name.rstrip("_").split("_")
    return first + "".join(part.capitalize() for part in rest)
