"""SASL: every client that we know logs in, by each mechanism and with and without TLS, and is refused with the reason;
users come and go while the brokers run."""

from __future__ import annotations

import base64
import logging
import socket
import struct
import urllib.request
from collections.abc import Iterator
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)
from kazoo.client import KazooClient

from ottla.local.zookeeper_server import ZooKeeperServer
from ottla.testing import RunningCluster, cluster
from ottla_broker.config.zookeeper_security import JAAS_KEY
from ottla_broker.protocol import codec
from ottla_broker.protocol.api import ApiKey
from ottla_broker.security.sasl.jaas import PLAIN_MODULE, SCRAM_MODULE
from tests.integration.clients.conftest import EVERY_CLIENT, make_driver
from tests.integration.clients.driver import LIMIT_S, await_that
from tests.integration.clients.java import JavaMachine
from tests.integration.clients.librdkafka import Librdkafka, librdkafka_security
from tests.integration.clients.refused import Refused
from tests.integration.clients.security import Security, wire
from tests.integration.clients.test_console_tools import CONFIGS, Tools
from tests.integration.clients.test_tls import send_and_read_every_shape, total
from tests.integration.clients.tls_stores import Stores
from tests.integration.clients.topics import create, numbered
from tests.integration.wire import Wire
from tests.secured_zookeeper import jaas_line

PLAIN, SHA_256, SHA_512 = "PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"
SECRET = 'al,ice="sec\\ret'
"""What a JAAS line has to quote, and SCRAM and librdkafka to leave as it is."""
EVERY_SECRET = ("broker-secret", "al,ice", "admin-secret")
WAYS = [("SASL_PLAINTEXT", PLAIN), ("SASL_SSL", PLAIN), ("SASL_PLAINTEXT", SHA_256), ("SASL_SSL", SHA_512)]
METRIC = "kafka_server_socketservermetrics_"


def quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def login(protocol: str, mechanism: str, user: str = "alice", password: str = SECRET) -> dict[str, str]:
    """Of a client, but for TLS."""
    module = PLAIN_MODULE if mechanism == PLAIN else SCRAM_MODULE
    return {
        "security.protocol": protocol,
        "sasl.mechanism": mechanism,
        "sasl.jaas.config": f"{module} required username={quoted(user)} password={quoted(password)};",
    }


def broker_config(protocol: str, **more: str) -> dict[str, str]:
    """Brokers log in to each other by PLAIN, and clients by each mechanism."""
    client = "listener.name.client."
    return {
        "group.min.session.timeout.ms": "500",
        "min.insync.replicas": "2",
        "replica.lag.time.max.ms": "30000",
        "listener.security.protocol.map": f"INTERNAL:{protocol},CLIENT:{protocol}",
        "sasl.enabled.mechanisms": PLAIN,
        "sasl.mechanism.inter.broker.protocol": PLAIN,
        "listener.name.internal.plain.sasl.jaas.config": (
            f'{PLAIN_MODULE} required username="broker" password="broker-secret" user_broker="broker-secret";'
        ),
        f"{client}sasl.enabled.mechanisms": f"{PLAIN},{SHA_256},{SHA_512}",
        f"{client}plain.sasl.jaas.config": (
            f'{PLAIN_MODULE} required user_admin="admin-secret" user_alice={quoted(SECRET)};'
        ),
        f"{client}scram-sha-256.sasl.jaas.config": f"{SCRAM_MODULE} required;",
        f"{client}scram-sha-512.sasl.jaas.config": f"{SCRAM_MODULE} required;",
        **more,
    }


