"""The schema of a CustomResourceDefinition from declared dataclasses. The string below a field is its description.

Descriptions are read from the source of the class, since Python keeps none of a field. Only the generators need them.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Sequence
from dataclasses import MISSING
from functools import cache
from typing import Any, TypeAlias

from ottla_documents.schema.marks import QUANTITY_SCHEMA, Items, Rule, Text, WholeNumber
from ottla_documents.schema.nodes import (
    AmountNode,
    ChoiceNode,
    FieldShape,
    FlagNode,
    ListNode,
    ObjectNode,
    OwnNode,
    SchemaNode,
    TextNode,
    WholeNode,
    shape_of,
)

Schema: TypeAlias = dict[str, Any]
DEFAULT = "Default: "


def object_schema(declared: type[Any]) -> Schema:
    """The schema of a mapping with the fields of a dataclass."""
    shape = shape_of(declared)
    found: Schema = {"type": "object"}
    if required := [name for name, one in shape.by_name.items() if one.default is MISSING]:
        found["required"] = required
    found |= rules_schema(shape.rules)
    return found | {"properties": {name: _field_schema(declared, one) for name, one in shape.by_name.items()}}


def schema_of(node: SchemaNode) -> Schema:
    """The schema of a kind of value, without a description."""
    match node:
        case TextNode(mark):
            return _text(mark)
        case WholeNode(mark):
            return _whole(mark)
        case FlagNode():
            return {"type": "boolean"}
        case ChoiceNode(allowed):
            return {"type": "string", "enum": [one for one in allowed if one]}
        case AmountNode():
            return dict(QUANTITY_SCHEMA)
        case ListNode(item, mark):
            return _list(mark) | {"items": schema_of(item)}
        case ObjectNode(declared):
            return object_schema(declared)
        case OwnNode(mark):
            return dict(mark.schema)
    raise TypeError(f"{node!r} has no schema")


def _text(mark: Text) -> Schema:
    pattern = f"({mark.pattern})" if "|" in mark.pattern else mark.pattern
    found = {
        "format": mark.format,
        "minLength": mark.least,
        "maxLength": mark.most,
        "pattern": pattern and f"^{pattern}$",
    }
    return {"type": "string"} | {name: value for name, value in found.items() if value}


def _whole(mark: WholeNumber) -> Schema:
    bounds = {"minimum": mark.lowest, "maximum": mark.highest}
    bounded = {name: value for name, value in bounds.items() if value is not None}
    return {"type": "integer", "format": f"int{mark.bits}"} | bounded


def _list(mark: Items) -> Schema:
    bounds = {"minItems": mark.least, "maxItems": mark.most}
    found: Schema = {"type": "array"} | {name: value for name, value in bounds.items() if value}
    if mark.key:
        return found | {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": [mark.key]}
    return found | {"x-kubernetes-list-type": "atomic" if mark.is_atomic else "set"}


def rules_schema(rules: Sequence[Rule]) -> Schema:
    return {"x-kubernetes-validations": [{"rule": one.rule, "message": one.message} for one in rules]} if rules else {}


def _field_schema(declared: type[Any], field: FieldShape) -> Schema:
    return {"description": description_of(declared, field)} | schema_of(field.node) | rules_schema(field.rules)


def description_of(declared: type[Any], field: FieldShape) -> str:
    """The string below a field, or the docstring of its type, with the default where it is a plain value.

    Raises:
        LookupError: nothing describes the field.
    """
    text = _strings_below(inspect.getsource(declared)).get(field.attribute, "")
    if not text and isinstance(field.node, ObjectNode):
        text = (inspect.getdoc(field.node.type) or "").partition("\n\n")[0]
    text = " ".join(text.split())
    if not text:
        raise LookupError(f"{declared.__name__}.{field.attribute} has no description below it")
    shown = _shown_default(field.default)
    return f"{text} {DEFAULT}{shown}." if shown and DEFAULT not in text else text


def _shown_default(default: Any) -> str:
    if isinstance(default, bool):
        return "true" if default else "false"
    return str(default) if isinstance(default, str | int) and default != "" else ""


@cache
def _strings_below(source: str) -> dict[str, str]:
    """The string below each field of a class, by attribute."""
    found: dict[str, str] = {}
    (body,) = ast.parse(textwrap.dedent(source)).body
    assert isinstance(body, ast.ClassDef)
    for statement, below in zip(body.body, body.body[1:], strict=False):
        if (
            isinstance(statement, ast.AnnAssign)
            and isinstance(statement.target, ast.Name)
            and isinstance(below, ast.Expr)
            and isinstance(below.value, ast.Constant)
            and isinstance(below.value.value, str)
        ):
            found[statement.target.id] = below.value.value
    return found
