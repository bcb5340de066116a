"""Documents drawn from a seed: every field that is declared, with good values and now and then a wrong one.

The values follow from the declarations, and so do most of the wrong ones: one more than the highest number, one
character too many, an item twice. What no declaration says (does a schedule name a time?) is right in about half of
the documents.
"""

from __future__ import annotations

from dataclasses import MISSING
from functools import cache
from random import Random
from typing import Any

from ottla_documents.custom_resources import CUSTOM_RESOURCES
from ottla_documents.schema.api_group import GROUP, VERSION
from ottla_documents.schema.custom_resource import CustomResource
from ottla_documents.schema.marks import Problem
from ottla_documents.schema.nodes import (
    AmountNode,
    ChoiceNode,
    FlagNode,
    ListNode,
    ObjectNode,
    OwnNode,
    SchemaNode,
    TextNode,
    WholeNode,
    shape_of,
)

TEXTS = (
    "a", "b", "main", "eu-1a", "4h", "10s", "0 22 * * SAT", "Europe/Berlin", "flights", "3.9", "zk:2181/kafka",
    "SELECT 1", "m:f", "jdbc:postgresql://h/d", "host:9092", "registry.example.com/ottla:1.0",
    "topology.kubernetes.io/zone",
    "", ".", "..", "-a", "A b", "é", "x" * 64, "y" * 300, "out/ü", "a_b",
)  # fmt: skip
QUANTITIES: tuple[Any, ...] = ("1Gi", "500m", 3, "1.5Ki", "2e3", "+1", "-1", "much", "", True, "1 Gi", "0x1")
OTHERS: tuple[Any, ...] = (5, "text", True, [], {}, [1], {"a": 1}, 2.5)
CONFIGS: tuple[Any, ...] = (
    {}, {"retention.ms": 1}, {"min.insync.replicas": "2"}, {"acks": True}, {"no.such": 1.0}, 5, ["a"],
)  # fmt: skip


class Drawn:
    """Draws one document. `wrong`: the share of values that are drawn without regard to the declaration."""

    def __init__(self, seed: int, wrong: float) -> None:
        self._random = Random(seed)
        self._wrong = wrong

    def document(self, resource: CustomResource) -> dict[str, Any]:
        return {
            "apiVersion": f"{GROUP}/{VERSION}",
            "kind": resource.kind,
            "metadata": {"name": self._random.choice(("a", "orders", "x" * 40, "x" * 41))},
            "spec": self._object(resource.spec),
        }

    def _object(self, declared: type[Any]) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for name, field in shape_of(declared).by_name.items():
            if field.default is MISSING:
                is_written = self._random.random() > self._wrong / 4
            else:
                is_written = self._random.random() < 0.4
            if is_written:
                found[name] = self._value(field.node)
        if self._random.random() < self._wrong / 4:
            found["unknown"] = 1
        return found

    def _value(self, node: SchemaNode) -> Any:
        draw = self._random
        if draw.random() < self._wrong / 4:
            return draw.choice(OTHERS)
        is_wrong = draw.random() < self._wrong
        match node:
            case TextNode():
                return draw.choice(TEXTS if is_wrong else _good_texts(node) or TEXTS)
            case WholeNode(mark):
                lowest, highest = mark.lowest or 0, mark.highest or 2**31 - 1
                return draw.choice((lowest - 1, highest + 1) if is_wrong else (lowest, highest, lowest + 1))
            case FlagNode():
                return draw.random() < 0.5
            case ChoiceNode(allowed):
                return draw.choice(("other", "") if is_wrong else tuple(filter(None, allowed)))
            case AmountNode():
                return draw.choice(QUANTITIES if is_wrong else QUANTITIES[:6])
            case ListNode(item, mark):
                most = mark.most or 3
                length = draw.choice((0, most + 1)) if is_wrong and most < 40 else draw.randint(mark.least, 2)
                return [self._value(item) for _ in range(length)]
            case ObjectNode(declared):
                return self._object(declared)
            case OwnNode():
                return draw.choice(CONFIGS if is_wrong else CONFIGS[:4])
        raise TypeError(node)


@cache
def _good_texts(node: TextNode) -> tuple[str, ...]:
    return tuple(text for text in TEXTS if not _has_problems(node, text))


def _has_problems(node: TextNode, text: str) -> bool:
    problems: list[Problem] = []
    node.read(text, "", problems)
    return bool(problems)


def documents(count: int) -> list[tuple[CustomResource, dict[str, Any]]]:
    """`count` documents of each kind in turn; every second one has no wrong value on purpose."""
    found = []
    for seed in range(count):
        resource = CUSTOM_RESOURCES[seed % len(CUSTOM_RESOURCES)]
        found.append((resource, Drawn(seed, 0.0 if seed % 2 else 0.06).document(resource)))
    return found
