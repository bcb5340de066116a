"""GSSAPI with a real key distribution center: clients and brokers log in with their keytabs, have the rights of their
short names, and whoever has no ticket for the service is told no more than that."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourcePatternType,
    ResourceType,
)

from ottla.testing import RunningCluster, cluster
from ottla_broker.protocol import codec
from ottla_broker.protocol.api import ApiKey
from ottla_broker.security.kerberos_rules import KerberosRules
from ottla_broker.security.kerberos_settings import KerberosSettings, Keytab, Renewal
from ottla_broker.security.sasl.gssapi import GssapiClient
from ottla_broker.security.sasl.jaas import KERBEROS_MODULE, PLAIN_MODULE
from ottla_broker.server.broker import StartRefused
from tests.integration.clients.aiokafka_client import Aiokafka
from tests.integration.clients.driver import LIMIT_S, Driver, await_that
from tests.integration.clients.java import Java, JavaError, JavaMachine
from tests.integration.clients.kafka_python import KafkaPython
from tests.integration.clients.librdkafka import Librdkafka, librdkafka_security
from tests.integration.clients.security import Security
from tests.integration.clients.test_tls import total
from tests.integration.clients.topics import create, numbered
from tests.integration.wire import Wire
from tests.kdc import REALM, Kdc

pytestmark = pytest.mark.kerberos

METRIC = "kafka_server_socketservermetrics_"
RULES = "RULE:[2:$2](admin),RULE:[2:$1](kafka),RULE:[1:$1]s/^(.*)$/$1/L"
FAILED = "due to invalid credentials with SASL mechanism GSSAPI"
ADMIN = {
    "security.protocol": "SASL_PLAINTEXT",
    "sasl.mechanism": "PLAIN",
    "sasl.jaas.config": f'{PLAIN_MODULE} required username="admin" password="admin-secret";',
}


def line(principal: str, keytab: Path | str) -> str:
    """Of a JAAS configuration."""
    return f'{KERBEROS_MODULE} required useKeyTab=true storeKey=true keyTab="{keytab}" principal="{principal}@{REALM}";'


class KerberosFleet:
    """Three brokers: they reach each other as kafka/127.0.0.1, and clients reach them as kafka/localhost."""

    def __init__(self, kdc: Kdc) -> None:
        self.kdc = kdc
        self.client_keytab, self.internal_keytab = kdc.keytab("kafka/localhost"), kdc.keytab("kafka/127.0.0.1")
        self.users = {name: kdc.keytab(name) for name in ("Alice", "bob", "root/admin", "eve/other")}
        self.running: RunningCluster | None = None

    def config(self, **more: str) -> dict[str, str]:
        client, internal = "listener.name.client.", "listener.name.internal."
        return {
            "min.insync.replicas": "2",
            "replica.lag.time.max.ms": "30000",
            "listener.security.protocol.map": "INTERNAL:SASL_PLAINTEXT,CLIENT:SASL_PLAINTEXT",
            "sasl.kerberos.service.name": "kafka",
            f"{client}sasl.enabled.mechanisms": "GSSAPI,PLAIN",
            f"{client}sasl.kerberos.principal.to.local.rules": RULES,
            f"{client}gssapi.sasl.jaas.config": line("kafka/localhost", self.client_keytab),
            f"{client}plain.sasl.jaas.config": f'{PLAIN_MODULE} required user_admin="admin-secret";',
            f"{internal}gssapi.sasl.jaas.config": line("kafka/127.0.0.1", self.internal_keytab),
            "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
            "super.users": "User:kafka;User:admin",
            **more,
        }

    def opened(self, brokers: int, **more: str) -> AbstractContextManager[RunningCluster]:
        return cluster(brokers=brokers, racks=brokers, config=self.config(**more))

    @property
    def cluster(self) -> RunningCluster:
        assert self.running is not None
        return self.running

    def security(self, user: str = "Alice", service: str = "kafka") -> Security:
        return {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "GSSAPI",
            "sasl.kerberos.service.name": service,
            "sasl.jaas.config": line(user, self.users[user]),
        }

    def counted(self, name: str, **labels: str) -> float:
        return total(self.cluster, f"{METRIC}{name}", **labels)

    def client(self, user: str) -> GssapiClient:
        """The side of a client."""
        from ottla_broker.security.kerberos import Kerberos

        keytab = Keytab("key", f"{user}@{REALM}", str(self.users[user]))
        login = KerberosSettings(keytab, "kafka", KerberosRules([]), Renewal(0.8, 0.05, 60), True)
        return GssapiClient(lambda: Kerberos(time.monotonic, lambda: 0.0).initiate(login, "localhost"))


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KerberosFleet]:
    kdc = Kdc(tmp_path_factory.mktemp("realm"))
    found = KerberosFleet(kdc)
    kdc.start()
    with pytest.MonkeyPatch.context() as patched:
        for name, value in kdc.environment.items():
            patched.setenv(name, value)
        try:
            with found.opened(3) as running:
                found.running = running
                admin = AdminClient({"bootstrap.servers": running.bootstrap, **librdkafka_security(ADMIN)})
                allowed = [
                    AclBinding(
                        kind,
                        "*",
                        ResourcePatternType.LITERAL,
                        "User:alice",
                        "*",
                        AclOperation.ALL,
                        AclPermissionType.ALLOW,
                    )
                    for kind in (ResourceType.TOPIC, ResourceType.GROUP)
                ]
                for made in admin.create_acls(allowed).values():
                    made.result(LIMIT_S)
                yield found
        finally:
            kdc.stop()


@pytest.fixture(scope="module")
def kerberos_machine(fleet: KerberosFleet, tmp_path_factory: pytest.TempPathFactory) -> Iterator[JavaMachine]:
    """A JVM that knows the realm."""
    found = JavaMachine(tmp_path_factory.mktemp("java") / "clients.log", options=fleet.kdc.java_options)
    yield found
    found.close()


@pytest.fixture
def as_alice(fleet: KerberosFleet, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """For clients in Python, which know no keytab of their own."""
    monkeypatch.setenv("KRB5_CLIENT_KTNAME", str(fleet.users["Alice"]))
    monkeypatch.setenv("KRB5CCNAME", f"FILE:{tmp_path}/tickets")


@pytest.mark.parametrize("client", [pytest.param("java", marks=pytest.mark.java), "kafka-python", "aiokafka"])
def test_records_come_back_as_they_were_sent(
    client: str, fleet: KerberosFleet, as_alice: None, name: str, request: pytest.FixtureRequest
) -> None:
    security = fleet.security()
    driver: Driver
    if client == "java":
        driver = Java(request.getfixturevalue("kerberos_machine"), security)
    else:
        driver = KafkaPython(security) if client == "kafka-python" else Aiokafka(security)
    create(fleet.cluster.bootstrap, name, security=ADMIN, retention_ms="-1")
    sent = numbered(30)
    driver.produce(fleet.cluster.bootstrap, name, sent)
    for reader in (driver, Librdkafka(ADMIN)):
        assert [one.value for one in reader.read(fleet.cluster.bootstrap, name)] == [one.value for one in sent]


def test_brokers_log_in_to_each_other(fleet: KerberosFleet, name: str) -> None:
    """As kafka, who may do everything: what needs two replicas is acknowledged."""
    create(fleet.cluster.bootstrap, name, security=ADMIN)
    producer = Producer({"bootstrap.servers": fleet.cluster.bootstrap, "acks": "all", **librdkafka_security(ADMIN)})
    producer.produce(name, b"value")
    assert producer.flush(LIMIT_S) == 0
    assert fleet.counted("successful_authentication", listener="INTERNAL") > 0
    assert fleet.counted("failed_authentication", listener="INTERNAL") == 0
    before = fleet.counted("successful_authentication", listener="INTERNAL")
    fleet.cluster.kill(0)
    fleet.cluster.start(0)
    await_that(
        lambda: fleet.counted("successful_authentication", listener="INTERNAL") > before, "it has logged in again"
    )


# Rights


def topics_seen(fleet: KerberosFleet, user: str) -> set[str]:
    """By somebody who logs in by its own ticket."""
    api = codec.module(ApiKey.METADATA)
    with Wire(fleet.cluster.address(0)) as asked:
        asked.log_in_by("GSSAPI", fleet.client(user))
        return {one.name for one in asked.ask(ApiKey.METADATA, 4, api.MetadataRequest(topics=None)).topics}


def test_a_user_has_the_rights_of_its_short_name(fleet: KerberosFleet, name: str) -> None:
    create(fleet.cluster.bootstrap, name, security=ADMIN)
    assert name in topics_seen(fleet, "Alice"), "alice, by an ACL"
    assert name in topics_seen(fleet, "root/admin"), "admin, a super user"
    assert topics_seen(fleet, "bob") == set()


def test_a_principal_that_no_rule_matches_is_refused(fleet: KerberosFleet, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="ottla.server")
    with pytest.raises(AssertionError, match=FAILED):
        topics_seen(fleet, "eve/other")
    assert f"no rule of sasl.kerberos.principal.to.local.rules matches 'eve/other@{REALM}'" in caplog.text


# Refusals


@pytest.mark.java
def test_a_client_whose_key_is_not_its_own_is_told_by_its_own_library(
    fleet: KerberosFleet, kerberos_machine: JavaMachine
) -> None:
    security = {**fleet.security(), "sasl.jaas.config": line("mallory", fleet.users["Alice"])}
    with pytest.raises(JavaError, match=r"(?i)LoginException|Failed to construct|KafkaException|unable to obtain"):
        Java(kerberos_machine, security).topics(fleet.cluster.bootstrap)


@pytest.mark.parametrize("token", [b"", b"\0alice\0alice-secret", b"\x60\x82\xff\xff", bytes(500_000)])
def test_nonsense_is_refused_and_the_reason_is_in_the_log_alone(token: bytes, fleet: KerberosFleet) -> None:
    api = codec.module(ApiKey.SASL_AUTHENTICATE)
    with Wire(fleet.cluster.address(0)) as asked:
        asked.ask(
            ApiKey.SASL_HANDSHAKE, 1, codec.module(ApiKey.SASL_HANDSHAKE).SaslHandshakeRequest(mechanism="GSSAPI")
        )
        answer = asked.ask(ApiKey.SASL_AUTHENTICATE, 2, api.SaslAuthenticateRequest(auth_bytes=token))
        assert answer.error_code == 58
        assert answer.error_message == f"Authentication failed during authentication {FAILED}"
        assert asked.is_closed_by_broker()


# Starts


@pytest.mark.parametrize(
    ("keytab", "principal", "reason"),
    [
        ("gone", "kafka/localhost", "Key table file '.*gone' not found"),
        ("broken", "kafka/localhost", "Unsupported key table format version number"),
        ("real", "kafka/other", "No key table entry found for kafka/other"),
    ],
)
def test_a_broker_without_its_key_does_not_start_and_says_why(
    keytab: str, principal: str, reason: str, fleet: KerberosFleet, tmp_path: Path
) -> None:
    (tmp_path / "broken").write_bytes(b"no keytab")
    file = fleet.client_keytab if keytab == "real" else tmp_path / keytab
    key = "listener.name.client.gssapi.sasl.jaas.config"
    with (
        pytest.raises(
            StartRefused, match=f"{key}: {file}: no key of {principal}@{REALM} can be read from it: {reason}"
        ),
        fleet.opened(1, **{key: line(principal, file)}),
    ):
        pass


# Changes while brokers run


def test_another_keytab_is_taken_while_the_brokers_run_and_a_bad_one_is_not(
    fleet: KerberosFleet, tmp_path: Path
) -> None:
    """A new key in the same keytab needs no change at all."""
    key = "listener.name.client.gssapi.sasl.jaas.config"
    moved = tmp_path / "moved.keytab"
    with fleet.opened(1, **{"password.encoder.secret": "encoder-secret"}) as running:
        admin = AdminClient({"bootstrap.servers": running.bootstrap, **librdkafka_security(ADMIN)})

        def change(file: Path) -> None:
            entry = ConfigEntry(key, line("kafka/localhost", file), incremental_operation=AlterConfigOpType.SET)
            wanted = ConfigResource(ConfigResource.Type.BROKER, "0", incremental_configs=[entry])
            admin.incremental_alter_configs([wanted])[wanted].result(LIMIT_S)

        with pytest.raises(KafkaException, match=r"no key of kafka/localhost@OTTLA.TEST can be read from it"):
            change(moved)
        fleet.kdc.change_key("kafka/localhost", fleet.client_keytab)
        moved.write_bytes(fleet.client_keytab.read_bytes())
        change(moved)
        with Wire(running.address(0)) as asked:
            asked.log_in_by("GSSAPI", fleet.client("bob"))
    assert topics_seen(fleet, "bob") == set(), "the other brokers have read the new key"


# Sessions


@pytest.mark.java
def test_clients_and_brokers_authenticate_again(fleet: KerberosFleet, kerberos_machine: JavaMachine, name: str) -> None:
    """A ticket gives a session no end; connections.max.reauth.ms does."""
    with fleet.opened(3, **{"connections.max.reauth.ms": "2000"}) as running:
        create(running.bootstrap, name, security=ADMIN)
        driver = Java(kerberos_machine, fleet.security("root/admin"))

        def has_begun_again() -> bool:
            driver.produce(running.bootstrap, name, numbered(1))
            return total(running, f"{METRIC}successful_reauthentication", listener="INTERNAL") >= 6

        await_that(has_begun_again, "brokers have authenticated again several times")
        assert total(running, f"{METRIC}failed_reauthentication") == 0
