"""SCRAM by the examples of RFC 5802 and RFC 7677, both halves of ours with each other, and what is no SCRAM."""

from __future__ import annotations

import base64
import re
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla_broker.security.principals import USER, Principal
from ottla_broker.security.sasl.mechanism import Authenticated, Challenge, Complete, Failed
from ottla_broker.security.sasl.scram import (
    FEWEST_ITERATIONS,
    LONGEST_MESSAGE,
    SaltedPasswords,
    ScramAlgorithm,
    ScramClient,
    ScramCredential,
    ScramIdentity,
    ScramServer,
    made_up,
    new_nonce,
)

SHA_256, SHA_512 = ScramAlgorithm.SHA_256, ScramAlgorithm.SHA_512
SECRET = b"of this broker"
CREDENTIALS = {
    algorithm: ScramCredential.of(algorithm, "pencil", base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ=="), 4096)
    for algorithm in ScramAlgorithm
}
USER_NONCE = "rOprNGfwEbeRWgbNEkqO"
FIRST = f"n,,n=user,r={USER_NONCE}".encode()
SERVER_NONCE = "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
ANSWER = f"r={USER_NONCE}{SERVER_NONCE},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096".encode()
FINAL = f"c=biws,r={USER_NONCE}{SERVER_NONCE},p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=".encode()
SIGNATURE = b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


def server(
    algorithm: ScramAlgorithm = SHA_256,
    *,
    users: tuple[str, ...] = ("user",),
    credential: ScramCredential | None = None,
    nonce: Callable[[], str] = lambda: SERVER_NONCE,
) -> ScramServer:
    def find(name: str, is_token: bool) -> ScramIdentity | None:
        if name not in users or is_token:
            return None
        return ScramIdentity(credential or CREDENTIALS[algorithm], Principal(USER, name), 7000)

    return ScramServer(algorithm, find, SECRET, nonce)


def client(user: str = "user", password: str = "pencil", algorithm: ScramAlgorithm = SHA_256) -> ScramClient:
    return ScramClient(algorithm, user, SaltedPasswords(password), nonce=lambda: USER_NONCE)


def exchange(one: ScramClient, other: ScramServer) -> tuple[object, object]:
    """The outcome of the server's side and of the client's."""
    sent: object = one.step(b"")
    while isinstance(sent, Challenge):
        answered = other.step(sent.token)
        if isinstance(answered, Failed):
            return answered, None
        sent = one.step(answered.token)
    return answered, sent


def test_the_server_answers_as_rfc_7677_says() -> None:
    one = server()
    assert one.step(FIRST) == Challenge(ANSWER)
    assert one.step(FINAL) == Authenticated(Principal(USER, "user"), 7000, SIGNATURE)


def test_the_client_says_what_rfc_7677_says() -> None:
    one = client()
    assert one.step(b"") == Challenge(FIRST)
    assert one.step(ANSWER) == Challenge(FINAL)
    assert one.step(SIGNATURE) == Complete()


@pytest.mark.parametrize("algorithm", ScramAlgorithm)
@pytest.mark.parametrize("name", ["user", "CN=a,O=b", "=2C", "a b"])
def test_both_sides_agree(algorithm: ScramAlgorithm, name: str) -> None:
    served, seen = exchange(client(name, algorithm=algorithm), server(algorithm, users=(name,), nonce=new_nonce))
    assert isinstance(served, Authenticated)
    assert (served.principal, seen) == (Principal(USER, name), Complete())


@pytest.mark.parametrize("algorithm", ScramAlgorithm)
@pytest.mark.parametrize(("name", "password"), [("user", "pen"), ("user", ""), ("nobody", "pencil")])
def test_a_wrong_password_and_an_unknown_user_fail_alike_and_as_late(
    algorithm: ScramAlgorithm, name: str, password: str
) -> None:
    one = server(algorithm)
    first = one.step(f"n,,n={name},r=abc".encode())
    assert isinstance(first, Challenge)
    assert re.fullmatch(rb"r=abc.+,s=[A-Za-z0-9+/]+=*,i=4096", first.token)
    assert exchange(client(name, password, algorithm), server(algorithm))[0] == Failed()


@pytest.mark.parametrize("algorithm", ScramAlgorithm)
def test_the_salt_of_an_unknown_user_stays_the_same_and_looks_like_a_real_one(algorithm: ScramAlgorithm) -> None:
    salts = {made_up(algorithm, SECRET, f"nobody {number}").salt for number in range(100)}
    assert len(salts) == 100
    assert salts == {made_up(algorithm, SECRET, f"nobody {number}").salt for number in range(100)}
    assert salts.isdisjoint({made_up(algorithm, b"of another", f"nobody {number}").salt for number in range(100)})
    assert all(re.fullmatch(rb"[0-9a-z]{23,26}", salt) for salt in salts), "as Kafka's tools make them"


def test_nobody_knows_the_password_of_an_unknown_user() -> None:
    """Not even whoever knows how keys are made up: the proof is not looked at."""
    always = ScramServer(SHA_256, lambda name, is_token: None, b"known", lambda: "x")
    assert isinstance(always.step(FIRST), Challenge)
    assert always.step(FINAL) == Failed()


def test_a_token_of_delegation_is_nobody_yet() -> None:
    one = ScramClient(SHA_256, "user", SaltedPasswords("pencil"), is_token=True)
    assert exchange(one, server(nonce=new_nonce))[0] == Failed()


def test_messages_of_another_exchange_are_worth_nothing() -> None:
    first = server()
    first.step(FIRST)
    assert isinstance(first.step(FINAL), Authenticated)
    assert first.step(FINAL) == Failed(), "an exchange has ended"
    replayed = server(nonce=lambda: "another")
    assert isinstance(replayed.step(FIRST), Challenge)
    assert replayed.step(FINAL) == Failed()
    impostor = client()
    impostor.step(b"")
    assert isinstance(impostor.step(ANSWER), Challenge)
    assert isinstance(impostor.step(SIGNATURE.replace(b"6", b"7")), Failed), "the server has to prove itself"


@pytest.mark.parametrize(
    "token",
    [
        b"",
        b"zzzz",
        b"y,,n=user,r=abc",
        b"p=tls-unique,,n=user,r=abc",
        b"n,,n=user",
        b"n,,n=,r=abc",
        b"n,,m=ext,n=user,r=abc",
        b"n,,n=us=er,r=abc",
        b"n,,n=user,r=",
        b"n,,n=user,r=a b",
        b"n,,n=user,r=abc,",
        b"n,,n=user\0,r=abc",
        "n,,n=uživatel,r=abc".encode(),
        b"\xff\xfe",
        b"n,,n=" + b"a" * LONGEST_MESSAGE + b",r=abc",
        b"n,,n=user,r=" + b"a" * LONGEST_MESSAGE,
        b"n,,n=user,r=abc" + b",a=b" * (LONGEST_MESSAGE // 4),
    ],
)
def test_what_is_no_first_message_fails(token: bytes) -> None:
    one = server()
    assert one.step(token) == Failed()
    assert one.step(FIRST) == Failed(), "and there is no second try"


def test_a_name_to_act_for_is_the_own_one_or_none() -> None:
    assert isinstance(server().step(b"n,a=user,n=user,r=abc"), Challenge)
    for name in (b"user", b"nobody"):
        failed = server().step(b"n,a=other,n=" + name + b",r=abc")
        assert failed == Failed(
            "Authentication failed: Client requested an authorization id that is different from username"
        )


@pytest.mark.parametrize(
    "token",
    [
        b"",
        FINAL[:-1],
        FINAL.replace(b"biws", b"eSws"),
        FINAL.replace(b"%hv", b"%hw"),
        FINAL.replace(b"r=rOpr", b"r=xrOpr"),
        FINAL.replace(b"dHzb", b"dHzc"),
        FINAL[: FINAL.index(b",p=") + 3],
        FINAL[: FINAL.index(b",p=") + 3] + b"AAAA",
        FINAL + b",x=y",
    ],
)
def test_what_is_no_proof_fails(token: bytes) -> None:
    one = server()
    one.step(FIRST)
    assert one.step(token) == Failed()
    assert one.step(FINAL) == Failed()


def test_a_client_of_an_older_librdkafka_has_its_own_nonce_once_more_in_the_proof() -> None:
    """Before 2.6.1 (librdkafka pull request 4895)."""
    one, signed = server(), f"n=user,r={USER_NONCE},{ANSWER.decode()},c=biws,r={USER_NONCE * 2}{SERVER_NONCE}"
    one.step(FIRST)
    salted = SHA_256.salted_password("pencil", CREDENTIALS[SHA_256].salt, 4096)
    key = SHA_256.keyed(salted, b"Client Key")
    mask = SHA_256.keyed(SHA_256.digest(key), signed.encode())
    proof = base64.b64encode(bytes(a ^ b for a, b in zip(key, mask, strict=True))).decode()
    assert isinstance(one.step(f"c=biws,r={USER_NONCE * 2}{SERVER_NONCE},p={proof}".encode()), Authenticated)


def test_a_credential_with_few_iterations_is_not_used_and_one_with_many_is() -> None:
    salt = b"salt"
    weak = server(credential=ScramCredential.of(SHA_256, "pencil", salt, 1000), nonce=new_nonce)
    assert exchange(client(), weak)[0] == Failed()
    strong = server(credential=ScramCredential.of(SHA_256, "pencil", salt, 20000), nonce=new_nonce)
    assert isinstance(exchange(client(), strong)[0], Authenticated)


@pytest.mark.parametrize("iterations", [0, 1, FEWEST_ITERATIONS - 1, 1_000_001, 999_999_999])
def test_a_client_does_not_do_what_a_server_asks_for_without_bounds(iterations: int) -> None:
    one = client()
    one.step(b"")
    failed = one.step(ANSWER.replace(b"i=4096", f"i={iterations}".encode()))
    assert isinstance(failed, Failed)
    assert f"{iterations} iterations" in failed.message


@pytest.mark.parametrize(
    "answer", [b"", b"r=abc,s=c2FsdA==,i=4096", ANSWER.replace(SERVER_NONCE.encode(), b""), ANSWER + b"0" * 20]
)
def test_a_client_knows_its_own_nonce(answer: bytes) -> None:
    one = client()
    one.step(b"")
    assert isinstance(one.step(answer), Failed)


def test_a_credential_is_stored_as_apache_kafka_does_and_nothing_else_is_read() -> None:
    credential = CREDENTIALS[SHA_512]
    assert ScramCredential.decode(credential.encode()) == credential
    assert "pencil" not in credential.encode() + repr(credential)
    assert base64.b64encode(credential.stored_key).decode() not in repr(credential)
    for text in ("", "salt=a", credential.encode() + ",more=1", credential.encode().replace("4096", "0"), "x" * 99):
        with pytest.raises(ValueError, match=r"^it is no SCRAM credential$"):
            ScramCredential.decode(text)


tokens = st.one_of(
    st.binary(max_size=200),
    st.sampled_from([FIRST, ANSWER, FINAL, SIGNATURE]),
    st.builds(
        lambda base, at, byte: base[:at] + bytes([byte]) + base[at + 1 :],
        st.sampled_from([FIRST, ANSWER, FINAL, SIGNATURE]),
        st.integers(0, 60),
        st.integers(0, 255),
    ),
)


@given(st.lists(tokens, max_size=4))
def test_no_bytes_make_either_side_raise_and_nobody_gets_in_by_chance(sent: list[bytes]) -> None:
    one, other = server(), client()
    outcomes = [(one.step(token), other.step(token)) for token in sent]
    proved = FINAL in sent and sent.index(FINAL) == 1 and sent[0] == FIRST
    assert any(isinstance(served, Authenticated) for served, _ in outcomes) == proved
