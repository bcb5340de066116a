"""What a SASL listener answers, row by row of what was seen on Apache Kafka 3.9.1, and that no bytes reach a handler
before the client has authenticated."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla_broker.protocol import codec
from ottla_broker.protocol.api import ApiKey
from ottla_broker.protocol.errors import ErrorCode
from ottla_broker.protocol.generated.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from ottla_broker.protocol.generated.heartbeat import HeartbeatRequest
from ottla_broker.protocol.generated.metadata import MetadataRequest, MetadataResponse
from ottla_broker.protocol.generated.produce import ProduceRequest, ProduceResponse
from ottla_broker.protocol.generated.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from ottla_broker.protocol.generated.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from ottla_broker.security.principals import USER, Principal
from ottla_broker.security.sasl.mechanism import OAUTHBEARER, PLAIN, SCRAM_SHA_512, Challenge
from ottla_broker.security.sasl.oauthbearer import AcceptedToken, OAuthBearerServer, RefusedToken
from ottla_broker.security.sasl.plain import PlainServer
from ottla_broker.security.sasl.scram import (
    SaltedPasswords,
    ScramAlgorithm,
    ScramClient,
    ScramCredential,
    ScramIdentity,
    ScramServer,
)
from ottla_broker.server.edge.dispatch import served
from ottla_broker.server.edge.sasl_connection import SaslConnection, SaslRules, TakeStep
from ottla_broker.server.handler_api import RequestContext
from tests.broker.server.edge.test_throttling import Edge, Socket

USERS = {"alice": "alice-secret", "bob": "bob-secret"}
GOOD, BAD = b"\0alice\0alice-secret", b"\0alice\0no"
CREDENTIAL = ScramCredential.of(ScramAlgorithm.SHA_512, "alice-secret", b"salt", 4096)
ILLEGAL, FAILED = int(ErrorCode.ILLEGAL_SASL_STATE), int(ErrorCode.SASL_AUTHENTICATION_FAILED)
DELAY_S, LIMIT_S = 0.1, 10.0
OF_TOKEN = Principal(USER, "alice", by_token=True)
"""Who logs in by the delegation token `token`, whose hmac is alice's password."""
TOKEN_MS = 5000
BEARERS = {"good": AcceptedToken("alice", TOKEN_MS), "bobs": AcceptedToken("bob", TOKEN_MS)}
INVALID = b'{"status":"invalid_token"}'


class SaslSocket(Socket):
    def __init__(self) -> None:
        super().__init__()
        self.largest = 0
        self.is_closing = False

    def limit_frames(self, max_bytes: int) -> None:
        self.largest = max_bytes

    def close_after_send(self) -> None:
        self.is_closed = True


class Outcomes:
    def __init__(self) -> None:
        self.seen: list[str] = []

    def succeeded(self, *, again: bool) -> None:
        self.seen.append("again" if again else "succeeded")

    def failed(self, *, again: bool) -> None:
        self.seen.append("failed again" if again else "failed")

    def expired(self) -> None:
        self.seen.append("expired")


