"""Requests to identity providers: within their time and size, over TLS that is verified, and no secret in an error."""

from __future__ import annotations

import asyncio
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ottla_broker.adapters.http_threads import ThreadHttp
from ottla_broker.ports.http import HttpFailed, HttpRequest, NoHttp
from ottla_broker.security.client_tls import client_tls
from ottla_broker.security.tls_context import load_client
from tests.authority import Authority
from tests.tokens import IdentityProvider


@pytest.fixture
def provider() -> Iterator[IdentityProvider]:
    with IdentityProvider() as found:
        yield found


def request(url: str, *, limit_s: float = 20, most_bytes: int = 10_000, **more: Any) -> HttpRequest:
    return HttpRequest(url, limit_s, most_bytes, 20, 20, **more)


async def fetched(url: str, **more: Any) -> bytes:
    return await ThreadHttp().fetch(request(url, **more))


async def why_not(url: str, **more: Any) -> str:
    with pytest.raises(HttpFailed) as caught:
        await fetched(url, **more)
    assert "hunter" not in str(caught.value)
    return str(caught.value)


async def test_an_answer_of_status_200_is_what_it_has(provider: IdentityProvider) -> None:
    assert await fetched(provider.url("keys?a=hunter")) == provider.keys
    assert provider.asked == ["/keys?a=hunter"]


async def test_another_status_is_a_failure_with_the_start_of_its_body(provider: IdentityProvider) -> None:
    provider.status, provider.keys = 503, b"x" * 5000
    with pytest.raises(HttpFailed) as caught:
        await fetched(provider.url("keys?a=hunter"))
    assert str(caught.value) == f"{provider.url('keys')}: the answer is 503"
    assert (caught.value.status, caught.value.body) == (503, b"x" * 1024)
    provider.status = 204
    assert "the answer is 204" in await why_not(provider.url("keys"))


async def test_a_longer_answer_is_a_failure(provider: IdentityProvider) -> None:
    provider.keys = b"x" * 10_000
    assert await fetched(provider.url("keys")) == provider.keys
    provider.keys += b"x"
    assert "longer than 10000 bytes" in await why_not(provider.url("keys"))


async def test_a_redirect_of_the_same_scheme_is_followed(provider: IdentityProvider) -> None:
    with IdentityProvider() as other:
        provider.location = other.url("keys")
        assert await fetched(provider.url("keys")) == other.keys
        assert other.asked == ["/keys"]


@pytest.mark.parametrize("location", ["https://127.0.0.1:1/keys", "file:///etc/passwd", "ftp://127.0.0.1/x", "/keys"])
async def test_a_redirect_to_another_scheme_or_without_end_is_a_failure(
    location: str, provider: IdentityProvider
) -> None:
    provider.location = location
    assert "the answer is 302" in await why_not(provider.url("keys"))
    assert len(provider.asked) <= 6


async def test_a_form_is_sent_to_nobody_else(provider: IdentityProvider) -> None:
    with IdentityProvider() as other:
        provider.location = other.url("token")
        said = await why_not(provider.url("token"), form={"grant_type": "client_credentials", "x": "hunter"})
        assert "the answer is 302" in said
        assert other.asked == []


async def test_an_answer_that_does_not_come_is_a_failure(provider: IdentityProvider) -> None:
    provider.hangs.set()
    assert "no answer within 0.05 s" in await why_not(provider.url("keys"), limit_s=0.05)


def serve(answer: Callable[[socket.socket], None]) -> tuple[socket.socket, threading.Thread]:
    """Answers one connection on loopback."""
    listening = socket.create_server(("127.0.0.1", 0))

    def run() -> None:
        with listening.accept()[0] as one:
            answer(one)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return listening, thread


