"""Types of fields that several documents have: names, quantities, and Kafka's own configuration."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated, Any, TypeAlias

from ottla_documents.schema.marks import QUANTITY_SCHEMA, Amount, Items, Problem, ReadBy, Text
from ottla_documents.schema.nodes import WRONG, AmountNode
from ottla_documents.shown_values import shown

LABEL_FORM = "lower case letters, digits and -, with a letter or digit at both ends"
SUBDOMAIN_FORM = "lower case letters, digits, - and ., with a letter or digit at both ends"
LABEL = r"[a-z0-9]([a-z0-9-]*[a-z0-9])?"
IMAGE = r"[A-Za-z0-9][A-Za-z0-9._:/@-]*"
IMAGE_FORM = "the name of an image, such as registry.example.com/ottla:1.0"
TOPIC_NAME = r"\.{0,2}[a-zA-Z0-9_-][a-zA-Z0-9._-]*|\.{3}[a-zA-Z0-9._-]*"
"""Neither "." nor ".."; 249 characters at most."""
TOPIC_NAME_FORM = "letters, digits, ., _ and -, at most 249, and neither . nor .."
CLUSTER_NAME_LENGTH = 40

LABEL_VALUE = r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?"
STORAGE_CLASS_FORM = "the name of a StorageClass: a-z, 0-9, - and ., with a letter or digit at both ends"

Quantity: TypeAlias = Annotated[str, Amount()]
Image: TypeAlias = Annotated[str, Text(IMAGE, IMAGE_FORM, most=512)]
NAMESPACE = Text(LABEL, LABEL_FORM, most=63)
NamespaceName: TypeAlias = Annotated[str, NAMESPACE]
ClusterName: TypeAlias = Annotated[str, Text(least=1, most=CLUSTER_NAME_LENGTH)]
"""The name of a KafkaCluster that another document refers to."""
TopicName: TypeAlias = Annotated[str, Text(TOPIC_NAME, TOPIC_NAME_FORM, most=249)]
StorageClassName: TypeAlias = Annotated[str, Text(rf"({LABEL}(\.{LABEL})*)?", STORAGE_CLASS_FORM, most=253)]
"""The empty one is the default class of the Kubernetes cluster."""
ConfigKeys: TypeAlias = Annotated[tuple[Annotated[str, Text(least=1, most=249)], ...], Items(most=64)]


def scalar_text(value: object) -> str:
    """A configuration value as text that Kafka reads, from any scalar type of YAML or JSON.

    >>> scalar_text(True), scalar_text(6.048e+08), scalar_text(0.5), scalar_text("a,b"), scalar_text(7)
    ('true', '604800000', '0.5', 'a,b', '7')
    """
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and math.isfinite(value) and value == int(value):
        return str(int(value))
    return str(value)


def _read_config(value: object, path: str, problems: list[Problem]) -> dict[str, str]:
    found: dict[str, str] = {}
    for key, one in _entries(value, path, problems):
        if isinstance(one, Mapping | list) or one is None:
            problems.append(Problem(f"{path}.{key}", f"must be a single value, not {shown(one)}"))
        else:
            found[key] = scalar_text(one)
    return found


def _read_quantities(value: object, path: str, problems: list[Problem]) -> dict[str, str]:
    read = AmountNode(Amount(takes_zero=True)).read
    found = {key: read(one, f"{path}.{key}", problems) for key, one in _entries(value, path, problems)}
    return {key: one for key, one in found.items() if one is not WRONG}


def read_texts(value: object, path: str, problems: list[Problem]) -> dict[str, str]:
    """Strings by any key, such as labels."""
    found: dict[str, str] = {}
    for key, one in _entries(value, path, problems):
        if isinstance(one, str):
            found[key] = one
        else:
            problems.append(Problem(f"{path}.{key}", f"must be a string, not {shown(one)}; put it in quotes"))
    return found


def _entries(value: object, path: str, problems: list[Problem]) -> list[tuple[str, Any]]:
    if isinstance(value, Mapping):
        return [(str(key), one) for key, one in value.items()]
    problems.append(Problem(path, f"must be a mapping, not {shown(value)}"))
    return []


TEXTS_SCHEMA = {"type": "object", "additionalProperties": {"type": "string"}}
_ANY_SCALAR = {"type": "object", "additionalProperties": {"x-kubernetes-preserve-unknown-fields": True}}
Config: TypeAlias = Annotated[Mapping[str, str], ReadBy(_read_config, _ANY_SCALAR)]
"""Kafka's own keys with values of any scalar type, as Kafka would write them."""
Quantities: TypeAlias = Annotated[
    Mapping[str, str], ReadBy(_read_quantities, {"type": "object", "additionalProperties": QUANTITY_SCHEMA})
]
"""Quantities by the name of a resource, none below zero."""
Texts: TypeAlias = Annotated[Mapping[str, str], ReadBy(read_texts, TEXTS_SCHEMA)]
