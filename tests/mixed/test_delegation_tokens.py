"""A broker of ours and one of Apache Kafka in one cluster with one secret key: whoever makes a delegation token, renews
it or ends it, the holder of it logs in at both, as its owner and with the owner's rights."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from kazoo.client import KazooClient

from ottla.local.ports import free_port
from ottla.local.zookeeper_server import ZooKeeperServer
from ottla_broker.authorization.resources import AclOperation, PatternType, PermissionType, ResourceType
from ottla_broker.protocol import codec
from ottla_broker.protocol.api import ApiKey
from ottla_broker.protocol.errors import ErrorCode
from ottla_broker.security.sasl.jaas import SCRAM_MODULE
from tests.beside.comparison import own_chroot
from tests.integration.apache_kafka import ApacheKafka
from tests.integration.clients.java import Java, JavaMachine
from tests.integration.clients.security import Security
from tests.integration.clients.test_console_tools import Tools
from tests.integration.clients.topics import create, numbered
from tests.integration.local_fleet import eventually
from tests.integration.processes import BrokerProcess
from tests.integration.wire import Wire, fleet_named_by
from tests.mixed.test_sasl import store_user

pytestmark = pytest.mark.java

TOKENS = "org.apache.kafka.tools.DelegationTokenCommand"
MECHANISMS = ("SCRAM-SHA-256", "SCRAM-SHA-512")
SCRAM = MECHANISMS[1]
TOPIC, OTHER_TOPIC = "of-alice", "of-nobody"
ALL_DAY_MS = 86_400_000


class Token(NamedTuple):
    """As its holder has it."""

    token_id: str
    hmac: bytes

    @property
    def password(self) -> str:
        return base64.b64encode(self.hmac).decode()


class Pair:
    """The two brokers, running. Clients reach both by SCRAM, and only super users without."""

    def __init__(self, directory: Path, connect: str) -> None:
        self._directory = directory
        self._connect = connect
        for user in ("alice", "bob", "carol"):
            store_user(connect, user, f"{user}-secret")
        configs = [self._config(), self._config()]
        self.ours = BrokerProcess(directory / "ours", 1, connect, configs[0])
        self.theirs = ApacheKafka(directory / "theirs", 2, connect, [directory / "their-logs"], configs[1])
        self.plain: list[str] = []
        self.secured: list[str] = []
        """Ours first."""
        brokers: tuple[BrokerProcess | ApacheKafka, ...] = (self.ours, self.theirs)
        for broker, config in zip(brokers, configs, strict=True):
            plain, client = (one.rpartition("://")[2] for one in config["listeners"].split(","))
            broker.port = int(plain.rpartition(":")[2])
            self.plain.append(plain)
            self.secured.append(client)

    def _config(self) -> dict[str, str]:
        return {
            "listeners": ",".join(f"{name}://127.0.0.1:{free_port()}" for name in ("PLAINTEXT", "CLIENT")),
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CLIENT:SASL_PLAINTEXT",
            "inter.broker.listener.name": "PLAINTEXT",
            "sasl.enabled.mechanisms": ",".join(MECHANISMS),
            **{
                f"listener.name.client.{one.lower()}.sasl.jaas.config": f"{SCRAM_MODULE} required;"
                for one in MECHANISMS
            },
            "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
            "super.users": "User:ANONYMOUS",
            "delegation.token.secret.key": "of all brokers",
            "delegation.token.expiry.check.interval.ms": "500",
        }

    def is_whole(self) -> bool:
        return all(fleet_named_by(address)[1] == {1, 2} for address in self.plain)

    def commands(self, user: str) -> str:
        """The file of a tool that logs in as a user."""
        path = self._directory / f"{user}.properties"
        lines = {**client_of(user, f"{user}-secret"), "client.id": "tool"}
        path.write_text("".join(f"{name}={value}\n" for name, value in lines.items()))
        return str(path)

    def stored_ids(self) -> list[str]:
        client = KazooClient(self._connect)
        client.start()
        try:
            found: list[str] = client.get_children("/delegation_token/tokens")
            return found
        finally:
            client.stop()
            client.close()

    def holds(self, token: Token, mechanism: str = SCRAM) -> list[bool]:
        """Whether ours lets the holder of it in, and whether Apache Kafka's."""
        return [_lets_in(address, token, mechanism) for address in self.secured]


