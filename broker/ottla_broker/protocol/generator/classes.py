"""Emits the slotted class of a message or struct, and decides how the classes are named."""

from __future__ import annotations

from ottla_broker.protocol.generator.facts import PYTHON_TYPES, Code, default_of, is_ever_null, scope_of, snake_case
from ottla_broker.protocol.notation import Definition, Field


def class_names(definition: Definition) -> tuple[dict[tuple[str, str], str], list[tuple[str, str, tuple[Field, ...]]]]:
    """Class of every (message kind or name, struct), and the classes to emit as (name, doc, fields), inner first."""
    names: dict[tuple[str, str], str] = {}
    emitted: dict[str, tuple[str, tuple[Field, ...]]] = {}
    for message in definition.messages:
        scope = scope_of(message)
        for struct, declared in reversed(message.structs().items()):
            name = struct
            doc = f"Struct of {message.name}."
            if name in emitted and emitted[name][1] != declared.fields:
                name = ("Response" if message.kind == "response" else message.name) + struct
            elif name in emitted:
                doc = f"{emitted[name][0]} And of {message.name}."
            names[scope, struct] = name
            emitted[name] = (doc, declared.fields)
        versions = f"versions {message.versions}" if str(message.versions) != "0" else "version 0"
        emitted[message.name] = (f"{message.name}, {versions}.", message.fields)
    return names, [(name, doc, fields) for name, (doc, fields) in emitted.items()]


def annotation(member: Field, class_name: str | None) -> str:
    """Type of an attribute."""
    if member.is_struct:
        text = class_name or member.type
    elif member.type == "records":
        return "Records | None"
    else:
        text = PYTHON_TYPES.get(member.type, "int")
    if member.is_array:
        text = f"list[{text}]"
    if is_ever_null(member) or default_of(member) == "None":
        text += " | None"
    return text


def emit_class(code: Code, name: str, doc: str, fields: tuple[Field, ...], names: dict[str, str]) -> None:
    add = code.add
    attributes = [(snake_case(one.name), one, annotation(one, names.get(one.type))) for one in fields]
    add("")
    add("")
    add(f"class {name}:")
    code.depth += 1
    add(f'"""{doc}"""')
    add("")
    slots = ", ".join(f'"{attribute}"' for attribute, _, _ in attributes)
    add(f"__slots__ = ({slots}{',' if len(attributes) == 1 else ''})")
    for attribute, member, type_ in attributes:
        add(f"{attribute}: {type_}{'  # ' + versions_remark(member)}")
    add("")
    if attributes:
        add("def __init__(")
        add("    self,")
        add("    *,")
        for attribute, member, type_ in attributes:
            default = default_of(member)
            add(f"    {attribute}: {type_} = {'_EMPTY' if default == '[]' else default},")
        add(") -> None:")
        for attribute, member, _ in attributes:
            if default_of(member) == "[]":
                add(f"    self.{attribute} = [] if {attribute} is _EMPTY else {attribute}")
            else:
                add(f"    self.{attribute} = {attribute}")
        add("")
    add("def __eq__(self, other: object) -> bool:")
    add(f"    if other.__class__ is not {name}:")
    add("        return NotImplemented")
    comparison = " and ".join(f"self.{attribute} == other.{attribute}" for attribute, _, _ in attributes) or "True"
    add(f"    return {comparison}")
    add("")
    add("__hash__ = None")
    add("")
    add("def __repr__(self) -> str:")
    shown = ", ".join(f"{attribute}={{self.{attribute}!r}}" for attribute, _, _ in attributes)
    add(f'    return f"{name}({shown})"')
    code.depth -= 1


def versions_remark(member: Field) -> str:
    text = f"v{member.versions}"
    if member.tag is not None:
        text += f", tag {member.tag}"
    if member.nullable is not None:
        text += f", null v{member.nullable}"
    return text
