"""A fleet that runs gets a ZooKeeper with users and ACLs in Kafka's steps, and loses them again, under load: no send
fails.

ZooKeeper restarts with users; the brokers get a login, then zookeeper.set.acl, a roll each; the command closes what was
there before. Then all of it backwards.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from ottla.local.ports import free_port
from ottla.local.zookeeper_server import ZooKeeperServer
from ottla_broker.coordination.znode_acls import Acl
from tests.integration.clients.driver import await_that
from tests.integration.clients.java import JavaMachine
from tests.integration.clients.load import Load
from tests.integration.clients.test_rolling_restarts import NEVER_MS, PARTITIONS, is_in_sync
from tests.integration.clients.topics import create
from tests.integration.processes import BrokerProcess
from tests.secured_zookeeper import ANYONE, acls_below, broker_keys, client_options, sasl_server, session

pytestmark = [pytest.mark.java, pytest.mark.long]

CHROOT = "/fleet"
TICK_MS = NEVER_MS // 20


class Fleet:
    """Three brokers, running, and their ZooKeeper, which may restart with users or without."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.zookeeper = ZooKeeperServer(directory / "zookeeper", port=free_port(), tick_ms=TICK_MS)
        self.connect = f"{self.zookeeper.connect}{CHROOT}"
        config = {
            "zookeeper.session.timeout.ms": str(NEVER_MS),
            "replica.lag.time.max.ms": str(NEVER_MS),
            "min.insync.replicas": "2",
            "offsets.topic.replication.factor": "3",
            "offsets.topic.num.partitions": "5",
            "group.min.session.timeout.ms": "500",
        }
        self.brokers = [BrokerProcess(directory / f"b{number}", number, self.connect, config) for number in range(3)]

    @property
    def bootstrap(self) -> str:
        return ",".join(broker.address for broker in self.brokers)

    def restart_zookeeper(self, *, with_users: bool) -> None:
        self.zookeeper.stop()
        port = self.zookeeper.port
        self.zookeeper = (
            sasl_server(self._directory / "zookeeper", port=port, tick_ms=TICK_MS)
            if with_users
            else ZooKeeperServer(self._directory / "zookeeper", port=port, tick_ms=TICK_MS)
        )
        self.zookeeper.start()

    def run_command(self, command: str) -> None:
        subprocess.run(
            [sys.executable, "-m", "ottla.cli.main", "zookeeper", command, f"--zookeeper.connect={self.connect}"],
            env={**os.environ, "KAFKA_OPTS": client_options(self._directory)},
            stdin=subprocess.DEVNULL,
            timeout=120,
            check=True,
        )

    def acls(self) -> set[Acl]:
        """Of all nodes but those of consumers before 0.9, as somebody with the login of the brokers sees them."""

        async def read() -> set[Acl]:
            asked = session(self.connect)
            await asked.start()
            found = await acls_below(asked)
            await asked.close()
            return {acl for path, acl in found.items() if path != "/consumers"}

        return asyncio.run(read())


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    found = Fleet(tmp_path)
    with ExitStack() as stack:
        stack.callback(lambda: found.zookeeper.stop())
        found.zookeeper.start()
        for broker in found.brokers:
            stack.callback(broker.close)
            broker.start()
        yield found


def test_no_send_fails_on_the_way_to_closed_znodes_and_back(fleet: Fleet, machine: JavaMachine, name: str) -> None:
    create(fleet.bootstrap, name, PARTITIONS)

    def roll(step: str, keys: dict[str, str]) -> None:
        for broker in fleet.brokers:
            for key in broker_keys():
                broker.properties.pop(key, None)
            broker.properties |= {key: value.replace("\\", "\\\\") for key, value in keys.items()}
            await_that(lambda: is_in_sync(fleet.bootstrap, name), "all replicas in sync")
            broker.terminate()
            load.goes_on(f"{step}: once broker {broker.broker_id} has got SIGTERM")
            assert broker.wait() == 0, broker.log[-3000:]
            broker.start()
            load.goes_on(f"{step}: with broker {broker.broker_id} back")

    with Load(fleet.bootstrap, name, PARTITIONS, machine) as load:
        load.goes_on("before the first step")
        fleet.restart_zookeeper(with_users=True)
        load.goes_on("with a ZooKeeper that has users")
        roll("login", broker_keys(set_acl=False))
        roll("ACLs", broker_keys())
        assert ANYONE in fleet.acls(), "what was there before"
        assert all("ottla zookeeper secure --zookeeper.connect" in broker.log for broker in fleet.brokers)
        fleet.run_command("secure")
        load.goes_on("with closed znodes")
        assert ANYONE not in fleet.acls()
        create(fleet.bootstrap, f"{name}-closed", 3)
        assert ANYONE not in fleet.acls()
        roll("no ACLs", broker_keys(set_acl=False))
        fleet.run_command("unsecure")
        assert fleet.acls() == {ANYONE}
        roll("no login", {})
        fleet.restart_zookeeper(with_users=False)
        load.goes_on("with a ZooKeeper that has no users")
        create(fleet.bootstrap, f"{name}-open", 3)
        load.end()