class Listener:
    """One connection to a SASL listener. Requests that are served are answered at once, unless `holds` says so."""

    def __init__(self, **reauth_ms: int) -> None:
        self.edge = Edge()
        self.socket = SaslSocket()
        self.outcomes = Outcomes()
        self.served: list[tuple[ApiKey, Principal]] = []
        self.held: list[RequestContext] = []
        self.holds = False
        client: Any = self.edge.connection
        socket: Any = self.socket
        client._connection = socket
        self.edge._dispatch = self._dispatch  # type: ignore[method-assign]
        client._environment = _replaced(client._environment, self._dispatch)

        def find(name: str, is_token: bool) -> ScramIdentity | None:
            if is_token:
                return ScramIdentity(CREDENTIAL, OF_TOKEN, TOKEN_MS) if name == "token" else None
            return ScramIdentity(CREDENTIAL, Principal(USER, name)) if name in USERS else None

        rules = SaslRules(
            {
                PLAIN: lambda: PlainServer(lambda: USERS),
                SCRAM_SHA_512: lambda: ScramServer(ScramAlgorithm.SHA_512, find, b"secret"),
                OAUTHBEARER: lambda: OAuthBearerServer(lambda token: BEARERS.get(token, RefusedToken())),
            },
            {name.replace("_", "-").upper(): value for name, value in reauth_ms.items()},
            524288,
            100 << 20,
            DELAY_S,
            LIMIT_S,
            self.outcomes,
            self.beside,
        )
        clock: Any = self.edge.clock
        self.gate = SaslConnection(client, socket, rules, self._dispatch, clock.monotonic, clock.call_later)
        client.reauthenticate = self.gate.reauthenticate
        self.client = client
        self.socket.handler = self.gate
        self._sent: list[tuple[int, int]] = []

    def _dispatch(self, context: RequestContext, frame: memoryview, body_offset: int) -> None:
        self.served.append((ApiKey(context.api_key), context.principal))
        if self.holds:
            self.held.append(context)
        else:
            self.answer(context)

    def answer(self, context: RequestContext) -> None:
        key = context.api_key
        response: Any
        if key == ApiKey.API_VERSIONS:
            context.api_version = min(context.api_version, 4)
            response = ApiVersionsResponse(error_code=self.versions_error, api_keys=[ApiVersion(api_key=18)])
        elif key == ApiKey.SASL_HANDSHAKE:
            response = SaslHandshakeResponse(error_code=ILLEGAL)
        elif key == ApiKey.SASL_AUTHENTICATE:
            response = SaslAuthenticateResponse(error_code=ILLEGAL, error_message="after successful authentication")
        else:
            response = codec.module(key).__dict__[f"{codec.spec(key).name}Response"]()
        context.respond(response)

    versions_error = 0

    @property
    def beside(self) -> Mapping[str, TakeStep]:
        return {}

    # What a client does

    def send(self, key: ApiKey, version: int, request: Any) -> None:
        self._sent.append((int(key), version))
        self.raw(_frame(key, version, request))

    def raw(self, frame: bytes) -> None:
        self.socket.receive(memoryview(frame))

    def handshake(self, mechanism: str = PLAIN, version: int = 1) -> Any:
        self.send(ApiKey.SASL_HANDSHAKE, version, SaslHandshakeRequest(mechanism=mechanism))
        return self.received()

    def authenticate(self, token: bytes, version: int = 1) -> Any:
        self.send(ApiKey.SASL_AUTHENTICATE, version, SaslAuthenticateRequest(auth_bytes=token))
        return self.received()

    def versions(self, version: int = 3) -> Any:
        self.send(ApiKey.API_VERSIONS, version, ApiVersionsRequest())
        return self.received()

    def metadata(self) -> Any:
        self.send(ApiKey.METADATA, 4, MetadataRequest(topics=None))
        return self.received()

    def login(self, **more: Any) -> Listener:
        assert self.handshake().error_code == 0
        assert self.authenticate(GOOD, **more).error_code == 0
        return self

    def received(self) -> Any:
        """The next response; None without one."""
        if not self.socket.sent:
            return None
        data = self.socket.sent.pop(0)
        key, version = self._sent.pop(0)
        return codec.read_response_frame(key, version, memoryview(data)[4:])[1]

    def wait(self, seconds: float = DELAY_S) -> None:
        self.edge.clock.advance(seconds)

    @property
    def is_closed(self) -> bool:
        return self.socket.is_closed

    def is_refused(self) -> bool:
        """Nothing has been answered yet and nothing is read; when the delay is over the connection is closed."""
        assert not self.socket.is_closed
        assert not self.socket.sent
        before = len(self.served)
        self.raw(b"\0" * 20)
        assert len(self.served) == before
        self.wait(DELAY_S / 2)
        assert not self.socket.is_closed, "not before its time"
        self.wait(DELAY_S)
        return self.socket.is_closed


def _replaced(environment: Any, dispatch: Any) -> Any:
    from dataclasses import replace

    return replace(environment, dispatch=dispatch)


# Before authentication


@pytest.mark.parametrize("version", [0, 1, 2, 3, 4])
def test_api_versions_is_answered_once_before_authentication(version: int) -> None:
    one = Listener()
    assert one.versions(version).api_keys
    assert one.login().metadata() is not None
    again = Listener()
    again.versions(version)
    assert again.versions() is None
    assert again.is_closed


def test_api_versions_of_a_version_that_nobody_knows_may_be_followed_by_another() -> None:
    """KIP-511."""
    one = Listener()
    one.versions_error = int(ErrorCode.UNSUPPORTED_VERSION)
    one.raw(b"\0\x12\0\x63\0\0\0\7\xff\xff")
    assert one.served[0][0] is ApiKey.API_VERSIONS
    one.socket.sent.clear()
    one.versions_error = 0
    assert one.versions().error_code == 0
    one.login()


