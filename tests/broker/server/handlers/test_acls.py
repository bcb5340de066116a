"""DescribeAcls, CreateAcls and DeleteAcls with an authorizer, on the ACLs of one broker in virtual time."""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine
from types import SimpleNamespace
from typing import Any

import pytest

from ottla_broker.authorization.acl_authorizer import AclAuthorizer
from ottla_broker.authorization.acls import valid_acl
from ottla_broker.coordination import security_znodes as znodes
from ottla_broker.protocol.errors import ErrorCode
from ottla_broker.protocol.generated import create_acls as create
from ottla_broker.protocol.generated import delete_acls as delete
from ottla_broker.protocol.generated import describe_acls as describe
from ottla_broker.server.handlers import create_acls, delete_acls, describe_acls
from ottla_broker.server.store.stored_acls import StoredAcls
from tests.broker.server.contexts import handler_context
from tests.broker.server.virtual_store import Sessions, in_virtual_time

TOPIC, GROUP, CLUSTER = 2, 3, 4
ANY, MATCH, LITERAL, PREFIXED = 1, 2, 3, 4
READ, WRITE, DENY, ALLOW = 3, 4, 2, 3
INVALID = int(ErrorCode.INVALID_REQUEST)


def acl(name: str = "t", operation: int = READ, **fields: Any) -> create.AclCreation:
    given = {
        "resource_type": TOPIC,
        "resource_pattern_type": LITERAL,
        "principal": "User:a",
        "host": "*",
        "permission_type": ALLOW,
        **fields,
    }
    return create.AclCreation(resource_name=name, operation=operation, **given)


def wanted(kind: int = ANY, name: str | None = None, pattern: int = ANY, **fields: Any) -> dict[str, Any]:
    return {
        "resource_type_filter": kind,
        "resource_name_filter": name,
        "pattern_type_filter": pattern,
        "principal_filter": None,
        "host_filter": None,
        "operation": ANY,
        "permission_type": ANY,
        **fields,
    }


class Client:
    """Of one broker; `allows` is what it may do with the cluster."""

    def __init__(self, sessions: Sessions, allows: bool = True) -> None:
        self.sessions = sessions
        self.stored = StoredAcls(AclAuthorizer(), sessions.broker, sessions.clock, logging.getLogger("test"))
        self.allows = allows
        self.closed: list[str] = []

    @property
    def services(self) -> Any:
        return SimpleNamespace(acls=self.stored)

    @property
    def context(self) -> Any:
        context = handler_context(close_connection=self.closed.append)
        context.connection.access = SimpleNamespace(allows=lambda *what, logs: self.allows)
        return context

    async def create(self, *acls: create.AclCreation) -> list[tuple[int, str | None]]:
        request = create.CreateAclsRequest(creations=list(acls))
        answer = await create_acls.handle(self.services, self.context, request)
        return [(result.error_code, result.error_message) for result in answer.results]

    async def describe(self, **fields: Any) -> list[tuple[int, str, int, str, int]]:
        request = describe.DescribeAclsRequest(**(fields or wanted()))
        answer = await describe_acls.handle(self.services, self.context, request)
        assert (answer.error_code, answer.error_message) == (0, "")
        return [
            (one.resource_type, one.resource_name, one.pattern_type, entry.principal, entry.operation)
            for one in answer.resources
            for entry in one.acls
        ]

    async def delete(self, *filters: dict[str, Any]) -> list[list[tuple[int, str, int, str, int]]]:
        request = delete.DeleteAclsRequest(filters=[delete.DeleteAclsFilter(**fields) for fields in filters])
        answer = await delete_acls.handle(self.services, self.context, request)
        for result in answer.filter_results:
            assert (result.error_code, result.error_message) == (0, None)
            for one in result.matching_acls:
                assert (one.error_code, one.error_message) == (0, None)
        return [
            [
                (one.resource_type, one.resource_name, one.pattern_type, one.principal, one.operation)
                for one in result.matching_acls
            ]
            for result in answer.filter_results
        ]


