"""The delegation tokens in the coordination store, as two brokers read and change them, in virtual time."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from ottla_broker.coordination import security_znodes as znodes
from ottla_broker.ports.coordination import NoNode
from ottla_broker.protocol.errors import ErrorCode, KafkaError
from ottla_broker.security.delegation_tokens import DelegationToken, TokenPeriods, TokenSecret, expired, renewed
from ottla_broker.security.principals import Principal
from ottla_broker.security.sasl.scram import ScramAlgorithm
from ottla_broker.server.store.stored_tokens import StoredTokens
from simulation.coordination import SimulatedCoordination
from tests.broker.server.virtual_store import Sessions, in_virtual_time

ALICE, BOB = Principal("User", "alice"), Principal("User", "bob")
PERIODS = TokenPeriods(longest_ms=7_000_000, renewal_ms=1_000_000)
SHA_512 = ScramAlgorithm.SHA_512
EVERY_S = 60.0


class Two:
    """Two brokers on one store."""

    def __init__(self, sessions: Sessions) -> None:
        self.store = sessions.store
        self.clock = sessions.clock
        self.settle = sessions.settle
        self.coordination = sessions.broker
        self.one, self.other = self.broker(sessions.broker), self.broker(sessions.controller)

    def broker(self, coordination: SimulatedCoordination) -> StoredTokens:
        return StoredTokens(TokenSecret("secret"), PERIODS, coordination, self.clock, logging.getLogger("test"))

    async def start(self) -> Two:
        await self.one.start()
        await self.other.start()
        return self

    async def create(self, tokens: StoredTokens) -> DelegationToken:
        return await tokens.create(ALICE, ALICE, (BOB,), -1)

    def has(self, tokens: StoredTokens, token: DelegationToken) -> bool:
        """Whether its holder logs in."""
        return tokens.identity(SHA_512, token.token_id, b"salt") is not None

    async def renew(self, tokens: StoredTokens, token: DelegationToken, period_ms: int) -> DelegationToken | None:
        now_ms = self.clock.now_ms()
        return await tokens.change(tokens.hmac(token), lambda one: renewed(one, BOB, period_ms, now_ms, PERIODS))

    async def expire(self, tokens: StoredTokens, token: DelegationToken, period_ms: int) -> DelegationToken | None:
        now_ms = self.clock.now_ms()
        return await tokens.change(tokens.hmac(token), lambda one: expired(one, BOB, period_ms, now_ms))


def with_two(scenario: Callable[[Two], Coroutine[Any, Any, None]]) -> None:
    in_virtual_time(lambda sessions: scenario(Two(sessions)))


def test_a_token_is_in_force_here_at_once_and_elsewhere_soon_and_so_is_its_end() -> None:
    async def scenario(two: Two) -> None:
        await two.start()
        token = await two.create(two.one)
        assert two.has(two.one, token)
        await two.clock.sleep(1)
        assert two.has(two.other, token)
        assert two.other.hmac(token) == two.one.hmac(token)
        assert await two.expire(two.other, token, -1) is None
        assert not two.has(two.other, token)
        await two.clock.sleep(1)
        assert not two.has(two.one, token)
        with pytest.raises(KafkaError) as caught:
            await two.renew(two.one, token, -1)
        assert caught.value.code is ErrorCode.DELEGATION_TOKEN_NOT_FOUND

    with_two(scenario)


def test_the_znodes_are_those_that_apache_kafka_writes() -> None:
    async def scenario(two: Two) -> None:
        await two.start()
        token = await two.create(two.one)
        stored = two.store.data(znodes.token_path(token.token_id))
        assert stored is not None
        assert znodes.decode_token(token.token_id, stored) == token
        assert two.one.hmac(token).hex() not in stored.hex()
        assert two.store.data("/delegation_token/token_changes/token_change_0000000000") == token.token_id.encode()

    with_two(scenario)


def test_who_logs_in_is_the_owner_until_the_token_ends() -> None:
    async def scenario(two: Two) -> None:
        await two.start()
        token = await two.create(two.one)
        await two.clock.sleep(100)
        left_ms = token.expiry_timestamp_ms - two.clock.now_ms()
        identity = two.one.identity(SHA_512, token.token_id, b"salt")
        assert identity is not None
        assert (identity.principal, identity.principal.by_token) == (ALICE, True)
        assert identity.lifetime_ms == left_ms < 1_000_000
        assert identity.credential.salt == b"salt"
        assert two.one.identity(SHA_512, "alice", b"salt") is None
        await two.clock.sleep(901)
        assert not two.has(two.one, token), "it is not deleted yet"
        assert [one.token_id for one in two.one.known] == [token.token_id]

    with_two(scenario)


def test_changes_of_one_token_by_two_brokers_at_once_follow_one_another() -> None:
    async def scenario(two: Two) -> None:
        await two.start()
        for number in range(20):
            token = await two.create(two.one)
            await two.settle()
            results = await asyncio.gather(
                two.renew(two.one, token, 2_000_000 + number),
                two.expire(two.other, token, -1),
                return_exceptions=True,
            )
            assert results[1] is None
            await two.settle()
            assert not two.has(two.one, token)
            assert not two.has(two.other, token), "a token that is removed does not come back"
            with pytest.raises(NoNode):
                await two.coordination.get(znodes.token_path(token.token_id))

    with_two(scenario)


def test_the_active_controller_deletes_the_tokens_that_have_ended() -> None:
    async def scenario(two: Two) -> None:
        await two.start()
        active = [two.other]
        two.one.remove_expired(lambda: two.one in active, EVERY_S)
        two.other.remove_expired(lambda: two.other in active, EVERY_S)
        short, long = await two.create(two.one), await two.create(two.one)
        await two.expire(two.one, short, 100_000)
        await two.clock.sleep(100 + EVERY_S + 1)
        assert two.store.names(znodes.DELEGATION_TOKENS) == [long.token_id]
        assert {one.token_id for one in two.one.known} == {long.token_id}
        active.clear()
        await two.clock.sleep(1000 + EVERY_S + 1)
        assert two.store.names(znodes.DELEGATION_TOKENS) == [long.token_id], "nobody is the controller"
        assert not two.has(two.one, long)

    with_two(scenario)


def test_what_a_broker_missed_while_its_session_was_lost_it_reads_again() -> None:
    async def scenario(two: Two) -> None:
        await two.start()
        gone = await two.create(two.one)
        await two.settle()
        two.store.expire(two.coordination.session_id)
        await two.expire(two.other, gone, -1)
        came = await two.create(two.other)
        await two.settle()
        assert two.has(two.one, came)
        assert not two.has(two.one, gone)

    with_two(scenario)


def test_a_znode_that_cannot_be_read_is_no_token_and_the_others_are() -> None:
    async def scenario(two: Two) -> None:
        await two.start()
        good, bad = await two.create(two.one), await two.create(two.one)
        data = two.store.data(znodes.token_path(good.token_id))
        assert data is not None
        await two.coordination.set(znodes.token_path(bad.token_id), data)
        for content in (bad.token_id.encode(), b"a/b", b"", b"\xff"):
            await two.coordination.create(znodes.TOKEN_CHANGE_PREFIX, content, sequence=True)
        await two.settle()
        for tokens in (two.one, two.other):
            assert two.has(tokens, good)
            assert not two.has(tokens, bad), "another token's content gives nobody its hmac"

    with_two(scenario)
