"""spec.topics.namespaces: which other namespaces may have KafkaTopics of a KafkaCluster.

A namespace is allowed when it is named, or when its labels match the selector. That of the KafkaCluster always is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Literal

from ottla_documents.field_types import NamespaceName, Texts
from ottla_documents.schema.marks import Items, Names, OnlyRight, Text


@dataclass(frozen=True, slots=True)
class LabelRequirement:
    """One of matchExpressions, by the rules of Kubernetes."""

    key: Annotated[str, Text(least=1)]
    """The key of the label."""
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist"]
    """In and NotIn: whether the label has one of the values. NotIn holds without the label, too. Exists and
    DoesNotExist: whether the namespace has the label."""
    values: Names = ()
    """The values, with In and NotIn."""

    def problems(self) -> Iterator[tuple[str, str]]:
        if self.operator in ("In", "NotIn") and not self.values:
            yield "values", f"is required with the operator {self.operator}"
        elif self.operator in ("Exists", "DoesNotExist") and self.values:
            yield "values", f"does not go with the operator {self.operator}"

    def matches(self, labels: Mapping[str, str]) -> bool:
        """
        >>> LabelRequirement("team", "NotIn", ("a",)).matches({})
        True
        """
        if self.operator == "Exists":
            return self.key in labels
        if self.operator == "DoesNotExist":
            return self.key not in labels
        return (labels.get(self.key) in self.values) == (self.operator == "In")


@dataclass(frozen=True, slots=True)
class NamespaceSelector:
    """A selector of Kubernetes for the labels of namespaces. An empty one allows every namespace. The label
    kubernetes.io/metadata.name has the name of the namespace."""

    match_labels: Texts = field(default_factory=dict)
    """Labels that the namespace has, with these values."""
    match_expressions: Annotated[tuple[LabelRequirement, ...], Items(most=64, is_atomic=True)] = ()
    """Requirements that all hold."""

    def matches(self, labels: Mapping[str, str]) -> bool:
        return all(labels.get(key) == value for key, value in self.match_labels.items()) and all(
            one.matches(labels) for one in self.match_expressions
        )


@dataclass(frozen=True, slots=True)
class TopicNamespaces:
    """The other namespaces that may have KafkaTopics of this cluster: those that are named, and those whose labels
    match the selector. The namespaces have to be served by the operator, too. A KafkaTopic of any other one reports
    NamespaceNotAllowed; the topic that it had stays in Kafka. Default: none but the namespace of the cluster, which is
    always allowed."""

    names: Annotated[frozenset[NamespaceName], Items(most=256), OnlyRight()] = frozenset()
    """Names of namespaces."""
    selector: NamespaceSelector | None = None

    @property
    def is_any_allowed(self) -> bool:
        """Whether another namespace than that of the KafkaCluster may be allowed."""
        return bool(self.names) or self.selector is not None

    def without_selector(self) -> TopicNamespaces:
        """What is allowed by name. A selector counts only where nothing beside it is wrong: it may allow all."""
        return TopicNamespaces(self.names)

    def allows(self, namespace: str, labels: Mapping[str, str]) -> bool:
        """Whether another namespace, which has these labels, is allowed.

        >>> some = TopicNamespaces(frozenset({"team-a"}), NamespaceSelector({"kafka": "yes"}))
        >>> some.allows("team-a", {}), some.allows("team-b", {"kafka": "yes"}), some.allows("team-b", {})
        (True, True, False)
        >>> TopicNamespaces().allows("team-a", {}), TopicNamespaces(selector=NamespaceSelector()).allows("team-a", {})
        (False, True)
        """
        if namespace in self.names:
            return True
        return self.selector is not None and self.selector.matches(labels)


ONLY_OWN_NAMESPACE = TopicNamespaces()
