"""A broker of ours and one of Apache Kafka in one cluster over GSSAPI: they log in to each other with their keytabs,
and both let the same clients in."""

from __future__ import annotations

import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError, Producer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from ottla.local.ports import free_port
from ottla.local.zookeeper_server import ZooKeeperServer
from ottla_broker.protocol import codec
from ottla_broker.protocol.api import ApiKey
from ottla_broker.security.kerberos_rules import KerberosRules
from ottla_broker.security.kerberos_settings import KerberosSettings, Keytab, Renewal
from ottla_broker.security.sasl.gssapi import GssapiClient
from ottla_broker.security.sasl.jaas import KERBEROS_MODULE
from tests.beside.comparison import own_chroot
from tests.integration.apache_kafka import ApacheKafka
from tests.integration.clients.driver import LIMIT_S
from tests.integration.local_fleet import eventually
from tests.integration.processes import BrokerProcess
from tests.integration.wire import Wire, fleet_named_by
from tests.kdc import REALM, Kdc

pytestmark = [pytest.mark.java, pytest.mark.kerberos]

NAMES = ("PLAINTEXT", "CLIENT", "INTERNAL")
SESSION_MS = 3000


class Pair:
    """The two brokers, running: ours, then theirs."""

    def __init__(self, directory: Path, connect: str, kdc: Kdc) -> None:
        keytab = kdc.keytab("kafka/localhost")
        self._users = {name: kdc.keytab(name) for name in ("alice", "eve/other")}
        self.ports = [{name: free_port() for name in NAMES} for _ in range(2)]
        jaas = (
            f'{KERBEROS_MODULE} required useKeyTab=true storeKey=true keyTab="{keytab}" '
            f'principal="kafka/localhost@{REALM}";'
        )
        configs = [
            {
                "listeners": ",".join(f"{name}://localhost:{port}" for name, port in ports.items()),
                "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CLIENT:SASL_PLAINTEXT,INTERNAL:SASL_PLAINTEXT",
                "inter.broker.listener.name": "INTERNAL",
                "sasl.kerberos.service.name": "kafka",
                "sasl.kerberos.principal.to.local.rules": "RULE:[2:$1](kafka),RULE:[1:$1]",
                "listener.name.client.gssapi.sasl.jaas.config": jaas,
                "listener.name.internal.gssapi.sasl.jaas.config": jaas,
                "listener.name.internal.connections.max.reauth.ms": str(SESSION_MS),
                "replica.lag.time.max.ms": "30000",
            }
            for ports in self.ports
        ]
        self.ours = BrokerProcess(directory / "ours", 1, connect, configs[0])
        self.theirs = ApacheKafka(
            directory / "theirs", 2, connect, [directory / "their-logs"], configs[1], kdc.java_options
        )
        self.ours.port, self.theirs.port = (ports["PLAINTEXT"] for ports in self.ports)

    @property
    def plain(self) -> str:
        return ",".join(f"localhost:{ports['PLAINTEXT']}" for ports in self.ports)

    def is_whole(self) -> bool:
        return all(fleet_named_by(f"127.0.0.1:{ports['PLAINTEXT']}")[1] == {1, 2} for ports in self.ports)

    def reauthenticated(self) -> float:
        """How often Apache Kafka's broker has at ours."""
        name = 'kafka_server_socketservermetrics_successful_reauthentication_total{listener="INTERNAL"}'
        with urllib.request.urlopen(f"http://127.0.0.1:{self.ours.http_port}/metrics", timeout=60) as answer:
            lines = answer.read().decode().splitlines()
        return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith(name))

    def client(self, user: str) -> GssapiClient:
        from ottla_broker.security.kerberos import Kerberos

        keytab = Keytab("key", f"{user}@{REALM}", str(self._users[user]))
        login = KerberosSettings(keytab, "kafka", KerberosRules([]), Renewal(0.8, 0.05, 60), True)
        return GssapiClient(lambda: Kerberos(time.monotonic, lambda: 0.0).initiate(login, "localhost"))

    def answers(self, user: str) -> list[bool]:
        """Whether ours, and whether Apache Kafka's, serves a request of somebody."""
        found = []
        for ports in self.ports:
            with Wire(f"localhost:{ports['CLIENT']}") as asked:
                try:
                    asked.log_in_by("GSSAPI", self.client(user))
                    request = codec.module(ApiKey.METADATA).MetadataRequest(topics=[])
                    found.append(bool(asked.ask(ApiKey.METADATA, 4, request).brokers))
                except AssertionError:
                    found.append(False)
        return found


@pytest.fixture(scope="module", params=[0, 1], ids=["ours is the controller", "Apache Kafka's is the controller"])
def pair(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, zookeeper: ZooKeeperServer
) -> Iterator[Pair]:
    kdc = Kdc(tmp_path_factory.mktemp("realm"))
    kdc.start()
    with pytest.MonkeyPatch.context() as patched:
        for name, value in kdc.environment.items():
            patched.setenv(name, value)
        found = Pair(tmp_path_factory.mktemp("mixed"), own_chroot(zookeeper), kdc)
        order = (found.ours, found.theirs)
        try:
            for broker in order if request.param == 0 else order[::-1]:
                broker.start()
            eventually(found.is_whole, "both know both")
            yield found
        finally:
            found.theirs.close()
            found.ours.close()
            kdc.stop()


def test_they_replicate_from_each_other_for_several_sessions_and_no_send_fails(pair: Pair) -> None:
    config: dict[str, Any] = {"bootstrap.servers": pair.plain}
    new = NewTopic("t", 2, replica_assignment=[[1, 2], [2, 1]], config={"min.insync.replicas": "2"})
    admin = AdminClient(config)
    admin.create_topics([new])["t"].result(LIMIT_S)
    producer = Producer({**config, "acks": "all"})
    errors: list[KafkaError | None] = []
    before = pair.reauthenticated()
    sent = 0

    def has_begun_again() -> bool:
        nonlocal sent
        for partition in range(2):
            producer.produce("t", b"value", partition=partition, on_delivery=lambda error, _: errors.append(error))
            sent += 1
        producer.poll(0.1)
        return pair.reauthenticated() >= before + 3

    eventually(has_begun_again, "Apache Kafka's broker has authenticated again at ours")
    assert producer.flush(LIMIT_S) == 0
    assert len(errors) == sent
    assert set(errors) == {None}
    assert "Failed authentication" not in pair.theirs.log
    assert "failed authentication" not in pair.ours.log
    assert "failed re-authentication" not in pair.ours.log


def test_both_let_in_who_has_a_ticket_and_a_short_name(pair: Pair) -> None:
    assert pair.answers("alice") == [True, True]
    assert pair.answers("eve/other") == [False, False]


def test_both_tell_no_more_than_that_a_token_is_not_valid(pair: Pair) -> None:
    told = []
    for ports in pair.ports:
        with Wire(f"localhost:{ports['CLIENT']}") as asked:
            handshake = codec.module(ApiKey.SASL_HANDSHAKE).SaslHandshakeRequest(mechanism="GSSAPI")
            mechanisms = list(asked.ask(ApiKey.SASL_HANDSHAKE, 1, handshake).mechanisms)
            request = codec.module(ApiKey.SASL_AUTHENTICATE).SaslAuthenticateRequest(auth_bytes=b"nonsense")
            answer = asked.ask(ApiKey.SASL_AUTHENTICATE, 2, request)
            told.append((mechanisms, answer.error_code, answer.error_message, asked.is_closed_by_broker()))
    assert told[0] == told[1]
    assert told[0][:2] == (["GSSAPI"], 58)
