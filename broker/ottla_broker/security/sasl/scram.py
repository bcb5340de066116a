"""SCRAM-SHA-256 and SCRAM-SHA-512: a password is proved without being sent (RFC 5802, RFC 7677). Pure.

    client: n,,n=USER,r=NONCE                         server: r=NONCE+MORE,s=SALT,i=ITERATIONS
    client: c=biws,r=NONCE+MORE,p=PROOF               server: v=SIGNATURE

The server has two keys that come from the password, and not the password: who reads them cannot log in with them. An
unknown user gets a salt that is made up from its name, the same each time, and fails where a wrong password does, after
the same work.

Names are not prepared (SASLprep), as in Apache Kafka. Channel bindings are not served: a client that wants one fails.

Source: org.apache.kafka.common.security.scram.internals: ScramMessages, ScramFormatter, ScramSaslServer,
ScramSaslClient, ScramCredentialUtils.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Final

from ottla_broker.security.principals import Principal
from ottla_broker.security.sasl.mechanism import (
    SCRAM_SHA_256,
    SCRAM_SHA_512,
    Authenticated,
    Challenge,
    ClientStep,
    Complete,
    Failed,
    ServerStep,
    Spent,
)

FEWEST_ITERATIONS: Final = 4096
MOST_ITERATIONS: Final = 16384
"""Of a credential that is made; one that is stored with more is used."""
LONGEST_MESSAGE: Final = 8192
"""In bytes: twenty times that of a client with a long name. To parse one of half a megabyte, which a listener lets in,
takes 80 ms and 120 MB, and its nonce is kept until the client answers."""
_MOST_OF_A_SERVER: Final = 1_000_000
"""A client takes no more from a server: half a second of work."""

_NAME = r"(?:[\x01-\x2b\x2d-\x3c\x3e-\x7f]|=2C|=3D)+"
_VALUE = r"[\x01-\x2b\x2d-\x7f]+"
_PRINTABLE = r"[\x21-\x2b\x2d-\x7e]+"
_BASE64 = r"(?:[A-Za-z0-9/+]{4})*(?:[A-Za-z0-9/+]{3}=|[A-Za-z0-9/+]{2}==)?"
_EXTENSIONS = rf"(?:,[A-Za-z]+={_VALUE})*"

_CLIENT_FIRST = re.compile(
    rf"(?P<header>n,(?:a=(?P<authorization>{_NAME}))?,)"
    rf"(?P<bare>n=(?P<name>{_NAME}),r=(?P<nonce>{_PRINTABLE})(?P<extensions>{_EXTENSIONS}))"
)
_CLIENT_FINAL = re.compile(
    rf"(?P<without_proof>c=(?P<binding>{_BASE64}),r=(?P<nonce>{_PRINTABLE}){_EXTENSIONS}),p=(?P<proof>{_BASE64})"
)
_SERVER_FIRST = re.compile(
    rf"r=(?P<nonce>{_PRINTABLE}),s=(?P<salt>{_BASE64}),i=(?P<iterations>[0-9]{{1,9}}){_EXTENSIONS}"
)
_SERVER_FINAL = re.compile(rf"v=(?P<signature>{_BASE64}){_EXTENSIONS}")
_NO_BINDING = "biws"
"""`n,,` in Base64: what Java's clients send whatever they began with."""
_BY_TOKEN = "tokenauth=true"
_OTHER_USER = "Authentication failed: Client requested an authorization id that is different from username"


class ScramAlgorithm(Enum):
    """The hash of a mechanism."""

    SHA_256 = SCRAM_SHA_256
    SHA_512 = SCRAM_SHA_512

    @property
    def hash_name(self) -> str:
        return "sha256" if self is ScramAlgorithm.SHA_256 else "sha512"

    @property
    def code(self) -> int:
        """In requests (KIP-554)."""
        return 1 if self is ScramAlgorithm.SHA_256 else 2

    def digest(self, data: bytes) -> bytes:
        return hashlib.new(self.hash_name, data).digest()

    def keyed(self, key: bytes, data: bytes) -> bytes:
        return hmac.digest(key, data, self.hash_name)

    def salted_password(self, password: str, salt: bytes, iterations: int) -> bytes:
        """Takes a millisecond for about 2 000 iterations."""
        return hashlib.pbkdf2_hmac(self.hash_name, password.encode(errors="surrogatepass"), salt, iterations)


