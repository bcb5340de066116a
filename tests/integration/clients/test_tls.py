"""Every client over TLS: with and without a certificate of its own, and what it tells when it is refused.

Between the brokers there is TLS too, on both sides with certificates.
"""

from __future__ import annotations

import base64
import urllib.request
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka import Producer
from prometheus_client.parser import text_string_to_metric_families

from ottla.testing import RunningCluster, cluster
from tests.integration.clients.conftest import EVERY_ADMIN, EVERY_CLIENT, make_driver
from tests.integration.clients.driver import LIMIT_S, Administrator, Driver, Gathering, GroupMember, Record, await_that
from tests.integration.clients.java import Java, JavaMachine
from tests.integration.clients.kcat import Kcat
from tests.integration.clients.librdkafka import Librdkafka, librdkafka_security
from tests.integration.clients.load import Load
from tests.integration.clients.refused import Refused
from tests.integration.clients.security import PLAIN, Security
from tests.integration.clients.test_console_tools import CONSUMER, PRODUCER, TOPICS, Tools
from tests.integration.clients.test_every_client import SHAPES, closing, without_offsets
from tests.integration.clients.tls_stores import Stores, serials
from tests.integration.clients.topics import FOREVER, await_known, create, numbered

JAVA_4 = pytest.param("java-4", marks=[pytest.mark.java])
every_client = pytest.mark.parametrize("driver", [*EVERY_CLIENT, JAVA_4], indirect=True)
every_admin = pytest.mark.parametrize("driver", [*EVERY_ADMIN, JAVA_4], indirect=True)
every_name = pytest.mark.parametrize("client", EVERY_CLIENT)


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Stores:
    return Stores(tmp_path_factory.mktemp("stores"))


@pytest.fixture(scope="module")
def fleet(stores: Stores) -> Iterator[RunningCluster]:
    """Its clients need no certificate."""
    with _fleet(stores) as found:
        yield found


@pytest.fixture(scope="module")
def strict_fleet(stores: Stores) -> Iterator[RunningCluster]:
    """Its clients need a certificate."""
    with _fleet(stores, **{"listener.name.client.ssl.client.auth": "required"}) as found:
        yield found


def _fleet(stores: Stores, **config: str) -> AbstractContextManager[RunningCluster]:
    patience = {"group.min.session.timeout.ms": "500", "min.insync.replicas": "2", "replica.lag.time.max.ms": "30000"}
    return cluster(brokers=3, racks=3, config={**patience, **stores.broker_config, **config})


@pytest.fixture
def security(stores: Stores) -> Security:
    return stores.unnamed


@pytest.fixture
def driver(request: pytest.FixtureRequest, security: Security) -> Driver:
    return _driver(request, request.param, security)


def _driver(request: pytest.FixtureRequest, name: str, security: Security) -> Driver:
    if name == "java-4":
        return Java(request.getfixturevalue("machine_4"), security)
    return make_driver(request, name, security)


def counted(fleet: RunningCluster, family: str, **labels: str) -> float:
    """As `total`, of the listener for clients by default."""
    return total(fleet, family, **{"listener": "CLIENT", "role": "server", **labels})


def total(fleet: RunningCluster, family: str, **wanted: str) -> float:
    """A counter over all brokers and all labels that are not given."""
    found_in_all = 0.0
    for broker in fleet.running:
        with urllib.request.urlopen(f"http://{fleet.http(broker)}/metrics", timeout=60) as answer:
            text = answer.read().decode()
        for found in text_string_to_metric_families(text):
            if found.name == family:
                found_in_all += sum(each.value for each in found.samples if wanted.items() <= each.labels.items())
    return found_in_all


HANDSHAKES = "ottla_ssl_handshakes"
FAILURES = "ottla_ssl_handshake_failures"


# What works without TLS


