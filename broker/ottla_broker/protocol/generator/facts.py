"""Facts about fields for readers, writers and classes: names, widths, defaults, layouts.

Pure functions of the definitions, and `Code`, the page that Python is written on.
"""

from __future__ import annotations

import keyword
import re

from ottla_broker.protocol.notation import Field, MessageDefinition

FORMATS = {
    "bool": "?",
    "int8": "b",
    "int16": "h",
    "uint16": "H",
    "int32": "i",
    "uint32": "I",
    "int64": "q",
    "float64": "d",
    "uuid": "16s",
}
"""struct formats of the types of fixed width."""

WIDTHS = {"?": 1, "b": 1, "B": 1, "x": 1, "h": 2, "H": 2, "i": 4, "I": 4, "q": 8, "d": 8, "16s": 16}

PYTHON_TYPES = {"bool": "bool", "float64": "float", "string": "str", "bytes": "bytes | memoryview", "uuid": "bytes"}


def snake_case(name: str) -> str:
    """Kafka's field name as a Python attribute: `ISRNodes` -> `isr_nodes`, `isKRaftController` -> `is_kraft_...`."""
    name = name.replace("KRaft", "Kraft")
    name = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()
    return name + "_" if keyword.iskeyword(name) else name


class Code:
    """Lines of Python with an indentation, and unique names for locals."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.depth = 0
        self._names: dict[str, int] = {}

    def add(self, line: str) -> None:
        self.lines.append("    " * self.depth + line if line else "")

    def name(self, stem: str) -> str:
        number = self._names.get(stem, 0)
        self._names[stem] = number + 1
        return f"{stem}{number}"


def struct_name(prefix: str, formats: list[str]) -> str:
    """Name of the module constant for one fused run; `prefix` is `R` (read) or `W` (write)."""
    return f"{prefix}_" + "".join(formats).replace("?", "t").replace("16s", "u")


def split_formats(formats: str) -> list[str]:
    return re.findall(r"16s|.", formats)


def default_of(member: Field) -> str:
    """The default as a Python expression; `[]` stands for a fresh list."""
    if member.default == "null":
        return "None"
    if member.is_array:
        return "[]"
    if member.is_struct or member.type == "records":
        return "None"
    if member.type == "uuid":
        return "ZERO_UUID"
    if member.type == "string":
        return repr("" if member.default in (None, '""') else member.default)
    if member.type == "bytes":
        return 'b""'
    if member.type == "bool":
        return "True" if member.default == "true" else "False"
    if member.type == "float64":
        return repr(float(member.default or 0))
    return str(int(member.default or "0", 0))


def is_null_in(member: Field, version: int) -> bool:
    return member.nullable is not None and version in member.nullable


def is_ever_null(member: Field) -> bool:
    return member.nullable is not None


def is_fixed(member: Field) -> bool:
    """Whether a value takes the same number of bytes in every message."""
    return member.type in FORMATS and not member.is_array


def minimum_size(fields: tuple[Field, ...], version: int, flexible: bool) -> int:
    """Fewest bytes that a struct of these fields takes."""
    size = 1 if flexible else 0
    for member in fields:
        if version in member.versions and not (member.tag is not None and flexible):
            size += minimum_field_size(member, version, flexible)
    return size


def minimum_field_size(member: Field, version: int, flexible: bool) -> int:
    flexible = flexible and not member.never_flexible
    if member.is_array:
        return 1 if flexible else 4
    if member.type in FORMATS:
        return WIDTHS[FORMATS[member.type]]
    if member.is_struct:
        return 1 if is_null_in(member, version) else minimum_size(member.fields, version, flexible)
    return 1 if flexible else (2 if member.type == "string" else 4)


def differs(member: Field, expression: str) -> str:
    """Condition under which a field has another value than its default."""
    default = default_of(member)
    if member.is_struct and not member.is_array:
        members = " or ".join(differs(one, f"{expression}.{snake_case(one.name)}") for one in member.fields)
        return f"{expression} is not None and ({members})"
    if default == "None":
        return f"{expression} is not None"
    if default in ("[]", '""', "''", 'b""', "False", "0"):
        return f"{expression} is None or {expression}" if is_ever_null(member) else expression
    if default == "True":
        return f"not {expression}"
    return f"{expression} != {default}"


def scope_of(message: MessageDefinition) -> str:
    return message.kind if message.kind != "data" else message.name


def layout(message: MessageDefinition, version: int) -> tuple[object, ...]:
    """What distinguishes one version's bytes (and checks) from another's."""

    def of(fields: tuple[Field, ...]) -> tuple[object, ...]:
        return tuple((version in one.versions, is_null_in(one, version), of(one.fields)) for one in fields)

    return (message.is_flexible(version), of(message.fields))


def layouts(message: MessageDefinition) -> list[tuple[int, list[int]]]:
    """The distinct layouts as (first version, all versions)."""
    found: dict[tuple[object, ...], list[int]] = {}
    for version in range(message.versions.first, message.last_version + 1):
        found.setdefault(layout(message, version), []).append(version)
    return [(versions[0], versions) for versions in found.values()]