@dataclass(frozen=True, slots=True, repr=False)
class ScramCredential:
    """What a server keeps of a user's password.

    >>> text = ScramCredential.of(ScramAlgorithm.SHA_256, "pencil", b"salt", 4096).encode()
    >>> text.partition("stored_key")[0], text.rpartition(",")[2], ScramCredential.decode(text).salt
    ('salt=c2FsdA==,', 'iterations=4096', b'salt')
    """

    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int

    @classmethod
    def of(cls, algorithm: ScramAlgorithm, password: str, salt: bytes, iterations: int) -> ScramCredential:
        """From a password. Takes milliseconds."""
        return cls.of_salted(algorithm, algorithm.salted_password(password, salt, iterations), salt, iterations)

    @classmethod
    def of_salted(cls, algorithm: ScramAlgorithm, salted: bytes, salt: bytes, iterations: int) -> ScramCredential:
        """From a password that is salted already, as AlterUserScramCredentials has it."""
        return cls(
            salt,
            algorithm.digest(algorithm.keyed(salted, b"Client Key")),
            algorithm.keyed(salted, b"Server Key"),
            iterations,
        )

    def encode(self) -> str:
        """As it is stored in /config/users/NAME."""
        salt, stored, server = map(_base64, (self.salt, self.stored_key, self.server_key))
        return f"salt={salt},stored_key={stored},server_key={server},iterations={self.iterations}"

    @classmethod
    def decode(cls, text: str) -> ScramCredential:
        """Raises ValueError, whose message has nothing of the text."""
        parts = dict(part.split("=", 1) for part in text.split(",") if "=" in part)
        try:
            salt, stored, server = (
                base64.b64decode(parts.pop(name), validate=True) for name in ("salt", "stored_key", "server_key")
            )
            iterations = int(parts.pop("iterations"))
        except (KeyError, ValueError, binascii.Error):
            raise ValueError("it is no SCRAM credential") from None
        if parts or iterations < 1:
            raise ValueError("it is no SCRAM credential")
        return cls(salt, stored, server, iterations)


@dataclass(frozen=True, slots=True)
class ScramIdentity:
    """Who logs in by a name.

    Args:
        lifetime_ms: for how long the credential is valid yet; None for ever.
    """

    credential: ScramCredential
    principal: Principal
    lifetime_ms: int | None = None


FindIdentity = Callable[[str, bool], "ScramIdentity | None"]
"""Takes a name, and whether it is the id of a delegation token; None when there is nobody of that name."""


def new_nonce() -> str:
    return secrets.token_urlsafe(24)


def made_up(algorithm: ScramAlgorithm, secret: bytes, name: str) -> ScramCredential:
    """What an unknown user is asked for: the same each time for a name, and like what Apache Kafka's tools make."""
    number = int.from_bytes(hmac.digest(secret, f"{algorithm.value} {name}".encode(), "sha256")) >> 126
    digits = ""
    while number:
        number, digit = divmod(number, 36)
        digits = "0123456789abcdefghijklmnopqrstuvwxyz"[digit] + digits
    key = algorithm.keyed(secret, b"nobody has this password")
    return ScramCredential(digits.encode(), key, key, FEWEST_ITERATIONS)


class ScramServer:
    """See `ServerMechanism`.

    Args:
        find: who is known.
        secret: of this broker, or of all brokers; salts of unknown users are made up from it.
        nonce: makes this side's half of the nonce.
    """

    def __init__(
        self, algorithm: ScramAlgorithm, find: FindIdentity, secret: bytes, nonce: Callable[[], str] = new_nonce
    ) -> None:
        self._algorithm = algorithm
        self._find = find
        self._secret = secret
        self._nonce = nonce
        self._step: Callable[[bytes], ServerStep] = self._first

    def step(self, token: bytes) -> ServerStep:
        step, self._step = self._step, Spent().step
        return step(token)

    def _first(self, token: bytes) -> ServerStep:
        match = _CLIENT_FIRST.fullmatch(_text(token))
        if match is None:
            return Failed()
        name = _name(match["name"])
        if match["authorization"] is not None and _name(match["authorization"]) != name:
            return Failed(_OTHER_USER)
        is_token = _BY_TOKEN in match["extensions"].split(",")
        instead = made_up(self._algorithm, self._secret, name)  # always: it costs what it costs
        found = self._find(name, is_token)
        if found is not None and found.credential.iterations < FEWEST_ITERATIONS:
            found = None
        credential = instead if found is None else found.credential
        nonce = match["nonce"] + self._nonce()
        message = f"r={nonce},s={_base64(credential.salt)},i={credential.iterations}"
        bindings = {_base64(match["header"].encode()), _NO_BINDING}
        before = f"{match['bare']},{message}"
        self._step = lambda token: self._final(token, found, credential, nonce, bindings, before)
        return Challenge(message.encode())

    def _final(
        self,
        token: bytes,
        found: ScramIdentity | None,
        credential: ScramCredential,
        nonce: str,
        bindings: set[str],
        before: str,
    ) -> ServerStep:
        """
        Args:
            found: who it is, if the proof is right; None for nobody, whatever the proof.
            before: of the message that both sides sign.
        """
        match = _CLIENT_FINAL.fullmatch(_text(token))
        if match is None or match["binding"] not in bindings:
            return Failed()
        # Clients of librdkafka before 2.6.1 have their own part before it once more; Apache Kafka takes that too.
        if not hmac.compare_digest(match["nonce"][-len(nonce) :], nonce):
            return Failed()
        signed = f"{before},{match['without_proof']}".encode()
        signature = self._algorithm.keyed(credential.stored_key, signed)
        key = _exclusive_or(base64.b64decode(match["proof"]), signature)
        is_right = hmac.compare_digest(self._algorithm.digest(key), credential.stored_key)
        if found is None or not is_right:
            return Failed()
        proof = _base64(self._algorithm.keyed(credential.server_key, signed))
        return Authenticated(found.principal, found.lifetime_ms, f"v={proof}".encode())


