"""Tokens for tests, right and wrong in each way, and an identity provider that gives them out on loopback."""

from __future__ import annotations

import base64
import json
import ssl
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs

from joserfc.jwk import ECKey, OKPKey, RSAKey
from joserfc.jws import JWSRegistry

Key = RSAKey | ECKey | OKPKey


def encoded(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def written(part: Any) -> bytes:
    """A part of a token: bytes as they are, anything else as JSON."""
    return part if isinstance(part, bytes) else json.dumps(part).encode()


def compact(header: Any, claims: Any, sign: Callable[[bytes], bytes] = lambda _: b"") -> str:
    """A token of any parts, whether they go together or not."""
    signed = f"{encoded(written(header))}.{encoded(written(claims))}"
    return f"{signed}.{encoded(sign(signed.encode()))}"


def claims(**more: Any) -> dict[str, Any]:
    """Of alice, for a minute; None leaves a claim out."""
    now = int(time.time())
    found = {"sub": "alice", "iat": now, "exp": now + 60, **more}
    return {name: value for name, value in found.items() if value is not None}


class Signer:
    """A key of an identity provider."""

    def __init__(self, key_id: str | None = "one", algorithm: str = "RS256", key: Key | None = None) -> None:
        self.key_id = key_id
        self.algorithm = algorithm
        self.key = new_key(algorithm) if key is None else key

    def public(self, **more: Any) -> dict[str, Any]:
        """As it stands in a JWKS; None leaves a member out."""
        found = {**self.key.as_dict(private=False), "kid": self.key_id, "use": "sig", "alg": self.algorithm, **more}
        return {name: value for name, value in found.items() if value is not None}

    def sign(self, data: bytes) -> bytes:
        return bytes(JWSRegistry.algorithms[self.algorithm].sign(data, self.key))

    def token(self, header: Any = None, **more: Any) -> str:
        """A token with `claims(**more)`."""
        return self.compact(claims(**more), header)

    def compact(self, body: Any, header: Any = None) -> str:
        if header is None:
            header = {"alg": self.algorithm, **({} if self.key_id is None else {"kid": self.key_id})}
        return compact(header, body, self.sign)


def new_key(algorithm: str) -> Key:
    curves = {"ES256": "P-256", "ES384": "P-384", "ES512": "P-521"}
    if algorithm in curves:
        return ECKey.generate_key(curves[algorithm])
    return OKPKey.generate_key("Ed25519") if algorithm == "EdDSA" else RSAKey.generate_key(2048)


def jwks(*signers: Signer | dict[str, Any]) -> bytes:
    keys = [one.public() if isinstance(one, Signer) else one for one in signers]
    return json.dumps({"keys": keys}).encode()


class IdentityProvider:
    """Serves its keys at /keys, and tokens of the grant of client credentials at /token.

    Args:
        context: of https; None for http.
    """

    def __init__(self, context: ssl.SSLContext | None = None) -> None:
        self.signer = Signer()
        self.keys = jwks(self.signer)
        self.status = 200
        self.location: str | None = None
        """Of the redirect that is answered."""
        self.lifetime_s = 60
        self.subject = "alice"
        self.secret = "client-secret"
        self.hangs = threading.Event()
        """While it is set nothing is answered."""
        self.asked: list[str] = []
        self.scopes: list[str] = []
        self.given: list[str] = []
        provider = self

        class Handler(BaseHTTPRequestHandler):
            def log_message(self, format: str, *args: Any) -> None:
                return

            def do_GET(self) -> None:
                provider._begin(self)
                self._answer(provider.keys)

            def do_POST(self) -> None:
                provider._begin(self)
                form = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
                self._answer(provider._token(form, self.headers.get("Authorization", "")))

            def _answer(self, body: bytes | None) -> None:
                status = 401 if body is None else provider.status
                body = b'{"error":"invalid_client"}' if body is None else body
                with suppress(OSError):
                    self.send_response(status if provider.location is None else 302)
                    if provider.location is not None:
                        self.send_header("Location", provider.location)
                    self.send_header("Content-Type", "application/json")
                    self.send_header("Content-Length", str(len(body)))
                    self.end_headers()
                    self.wfile.write(body)

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.handle_error = lambda *_: None  # type: ignore[method-assign]  # a client that does not trust it
        if context is not None:
            self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self._scheme = "http" if context is None else "https"
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)
        self._thread.start()

    @property
    def port(self) -> int:
        return int(self._server.server_address[1])

    def url(self, path: str, host: str = "127.0.0.1") -> str:
        return f"{self._scheme}://{host}:{self.port}/{path}"

    def close(self) -> None:
        self._ended.set()
        self._server.shutdown()
        self._server.server_close()

    def __enter__(self) -> IdentityProvider:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _begin(self, handler: BaseHTTPRequestHandler) -> None:
        self.asked.append(handler.path)
        while self.hangs.is_set() and not self._ended.wait(0.01):
            pass

    def _token(self, form: dict[str, list[str]], authorization: str) -> bytes | None:
        user, _, secret = base64.b64decode(authorization.removeprefix("Basic ")).decode().partition(":")
        if form.get("grant_type") != ["client_credentials"] or secret != self.secret:
            return None
        self.scopes.append(" ".join(form.get("scope", [])))
        now = int(time.time())
        token = self.signer.token(sub=user or self.subject, iat=now, exp=now + self.lifetime_s)
        self.given.append(token)
        return json.dumps({"access_token": token, "token_type": "Bearer", "expires_in": self.lifetime_s}).encode()