def client_of(user: str, password: str, *, is_token: bool = False) -> Security:
    option = ' tokenauth="true"' if is_token else ""
    return {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": SCRAM,
        "sasl.jaas.config": f'{SCRAM_MODULE} required username="{user}" password="{password}"{option};',
    }


def _lets_in(address: str, token: Token, mechanism: str) -> bool:
    with Wire(address) as wire:
        try:
            wire.log_in(mechanism, token.token_id, token.password, is_token=True)
        except AssertionError:
            return False
        return True


class Asker:
    """Somebody who has logged in at one broker."""

    def __init__(self, address: str, user: str = "", token: Token | None = None) -> None:
        self.wire = Wire(address)
        self.lifetime_ms = (
            self.wire.log_in(SCRAM, user, f"{user}-secret")
            if token is None
            else self.wire.log_in(SCRAM, token.token_id, token.password, is_token=True)
        )

    def create(
        self, *renewers: str, lifetime_ms: int = -1, owner: str | None = None, renewer_type: str = "User"
    ) -> Any:
        api = codec.module(ApiKey.CREATE_DELEGATION_TOKEN)
        request = api.CreateDelegationTokenRequest(
            owner_principal_type=owner and "User",
            owner_principal_name=owner,
            renewers=[api.CreatableRenewers(principal_type=renewer_type, principal_name=name) for name in renewers],
            max_lifetime_ms=lifetime_ms,
        )
        return self.wire.ask(ApiKey.CREATE_DELEGATION_TOKEN, 3, request)

    def renew(self, hmac: bytes, period_ms: int = -1) -> Any:
        api = codec.module(ApiKey.RENEW_DELEGATION_TOKEN)
        request = api.RenewDelegationTokenRequest(hmac=hmac, renew_period_ms=period_ms)
        return self.wire.ask(ApiKey.RENEW_DELEGATION_TOKEN, 2, request)

    def expire(self, hmac: bytes, period_ms: int = -1) -> Any:
        api = codec.module(ApiKey.EXPIRE_DELEGATION_TOKEN)
        request = api.ExpireDelegationTokenRequest(hmac=hmac, expiry_time_period_ms=period_ms)
        return self.wire.ask(ApiKey.EXPIRE_DELEGATION_TOKEN, 2, request)

    def describe(self, *owners: str) -> Any:
        api = codec.module(ApiKey.DESCRIBE_DELEGATION_TOKEN)
        named = [api.DescribeDelegationTokenOwner(principal_type="User", principal_name=name) for name in owners]
        request = api.DescribeDelegationTokenRequest(owners=named or None)
        return self.wire.ask(ApiKey.DESCRIBE_DELEGATION_TOKEN, 3, request)

    def shown(self, *owners: str) -> dict[str, Any]:
        """By id."""
        return {token.token_id: token for token in self.describe(*owners).tokens}


@pytest.fixture(scope="module", params=[0, 1], ids=["ours is the controller", "Apache Kafka's is the controller"])
def pair(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, zookeeper: ZooKeeperServer
) -> Iterator[Pair]:
    found = Pair(tmp_path_factory.mktemp("tokens"), own_chroot(zookeeper))
    order = (found.ours, found.theirs)
    try:
        for broker in order if request.param == 0 else order[::-1]:
            broker.start()
        eventually(found.is_whole, "both know both")
        create(found.plain[0], TOPIC, 2, 2)
        create(found.plain[0], OTHER_TOPIC, 1, 2)
        _grant(found.plain[0], "alice", AclOperation.READ, ResourceType.TOPIC, TOPIC)
        _grant(found.plain[0], "alice", AclOperation.WRITE, ResourceType.TOPIC, TOPIC)
        yield found
    finally:
        found.theirs.close()
        found.ours.close()


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[JavaMachine]:
    found = JavaMachine(tmp_path_factory.mktemp("java") / "clients.log")
    yield found
    found.close()


