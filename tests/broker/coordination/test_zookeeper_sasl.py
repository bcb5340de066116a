"""Sessions that authenticate by SASL with a real ZooKeeper: whenever they connect, or not at all."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.local.zookeeper_server import ZooKeeperServer
from ottla_broker.adapters.process import zookeeper_coordination
from ottla_broker.config import BrokerConfig
from ottla_broker.coordination.znode_acls import Acl
from ottla_broker.coordination.zookeeper import ZooKeeperCoordination
from ottla_broker.ports.coordination import (
    ConnectionLoss,
    CoordinationError,
    NotPermitted,
    SessionEvent,
    SessionExpired,
)
from ottla_broker.security.sasl.digest_md5 import DIGEST_MD5
from ottla_broker.security.sasl.login import SaslLogin
from tests.broker.coordination.test_zookeeper import Wire
from tests.contract.coordination_contract import Received
from tests.secured_zookeeper import ANYONE, USERS, broker_keys, sasl_server, session

pytestmark = pytest.mark.java

WRONG = SaslLogin(DIGEST_MD5, "kafka", "not-the-secret")
OWN = ((31, "sasl", "kafka"),)
READ = ((1, "world", "anyone"),)


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeperServer]:
    """Takes sessions with SASL alone."""
    with sasl_server(tmp_path_factory.mktemp("sasl"), wants_sasl=True) as server:
        yield server


async def is_authenticated(found: ZooKeeperCoordination, path: str) -> bool:
    """Whether it may change a node of its user."""
    await found.set(path, b"new")
    return (await found.get(path))[0] == b"new"


async def acl_of(found: ZooKeeperCoordination, path: str) -> Acl:
    return (await found.acl(path))[0]


@pytest.mark.parametrize(("user", "password"), list(USERS.items()))
async def test_a_session_is_its_user_and_nodes_are_of_that_user(
    secured: ZooKeeperServer, user: str, password: str
) -> None:
    found = session(f"{secured.connect}/of-user-{list(USERS).index(user)}", SaslLogin(DIGEST_MD5, user, password))
    await found.start()
    await found.create("/config", b"")
    await found.create("/config/users", b"")
    await found.create("/config/users/x", b"", ephemeral=True)
    mine = ((31, "sasl", user),)
    assert await acl_of(found, "/") == mine + READ
    assert await acl_of(found, "/config") == mine + READ
    assert await acl_of(found, "/config/users") == mine
    assert await acl_of(found, "/config/users/x") == mine
    assert await is_authenticated(found, "/config/users/x")
    await found.close()


async def test_another_user_may_read_what_is_not_sensitive_and_change_nothing(secured: ZooKeeperServer) -> None:
    connect = f"{secured.connect}/shared"
    found, other = session(connect), session(connect, SaslLogin(DIGEST_MD5, "other", USERS["other"]))
    await found.start()
    await other.start()
    await found.create("/brokers", b"read me")
    await found.create("/config", b"")
    await found.create("/config/users", b"secret")
    assert (await other.get("/brokers"))[0] == b"read me"
    for refused in (
        other.get("/config/users"),
        other.set("/brokers", b""),
        other.create("/brokers/x"),
        other.delete("/config/users"),
        other.set_acl("/brokers", ANYONE),
    ):
        with pytest.raises(NotPermitted):
            await refused
    for one in (found, other):
        await one.close()


async def test_a_lost_connection_and_an_expired_session_come_back_authenticated(secured: ZooKeeperServer) -> None:
    wire = Wire(secured.port)
    found = session(f"127.0.0.1:{await wire.open()}/again")
    told: Received[SessionEvent] = Received()
    await found.start()
    found.add_session_listener(told)
    await found.create("/brokers", b"")
    first = found.session_id
    for _ in range(2):
        wire.cut()
        wire.mend()
        await told.until(2)
        told.events.clear()
        assert await is_authenticated(found, "/brokers")
    assert found.session_id == first
    ender = session(secured.connect)
    await ender.start((found.session_id, found.session_password))  # ends the session of the other
    assert await told.until(3) == [SessionEvent.SUSPENDED, SessionEvent.EXPIRED, SessionEvent.CONNECTED]
    assert found.session_id != first
    assert await is_authenticated(found, "/brokers")
    await ender.close()
    await found.close()
    await wire.close()


@pytest.mark.parametrize("login", [WRONG, SaslLogin(DIGEST_MD5, "nobody", "not-the-secret")])
async def test_who_is_refused_does_not_start_and_says_so_once(
    secured: ZooKeeperServer, login: SaslLogin, caplog: pytest.LogCaptureFixture
) -> None:
    found = session(secured.connect, login, connection_timeout_ms=1000)
    told: Received[SessionEvent] = Received()
    found.add_session_listener(told)
    with pytest.raises(ConnectionLoss) as caught:
        await found.start()
    reason = f"SASL as user '{login.username}': the server refuses the user or the password"
    assert f"answered in 1 s ({reason})" in str(caught.value)
    lines = [record.getMessage() for record in caplog.records if "no session" in record.getMessage()]
    assert lines == [f"no session with ZooKeeper 127.0.0.1:{secured.port}, trying again: {reason}"]
    assert not told.events
    assert "not-the-secret" not in caplog.text


async def test_a_server_that_lets_nobody_in_is_left_for_the_next(
    secured: ZooKeeperServer, zookeeper: ZooKeeperServer
) -> None:
    """As while the servers get another password, one after the other."""
    for number in range(4):  # the order is drawn
        found = session(f"{zookeeper.connect},{secured.connect}/next-{number}")
        await found.start()
        assert await acl_of(found, "/") == OWN + READ
        await found.close()


async def test_a_server_without_sasl_is_refused(zookeeper: ZooKeeperServer) -> None:
    found = session(zookeeper.connect, connection_timeout_ms=1000)
    with pytest.raises(ConnectionLoss, match=r"the server does not have it: its JAAS file has no section Server"):
        await found.start()


async def test_a_server_that_does_not_know_the_password_is_refused(secured: ZooKeeperServer) -> None:
    """It lets everybody in, to hear what a broker says."""

    class LyingWire(Wire):
        async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, are_answers: bool) -> None:
            while data := await reader.read(65536):
                at = data.find(b"rspauth=")
                if at >= 0:
                    data = data[: at + 8] + b"0" * 32 + data[at + 40 :]
                writer.write(data)
            writer.close()

    wire = LyingWire(secured.port)
    found = session(f"127.0.0.1:{await wire.open()}", connection_timeout_ms=1000)
    with pytest.raises(ConnectionLoss, match=r"the server does not prove that it knows the password"):
        await found.start()
    await wire.close()


async def test_a_session_without_sasl_is_told_the_key(secured: ZooKeeperServer) -> None:
    found = session(secured.connect, None, is_secure=False)
    await found.start()
    with pytest.raises(CoordinationError, match=r"takes sessions with SASL alone .* give ottla\.zookeeper\.sasl\.jaas"):
        await found.create("/x")
    await found.close()


async def test_acls_without_a_user_are_told_the_key(zookeeper: ZooKeeperServer) -> None:
    """As with a certificate that ZooKeeper does not ask for."""
    found = session(zookeeper.connect, None)
    await found.start()
    with pytest.raises(CoordinationError, match=r"does not know who this session is.* give ottla\.zookeeper\.sasl"):
        await found.create("/without-a-user")
    await found.close()


@pytest.mark.extended
async def test_a_password_that_changes_ends_the_session_and_a_new_one_begins_when_it_fits_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Each try would keep the ephemeral nodes of a broker alive that can do nothing."""
    loop = asyncio.get_running_loop()
    server = sasl_server(tmp_path)
    await loop.run_in_executor(None, server.start)
    found = session(server.connect, timeout_ms=4000)
    told: Received[SessionEvent] = Received()
    try:
        await found.start()
        found.add_session_listener(told)
        await found.create("/brokers", b"")
        await found.create("/brokers/me", b"", ephemeral=True)
        for users in ({"kafka": "another"}, USERS):
            await loop.run_in_executor(None, server.stop)
            server = sasl_server(tmp_path, users, port=server.port)
            await loop.run_in_executor(None, server.start)
            if users is not USERS:
                assert await told.until(2) == [SessionEvent.SUSPENDED, SessionEvent.EXPIRED]
                with pytest.raises(SessionExpired):
                    await found.set("/brokers", b"")
        assert await told.until(3) == [SessionEvent.SUSPENDED, SessionEvent.EXPIRED, SessionEvent.CONNECTED]
        assert await is_authenticated(found, "/brokers")
        refused = [record for record in caplog.records if "refuses the user or the password" in record.getMessage()]
        assert 1 <= len(refused) <= 2, "one of the session that was lost, one of the new one"
    finally:
        await found.close()
        await loop.run_in_executor(None, server.stop)


async def test_a_tree_that_was_there_before_is_named_with_the_command(
    secured: ZooKeeperServer, caplog: pytest.LogCaptureFixture
) -> None:
    connect = f"{secured.connect}/older"
    before = session(connect, is_secure=False)
    await before.start()
    await before.create("/brokers")
    await before.create("/config")
    await before.close()
    config = BrokerConfig.from_mapping({"zookeeper.connect": connect, **broker_keys()})
    found = zookeeper_coordination(config)
    said = asyncio.Event()

    class Said(logging.Handler):
        def emit(self, _record: logging.LogRecord) -> None:
            said.set()

    logger = logging.getLogger("ottla.zookeeper.-1")
    handler = Said(logging.WARNING)
    logger.addHandler(handler)
    try:
        await found.start()
        await said.wait()
    finally:
        logger.removeHandler(handler)
        await found.close()
    assert "anyone who reaches ZooKeeper may change or read /brokers, /config, which" in caplog.text
    assert f"ottla zookeeper secure --zookeeper.connect {connect}" in caplog.text