class SaslFleet:
    """A running fleet, and how its clients reach it."""

    def __init__(self, fleet: RunningCluster, protocol: str, tls: Security) -> None:
        self.fleet = fleet
        self._protocol = protocol
        self._tls = tls

    @property
    def bootstrap(self) -> str:
        return self.fleet.bootstrap

    def security(self, mechanism: str, user: str = "alice", password: str = SECRET) -> Security:
        return {**self._tls, **login(self._protocol, mechanism, user, password)}

    @property
    def admin(self) -> Security:
        return self.security(PLAIN, "admin", "admin-secret")

    def set_password(self, user: str, password: str = SECRET) -> None:
        """Of both mechanisms of SCRAM, and waits until every broker knows it."""
        admin = AdminClient({"bootstrap.servers": self.bootstrap, **librdkafka_security(self.admin)})
        for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512):
            info = ScramCredentialInfo(mechanism, 4096)
            made = UserScramCredentialUpsertion(user, info, password.encode())
            admin.alter_user_scram_credentials([made])[user].result(LIMIT_S)
        for name in (SHA_256, SHA_512):
            await_that(partial(self.lets_in, name, user, password), f"every broker lets {user} in")

    def remove(self, user: str) -> None:
        admin = AdminClient({"bootstrap.servers": self.bootstrap, **librdkafka_security(self.admin)})
        for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512):
            gone = UserScramCredentialDeletion(user, mechanism)
            admin.alter_user_scram_credentials([gone])[user].result(LIMIT_S)

    def lets_in(self, mechanism: str, user: str, password: str = SECRET, *, how_many: int | None = None) -> bool:
        """Whether every broker does, or so many do."""
        found = 0
        for broker in self.fleet.running:
            try:
                wire(self.fleet.address(broker), self.security(mechanism, user, password)).close()
            except AssertionError:
                continue
            found += 1
        return found == (len(self.fleet.running) if how_many is None else how_many)

    def counted(self, name: str, **labels: str) -> float:
        return total(self.fleet, f"{METRIC}{name}", **labels)


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Stores:
    return Stores(tmp_path_factory.mktemp("stores"))


def _cluster(protocol: str, stores: Stores, **more: str) -> AbstractContextManager[RunningCluster]:
    tls = {name: value for name, value in stores.broker_config.items() if name.startswith("ssl.")}
    return cluster(brokers=3, racks=3, config={**tls, **broker_config(protocol, **more)})


def _opened(protocol: str, stores: Stores, **more: str) -> Iterator[SaslFleet]:
    tls = {name: value for name, value in stores.unnamed.items() if name.startswith("ssl.")}
    with _cluster(protocol, stores, **more) as running:
        found = SaslFleet(running, protocol, tls if protocol == "SASL_SSL" else {})
        found.set_password("alice")
        yield found


@pytest.fixture(scope="module")
def plain_fleet(stores: Stores) -> Iterator[SaslFleet]:
    yield from _opened("SASL_PLAINTEXT", stores)


@pytest.fixture(scope="module")
def tls_fleet(stores: Stores) -> Iterator[SaslFleet]:
    yield from _opened("SASL_SSL", stores)


@pytest.fixture
def sasl_fleet(request: pytest.FixtureRequest) -> SaslFleet:
    """That of the `protocol` of a test."""
    name = "plain_fleet" if request.getfixturevalue("protocol") == "SASL_PLAINTEXT" else "tls_fleet"
    found: SaslFleet = request.getfixturevalue(name)
    return found


@pytest.mark.parametrize(("protocol", "mechanism"), WAYS)
@pytest.mark.parametrize("client", EVERY_CLIENT)
def test_records_come_back_as_they_were_sent(
    client: str, protocol: str, mechanism: str, request: pytest.FixtureRequest, sasl_fleet: SaslFleet, name: str
) -> None:
    driver = make_driver(request, client, sasl_fleet.security(mechanism))
    send_and_read_every_shape(driver, sasl_fleet.bootstrap, name)


def test_brokers_log_in_to_each_other(tls_fleet: SaslFleet) -> None:
    count = partial(tls_fleet.counted, listener="INTERNAL")
    assert count("successful_authentication") > 0
    assert count("failed_authentication") == 0


# Refusals


@pytest.fixture
def refused(caplog: pytest.LogCaptureFixture, request: pytest.FixtureRequest) -> Refused:
    return Refused(caplog, lambda: request.getfixturevalue("machine"))


WRONG = {
    PLAIN: "Invalid username or password",
    SHA_512: "due to invalid credentials with SASL mechanism SCRAM-SHA-512",
}
NOT_TOLD = {"aiokafka": r"(?i)authentication|SaslAuthenticationFailed|Unable to bootstrap"}


@pytest.mark.parametrize("mechanism", [PLAIN, SHA_512])
@pytest.mark.parametrize(("user", "password"), [("alice", "wrong"), ("nobody", SECRET)])
@pytest.mark.parametrize("client", EVERY_CLIENT)
def test_a_wrong_password_and_an_unknown_user_are_refused_with_the_reason(
    client: str, user: str, password: str, mechanism: str, refused: Refused, plain_fleet: SaslFleet
) -> None:
    before = plain_fleet.counted("failed_authentication")
    expected = NOT_TOLD.get(client, WRONG[mechanism])
    refused.must_tell(client, plain_fleet.bootstrap, plain_fleet.security(mechanism, user, password), expected)
    await_that(lambda: plain_fleet.counted("failed_authentication") > before, "it is counted")