def _grant(address: str, user: str, operation: AclOperation, resource_type: ResourceType, name: str) -> None:
    api = codec.module(ApiKey.CREATE_ACLS)
    creation = api.AclCreation(
        resource_type=int(resource_type),
        resource_name=name,
        resource_pattern_type=int(PatternType.LITERAL),
        principal=f"User:{user}",
        host="*",
        operation=int(operation),
        permission_type=int(PermissionType.ALLOW),
    )
    with Wire(address) as wire:
        answer = wire.ask(ApiKey.CREATE_ACLS, 3, api.CreateAclsRequest(creations=[creation]))
    assert answer.results[0].error_code == 0


def _made(answer: Any) -> Token:
    assert answer.error_code == 0, answer
    return Token(answer.token_id, bytes(answer.hmac))


def _code(answer: Any) -> str:
    return ErrorCode.of(answer.error_code).name


BOTH_WAYS = pytest.mark.parametrize("maker", [0, 1], ids=["made by ours", "made by Apache Kafka"])


@BOTH_WAYS
def test_the_tool_makes_a_token_with_which_a_java_client_has_the_rights_of_its_owner(
    pair: Pair, machine: JavaMachine, maker: int
) -> None:
    tools = Tools(machine, pair.secured[maker])
    own = ("--command-config", pair.commands("alice"))
    printed = tools(TOKENS, *own, "--create", "--max-life-time-period", "-1", "--renewer-principal", "User:bob")
    found = re.search(r"^(\S{22})\s+(\S{88})\s+User:alice\s+User:alice\s+\[User:bob\]", printed, re.M)
    assert found is not None, printed
    token = Token(found[1], base64.b64decode(found[2]))
    eventually(lambda: pair.holds(token) == [True, True], "both know the token")
    assert pair.holds(token, MECHANISMS[0]) == [True, True]

    bootstrap = ",".join(pair.secured)
    java = Java(machine, client_of(token.token_id, token.password, is_token=True))
    before = len(java.read(bootstrap, TOPIC, 2))
    java.produce(bootstrap, TOPIC, numbered(20, 2))
    assert len(java.read(bootstrap, TOPIC, 2)) == before + 20
    for address in pair.secured:
        request = codec.module(ApiKey.METADATA).MetadataRequest(
            topics=[codec.module(ApiKey.METADATA).MetadataRequestTopic(name=name) for name in (TOPIC, OTHER_TOPIC)]
        )
        answer = Asker(address, token=token).wire.ask(ApiKey.METADATA, 9, request)
        codes = {topic.name: _code(topic) for topic in answer.topics}
        assert codes == {TOPIC: "NONE", OTHER_TOPIC: "TOPIC_AUTHORIZATION_FAILED"}

    other = Tools(machine, pair.secured[1 - maker])
    bob = ("--command-config", pair.commands("bob"))
    assert token.token_id in other(TOKENS, *bob, "--describe", "--owner-principal", "User:alice")
    assert "Completed renew" in other(TOKENS, *bob, "--renew", "--renew-time-period", "-1", "--hmac", token.password)
    other(TOKENS, *bob, "--expire", "--expiry-time-period", "-1", "--hmac", token.password)
    eventually(lambda: pair.holds(token) == [False, False], "nobody lets its holder in any more")