def test_the_software_of_a_client_is_known_from_before_it_authenticates() -> None:
    one = Listener()
    one.holds = True
    one.versions()
    one.held[0].connection.client_software = ("tester", "1")
    one.answer(one.held[0])
    assert one.client.client_software == ("tester", "1")


def test_a_client_that_does_not_wait_for_api_versions_is_served_in_order() -> None:
    one = Listener()
    one.holds = True
    assert one.versions() is None
    assert one.handshake() is None
    assert not one.socket.is_read
    one.holds = False
    one.answer(one.held[0])
    assert one.received().api_keys
    assert one.received().error_code == 0
    assert one.authenticate(GOOD).error_code == 0


@pytest.mark.parametrize(
    "send",
    [
        lambda one: one.metadata(),
        lambda one: one.authenticate(GOOD),
        lambda one: one.raw(b"GET / HTTP/1.1\r\n\r\n"),
        lambda one: one.raw(b""),
        lambda one: one.raw(b"\x16\x03\x01\x02\0\x01\0\x01\xfc\x03\x03"),
        lambda one: one.raw(b"\0\x11\0\x63\0\0\0\7\xff\xff"),
    ],
)
@pytest.mark.parametrize("asks_first", [False, True])
def test_any_other_request_first_is_not_answered(send: Callable[[Listener], Any], asks_first: bool) -> None:
    one = Listener()
    if asks_first:
        one.versions()
    assert send(one) is None
    assert one.is_refused()
    assert not one.socket.sent
    assert [key for key, _ in one.served] == [ApiKey.API_VERSIONS] * asks_first
    assert one.outcomes.seen == ["failed"]


# The handshake


def test_a_known_mechanism_is_answered_with_those_of_the_listener() -> None:
    answer = Listener().handshake()
    assert (answer.error_code, list(answer.mechanisms)) == (0, [PLAIN, SCRAM_SHA_512, OAUTHBEARER])


@pytest.mark.parametrize("version", [0, 1])
def test_an_unknown_mechanism_is_answered_later_with_those_of_the_listener(version: int) -> None:
    one = Listener()
    assert one.handshake("GSSAPI", version) is None
    assert one.is_refused()
    answer = one.received()
    assert answer.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM
    assert list(answer.mechanisms) == [PLAIN, SCRAM_SHA_512, OAUTHBEARER]


@pytest.mark.parametrize(
    ("send", "is_answered"),
    [
        (lambda one: one.handshake(), True),
        (lambda one: one.versions(0), True),
        (lambda one: one.send(ApiKey.HEARTBEAT, 1, HeartbeatRequest()), True),
        (lambda one: one.metadata(), False),
        (lambda one: one.raw(b"\xff" * 30), False),
    ],
)
def test_another_request_than_sasl_authenticate_is_illegal_behind_the_handshake(
    send: Callable[[Listener], Any], is_answered: bool
) -> None:
    one = Listener()
    one.handshake()
    assert send(one) is None
    assert one.is_refused()
    answer = one.received()
    assert (answer is not None) == is_answered
    if is_answered:
        assert answer.error_code == ILLEGAL


@pytest.mark.parametrize("key", [one.api_key for one in served({}) if one.api_key != ApiKey.SASL_AUTHENTICATE])
def test_every_request_in_place_of_sasl_authenticate_ends_the_connection(key: ApiKey) -> None:
    spec = codec.spec(key)
    for version in range(spec.min_version, spec.max_version + 1):
        one = Listener()
        one.handshake()
        header = key.to_bytes(2, "big") + version.to_bytes(2, "big") + b"\0\0\0\7\xff\xff\0"
        one.raw(header[: (8, 10, 11)[spec.request_header_version(version)]])
        assert one.is_refused()
        assert [key for key, _ in one.served] == []


# Tokens


def test_bare_tokens_behind_a_handshake_of_version_0() -> None:
    one = Listener()
    one.handshake(version=0)
    one.raw(GOOD)
    assert one.socket.sent.pop() == b"\0\0\0\0", "an empty token"
    assert one.metadata() is not None
    assert one.served == [(ApiKey.METADATA, Principal(USER, "alice"))]


def test_a_bad_bare_token_is_not_answered() -> None:
    one = Listener()
    one.handshake(version=0)
    one.raw(BAD)
    assert one.is_refused()
    assert not one.socket.sent


