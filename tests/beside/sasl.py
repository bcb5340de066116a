"""Sequences of what clients send to a SASL listener, asked of two brokers: their answers, and whether they stay open.

What differs, and is not drawn: an unknown user of SCRAM, who hears so at the first message from Apache Kafka, and here
where a wrong password is; a request behind SaslHandshake whose answer has no error code of its own, as that of
Metadata, which is not answered here; `c=` of another message than `n,,`, which Apache Kafka does not look at.
"""

from __future__ import annotations

import contextlib
import random
import struct
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from ottla.local.ports import free_port
from ottla.local.zookeeper_server import ZooKeeperServer
from ottla_broker.protocol import codec
from ottla_broker.protocol.api import ApiKey
from ottla_broker.protocol.errors import ErrorCode
from ottla_broker.protocol.generated import alter_user_scram_credentials as alter
from ottla_broker.security.sasl.jaas import OAUTHBEARER_MODULE, PLAIN_MODULE, SCRAM_MODULE
from ottla_broker.security.sasl.mechanism import Challenge
from ottla_broker.security.sasl.scram import SaltedPasswords, ScramAlgorithm, ScramClient
from tests.beside import tokens
from tests.beside.comparison import own_chroot
from tests.integration.apache_kafka import ApacheKafka
from tests.integration.local_fleet import eventually
from tests.integration.processes import BrokerProcess
from tests.integration.wire import Wire

USERS = {"alice": "alice-secret", "bob": "bob-secret"}
SESSION_MS = 3000
_LIMIT_S = 20.0
_QUIET_S = 1.0
"""After a failure both have closed the connection by then: Apache Kafka's delay of 0.1 s takes it up to 0.4 s."""


class Step(NamedTuple):
    """What a client does next; `what` is a method of `Client`."""

    what: str
    arguments: tuple[Any, ...] = ()


def step(what: str, *arguments: Any) -> Step:
    return Step(what, arguments)


GOOD = b"\0alice\0alice-secret"
_IN = (step("handshake"), step("authenticate", GOOD))
_AGAIN = (step("wait", 1.1), step("handshake"))
_REASSURED = step("metadata")

