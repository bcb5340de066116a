"""spec.topics.namespaces: which other namespaces may have KafkaTopics of a KafkaCluster.

A namespace is allowed when it is named, or when its labels match the selector. That of the KafkaCluster always is.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from ottla_documents.fields import Fields

OPERATORS = ("In", "NotIn", "Exists", "DoesNotExist")
NAMESPACE_NAME = r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?"


@dataclass(frozen=True, slots=True)
class LabelRequirement:
    """One of matchExpressions. `values` is empty with Exists and DoesNotExist."""

    key: str
    operator: str
    values: tuple[str, ...] = ()

    def matches(self, labels: Mapping[str, str]) -> bool:
        """By the rules of Kubernetes: NotIn matches a label that is absent, too.

        >>> LabelRequirement("team", "NotIn", ("a",)).matches({})
        True
        """
        if self.operator == "Exists":
            return self.key in labels
        if self.operator == "DoesNotExist":
            return self.key not in labels
        return (labels.get(self.key) in self.values) == (self.operator == "In")


@dataclass(frozen=True, slots=True)
class TopicNamespaces:
    """`selector` None: by name only; (): every namespace, as an empty selector of Kubernetes."""

    names: frozenset[str] = frozenset()
    selector: tuple[LabelRequirement, ...] | None = None

    @property
    def is_any_allowed(self) -> bool:
        """Whether another namespace than that of the KafkaCluster may be allowed."""
        return bool(self.names) or self.selector is not None

    def allows(self, namespace: str, labels: Mapping[str, str]) -> bool:
        """Whether another namespace, which has these labels, is allowed.

        >>> some = TopicNamespaces(frozenset({"team-a"}), (LabelRequirement("kafka", "In", ("yes",)),))
        >>> some.allows("team-a", {}), some.allows("team-b", {"kafka": "yes"}), some.allows("team-b", {})
        (True, True, False)
        >>> TopicNamespaces().allows("team-a", {}), TopicNamespaces(selector=()).allows("team-a", {})
        (False, True)
        """
        if namespace in self.names:
            return True
        return self.selector is not None and all(one.matches(labels) for one in self.selector)


ONLY_OWN_NAMESPACE = TopicNamespaces()


def parse_topic_namespaces(topics: Fields) -> TopicNamespaces:
    """Reads `namespaces` below spec.topics. A wrong requirement allows nothing.

    >>> problems = []
    >>> parse_topic_namespaces(Fields({"namespaces": {"names": ["team-a"]}}, "spec.topics", problems)).names
    frozenset({'team-a'})
    >>> wrong = {"namespaces": {"selector": {"matchExpressions": [{"key": "team", "operator": "In"}]}}}
    >>> parse_topic_namespaces(Fields(wrong, "spec.topics", problems)).selector is None, str(problems[0])
    (True, 'spec.topics.namespaces.selector.matchExpressions[0].values: is required with the operator In')
    """
    fields = topics.child("namespaces")
    names = []
    for name in fields.texts("names"):
        if _is_name(name):
            names.append(name)
        else:
            fields.problem("names", f"{name!r} is not the name of a namespace; an empty selector allows all of them")
    before = len(fields.problems)
    selector = _parse_selector(fields.child("selector")) if fields.has("selector") else None
    fields.finish()
    return TopicNamespaces(frozenset(names), selector if len(fields.problems) == before else None)


def _is_name(text: str) -> bool:
    return re.fullmatch(NAMESPACE_NAME, text) is not None


def _parse_selector(fields: Fields) -> tuple[LabelRequirement, ...]:
    found = []
    labels = fields.child("matchLabels")
    for key, value in labels.values.items():
        if isinstance(value, str):
            found.append(LabelRequirement(str(key), "In", (value,)))
        else:
            labels.problem(str(key), f"must be a string, not {value!r}")
    for item in fields.items("matchExpressions"):
        key = item.text("key")
        operator = item.choice("operator", OPERATORS, "") if item.has("operator") else item.text("operator")
        values = item.texts("values")
        needs_values = operator in ("In", "NotIn")
        if needs_values and not values:
            item.problem("values", f"is required with the operator {operator}")
        elif operator and values and not needs_values:
            item.problem("values", f"does not go with the operator {operator}")
        item.finish()
        found.append(LabelRequirement(key, operator, values))
    fields.finish()
    return tuple(found)