@pytest.mark.parametrize("version", [0, 1, 2])
@pytest.mark.parametrize(
    ("token", "message"),
    [
        (BAD, "Authentication failed: Invalid username or password"),
        (b"\0zed\0x", "Authentication failed: Invalid username or password"),
        (b"alice", "Invalid SASL/PLAIN response: expected 3 tokens, got 1"),
    ],
)
def test_a_bad_token_is_answered_later_with_the_reason(version: int, token: bytes, message: str) -> None:
    one = Listener()
    one.handshake()
    assert one.authenticate(token, version) is None
    assert one.is_refused()
    answer = one.received()
    assert (answer.error_code, answer.error_message) == (FAILED, message)
    assert one.outcomes.seen == ["failed"]
    assert not one.served


@pytest.mark.parametrize("version", [0, 1, 2])
def test_a_good_token_is_answered_and_what_follows_has_a_principal(version: int) -> None:
    one = Listener()
    one.handshake()
    answer = one.authenticate(GOOD, version)
    assert (answer.error_code, answer.error_message, bytes(answer.auth_bytes)) == (0, "", b"")
    assert getattr(answer, "session_lifetime_ms", 0) == 0
    one.metadata()
    assert one.served == [(ApiKey.METADATA, Principal(USER, "alice"))]
    assert (one.client.principal_name, one.outcomes.seen) == ("alice", ["succeeded"])


@pytest.mark.parametrize(
    ("user", "password", "is_in"), [("alice", "alice-secret", 1), ("alice", "x", 0), ("z", "x", 0)]
)
def test_scram_takes_two_tokens(user: str, password: str, is_in: int) -> None:
    one = Listener()
    one.handshake(SCRAM_SHA_512)
    client = ScramClient(ScramAlgorithm.SHA_512, user, SaltedPasswords(password))
    first = client.step(b"")
    assert isinstance(first, Challenge)
    final = client.step(bytes(one.authenticate(first.token).auth_bytes))
    assert isinstance(final, Challenge)
    answer = one.authenticate(final.token)
    if is_in:
        assert answer.error_code == 0
        assert not hasattr(client.step(bytes(answer.auth_bytes)), "message")
    else:
        assert one.is_refused()
        assert one.received().error_message == (
            "Authentication failed during authentication due to invalid credentials with SASL mechanism SCRAM-SHA-512"
        )


# Bounds


def test_frames_are_bounded_before_authentication() -> None:
    one = Listener()
    assert one.socket.largest == 524288
    one.login()
    assert one.socket.largest == 100 << 20


@pytest.mark.parametrize("far", [lambda one: None, lambda one: one.versions(), lambda one: one.handshake()])
def test_a_client_that_does_not_authenticate_in_time_is_closed(far: Callable[[Listener], Any]) -> None:
    one = Listener()
    far(one)
    one.wait(LIMIT_S - 0.1)
    assert not one.is_closed
    one.wait(0.2)
    assert one.is_closed


def test_one_that_has_authenticated_stays() -> None:
    one = Listener().login()
    one.wait(100 * LIMIT_S)
    assert one.metadata() is not None
    assert not one.is_closed


@pytest.mark.parametrize("far", [lambda one: None, lambda one: one.handshake(), lambda one: one.metadata()])
def test_nothing_is_left_of_a_client_that_goes_before_it_has_authenticated(far: Callable[[Listener], Any]) -> None:
    one = Listener()
    far(one)
    assert any(timer.callback is not None for timer in one.edge.clock.timers)
    one.gate.on_close("")
    assert all(timer.callback is None for timer in one.edge.clock.timers)


# Sessions (KIP-368)


@pytest.mark.parametrize("version", [0, 1, 2])
def test_a_session_that_is_over_is_closed_at_its_next_request(version: int) -> None:
    one = Listener(plain=3000)
    one.handshake()
    answer = one.authenticate(GOOD, version)
    if version:
        assert answer.session_lifetime_ms == 3000
    one.wait(2.9)
    assert one.metadata() is not None
    one.wait(60)
    assert not one.is_closed, "an idle connection is left alone"
    assert one.metadata() is None
    assert one.is_closed
    assert one.outcomes.seen == ["succeeded", "expired"]


@pytest.mark.parametrize("waits_s", [0, 2, 50])
@pytest.mark.parametrize("version", [0, 1])
def test_a_client_authenticates_again_on_time_early_or_late(waits_s: float, version: int) -> None:
    one = Listener(plain=3000).login()
    one.wait(waits_s)
    assert one.handshake(version=version).error_code == 0
    if version:
        assert one.authenticate(GOOD).session_lifetime_ms == 3000
    else:
        one.raw(GOOD)
        assert one.socket.sent.pop() == b"\0\0\0\0"
    one.wait(2.9)
    assert one.metadata() is not None
    assert one.outcomes.seen == ["succeeded", "again"]
    one.wait(0.2)
    assert one.metadata() is None


