"""A broker of ours and one of Apache Kafka in one cluster over SASL_SSL: they log in to each other by SCRAM, sessions
last for three seconds, and whoever stores a user, both let it in."""

from __future__ import annotations

import signal
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError, Producer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]
from kazoo.client import KazooClient

from ottla.local.ports import free_port
from ottla.local.zookeeper_server import ZooKeeperServer
from ottla_broker.protocol.api import ApiKey
from ottla_broker.security.sasl.jaas import SCRAM_MODULE
from ottla_broker.security.sasl.scram import ScramAlgorithm, ScramCredential
from tests.beside.comparison import own_chroot
from tests.beside.scram import alteration
from tests.integration.apache_kafka import ApacheKafka
from tests.integration.clients.driver import LIMIT_S
from tests.integration.clients.librdkafka import librdkafka_security
from tests.integration.clients.security import Security, wire
from tests.integration.clients.tls_stores import Stores
from tests.integration.local_fleet import eventually
from tests.integration.processes import BrokerProcess
from tests.integration.wire import Wire, fleet_named_by

pytestmark = pytest.mark.java

SCRAM = "SCRAM-SHA-512"
TOPIC = "t"
SESSION_MS = 3000


class Pair:
    """The two brokers, running."""

    def __init__(self, directory: Path, connect: str) -> None:
        self.stores = Stores(directory)
        store_user(connect, "broker", "broker-secret")
        store_user(connect, "alice", "alice-secret")
        configs = [self._config(), self._config()]
        self.ours = BrokerProcess(directory / "ours", 1, connect, configs[0])
        self.theirs = ApacheKafka(directory / "theirs", 2, connect, [directory / "their-logs"], configs[1])
        self.plain: list[str] = []
        self.secured: list[str] = []
        brokers: tuple[BrokerProcess | ApacheKafka, ...] = (self.ours, self.theirs)
        for broker, config in zip(brokers, configs, strict=True):
            plain, client, _ = (one.rpartition("://")[2] for one in config["listeners"].split(","))
            broker.port = int(plain.rpartition(":")[2])
            self.plain.append(plain)
            self.secured.append(client)

    def _config(self) -> dict[str, str]:
        own = "listener.name.{}.scram-sha-512.sasl.jaas.config"
        tls = {name: value for name, value in self.stores.broker_config.items() if name.startswith("ssl.")}
        return {
            "listeners": ",".join(f"{name}://127.0.0.1:{free_port()}" for name in ("PLAINTEXT", "CLIENT", "INTERNAL")),
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CLIENT:SASL_SSL,INTERNAL:SASL_SSL",
            "inter.broker.listener.name": "INTERNAL",
            "sasl.enabled.mechanisms": SCRAM,
            "sasl.mechanism.inter.broker.protocol": SCRAM,
            own.format("client"): f"{SCRAM_MODULE} required;",
            own.format("internal"): f'{SCRAM_MODULE} required username="broker" password="broker-secret";',
            "connections.max.reauth.ms": str(SESSION_MS),
            "ssl.keystore.location": str(self.stores.broker_config["ssl.keystore.location"]),
            "replica.lag.time.max.ms": "30000",
            **tls,
        }

    def security(self, user: str, password: str) -> Security:
        trusted = {name: value for name, value in self.stores.unnamed.items() if name.startswith("ssl.")}
        return {
            **trusted,
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": SCRAM,
            "sasl.jaas.config": f'{SCRAM_MODULE} required username="{user}" password="{password}";',
        }

    @property
    def config(self) -> dict[str, Any]:
        """Of a client of librdkafka."""
        alice = self.security("alice", "alice-secret")
        return {"bootstrap.servers": ",".join(self.secured), **librdkafka_security(alice)}

    def lets_in(self, user: str, password: str) -> list[bool]:
        """Whether ours does, and whether Apache Kafka's."""
        found = []
        for address in self.secured:
            try:
                wire(address, self.security(user, password)).close()
            except AssertionError:
                found.append(False)
            else:
                found.append(True)
        return found

    def is_whole(self) -> bool:
        return all(fleet_named_by(address)[1] == {1, 2} for address in self.plain)

    def metric(self, line: str) -> float:
        """Of ours."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.ours.http_port}/metrics", timeout=60) as answer:
            text = answer.read().decode()
        return sum(float(found.rpartition(" ")[2]) for found in text.splitlines() if found.startswith(line))


def store_user(connect: str, user: str, password: str) -> None:
    credential = ScramCredential.of(ScramAlgorithm(SCRAM), password, b"salt", 4096).encode()
    client = KazooClient(connect)
    client.start()
    content = f'{{"version":1,"config":{{"{SCRAM}":"{credential}"}}}}'
    client.create(f"/config/users/{user}", content.encode(), makepath=True)
    client.stop()
    client.close()


@pytest.fixture(scope="module", params=[0, 1], ids=["ours is the controller", "Apache Kafka's is the controller"])
def pair(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, zookeeper: ZooKeeperServer
) -> Iterator[Pair]:
    found = Pair(tmp_path_factory.mktemp("mixed"), own_chroot(zookeeper))
    order = (found.ours, found.theirs)
    try:
        for broker in order if request.param == 0 else order[::-1]:
            broker.start()
        eventually(found.is_whole, "both know both")
        yield found
    finally:
        found.theirs.close()
        found.ours.close()


def test_they_replicate_from_each_other_for_several_sessions_and_no_send_fails(pair: Pair) -> None:
    config = pair.config
    new = NewTopic(TOPIC, 2, replica_assignment=[[1, 2], [2, 1]], config={"min.insync.replicas": "2"})
    admin = AdminClient(config)  # which ends what it does when it goes
    admin.create_topics([new])[TOPIC].result(LIMIT_S)
    producer = Producer({**config, "acks": "all"})
    errors: list[KafkaError | None] = []
    line = 'kafka_server_socketservermetrics_successful_reauthentication_total{listener="INTERNAL"}'
    before = pair.metric(line)
    sent = 0

    def has_begun_again() -> bool:
        nonlocal sent
        for partition in range(2):
            producer.produce(TOPIC, b"value", partition=partition, on_delivery=lambda error, _: errors.append(error))
            sent += 1
        producer.poll(0.1)
        return pair.metric(line) >= before + 3

    eventually(has_begun_again, "Apache Kafka's broker has authenticated again at ours")
    assert producer.flush(LIMIT_S) == 0
    assert len(errors) == sent
    assert set(errors) == {None}
    for listener in ("CLIENT", "INTERNAL"):
        for name in ("failed_authentication", "failed_reauthentication", "expired_connections_killed"):
            assert pair.metric(f'kafka_server_socketservermetrics_{name}_total{{listener="{listener}"}}') == 0, name
    assert "Failed authentication" not in pair.theirs.log
    assert "failed re-authentication" not in pair.theirs.log.lower()


def test_whoever_stores_a_user_both_let_it_in_and_only_the_controller_takes_it(pair: Pair) -> None:
    assert pair.lets_in("carol", "salted password") == [False, False]
    codes = []
    for address in pair.plain:
        with Wire(address) as asked:
            request = alteration((("carol", 2, 4096),), ())
            answer = asked.ask(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, 0, request)
            codes.append((answer.results[0].error_code, answer.results[0].error_message))
    assert sorted(codes, key=repr) == [(0, ""), (41, None)]
    config = pair.config
    admin = AdminClient(config)
    described = admin.describe_user_scram_credentials(["carol"])["carol"].result(LIMIT_S)  # type: ignore[index]
    assert [info.iterations for info in described.scram_credential_infos] == [4096]


def test_a_broker_of_ours_that_comes_back_follows_again(pair: Pair) -> None:
    assert pair.ours.process is not None
    pair.ours.process.send_signal(signal.SIGKILL)
    pair.ours.process.wait(LIMIT_S)
    pair.ours.start()
    eventually(pair.is_whole, "both know both")
    eventually(lambda: pair.lets_in("alice", "alice-secret") == [True, True], "both let clients in")
