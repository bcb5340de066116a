"""What an API server checks of a custom resource, as far as our schemas use it: types, bounds, patterns, unknowns.

CEL rules are not evaluated here; that takes an API server.
"""

from __future__ import annotations

import re
from copy import deepcopy
from functools import cache
from pathlib import Path
from typing import Any

import yaml

CRDS = Path(__file__).parents[3] / "crds"
_TYPES: dict[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
}


def definition(plural: str) -> dict[str, Any]:
    """The CustomResourceDefinition of a kind."""
    return deepcopy(_loaded(plural))


@cache
def _loaded(plural: str) -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load((CRDS / f"{plural.removesuffix('s')}.yaml").read_text())
    return loaded


def schema_of(plural: str) -> dict[str, Any]:
    """openAPIV3Schema of the only version."""
    schema: dict[str, Any] = definition(plural)["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    return schema


def violations(schema: dict[str, Any], value: Any, path: str = "") -> list[str]:
    """The paths of what the schema refuses, and of fields that it would prune."""
    if schema.get("x-kubernetes-int-or-string"):
        if isinstance(value, bool) or not isinstance(value, int | str):
            return [path]
        pattern = schema.get("pattern", "")
        return [path] if isinstance(value, str) and not re.search(pattern, value) else []
    if schema.get("x-kubernetes-preserve-unknown-fields") and "type" not in schema:
        return []
    kind = schema["type"]
    if not isinstance(value, _TYPES[kind]) or (isinstance(value, bool) and kind != "boolean"):
        return [path]
    found: list[str] = []
    if kind == "object":
        properties = schema.get("properties", {})
        found += [f"{path}.{name}" for name in schema.get("required", []) if name not in value]
        for name, child in value.items():
            below = properties.get(name, schema.get("additionalProperties"))
            if below is not None:
                found += violations(below, child, f"{path}.{name}")
            elif path != ".metadata" and not schema.get("x-kubernetes-preserve-unknown-fields"):
                found.append(f"{path}.{name}")
    elif kind == "array":
        if not schema.get("minItems", 0) <= len(value) <= schema.get("maxItems", 10**9):
            found.append(path)
        keys = schema.get("x-kubernetes-list-map-keys")
        marks = [
            repr([item.get(key) for key in keys]) if keys and isinstance(item, dict) else repr(item) for item in value
        ]
        if schema.get("x-kubernetes-list-type") in ("map", "set") and len(set(marks)) != len(marks):
            found.append(path)
        for index, item in enumerate(value):
            found += violations(schema["items"], item, f"{path}[{index}]")
    elif kind == "string":
        if not schema.get("minLength", 0) <= len(value) <= schema.get("maxLength", 10**9):
            found.append(path)
        if "pattern" in schema and not re.search(schema["pattern"], value):
            found.append(path)
    elif kind == "integer":
        most = 2 ** (31 if schema.get("format") == "int32" else 63) - 1
        if not schema.get("minimum", -most - 1) <= value <= schema.get("maximum", most):
            found.append(path)
    if "enum" in schema and value not in schema["enum"]:
        found.append(path)
    return found


def structural_faults(schema: dict[str, Any], path: str = "") -> list[str]:
    """What an API server refuses of a schema itself: nodes without a type, and defaults, which live in the model."""
    faults: list[str] = []
    open_node = schema.get("x-kubernetes-int-or-string") or schema.get("x-kubernetes-preserve-unknown-fields")
    if "type" not in schema and not open_node:
        faults.append(f"{path}: no type")
    if "default" in schema and "enum" not in schema:
        faults.append(f"{path}: a default")
    if schema.get("type") == "array" and "x-kubernetes-list-type" not in schema:
        faults.append(f"{path}: no list type")
    for key in schema.get("x-kubernetes-list-map-keys", []):
        if key not in schema["items"].get("required", []):
            faults.append(f"{path}: the list key {key} is not required")
    for name, child in schema.get("properties", {}).items():
        faults += structural_faults(child, f"{path}.{name}")
    for name in ("items", "additionalProperties"):
        if isinstance(schema.get(name), dict):
            faults += structural_faults(schema[name], f"{path}[]")
    return faults


def rules(schema: dict[str, Any], path: str = "") -> list[tuple[str, str]]:
    """Every CEL rule with the path it stands at."""
    found = [(path, rule["rule"]) for rule in schema.get("x-kubernetes-validations", [])]
    for name, child in schema.get("properties", {}).items():
        found += rules(child, f"{path}.{name}")
    if isinstance(schema.get("items"), dict):
        found += rules(schema["items"], f"{path}[]")
    return found


def undescribed(schema: dict[str, Any], path: str = "") -> list[str]:
    """The fields without a description: `kubectl explain` shows nothing for them.

    Not `metadata`: an API server refuses a schema that describes it, and describes it itself.
    """
    found: list[str] = []
    for name, child in schema.get("properties", {}).items():
        if path + name != "metadata" and not str(child.get("description", "")).strip():
            found.append(f"{path}.{name}")
        found += undescribed(child, f"{path}.{name}")
    for name in ("items", "additionalProperties"):
        if isinstance(schema.get(name), dict):
            found += undescribed(schema[name], f"{path}[]")
    return found
