"""How a client gets the token that it logs in with, and what it says when it gets none: never a secret."""

from __future__ import annotations

import base64
import errno
import json
import time

import pytest

from ottla_broker.ports.http import HttpFailed
from ottla_broker.security.oauth.addresses import Address, parse_address
from ottla_broker.security.oauth.key_refreshes import MissingKeys
from ottla_broker.security.oauth.logins import (
    ClientGrant,
    HeldTokens,
    RenewalTimes,
    TokenFile,
    TokenLogin,
    TokenUnavailable,
    held_token,
    token_login,
    unavailable,
)
from tests.tokens import Signer, claims, compact

PROVIDER = parse_address("https://idp.example/token")
OPTIONS = {"clientId": "broker", "clientSecret": "hunter"}
NOW_MS = int(time.time() * 1000)


def grant(**more: str) -> TokenLogin:
    return token_login(PROVIDER, {**OPTIONS, **more}, None)


def test_the_grant_of_client_credentials() -> None:
    login = grant(scope=" a b ", extension_traceId="7")
    assert isinstance(login.origin, ClientGrant)
    request = login.origin.request(None)
    assert request.form == {"grant_type": "client_credentials", "scope": "a b"}
    assert base64.b64decode(request.headers["Authorization"].removeprefix("Basic ")) == b"broker:hunter"
    assert (request.url, login.username, login.extensions) == (PROVIDER.url, "broker", (("traceId", "7"),))
    assert "hunter" not in repr(login) and "hunter" not in repr(request)
    assert request.headers["Authorization"] not in repr(request)
    plain = grant().origin
    assert isinstance(plain, ClientGrant) and plain.request(None).form == {"grant_type": "client_credentials"}


@pytest.mark.parametrize(
    ("address", "options", "reason"),
    [
        (PROVIDER, {"clientSecret": "hunter"}, "it has no clientId"),
        (PROVIDER, {"clientId": "broker", "clientSecret": ""}, "it has no clientSecret"),
        (PROVIDER, {**OPTIONS, "extension_auth": "hunter"}, "extension_NAME"),
        (PROVIDER, {**OPTIONS, "extension_a": "hunter\n\x00"}, "extension_NAME"),
        (None, OPTIONS, "it has no unsecuredLoginStringClaim_sub"),
    ],
)
def test_an_option_that_is_missing_or_wrong_is_named(
    address: Address | None, options: dict[str, str], reason: str
) -> None:
    with pytest.raises(ValueError, match=reason) as caught:
        token_login(address, options, None)
    assert "hunter" not in str(caught.value)


def test_a_token_is_held_until_most_of_its_life_is_over() -> None:
    login = grant()
    text = Signer().token(exp=NOW_MS // 1000 + 1000)
    answer = json.dumps({"access_token": f" {text} ", "token_type": "Bearer", "expires_in": 1000}).encode()
    held = held_token(login, answer, NOW_MS, 0.0)
    assert held.text == text
    assert "ey" not in repr(held)
    assert held.is_fresh(NOW_MS)
    assert not held.is_fresh(held.renew_at_ms)
    tokens = HeldTokens()
    tokens.put(held, NOW_MS)
    assert tokens.of(login, NOW_MS) is held
    assert tokens.of(grant(scope="other"), NOW_MS) is None
    assert tokens.of(login, held.ends_ms - 1) is held and tokens.of(login, held.ends_ms) is None
    assert held.ends_ms // 1000 == NOW_MS // 1000 + 1000
    assert held.renew_at_ms == held.ends_ms - 300_000


def test_when_a_token_is_renewed() -> None:
    """As ExpiringCredentialRefreshingLogin has it."""
    hour = 3_600_000
    assert RenewalTimes().renew_at_ms(0, hour, 1.0) == pytest.approx(0.85 * hour, abs=1)
    assert RenewalTimes(0.5, 0.0, 60, 0).renew_at_ms(0, hour, 1.0) == hour // 2
    assert RenewalTimes(0.5, 0.0, 900, 0).renew_at_ms(0, 1_000_000, 0.0) == 900_000
    assert RenewalTimes(1.0, 0.25, 0, 0).renew_at_ms(0, hour, 1.0) == hour
    assert RenewalTimes().renew_at_ms(hour, 0, 0.5) == hour


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (b"<html>hunter</html>", "no JSON"),
        (b"{}", "has no access_token"),
        (b'{"access_token":7}', "has no access_token"),
        (b'{"access_token":""}', "it is no token"),
        (b'{"access_token":"hunter"}', "it has 1 parts"),
        (b'{"access_token":"hunter hunter"}', "it is no token"),
        (b'{"access_token":"' + b"a" * 20_000 + b'"}', "more than 16384"),
        (json.dumps({"access_token": compact({}, claims(exp=None))}).encode(), "no claim exp"),
        (json.dumps({"access_token": compact({}, claims(exp=1))}).encode(), "it has expired"),
        (json.dumps({"access_token": compact({}, claims(exp="hunter"))}).encode(), "claim exp is no number"),
    ],
)
def test_an_answer_without_a_token_says_what_is_wrong_with_it(answer: bytes, reason: str) -> None:
    with pytest.raises(TokenUnavailable, match=f"the token of broker cannot be used: .*{reason}") as caught:
        held_token(grant(), answer, NOW_MS, 0.0)
    assert "hunter" not in str(caught.value)