class SaltedPasswords:
    """The derived keys of one user's password, so that a client derives them once for a salt."""

    def __init__(self, password: str) -> None:
        self._password = password
        self._last: tuple[tuple[ScramAlgorithm, bytes, int], bytes] | None = None

    def salted(self, algorithm: ScramAlgorithm, salt: bytes, iterations: int) -> bytes:
        key = (algorithm, salt, iterations)
        last = self._last
        if last is None or last[0] != key:
            last = self._last = key, algorithm.salted_password(self._password, salt, iterations)
        return last[1]


class ScramClient:
    """See `ClientMechanism`.

    Args:
        is_token: the name is the id of a delegation token, and the password its hmac in Base64 (KIP-48).
        nonce: makes this side's half of the nonce.
    """

    def __init__(
        self,
        algorithm: ScramAlgorithm,
        user: str,
        passwords: SaltedPasswords,
        *,
        is_token: bool = False,
        nonce: Callable[[], str] = new_nonce,
    ) -> None:
        self._algorithm = algorithm
        self._passwords = passwords
        self._nonce = nonce()
        name = user.replace("=", "=3D").replace(",", "=2C")
        self._bare = f"n={name},r={self._nonce}{f',{_BY_TOKEN}' if is_token else ''}"
        self._step: Callable[[bytes], ClientStep] = self._first

    def step(self, token: bytes) -> ClientStep:
        step, self._step = self._step, Spent().step
        return step(token)

    def _first(self, token: bytes) -> ClientStep:
        self._step = self._final
        return Challenge(f"n,,{self._bare}".encode())

    def _final(self, token: bytes) -> ClientStep:
        text = _text(token)
        match = _SERVER_FIRST.fullmatch(text)
        if match is None:
            return Failed("the server's first message is not SCRAM's")
        if not match["nonce"].startswith(self._nonce) or len(match["nonce"]) == len(self._nonce):
            return Failed("the server's nonce does not begin with the client's, or adds nothing")
        iterations = int(match["iterations"])
        if not FEWEST_ITERATIONS <= iterations <= _MOST_OF_A_SERVER:
            return Failed(
                f"the server asks for {iterations} iterations; {FEWEST_ITERATIONS} to {_MOST_OF_A_SERVER} are safe"
            )
        algorithm = self._algorithm
        salted = self._passwords.salted(algorithm, base64.b64decode(match["salt"]), iterations)
        final = f"c={_NO_BINDING},r={match['nonce']}"
        signed = f"{self._bare},{text},{final}".encode()
        key = algorithm.keyed(salted, b"Client Key")
        proof = _exclusive_or(key, algorithm.keyed(algorithm.digest(key), signed))
        expected = algorithm.keyed(algorithm.keyed(salted, b"Server Key"), signed)
        self._step = lambda token: self._verify(token, expected)
        return Challenge(f"{final},p={_base64(proof)}".encode())

    def _verify(self, token: bytes, expected: bytes) -> ClientStep:
        match = _SERVER_FINAL.fullmatch(_text(token))
        if match is None or not hmac.compare_digest(base64.b64decode(match["signature"]), expected):
            return Failed("the server does not prove that it knows the password")
        return Complete()


def _text(token: bytes) -> str:
    """What is not ASCII, or longer than `LONGEST_MESSAGE`, matches nothing."""
    return token.decode("ascii", errors="replace") if len(token) <= LONGEST_MESSAGE else ""


def _name(sasl_name: str) -> str:
    return sasl_name.replace("=2C", ",").replace("=3D", "=")


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _exclusive_or(one: bytes, other: bytes) -> bytes:
    """As long as `other`; b"" where they differ in length, which is nobody's key."""
    return bytes(a ^ b for a, b in zip(one, other, strict=True)) if len(one) == len(other) else b""
