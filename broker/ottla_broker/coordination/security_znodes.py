"""Znodes of ACLs and delegation tokens, as Kafka 3.9 writes them. Pure. The other znodes are in `znodes`.

ACLs of literal resource patterns are under /kafka-acl, the others under /kafka-acl-extended/<pattern type>. A change
creates a sequential node: text for literal patterns, JSON for the others (KIP-290).

Source: kafka.zk.ZkAclStore, ZkAclChangeStore and DelegationTokenInfoZNode.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum
from typing import TypeVar

from ottla_broker.authorization.acls import AccessControlEntry, ResourcePattern
from ottla_broker.authorization.resources import AclOperation, PatternType, PermissionType, ResourceType
from ottla_broker.coordination.znodes import ZnodeError, decode_object, desanitize, encode_json, member, sanitize
from ottla_broker.security.delegation_tokens import DelegationToken
from ottla_broker.security.principals import Principal, parse_principal

ACLS = "/kafka-acl"
ACL_CHANGES = "/kafka-acl-changes"
EXTENDED_ACLS = "/kafka-acl-extended"
EXTENDED_ACL_CHANGES = "/kafka-acl-extended-changes"
ACL_CHANGE_NAME = "acl_changes_"
DELEGATION_TOKENS = "/delegation_token/tokens"
TOKEN_CHANGES = "/delegation_token/token_changes"
TOKEN_CHANGE_PREFIX = f"{TOKEN_CHANGES}/token_change_"
"""The content of a token change is the token id."""
TOKEN_PATHS = (DELEGATION_TOKENS, TOKEN_CHANGES)

_Named = TypeVar("_Named", bound=IntEnum)

SECURE_ROOTS = (
    "/admin",
    "/brokers",
    "/cluster",
    "/config",
    "/controller",
    "/controller_epoch",
    "/isr_change_notification",
    "/latest_producer_id_block",
    "/log_dir_event_notification",
    "/delegation_token",
    EXTENDED_ACLS,
    "/migration",
    "/feature",
    ACLS,
    ACL_CHANGES,
    f"{EXTENDED_ACLS}/prefixed",
    EXTENDED_ACL_CHANGES,
)
"""With zookeeper.set.acl, only their creator may write below these paths; anyone may read, except `SENSITIVE_ROOTS`.
`znode_acls` has the rule for a path."""

SENSITIVE_ROOTS = ("/config/users", "/config/brokers", DELEGATION_TOKENS)

ACL_TYPES = tuple(one for one in ResourceType if one is not ResourceType.ANY)
"""The types of resources that have ACLs; each has a node for literal patterns and one for prefixed ones."""

ACL_PATHS = (
    *(f"{ACLS}/{one.label}" for one in ACL_TYPES),
    *(f"{EXTENDED_ACLS}/prefixed/{one.label}" for one in ACL_TYPES),
    ACL_CHANGES,
    EXTENDED_ACL_CHANGES,
)
"""Created, with their parents, at the start of a broker with an authorizer. Source: KafkaZkClient.createAclPaths."""


def acl_root(pattern_type: PatternType) -> str:
    """The path below which the ACLs of such patterns are, by type and name."""
    return ACLS if pattern_type is PatternType.LITERAL else f"{EXTENDED_ACLS}/{pattern_type.name.lower()}"


def acl_path(pattern: ResourcePattern) -> str:
    """The node with the ACLs of a pattern. Names are not encoded: one with a slash has no ACLs."""
    return f"{acl_root(pattern.pattern_type)}/{pattern.resource_type.label}/{pattern.name}"


def acl_change_prefix(pattern: ResourcePattern) -> str:
    """The path, without number, of the sequential node of a change."""
    root = ACL_CHANGES if pattern.pattern_type is PatternType.LITERAL else EXTENDED_ACL_CHANGES
    return f"{root}/{ACL_CHANGE_NAME}"


def encode_acl_change(pattern: ResourcePattern) -> bytes:
    if pattern.pattern_type is PatternType.LITERAL:
        return f"{pattern.resource_type.name}:{pattern.name}".encode()
    return encode_json(
        {
            "version": 1,
            "resourceType": pattern.resource_type.name,
            "name": pattern.name,
            "patternType": pattern.pattern_type.name,
        }
    )


def decode_acl_change(path: str, data: bytes) -> ResourcePattern:
    """The pattern whose ACLs have changed. Brokers before 2.0 wrote the type as in a path ("Topic"). ZnodeError."""
    if path.startswith(f"{EXTENDED_ACL_CHANGES}/"):
        value = decode_object(path, data)
        if member(path, value, "version", int) > 1:
            raise ZnodeError(f"{path}: member 'version' is {value['version']}, at most 1 is known")
        return ResourcePattern(
            _member_of(ResourceType, path, member(path, value, "resourceType", str)),
            member(path, value, "name", str),
            _member_of(PatternType, path, member(path, value, "patternType", str)),
        )
    resource_type, separator, name = data.decode("utf-8", "replace").partition(":")
    if not separator:
        raise ZnodeError(f"{path}: {data!r} is not of the form type:name")
    return ResourcePattern(_member_of(ResourceType, path, resource_type), name)


def encode_acls(entries: Iterable[AccessControlEntry]) -> bytes:
    acls = [
        {
            "principal": entry.principal,
            "permissionType": entry.permission.label,
            "host": entry.host,
            "operation": entry.operation.label,
        }
        for entry in sorted(entries)
    ]
    return encode_json({"acls": acls, "version": 1})


def decode_acls(path: str, data: bytes) -> frozenset[AccessControlEntry]:
    """The ACLs of a znode; none when it is empty.

    Raises:
        ZnodeError: it is of another version than 1, or says something that is not known here.
    """
    if not data:
        return frozenset()
    value = decode_object(path, data)
    if member(path, value, "version", int) != 1:
        raise ZnodeError(f"{path}: member 'version' is {value['version']}, 1 is known")
    return frozenset(
        AccessControlEntry(
            member(path, entry, "principal", str),
            member(path, entry, "host", str),
            _member_of(AclOperation, path, member(path, entry, "operation", str)),
            _member_of(PermissionType, path, member(path, entry, "permissionType", str)),
        )
        for entry in member(path, value, "acls", list)
    )


def _member_of(names: type[_Named], path: str, text: str) -> _Named:
    """The member of that name, in capitals or as a label; not that of filters. Source: SecurityUtils."""
    wanted = text.replace("_", "").upper()
    for one in names:
        if one.name.replace("_", "") == wanted and one.name not in ("ANY", "MATCH"):
            return one
    raise ZnodeError(f"{path}: {text!r} is no {names.__name__}")


def token_path(token_id: str) -> str:
    return f"{DELEGATION_TOKENS}/{token_id}"


def encode_token(token: DelegationToken) -> bytes:
    """`/delegation_token/tokens/ID` (KIP-48). The hmac is not stored: every broker computes it."""
    return encode_json(
        {
            "issueTimestamp": token.issue_timestamp_ms,
            "renewers": [sanitize(str(renewer)) for renewer in token.renewers],
            "tokenRequester": sanitize(str(token.requester)),
            "tokenId": token.token_id,
            "owner": sanitize(str(token.owner)),
            "expiryTimestamp": token.expiry_timestamp_ms,
            "maxTimestamp": token.max_timestamp_ms,
            "version": 3,
        }
    )


def decode_token(token_id: str, data: bytes) -> DelegationToken:
    """Before version 3 (KIP-373) the requester was the owner. Raises ZnodeError."""
    path = token_path(token_id)
    value = decode_object(path, data)
    owner = member(path, value, "owner", str)
    if member(path, value, "tokenId", str) != token_id:
        raise ZnodeError(f"{path}: tokenId is that of another token")
    return DelegationToken(
        token_id,
        _principal(path, owner),
        _principal(path, member(path, value, "tokenRequester", str, owner)),
        tuple(_principal(path, renewer) for renewer in member(path, value, "renewers", list)),
        member(path, value, "issueTimestamp", int),
        member(path, value, "maxTimestamp", int),
        member(path, value, "expiryTimestamp", int),
    )


def _principal(path: str, text: object) -> Principal:
    try:
        return parse_principal(desanitize(str(text)))
    except ValueError as error:
        raise ZnodeError(f"{path}: {error}") from None