@BOTH_WAYS
def test_a_token_is_shown_renewed_and_removed_alike_at_both(pair: Pair, maker: int) -> None:
    alice = [Asker(address, "alice") for address in pair.secured]
    made = alice[maker].create("bob", lifetime_ms=ALL_DAY_MS // 2)
    token = _made(made)
    assert made.expiry_timestamp_ms == made.max_timestamp_ms == made.issue_timestamp_ms + ALL_DAY_MS // 2
    eventually(lambda: pair.holds(token) == [True, True], "both know the token")
    shown = [one.shown() for one in alice]
    assert shown[0] == shown[1]
    assert bytes(shown[0][token.token_id].hmac) == token.hmac
    for position, address in enumerate(pair.secured):
        bob, carol = Asker(address, "bob"), Asker(address, "carol")
        assert token.token_id in bob.shown()
        assert token.token_id in bob.shown("alice")
        assert token.token_id not in bob.shown("carol")
        assert token.token_id not in carol.shown()
        answers = [carol.renew(token.hmac), carol.expire(token.hmac), carol.renew(b"x"), carol.expire(b"x")]
        mismatch, missing = "DELEGATION_TOKEN_OWNER_MISMATCH", "DELEGATION_TOKEN_NOT_FOUND"
        assert [_code(answer) for answer in answers] == [mismatch, mismatch, missing, missing]
        assert _code(carol.create(owner="alice")) == "DELEGATION_TOKEN_AUTHORIZATION_FAILED"
        assert _code(carol.create("g", renewer_type="Group")) == "INVALID_PRINCIPAL_TYPE"
        assert bob.renew(token.hmac, 10 * ALL_DAY_MS).expiry_timestamp_ms == made.max_timestamp_ms
        sooner = bob.expire(token.hmac, ALL_DAY_MS // 4 - position).expiry_timestamp_ms
        assert sooner < made.max_timestamp_ms

        def is_known_everywhere(expiry_ms: int = sooner) -> bool:
            return {one.shown()[token.token_id].expiry_timestamp for one in alice} == {expiry_ms}

        eventually(is_known_everywhere, "both know its new expiry")
    assert _code(alice[1 - maker].expire(token.hmac)) == "NONE"
    eventually(lambda: pair.holds(token) == [False, False], "nobody lets its holder in any more")
    eventually(lambda: not any(token.token_id in one.shown() for one in alice), "nobody shows it")


@BOTH_WAYS
def test_who_came_by_a_token_gets_no_other_and_stays_when_it_is_removed(pair: Pair, maker: int) -> None:
    alice = Asker(pair.secured[maker], "alice")
    token = _made(alice.create())
    eventually(lambda: pair.holds(token) == [True, True], "both know the token")
    holders = [Asker(address, token=token) for address in pair.secured]
    for holder in holders:
        assert 0 < holder.lifetime_ms <= ALL_DAY_MS
        answers = [holder.create(), holder.renew(token.hmac), holder.expire(token.hmac), holder.describe()]
        assert {_code(answer) for answer in answers} == {"DELEGATION_TOKEN_REQUEST_NOT_ALLOWED"}
    for wrong in (token._replace(hmac=token.hmac[::-1]), token._replace(token_id="alice", hmac=b"alice-secret")):
        assert pair.holds(wrong) == [False, False]
    assert _code(alice.expire(token.hmac)) == "NONE"
    eventually(lambda: pair.holds(token) == [False, False], "nobody lets its holder in any more")
    for holder in holders:
        assert _code(holder.describe()) == "DELEGATION_TOKEN_REQUEST_NOT_ALLOWED", "it is served on"


@BOTH_WAYS
def test_a_token_that_has_ended_is_deleted_by_the_controller_whoever_that_is(pair: Pair, maker: int) -> None:
    alice = Asker(pair.secured[maker], "alice")
    token, other = _made(alice.create()), _made(alice.create())
    assert _code(alice.expire(token.hmac, 0)) == "NONE"
    eventually(lambda: token.token_id not in pair.stored_ids(), "the controller has deleted it")
    assert other.token_id in pair.stored_ids()
    eventually(lambda: pair.holds(token) == [False, False], "nobody lets its holder in any more")
    assert _code(alice.expire(other.hmac)) == "NONE"
