"""DIGEST-MD5 by the example of RFC 2831, and what a server may not send. ZooKeeper is the other half elsewhere
(`tests/broker/coordination/test_zookeeper_sasl.py`)."""

from __future__ import annotations

import hashlib

import pytest

from ottla_broker.security.sasl.digest_md5 import LONGEST_CHALLENGE, DigestError, check_proof, respond

CHALLENGE = (
    b'realm="elwood.innosoft.com",nonce="OA6MG9tEQGm2hh",qop="auth",algorithm=md5-sess,charset=utf-8'  # RFC 2831, 4
)


def test_the_example_of_the_rfc() -> None:
    response = respond(CHALLENGE, "chris", "secret", uri="imap/elwood.innosoft.com", cnonce="OA6MHXh6VqTrRk")
    parts = set(response.token.split(b","))
    assert parts == {
        b"charset=utf-8",
        b'username="chris"',
        b'realm="elwood.innosoft.com"',
        b'nonce="OA6MG9tEQGm2hh"',
        b"nc=00000001",
        b'cnonce="OA6MHXh6VqTrRk"',
        b'digest-uri="imap/elwood.innosoft.com"',
        b"response=d388dad90d4bbd760a152321f2143af7",
        b"qop=auth",
    }
    check_proof(b"rspauth=ea40f60335c427b5527b84dbabcdfffd", response)


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"rspauth=",
        b"rspauth=ea40f60335c427b5527b84dbabcdfff0",
        b"rspauth=d388dad90d4bbd760a152321f2143af7",
        b"rspauth=ea40f60335c427b5527b84dbabcdfffd,rspauth=ea40f60335c427b5527b84dbabcdfffd",
        b"nonce=ea40f60335c427b5527b84dbabcdfffd",
        CHALLENGE,
        b"\xff\x00",
    ],
)
def test_a_server_that_does_not_prove_the_password_is_refused(answer: bytes) -> None:
    response = respond(CHALLENGE, "chris", "secret", uri="imap/elwood.innosoft.com", cnonce="OA6MHXh6VqTrRk")
    with pytest.raises(DigestError):
        check_proof(answer, response)


@pytest.mark.parametrize(
    ("challenge", "message"),
    [
        (b"", "none of DIGEST-MD5"),
        (b"hello", "none of DIGEST-MD5"),
        (CHALLENGE + b',x="open', "none of DIGEST-MD5"),
        (CHALLENGE + b',nonce="b"', "has not one nonce"),
        (b"algorithm=md5-sess", "has not one nonce"),
        (CHALLENGE.replace(b"md5-sess", b"md5"), "another algorithm"),
        (CHALLENGE.replace(b"algorithm=md5-sess,", b""), "another algorithm"),
        (CHALLENGE.replace(b'"auth"', b'"auth-int,auth-conf"'), "more than authentication"),
        (CHALLENGE + b',x="' + b"y" * LONGEST_CHALLENGE + b'"', "none of DIGEST-MD5"),
    ],
)
def test_a_challenge_that_is_not_served_is_refused_and_not_answered(challenge: bytes, message: str) -> None:
    with pytest.raises(DigestError, match=message):
        respond(challenge, "chris", "secret")


def test_a_password_beyond_ascii_needs_a_server_that_says_how_it_reads_it() -> None:
    assert respond(CHALLENGE, "chris", "pässwörd").token
    with pytest.raises(DigestError, match="beyond ASCII"):
        respond(CHALLENGE.replace(b",charset=utf-8", b""), "chris", "pässwörd")


def test_each_exchange_has_a_nonce_of_its_own_and_names_are_quoted() -> None:
    first, second = (respond(CHALLENGE, 'a"b\\c', "secret").token for _ in range(2))
    assert b'username="a\\"b\\\\c"' in first
    assert first != second


def test_no_secret_is_in_the_text_of_a_response() -> None:
    response = respond(CHALLENGE, "chris", "secret")
    assert "response=" not in repr(response) and response.expected.decode() not in repr(response)


def test_a_process_without_md5_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_md5(_data: bytes) -> None:
        raise ValueError("[digital envelope routines] unsupported")

    monkeypatch.setattr(hashlib, "md5", no_md5)
    with pytest.raises(DigestError, match="no MD5"):
        respond(CHALLENGE, "chris", "secret")
