"""Invalid requests between brokers: they get Kafka's error code and change nothing, here and in Apache Kafka 3.9.1.

Both run the same table (`inter_broker_nonsense`), so its codes are the behaviour of Apache Kafka.
"""

from __future__ import annotations

import contextlib
import functools
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from kazoo.client import KazooClient

from ottla.local.zookeeper_server import ZooKeeperServer
from ottla_broker.coordination import znodes
from ottla_broker.protocol.api import ApiKey
from ottla_broker.protocol.errors import ErrorCode
from ottla_broker.protocol.generated import list_offsets as offsets_api
from ottla_broker.protocol.generated import metadata as metadata_api
from tests.integration.apache_kafka import ApacheKafka
from tests.integration.inter_broker_nonsense import (
    CASES,
    CONTROLLER_EPOCH,
    DEAD,
    FORMER_CONTROLLER_EPOCH,
    LEADER_EPOCH,
    RECORDS,
    TOPIC,
    TOPIC_ID,
    US,
    Case,
    Scene,
    codes,
)
from tests.integration.processes import BrokerProcess
from tests.integration.wire import Wire, batch, produce_request

pytestmark = pytest.mark.java

LIMIT_S = 120.0
UNCHANGING = ("/controller", "/controller_epoch", f"/brokers/topics/{TOPIC}", f"/brokers/ids/{US}")


class Stage:
    """One broker in the scene, and everything that a request could have changed about it."""

    def __init__(self, address: str, log_dir: Path, store: KazooClient) -> None:
        self.wire = Wire(address)
        self._log_dir = log_dir
        self._store = store
        registration = znodes.BrokerRegistration.path(US)
        # What its start as controller changes is over with the last of it: nobody can lead partition 1.
        self._until(lambda: self._leaders() == {0: US, 1: -1}, "broker 1 leads what it can")
        self._until(lambda: self._offset(0, -1) >= 0, "broker 1 leads")
        self.scene = Scene(store.get(registration)[1].czxid)
        response = self.wire.ask(ApiKey.PRODUCE, 9, produce_request(TOPIC, batch(*[b"value"] * RECORDS)))
        assert response.responses[0].partition_responses[0].error_code == ErrorCode.NONE
        self._until(lambda: self._offset(0, -1) == RECORDS, "all is committed")

    def _until(self, is_so: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + LIMIT_S
        while not is_so():
            assert time.monotonic() < deadline, f"never: {what}"
            threading.Event().wait(0.05)

    def _metadata(self) -> Any:
        request = metadata_api.MetadataRequest(topics=None, allow_auto_topic_creation=False)
        return self.wire.ask(ApiKey.METADATA, 12, request)

    def _leaders(self) -> dict[int, int]:
        topics = [topic for topic in self._metadata().topics if topic.name == TOPIC]
        return {one.partition_index: one.leader_id for topic in topics for one in topic.partitions}

    def _offset(self, partition: int, timestamp: int) -> int:
        asked = offsets_api.ListOffsetsPartition(partition_index=partition, timestamp=timestamp)
        request = offsets_api.ListOffsetsRequest(
            replica_id=-1, topics=[offsets_api.ListOffsetsTopic(name=TOPIC, partitions=[asked])]
        )
        answer = self.wire.ask(ApiKey.LIST_OFFSETS, 6, request).topics[0].partitions[0]
        return -1 if answer.error_code else int(answer.offset)

    def state(self) -> dict[str, Any]:
        paths = [*UNCHANGING, *(znodes.PartitionStateZnode.path(TOPIC, index) for index in (0, 1))]
        found = {path: (data, stat.version, stat.czxid) for path in paths for data, stat in [self._store.get(path)]}
        metadata = self._metadata()
        metadata.throttle_time_ms = 0
        return {
            "store": found,
            "metadata": metadata,
            "offsets": [self._offset(0, timestamp) for timestamp in (-1, -2)],
            "partitions": sorted(path.name for path in self._log_dir.iterdir() if path.is_dir()),
            "beside": sorted(path.name for path in self._log_dir.parent.iterdir()),
        }


def set_scene(store: KazooClient) -> None:
    """Writes what a fleet of brokers 1 and 2 left behind; broker 1 is elected once more, at PARTITION_EPOCH."""
    topic = znodes.TopicAssignment(
        topic_id=uuid.UUID(bytes=TOPIC_ID),
        partitions={0: (US, DEAD), 1: (DEAD, US)},
    )
    store.create("/controller_epoch", znodes.encode_controller_epoch(FORMER_CONTROLLER_EPOCH))
    store.create(f"/brokers/topics/{TOPIC}", topic.encode(), makepath=True)
    for index, leader, epoch, in_sync in ((0, -1, LEADER_EPOCH - 1, US), (1, DEAD, LEADER_EPOCH, DEAD)):
        state = znodes.PartitionStateZnode(leader, epoch, FORMER_CONTROLLER_EPOCH, (in_sync,))
        store.create(znodes.PartitionStateZnode.path(TOPIC, index), state.encode(), makepath=True)


@pytest.fixture(scope="module")
def stages(zookeeper: ZooKeeperServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Stage]]:
    """The stage of "ours" or "apache", started when it is first asked for."""
    with contextlib.ExitStack() as cleanup:

        @functools.cache
        def stage(system: str) -> Stage:
            return cleanup.enter_context(started(system, zookeeper, tmp_path_factory.mktemp(system)))

        yield stage


@contextlib.contextmanager
def started(system: str, zookeeper: ZooKeeperServer, directory: Path) -> Iterator[Stage]:
    chroot = f"nonsense/{uuid.uuid4()}"
    connect = f"{zookeeper.connect}/{chroot}"
    maker = KazooClient(zookeeper.connect)
    maker.start(LIMIT_S)
    maker.ensure_path(chroot)
    maker.stop()
    store = KazooClient(connect)
    store.start(LIMIT_S)
    set_scene(store)
    log_dir = directory / "logs"
    # As long as this ZooKeeper allows: a session that ends on a busy machine makes a new registration and election.
    config = {"zookeeper.session.timeout.ms": "10000", "log.retention.ms": "-1"}  # its records are old
    broker: BrokerProcess | ApacheKafka
    if system == "ours":
        broker = BrokerProcess(directory, US, connect, {"log.dirs": str(log_dir), **config})
    else:
        broker = ApacheKafka(directory, US, connect, [log_dir], config)
    try:
        broker.start()
        made = Stage(broker.address, log_dir, store)
        assert store.get("/controller_epoch")[0] == str(CONTROLLER_EPOCH).encode()
        yield made
        made.wire.close()
    finally:
        broker.close()
        store.stop()
        store.close()


TRIED = [
    pytest.param(system, case, id=f"{system} {case.name}")
    for system in ("ours", "apache")
    for case in CASES
    if case.only in ("", system)
]


@pytest.mark.parametrize(("system", "case"), TRIED)
def test_nonsense_gets_its_code_and_changes_nothing(stages: Callable[[str], Stage], system: str, case: Case) -> None:
    stage = stages(system)
    before = stage.state()
    answers = {}
    for version in case.versions:
        found = codes(stage.wire.ask(case.api_key, version, case.request(stage.scene, version)))
        answers[version] = (found[0], ()) if found[0] is not ErrorCode.NONE else found
    assert answers == dict.fromkeys(case.versions, (case.whole, case.partitions))
    assert stage.state() == before
