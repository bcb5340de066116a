"""AclAuthorizer: decides by ACLs, as Apache Kafka's authorizer of that name. Pure: it is told which ACLs there are.

In this order, for one resource:

1. A super user is allowed everything.
2. The ACLs of the resource are those of its name, of the name `*`, and of each prefix of its name. Without any,
   allow.everyone.if.no.acl.found decides.
3. An ACL that denies the operation, or all operations, to the principal or to everyone, from its address or from
   everywhere: denied.
4. One that allows it, or what implies it: allowed. Read, Write, Delete and Alter imply Describe; AlterConfigs implies
   DescribeConfigs. Else denied.

A decision looks at the patterns that match, not at all ACLs: two names, and as many prefixes as there are lengths of
prefixes.

Source: kafka.security.authorizer.AclAuthorizer, and KIP-679 for `allows_any`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, TypeVar

from ottla_broker.authorization.acls import EVERYONE, AccessControlEntry, ResourcePattern
from ottla_broker.authorization.authorizer import AclCheck
from ottla_broker.authorization.resources import (
    WILDCARD,
    AclOperation,
    PatternType,
    PermissionType,
    ResourceType,
    mask,
)
from ottla_broker.security.principals import Principal

MOST_ANSWERS: Final = 10_000
"""Of `allows_any`: beyond it what was answered is forgotten."""

_IMPLIED_BY: Final[Mapping[AclOperation, tuple[AclOperation, ...]]] = {
    AclOperation.DESCRIBE: (AclOperation.READ, AclOperation.WRITE, AclOperation.DELETE, AclOperation.ALTER),
    AclOperation.DESCRIBE_CONFIGS: (AclOperation.ALTER_CONFIGS,),
}
_DENIES: Final = {operation: mask(*{operation, AclOperation.ALL}) for operation in AclOperation}
_ALLOWS: Final = {
    operation: mask(*{operation, AclOperation.ALL, *_IMPLIED_BY.get(operation, ())}) for operation in AclOperation
}

_K = TypeVar("_K")
_V = TypeVar("_V")

_Rights = dict[str, dict[str, tuple[int, int]]]
"""Of one pattern, by principal and host: the operations that are denied and those that are allowed, as bits."""


class _OfType:
    """The patterns of one type of resource."""

    def __init__(self) -> None:
        self.literal: dict[str, _Rights] = {}
        self.prefixed: dict[str, _Rights] = {}
        self.prefix_lengths: Sequence[int] = ()
        self._lengths: Counter[int] = Counter()

    def put(self, pattern: ResourcePattern, rights: _Rights) -> None:
        """Replaces the rights of a pattern; without any it is no pattern any more."""
        if pattern.pattern_type is not PatternType.PREFIXED:
            _put(self.literal, pattern.name, rights)
            return
        was_there = pattern.name in self.prefixed
        _put(self.prefixed, pattern.name, rights)
        self._lengths[len(pattern.name)] += (pattern.name in self.prefixed) - was_there
        self.prefix_lengths = sorted(+self._lengths)

    def of(self, name: str) -> list[_Rights]:
        """The rights of every pattern that the resource of this name matches."""
        literal = self.literal
        found = [rights for rights in (literal.get(name), literal.get(WILDCARD)) if rights is not None]
        if self.prefix_lengths:
            size, prefixed = len(name), self.prefixed
            for length in self.prefix_lengths:
                if length > size:
                    break
                rights = prefixed.get(name[:length])
                if rights is not None:
                    found.append(rights)
        return found


_NamesKey = tuple[str, str, ResourceType, PatternType, PermissionType, AclOperation]


class AclAuthorizer:
    """An `Authorizer`. See the module.

    Args:
        super_users: who may do everything.
        allows_without_acl: allow.everyone.if.no.acl.found.
    """

    def __init__(self, super_users: Iterable[Principal] = (), *, allows_without_acl: bool = False) -> None:
        self.version = 0
        self._super_users = frozenset(super_users)
        self._allows_without_acl = allows_without_acl
        self._acls: dict[ResourcePattern, frozenset[AccessControlEntry]] = {}
        self._types = {resource_type: _OfType() for resource_type in ResourceType}
        self._names: dict[_NamesKey, set[str]] = {}
        """The names of the patterns with an ACL of this principal, host, permission and operation."""
        self._answers: dict[tuple[Principal, str, AclOperation, ResourceType], bool] = {}

    @property
    def acls(self) -> Mapping[ResourcePattern, frozenset[AccessControlEntry]]:
        """What it decides by; no pattern without an ACL is in it."""
        return self._acls

    def put(self, pattern: ResourcePattern, entries: frozenset[AccessControlEntry]) -> None:
        """Replaces the ACLs of a pattern. The version grows if they are others than before."""
        before = self._acls.get(pattern, frozenset())
        if entries == before:
            return
        _put(self._acls, pattern, entries)
        self._types[pattern.resource_type].put(pattern, _rights(entries))
        for entry in before - entries:
            key = _names_key(pattern, entry)
            names = self._names[key]
            names.discard(pattern.name)
            if not names:
                del self._names[key]
        for entry in entries - before:
            self._names.setdefault(_names_key(pattern, entry), set()).add(pattern.name)
        self._answers.clear()
        self.version += 1

    def decide(self, principal: Principal, address: str, checks: Sequence[AclCheck]) -> list[bool]:
        """See `Authorizer.decide`."""
        if principal in self._super_users:
            return [True] * len(checks)
        who, hosts = (str(principal), EVERYONE), (address, WILDCARD)
        return [self._is_allowed(who, hosts, check) for check in checks]

    def _is_allowed(self, who: tuple[str, ...], hosts: tuple[str, ...], check: AclCheck) -> bool:
        operation, resource_type, name = check
        matching = self._types[resource_type].of(name)
        if not matching:
            return self._allows_without_acl
        denies, allows, is_allowed = _DENIES[operation], _ALLOWS[operation], False
        for rights in matching:
            for principal in who:
                by_host = rights.get(principal)
                if by_host is None:
                    continue
                for host in hosts:
                    bits = by_host.get(host)
                    if bits is not None:
                        if bits[0] & denies:
                            return False
                        if bits[1] & allows:
                            is_allowed = True
        return is_allowed

    def allows_any(
        self, principal: Principal, address: str, operation: AclOperation, resource_type: ResourceType
    ) -> bool:
        """See `Authorizer.allows_any`.

        As in Apache Kafka, nothing is implied here. A Deny on the literal `*` denies all, one on a name takes that name
        away, and one on a prefix the names and prefixes that begin with it. An Allow on `*` allows in spite of the last
        two. With allow.everyone.if.no.acl.found only a Deny on `*` denies.
        """
        if principal in self._super_users:
            return True
        key = (principal, address, operation, resource_type)
        answer = self._answers.get(key)
        if answer is None:
            if len(self._answers) >= MOST_ANSWERS:
                self._answers.clear()
            answer = self._answers[key] = self._allows_some_name(str(principal), address, operation, resource_type)
        return answer

    def _allows_some_name(
        self, principal: str, address: str, operation: AclOperation, resource_type: ResourceType
    ) -> bool:
        def names(permission: PermissionType, pattern_type: PatternType) -> list[set[str]]:
            keys = (
                (who, host, resource_type, pattern_type, permission, what)
                for who in (principal, EVERYONE)
                for host in (address, WILDCARD)
                for what in (operation, AclOperation.ALL)
            )
            return [found for key in keys if (found := self._names.get(key))]

        denied = names(PermissionType.DENY, PatternType.LITERAL)
        if any(WILDCARD in some for some in denied):
            return False
        if self._allows_without_acl:
            return True
        denied_prefixes = names(PermissionType.DENY, PatternType.PREFIXED)
        lengths = sorted({len(prefix) for some in denied_prefixes for prefix in some})

        def has_denied_prefix(name: str) -> bool:
            return any(name[:length] in some for length in lengths if length <= len(name) for some in denied_prefixes)

        for some in names(PermissionType.ALLOW, PatternType.PREFIXED):
            if not all(map(has_denied_prefix, some)):
                return True
        return any(
            name == WILDCARD or not (any(name in those for those in denied) or has_denied_prefix(name))
            for some in names(PermissionType.ALLOW, PatternType.LITERAL)
            for name in some
        )


def _put(values: dict[_K, _V], key: _K, value: _V) -> None:
    """An empty value is none."""
    if value:
        values[key] = value
    else:
        values.pop(key, None)


def _names_key(pattern: ResourcePattern, entry: AccessControlEntry) -> _NamesKey:
    return (
        entry.principal,
        entry.host,
        pattern.resource_type,
        pattern.pattern_type,
        entry.permission,
        entry.operation,
    )


def _rights(entries: Iterable[AccessControlEntry]) -> _Rights:
    rights: _Rights = {}
    for entry in entries:
        by_host = rights.setdefault(entry.principal, {})
        denied, allowed = by_host.get(entry.host, (0, 0))
        if entry.permission is PermissionType.DENY:
            denied |= mask(entry.operation)
        else:
            allowed |= mask(entry.operation)
        by_host[entry.host] = (denied, allowed)
    return rights
