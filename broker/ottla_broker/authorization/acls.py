"""ACLs as values: who may do what with which resources, or may not; filters of ACLs; which ACLs are refused.

Pure. Not here: what follows from them (`acl_authorizer`), where they are stored (`server.store.stored_acls`).

Source: AclBinding, AclBindingFilter, ResourcePatternFilter.matches and AccessControlEntryFilter.matches of Apache Kafka
(KIP-140, KIP-290), AclApis and AclAuthorizer.validateAclBinding.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from enum import IntEnum
from ipaddress import IPv4Address, ip_address
from typing import Final, NamedTuple, Protocol, TypeVar

from ottla_broker.authorization.resources import (
    CLUSTER_NAME,
    WILDCARD,
    AclOperation,
    PatternType,
    PermissionType,
    ResourceType,
    operations_of,
)

EVERYONE: Final = "User:*"
"""The principal of an ACL that is about every user. Source: AclEntry.WildcardPrincipal."""

_NO_ZNODE: Final = re.compile("[/\0-\x1f\x7f-\x9f\ud800-\uf8ff\ufff0-\uffff]")
"""Characters that no name of a znode has. Source: PathUtils.validatePath of ZooKeeper."""

_Code = TypeVar("_Code", bound=IntEnum)


class ResourcePattern(NamedTuple):
    """The resources that an ACL is about: one, all of a type (literal `*`), or those whose names begin so."""

    resource_type: ResourceType
    name: str
    pattern_type: PatternType = PatternType.LITERAL


class AccessControlEntry(NamedTuple):
    """What an ACL says about its resources. Principals are written as "User:alice"; `host` is an address, or `*`."""

    principal: str
    host: str
    operation: AclOperation
    permission: PermissionType


class AclBinding(NamedTuple):
    """One ACL."""

    pattern: ResourcePattern
    entry: AccessControlEntry


class InvalidAcl(ValueError):
    """An ACL that is not stored; the message says which field is wrong, and what is allowed."""


class Acls(Protocol):
    """The ACLs that an authorizer decides by, for those who describe and change them.

    Both changes are in force here when they return, and take effect on the newest ACLs of their resources, whoever
    changes these at the same time.
    """

    @property
    def known(self) -> Mapping[ResourcePattern, frozenset[AccessControlEntry]]:
        """The ACLs in force here."""
        ...

    async def add(self, pattern: ResourcePattern, entries: frozenset[AccessControlEntry]) -> None:
        """Adds ACLs of one pattern. Raises KafkaError when they cannot be stored, CoordinationError."""
        ...

    async def remove(
        self, pattern: ResourcePattern, is_removed: Callable[[AccessControlEntry], bool]
    ) -> frozenset[AccessControlEntry]:
        """Removes those ACLs of one pattern, and gives them. Raises CoordinationError."""
        ...


class AclFilter(NamedTuple):
    """Which ACLs are meant. Types, operations and permissions are codes, and None is any text.

    A code that is not known here matches nothing.

    >>> any_of_topic = AclFilter(ResourceType.TOPIC, "orders", PatternType.MATCH)
    >>> any_of_topic.matches_pattern(ResourcePattern(ResourceType.TOPIC, "ord", PatternType.PREFIXED))
    True
    >>> any_of_topic.matches_pattern(ResourcePattern(ResourceType.TOPIC, "o", PatternType.LITERAL))
    False
    """

    resource_type: int = ResourceType.ANY
    name: str | None = None
    pattern_type: int = PatternType.ANY
    principal: str | None = None
    host: str | None = None
    operation: int = AclOperation.ANY
    permission: int = PermissionType.ANY

    def matches_pattern(self, pattern: ResourcePattern) -> bool:
        """Whether the ACLs of a pattern are among those that are meant, as far as the pattern decides it.

        MATCH means every pattern that the resource of this name is about: its own, the wildcard, and prefixes.
        """
        if self.resource_type not in (ResourceType.ANY, pattern.resource_type):
            return False
        if self.pattern_type not in (PatternType.ANY, PatternType.MATCH, pattern.pattern_type):
            return False
        if self.name is None:
            return True
        if self.pattern_type == PatternType.MATCH:
            if pattern.pattern_type is PatternType.PREFIXED:
                return self.name.startswith(pattern.name)
            return pattern.name in (self.name, WILDCARD)
        return self.name == pattern.name

    def matches_entry(self, entry: AccessControlEntry) -> bool:
        """Whether an ACL of a pattern that matches is meant."""
        return (
            self.principal in (None, entry.principal)
            and self.host in (None, entry.host)
            and self.operation in (AclOperation.ANY, entry.operation)
            and self.permission in (PermissionType.ANY, entry.permission)
        )

    def named_patterns(self) -> Iterator[ResourcePattern] | None:
        """The patterns that are meant when the filter names them, whether they have ACLs or not. None: it does not.

        Source: ResourcePatternFilter.matchesAtMostOne and AclAuthorizer.filterToResources.
        """
        if self.name is None or self.resource_type == ResourceType.ANY or self.pattern_type == PatternType.MATCH:
            return None
        return self._named(self.name)

    def _named(self, name: str) -> Iterator[ResourcePattern]:
        if self.resource_type not in tuple(ResourceType) or name_error(name):
            return
        for pattern_type in (PatternType.LITERAL, PatternType.PREFIXED):
            if self.pattern_type in (PatternType.ANY, pattern_type):
                yield ResourcePattern(ResourceType(self.resource_type), name, pattern_type)


def host_of(address: str) -> str:
    """An address of a client as ACLs and the log have it: as Java writes it.

    >>> host_of("10.0.0.7"), host_of("::ffff:10.0.0.7"), host_of("::1"), host_of("fe80::1%eth0")
    ('10.0.0.7', '10.0.0.7', '0:0:0:0:0:0:0:1', 'fe80:0:0:0:0:0:0:1%eth0')
    """
    plain, percent, scope = address.partition("%")
    try:
        found = ip_address(plain)
    except ValueError:
        return address
    if isinstance(found, IPv4Address):
        return plain
    if found.ipv4_mapped is not None:
        return str(found.ipv4_mapped)
    groups = (f"{int(group, 16):x}" for group in found.exploded.split(":"))
    return ":".join(groups) + percent + scope


def name_error(name: str) -> str:
    """Why no resource with ACLs can have the name, as far as the name decides it; "" when one can."""
    if not name:
        return "Invalid empty resource name"
    if name in (".", ".."):
        return f"resource name {name!r}: it is no name of a resource"
    found = _NO_ZNODE.search(name)
    if found is not None:
        return f"resource name {name!r}: the character {found[0]!r} is not allowed"
    return ""


def valid_acl(
    resource_type: int, name: str, pattern_type: int, principal: str, host: str, operation: int, permission: int
) -> AclBinding:
    """The ACL of these fields, types, operation and permission by their codes.

    Apache Kafka takes an operation that resources of the type do not have, and a principal whose type is empty: such an
    ACL never matters. It answers an internal error to a code of filters, and to a principal without a colon. All of
    that is refused here.

    Raises:
        InvalidAcl: a field is wrong.
    """
    kind = _known(ResourceType, resource_type, "resource type")
    if kind is ResourceType.CLUSTER and name != CLUSTER_NAME:
        raise InvalidAcl(f"The only valid name for the CLUSTER resource is {CLUSTER_NAME}")
    reason = name_error(name)
    if reason:
        raise InvalidAcl(reason)
    pattern = ResourcePattern(kind, name, _known(PatternType, pattern_type, "pattern type"))
    entry = AccessControlEntry(
        principal,
        host,
        _known(AclOperation, operation, "operation"),
        _known(PermissionType, permission, "permission type"),
    )
    if principal.find(":") < 1:
        example = f"User:{principal.lstrip(':')}"
        raise InvalidAcl(f"principal {principal!r}: write its type before its name, such as {example}")
    allowed = (AclOperation.ALL, *operations_of(kind))
    if entry.operation not in allowed:
        labels = ", ".join(one.label for one in allowed)
        raise InvalidAcl(f"operation {entry.operation.label}: a resource of the type {kind.label} has {labels}")
    return AclBinding(pattern, entry)


def _known(codes: type[_Code], code: int, field: str) -> _Code:
    """The value of a code, unless it is one of filters alone."""
    if code in (0, 1) or (codes is PatternType and code == PatternType.MATCH) or code not in tuple(codes):
        allowed = ", ".join(
            f"{one.value} ({one.name})" for one in codes if one.value != 1 and one is not PatternType.MATCH
        )
        raise InvalidAcl(f"{field} {code}: one of {allowed}")
    return codes(code)
