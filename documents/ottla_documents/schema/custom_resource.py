"""A kind of document as a CustomResourceDefinition of Kubernetes."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import Any

from ottla_documents.schema.api_group import GROUP, VERSION
from ottla_documents.schema.marks import Rule, Text
from ottla_documents.schema.nodes import TextNode
from ottla_documents.schema.openapi import Schema, object_schema, rules_schema, schema_of


@dataclass(frozen=True, slots=True)
class Column:
    """What `kubectl get` prints. `path`: of the value; `is_wide`: only with -o wide."""

    name: str
    type: str
    path: str
    is_wide: bool = False


def condition_column(name: str, type: str, field: str, *, is_wide: bool = False) -> Column:
    """A column with a field of the condition `type`."""
    return Column(name, "string", f'.status.conditions[?(@.type=="{type}")].{field}', is_wide)


AGE = Column("Age", "date", ".metadata.creationTimestamp")


@dataclass(frozen=True, slots=True)
class Scale:
    """The scale subresource: paths of the number that is declared, of that there is, and of the selector of pods."""

    declared: str
    observed: str
    selector: str


@dataclass(frozen=True, slots=True)
class CustomResource:
    """One kind.

    `spec`, `status`: dataclasses, whose docstrings describe the two fields. `name`: what metadata.name may be, and
    `name_text`, what it is for. `rules`: of the whole document.
    """

    kind: str
    short_name: str
    description: str
    name: Text
    name_text: str
    spec: type[Any]
    status: type[Any]
    columns: tuple[Column, ...]
    rules: tuple[Rule, ...] = ()
    scale: Scale | None = None

    @property
    def plural(self) -> str:
        return f"{self.kind.lower()}s"

    def schema(self) -> Schema:
        """The schema of a document, with descriptions."""
        outer = {
            "apiVersion": _described(f"The version of this schema, {GROUP}/{VERSION}.", {"type": "string"}),
            "kind": _described(f"The kind of this object, {self.kind}.", {"type": "string"}),
            "metadata": {
                "type": "object",
                "properties": {"name": _described(self.name_text, schema_of(TextNode(self.name)))},
            },
        }
        parts = {"spec": self.spec, "status": self.status}
        inner = {name: _described(_docstring(part), object_schema(part)) for name, part in parts.items()}
        found: Schema = {"description": self.description, "type": "object", "required": ["spec"]}
        return found | rules_schema(self.rules) | {"properties": outer | inner}

    def definition(self) -> Schema:
        """The CustomResourceDefinition."""
        subresources: Schema = {"status": {}}
        if self.scale is not None:
            subresources["scale"] = {
                "specReplicasPath": self.scale.declared,
                "statusReplicasPath": self.scale.observed,
                "labelSelectorPath": self.scale.selector,
            }
        version = {
            "name": VERSION,
            "served": True,
            "storage": True,
            "subresources": subresources,
            "additionalPrinterColumns": [
                {"name": one.name, "type": one.type, "jsonPath": one.path} | ({"priority": 1} if one.is_wide else {})
                for one in self.columns
            ],
            "schema": {"openAPIV3Schema": self.schema()},
        }
        return {
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {
                "name": f"{self.plural}.{GROUP}",
                # uninstalling the operator deletes no cluster, topic or pipeline
                "annotations": {"helm.sh/resource-policy": "keep"},
            },
            "spec": {
                "group": GROUP,
                "scope": "Namespaced",
                "names": {
                    "kind": self.kind,
                    "listKind": f"{self.kind}List",
                    "plural": self.plural,
                    "singular": self.kind.lower(),
                    "shortNames": [self.short_name],
                },
                "versions": [version],
            },
        }


def _described(text: str, schema: Schema) -> Schema:
    return {"description": text} | schema


def _docstring(declared: type[Any]) -> str:
    return " ".join((inspect.getdoc(declared) or "").split())
