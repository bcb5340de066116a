"""Whether an object says only what Kubernetes knows: field names and types, after the official client's models.

The models are generated from the OpenAPI document of the release, so a misspelt field, which an API server would drop
or refuse, is found without one. Required fields and values are not checked.
"""

from __future__ import annotations

import re
from typing import Any

from kubernetes.client import models

from ottla_operator.api.objects import Obj

_SCALARS: dict[str, tuple[type, ...]] = {"str": (str,), "int": (int,), "bool": (bool,), "float": (int, float)}
_RENAMED = {"V1Event": "CoreV1Event"}


def faults_of(obj: Obj) -> list[str]:
    """Paths of fields that no such object has, or whose value is of another type."""
    version = obj["apiVersion"].rpartition("/")[2]
    model = f"{version[0].upper()}{version[1:]}{obj['kind']}"
    return _faults(_RENAMED.get(model, model), obj, obj["kind"])


def _faults(kind: str, value: Any, path: str) -> list[str]:
    if kind in _SCALARS:
        fits = isinstance(value, _SCALARS[kind]) and (kind == "bool" or not isinstance(value, bool))
        return [] if fits else [f"{path}: {value!r} is not {kind}"]
    if found := re.fullmatch(r"List\[(.+)\]", kind):
        if not isinstance(value, list):
            return [f"{path}: is not a list"]
        return [fault for index, item in enumerate(value) for fault in _faults(found[1], item, f"{path}[{index}]")]
    if found := re.fullmatch(r"Dict\[str, (.+)\]", kind):
        if not isinstance(value, dict):
            return [f"{path}: is not a mapping"]
        return [fault for key, item in value.items() for fault in _faults(found[1], item, f"{path}.{key}")]
    model = getattr(models, kind, None)
    if model is None:
        return []  # object, bytes, datetime: anything
    if not isinstance(value, dict):
        return [f"{path}: is not a mapping"]
    types = {model.attribute_map[name]: type_name for name, type_name in model.openapi_types.items()}
    faults: list[str] = []
    for name, item in value.items():
        if name not in types:
            faults.append(f"{path}.{name}: no such field of {kind}")
        else:
            faults += _faults(types[name], item, f"{path}.{name}")
    return faults
