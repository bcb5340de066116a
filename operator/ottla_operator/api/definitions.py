"""The fields that a CustomResourceDefinition has, and those that it lacks, which the API server drops (pruning).

A field is a path: `spec.brokers.disks[].size`; `[]` is an item of a list, `{}` a value of a map, and `.*` behind a path
that the API server keeps everything below it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from ottla_operator.api.names import VERSION
from ottla_operator.api.objects import Obj, dig

ANYTHING = ".*"


def fields_of(definition: Mapping[str, Any]) -> frozenset[str]:
    """The fields of the version that the operator uses, and its subresources; none when it does not serve that."""
    for version in definition["spec"]["versions"]:
        if version["name"] == VERSION and version.get("served"):
            subresources = (f"subresources.{name}" for name in version.get("subresources") or {})
            return frozenset((*_fields(version["schema"]["openAPIV3Schema"], ""), *subresources))
    return frozenset()


def _fields(schema: Mapping[str, Any], path: str) -> Iterator[str]:
    if schema.get("x-kubernetes-preserve-unknown-fields"):
        yield path + ANYTHING
    for name, child in (schema.get("properties") or {}).items():
        place = f"{path}.{name}" if path else str(name)
        yield place
        yield from _fields(child, place)
    if isinstance(schema.get("items"), Mapping):
        yield from _fields(schema["items"], f"{path}[]")
    if isinstance(schema.get("additionalProperties"), Mapping):
        yield f"{path}{{}}"
        yield from _fields(schema["additionalProperties"], f"{path}{{}}")


def lacking(needed: Collection[str], there: Collection[str]) -> tuple[str, ...]:
    """The needed fields that are not there, and that nothing above them keeps; of nested ones the uppermost.

    >>> lacking(["spec", "spec.a", "spec.a.b", "spec.c[].d", "spec.e.f"], {"spec", "spec.c.*", "spec.e", "spec.e.*"})
    ('spec.a',)
    """
    kept = [path.removesuffix(ANYTHING) for path in there if path.endswith(ANYTHING)]
    missing = [path for path in needed if path not in there and not any(_is_below(path, one) for one in kept)]
    return tuple(path for path in missing if not any(_is_below(path, one) for one in missing))


def _is_below(path: str, above: str) -> bool:
    return path.startswith((f"{above}.", f"{above}[", f"{above}{{")) or above == ""


def has_field(obj: Obj, path: str) -> bool:
    """Whether an object has a value at a field.

    >>> found = {"spec": {"disks": [{"name": "d0"}, {"size": "1Gi"}], "config": {"a": 1}}}
    >>> [has_field(found, path) for path in ("spec.disks[].size", "spec.disks[].state", "spec.config{}", "status")]
    [True, False, True, False]
    """
    return any(True for _ in _values(obj, path.removesuffix(ANYTHING).replace("[]", ".[]").replace("{}", ".{}")))


def _values(value: Any, path: str) -> Iterator[Any]:
    if not path:
        yield value
        return
    name, _, rest = path.partition(".")
    if name == "[]":
        found = list(value) if isinstance(value, list) else []
    elif name == "{}":
        found = list(value.values()) if isinstance(value, Mapping) else []
    else:
        found = [value[name]] if isinstance(value, Mapping) and value.get(name) is not None else []
    for one in found:
        yield from _values(one, rest)


def was_set(obj: Obj, path: str) -> bool:
    """Whether metadata.managedFields say that somebody has set a field, also when the API server drops it now.

    >>> owned = {"f:spec": {"f:rolling": {"f:approval": {}}, "f:disks": {}}}
    >>> found = {"metadata": {"managedFields": [{"fieldsV1": owned}]}}
    >>> [was_set(found, path) for path in ("spec.rolling.approval", "spec.rolling.maxBatch", "spec.disks[].size")]
    [True, False, True]
    """
    parts = path.removesuffix(ANYTHING).replace("[]", ".[]").replace("{}", ".{}").split(".")
    return any(_is_set(dig(one, "fieldsV1") or {}, parts) for one in dig(obj, "metadata", "managedFields") or [])


def _is_set(owned: Mapping[str, Any], parts: Sequence[str]) -> bool:
    """`owned`: FieldsV1: f: before the name of a field, k:, v: and i: before an item. Nothing below: all of it."""
    if not parts:
        return True
    children = {key: child for key, child in owned.items() if key != "."}
    if not children:
        return "." not in owned and bool(parts[0] in ("[]", "{}"))
    if parts[0] in ("[]", "{}"):
        return any(_is_set(child, parts[1:]) for child in children.values())
    child = children.get(f"f:{parts[0]}")
    return child is not None and _is_set(child, parts[1:])


def dropped(written: Any, answer: Any, path: str) -> Iterator[str]:
    """The fields of what was written that the answer does not have.

    >>> list(dropped({"a": 1, "b": [{"c": 1}], "d": None}, {"b": [{}]}, "status"))
    ['status.a', 'status.b[].c']
    """
    if isinstance(written, Mapping):
        for name, value in written.items():
            if value is None:
                continue
            if not isinstance(answer, Mapping) or name not in answer:
                yield f"{path}.{name}"
            else:
                yield from dropped(value, answer[name], f"{path}.{name}")
    elif isinstance(written, list) and isinstance(answer, list):
        for one, other in zip(written, answer, strict=False):
            yield from dropped(one, other, f"{path}[]")
