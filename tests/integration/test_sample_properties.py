"""manifests/server.properties is enough for a broker alone, and the manual prints it as it is."""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer

from ottla.local.zookeeper_server import ZooKeeperServer
from tests.integration.processes import BrokerProcess

ROOT = Path(__file__).resolve().parents[2]
SAMPLE = ROOT / "manifests" / "server.properties"
OF_THE_MACHINE = ("listeners", "log.dirs", "zookeeper.connect", "ottla.http.listener")


@pytest.mark.java
def test_a_broker_alone_serves_a_group_with_the_sample_file(zookeeper: ZooKeeperServer, tmp_path: Path) -> None:
    lines = [line for line in SAMPLE.read_text().splitlines() if not line.startswith("#")]
    declared = dict(line.split("=", 1) for line in lines)
    broker = BrokerProcess(tmp_path, int(declared["broker.id"]), f"{zookeeper.connect}/sample", disks=2)
    broker.properties = declared | {key: broker.properties[key] for key in OF_THE_MACHINE}
    try:
        broker.start()
        producer = Producer({"bootstrap.servers": broker.address, "transactional.id": "sample"})
        producer.init_transactions(60)
        producer.begin_transaction()
        producer.produce("sample", "hello")
        producer.commit_transaction(60)
        group = {"group.id": "sample", "auto.offset.reset": "earliest"}
        consumer = Consumer({"bootstrap.servers": broker.address, **group})
        consumer.subscribe(["sample"])
        (message,) = consumer.consume(1, timeout=60)
        consumer.close()
        assert message.value() == b"hello"
        assert broker.stop() == 0
    finally:
        broker.close()


def test_the_manual_prints_the_sample_file() -> None:
    assert f"```properties\n{SAMPLE.read_text()}```" in (ROOT / "docs" / "operating" / "operations.md").read_text()