@pytest.mark.parametrize("start", [b"", b"HTTP/1.1 200 OK\r\nX: ", b"HTTP/1.1 200 OK\r\n\r\n"])
async def test_an_answer_that_comes_byte_by_byte_ends_with_its_time(start: bytes) -> None:
    """In the headers, and in the body: each byte comes in time, and the answer never."""
    is_over = threading.Event()

    def drip(one: socket.socket) -> None:
        one.sendall(start)
        while not is_over.wait(0.01):
            try:
                one.sendall(b"x")
            except OSError:
                is_over.set()

    listening, thread = serve(drip)
    with listening:
        said = await why_not(f"http://127.0.0.1:{listening.getsockname()[1]}/keys", limit_s=0.2)
        assert "no answer within 0.2 s" in said
        await asyncio.to_thread(thread.join)
        assert is_over.is_set(), "the connection is closed"


@pytest.mark.parametrize(
    "answer", [b"", b"nonsense\r\n\r\n", b"HTTP/1.1 abc OK\r\n\r\n", b"\x15\x03\x01\x00\x02\x02\x28"]
)
async def test_what_does_not_speak_http_is_a_failure(answer: bytes) -> None:
    def nonsense(one: socket.socket) -> None:
        one.recv(1000)
        one.sendall(answer)

    listening, thread = serve(nonsense)
    with listening:
        assert "127.0.0.1" in await why_not(f"http://127.0.0.1:{listening.getsockname()[1]}/keys?a=hunter")
        await asyncio.to_thread(thread.join)


async def test_nobody_there() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
    assert await why_not(f"http://127.0.0.1:{port}/keys") == f"http://127.0.0.1:{port}/keys: Connection refused"
    with pytest.raises(HttpFailed):
        await NoHttp().fetch(request("http://127.0.0.1/"))


async def test_a_fetch_that_is_cancelled_ends(provider: IdentityProvider) -> None:
    provider.hangs.set()
    task = asyncio.ensure_future(fetched(provider.url("keys"), limit_s=0.5))
    while not provider.asked:  # noqa: ASYNC110 - it is on another thread
        await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


class TestTls:
    def provider(self, authority: Authority, directory: Path, name: str = "localhost") -> IdentityProvider:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(authority.issue(name).write(directory / "idp.pem"))
        return IdentityProvider(context)

    def context(self, authority: Authority, directory: Path) -> Callable[[], ssl.SSLContext]:
        trust = directory / "trust.pem"
        trust.write_text(authority.trust_pem)
        settings = client_tls({"ssl.truststore.location": str(trust), "ssl.truststore.type": "PEM"})
        return lambda: load_client(settings, 0).context

    async def test_an_authority_of_the_trust_store_is_trusted(self, tmp_path: Path) -> None:
        authority = Authority()
        with self.provider(authority, tmp_path) as found:
            context = self.context(authority, tmp_path)
            assert await fetched(found.url("keys", "localhost"), context=context) == found.keys

    async def test_an_unknown_authority_is_not(self, tmp_path: Path) -> None:
        with self.provider(Authority(), tmp_path) as found:
            for context in (None, self.context(Authority("another"), tmp_path)):
                said = await why_not(found.url("keys", "localhost"), context=context)
                assert "CERTIFICATE_VERIFY_FAILED" in said
            assert found.asked == []

    async def test_a_certificate_of_another_host_is_not(self, tmp_path: Path) -> None:
        authority = Authority()
        with self.provider(authority, tmp_path, "other.example") as found:
            said = await why_not(found.url("keys", "localhost"), context=self.context(authority, tmp_path))
            assert "Hostname mismatch" in said

    async def test_a_trust_store_that_cannot_be_read_is_a_failure(self) -> None:
        settings = client_tls({"ssl.truststore.location": "/nowhere.pem", "ssl.truststore.type": "PEM"})
        with IdentityProvider() as found:
            said = await why_not(f"https://127.0.0.1:{found.port}/", context=lambda: load_client(settings, 0).context)
        assert "/nowhere.pem" in said

    async def test_a_plain_server_is_none_of_https(self) -> None:
        with IdentityProvider() as found:
            assert "WRONG_VERSION_NUMBER" in await why_not(f"https://127.0.0.1:{found.port}/")