def test_a_token_in_a_file() -> None:
    login = token_login(Address(path="/run/token"), {}, None)
    assert login.origin == TokenFile("/run/token")
    text = Signer().token()
    assert held_token(login, f"{text}\n".encode(), NOW_MS, 0.0).text == text
    for content in (b"", b"\xff", b"a b", b"hunter"):
        with pytest.raises(TokenUnavailable, match="the token of /run/token cannot be used") as caught:
            held_token(login, content, NOW_MS, 0.0)
        assert "hunter" not in str(caught.value)


def test_an_origin_that_gives_no_token_is_told_with_the_word_of_the_provider() -> None:
    failed = HttpFailed("https://idp.example/token: the answer is 401", status=401, body=b'{"error":"invalid_client"}')
    assert str(unavailable(grant(), failed)) == f"no token for broker: {failed} (invalid_client)"
    for body in (b"", b"<html>", b'{"error":"hunter 7"}', b'{"error":["hunter"]}'):
        assert str(unavailable(grant(), HttpFailed("it fails", body=body))) == "no token for broker: it fails"
    missing = FileNotFoundError(errno.ENOENT, "No such file or directory", "/run/token")
    file = token_login(Address(path="/run/token"), {}, None)
    assert str(unavailable(file, missing)) == "no token for /run/token: No such file or directory"


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("https://idp.example/keys?a=b", Address(url="https://idp.example/keys?a=b")),
        (" http://[::1]:80/keys ", Address(url="http://[::1]:80/keys")),
        ("file:///etc/a%20b.json", Address(path="/etc/a b.json")),
        ("file:/etc/keys.json", Address(path="/etc/keys.json")),
        ("FILE://localhost/etc/keys.json", Address(path="/etc/keys.json")),
    ],
)
def test_addresses(text: str, address: Address) -> None:
    assert parse_address(text) == address


@pytest.mark.parametrize(
    "text",
    ["", "idp.example/keys", "ftp://idp/keys", "https://", "https:///keys", "http://[::1/", "http://a:99999/", "file://",
     "file://other/etc/keys", "http://a/b c", "http://ž/", "http://a/\x00", "//idp/keys", "gopher:x",
     "http://user:hunter@idp/keys"],
)  # fmt: skip
def test_what_is_no_address(text: str) -> None:
    with pytest.raises(ValueError, match="an address such as"):
        parse_address(text)


def test_keys_that_are_missing_are_asked_for_rarely() -> None:
    missing = MissingKeys()
    assert not missing.may_ask("", 0) and not missing.may_ask("x" * 1001, 0)
    asked = [now for now in range(600) if missing.may_ask(f"made up {now}", now)]
    assert asked == list(range(0, 600, 10)), "whatever keys tokens name"
    assert len(missing._asked) == 16
    same = MissingKeys()
    assert [now for now in range(200) if same.may_ask("one", now)] == [0, 60, 120, 180]
