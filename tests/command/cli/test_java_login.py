"""The login to ZooKeeper from KAFKA_OPTS, and what is said when it cannot be used."""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla.cli.java_login import JavaLoginError, jaas_line
from ottla_broker.security.sasl.jaas import DIGEST_MODULE, KERBEROS_MODULE, parse_jaas

ENTRY = f'{DIGEST_MODULE} required username="kafka" password="hunter2";'


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "zookeeper jaas.conf"
    path.write_text(
        f"Client {{ {ENTRY} }}; Mine {{ {ENTRY.replace('kafka', 'me')} }}; "
        f"Kerberos {{ {KERBEROS_MODULE} required; }}; Without {{ {DIGEST_MODULE} required username=kafka; }};"
    )
    return path


@pytest.mark.parametrize("start", ["", "=", "file:"])
def test_the_section_client_is_read(file: Path, start: str) -> None:
    line = jaas_line({"KAFKA_OPTS": f"-Xmx1g '-Djava.security.auth.login.config={start}{file}'"})
    assert line is not None and parse_jaas(line).options == {"username": "kafka", "password": "hunter2"}


def test_another_section_is_read_when_java_would(file: Path) -> None:
    options = f"'-Djava.security.auth.login.config={file}' -Dzookeeper.sasl.clientconfig="
    line = jaas_line({"KAFKA_OPTS": options + "Mine"})
    assert line is not None and parse_jaas(line).options["username"] == "me"
    assert jaas_line({"KAFKA_OPTS": options + "None"}) is None


@pytest.mark.parametrize("environment", [{}, {"KAFKA_OPTS": ""}, {"KAFKA_OPTS": "-Xmx1g -Dzookeeper.sasl.client=no"}])
def test_there_is_no_login_without_a_file(environment: dict[str, str]) -> None:
    assert jaas_line(environment) is None


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ("-Dzookeeper.sasl.client=false", "has a section Client, and zookeeper.sasl.client says that it is not used"),
        ("-Dzookeeper.sasl.clientconfig=Kerberos", r"section Kerberos: Kerberos \(GSSAPI\) towards ZooKeeper is not"),
        ("-Dzookeeper.sasl.clientconfig=Without", "section Without: it has no password"),
        ("-Djava.security.auth.login.config=/nowhere", "/nowhere: No such file"),
        ("'", "KAFKA_OPTS: No closing quotation"),
    ],
)
def test_what_cannot_be_used_is_said_without_the_password(file: Path, more: str, message: str) -> None:
    with pytest.raises(JavaLoginError, match=message) as caught:
        jaas_line({"KAFKA_OPTS": f"'-Djava.security.auth.login.config={file}' {more}"})
    assert "hunter2" not in str(caught.value)
