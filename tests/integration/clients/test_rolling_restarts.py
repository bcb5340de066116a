"""Every broker gets SIGTERM and is started again, under load: no send fails, nothing is lost, doubled or skipped.

Three processes on a real ZooKeeper, the controller among them; long-lived producers and group members of three
libraries. The same with all brokers in one process is `test_failures`, with all brokers at once `test_local_restarts`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from ottla.local.zookeeper_server import ZooKeeperServer
from tests.integration.clients.driver import LIMIT_S, await_that
from tests.integration.clients.java import JavaMachine
from tests.integration.clients.librdkafka import Librdkafka
from tests.integration.clients.load import Load
from tests.integration.clients.topics import create
from tests.integration.processes import BrokerProcess

pytestmark = pytest.mark.java

PARTITIONS = 12
NEVER_MS = int(LIMIT_S * 1000) * 2
"""A broker that does not say that it goes is not missed before the test has failed."""


@pytest.fixture
def brokers(tmp_path: Path) -> Iterator[list[BrokerProcess]]:
    config = {
        "zookeeper.session.timeout.ms": str(NEVER_MS),
        "replica.lag.time.max.ms": str(NEVER_MS),
        "min.insync.replicas": "2",
        "offsets.topic.replication.factor": "3",
        "offsets.topic.num.partitions": "5",
        "group.min.session.timeout.ms": "500",
    }
    with ExitStack() as stack:
        # One of its own: the sessions of the one that all tests share are short.
        zookeeper = stack.enter_context(ZooKeeperServer(tmp_path / "zookeeper", tick_ms=NEVER_MS // 20))
        found = [BrokerProcess(tmp_path / f"broker-{number}", number, zookeeper.connect, config) for number in range(3)]
        for broker in found:
            stack.callback(broker.close)
            broker.start()
        yield found


def is_in_sync(bootstrap: str, topic: str) -> bool:
    found = Librdkafka().describe_topic(bootstrap, topic)
    return all(len(replicas) == 3 for replicas in found.in_sync_replicas.values())


def test_a_rolling_restart_under_load_is_not_noticed(
    brokers: list[BrokerProcess], machine: JavaMachine, name: str
) -> None:
    """Also not by waiting: what is produced after the signal is read before that broker is started again, and what
    could make up for a broker that has not handed over, the end of its session, is longer than the test."""
    bootstrap = ",".join(broker.address for broker in brokers)
    create(bootstrap, name, PARTITIONS)
    with Load(bootstrap, name, PARTITIONS, machine) as load:
        load.goes_on("before the first stop")
        for broker in brokers:
            await_that(lambda: is_in_sync(bootstrap, name), "all replicas in sync")
            broker.terminate()
            load.goes_on(f"once broker {broker.broker_id} has got SIGTERM")
            assert broker.wait() == 0, broker.log[-3000:]
            load.goes_on(f"while broker {broker.broker_id} is down")
            broker.start()
            load.goes_on(f"with broker {broker.broker_id} back")
        load.end()