def test_a_mechanism_that_the_listener_does_not_have_is_refused(plain_fleet: SaslFleet) -> None:
    errors: list[KafkaError] = []
    config = librdkafka_security(plain_fleet.security(SHA_256, "broker", "broker-secret"))
    address = plain_fleet.fleet.internal_address(0)
    producer = Producer({"bootstrap.servers": address, "error_cb": errors.append, "log_level": 0, **config})

    def has_told() -> bool:
        producer.poll(0.1)
        return "unsupported SASL mechanism" in str(errors).lower() or "UNSUPPORTED" in str(errors).upper()

    await_that(has_told, "it is told")


# Users that come and go


def test_a_new_user_gets_in_and_one_that_is_gone_does_not(plain_fleet: SaslFleet, name: str) -> None:
    assert plain_fleet.lets_in(SHA_512, "carol", "c", how_many=0)
    plain_fleet.set_password("carol", "c")
    assert plain_fleet.lets_in(SHA_256, "carol", "wrong", how_many=0)
    with wire(plain_fleet.fleet.address(0), plain_fleet.security(SHA_256, "carol", "c")) as connected:
        plain_fleet.set_password("carol", "d")
        await_that(lambda: plain_fleet.lets_in(SHA_256, "carol", "c", how_many=0), "nobody lets the old password in")
        plain_fleet.remove("carol")
        await_that(lambda: plain_fleet.lets_in(SHA_512, "carol", "d", how_many=0), "nobody lets it in")
        api = codec.module(ApiKey.METADATA)
        assert connected.ask(ApiKey.METADATA, 4, api.MetadataRequest(topics=[])).brokers, "who is connected stays"


@pytest.mark.java
def test_kafka_configs_sets_shows_and_removes_users_and_keeps_their_quotas(
    machine: JavaMachine, plain_fleet: SaslFleet, tmp_path: Path
) -> None:
    file = tmp_path / "admin.properties"
    escaped = {name: value.replace("\\", "\\\\") for name, value in plain_fleet.admin.items()}
    file.write_text("".join(f"{key}={value}\n" for key, value in escaped.items()))
    tools = Tools(machine, plain_fleet.bootstrap)
    configs = partial(tools, CONFIGS, "--command-config", str(file), "--entity-type", "users", "--entity-name", "dave")
    configs("--alter", "--add-config", "producer_byte_rate=1048576")
    configs("--alter", "--add-config", "SCRAM-SHA-512=[iterations=8192,password=dave-secret]")
    configs("--alter", "--add-config", "SCRAM-SHA-256=[password=dave-secret]")
    await_that(lambda: plain_fleet.lets_in(SHA_512, "dave", "dave-secret"), "every broker lets it in")
    shown = configs("--describe")
    assert "producer_byte_rate=1048576.0" in shown
    assert "SCRAM-SHA-512=iterations=8192" in shown
    assert "SCRAM-SHA-256=iterations=4096" in shown
    configs("--alter", "--delete-config", "SCRAM-SHA-512")
    await_that(lambda: plain_fleet.lets_in(SHA_512, "dave", "dave-secret", how_many=0), "nobody lets it in")
    assert plain_fleet.lets_in(SHA_256, "dave", "dave-secret")
    assert "producer_byte_rate=1048576.0" in configs("--describe")
    configs("--alter", "--delete-config", "producer_byte_rate")
    assert plain_fleet.lets_in(SHA_256, "dave", "dave-secret")
    configs("--alter", "--delete-config", "SCRAM-SHA-256")
    assert configs("--describe").strip() == ""


# Sessions that end


@pytest.fixture(scope="module")
def short_fleet(stores: Stores) -> Iterator[SaslFleet]:
    """Its sessions last for two seconds, those of brokers as well."""
    yield from _opened("SASL_PLAINTEXT", stores, **{"connections.max.reauth.ms": "2000"})


