"""JAAS files with sections, of which one is read; no message tells a value. Apache Kafka reads the same files in
`tests/mixed/test_secured_zookeeper.py`."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla_broker.security.sasl.jaas import DIGEST_MODULE, JaasError, parse_jaas, parse_login_file

FILE = f"""
// of a broker of Apache Kafka
KafkaServer {{
    org.apache.kafka.common.security.plain.PlainLoginModule required
    username="admin" password="other";
}};
Client {{ /* towards ZooKeeper */
    {DIGEST_MODULE} required
    username="kafka"
    password="it \\"is; }};";
}};
"Any other" {{ a.B required; c.D optional e=f; }};
Empty {{ }};
"""


def test_one_section_is_read() -> None:
    line = parse_login_file(FILE, "Client")
    assert line is not None
    assert parse_jaas(line).module == DIGEST_MODULE
    assert parse_jaas(line).options == {"username": "kafka", "password": 'it "is; };'}
    assert parse_login_file(FILE, "client") is None


@given(st.text(st.characters(codec="utf-8")), st.text(st.characters(codec="utf-8", exclude_characters="$")))
def test_any_value_comes_out_as_it_was_written(name: str, value: str) -> None:
    escapes = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\r": "\\r"}

    def quoted(text: str) -> str:
        return '"' + "".join(escapes.get(one, one) for one in text) + '"'

    line = parse_login_file(f"X {{ a.B required {quoted(name)}={quoted(value)}; }};", "X")
    assert line is not None and parse_jaas(line).options == {name: value}


@pytest.mark.parametrize(
    ("text", "section", "message"),
    [
        (FILE, "Any other", "section Any other names 2 login modules"),
        (FILE, "Empty", "section Empty names 0 login modules"),
        (FILE + FILE, "Client", "section 5 has the name of one before"),
        (FILE + "hunter2", "Client", "section 5 is not NAME"),
        ("Client { a.B required password=hunter2; }", "Client", "section 1 does not end with a semicolon"),
        ("Client { a.B required password=hunter2;", "Client", "it begins with no login module"),
        ("Client { a.B required password=hunter2 };", "Client", "option 2 is not NAME"),
        ('Client { a.B required password="${hunter2}"; };', "Client", "refers to a property of Java"),
    ],
)
def test_what_is_wrong_is_said_without_a_value(text: str, section: str, message: str) -> None:
    with pytest.raises(JaasError, match=message) as caught:
        parse_login_file(text, section)
    assert "hunter2" not in str(caught.value)
