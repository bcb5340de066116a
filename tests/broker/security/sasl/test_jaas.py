"""JAAS lines as Apache Kafka reads them; no message tells a value."""

from __future__ import annotations

import base64
import subprocess
from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.local.jars import find_java, kafka_class_path
from ottla_broker.security.sasl.jaas import (
    KERBEROS_MODULE,
    OAUTHBEARER_MODULE,
    PLAIN_MODULE,
    SCRAM_MODULE,
    JaasEntry,
    JaasError,
    check_module,
    parse_jaas,
)

GOOD = [
    (f'{PLAIN_MODULE} required username="admin" password="s" user_admin="s";', {"username": "admin", "password": "s"}),
    (f"{PLAIN_MODULE} REQUIRED username='admin' password='it is \"s\"';", {"password": 'it is "s"'}),
    (f'{PLAIN_MODULE} optional password="a\\"b\\\\c\\td\\101\\7=;";', {"password": 'a"b\\c\tdA\7=;'}),
    (f"{SCRAM_MODULE} sufficient;", {}),
    (f"{SCRAM_MODULE}\n  required // why\n  a=b /* ; */ c-d=e.f1 ;  # no", None),
    (f'{PLAIN_MODULE} required user_ž="ř";', {"user_ž": "ř"}),
    (f'{PLAIN_MODULE} required a="open\n ;', {"a": "open"}),
    (f'{PLAIN_MODULE} required a="";', {"a": ""}),
]
BAD = [
    ("", "it names no login module"),
    ("  // nothing", "it names no login module"),
    ("; required", "it begins with no login module"),
    (PLAIN_MODULE, "stands none of required, requisite, sufficient, optional"),
    (f"{PLAIN_MODULE} mandatory hunter2;", "stands none of"),
    (f'{PLAIN_MODULE} required password="hunter2"', "it does not end with a semicolon"),
    (f"{PLAIN_MODULE} required password=12345;", "option 1 is not NAME"),
    (f'{PLAIN_MODULE} required a=b password="hunter2"hunter3;', "option 3 is not NAME"),
    (f"{PLAIN_MODULE} required password hunter2;", "option 1 is not NAME"),
    (f"{PLAIN_MODULE} required password=hunter2/x;", "it does not end with a semicolon"),
    (f"{PLAIN_MODULE} required; {SCRAM_MODULE} required a=hunter2;", "it names 2 login modules"),
]


@pytest.mark.parametrize(("text", "options"), [row for row in GOOD if row[1] is not None])
def test_a_module_has_its_options(text: str, options: dict[str, str]) -> None:
    found = parse_jaas(text)
    assert found.module in (PLAIN_MODULE, SCRAM_MODULE)
    assert options.items() <= found.options.items()
    assert "password" not in repr(found), "its options are secret"


@pytest.mark.parametrize(("text", "message"), BAD)
def test_a_malformed_line_is_refused_without_a_value(text: str, message: str) -> None:
    with pytest.raises(JaasError, match=message) as caught:
        parse_jaas(text)
    assert "hunter" not in str(caught.value)
    assert "12345" not in str(caught.value)


@pytest.mark.parametrize(
    ("module", "message"),
    [
        (KERBEROS_MODULE, "the login module com.sun.security.auth.module.Krb5LoginModule cannot be used: PLAIN needs"),
        (OAUTHBEARER_MODULE, "OAuthBearerLoginModule cannot be used: PLAIN needs"),
        ("com.example.Vault", "the login module com.example.Vault cannot be used"),
        (SCRAM_MODULE, "ScramLoginModule cannot be used: PLAIN needs"),
        ("hunter2", "the login module that it names cannot be used"),
    ],
)
def test_another_module_is_refused_by_its_name(module: str, message: str) -> None:
    with pytest.raises(JaasError, match=message) as caught:
        check_module(JaasEntry(module, {}), PLAIN_MODULE, "PLAIN")
    assert "hunter" not in str(caught.value)
    check_module(JaasEntry(PLAIN_MODULE, {}), PLAIN_MODULE, "PLAIN")


PIECES = [
    *"ab09-._$ /*;=\"'\\\n\r\t\0\x7f\x80\xa0é字", PLAIN_MODULE, " required ", ' a="b"', " c=d", ";", "//", "/*", "*/"
]  # fmt: skip
SHAPES = ("{}", f"{PLAIN_MODULE} required {{}};", f'{PLAIN_MODULE} required a="{{}}";')


def read(text: str) -> str:
    """What Java prints of a line."""
    try:
        found = parse_jaas(text)
    except JaasError:
        return "refused"
    parts = [found.module, *(part for option in sorted(found.options.items()) for part in option)]
    return " ".join(base64.b64encode(part.encode("utf-16-be")).decode() for part in parts)


@given(st.text(max_size=60) | st.lists(st.sampled_from(PIECES), max_size=12).map("".join))
def test_no_text_makes_it_raise_anything_else(text: str) -> None:
    for shape in SHAPES:
        read(shape.replace("{}", text))


@pytest.mark.java
def test_apache_kafka_reads_the_same() -> None:
    random = Random(16)
    drawn = ["".join(random.choices(PIECES, k=random.randrange(12))) for _ in range(4000)]
    texts = [text for text, _ in (*GOOD, *BAD)] + [random.choice(SHAPES).replace("{}", text) for text in drawn]
    source = Path(__file__).with_name("JaasLines.java")
    done = subprocess.run(
        [find_java(), "-cp", kafka_class_path(), str(source)],
        input="".join(base64.b64encode(text.encode("utf-16-be")).decode() + "\n" for text in texts),
        capture_output=True,
        text=True,
        check=True,
    )
    theirs = done.stdout.splitlines()
    assert len(theirs) == len(texts)
    assert [(text, read(text), line) for text, line in zip(texts, theirs, strict=True) if read(text) != line] == []