SEQUENCES: tuple[tuple[Step, ...], ...] = (
    *((step("versions", version), *_IN, _REASSURED) for version in range(5)),
    (step("versions", 3), step("versions", 3)),
    (step("versions", 99), step("versions", 3), *_IN),
    (step("metadata"),),
    (step("authenticate", GOOD),),
    (step("versions", 3), step("metadata")),
    (step("versions", 3), step("authenticate", GOOD)),
    *((step("handshake", name, version),) for name in ("GSSAPI", "", "plain") for version in (0, 1)),
    (step("handshake"), step("handshake")),
    (step("handshake"), step("versions", 0)),
    (step("handshake"), step("versions", 3)),
    (step("handshake"), step("heartbeat")),
    (step("handshake", "PLAIN", 0), step("token", GOOD), _REASSURED),
    (step("handshake", "PLAIN", 0), step("token", b"\0alice\0no")),
    (step("handshake", "PLAIN", 0), step("token", b"")),
    *(
        (step("handshake"), step("authenticate", token, version), _REASSURED)
        for version in range(3)
        for token in (GOOD, b"\0alice\0no")
    ),
    *(
        (step("handshake"), step("authenticate", token))
        for token in (
            b"",
            b"alice",
            b"\0zed\0x",
            b"\0alice\0",
            b"\0\0x",
            b"\0\0\0\0",
            b"\xff\0\xff",
            b"bob\0alice\0alice-secret",
            b"bob\0alice\0no",
            b"alice\0alice\0alice-secret",
        )
    ),
    *(
        (step("handshake", "SCRAM-SHA-512"), step("authenticate", token))
        for token in (b"", b"zzzz", b"y,,n=alice,r=abc", b"p=tls-unique,,n=alice,r=abc", b"n,a=bob,n=alice,r=abc")
    ),
    *(
        (step("handshake", name, version), step("scram", name, "alice", password), _REASSURED)
        for name in ("SCRAM-SHA-256", "SCRAM-SHA-512")
        for version in (0, 1)
        for password in ("alice-secret", "no")
    ),
    (step("raw", b"\x7f\xff\xff\xff"),),
    (step("raw", b"\xff\xff\xff\xff"),),
    (step("raw", struct.pack(">i", 524289)),),
    (step("raw", b"GET / HTTP/1.1\r\n\r\n"),),
    (step("raw", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"),),
    (step("frame", b""),),
    (*_IN, step("handshake"), step("authenticate", GOOD), step("handshake"), _REASSURED),
    (*_IN, step("authenticate", GOOD), _REASSURED),
    (*_IN, step("handshake"), step("authenticate", b"\0bob\0bob-secret")),
    (*_IN, step("handshake"), step("authenticate", b"\0alice\0no")),
    (*_IN, step("handshake", "SCRAM-SHA-512"), step("authenticate", b"n,,n=alice,r=abc")),
    (*_IN, step("handshake", "PLAIN", 0), step("token", GOOD), _REASSURED),
    (*_IN, step("handshake", "GSSAPI")),
    (*_IN, step("handshake"), step("heartbeat")),
    (*_IN, step("handshake"), step("versions", 0)),
    (*_IN, step("wait", 3.5), _REASSURED),
    (step("handshake"), step("authenticate", GOOD, 0), step("wait", 3.5), _REASSURED),
    (*_IN, step("wait", 3.5), step("handshake"), step("authenticate", GOOD), _REASSURED),
    (*_IN, step("wait", 3.5), step("versions", 3)),
    (*_IN, *_AGAIN, step("authenticate", GOOD), *_AGAIN, step("authenticate", GOOD), _REASSURED),
)

_BEARER = step("handshake", "OAUTHBEARER")
_HEARD = step("authenticate", b"\x01")


def _bearer(name: str, listener: str = "SASL_PLAINTEXT") -> Step:
    return step("bearer", listener, name)


TOKEN_SEQUENCES: tuple[tuple[Step, ...], ...] = (
    *((_BEARER, _bearer(name), _HEARD) for name in tokens.SIGNED),
    *((_BEARER, _bearer(name, "STRICT"), _HEARD) for name in tokens.STRICT),
    *((_BEARER, _bearer(name, "UNSIGNED"), _HEARD) for name in tokens.UNSIGNED),
    *((_BEARER, step("authenticate", message)) for message in tokens.MALFORMED),
    (_BEARER, _bearer("RSA"), _REASSURED),
    (_BEARER, _bearer("expired"), _bearer("RSA"), _REASSURED),
    (_BEARER, _bearer("expired"), _bearer("expired"), _HEARD),
    (_BEARER, _bearer("expired"), step("authenticate", b"x")),
    (_BEARER, _bearer("expired"), step("heartbeat")),
    (_BEARER, _bearer("RSA"), _HEARD),
    (_BEARER, _bearer("expired within the skew"), _REASSURED),
    (step("handshake", "OAUTHBEARER", 0), step("bare_bearer", "RSA"), _REASSURED),
    (step("handshake", "OAUTHBEARER", 0), step("bare_bearer", "expired"), step("token", b"\x01")),
    (_BEARER, _bearer("short"), step("wait", 2.5), _REASSURED),
    (_BEARER, _bearer("RSA"), step("wait", 3.5), _REASSURED),
    (_BEARER, _bearer("RSA"), step("wait", 1.1), _BEARER, _bearer("P-256"), _REASSURED),
    (_BEARER, _bearer("RSA"), step("wait", 1.1), _BEARER, _bearer("expired"), _HEARD),
    (_BEARER, _bearer("RSA"), step("wait", 1.1), _BEARER, _bearer("sub is not ASCII")),
    (_BEARER, _bearer("RSA"), step("wait", 1.1), step("handshake"), step("authenticate", GOOD)),
)
"""Of a listener with OAUTHBEARER; each goes to the listener of its first token."""


def listener_of(steps: tuple[Step, ...]) -> str:
    """That a sequence is for."""
    return next((str(one.arguments[0]) for one in steps if one.what == "bearer"), "SASL_PLAINTEXT")


def drawn(seed: int) -> Iterator[tuple[Step, ...]]:
    """Random sequences without end, most of which begin as clients do."""
    source = random.Random(seed)
    tokens = (GOOD, GOOD, GOOD, b"\0alice\0no", b"\0bob\0bob-secret", b"", b"x")
    steps: tuple[Callable[[], Step], ...] = (
        lambda: step("versions", source.randrange(5)),
        lambda: step("handshake", source.choice(("PLAIN", "PLAIN", "SCRAM-SHA-256", "NONE")), source.choice((0, 1, 1))),
        lambda: step("authenticate", source.choice(tokens), source.randrange(3)),
        lambda: step("heartbeat"),
        lambda: step("token", source.choice(tokens)),
        lambda: step("wait", 1.1),
    )
    starts: tuple[tuple[Step, ...], ...] = ((), (step("versions", 3),), _IN, _IN, (step("handshake"),))
    while True:
        yield (*source.choice(starts), *(source.choice(steps)() for _ in range(source.randrange(1, 5))))


def said(steps: tuple[Step, ...]) -> str:
    """A sequence in short."""
    return ", ".join(" ".join(map(str, (one.what, *one.arguments))) for one in steps)


class Client:
    """One connection; each method does one thing and gives what came of it."""

    def __init__(self, address: str) -> None:
        self._wire = Wire(address, client_id="c")
        self._wire.socket.settimeout(_LIMIT_S)
        self._is_bare = False

    def run(self, steps: tuple[Step, ...]) -> list[Any]:
        """Up to where the connection ends; whether it has ended comes last."""
        found: list[Any] = []
        with self._wire:
            for one in steps:
                found.append(getattr(self, one.what)(*one.arguments))
                if found[-1] == "closed":
                    return found
            self._wire.socket.settimeout(_QUIET_S)
            try:
                found.append("closed" if self._wire.frame() is None else "another answer")
            except TimeoutError:
                found.append("open")
        return found

    def versions(self, version: int) -> Any:
        api = codec.module(ApiKey.API_VERSIONS)
        request = api.ApiVersionsRequest(client_software_name="x", client_software_version="1")
        if version > 4:
            frame = self._wire.request_bytes(ApiKey.API_VERSIONS, 4, request)
            return self._answer(frame[:6] + struct.pack(">h", version) + frame[8:], ApiKey.API_VERSIONS, 0)
        return self._ask(ApiKey.API_VERSIONS, version, request)

    def handshake(self, mechanism: str = "PLAIN", version: int = 1) -> Any:
        self._is_bare = version == 0
        request = codec.module(ApiKey.SASL_HANDSHAKE).SaslHandshakeRequest(mechanism=mechanism)
        return self._ask(ApiKey.SASL_HANDSHAKE, version, request)

    def authenticate(self, token: bytes, version: int = 1) -> Any:
        request = codec.module(ApiKey.SASL_AUTHENTICATE).SaslAuthenticateRequest(auth_bytes=token)
        return self._ask(ApiKey.SASL_AUTHENTICATE, version, request)

    def scram(self, mechanism: str, user: str, password: str) -> list[Any]:
        client = ScramClient(ScramAlgorithm(mechanism), user, SaltedPasswords(password))
        token = b""
        found: list[Any] = []
        while isinstance(sent := client.step(token), Challenge):
            answer = self.token(sent.token) if self._is_bare else self.authenticate(sent.token)
            if answer == "closed" or answer["error_code"] != "NONE":
                return [*found, answer]
            token = answer.pop("auth_bytes")  # which has a nonce
            found.append(answer)
        return [*found, type(sent).__name__]

    def metadata(self) -> Any:
        api = codec.module(ApiKey.METADATA)
        return self._ask(ApiKey.METADATA, 4, api.MetadataRequest(topics=[], allow_auto_topic_creation=False))

    def heartbeat(self) -> Any:
        return self._ask(ApiKey.HEARTBEAT, 3, codec.module(ApiKey.HEARTBEAT).HeartbeatRequest(group_id="nobody"))

    def bearer(self, listener: str, name: str) -> Any:
        made = {"SASL_PLAINTEXT": tokens.SIGNED, "STRICT": tokens.STRICT, "UNSIGNED": tokens.UNSIGNED}
        answer = self.authenticate(made[listener][name]())
        if isinstance(answer, dict) and answer["session_lifetime_ms"] not in (0, SESSION_MS):
            answer["session_lifetime_ms"] = "what is left of the token"
        return answer

    def bare_bearer(self, name: str) -> Any:
        return self.token(tokens.SIGNED[name]())

    def token(self, token: bytes) -> Any:
        self._wire.send(len(token).to_bytes(4, "big") + token)
        frame = self._frame()
        return "closed" if frame is None else {"error_code": "NONE", "auth_bytes": frame}

    def frame(self, data: bytes) -> Any:
        return self.raw(len(data).to_bytes(4, "big") + data)

    def raw(self, data: bytes) -> Any:
        self._wire.send(data)
        return "closed" if self._frame() is None else "an answer"

    def wait(self, seconds: float) -> None:
        time.sleep(seconds)  # until a session of real brokers is over: nothing announces it

    def _ask(self, api_key: ApiKey, version: int, request: Any) -> Any:
        return self._answer(self._wire.request_bytes(api_key, version, request), api_key, version)

    def _answer(self, frame: bytes, api_key: ApiKey, version: int) -> Any:
        try:
            self._wire.send(frame)
        except OSError:
            return "closed"
        answer = self._frame()
        if answer is None:
            return "closed"
        if self._is_bare and api_key is not ApiKey.SASL_HANDSHAKE:
            return "answered"
        response = codec.read_response_frame(api_key, version, memoryview(answer))[1]
        found = {
            name: getattr(response, name)
            for name in ("error_code", "error_message", "mechanisms", "session_lifetime_ms", "auth_bytes")
            if hasattr(response, name)
        }
        found["error_code"] = ErrorCode.of(found.get("error_code", 0)).name
        if "mechanisms" in found:
            found["mechanisms"] = sorted(found["mechanisms"])  # Apache Kafka's are in the order of a hash table
        if "auth_bytes" in found:
            found["auth_bytes"] = bytes(found["auth_bytes"])
        return found

    def _frame(self) -> bytes | None:
        """None as well where a broker does not close within `_LIMIT_S`: then its end is said to be open."""
        return self._wire.frame()


@contextlib.contextmanager
def both_with_sasl(directory: Path, zookeeper: ZooKeeperServer) -> Iterator[Callable[[tuple[Step, ...]], list[Any]]]:
    """Starts both; gives what runs a sequence on each and gives both outcomes."""
    with contextlib.ExitStack() as cleanup:
        keys = directory / "keys.json"
        keys.write_bytes(tokens.KEYS)
        places = [{name: f"127.0.0.1:{free_port()}" for name in _LISTENERS} for _ in range(2)]
        our_config, their_config = (_config(place, keys) for place in places)
        our_config["ottla.sasl.oauthbearer.allow.unsecured.tokens"] = "true"
        ours = BrokerProcess(directory / "ours", 1, own_chroot(zookeeper), our_config)
        their_logs = [directory / "their-logs"]
        theirs = ApacheKafka(directory / "theirs", 1, own_chroot(zookeeper), their_logs, their_config)
        brokers: tuple[BrokerProcess | ApacheKafka, ...] = (ours, theirs)
        for broker, config, place in zip(brokers, (our_config, their_config), places, strict=True):
            broker.port = int(config["listeners"].split(",")[0].rpartition(":")[2])
            cleanup.callback(broker.close)
            broker.start()
            _set_passwords(broker.address, place["SASL_PLAINTEXT"])
        yield lambda steps: [Client(place[listener_of(steps)]).run(steps) for place in places]


_LISTENERS = ("SASL_PLAINTEXT", "STRICT", "UNSIGNED")
_VALIDATOR = "org.apache.kafka.common.security.oauthbearer.secured.OAuthBearerValidatorCallbackHandler"


def _config(place: Mapping[str, str], keys: Path) -> dict[str, str]:
    own, strict, unsigned = (f"listener.name.{name.lower()}." for name in _LISTENERS)
    bound = [f"{name}://{address}" for name, address in place.items()]
    users = " ".join(f'user_{name}="{password}"' for name, password in USERS.items())
    return {
        "listeners": ",".join([f"PLAINTEXT://127.0.0.1:{free_port()}", *bound]),
        "listener.security.protocol.map": ",".join(
            ["PLAINTEXT:PLAINTEXT", *(f"{name}:SASL_PLAINTEXT" for name in place)]
        ),
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER",
        f"{strict}sasl.enabled.mechanisms": "OAUTHBEARER",
        f"{unsigned}sasl.enabled.mechanisms": "OAUTHBEARER",
        **{
            key: value
            for one in (own, strict)
            for key, value in {
                f"{one}oauthbearer.sasl.jaas.config": f"{OAUTHBEARER_MODULE} required;",
                f"{one}oauthbearer.sasl.server.callback.handler.class": _VALIDATOR,
                f"{one}sasl.oauthbearer.jwks.endpoint.url": keys.as_uri(),
            }.items()
        },
        f"{strict}sasl.oauthbearer.expected.audience": f"other,{tokens.AUDIENCE}",
        f"{strict}sasl.oauthbearer.expected.issuer": tokens.ISSUER,
        f"{unsigned}oauthbearer.sasl.jaas.config": (
            f'{OAUTHBEARER_MODULE} required unsecuredLoginStringClaim_sub="x" '
            'unsecuredValidatorRequiredScope="read write";'
        ),
        f"{own}plain.sasl.jaas.config": f"{PLAIN_MODULE} required {users};",
        f"{own}scram-sha-256.sasl.jaas.config": f"{SCRAM_MODULE} required;",
        f"{own}scram-sha-512.sasl.jaas.config": f"{SCRAM_MODULE} required;",
        "connections.max.reauth.ms": str(SESSION_MS),
        "zookeeper.session.timeout.ms": "10000",
    }


def _set_passwords(address: str, sasl_address: str) -> None:
    made = [
        alter.ScramCredentialUpsertion(
            name=name,
            mechanism=algorithm.code,
            iterations=4096,
            salt=b"salt",
            salted_password=algorithm.salted_password(password, b"salt", 4096),
        )
        for name, password in USERS.items()
        for algorithm in ScramAlgorithm
    ]
    request = alter.AlterUserScramCredentialsRequest(upsertions=made)
    with Wire(address) as wire:
        eventually(lambda: _is_done(wire.ask(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, 0, request)))
    for name, password in USERS.items():
        for algorithm in ScramAlgorithm:
            eventually(lambda: _is_in(sasl_address, algorithm.value, name, password))  # noqa: B023


def _is_done(answer: Any) -> bool:
    return all(result.error_code == 0 for result in answer.results)


def _is_in(address: str, mechanism: str, user: str, password: str) -> bool:
    found = Client(address).run((step("handshake", mechanism), step("scram", mechanism, user, password)))
    return bool(found[-1] == "open")
