"""What requests are about, and the rights on it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from ottla_broker.authorization.resources import CLUSTER_NAME, AclOperation, ResourceType

TOPIC, OTHER_TOPIC = "secret", "open"
"""Topics that exist."""
GROUP, IDLE_GROUP = "g", "idle"
"""Groups that exist: with a member, and with nothing but an offset of `OTHER_TOPIC`."""
TRANSACTIONAL_ID = "tx"
SOMEBODY = "carl"
"""A user who does nothing."""
MISSING = "nope"
"""Nothing has this name."""


class Right(NamedTuple):
    """A right on one resource."""

    operation: AclOperation
    resource_type: ResourceType
    name: str

    def __str__(self) -> str:
        return f"{self.operation.label}:{self.resource_type.label}:{self.name}"


class Names(NamedTuple):
    """What a request is about. None in place of the topics: all, as the request says it."""

    topics: tuple[str, ...] | None = ()
    groups: tuple[str, ...] = ()
    transactional_ids: tuple[str, ...] = ()
    users: tuple[str, ...] = ()
    tokens: tuple[str, ...] = ()

    def of(self, resource_type: ResourceType) -> tuple[str, ...]:
        """Each name once. Who asks for all topics needs the right on the one that there is."""
        if resource_type is ResourceType.CLUSTER:
            return (CLUSTER_NAME,)
        names = getattr(self, _FIELDS[resource_type])
        return (TOPIC,) if names is None else tuple(dict.fromkeys(names))

    def missing(self, resource_type: ResourceType) -> Names:
        """The same with a name that does not exist in place of each one of this type."""
        kind = _FIELDS[resource_type]
        names = getattr(self, kind)
        return self if names is None else self._replace(**{kind: tuple(MISSING for _ in names)})


_FIELDS = {
    ResourceType.TOPIC: "topics",
    ResourceType.GROUP: "groups",
    ResourceType.TRANSACTIONAL_ID: "transactional_ids",
    ResourceType.USER: "users",
    ResourceType.DELEGATION_TOKEN: "tokens",
}
KINDS = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.TRANSACTIONAL_ID
"""The types of what may exist or be missing."""


def _variants(existing: str) -> dict[str, tuple[str, ...]]:
    return {
        "existing": (existing,),
        "missing": (MISSING,),
        "existing and missing": (existing, MISSING),
        "named twice": (existing, existing),
        "missing, named twice": (MISSING, MISSING),
        "none": (),
    }


NOTHING: Mapping[str, Names] = {"": Names()}
"""Of a request that names nothing."""
TOPICS: Mapping[str, Names] = {about: Names(topics=names) for about, names in _variants(TOPIC).items()}
GROUPS: Mapping[str, Names] = {about: Names(groups=names) for about, names in _variants(GROUP).items()}
IDLE_GROUPS: Mapping[str, Names] = {about: Names(groups=names) for about, names in _variants(IDLE_GROUP).items()}
TRANSACTIONAL_IDS: Mapping[str, Names] = {
    about: Names(transactional_ids=names) for about, names in _variants(TRANSACTIONAL_ID).items()
}
ALL_TOPICS: Mapping[str, Names] = {"null for all": Names(topics=None)}


def one_of(variants: Mapping[str, Names]) -> Mapping[str, Names]:
    """Of a request that names one."""
    return {about: variants[about] for about in ("existing", "missing")}


def beside(variants: Mapping[str, Names], **others: tuple[str, ...]) -> Mapping[str, Names]:
    """The variants with other names that stay the same."""
    return {about: names._replace(**others) for about, names in variants.items()}
