"""Every request with as many elements as fit: the map of all APIs, versions and fields that repeat.

Generated from the definitions of the wire protocol: a new API or field is in it without a change here. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from typing import Any, NamedTuple

from ottla_broker.protocol import codec
from ottla_broker.protocol.api import ApiKey
from ottla_broker.protocol.generator import read_definitions
from ottla_broker.protocol.generator.classes import class_names
from ottla_broker.protocol.generator.facts import is_null_in, snake_case
from ottla_broker.protocol.notation import Definition, Field

TOPIC = "hostile"
"""The topic and the group that `Content.VALID` names."""

_UNNAMED_IDS = 16


class Content(Enum):
    """What the elements are."""

    EMPTY = "empty"
    """The smallest: empty names, no members."""
    UNKNOWN = "unknown"
    """Each has another name, which nothing has."""
    REPEATED = "repeated"
    """All name the same thing, which is there."""


class Row(NamedTuple):
    """One field of one request."""

    definition: Definition
    version: int
    path: tuple[str, ...]
    """Names of fields from the request down to the one that repeats."""

    @property
    def name(self) -> str:
        return f"{self.definition.name} v{self.version} {'.'.join(self.path)}"


def rows(served: dict[int, tuple[int, int]]) -> list[Row]:
    """Every field that repeats, of every version of the APIs that are served.

    Args:
        served: first and last version by API key.
    """
    return [
        Row(definition, version, path)
        for definition in sorted(read_definitions(), key=lambda one: one.api_key or 0)
        if definition.api_key is not None and definition.api_key in served
        for version in range(served[definition.api_key][0], served[definition.api_key][1] + 1)
        for path in _paths(definition.message("request").fields, version)
    ]


def _paths(fields: tuple[Field, ...], version: int) -> Iterator[tuple[str, ...]]:
    for member in fields:
        if version not in member.versions:
            continue
        if member.is_array:
            yield (member.name,)
        for path in _paths(member.fields, version):
            yield (member.name, *path)


def request(row: Row, content: Content, size: int, most: int | None = None) -> Any:
    """A request whose frame has about `size` bytes, all of them elements of the row's field.

    Args:
        most: it has at most so many elements, those of other fields included; None for no limit.
    """
    few, more = _build(row, content, 1), _build(row, content, 101)
    smallest = _encoded_size(row, few)
    per_element = (_encoded_size(row, more) - smallest) / 100
    count = int((size - smallest) / max(per_element, 1.0))
    if most is not None:
        counted = _elements(few)
        count = min(count, 1 + (most - counted - 1) * 100 // (_elements(more) - counted))
    return _build(row, content, max(1, count))


def _elements(message: Any) -> int:
    """How many elements the lists of a message have, at every depth; eight numbers count as one."""
    found = 0
    for name in getattr(message, "__slots__", ()):
        value = getattr(message, name)
        if isinstance(value, list):
            has_numbers = bool(value) and isinstance(value[0], int)
            found += len(value) // 8 if has_numbers else len(value) + sum(map(_elements, value))
    return found


def _encoded_size(row: Row, message: Any) -> int:
    module = codec.module(row.definition.api_key or 0)
    return sum(codec.chunk_length(chunk) for chunk in module.write_request(row.version, message))


def _build(row: Row, content: Content, count: int) -> Any:
    definition = row.definition
    message = definition.message("request")
    names, _ = class_names(definition)
    module = codec.module(definition.api_key or 0)
    built = getattr(module, message.name)()
    _fill(built, message.fields, row, names, module, row.path, content, count, 0)
    if definition.api_key == ApiKey.PRODUCE:
        built.acks = -1  # with 0 there would be no answer
    return built


def _fill(
    target: Any,
    fields: tuple[Field, ...],
    row: Row,
    names: dict[tuple[str, str], str],
    module: Any,
    path: tuple[str, ...],
    content: Content,
    count: int,
    number: int,
) -> None:
    """Gives the fields of one struct their values; `path` is what is left of the row's, empty beside it."""
    for member in fields:
        if row.version not in member.versions:
            continue
        attribute = snake_case(member.name)
        is_on_path = bool(path) and member.name == path[0]
        if member.is_array:
            if is_on_path:
                wanted = count if len(path) == 1 else 1
            else:
                wanted = 0 if content is Content.EMPTY or is_null_in(member, row.version) else 1
            rest = path[1:] if is_on_path else ()
            values = [
                _element(member, row, names, module, rest, content, count, each if is_on_path and not rest else number)
                for each in range(wanted)
            ]
            setattr(target, attribute, values)
        elif member.is_struct:
            if is_on_path or (not is_null_in(member, row.version) and member.tag is None):
                inner = getattr(module, names["request", member.type])()
                rest = path[1:] if is_on_path else ()
                _fill(inner, member.fields, row, names, module, rest, content, count, number)
                setattr(target, attribute, inner)
        elif (member.type in ("string", "uuid") and not is_null_in(member, row.version)) or member.is_key:
            setattr(target, attribute, _scalar(member, content, number))


def _element(
    member: Field,
    row: Row,
    names: dict[tuple[str, str], str],
    module: Any,
    path: tuple[str, ...],
    content: Content,
    count: int,
    number: int,
) -> Any:
    if not member.is_struct:
        return _scalar(member, content, number)
    element = getattr(module, names["request", member.type])()
    _fill(element, member.fields, row, names, module, path, content, count, number)
    return element


def _scalar(member: Field, content: Content, number: int) -> Any:
    if member.type == "string":
        return {Content.EMPTY: "", Content.UNKNOWN: f"u{number}", Content.REPEATED: TOPIC}[content]
    if member.type == "uuid":
        is_zero = content is not Content.UNKNOWN
        return bytes(_UNNAMED_IDS) if is_zero else number.to_bytes(_UNNAMED_IDS, "big")
    if member.type == "bool":
        return False
    if member.type in ("bytes", "records"):
        return b""
    if member.type == "float64":
        return 0.0
    largest = 127 if member.type == "int8" else 32767
    return number % largest if content is Content.UNKNOWN else 0