def send_and_read_every_shape(driver: Driver, bootstrap: str, topic: str) -> None:
    security = driver.security
    create(bootstrap, topic, security=security, retention_ms=FOREVER)
    sent = SHAPES if driver.can_send_null_headers else [replace(SHAPES[0], headers=SHAPES[0].headers[:-1]), *SHAPES[1:]]
    driver.produce(bootstrap, topic, sent)
    for reader in (driver, Librdkafka(security)):
        got = without_offsets(reader.read(bootstrap, topic))
        if driver.name == "kcat":  # it gives every record its own clock's time
            got = [replace(found, timestamp_ms=shape.timestamp_ms) for found, shape in zip(got, sent, strict=True)]
        assert got == sent


@every_client
def test_records_come_back_as_they_were_sent(driver: Driver, bootstrap: str, name: str) -> None:
    send_and_read_every_shape(driver, bootstrap, name)


@pytest.mark.parametrize("client", [*EVERY_CLIENT, JAVA_4])
def test_clients_with_a_certificate_are_served_where_one_is_required(
    client: str, request: pytest.FixtureRequest, strict_fleet: RunningCluster, stores: Stores, name: str
) -> None:
    driver = _driver(request, client, stores.named)
    send_and_read_every_shape(driver, strict_fleet.bootstrap, name)
    gathering = Gathering()
    with closing(driver.join(strict_fleet.bootstrap, GroupMember(name, name, name), gathering)):
        gathering.wait_until(lambda found: len(found.values()) == len(SHAPES), "everything is read by the group")
    if isinstance(driver, Administrator):
        assert name in driver.topics(strict_fleet.bootstrap)


@every_client
def test_a_group_goes_on_where_it_committed(driver: Driver, bootstrap: str, name: str) -> None:
    create(bootstrap, name, security=driver.security)
    gathering = Gathering()
    for first, member in ((0, f"{name}-a"), (10, f"{name}-b")):
        driver.produce(bootstrap, name, numbered(first + 10, first=first), is_idempotent=True)
        with closing(driver.join(bootstrap, GroupMember(member, name, name), gathering)):
            gathering.wait_until(lambda found, end=first + 10: len(found.values()) >= end, "read")  # type: ignore[misc]
    assert gathering.values() == [record.value for record in numbered(20)]


@every_admin
def test_a_topic_is_created_described_altered_and_deleted(driver: Administrator, bootstrap: str, name: str) -> None:
    driver.create_topic(bootstrap, name, 3, 2, {"retention.ms": "86400000"})
    await_known(bootstrap, name, 3, security=driver.security)
    described = driver.describe_topic(bootstrap, name)
    assert sorted(described.leaders.values()) == [0, 1, 2]
    assert driver.topic_config(bootstrap, name)["retention.ms"] == "86400000"
    driver.alter_topic(bootstrap, name, {"retention.ms": "3600000"})
    await_that(lambda: driver.topic_config(bootstrap, name)["retention.ms"] == "3600000", "the new retention is told")
    driver.grow_topic(bootstrap, name, 5)
    await_that(lambda: len(driver.describe_topic(bootstrap, name).leaders) == 5, "it has five partitions")
    driver.delete_topic(bootstrap, name)
    await_that(lambda: name not in driver.topics(bootstrap), "it is gone")


OUTCOMES = [([b"a", b"b"], True), ([b"c"], False), ([b"d"], True)]


def test_transactions_of_librdkafka(bootstrap: str, security: Security, name: str) -> None:
    create(bootstrap, name, security=security)
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": name, **librdkafka_security(security)})
    producer.init_transactions(LIMIT_S)
    for values, commits in OUTCOMES:
        producer.begin_transaction()
        for value in values:
            producer.produce(name, value, partition=0)
        assert producer.flush(LIMIT_S) == 0
        (producer.commit_transaction if commits else producer.abort_transaction)(LIMIT_S)
    assert [record.value for record in Librdkafka(security).read(bootstrap, name)] == [b"a", b"b", b"d"]