def by_scram(one: Listener, user: str, *, is_token: bool) -> int:
    """The lifetime of the session."""
    assert one.handshake(SCRAM_SHA_512).error_code == 0
    client = ScramClient(ScramAlgorithm.SHA_512, user, SaltedPasswords("alice-secret"), is_token=is_token)
    token, answer = b"", None
    while isinstance(step := client.step(token), Challenge):
        answer = one.authenticate(step.token)
        assert answer.error_code == 0
        token = bytes(answer.auth_bytes)
    assert answer is not None
    return int(answer.session_lifetime_ms)


def test_a_session_by_a_token_ends_with_it() -> None:
    one = Listener()
    assert by_scram(one, "token", is_token=True) == TOKEN_MS
    one.wait(4.9)
    assert one.metadata() is not None
    one.wait(0.2)
    assert one.metadata() is None
    assert one.is_closed
    assert by_scram(Listener(scram_sha_512=3000), "token", is_token=True) == 3000


def bearer(token: str) -> bytes:
    return f"n,,\x01auth=Bearer {token}\x01\x01".encode()


@pytest.mark.parametrize(("reauth_ms", "lifetime_ms"), [(0, 5000), (3000, 3000), (60_000, 5000)])
def test_a_session_by_oauthbearer_ends_with_the_token_or_before(reauth_ms: int, lifetime_ms: int) -> None:
    one = Listener(oauthbearer=reauth_ms)
    assert one.handshake(OAUTHBEARER).error_code == 0
    answer = one.authenticate(bearer("good"))
    assert (answer.error_code, answer.session_lifetime_ms, answer.auth_bytes) == (0, lifetime_ms, b"")
    one.wait(lifetime_ms / 1000 - 0.1)
    assert one.metadata() is not None
    one.wait(0.2)
    assert one.metadata() is None
    assert one.is_closed


def test_a_bad_token_of_oauthbearer_is_told_and_fails_when_the_client_has_heard_it() -> None:
    one = Listener()
    one.handshake(OAUTHBEARER)
    answer = one.authenticate(bearer("bad"))
    assert (answer.error_code, answer.session_lifetime_ms, answer.auth_bytes) == (0, 0, INVALID)
    assert not one.is_closed
    assert one.authenticate(b"\x01") is None
    assert one.is_refused(), "it is told later"
    answer = one.received()
    assert (answer.error_code, answer.error_message) == (FAILED, INVALID.decode())
    assert one.is_closed
    assert one.outcomes.seen == ["failed"]


def test_a_token_of_another_user_does_not_go_on_with_a_session() -> None:
    one = Listener()
    one.handshake(OAUTHBEARER)
    one.authenticate(bearer("good"))
    one.wait(2)
    one.handshake(OAUTHBEARER)
    assert one.authenticate(bearer("bobs")) is None
    assert one.is_refused()
    assert "Cannot change principals" in one.received().error_message
    assert one.is_closed


def test_who_authenticates_again_by_a_token_came_by_it_from_then_on_and_the_other_way_round() -> None:
    one = Listener(scram_sha_512=60_000)
    by_scram(one, "alice", is_token=False)
    for user in ("token", "alice"):
        one.wait(2)
        by_scram(one, user, is_token=user == "token")
        one.metadata()
        principal = one.served[-1][1]
        assert (principal, principal.by_token) == (OF_TOKEN, user == "token")
    assert not one.is_closed


def test_a_second_time_within_a_second_is_illegal_and_the_connection_stays() -> None:
    one = Listener(plain=3000).login()
    one.handshake()
    one.authenticate(GOOD)
    one.wait(0.9)
    assert one.handshake().error_code == ILLEGAL
    assert one.metadata() is not None
    one.wait(0.2)
    assert one.handshake().error_code == 0
    assert one.authenticate(GOOD).error_code == 0


def test_a_session_without_an_end_cannot_begin_again() -> None:
    one = Listener().login()
    for _ in range(2):
        assert one.handshake().error_code == ILLEGAL
    assert one.authenticate(GOOD).error_code == ILLEGAL
    assert one.metadata() is not None


