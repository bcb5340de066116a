"""Znodes with ACLs, of brokers of ours and of Apache Kafka's: the same for the same path, whoever creates them and
whoever closes a tree that was open; nobody else changes one, or reads what is secret."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from ottla.local.jars import find_java, kafka_class_path
from ottla.local.zookeeper_server import ZooKeeperServer
from ottla_broker.coordination.security_znodes import SENSITIVE_ROOTS
from ottla_broker.coordination.znode_acls import Acl
from ottla_broker.ports.coordination import Create, Delete, MultiFailed, NotPermitted, Set
from tests.integration.wire import create_topic
from tests.mixed.secured_fleet import SecuredFleet
from tests.secured_zookeeper import ANYONE, client_options, sasl_server, session

pytestmark = pytest.mark.java

CLOSED, OPEN = {"zookeeper.set.acl": "true"}, {"zookeeper.set.acl": "false"}
OWN: Acl = ((31, "sasl", "kafka"),)
OWN_AND_READABLE: Acl = ((1, "world", "anyone"), *OWN)
_LIMIT_S = 180


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeperServer]:
    with sasl_server(tmp_path_factory.mktemp("secured")) as server:
        yield server


@pytest.fixture(scope="module")
def closed(tmp_path_factory: pytest.TempPathFactory, secured: ZooKeeperServer) -> Iterator[SecuredFleet]:
    """Three brokers of ours with ACLs of znodes, used."""
    fleet = SecuredFleet(tmp_path_factory.mktemp("closed"), f"{secured.connect}/closed")
    with ExitStack() as stack:
        for number in range(3):
            broker = fleet.ours(number, CLOSED)
            stack.callback(broker.close)
            broker.start()
        fleet.use()
        yield fleet


async def test_the_znodes_of_a_used_fleet_have_the_acls_of_apache_kafkas(
    closed: SecuredFleet, secured: ZooKeeperServer, tmp_path: Path
) -> None:
    theirs = SecuredFleet(tmp_path / "theirs", f"{secured.connect}/theirs")
    broker = theirs.theirs(0, CLOSED)
    try:
        await asyncio.to_thread(broker.start)
        await asyncio.to_thread(theirs.use)
        ours, found = await closed.acls(), await theirs.acls()
    finally:
        broker.close()
    del found["/feature"]  # a controller of ours writes none until a feature is finalized
    assert len(found) > 60
    assert {path: ours.get(path) for path in found} == found
    of_ottla = {path: acls for path, acls in ours.items() if path not in found}
    assert {path for path in of_ottla if not path.startswith("/ottla")} == {"/config/client-metrics"}
    assert all(acls == {OWN_AND_READABLE} for acls in of_ottla.values())


async def test_nobody_else_changes_a_znode_or_reads_what_is_secret(closed: SecuredFleet) -> None:
    stranger = session(closed.connect, None, is_secure=False)
    await stranger.start()
    paths = [path for path in await closed.acls_by_path() if path != "/consumers"]
    for path in paths:
        # Together with one that cannot succeed, so that whatever is permitted is not done.
        for operation in (Set(path, b"x"), Create(f"{path.rstrip('/')}/x", b""), Delete(path)):
            if operation in (Delete("/"), Delete("/consumers/old")):
                continue  # their parents are open, which decide about that
            with pytest.raises(MultiFailed) as caught:
                await stranger.multi([operation, Delete("/there-is-no-such-node")])
            assert isinstance(caught.value.cause, NotPermitted), (path, operation)
        with pytest.raises(NotPermitted):
            await stranger.set_acl(path, ANYONE)
        if path.startswith(SENSITIVE_ROOTS):
            with pytest.raises(NotPermitted):
                await stranger.get(path)
            with pytest.raises(NotPermitted):
                await stranger.children(path)
    assert any(path.startswith("/delegation_token/tokens/") for path in paths)
    await stranger.close()


async def test_the_command_closes_what_was_open_as_kafkas_tool_does(
    closed: SecuredFleet, secured: ZooKeeperServer, tmp_path: Path
) -> None:
    fleet = SecuredFleet(tmp_path / "open", f"{secured.connect}/open")
    broker = fleet.ours(0, OPEN)
    try:
        await asyncio.to_thread(broker.start)
        await asyncio.to_thread(fleet.use)
        before = await fleet.acls_by_path()
        assert set(before.values()) == {ANYONE}
        printed = await asyncio.to_thread(ottla, fleet, "secure")
        assert f"{_below_roots(before)} znodes, {_below_roots(before)} changed" in printed
        by_ours = await fleet.acls_by_path()
        same = {path: acl for path, acl in by_ours.items() if not path.startswith("/consumers")}
        assert same.keys() == {path for path in before if not path.startswith("/consumers")}
        assert set(same.values()) == {OWN, OWN_AND_READABLE}
        assert {acl for path, acl in by_ours.items() if path not in same} == {ANYONE}, "offsets of 0.8"
        assert "0 changed" in await asyncio.to_thread(ottla, fleet, "secure"), "a second run has nothing to do"
        await asyncio.to_thread(ottla, fleet, "unsecure")
        assert await fleet.acls_by_path() == before
        await asyncio.to_thread(kafkas_tool, fleet, "secure")
        by_theirs = await fleet.acls_by_path()
        assert {path: by_theirs[path] for path in before if not path.startswith("/ottla")} == {
            path: acl for path, acl in by_ours.items() if not path.startswith("/ottla")
        }
    finally:
        broker.close()


def _below_roots(paths: dict[str, Acl]) -> int:
    return sum(not path.startswith("/consumers") for path in paths)


def ottla(fleet: SecuredFleet, command: str) -> str:
    """What `ottla zookeeper` prints, with the login of Apache Kafka."""
    line = [sys.executable, "-m", "ottla.cli.main", "zookeeper", command, "--zookeeper.connect", fleet.connect]
    environment = {**os.environ, "KAFKA_OPTS": client_options(fleet.directory)}
    done = subprocess.run(
        [*line, "--enable.path.check"],
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=_LIMIT_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def kafkas_tool(fleet: SecuredFleet, acl: str) -> None:
    """zookeeper-security-migration."""
    done = subprocess.run(
        [
            *(find_java(), "-Xmx128m", "-XX:TieredStopAtLevel=1", client_options(fleet.directory)),
            *("-cp", kafka_class_path(), "kafka.admin.ZkSecurityMigrator"),
            *(f"--zookeeper.acl={acl}", f"--zookeeper.connect={fleet.connect}"),
        ],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=_LIMIT_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_brokers_of_both_kinds_share_the_znodes_whoever_is_the_controller(
    secured: ZooKeeperServer, tmp_path: Path
) -> None:
    fleet = SecuredFleet(tmp_path / "mixed", f"{secured.connect}/mixed")
    ours, theirs = fleet.ours(1, CLOSED), fleet.theirs(2, CLOSED)
    try:
        theirs.start()
        ours.start()
        assert fleet.controller() == 2
        create_topic(fleet.addresses[2], "of-theirs", partitions=2, replicas=2)
        theirs.stop()
        assert fleet.controller([1]) == 1
        theirs.start()
        assert fleet.controller() == 1
        create_topic(fleet.addresses[1], "of-ours", partitions=2, replicas=2)
        fleet.use()
        assert ours.stop() == 0
        assert fleet.controller([2]) == 2
        create_topic(fleet.addresses[2], "again", partitions=1, replicas=1)
        acls = asyncio.run(fleet.acls_by_path())
        del acls["/consumers"]
        assert set(acls.values()) == {OWN, OWN_AND_READABLE}
    finally:
        theirs.close()
        ours.close()
