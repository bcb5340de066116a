"""How a client logs in by a token: where the token comes from, and when another one is got. Pure.

    an identity provider  the grant of client credentials: clientId, clientSecret and scope of the JAAS line
    a file                the token alone is in it
    nobody                unsecuredLoginStringClaim_sub: a token that no broker takes but one for tests

Source: org.apache.kafka.common.security.oauthbearer.internals: OAuthBearerLoginCallbackHandler,
HttpAccessTokenRetriever, FileTokenRetriever, ExpiringCredentialRefreshingLogin (KIP-768).
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, TypeAlias

from ottla_broker.ports.http import HttpFailed, HttpRequest
from ottla_broker.security.oauth.addresses import Address
from ottla_broker.security.oauth.claims import seconds
from ottla_broker.security.oauth.compact import LONGEST_TOKEN, TokenError, json_object, parse_compact
from ottla_broker.security.oauth.unsecured import UnsecuredClaims, unsecured_claims
from ottla_broker.security.sasl.mechanism import OAUTHBEARER
from ottla_broker.security.sasl.oauthbearer import TOKEN, is_extension
from ottla_broker.security.tls_settings import TlsSettings

if TYPE_CHECKING:
    from ssl import SSLContext

_EXTENSION = "extension_"
_LIMIT_S: Final = 10.0
"""For a token from the identity provider, where the keys about it do not say less for its steps."""
_MOST_BYTES: Final = 64 * 1024


class TokenUnavailable(OSError):
    """A client has no token to log in with. The message has no secret."""


@dataclass(frozen=True, slots=True)
class ClientGrant:
    """A token from an identity provider, by the grant of client credentials (RFC 6749, section 4.4).

    Args:
        scope: "" to ask for none.
        connect_s, read_s: seconds for a connection, and for the next bytes of it.
    """

    address: Address
    client_id: str
    client_secret: str = field(repr=False)
    scope: str = ""
    tls: TlsSettings | None = field(default=None, repr=False)
    connect_s: float = _LIMIT_S
    read_s: float = _LIMIT_S

    def request(self, context: Callable[[], SSLContext] | None) -> HttpRequest:
        """What is asked for."""
        credentials = base64.b64encode(f"{self.client_id}:{self.client_secret}".encode(errors="surrogatepass"))
        form = {"grant_type": "client_credentials", **({"scope": self.scope} if self.scope else {})}
        return HttpRequest(
            self.address.url,
            _LIMIT_S,
            _MOST_BYTES,
            self.connect_s,
            self.read_s,
            {"Authorization": f"Basic {credentials.decode()}", "Cache-Control": "no-cache"},
            form,
            context,
        )


@dataclass(frozen=True, slots=True)
class TokenFile:
    """A token in a file, which others replace before it ends."""

    path: str


TokenOrigin: TypeAlias = ClientGrant | TokenFile | UnsecuredClaims


@dataclass(frozen=True, slots=True)
class RenewalTimes:
    """The keys sasl.login.refresh.window.factor, .window.jitter, .min.period.seconds and .buffer.seconds."""

    factor: float = 0.8
    jitter: float = 0.05
    min_period_s: int = 60
    buffer_s: int = 300

    def renew_at_ms(self, now_ms: int, ends_ms: int, draw: float) -> int:
        """When another token is got in place of one that is new.

        Args:
            draw: from 0 to 1, for the jitter.

        >>> times = RenewalTimes()
        >>> [times.renew_at_ms(0, ends_ms, 0.0) for ends_ms in (3_600_000, 600_000, 10_000)]
        [2880000, 300000, 8000]
        """
        life_ms = max(ends_ms - now_ms, 0)
        wanted = now_ms + int(life_ms * min(self.factor + self.jitter * draw, 1.0))
        if life_ms <= (self.min_period_s + self.buffer_s) * 1000:
            return wanted
        return max(min(wanted, ends_ms - self.buffer_s * 1000), now_ms + self.min_period_s * 1000)


@dataclass(frozen=True, slots=True)
class TokenLogin:
    """By a token.

    Args:
        extensions: that are sent with it (KIP-342).
    """

    origin: TokenOrigin
    extensions: tuple[tuple[str, str], ...] = ()
    renewal: RenewalTimes = RenewalTimes()

    @property
    def mechanism(self) -> str:
        return OAUTHBEARER

    @property
    def username(self) -> str:
        """For messages: the user is whom the token names."""
        match self.origin:
            case ClientGrant(client_id=client_id):
                return client_id
            case TokenFile(path=path):
                return path
            case UnsecuredClaims(texts=texts):
                return dict(texts)["sub"]


def token_login(
    address: Address | None,
    options: Mapping[str, str],
    tls: TlsSettings | None,
    renewal: RenewalTimes = RenewalTimes(),
    *,
    connect_ms: int | None = None,
    read_ms: int | None = None,
) -> TokenLogin:
    """What a JAAS line says.

    Args:
        address: where tokens come from; None: they are unsigned.
        tls: to it.

    Raises:
        ValueError: an option is missing, not served, or has a value that cannot be used; the message names it.
    """
    extensions = tuple(
        (name.removeprefix(_EXTENSION), value) for name, value in options.items() if name.startswith(_EXTENSION)
    )
    for name, value in extensions:
        if not is_extension(name, value):
            raise ValueError(
                f"{_EXTENSION}NAME needs a NAME of letters that is not auth, and a value of printable ASCII"
            )
    return TokenLogin(_origin(address, options, tls, connect_ms, read_ms), extensions, renewal)


def _origin(
    address: Address | None,
    options: Mapping[str, str],
    tls: TlsSettings | None,
    connect_ms: int | None,
    read_ms: int | None,
) -> TokenOrigin:
    if address is None:
        claims = unsecured_claims(options)
        if claims is None:
            raise ValueError(
                "it has no unsecuredLoginStringClaim_sub, and no sasl.oauthbearer.token.endpoint.url is given"
            )
        return claims
    if address.path:
        return TokenFile(address.path)
    for name in ("clientId", "clientSecret"):
        if not options.get(name):
            raise ValueError(f"it has no {name}, which the identity provider asks for")
    connect_s, read_s = (_LIMIT_S if one is None else max(one, 1) / 1000 for one in (connect_ms, read_ms))
    return ClientGrant(
        address, options["clientId"], options["clientSecret"], options.get("scope", "").strip(), tls, connect_s, read_s
    )


@dataclass(frozen=True, slots=True)
class HeldToken:
    """A token that a client has got by a login."""

    login: TokenLogin
    text: str = field(repr=False)
    renew_at_ms: int
    ends_ms: int

    def is_fresh(self, now_ms: int) -> bool:
        """Whether no other one is to be got in its place."""
        return now_ms < min(self.renew_at_ms, self.ends_ms)


class HeldTokens:
    """The tokens of a process, one for each login, until they end."""

    def __init__(self) -> None:
        self._by_login: dict[TokenLogin, HeldToken] = {}

    def of(self, login: TokenLogin, now_ms: int) -> HeldToken | None:
        """The token of a login, if it has one that has not ended."""
        held = self._by_login.get(login)
        return held if held is not None and now_ms < held.ends_ms else None

    def put(self, held: HeldToken, now_ms: int) -> None:
        """Holds it in place of the one before, and lets go of those that have ended."""
        self._by_login = {login: one for login, one in self._by_login.items() if now_ms < one.ends_ms}
        self._by_login[held.login] = held


def held_token(login: TokenLogin, answer: bytes, now_ms: int, draw: float) -> HeldToken:
    """The token of an origin.

    Args:
        answer: the body of the identity provider's answer, or what is in the file.
        draw: from 0 to 1.

    Raises:
        TokenUnavailable: it is no token, or one that has ended.
    """
    try:
        text = _from_answer(answer) if isinstance(login.origin, ClientGrant) else answer.decode("ascii").strip()
        if TOKEN.fullmatch(text) is None:
            raise TokenError("it is no token")
        ends = seconds(parse_compact(text).claims, "exp")
        if ends is None:
            raise TokenError("it has no claim exp")
        if ends * 1000 <= now_ms:
            raise TokenError("it has expired")
    except (TokenError, UnicodeDecodeError) as error:
        reason = str(error) if isinstance(error, TokenError) else "it is no token"
        raise TokenUnavailable(f"the token of {login.username} cannot be used: {reason}") from None
    return HeldToken(login, text, login.renewal.renew_at_ms(now_ms, ends * 1000, draw), ends * 1000)


def unavailable(login: TokenLogin, error: OSError) -> TokenUnavailable:
    """What is raised where the origin of a token gives none."""
    said = _said(error.body) if isinstance(error, HttpFailed) else ""
    reason = str(error) if isinstance(error, HttpFailed) else error.strerror or type(error).__name__
    return TokenUnavailable(f"no token for {login.username}: {reason}{said}")


def _from_answer(answer: bytes) -> str:
    token = json_object(answer, "the answer of the identity provider").get("access_token")
    if not isinstance(token, str):
        raise TokenError("the answer of the identity provider has no access_token")
    if len(token) > LONGEST_TOKEN:
        raise TokenError(f"it has more than {LONGEST_TOKEN} characters")
    return token.strip()


def _said(body: bytes) -> str:
    """The error of RFC 6749, section 5.2: one of few words."""
    try:
        error = json_object(body, "the answer").get("error")
    except TokenError:
        return ""
    is_word = isinstance(error, str) and error.isascii() and error.replace("_", "").isalpha() and len(error) < 40
    return f" ({error})" if is_word else ""
