"""Znodes of ACLs and delegation tokens, as Kafka 3.9 writes them. Pure. The other znodes are in `znodes`.

ACLs of literal resource patterns are under /kafka-acl, the others under /kafka-acl-extended/<pattern type>. A change
creates a sequential node: text for literal patterns, JSON for the others (KIP-290).

Source: kafka.zk.ZkAclStore and DelegationTokenInfoZNode.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ottla_broker.coordination.znodes import ZnodeError, decode_object, desanitize, encode_json, member, sanitize

ACLS = "/kafka-acl"
ACL_CHANGES = "/kafka-acl-changes"
EXTENDED_ACLS = "/kafka-acl-extended"
EXTENDED_ACL_CHANGES = "/kafka-acl-extended-changes"
ACL_CHANGE_NAME = "acl_changes_"
DELEGATION_TOKENS = "/delegation_token/tokens"
TOKEN_CHANGES = "/delegation_token/token_changes"
TOKEN_CHANGE_PREFIX = f"{TOKEN_CHANGES}/token_change_"
"""The content of a token change is the token id."""

LITERAL = "LITERAL"

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
"""With zookeeper.set.acl, only their creator may write below these paths; anyone may read, except `SENSITIVE_ROOTS`."""

SENSITIVE_ROOTS = ("/config/users", "/config/brokers", DELEGATION_TOKENS)


def resource_type_name(resource_type: str) -> str:
    """The resource type as in a path: "TransactionalId" for "TRANSACTIONAL_ID"."""
    return "".join(word.capitalize() for word in resource_type.split("_"))


@dataclass(frozen=True, slots=True)
class ResourcePattern:
    """The resource pattern of an ACL; `resource_type` and `pattern_type` in capitals ("TOPIC", "PREFIXED")."""

    resource_type: str
    name: str
    pattern_type: str = LITERAL

    @property
    def path(self) -> str:
        root = ACLS if self.pattern_type == LITERAL else f"{EXTENDED_ACLS}/{self.pattern_type.lower()}"
        return f"{root}/{resource_type_name(self.resource_type)}/{self.name}"

    @property
    def change_prefix(self) -> str:
        """The path, without number, of the sequential node of a change."""
        return f"{ACL_CHANGES if self.pattern_type == LITERAL else EXTENDED_ACL_CHANGES}/{ACL_CHANGE_NAME}"

    def encode_change(self) -> bytes:
        if self.pattern_type == LITERAL:
            return f"{self.resource_type}:{self.name}".encode()
        return encode_json(
            {
                "version": 1,
                "resourceType": self.resource_type,
                "name": self.name,
                "patternType": self.pattern_type,
            }
        )

    @classmethod
    def decode_change(cls, path: str, data: bytes) -> ResourcePattern:
        """Returns the resource type in capitals; brokers before 2.0 wrote it as in a path ("Topic"). ZnodeError."""
        if path.startswith(f"{EXTENDED_ACL_CHANGES}/"):
            value = decode_object(path, data)
            if member(path, value, "version", int) > 1:
                raise ZnodeError(f"{path}: member 'version' is {value['version']}, at most 1 is known")
            return cls(
                member(path, value, "resourceType", str).upper(),
                member(path, value, "name", str),
                member(path, value, "patternType", str).upper(),
            )
        resource_type, separator, name = data.decode().partition(":")
        if not separator:
            raise ZnodeError(f"{path}: {data!r} is not of the form type:name")
        by_path_name = {"TransactionalId": "TRANSACTIONAL_ID", "DelegationToken": "DELEGATION_TOKEN"}
        return cls(by_path_name.get(resource_type, resource_type.upper()), name)


@dataclass(frozen=True, slots=True)
class AclEntry:
    """One ACL. `operation` and `permission_type` as in the znode ("DescribeConfigs", "Allow")."""

    principal: str
    permission_type: str
    operation: str
    host: str = "*"


def encode_acls(entries: Sequence[AclEntry]) -> bytes:
    acls = [
        {
            "principal": entry.principal,
            "permissionType": entry.permission_type,
            "host": entry.host,
            "operation": entry.operation,
        }
        for entry in entries
    ]
    return encode_json({"acls": acls, "version": 1})


def decode_acls(path: str, data: bytes) -> list[AclEntry]:
    """The ACLs of a znode; none when it is empty. ZnodeError for a version other than 1."""
    if not data:
        return []
    value = decode_object(path, data)
    if member(path, value, "version", int) != 1:
        raise ZnodeError(f"{path}: member 'version' is {value['version']}, 1 is known")
    entries = member(path, value, "acls", list)
    names = ("principal", "permissionType", "operation", "host")
    return [AclEntry(*(member(path, entry, name, str) for name in names)) for entry in entries]


@dataclass(frozen=True, slots=True)
class DelegationToken:
    """`/delegation_token/tokens/ID` (KIP-48). Principals as "User:alice"; times in milliseconds since the epoch."""

    token_id: str
    owner: str
    requester: str
    renewers: tuple[str, ...]
    issue_timestamp_ms: int
    max_timestamp_ms: int
    expiry_timestamp_ms: int

    @staticmethod
    def path(token_id: str) -> str:
        return f"{DELEGATION_TOKENS}/{token_id}"

    def encode(self) -> bytes:
        return encode_json(
            {
                "issueTimestamp": self.issue_timestamp_ms,
                "renewers": [sanitize(renewer) for renewer in self.renewers],
                "tokenRequester": sanitize(self.requester),
                "tokenId": self.token_id,
                "owner": sanitize(self.owner),
                "expiryTimestamp": self.expiry_timestamp_ms,
                "maxTimestamp": self.max_timestamp_ms,
                "version": 3,
            }
        )

    @classmethod
    def decode(cls, token_id: str, data: bytes) -> DelegationToken:
        """Before version 3 (KIP-373) the requester was the owner."""
        path = cls.path(token_id)
        value = decode_object(path, data)
        owner = desanitize(member(path, value, "owner", str))
        return cls(
            member(path, value, "tokenId", str),
            owner,
            desanitize(member(path, value, "tokenRequester", str, sanitize(owner))),
            tuple(desanitize(renewer) for renewer in member(path, value, "renewers", list)),
            member(path, value, "issueTimestamp", int),
            member(path, value, "maxTimestamp", int),
            member(path, value, "expiryTimestamp", int),
        )