def with_client(scenario: Callable[[Client], Coroutine[Any, Any, None]], *, allows: bool = True) -> None:
    async def run(sessions: Sessions) -> None:
        client = Client(sessions, allows)
        await client.stored.start()
        await scenario(client)

    in_virtual_time(run)


def test_what_is_created_is_described_and_deleted() -> None:
    async def scenario(client: Client) -> None:
        assert await client.create(acl(), acl(), acl("t", WRITE), acl("g", resource_type=GROUP)) == [(0, "")] * 4
        assert await client.describe() == [
            (TOPIC, "t", LITERAL, "User:a", READ),
            (TOPIC, "t", LITERAL, "User:a", WRITE),
            (GROUP, "g", LITERAL, "User:a", READ),
        ]
        assert await client.describe(**wanted(operation=WRITE)) == [(TOPIC, "t", LITERAL, "User:a", WRITE)]
        assert await client.describe(**wanted(99)) == []
        assert await client.delete(wanted(TOPIC)) == [
            [(TOPIC, "t", LITERAL, "User:a", READ), (TOPIC, "t", LITERAL, "User:a", WRITE)]
        ]
        assert await client.describe() == [(GROUP, "g", LITERAL, "User:a", READ)]
        assert await client.delete(wanted(TOPIC), wanted(99, "t")) == [[], []]

    with_client(scenario)


def test_one_write_per_resource() -> None:
    async def scenario(client: Client) -> None:
        await client.create(*(acl(principal=f"User:{number}") for number in range(500)), acl("t", PREFIXED))
        assert len(client.sessions.store.names(znodes.ACL_CHANGES)) == 1
        await client.delete(
            *(
                wanted(
                    *(TOPIC, "t", LITERAL),
                    principal_filter=f"User:{number}",
                    host_filter="*",
                    operation=READ,
                    permission_type=ALLOW,
                )
                for number in range(500)
            )
        )
        assert len(client.sessions.store.names(znodes.ACL_CHANGES)) == 2

    with_client(scenario)


def test_many_filters_for_many_acls_of_one_resource() -> None:
    async def scenario(client: Client) -> None:
        await client.create(*(acl(principal=f"User:{number}") for number in range(500)))
        exact = {"host_filter": "*", "operation": READ, "permission_type": ALLOW}
        removed = await client.delete(
            *(wanted(TOPIC, "t", LITERAL, principal_filter=f"User:{number}") for number in range(100, 499)),
            *(wanted(TOPIC, "t", LITERAL, principal_filter=f"User:{number}", **exact) for number in range(200)),
            wanted(TOPIC),
        )
        assert [len(one) for one in removed] == [1] * 399 + [1] * 100 + [0] * 100 + [1]
        assert client.stored.known == {}

    with_client(scenario)


def test_an_acl_that_is_refused_leaves_the_others() -> None:
    async def scenario(client: Client) -> None:
        results = await client.create(acl("a"), acl(""), acl("b", principal="bob"), acl("c", ANY), acl("d"))
        assert [code for code, _ in results] == [0, INVALID, INVALID, INVALID, 0]
        assert results[1][1] == "Invalid empty resource name"
        assert "principal 'bob'" in str(results[2][1])
        assert [name for _, name, *_ in await client.describe()] == ["a", "d"]

    with_client(scenario)


def test_an_acl_that_two_filters_match_is_a_result_of_the_first() -> None:
    async def scenario(client: Client) -> None:
        await client.create(acl("t"), acl("t", WRITE), acl("u"))
        assert await client.delete(
            wanted(TOPIC, "t", LITERAL, operation=WRITE), wanted(TOPIC), wanted(TOPIC, "t", LITERAL)
        ) == [
            [(TOPIC, "t", LITERAL, "User:a", WRITE)],
            [(TOPIC, "t", LITERAL, "User:a", READ), (TOPIC, "u", LITERAL, "User:a", READ)],
            [],
        ]

    with_client(scenario)


