"""Reads a pod's spec that a user adds to ours: only fields that Kubernetes has, each of its type.

Fields and types are in `pod_fields`. Values, such as whether a priority class exists, are the API server's to
check; what collides with the operator's own fields is checked in `objects.pod_template`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ottla_broker.config import is_meant
from ottla_documents.pod_fields import FIELDS
from ottla_documents.quantity import quantity
from ottla_documents.schema.marks import Problem

POD_SPEC_SCHEMA = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
REPLACE = "$patch"
"""Directive of Kubernetes' strategic merge: `$patch: replace` replaces a mapping instead of adding to it."""
REPLACEABLE = ("PodSecurityContext", "SecurityContext")
KEPT_WHEN_EMPTY = ("value", "storageClassName", "apiGroup")
"""Strings that mean something when they are empty; an API server leaves out all others."""
_TYPES: dict[str, tuple[type, ...]] = {
    "int": (int,),
    "str": (str,),
    "bool": (bool,),
    "time": (str,),
    "port": (int, str),
}
_NAMES = {"int": "a whole number", "str": "a string", "bool": "true or false", "time": "a time", "port": "a port"}


def read_pod_spec(value: object, path: str, problems: list[Problem]) -> dict[str, Any]:
    """A pod's spec without null and empty fields; each problem has the path of its field.

    >>> problems = []
    >>> read_pod_spec({"priorityClassName": "high", "tolerations": None}, "spec", problems), problems
    ({'priorityClassName': 'high'}, [])
    >>> read_pod_spec({"containers": [{"name": "a", "imege": "b"}]}, "spec", problems)
    {'containers': [{'name': 'a'}]}
    >>> str(problems[0])
    'spec.containers[0].imege: is not a field of Container in Kubernetes; is image meant?'
    """
    found = _read(value, "PodSpec", path, problems)
    return found if isinstance(found, dict) else {}


def _read(value: Any, kind: str, path: str, problems: list[Problem]) -> Any:
    """The value; None where it is not of its type."""
    if kind in FIELDS:
        return _entry(value, kind, path, problems)
    if kind.startswith("["):
        if not isinstance(value, list):
            problems.append(Problem(path, f"must be a list, not {value!r}"))
            return None
        items = (_read(item, kind[1:-1], f"{path}[{index}]", problems) for index, item in enumerate(value))
        return [item for item in items if item is not None]
    if kind.startswith("{"):
        if not isinstance(value, Mapping):
            problems.append(Problem(path, f"must be a mapping, not {value!r}"))
            return None
        read = {str(key): _read(item, kind[1:-1], f"{path}.{key}", problems) for key, item in value.items()}
        return {key: item for key, item in read.items() if item is not None}
    if kind == "quantity":
        return _quantity(value, path, problems)
    if not isinstance(value, _TYPES[kind]) or (isinstance(value, bool) and kind != "bool"):
        hint = "; put it in quotes" if kind == "str" and isinstance(value, int | float) else ""
        problems.append(Problem(path, f"must be {_NAMES[kind]}, not {value!r}{hint}"))
        return None
    return value


def _entry(value: Any, kind: str, path: str, problems: list[Problem]) -> dict[str, Any] | None:
    if not isinstance(value, Mapping):
        problems.append(Problem(path, f"must be a mapping, not {value!r}"))
        return None
    found: dict[str, Any] = {}
    for name, item in value.items():
        place = f"{path}.{name}"
        if name == REPLACE:
            if item == "replace" and kind in REPLACEABLE:
                found[REPLACE] = item
            else:
                problems.append(Problem(place, "there is only $patch: replace, and only in a securityContext"))
        elif name not in FIELDS[kind]:
            problems.append(
                Problem(place, f"is not a field of {kind} in Kubernetes{is_meant(str(name), FIELDS[kind])}")
            )
        elif item is not None:
            read = _read(item, FIELDS[kind][name], place, problems)
            if read is not None and (read != "" or name in KEPT_WHEN_EMPTY):
                found[name] = read
    return found


def _quantity(value: Any, path: str, problems: list[Problem]) -> str | None:
    try:
        quantity(value)
    except ValueError as error:
        problems.append(Problem(path, str(error)))
        return None
    return str(value)