@pytest.mark.java
def test_transactions_of_java(machine: JavaMachine, bootstrap: str, security: Security, name: str) -> None:
    create(bootstrap, name, security=security)
    transactions = [
        {"values": [base64.b64encode(value).decode() for value in values], "commit": commits}
        for values, commits in OUTCOMES
    ]
    config = {"transactional.id": name, **security}
    machine.ask("transactions", bootstrap=bootstrap, topic=name, partitions=1, transactions=transactions, config=config)
    assert [record.value for record in Librdkafka(security).read(bootstrap, name)] == [b"a", b"b", b"d"]


@every_client
def test_a_record_of_5_mb_goes_both_ways(driver: Driver, bootstrap: str, name: str) -> None:
    create(bootstrap, name, max_message_bytes="6000000", security=driver.security)
    sent = b"".join(b"%07d " % number for number in range(625_000))
    driver.produce(bootstrap, name, [Record(b"before", b"small"), Record(b"big", sent), Record(b"after", b"small")])
    got = {record.key: record.value for record in driver.read(bootstrap, name)}
    assert got.keys() == {b"before", b"big", b"after"}
    assert got[b"big"] == sent


@pytest.mark.java
def test_the_console_tools(machine: JavaMachine, bootstrap: str, security: Security, name: str, tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text("".join(f"{key}={value}\n" for key, value in security.items()))
    tools = Tools(machine, bootstrap)
    tools(TOPICS, "--create", "--topic", name, "--partitions", "1", "--command-config", str(file))
    await_known(bootstrap, name, security=security)
    tools(PRODUCER, "--topic", name, "--producer.config", str(file), standard_input="value 1\nvalue 2\n")
    until = ("--from-beginning", "--max-messages", "2")
    printed = tools(CONSUMER, "--topic", name, "--consumer.config", str(file), *until)
    assert printed.splitlines() == ["value 1", "value 2"]


# Versions


@pytest.mark.parametrize("version", ["TLSv1.2", "TLSv1.3"])
@pytest.mark.parametrize("client", ["kafka-python", "aiokafka", pytest.param("java", marks=[pytest.mark.java])])
def test_clients_of_one_version_only(
    client: str, version: str, request: pytest.FixtureRequest, fleet: RunningCluster, security: Security, name: str
) -> None:
    create(fleet.bootstrap, name, security=security)
    before = counted(fleet, HANDSHAKES, protocol=version)
    driver = make_driver(request, client, {**security, "ssl.enabled.protocols": version})
    driver.produce(fleet.bootstrap, name, numbered(10))
    assert [record.value for record in driver.read(fleet.bootstrap, name)] == [record.value for record in numbered(10)]
    assert counted(fleet, HANDSHAKES, protocol=version) > before


@pytest.mark.kcat
@pytest.mark.parametrize("version", ["TLSv1.2", "TLSv1.3"])
def test_kcat_with_one_version_only(
    version: str,
    fleet: RunningCluster,
    security: Security,
    name: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """librdkafka leaves it to OpenSSL's own configuration."""
    create(fleet.bootstrap, name, security=security)
    before = counted(fleet, HANDSHAKES, protocol=version)
    file = tmp_path / "openssl.cnf"
    file.write_text(
        f"openssl_conf=a\n[a]\nssl_conf=b\n[b]\nsystem_default=c\n[c]\nMinProtocol={version}\nMaxProtocol={version}\n"
    )
    monkeypatch.setenv("OPENSSL_CONF", str(file))
    driver = Kcat(security)
    driver.produce(fleet.bootstrap, name, numbered(10))
    assert [record.value for record in driver.read(fleet.bootstrap, name)] == [record.value for record in numbered(10)]
    assert counted(fleet, HANDSHAKES, protocol=version) > before


# Refusals


@pytest.fixture
def refused(caplog: pytest.LogCaptureFixture, request: pytest.FixtureRequest) -> Refused:
    return Refused(caplog, lambda: request.getfixturevalue("machine"))


ALERT = r"(?i)certificate.required|EOF occurred|connection reset|connection lost|disconnected|closed|broken pipe"
"""In TLS 1.3 a client hears of it after its own handshake, or of a connection that has ended meanwhile."""
NO_CERTIFICATE = {"librdkafka": "certificate required", "java": "SslAuthenticationException"}
UNTRUSTED = {
    "librdkafka": "_SSL.*certificate verify failed",
    "kcat": "certificate verify failed",
    "kafka-python": "certificate verify failed",
    "aiokafka": "certificate verify failed",
    "java": "SslAuthenticationException: SSL handshake failed",
}
PLAIN_TEXT = {
    "librdkafka": "_ALL_BROKERS_DOWN",
    "kcat": r"might be caused by incorrect security\.protocol configuration|All broker connections are down",
    "kafka-python": "Unable to bootstrap",
    "aiokafka": "Unable to bootstrap",
    "java": "TimeoutException: Timed out waiting for a node assignment",
}


@every_name
def test_a_client_without_a_certificate_is_refused_where_one_is_required(
    client: str, refused: Refused, strict_fleet: RunningCluster, stores: Stores
) -> None:
    count = partial(counted, strict_fleet, FAILURES, reason="peer_did_not_return_a_certificate")
    before = count()
    refused.must_tell(client, strict_fleet.bootstrap, stores.unnamed, NO_CERTIFICATE.get(client, ALERT))
    await_that(lambda: count() > before, "it is counted")


@every_name
def test_a_client_that_trusts_another_authority_says_so_and_others_are_served(
    client: str, refused: Refused, fleet: RunningCluster, stores: Stores, name: str
) -> None:
    before = counted(fleet, FAILURES)
    refused.must_tell(client, fleet.bootstrap, stores.misled, UNTRUSTED[client])
    await_that(lambda: counted(fleet, FAILURES) > before, "it is counted")
    create(fleet.bootstrap, name, security=stores.unnamed)
    assert Librdkafka(stores.unnamed).produce(fleet.bootstrap, name, numbered(1)) == [0]


@every_name
def test_a_client_without_tls_is_not_answered_and_gives_up(
    client: str, refused: Refused, fleet: RunningCluster
) -> None:
    count = partial(counted, fleet, FAILURES, reason="not_tls")
    before = count()
    refused.must_tell(client, fleet.bootstrap, PLAIN, PLAIN_TEXT[client])
    await_that(lambda: count() > before, "it is counted")


def test_the_listener_of_the_brokers_refuses_who_has_no_certificate(
    refused: Refused, fleet: RunningCluster, internal: str, stores: Stores
) -> None:
    assert counted(fleet, HANDSHAKES, listener="INTERNAL", role="client") > 0, "they reach each other over TLS"
    count = partial(counted, fleet, FAILURES, listener="INTERNAL", reason="peer_did_not_return_a_certificate")
    before = count()
    refused.must_tell("librdkafka", internal, stores.unnamed, NO_CERTIFICATE["librdkafka"])
    await_that(lambda: count() > before, "it is counted")


# New certificates


@pytest.mark.java
@pytest.mark.kcat
@pytest.mark.public_report(7)
def test_a_new_certificate_is_served_while_clients_go_on(
    machine: JavaMachine, fleet: RunningCluster, stores: Stores, security: Security, name: str
) -> None:
    """No send fails and every group is given every record once; a broker that starts after it is reached with it."""
    create(fleet.bootstrap, name, 3, security=security)
    with Load(fleet.bootstrap, name, 3, machine, security) as load:
        load.goes_on("before there is a new certificate")
        serial = stores.renew()
        await_that(lambda: serials(fleet, security) == {serial}, "every broker shows it to a new connection")
        load.goes_on("on the connections of before")
        fleet.stop(2)
        fleet.start(2)
        load.goes_on("on new connections, of clients and of the other brokers")
        assert serials(fleet, security) == {serial}
        load.end()
