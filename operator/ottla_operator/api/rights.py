"""The rights in a namespace without which the operator does nothing for an object of a kind there.

The chart gives them (`charts/ottla/templates/rbac.yaml`). Rights that only tell more are not among them: Events, nodes,
volumes, storage classes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from ottla_operator.api.names import GROUP
from ottla_operator.api.objects import KAFKA_CLUSTER, KAFKA_PIPELINE, KAFKA_TOPIC

_READ = ("get", "list", "watch")
_WRITE = ("create", "patch", "update", "delete")


class Right(NamedTuple):
    """A verb on a resource, perhaps with a subresource: "kafkatopics/status"."""

    group: str
    resource: str
    verb: str

    def __str__(self) -> str:
        return f"{self.verb} {self.resource}{f'.{self.group}' if self.group else ''}"


def _rights(group: str, resource: str, *verbs: str) -> Iterator[Right]:
    return (Right(group, resource, verb) for verb in verbs)


_WORKLOADS = (
    *_rights("apps", "statefulsets", *_READ, *_WRITE),
    *_rights("", "persistentvolumeclaims", *_READ, "create", "patch", "delete"),
    *_rights("", "configmaps", *_READ, "create", "patch", "delete"),
)
NEEDED_RIGHTS: Mapping[str, tuple[Right, ...]] = {
    KAFKA_CLUSTER.kind: (
        *_rights(GROUP, "kafkaclusters", *_READ),
        *_rights(GROUP, "kafkaclusters/status", "update"),
        *_rights(GROUP, "kafkaclusters/finalizers", "update"),
        *_WORKLOADS,
        *_rights("policy", "poddisruptionbudgets", *_READ, "create", "patch", "update"),
        *_rights("", "services", *_READ, *_WRITE),
        *_rights("", "pods", *_READ, "patch", "delete"),
        *_rights("", "secrets", "get", "create"),
    ),
    KAFKA_TOPIC.kind: (
        *_rights(GROUP, "kafkatopics", *_READ, "patch"),
        *_rights(GROUP, "kafkatopics/status", "update"),
    ),
    KAFKA_PIPELINE.kind: (
        *_rights(GROUP, "kafkapipelines", *_READ),
        *_rights(GROUP, "kafkapipelines/status", "update"),
        *_rights(GROUP, "kafkapipelines/finalizers", "update"),
        *_WORKLOADS,
        *_rights("batch", "jobs", *_READ, *_WRITE),
        *_rights("batch", "cronjobs", *_READ, *_WRITE),
        *_rights("", "serviceaccounts", *_READ, "create", "patch"),
        *_rights("rbac.authorization.k8s.io", "roles", *_READ, "create", "patch", "delete"),
        *_rights("rbac.authorization.k8s.io", "rolebindings", *_READ, "create", "patch", "delete"),
        *_rights("", "pods", *_READ, "delete"),
    ),
}
"""The rights by the kind of the object that needs them."""
