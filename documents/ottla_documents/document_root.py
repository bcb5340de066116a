"""Reads the outer fields of a document: metadata and spec."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from ottla_broker.config import is_meant
from ottla_documents.field_types import NAMESPACE
from ottla_documents.schema.marks import Problem, Text
from ottla_documents.schema.nodes import TextNode, read_object
from ottla_documents.shown_values import shown

Spec = TypeVar("Spec")


@dataclass(frozen=True, slots=True)
class Root(Generic[Spec]):
    """A document. `spec`: a value of its dataclass, with a default in place of each wrong value."""

    name: str
    namespace: str
    spec: Spec


_KNOWN = ("apiVersion", "kind", "metadata", "spec", "status")


def read_root(
    document: Mapping[str, Any],
    declared: type[Spec],
    name: Text,
    problems: list[Problem],
    namespace: Text | None = None,
) -> Root[Spec]:
    """Reads metadata.name, metadata.namespace and spec. apiVersion, kind and status are not looked at.

    Args:
        declared: the dataclass of spec.
        name: what metadata.name may be. metadata.namespace is "default" where it is not written.
    """
    metadata = _mapping(document, "metadata", problems)
    spec = _mapping(document, "spec", problems)
    found_name = _text(metadata, "name", name, problems)
    if metadata is not None and metadata.get("name") is None:
        problems.append(Problem("metadata.name", "is required"))
    found = Root(
        found_name,
        _text(metadata, "namespace", NAMESPACE, problems) or "default",
        # what is missing in a spec that is no mapping is not reported once more
        read_object(declared, spec or {}, "spec", problems if spec is not None else []),
    )
    for key in document:
        if key not in _KNOWN:
            message = f"is not a field here; there are {', '.join(_KNOWN)}{is_meant(str(key), _KNOWN)}"
            problems.append(Problem(str(key), message))
    return found


def _mapping(document: Mapping[str, Any], name: str, problems: list[Problem]) -> Mapping[str, Any] | None:
    """An empty one where it is not written; None where it is no mapping."""
    value = document.get(name)
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        problems.append(Problem(name, f"must be a mapping, not {shown(value)}"))
        return None
    return value


def _text(metadata: Mapping[str, Any] | None, name: str, mark: Text, problems: list[Problem]) -> str:
    value = (metadata or {}).get(name)
    read = (
        None
        if value is None or (value == "" and name == "namespace")
        else TextNode(mark).read(value, f"metadata.{name}", problems)
    )
    return read if isinstance(read, str) else ""