def test_a_filter_with_match_removes_what_a_resource_is_subject_to() -> None:
    async def scenario(client: Client) -> None:
        await client.create(acl("*"), acl("test"), acl("te", resource_pattern_type=PREFIXED), acl("t"))
        assert len((await client.delete(wanted(TOPIC, "test", MATCH)))[0]) == 3
        assert [name for _, name, *_ in await client.describe()] == ["t"]

    with_client(scenario)


def test_a_filter_that_names_one_resource_finds_what_another_broker_has_just_added() -> None:
    async def scenario(client: Client) -> None:
        sessions = client.sessions
        other = StoredAcls(AclAuthorizer(), sessions.controller, sessions.clock, logging.getLogger("test"))
        await other.start()
        for name in ("t", "u"):
            (pattern, entry) = valid_acl(TOPIC, name, LITERAL, "User:a", "*", READ, ALLOW)
            await other.add(pattern, frozenset({entry}))
            assert len((await client.delete(wanted(TOPIC, name)))[0]) == 1

    with_client(scenario)


@pytest.mark.parametrize("field", ["resource_type", "resource_pattern_type", "operation", "permission_type"])
def test_a_creation_with_a_code_that_the_sender_does_not_know_closes_and_adds_nothing(field: str) -> None:
    async def scenario(client: Client) -> None:
        broken = acl("b")
        setattr(broken, field, 0)
        assert await client.create(acl("a"), broken) == []
        assert len(client.closed) == 1
        assert await client.describe() == []

    with_client(scenario)


@pytest.mark.parametrize("field", ["resource_type_filter", "pattern_type_filter", "operation", "permission_type"])
def test_a_filter_with_a_code_that_the_sender_does_not_know_closes_and_removes_nothing(field: str) -> None:
    async def scenario(client: Client) -> None:
        await client.create(acl("a"))
        assert await client.delete(wanted(), {**wanted(), field: 0}) == []
        assert len(client.closed) == 1
        assert len(await client.describe()) == 1

    with_client(scenario)


def test_without_the_right_nothing_is_told_and_nothing_changes() -> None:
    async def scenario(client: Client) -> None:
        assert await client.create(acl(), acl("u")) == [(31, "Cluster authorization failed.")] * 2
        request = delete.DeleteAclsRequest(filters=[delete.DeleteAclsFilter(**wanted())] * 2)
        answer = await delete_acls.handle(client.services, client.context, request)
        assert [(one.error_code, one.matching_acls) for one in answer.filter_results] == [(31, [])] * 2
        described = await describe_acls.handle(
            client.services, client.context, describe.DescribeAclsRequest(**wanted())
        )
        assert (described.error_code, described.resources) == (31, [])
        assert client.stored.known == {}

    with_client(scenario, allows=False)


def test_a_znode_that_cannot_be_read_is_an_error_of_those_who_mean_it() -> None:
    async def scenario(client: Client) -> None:
        await client.create(acl("a"), acl("b"))
        await client.sessions.broker.set("/kafka-acl/Topic/a", b"x")
        (bad, good) = await client.create(acl("a", WRITE), acl("b", WRITE))
        assert bad[0] == int(ErrorCode.UNKNOWN_SERVER_ERROR)
        assert "/kafka-acl/Topic/a" in str(bad[1])
        assert good == (0, "")
        request = delete.DeleteAclsRequest(
            filters=[delete.DeleteAclsFilter(**wanted(TOPIC, name, LITERAL)) for name in ("a", "b")]
        )
        answer = await delete_acls.handle(client.services, client.context, request)
        assert [(one.error_code, len(one.matching_acls)) for one in answer.filter_results] == [(-1, 0), (0, 2)]

    with_client(scenario)
