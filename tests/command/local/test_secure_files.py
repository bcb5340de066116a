"""What makes a local fleet secure, in its data directory, without brokers."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest
from cryptography import x509

from ottla.local.client_files import client_files
from ottla.local.layout import FleetStateError, Layout, delete_fleet
from ottla.local.secure_files import SecureFiles, SecureFilesError
from ottla_broker.config import BrokerConfig
from ottla_broker.config.properties import parse_properties
from tests.command.local.test_layout import cluster


def test_keys_and_passwords_are_made_once_and_only_their_owner_reads_them(tmp_path: Path) -> None:
    files = SecureFiles(tmp_path)
    files.make()
    files.write_client_files("h:1")
    before = {path: path.read_bytes() for path in (tmp_path / "security").iterdir()}
    passwords = files.passwords()
    files.make()
    files.write_client_files("h:2")
    assert {path: path.read_bytes() for path in (tmp_path / "security").iterdir()} == before
    assert SecureFiles(tmp_path).passwords() == passwords
    assert len(set(passwords.values())) == 2 and min(map(len, passwords.values())) >= 32
    modes = {str(path.relative_to(tmp_path)): stat.S_IMODE(path.stat().st_mode) for path in tmp_path.rglob("*")}
    assert {name: mode for name, mode in modes.items() if mode != (0o600 if "/" in name else 0o700)} == {}
    assert sorted(modes) == [
        "clients",
        *(f"clients/admin.{kind}" for kind in ("librdkafka.conf", "properties", "spark.json")),
        *(f"clients/app.{kind}" for kind in ("librdkafka.conf", "properties", "spark.json")),
        "clients/authority.pem",
        "security",
        "security/authority.pem",
        "security/brokers.pem",
        "security/passwords.json",
    ]


def test_the_certificate_is_for_this_machine_and_for_both_ends_and_nobody_can_sign_another(tmp_path: Path) -> None:
    SecureFiles(tmp_path).make()
    text = (tmp_path / "security" / "brokers.pem").read_text()
    own, authority = x509.load_pem_x509_certificates(text.encode())
    names = own.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert [str(name.value) for name in names] == ["localhost", "127.0.0.1"]
    assert own.subject.rfc4514_string() == "CN=brokers"
    own.verify_directly_issued_by(authority)
    assert text.count("PRIVATE KEY-----") == 2, "one key, the brokers'"
    assert "PRIVATE" not in (tmp_path / "security" / "authority.pem").read_text()


def test_what_is_in_the_way_is_named_and_stays(tmp_path: Path) -> None:
    (tmp_path / "clients").mkdir()
    (tmp_path / "clients" / "app.properties").write_text("mine")
    with pytest.raises(SecureFilesError, match=r"clients is in the way .*; move it, or choose another --data"):
        SecureFiles(tmp_path).make()
    assert [path.name for path in tmp_path.rglob("*")] == ["clients", "app.properties"]
    Layout(tmp_path, cluster("replicas: 1")).assign_ports()
    assert [path.name for path in delete_fleet(tmp_path)] == ["clients"]
    assert (tmp_path / "clients" / "app.properties").read_text() == "mine"


def test_passwords_that_were_lost_are_not_made_again(tmp_path: Path) -> None:
    SecureFiles(tmp_path).make()
    (tmp_path / "security" / "passwords.json").unlink()
    with pytest.raises(SecureFilesError, match=r"passwords\.json cannot be read .*: restore .*/security, or choose"):
        SecureFiles(tmp_path).write_client_files("h:1")


def test_only_what_was_written_is_deleted(tmp_path: Path) -> None:
    Layout(tmp_path, cluster("replicas: 1"), secure=True).assign_ports()
    files = SecureFiles(tmp_path)
    files.make()
    files.write_client_files("h:1")
    (files.clients / "thesis.txt").write_text("")
    assert [path.name for path in delete_fleet(tmp_path)] == ["clients"]
    assert [path.name for path in files.clients.iterdir()] == ["thesis.txt"]


def test_whether_a_fleet_is_secure_is_chosen_once(tmp_path: Path) -> None:
    secure, plain = tmp_path / "secure", tmp_path / "plain"
    Layout(secure, cluster("replicas: 1"), secure=True).assign_ports()
    Layout(plain, cluster("replicas: 1")).assign_ports()
    with pytest.raises(FleetStateError, match=r"holds a secure fleet, .*: add --secure, or choose another --data"):
        Layout(secure, cluster("replicas: 1"), secure=False)
    with pytest.raises(FleetStateError, match=r"holds a fleet without security, .*: leave --secure out, or choose"):
        Layout(plain, cluster("replicas: 1"), secure=True)
    assert Layout(secure, cluster("replicas: 1")).state.secure
    assert not Layout(plain, cluster("replicas: 1"), secure=False).state.secure


def test_a_fleet_of_before_there_were_secure_ones_is_plain(tmp_path: Path) -> None:
    Layout(tmp_path, cluster("replicas: 1")).assign_ports()
    path = tmp_path / "fleet.json"
    state = json.loads(path.read_text())
    del state["secure"], state["has_users"]
    path.write_text(json.dumps(state))
    assert not Layout(tmp_path, cluster("replicas: 1"), secure=False).state.secure


def test_the_configuration_of_a_secure_broker_is_one_that_it_accepts_and_has_no_secret(tmp_path: Path) -> None:
    layout = Layout(tmp_path, cluster("replicas: 1"), secure=True)
    layout.secure_files.make()
    layout.assign_ports()
    given = layout.broker_config(layout.places()[0], "h:1")
    config = BrokerConfig.from_mapping(given)
    assert config.unknown_keys == ()
    assert {one.listener: one.security_protocol for one in config.listeners.bound} == {
        "INTERNAL": "SSL",
        "CLIENT": "SASL_SSL",
    }
    assert not any(password in "".join(given.values()) for password in layout.secure_files.passwords().values())


def test_every_kind_of_client_gets_the_same_settings(tmp_path: Path) -> None:
    found = client_files("app", "p", "h:1,h:2", tmp_path / "authority zürich.pem")
    assert list(found) == ["app.properties", "app.librdkafka.conf", "app.spark.json"]
    java = parse_properties(found["app.properties"])
    assert found["app.properties"].isascii()
    assert java["ssl.truststore.location"] == str(tmp_path / "authority zürich.pem")
    assert java["sasl.jaas.config"].endswith('required username="app" password="p";')
    spark = json.loads(found["app.spark.json"])
    assert spark == {f"kafka.{key}": value for key, value in java.items()}
    librdkafka = dict(line.split("=", 1) for line in found["app.librdkafka.conf"].splitlines()[1:])
    assert librdkafka["bootstrap.servers"] == java["bootstrap.servers"] == "h:1,h:2"
    assert librdkafka["ssl.ca.location"] == java["ssl.truststore.location"]