@pytest.mark.java
@pytest.mark.parametrize("mechanism", [PLAIN, SHA_512])
def test_clients_and_brokers_authenticate_again_and_nothing_fails(
    machine: JavaMachine, mechanism: str, short_fleet: SaslFleet, name: str, request: pytest.FixtureRequest
) -> None:
    """Producers send on for several sessions, with replication behind them: no connection is used behind its end."""
    security = short_fleet.security(mechanism)
    create(short_fleet.bootstrap, name, 3, security=security)
    java = make_driver(request, "java", security)
    before = {listener: short_fleet.counted("successful_reauthentication", listener=listener) for listener in LISTENERS}
    librdkafka = Producer({"bootstrap.servers": short_fleet.bootstrap, **librdkafka_security(security)})
    failed: list[KafkaError | None] = []
    sent = 0

    def has_begun_again() -> bool:
        nonlocal sent
        librdkafka.produce(name, b"value", partition=sent % 3, on_delivery=lambda error, _: failed.append(error))
        sent += 1
        librdkafka.poll(0.05)
        return all(
            short_fleet.counted("successful_reauthentication", listener=listener) >= before[listener] + 6
            for listener in LISTENERS
        )

    gone = short_fleet.counted("expired_connections_killed", listener="INTERNAL")
    java.produce(short_fleet.bootstrap, name, numbered(10))
    await_that(has_begun_again, "clients and brokers have authenticated again several times")
    assert librdkafka.flush(LIMIT_S) == 0
    assert set(failed) == {None}
    assert short_fleet.counted("expired_connections_killed", listener="INTERNAL") == gone
    assert short_fleet.counted("failed_reauthentication") == 0
    assert len(Librdkafka(security).read(short_fleet.bootstrap, name, 3)) == sent + 10


LISTENERS = ("CLIENT", "INTERNAL")


# SCRAM between brokers


@pytest.mark.java
def test_brokers_log_in_by_scram_with_users_that_kafka_configs_has_stored_before_they_start(
    machine: JavaMachine, zookeeper: ZooKeeperServer, stores: Stores, tmp_path: Path
) -> None:
    chroot = f"/{tmp_path.name}"
    client = KazooClient(zookeeper.connect)
    client.start()
    client.ensure_path(chroot)
    client.stop()
    client.close()
    machine_tools = Tools(machine, "")
    machine_tools.bare(
        CONFIGS,
        *("--zookeeper", f"{zookeeper.connect}{chroot}", "--alter", "--entity-type", "users"),
        *("--entity-name", "broker", "--add-config", "SCRAM-SHA-512=[password=broker-secret]"),
    )
    own = {
        "sasl.enabled.mechanisms": SHA_512,
        "sasl.mechanism.inter.broker.protocol": SHA_512,
        "listener.name.internal.scram-sha-512.sasl.jaas.config": (
            f'{SCRAM_MODULE} required username="broker" password="broker-secret";'
        ),
    }
    tls = {name: value for name, value in stores.broker_config.items() if name.startswith("ssl.")}
    config = {**tls, **broker_config("SASL_SSL"), **own}
    with cluster(brokers=3, racks=3, config=config, zookeeper=f"{zookeeper.connect}{chroot}") as running:
        trusted = {name: value for name, value in stores.unnamed.items() if name.startswith("ssl.")}
        fleet = SaslFleet(running, "SASL_SSL", trusted)
        create(fleet.bootstrap, "t", 3, security=fleet.admin)
        driver = Librdkafka(fleet.admin)
        driver.produce(fleet.bootstrap, "t", numbered(30, 3))
        running.kill(0)
        running.start(0)
        driver.produce(fleet.bootstrap, "t", numbered(60, 3, first=30))
        assert len(driver.read(fleet.bootstrap, "t", 3)) == 60
        assert fleet.counted("failed_authentication", listener="INTERNAL") == 0


# Secrets


def _log_in_by_a_token(running: RunningCluster, security: Security) -> bytes:
    """Makes one at a broker, and gives its hmac."""
    address = running.address(0)
    api = codec.module(ApiKey.CREATE_DELEGATION_TOKEN)
    with wire(address, security) as connected:
        made = connected.ask(ApiKey.CREATE_DELEGATION_TOKEN, 3, api.CreateDelegationTokenRequest(max_lifetime_ms=-1))
    assert made.error_code == 0
    with Wire(address) as holder:
        holder.log_in(SHA_256, made.token_id, base64.b64encode(bytes(made.hmac)).decode(), is_token=True)
    return bytes(made.hmac)