def test_responses_of_requests_in_flight_come_before_that_of_the_handshake() -> None:
    one = Listener(plain=3000).login()
    one.holds = True
    one.send(ApiKey.PRODUCE, 9, ProduceRequest(acks=1))
    one.send(ApiKey.PRODUCE, 9, ProduceRequest(acks=1))
    assert one.handshake() is None
    assert len(one.served) == 2
    for context in one.held:
        context.respond(ProduceResponse())
    assert isinstance(one.received(), ProduceResponse)
    assert isinstance(one.received(), ProduceResponse)
    assert one.received().error_code == 0
    one.holds = False
    assert one.authenticate(GOOD).error_code == 0
    assert isinstance(one.metadata(), MetadataResponse)


def test_requests_are_not_served_while_a_client_authenticates_again() -> None:
    one = Listener(plain=3000).login()
    one.metadata()
    one.handshake()
    assert one.metadata() is None
    assert one.is_refused()
    assert len(one.served) == 1


def test_another_principal_is_refused() -> None:
    one = Listener(plain=3000).login()
    one.handshake()
    assert one.authenticate(b"\0bob\0bob-secret") is None
    assert one.is_refused()
    answer = one.received()
    assert (answer.error_code, answer.error_message) == (
        FAILED,
        "Cannot change principals during re-authentication from User.alice: User.bob",
    )
    assert one.outcomes.seen == ["succeeded", "failed again"]
    assert one.client.principal_name == "alice"


def test_another_mechanism_is_closed_at_its_first_token() -> None:
    one = Listener(plain=3000).login()
    assert one.handshake(SCRAM_SHA_512).error_code == 0
    assert one.authenticate(b"n,,n=alice,r=abc") is None
    assert one.is_refused()
    assert not one.socket.sent


def test_an_unknown_mechanism_of_later_is_not_answered() -> None:
    one = Listener(plain=3000).login()
    assert one.handshake("GSSAPI") is None
    assert one.is_refused()
    assert not one.socket.sent


def test_a_wrong_password_of_later_ends_the_connection() -> None:
    one = Listener(plain=3000).login()
    one.handshake()
    assert one.authenticate(BAD) is None
    assert one.is_refused()
    assert one.received().error_code == FAILED


def test_one_that_does_not_end_what_it_began_again_is_closed() -> None:
    one = Listener(plain=60000).login()
    one.handshake()
    one.wait(LIMIT_S + 1)
    assert one.is_closed


# Anything else


def _frame(key: ApiKey, version: int, request: Any) -> bytes:
    chunks: Any = codec.frame_request(int(key), version, 7, "c", request)
    return b"".join(bytes(one) for one in chunks)[4:]


pieces = st.one_of(
    st.binary(max_size=60),
    st.sampled_from([GOOD, BAD, b""]),
    st.builds(
        lambda mechanism, version: _frame(ApiKey.SASL_HANDSHAKE, version, SaslHandshakeRequest(mechanism=mechanism)),
        st.sampled_from([PLAIN, SCRAM_SHA_512, OAUTHBEARER, "GSSAPI"]),
        st.sampled_from([0, 1]),
    ),
    st.builds(
        lambda token, version: _frame(ApiKey.SASL_AUTHENTICATE, version, SaslAuthenticateRequest(auth_bytes=token)),
        st.sampled_from([GOOD, BAD, b"\0bob\0bob-secret", b"n,,n=alice,r=abc", bearer("good"), bearer("bad"), b"\x01"]),
        st.sampled_from([0, 1, 2]),
    ),
    st.builds(lambda version: _frame(ApiKey.API_VERSIONS, version, ApiVersionsRequest()), st.integers(0, 4)),
    st.just(_frame(ApiKey.METADATA, 4, MetadataRequest(topics=None))),
    st.just(_frame(ApiKey.HEARTBEAT, 4, HeartbeatRequest())),
)


@given(st.lists(st.tuples(pieces, st.floats(0, 4)), max_size=12))
def test_no_bytes_reach_a_handler_before_a_client_has_authenticated(sent: list[tuple[bytes, float]]) -> None:
    one = Listener(plain=3000)
    for frame, wait_s in sent:
        if one.is_closed:
            break
        before = len(one.served)
        one.raw(frame)
        for key, principal in one.served[before:]:
            assert key is ApiKey.API_VERSIONS or principal in (Principal(USER, "alice"), Principal(USER, "bob"))
            if principal.name == "ANONYMOUS":
                assert not one.outcomes.seen
        one.wait(wait_s)
