"""CustomResourceDefinitions that are older than the operator, and what an API server makes of objects below them."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from ottla_operator.api.objects import Obj, ResourceKind

if TYPE_CHECKING:
    from tests.operator.kubernetes import InMemoryKubernetes

CRDS = Path(__file__).parents[2] / "crds"


@lru_cache
def _of_this_release(kind: str) -> Obj:
    return dict(yaml.safe_load((CRDS / f"{kind.lower()}.yaml").read_text(encoding="utf-8")))


def definition(kind: ResourceKind, *lacking: str) -> Obj:
    """The definition of a kind in this release, without some fields."""
    found = copy.deepcopy(_of_this_release(kind.kind))
    for path in lacking:
        place = found["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
        *parents, last = path.split(".")
        for name in parents:
            place = place["properties"][name.removesuffix("[]")]
            place = place["items"] if name.endswith("[]") else place
        del place["properties"][last]
    return found


def make_older(kubernetes: InMemoryKubernetes, kind: ResourceKind, *lacking: str) -> None:
    """Somebody applies an older definition, or with no fields that of this release."""
    kubernetes.pruned[kind.kind] = lacking
    kubernetes.put(definition(kind, *lacking))


def without_fields(obj: Any, paths: Iterable[str]) -> Any:
    """The object without fields, which is changed in place."""
    for path in paths:
        _drop(obj, path.split("."))
    return obj


def _drop(value: Any, parts: list[str]) -> None:
    name, rest = parts[0], parts[1:]
    if not isinstance(value, dict):
        return
    if not rest:
        value.pop(name, None)
    elif name.endswith("[]"):
        for item in value.get(name.removesuffix("[]")) or []:
            _drop(item, rest)
    else:
        _drop(value.get(name), rest)


def fields_v1(value: Any) -> Obj:
    """metadata.managedFields[].fieldsV1 of somebody who has set all of a value; lists are atomic."""
    if not isinstance(value, dict):
        return {}
    return {f"f:{name}": fields_v1(child) for name, child in value.items()}
