"""The four APIs of delegation tokens, as users of one broker ask them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from ottla_broker.authorization.resources import AclOperation, ResourceType
from ottla_broker.protocol.errors import ErrorCode
from ottla_broker.protocol.generated import create_delegation_token as create_wire
from ottla_broker.protocol.generated import describe_delegation_token as describe_wire
from ottla_broker.protocol.generated import expire_delegation_token as expire_wire
from ottla_broker.protocol.generated import renew_delegation_token as renew_wire
from ottla_broker.security.delegation_tokens import TokenPeriods, TokenSecret
from ottla_broker.security.principals import ANONYMOUS, Principal
from ottla_broker.server.handlers import (
    create_delegation_token,
    describe_delegation_token,
    expire_delegation_token,
    renew_delegation_token,
)
from ottla_broker.server.store.stored_tokens import StoredTokens
from tests.broker.server.contexts import handler_context
from tests.broker.server.virtual_store import Sessions, in_virtual_time

ALICE, BOB, CAROL = (Principal("User", name) for name in ("alice", "bob", "carol"))
PERIODS = TokenPeriods(longest_ms=7_000_000, renewal_ms=1_000_000)
Right = tuple[AclOperation, ResourceType, str]
CREATE_FOR_BOB = (AclOperation.CREATE_TOKENS, ResourceType.USER, "User:bob")


class _Rights:
    """Exactly these."""

    def __init__(self, rights: tuple[Right, ...]) -> None:
        self._rights = rights

    def allows(
        self, request: str, operation: AclOperation, resource_type: ResourceType, name: str, *, logs: bool
    ) -> bool:
        return (operation, resource_type, name) in self._rights


class Tokens:
    """A broker, and whoever asks it."""

    def __init__(self, sessions: Sessions, *, is_enabled: bool = True) -> None:
        self.stored = StoredTokens(
            TokenSecret("secret"), PERIODS, sessions.broker, sessions.clock, logging.getLogger("test")
        )
        self.clock = sessions.clock
        self._services: Any = SimpleNamespace(
            clock=sessions.clock, delegation_tokens=self.stored if is_enabled else None
        )

    async def start(self) -> Tokens:
        await self.stored.start()
        return self

    def _context(self, who: Principal, rights: tuple[Right, ...], version: int = 3) -> Any:
        connection = SimpleNamespace(access=_Rights(rights), principal=who)
        return handler_context(principal=who, connection=connection, api_version=version)

    async def create(
        self,
        who: Principal,
        *rights: Right,
        owner: str | None = None,
        renewers: tuple[Principal, ...] = (),
        **more: Any,
    ) -> Any:
        if owner is not None:
            more = {"owner_principal_type": "User", **more, "owner_principal_name": owner}
        request = create_wire.CreateDelegationTokenRequest(
            renewers=[
                create_wire.CreatableRenewers(principal_type=one.type, principal_name=one.name) for one in renewers
            ],
            **{"max_lifetime_ms": -1, **more},
        )
        return await create_delegation_token.handle(self._services, self._context(who, rights), request)

    async def renew(self, who: Principal, hmac: bytes, period_ms: int = -1) -> Any:
        request = renew_wire.RenewDelegationTokenRequest(hmac=hmac, renew_period_ms=period_ms)
        return await renew_delegation_token.handle(self._services, self._context(who, ()), request)

    async def expire(self, who: Principal, hmac: bytes, period_ms: int = -1) -> Any:
        request = expire_wire.ExpireDelegationTokenRequest(hmac=hmac, expiry_time_period_ms=period_ms)
        return await expire_delegation_token.handle(self._services, self._context(who, ()), request)

    async def describe(self, who: Principal, *rights: Right, owners: list[str] | None = None, version: int = 3) -> Any:
        named = None
        if owners is not None:
            named = [
                describe_wire.DescribeDelegationTokenOwner(principal_type="User", principal_name=name)
                for name in owners
            ]
        request = describe_wire.DescribeDelegationTokenRequest(owners=named)
        return await describe_delegation_token.handle(self._services, self._context(who, rights, version), request)

    async def shown(self, who: Principal, *rights: Right, owners: list[str] | None = None) -> list[str]:
        """Ids."""
        return [token.token_id for token in (await self.describe(who, *rights, owners=owners)).tokens]


def with_tokens(scenario: Callable[[Tokens], Coroutine[Any, Any, None]], **options: Any) -> None:
    async def run(sessions: Sessions) -> None:
        await scenario(await Tokens(sessions, **options).start())

    in_virtual_time(run)


def code(response: Any) -> ErrorCode:
    return ErrorCode.of(response.error_code)


def test_a_token_is_created_renewed_described_and_expired() -> None:
    async def scenario(tokens: Tokens) -> None:
        made = await tokens.create(ALICE, renewers=(BOB,))
        assert code(made) is ErrorCode.NONE
        assert (made.principal_name, made.token_requester_principal_name) == ("alice", "alice")
        assert made.expiry_timestamp_ms == made.issue_timestamp_ms + PERIODS.renewal_ms
        assert made.max_timestamp_ms == made.issue_timestamp_ms + PERIODS.longest_ms
        assert len(made.hmac) == 64
        renewed = await tokens.renew(BOB, made.hmac, 5_000_000)
        assert code(renewed) is ErrorCode.NONE
        (described,) = (await tokens.describe(ALICE)).tokens
        assert described.hmac == made.hmac
        assert described.expiry_timestamp == renewed.expiry_timestamp_ms > made.expiry_timestamp_ms
        assert [(one.principal_type, one.principal_name) for one in described.renewers] == [("User", "bob")]
        now_ms = tokens.clock.now_ms()
        expired = await tokens.expire(BOB, made.hmac)
        assert (code(expired), expired.expiry_timestamp_ms) == (ErrorCode.NONE, now_ms)
        assert await tokens.shown(ALICE) == []

    with_tokens(scenario)


def test_a_token_for_another_user_needs_the_right_for_that_one() -> None:
    async def scenario(tokens: Tokens) -> None:
        refused = await tokens.create(ALICE, owner="bob")
        assert code(refused) is ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED
        assert (refused.token_id, refused.hmac, refused.expiry_timestamp_ms) == ("", b"", -1)
        made = await tokens.create(ALICE, CREATE_FOR_BOB, owner="bob")
        assert (made.principal_name, made.token_requester_principal_name) == ("bob", "alice")
        assert await tokens.shown(ALICE) == await tokens.shown(BOB) == [made.token_id]
        assert code(await tokens.create(ALICE, owner="alice")) is ErrorCode.NONE

    with_tokens(scenario)


@pytest.mark.parametrize("who", [ANONYMOUS, replace(ALICE, by_token=True)], ids=["nobody", "by a token"])
def test_who_has_not_authenticated_or_by_a_token_is_served_none_of_the_four(who: Principal) -> None:
    async def scenario(tokens: Tokens) -> None:
        made = await tokens.create(ALICE)
        for answer in (
            await tokens.create(who),
            await tokens.create(who, owner="bob"),
            await tokens.renew(who, made.hmac),
            await tokens.expire(who, made.hmac),
            await tokens.describe(who),
        ):
            assert code(answer) is ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
        assert await tokens.shown(ALICE) == [made.token_id]

    with_tokens(scenario)


def test_without_a_secret_key_nothing_of_it_is_served() -> None:
    async def scenario(tokens: Tokens) -> None:
        for answer in (
            await tokens.create(ALICE),
            await tokens.renew(ALICE, b"x"),
            await tokens.expire(ALICE, b"x"),
            await tokens.describe(ALICE),
        ):
            assert code(answer) is ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED
        assert code(await tokens.create(ALICE, owner="bob")) is ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED

    with_tokens(scenario, is_enabled=False)


def test_a_token_of_others_and_one_that_does_not_exist_are_told_apart_only_by_the_hmac() -> None:
    async def scenario(tokens: Tokens) -> None:
        made = await tokens.create(ALICE)
        for act in (tokens.renew, tokens.expire):
            answer = await act(CAROL, made.hmac)
            assert (code(answer), answer.expiry_timestamp_ms) == (ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH, -1)
            answer = await act(CAROL, made.token_id.encode())
            assert (code(answer), answer.expiry_timestamp_ms) == (ErrorCode.DELEGATION_TOKEN_NOT_FOUND, -1)
        await tokens.clock.sleep(1001)
        assert code(await tokens.renew(ALICE, made.hmac)) is ErrorCode.DELEGATION_TOKEN_EXPIRED

    with_tokens(scenario)


def test_a_renewer_is_a_user_and_an_owner_has_a_type() -> None:
    async def scenario(tokens: Tokens) -> None:
        answers = [
            await tokens.create(ALICE, renewers=(BOB, Principal("Group", "g"))),
            *[
                await tokens.create(
                    ALICE,
                    (AclOperation.CREATE_TOKENS, ResourceType.USER, f"{kind}:b"),
                    owner="b",
                    owner_principal_type=kind,
                )
                for kind in ("", "a:b")
            ],
        ]
        assert {code(answer) for answer in answers} == {ErrorCode.INVALID_PRINCIPAL_TYPE}
        assert await tokens.shown(ALICE) == []

    with_tokens(scenario)


def test_more_renewers_than_a_znode_holds_are_refused() -> None:
    async def scenario(tokens: Tokens) -> None:
        many = tuple(Principal("User", f"{number}" * 1000) for number in range(1000))
        assert code(await tokens.create(ALICE, renewers=many)) is ErrorCode.INVALID_REQUEST
        assert await tokens.shown(ALICE) == []

    with_tokens(scenario)


def test_tokens_of_others_are_shown_to_those_with_a_right_on_the_owner_or_the_token() -> None:
    async def scenario(tokens: Tokens) -> None:
        one, other = (await tokens.create(ALICE)).token_id, (await tokens.create(BOB)).token_id
        of_alice = (AclOperation.DESCRIBE_TOKENS, ResourceType.USER, "User:alice")
        of_the_other = (AclOperation.DESCRIBE, ResourceType.DELEGATION_TOKEN, other)
        assert await tokens.shown(CAROL) == []
        assert await tokens.shown(CAROL, of_alice) == [one]
        assert await tokens.shown(CAROL, of_the_other) == [other]
        assert await tokens.shown(CAROL, of_alice, of_the_other, owners=["bob"]) == [other]
        assert await tokens.shown(CAROL, of_alice, of_the_other, owners=[]) == []
        assert await tokens.shown(ALICE, owners=["bob"]) == []
        (old,) = (await tokens.describe(ALICE, version=2)).tokens
        assert (old.principal_name, old.token_requester_principal_name) == ("alice", "")

    with_tokens(scenario)
