"""Hypothesis strategies that make any message of any definition, used by the tests beside this module."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from functools import cache
from importlib import import_module
from types import ModuleType
from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, Phase, note, settings
from hypothesis import strategies as st

from ottla_broker.protocol import generator
from ottla_broker.protocol.errors import ErrorCode
from ottla_broker.protocol.generator.classes import class_names
from ottla_broker.protocol.generator.facts import is_null_in, scope_of, snake_case
from ottla_broker.protocol.notation import Definition, Field, MessageDefinition

RANGES = {
    "int8": (-(2**7), 2**7 - 1),
    "int16": (-(2**15), 2**15 - 1),
    "uint16": (0, 2**16 - 1),
    "int32": (-(2**31), 2**31 - 1),
    "uint32": (0, 2**32 - 1),
    "int64": (-(2**63), 2**63 - 1),
}

FEW_EXAMPLES = settings(
    max_examples=10 if os.environ.get("OTTLA_TEST_ALL") == "1" else 4,
    phases=[Phase.generate],
    derandomize=True,
    database=None,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.function_scoped_fixture],
)
"""Few, as each example draws one value per version of a message."""

DEFINITIONS = generator.read_definitions()


class Case(NamedTuple):
    """One message in one version, with the generated functions for it."""

    definition: Definition
    message: MessageDefinition
    version: int

    @property
    def module(self) -> ModuleType:
        return import_module(f"ottla_broker.protocol.generated.{self.definition.module}")

    @property
    def stem(self) -> str:
        return snake_case(self.message.name) if self.message.kind == "data" else self.message.kind

    def read(self, wire: bytes | memoryview) -> tuple[Any, int]:
        """(message, offset after it)."""
        result: tuple[Any, int] = getattr(self.module, f"read_{self.stem}_at")(self.version, memoryview(wire))
        return result

    def write(self, value: Any) -> bytes:
        return b"".join(getattr(self.module, f"write_{self.stem}")(self.version, value))

    def values(self, tame: bool = False) -> st.SearchStrategy[Any]:
        """Any value that this version can carry; `tame` keeps to what other implementations accept:
        known error codes, durations and times that fit their types.
        """
        return _struct(self, self.message.name, self.message.fields, tame)


def cases() -> list[Any]:
    """Every message of every definition in every version, as pytest parameters."""
    return [
        pytest.param(Case(definition, message, version), id=f"{message.name}-v{version}")
        for definition in DEFINITIONS
        for message in definition.messages
        for version in range(message.versions.first, message.last_version + 1)
    ]


def messages(known: Callable[[Case], bool] = lambda case: True) -> list[Any]:
    """Every message with the list of its versions that are `known`, as pytest parameters; none without any."""
    found: dict[str, list[Case]] = {}
    for parameter in cases():
        case: Case = parameter.values[0]
        if known(case):
            found.setdefault(case.message.name, []).append(case)
    return [pytest.param(versions, id=name) for name, versions in found.items()]


def drawn(data: st.DataObject, versions: list[Case], tame: bool = False) -> Iterator[tuple[Case, Any]]:
    """A value for each of the versions; a failure's notes say which one it was."""
    for case in versions:
        value = data.draw(case.values(tame))
        note(f"{case.message.name} version {case.version}")
        yield case, value


@cache
def _class(module: ModuleType, file: str, scope: str, struct: str) -> type:
    definition = next(one for one in DEFINITIONS if one.file == file)
    cls: type = getattr(module, class_names(definition)[0][scope, struct])
    return cls


def _struct(case: Case, name: str, fields: tuple[Field, ...], tame: bool) -> st.SearchStrategy[Any]:
    cls = getattr(case.module, name)
    members = {snake_case(field.name): _field(case, field, tame) for field in fields if case.version in field.versions}
    return st.builds(cls, **members)


def _field(case: Case, field: Field, tame: bool) -> st.SearchStrategy[Any]:
    value = _value(case, field, tame)
    if field.is_array:
        value = st.lists(value, max_size=3)
    elif field.is_struct and field.tag is not None:
        # A tagged struct of defaults is the same as none on the wire.
        cls = _class(case.module, case.definition.file, scope_of(case.message), field.type)
        value = value.map(lambda made: None if made == cls() else made)
    return st.none() | value if is_null_in(field, case.version) else value


def _value(case: Case, field: Field, tame: bool) -> st.SearchStrategy[Any]:
    if field.is_struct:
        cls = _class(case.module, case.definition.file, scope_of(case.message), field.type)
        return _struct(case, cls.__name__, field.fields, tame)
    if field.type == "bool":
        return st.booleans()
    if field.type == "string":
        return st.text(max_size=200 if not tame else 20)
    if field.type in ("bytes", "records"):
        return st.binary(max_size=300)
    if field.type == "uuid":
        return st.binary(min_size=16, max_size=16)
    if field.type == "float64":
        return st.floats(allow_nan=False)
    if tame and field.name.endswith("ErrorCode"):
        return st.sampled_from([int(code) for code in ErrorCode])
    if tame and (field.name.endswith("Ms") or "Timestamp" in field.name):
        return st.integers(0, 2**31 - 1)
    return st.integers(*RANGES[field.type])