@pytest.mark.public_report(14)
def test_no_secret_is_in_a_log_a_metric_a_status_or_a_description(
    stores: Stores, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    keys = {"delegation.token.secret.key": "token-secret", JAAS_KEY: jaas_line(password="zookeeper-secret")}
    with _cluster("SASL_PLAINTEXT", stores, **keys) as running:
        fleet = SaslFleet(running, "SASL_PLAINTEXT", {})
        fleet.set_password("alice")
        assert fleet.lets_in(PLAIN, "alice", "wrong", how_many=0)
        hmac = _log_in_by_a_token(running, fleet.admin)
        create(fleet.bootstrap, "t", security=fleet.admin)
        seen = [caplog.text]
        for broker in running.running:
            for page in ("metrics", "status"):
                with urllib.request.urlopen(f"http://{running.http(broker)}/{page}", timeout=60) as answer:
                    seen.append(answer.read().decode())
            api = codec.module(ApiKey.DESCRIBE_CONFIGS)
            asked = api.DescribeConfigsResource(resource_type=4, resource_name=str(broker), configuration_keys=None)
            request = api.DescribeConfigsRequest(resources=[asked], include_synonyms=True)
            with wire(running.address(broker), fleet.admin) as connected:
                described = connected.ask(ApiKey.DESCRIBE_CONFIGS, 3, request)
            assert "sasl.jaas.config" in repr(described)
            assert all(key in repr(described) for key in keys)
            seen.append(repr(described))
    for secret in (
        *EVERY_SECRET,
        "token-secret",
        "zookeeper-secret",
        base64.b64encode(hmac).decode(),
        hmac.hex(),
        repr(hmac),
    ):
        assert not [text[:200] for text in seen if secret in text], secret


# Changes while brokers run


def test_a_password_of_plain_changes_while_the_brokers_run(stores: Stores) -> None:
    """By the configuration of each broker, stored encoded."""
    with _cluster("SASL_PLAINTEXT", stores, **{"password.encoder.secret": "encoder-secret"}) as running:
        fleet = SaslFleet(running, "SASL_PLAINTEXT", {})
        assert fleet.lets_in(PLAIN, "alice")
        line = f'{PLAIN_MODULE} required user_admin="admin-secret" user_alice="another" user_erin="erin-secret";'
        name = "listener.name.client.plain.sasl.jaas.config"
        admin = AdminClient({"bootstrap.servers": fleet.bootstrap, **librdkafka_security(fleet.admin)})
        for broker in running.running:
            entry = ConfigEntry(name, line, incremental_operation=AlterConfigOpType.SET)
            wanted = ConfigResource(ConfigResource.Type.BROKER, str(broker), incremental_configs=[entry])
            admin.incremental_alter_configs([wanted])[wanted].result(LIMIT_S)
        await_that(lambda: fleet.lets_in(PLAIN, "erin", "erin-secret"), "every broker lets the new user in")
        assert fleet.lets_in(PLAIN, "alice", "another")
        assert fleet.lets_in(PLAIN, "alice", how_many=0)
        broken = ConfigEntry(name, line[:-1], incremental_operation=AlterConfigOpType.SET)
        wanted = ConfigResource(ConfigResource.Type.BROKER, "0", incremental_configs=[broken])
        with pytest.raises(KafkaException, match="does not end with a semicolon") as caught:
            admin.incremental_alter_configs([wanted])[wanted].result(LIMIT_S)
        assert "erin-secret" not in str(caught.value)
        assert fleet.lets_in(PLAIN, "erin", "erin-secret")


# Who does not authenticate


@pytest.mark.public_report(16)
def test_half_open_connections_are_closed_in_time_and_hold_next_to_nothing(stores: Stores) -> None:
    """Frames are bounded before authentication, announced or not, and good clients are served beside them."""
    with _cluster("SASL_PLAINTEXT", stores, **{"ottla.sasl.timeout.ms": "3000"}) as running:
        fleet = SaslFleet(running, "SASL_PLAINTEXT", {})
        host, _, port = running.address(0).rpartition(":")

        def connected(sent: bytes) -> socket.socket:
            found = socket.create_connection((host, int(port)), LIMIT_S)
            found.sendall(sent)
            return found

        before = resident_bytes()
        sent = struct.pack(">i", 524288) + b"\0" * 1000
        held = [connected(sent) for _ in range(300)]
        await_that(lambda: total(running, f"{METRIC}connectioncount") >= 300, "all of them are accepted")
        assert fleet.lets_in(PLAIN, "alice")
        assert resident_bytes() - before < 300 * 64 * 1024, "memory is for what has come, not for what is announced"
        for announced in (struct.pack(">i", 524289), struct.pack(">i", 2**31 - 1), struct.pack(">i", -1)):
            with connected(announced) as one:
                assert one.recv(1) == b"", "a longer one is closed at once"
        for one in held:
            assert one.recv(1) == b"", "the broker has closed it"
            one.close()
        assert fleet.counted("failed_authentication", listener="CLIENT") >= 300


def resident_bytes() -> int:
    """Of this process, in which the brokers run."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096
