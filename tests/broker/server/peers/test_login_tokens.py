"""The tokens with which brokers, commands and pipelines log in: got once, renewed in time, used on when that fails."""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from ottla_broker.adapters.clock import LoopClock
from ottla_broker.adapters.http_threads import ThreadHttp
from ottla_broker.security.oauth.addresses import Address, parse_address
from ottla_broker.security.oauth.blocking_tokens import BlockingTokens
from ottla_broker.security.oauth.logins import RenewalTimes, TokenLogin, TokenUnavailable, token_login
from ottla_broker.security.oauth.provider_tls import provider_tls
from ottla_broker.server.peers.login_tokens import LoginTokens
from tests.authority import Authority
from tests.tokens import IdentityProvider, Signer

ALWAYS = RenewalTimes(0.0, 0.0, 0, 0)
"""Another token for each login."""


def _on_a_loop() -> Callable[[TokenLogin], Awaitable[str]]:
    return LoginTokens(LoopClock(), ThreadHttp()).token


def _blocking() -> Callable[[TokenLogin], Awaitable[str]]:
    tokens = BlockingTokens()
    return lambda login: asyncio.to_thread(tokens.token, login)


@pytest.fixture(params=[_on_a_loop, _blocking])
async def token(request: pytest.FixtureRequest) -> Callable[[TokenLogin], Awaitable[str]]:
    found: Callable[[TokenLogin], Awaitable[str]] = request.param()
    return found


def grant(provider: IdentityProvider, secret: str = "client-secret", **more: Any) -> TokenLogin:
    address = parse_address(provider.url("token"))
    return token_login(address, {"clientId": "broker", "clientSecret": secret, "scope": "kafka"}, None, **more)


async def test_a_token_serves_all_logins(token: Callable[[TokenLogin], Awaitable[str]]) -> None:
    with IdentityProvider() as provider:
        login = grant(provider)
        found = await asyncio.gather(*(token(login) for _ in range(20)))
        assert found == provider.given * 20
        assert provider.scopes == ["kafka"]
        await token(grant(provider, renewal=ALWAYS))
        assert len(provider.given) == 2, "another login has another token"


async def test_each_login_of_a_process_keeps_its_token(token: Callable[[TokenLogin], Awaitable[str]]) -> None:
    """A broker with two listeners of its own, or a pipeline from one cluster to another."""
    with IdentityProvider() as provider:
        one, other = grant(provider), grant(provider, renewal=RenewalTimes(factor=0.7))
        found = [await token(login) for login in (one, other, one, other)]
        assert found == provider.given * 2
        assert len(provider.given) == 2


async def test_a_token_that_is_nearly_over_is_renewed_or_used_on(
    token: Callable[[TokenLogin], Awaitable[str]], caplog: pytest.LogCaptureFixture
) -> None:
    with IdentityProvider() as provider:
        login = grant(provider, renewal=ALWAYS)
        assert await token(login) != await token(login) or len(provider.given) == 2
        provider.status = 500
        assert await token(login) == provider.given[1]
        assert "the token before is used on: no token for broker: " in caplog.text
        assert "the answer is 500" in caplog.text
        assert not any(one in caplog.text for one in provider.given)


async def test_a_token_that_is_over_is_not_used(token: Callable[[TokenLogin], Awaitable[str]]) -> None:
    with IdentityProvider() as provider:
        provider.lifetime_s = 1
        login = grant(provider)
        await token(login)
        provider.secret = "another"
        with pytest.raises(TokenUnavailable, match=r"no token for broker: .*the answer is 401 \(invalid_client\)"):
            while True:
                await token(login)
                await asyncio.sleep(0.05)


async def test_a_provider_that_gives_none_says_why(token: Callable[[TokenLogin], Awaitable[str]]) -> None:
    with IdentityProvider() as provider:
        with pytest.raises(TokenUnavailable, match="the answer is 401") as caught:
            await token(grant(provider, "hunter"))
        assert "hunter" not in str(caught.value)
        provider.lifetime_s = -5
        with pytest.raises(TokenUnavailable, match="the token of broker cannot be used: it has expired"):
            await token(grant(provider))
    with pytest.raises(TokenUnavailable, match="Connection refused"):
        await token(grant(provider))


async def test_a_token_in_a_file_is_read_again(token: Callable[[TokenLogin], Awaitable[str]], tmp_path: Path) -> None:
    path = tmp_path / "token"
    login = token_login(Address(path=str(path)), {}, None, ALWAYS)
    with pytest.raises(TokenUnavailable, match=f"no token for {path}: No such file"):
        await token(login)
    for number in range(2):
        text = Signer(str(number)).token()
        path.write_text(text + "\n")
        assert await token(login) == text
    path.write_text("x" * 100_000)
    assert await token(login) == text, "which has not ended"


async def test_an_unsigned_token(token: Callable[[TokenLogin], Awaitable[str]]) -> None:
    assert (await token(token_login(None, {"unsecuredLoginStringClaim_sub": "alice"}, None))).endswith(".")


async def test_a_provider_of_an_unknown_authority_is_not_told_the_secret(
    token: Callable[[TokenLogin], Awaitable[str]], tmp_path: Path
) -> None:
    authority = Authority()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(authority.issue("localhost").write(tmp_path / "idp.pem"))
    (tmp_path / "trust.pem").write_text(authority.trust_pem)
    store = {"ssl.truststore.location": str(tmp_path / "trust.pem"), "ssl.truststore.type": "PEM"}
    with IdentityProvider(context) as provider:
        address = parse_address(provider.url("token", "localhost"))
        options = {"clientId": "broker", "clientSecret": "client-secret"}
        with pytest.raises(TokenUnavailable, match="CERTIFICATE_VERIFY_FAILED"):
            await token(token_login(address, options, provider_tls(address, options)))
        assert provider.asked == []
        assert await token(token_login(address, options, provider_tls(address, store))) == provider.given[0]


async def test_logins_wait_for_one_request(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    with IdentityProvider() as provider:
        token = _on_a_loop()
        provider.hangs.set()
        first = asyncio.ensure_future(token(grant(provider)))
        others = [asyncio.ensure_future(token(grant(provider))) for _ in range(5)]
        while not provider.asked:  # noqa: ASYNC110 - it is on another thread
            await asyncio.sleep(0.01)
        provider.hangs.clear()
        assert set(await asyncio.gather(first, *others)) == set(provider.given)
        assert len(provider.asked) == 1
        assert not any(part in caplog.text for part in (*provider.given, "client-secret"))


async def test_whoever_waits_for_a_provider_that_fails_fails_with_it() -> None:
    with IdentityProvider() as provider:
        token = _on_a_loop()
        provider.hangs.set()
        provider.status = 500
        waiting = [asyncio.ensure_future(token(grant(provider))) for _ in range(20)]
        while not provider.asked:  # noqa: ASYNC110 - it is on another thread
            await asyncio.sleep(0.01)
        provider.hangs.clear()
        failures = await asyncio.gather(*waiting, return_exceptions=True)
        assert all(isinstance(one, TokenUnavailable) for one in failures)
        assert len(provider.asked) == 1
        provider.status = 200
        assert await token(grant(provider)) == provider.given[-1], "and whoever comes later asks again"
