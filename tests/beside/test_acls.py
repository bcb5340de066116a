"""The APIs of ACLs beside Apache Kafka 3.9.1 with its AclAuthorizer: the same answers, word for word."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ottla.local.zookeeper_server import ZooKeeperServer
from ottla_broker.protocol import codec
from ottla_broker.protocol.api import ApiKey
from ottla_broker.protocol.errors import ErrorCode
from tests.beside.comparison import both, difference
from tests.beside.requests import Request

CREATE, DELETE, DESCRIBE = (codec.module(key) for key in (ApiKey.CREATE_ACLS, ApiKey.DELETE_ACLS, ApiKey.DESCRIBE_ACLS))
KEYS = {"authorizer.class.name": "kafka.security.authorizer.AclAuthorizer", "super.users": "User:ANONYMOUS"}
TOPIC, GROUP, CLUSTER, TRANSACTIONAL_ID, TOKEN, USER = range(2, 8)
ANY, MATCH, LITERAL, PREFIXED = range(1, 5)
READ, WRITE, DESCRIBED = 3, 4, 8
INVALID = int(ErrorCode.INVALID_REQUEST)


def acl(
    kind: int = TOPIC,
    name: str = "t",
    pattern: int = LITERAL,
    principal: str = "User:a",
    host: str = "*",
    operation: int = READ,
    permission: int = 3,
) -> Any:
    return CREATE.AclCreation(
        resource_type=kind,
        resource_name=name,
        resource_pattern_type=pattern,
        principal=principal,
        host=host,
        operation=operation,
        permission_type=permission,
    )


def create(*acls: Any, version: int = 3) -> Request:
    return Request(ApiKey.CREATE_ACLS, version, CREATE.CreateAclsRequest(creations=list(acls)))


def fields(
    kind: int = ANY,
    name: str | None = None,
    pattern: int = ANY,
    principal: str | None = None,
    host: str | None = None,
    operation: int = ANY,
    permission: int = ANY,
) -> dict[str, Any]:
    return {
        "resource_type_filter": kind,
        "resource_name_filter": name,
        "pattern_type_filter": pattern,
        "principal_filter": principal,
        "host_filter": host,
        "operation": operation,
        "permission_type": permission,
    }


def delete(*filters: dict[str, Any], version: int = 3) -> Request:
    filters_of = [DELETE.DeleteAclsFilter(**one) for one in filters]
    return Request(ApiKey.DELETE_ACLS, version, DELETE.DeleteAclsRequest(filters=filters_of))


def describe(version: int = 3, **changed: Any) -> Request:
    return Request(ApiKey.DESCRIBE_ACLS, version, DESCRIBE.DescribeAclsRequest(**fields(**changed)))


def _same() -> Iterator[Request]:
    yield describe()
    yield create()
    yield create(acl(), acl(), acl(operation=WRITE), acl(name="u"))
    yield create(acl(name=""))
    yield create(acl(name="", pattern=PREFIXED), acl(name="ok"))
    yield create(acl(CLUSTER, "x", operation=DESCRIBED), acl(CLUSTER, "", operation=DESCRIBED))
    yield create(acl(CLUSTER, "kafka-cluster", operation=DESCRIBED))
    yield create(acl(CLUSTER, "kafka-cluster", PREFIXED, operation=DESCRIBED))
    for broken in (acl(0), acl(pattern=0), acl(operation=0), acl(permission=0)):
        yield create(acl(name="never"), broken)
    for principal in ("User:", "Group:g", "User:a:b", "User:*", "Group:*", "User:CN=\u017dena,O=x"):
        yield create(acl(name="principals", principal=principal))
    for host in ("", "localhost", "10.0.0.0/8", "::1", "10.0.0.1"):
        yield create(acl(name="hosts", host=host))
    yield create(acl(name="a b!"), acl(name="x" * 300), acl(name="Zl\u00edn"), acl(name="*", permission=2))
    yield create(acl(name="*", pattern=PREFIXED), acl(name="pre", pattern=PREFIXED), version=1)
    for version in range(4):
        yield create(acl(USER, "User:x", operation=13), version=version)
        yield create(acl(TRANSACTIONAL_ID, f"tx{version}", operation=WRITE), version=version)
        yield create(acl(TOKEN, f"token{version}", operation=DESCRIBED), version=version)
    for version in range(1, 4):
        yield describe(version)
    yield describe(0, pattern=LITERAL)
    for changed in (
        {"kind": TOPIC, "name": "preX", "pattern": MATCH},
        {"kind": TOPIC, "name": "pre", "pattern": ANY},
        {"kind": TOPIC, "name": "pre", "pattern": LITERAL},
        {"name": "t", "pattern": MATCH},
        {"kind": TOPIC, "pattern": MATCH},
        {"pattern": PREFIXED},
        {"name": "*"},
        {"name": "*", "pattern": MATCH},
        {"name": ""},
        {"principal": ""},
        {"principal": "alice"},
        {"principal": "User:a"},
        {"host": "localhost"},
        {"operation": WRITE},
        {"operation": 2},
        {"permission": 2},
        {"kind": 99},
        {"pattern": 99},
        {"pattern": 99, "name": "t"},
        {"operation": 99},
        {"permission": 99},
        {"kind": 0},
        {"pattern": 0},
        {"operation": 0},
        {"permission": 0},
    ):
        yield describe(**changed)
    yield delete()
    yield delete(fields(TOPIC, "t", LITERAL), fields(TOPIC, principal="User:a"), fields(TOPIC, "t", LITERAL))
    yield delete(fields(TOPIC, "t", LITERAL))
    yield delete(fields(TRANSACTIONAL_ID, "tx1", ANY))
    yield delete(fields(TOKEN, "token1", MATCH))
    for one in (fields(99), fields(pattern=99), fields(TOPIC, "a/b", LITERAL), fields(TOPIC, "", LITERAL), fields(0)):
        yield delete(fields(GROUP, "nobody", LITERAL), one)
    yield delete(fields(99, "x", LITERAL), fields(TOPIC, "x", 99))
    yield delete(fields(TOPIC, "hosts", LITERAL), version=0)
    yield delete(fields(TOPIC, "principals", LITERAL), version=1)
    yield describe()
    yield delete(fields(), fields(TOPIC))
    yield describe()


OURS_ALONE = {
    "name with a slash": (create(acl(name="a/b"), acl(name="f1")), [42, 0], [42, 0]),
    "no name of a znode": (create(acl(name=".."), acl(name="f2")), [42, 0], [-1, 0]),
    "type of filters": (create(acl(ANY), acl(name="f3")), [42, 0], [-1, -1]),
    "pattern of filters": (create(acl(pattern=MATCH), acl(name="f4")), [42, 0], [-1, -1]),
    "operation of filters": (create(acl(operation=ANY), acl(name="f5")), [42, 0], [-1, -1]),
    "permission of filters": (create(acl(permission=ANY), acl(name="f6")), [42, 0], [-1, -1]),
    "unknown type": (create(acl(99), acl(name="f7")), [42, 0], [42, 0]),
    "principal without a type": (create(acl(principal="alice"), acl(operation=WRITE)), [42, 0], [-1, -1]),
    "principal with an empty type": (create(acl(principal=":bob")), [42], [0]),
    "operation of another type of resource": (create(acl(operation=9)), [42], [0]),
}
"""Requests with the error codes here and there. Here the message names the field, and other ACLs are added."""


@pytest.mark.java
def test_the_apis_of_acls_answer_as_apache_kafka(tmp_path: Path, zookeeper: ZooKeeperServer) -> None:
    with both(tmp_path, zookeeper, keys=KEYS) as ask:
        for request in _same():
            ours, theirs = ask(request)
            assert difference(ours, theirs) == "", request
        for name, (request, here, there) in OURS_ALONE.items():
            ours, theirs = ask(request)
            assert sorted(one["error_code"] for one in ours["results"]) == sorted(here), name
            assert sorted(one["error_code"] for one in theirs["results"]) == sorted(there), name
