"""The keys of tokens on a listener: fetched once and again, kept when that fails, and asked for rarely by tokens."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from ottla_broker.adapters.clock import LoopClock
from ottla_broker.adapters.http_threads import ThreadHttp
from ottla_broker.metrics import Metrics
from ottla_broker.ports.http import Http, HttpFailed, HttpRequest
from ottla_broker.security.oauth.addresses import Address, parse_address
from ottla_broker.security.oauth.claims import TokenRules
from ottla_broker.security.oauth.key_refreshes import RefreshTimes
from ottla_broker.security.oauth.provider_tls import provider_tls
from ottla_broker.security.oauth.unsecured import UnsecuredRules
from ottla_broker.security.oauth.validation import SignedTokens, TokenValidation
from ottla_broker.security.sasl.oauthbearer import AcceptedToken, RefusedToken
from ottla_broker.server.edge.token_keys import MOST_BYTES
from ottla_broker.server.edge.token_validators import TokenValidators
from tests.tokens import IdentityProvider, Signer, claims, compact, jwks

ADDRESS = parse_address("http://idp.example/keys")
ANY = TokenRules()
SELDOM = RefreshTimes(3_600_000, 3_600_000, 3_600_000)


class Provider:
    """An `Http`: answers what it is told to, when it is told to."""

    def __init__(self, *signers: Signer) -> None:
        self.answer: bytes | Exception = jwks(*signers)
        self.requests: list[HttpRequest] = []
        self.may_answer = asyncio.Event()
        self.may_answer.set()
        self.has_answered = asyncio.Event()

    async def fetch(self, request: HttpRequest) -> bytes:
        self.requests.append(request)
        await self.may_answer.wait()
        self.has_answered.set()
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer

    async def answered(self) -> None:
        """Returns when the next request is, and its answer is taken."""
        self.has_answered.clear()
        await self.has_answered.wait()


class Listener:
    def __init__(self, http: Http, validation: TokenValidation) -> None:
        self.clock = LoopClock()
        self.metrics = Metrics()
        self.validators = TokenValidators(self.clock, http, self.metrics)
        self._validation = validation

    def worth(self, token: str) -> AcceptedToken | RefusedToken:
        return self.validators.validator("X", self._validation)(token)

    def user(self, token: str) -> str | None:
        found = self.worth(token)
        return found.user if isinstance(found, AcceptedToken) else None

    async def lets_in(self, token: str) -> None:
        """Waits until it does: keys are read on a thread."""
        while self.user(token) is None:  # noqa: ASYNC110 - nothing announces it
            await asyncio.sleep(0.01)

    def failures(self) -> float:
        return self.metrics.counter("ottla_sasl_jwks_failures", "", listener="X").value

    def age_s(self) -> float:
        found = self.metrics.gauge("ottla_sasl_jwks_age_seconds", "", listener="X").value
        assert found is not None
        return found


@asynccontextmanager
async def started(
    http: Http, *, times: RefreshTimes = SELDOM, rules: TokenRules = ANY, address: Address = ADDRESS
) -> AsyncIterator[Listener]:
    validation = SignedTokens(address, times, rules, provider_tls(address, {}))
    one = Listener(http, validation)
    await one.validators.start("X", validation)
    try:
        yield one
    finally:
        one.clock.cancel_all()


async def test_a_token_that_one_of_the_keys_has_signed_gets_its_user_in() -> None:
    signer = Signer()
    async with started(Provider(signer)) as one:
        found = one.worth(signer.token())
        assert isinstance(found, AcceptedToken)
        assert found.user == "alice" and 50_000 < found.lifetime_ms <= 60_000
        for token in (Signer().token(), signer.token(exp=1), compact({"alg": "none"}, claims()), "", "x" * 17_000):
            assert one.worth(token) == RefusedToken()
        assert one.failures() == 0 and one.age_s() < 60


async def test_a_token_within_the_skew_of_its_end_has_no_life_left() -> None:
    signer = Signer()
    async with started(Provider(signer), rules=TokenRules(skew_s=1000)) as one:
        now = one.clock.now_ms() // 1000
        assert one.worth(signer.token(exp=now - 10, iat=now - 20)) == AcceptedToken("alice", 0)


@pytest.mark.parametrize(
    "answer",
    [
        HttpFailed("http://idp.example/keys: no answer within 10 s"),
        b"<html>Sign in</html>",
        b"{}",
        b'{"keys":[]}',
        b"[" * 100_000,
    ],
)
async def test_keys_that_cannot_be_fetched_leave_those_before_in_force(
    answer: bytes | HttpFailed, caplog: pytest.LogCaptureFixture
) -> None:
    """And are fetched again, with a line in the log for the first time, and a count for each."""
    caplog.set_level(logging.INFO, "ottla.security")
    signer, provider = Signer(), Provider()
    provider.answer = jwks(signer)
    async with started(provider, times=RefreshTimes(1000, 1, 4)) as one:
        provider.answer = answer
        while one.failures() < 5:
            await provider.answered()
        assert one.user(signer.token()) == "alice"
        said = [record for record in caplog.records if record.levelno == logging.ERROR]
        assert len(said) == 1 and "stay as they were" in said[0].getMessage()
        new = Signer("new")
        provider.answer = jwks(new)
        await one.lets_in(new.token())
        assert one.user(signer.token()) is None


async def test_a_broker_without_keys_starts_and_lets_nobody_in_until_it_has_them(
    caplog: pytest.LogCaptureFixture,
) -> None:
    signer, provider = Signer(), Provider()
    provider.answer = HttpFailed("down")
    async with started(provider, times=RefreshTimes(1000, 1, 1)) as one:
        assert one.worth(signer.token()) == RefusedToken()
        assert one.age_s() == float("inf")
        assert "are missing, and nobody gets in by a token: down" in caplog.text
        provider.answer = jwks(signer)
        await one.lets_in(signer.token())
        assert one.age_s() < 60


async def test_a_failure_that_nobody_expects_does_not_end_the_fetches(caplog: pytest.LogCaptureFixture) -> None:
    signer, provider = Signer(), Provider()
    provider.answer = RuntimeError("odd")
    async with started(provider, times=RefreshTimes(1000, 1, 1)) as one:
        assert one.failures() == 1
        assert "the keys of tokens were not fetched, and are fetched again" in caplog.text
        provider.answer = jwks(signer)
        await one.lets_in(signer.token())


async def test_a_key_that_is_unknown_is_fetched_once_and_then_rarely() -> None:
    old, new, provider = Signer("old"), Signer("new"), Provider()
    provider.answer = jwks(old)
    async with started(provider) as one:
        provider.answer = jwks(old, new)
        assert one.worth(new.token()) == RefusedToken(), "as by Apache Kafka: the next login gets in"
        await one.lets_in(new.token())
        assert one.user(old.token()) == "alice"
        for number in range(100):
            assert one.user(Signer(f"made up {number}", key=new.key).token()) is None
            await asyncio.sleep(0)
        assert len(provider.requests) == 2


async def test_while_keys_are_fetched_tokens_are_checked_with_those_before() -> None:
    signer, provider = Signer(), Provider()
    provider.answer = jwks(signer)
    async with started(provider, times=RefreshTimes(1000, 1, 1)) as one:
        provider.may_answer.clear()
        one.worth(Signer("unknown", key=signer.key).token())
        while len(provider.requests) < 2:  # noqa: ASYNC110 - nothing announces it
            await asyncio.sleep(0.001)
        assert one.user(signer.token()) == "alice"


async def test_a_key_that_is_unknown_while_keys_are_fetched_is_asked_for_by_the_next_token() -> None:
    old, new, provider = Signer("old"), Signer("new"), Provider()
    provider.may_answer.clear()
    provider.answer = jwks(old)
    validation = SignedTokens(ADDRESS, SELDOM, ANY)
    one = Listener(provider, validation)
    starting = asyncio.ensure_future(one.validators.start("X", validation))
    while not provider.requests:  # noqa: ASYNC110 - nothing announces it
        await asyncio.sleep(0)
    for _ in range(20):
        assert one.user(new.token()) is None
        await asyncio.sleep(0)
    assert len(provider.requests) == 1
    provider.may_answer.set()
    await starting
    provider.answer = jwks(old, new)
    await one.lets_in(new.token())
    assert len(provider.requests) == 2
    one.clock.cancel_all()


async def test_what_is_asked_for() -> None:
    provider = Provider(Signer())
    address = parse_address("https://idp.example/keys")
    async with started(provider, address=address):
        request = provider.requests[0]
        assert (request.url, request.form, request.most_bytes) == (address.url, None, MOST_BYTES)
        assert request.limit_s == 10 and request.context is not None
        assert request.context().check_hostname


async def test_keys_in_a_file_are_read_again_when_their_time_has_come(tmp_path: Path) -> None:
    signer, new, path = Signer(), Signer("new"), tmp_path / "keys.json"
    path.write_bytes(jwks(signer))
    async with started(Provider(), address=Address(path=str(path)), times=RefreshTimes(1000, 1, 1)) as one:
        assert one.user(signer.token()) == "alice"
        path.write_bytes(jwks(new))
        await one.lets_in(new.token())


@pytest.mark.parametrize(
    ("content", "reason"),
    [(None, "No such file or directory"), (b" " * (MOST_BYTES + 1), "longer than 1048576 bytes"), (b"", "no JSON")],
)
async def test_a_file_that_cannot_be_used_is_named(
    content: bytes | None, reason: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "keys.json"
    if content is not None:
        path.write_bytes(content)
    async with started(Provider(), address=Address(path=str(path))):
        assert f"{path}: " in caplog.text and reason in caplog.text


async def test_other_settings_of_a_listener_have_other_keys() -> None:
    old, new = Signer(), Signer()
    provider = Provider(old)
    async with started(provider) as one:
        provider.answer = jwks(new)
        validation = SignedTokens(parse_address("http://other.example/keys"), SELDOM, TokenRules())
        worth = one.validators.validator("X", validation)
        assert worth(new.token()) == RefusedToken(), "its keys are on their way"
        while isinstance(worth(new.token()), RefusedToken):  # noqa: ASYNC110 - nothing announces it
            await asyncio.sleep(0.01)
        assert worth(old.token()) == RefusedToken()
        assert one.validators.validator("X", validation)(new.token()) != RefusedToken(), "and are not fetched again"
        assert len(provider.requests) == 2


async def test_unsigned_tokens() -> None:
    one = Listener(Provider(), UnsecuredRules(required_scope=("a",)))
    await one.validators.start("X", UnsecuredRules())
    token = compact({"alg": "none"}, claims(scope="a"))
    assert one.user(token) == "alice"
    assert one.worth(compact({"alg": "none"}, claims())) == RefusedToken("insufficient_scope", "[a]")
    assert one.worth(Signer().token(scope="a")) == RefusedToken()


async def test_no_part_of_a_token_is_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    signer = Signer()
    tokens = [
        signer.token(sub="hunter", exp=1),
        signer.token(sub=["hunter"]),
        signer.token(aud="hunter"),
        Signer("hunter").token(),
        compact({"alg": "hunter"}, {"hunter": 1}),
        compact(b'{"hunter', b"hunter"),
        "hunter",
    ]
    async with started(Provider(signer)) as one:
        for token in tokens:
            assert one.worth(token) == RefusedToken()
    said = [record.getMessage() for record in caplog.records if "does not take a token" in record.getMessage()]
    assert len(said) == len(tokens)
    assert "hunter" not in caplog.text
    assert not any(part in caplog.text for token in tokens for part in token.split(".") if len(part) > 8)


# With a real identity provider


async def test_an_identity_provider_that_hangs_or_sends_too_much_changes_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with IdentityProvider() as provider:
        address = parse_address(provider.url("keys"))
        async with started(ThreadHttp(), address=address, times=RefreshTimes(1000, 50, 50)) as one:
            assert one.user(provider.signer.token()) == "alice"
            provider.keys = b" " * MOST_BYTES + jwks(provider.signer)
            while not one.failures():  # noqa: ASYNC110 - nothing announces it
                await asyncio.sleep(0.01)
            assert "the answer is longer than 1048576 bytes" in caplog.text
            provider.hangs.set()
            before = len(provider.asked)
            while len(provider.asked) == before:  # noqa: ASYNC110 - it is on another thread
                await asyncio.sleep(0.01)
            assert one.user(provider.signer.token()) == "alice"
