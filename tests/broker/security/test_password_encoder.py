"""Passwords as Apache Kafka stores them: both read what the other has written."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from ottla.local.jars import find_java, kafka_class_path
from ottla_broker.security.password_encoder import CIPHERS, KEY_FACTORIES, PasswordEncoder, PasswordError

PASSWORDS = ("p", "correct horse battery staple", "пароль, с : запятой", "=" * 200)


@pytest.mark.parametrize("cipher", CIPHERS)
@pytest.mark.parametrize("factory", KEY_FACTORIES)
def test_what_is_encoded_is_decoded(cipher: str, factory: str) -> None:
    encoder = PasswordEncoder("secret", None, cipher, factory, 256, 1024)
    for password in PASSWORDS:
        encoded = encoder.encode(password)
        assert password == "p" or password not in encoded
        assert encoder.decode(encoded) == password
        assert PasswordEncoder("secret").decode(encoded) == password, "what is read says how it was made"
        assert encoder.encode(password) != encoded, "each has a salt of its own"


def test_the_old_secret_decodes_what_the_new_one_does_not() -> None:
    encoded = PasswordEncoder("old").encode("password")
    both = PasswordEncoder("new", "old")
    assert both.decode(encoded) == "password"
    assert not both.is_current(encoded)
    assert both.is_current(both.encode("password"))


@pytest.mark.parametrize(
    ("encoded", "reason"),
    [
        ("", "it is no encoded password"),
        ("hunter2", "it is no encoded password"),
        (PasswordEncoder("another").encode("password"), r"encoded with another password\.encoder\.secret"),
        (PasswordEncoder("secret").encode("password").replace("CBC", "XYZ"), "AES/XYZ/PKCS5Padding"),
        (
            PasswordEncoder("secret").encode("password").replace("iterations:4096", "iterations:2000000000"),
            "2000000000",
        ),
        (PasswordEncoder("secret").encode("password").replace("iterations:4096", "iterations:0"), "0 iterations"),
        (PasswordEncoder("secret").encode("password").replace("passwordLength:8", "passwordLength:9"), "another"),
        (PasswordEncoder("secret").encode("password").replace("keyLength:128", "keyLength:x"), "no encoded password"),
    ],
)
def test_what_cannot_be_decoded_is_refused_without_a_part_of_it(encoded: str, reason: str) -> None:
    with pytest.raises(PasswordError, match=reason) as caught:
        PasswordEncoder("secret").decode(encoded)
    assert "hunter2" not in str(caught.value)


@pytest.mark.java
def test_apache_kafka_reads_ours_and_we_read_its() -> None:
    source = Path(__file__).with_name("PasswordEncoding.java")
    ways = [
        ("PBKDF2WithHmacSHA512", "AES/CBC/PKCS5Padding", 128, 4096),
        ("PBKDF2WithHmacSHA256", "AES/CBC/PKCS5Padding", 256, 1024),
        ("PBKDF2WithHmacSHA1", "AES/GCM/NoPadding", 128, 2048),
    ]
    calls = [f"encode|s3cret|{'|'.join(map(str, way))}|{password}" for way in ways for password in PASSWORDS]
    for factory, cipher, key_length, iterations in ways:
        encoder = PasswordEncoder("s3cret", None, cipher, factory, key_length, iterations)
        calls += [f"decode|s3cret|{encoder.encode(password)}" for password in PASSWORDS]
    java = [find_java(), "-Dfile.encoding=UTF-8", "-Dstdout.encoding=UTF-8", "-cp", kafka_class_path(), str(source)]
    done = subprocess.run(
        [*java, *calls], capture_output=True, text=True, encoding="utf-8", check=False, env={"LC_ALL": "C.UTF-8"}
    )
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    theirs, ours = lines[: len(calls) // 2], lines[len(calls) // 2 :]
    assert [PasswordEncoder("s3cret").decode(line) for line in theirs] == [*PASSWORDS] * len(ways)
    assert ours == [*PASSWORDS] * len(ways)
