"""Kafka Streams with exactly_once_v2 while a broker and an application are killed: Apache Kafka's own smoke test.

Its applications (`SmokeTestClient`) compute minima, maxima, sums, counts, averages, windows and joins of what its
driver (`SmokeTestDriver`) produces in a minute and a half; the driver knows what has to come out, and reads it with
read_committed. A record that is processed twice, or never, changes a count and a sum.
"""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from ottla.local.jars import cache_directory, find_java, kafka_class_path
from ottla.local.zookeeper_server import ZooKeeperServer
from tests.integration.clients.topics import create
from tests.integration.processes import BrokerProcess
from tests.requirements import missing

STREAMS = cache_directory() / "kafka-streams-jars"

pytestmark = pytest.mark.java
TOPICS = (
    "data",
    "echo",
    "max",
    "min",
    "min-suppressed",
    "min-raw",
    "dif",
    "sum",
    "sws-raw",
    "sws-suppressed",
    "cnt",
    "avg",
    "tagg",
    "fk",
)
"""The application's, which it does not create itself."""
PARTITIONS = 3
RECORDS = 20_000
"""Of 20 keys, a thousand each."""
_LIMIT_S = 420.0
_POLL_S = 0.1
_OPTIONS = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData")
_STREAMS_CONFIG = {
    "processing.guarantee": "exactly_once_v2",
    "num.stream.threads": "2",
    "consumer.session.timeout.ms": "6000",
    "consumer.heartbeat.interval.ms": "1000",
}


class SmokeTest:
    """A process of Apache Kafka's `StreamsSmokeTest`; `log` is what it has printed."""

    def __init__(self, folder: Path, name: str, bootstrap: str, command: str) -> None:
        self._log = folder / f"{name}.log"
        properties = folder / f"{name}.properties"
        # The one that it chooses itself goes with SIGTERM before it has closed its stores.
        config = {"bootstrap.servers": bootstrap, "state.dir": folder / f"{name}-state", **_STREAMS_CONFIG}
        properties.write_text("".join(f"{key}={value}\n" for key, value in config.items()))
        class_path = f"{STREAMS}/*:{kafka_class_path()}"
        temporary = f"-Djava.io.tmpdir={folder}"
        main = "org.apache.kafka.streams.tests.StreamsSmokeTest"
        with self._log.open("wb") as output:
            self.process = subprocess.Popen(
                [find_java(), *_OPTIONS, temporary, "-cp", class_path, main, str(properties), command],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
            )

    @property
    def log(self) -> str:
        return self._log.read_text(errors="replace")

    def await_line(self, text: str) -> None:
        await_in(lambda: text in self.log, lambda: f"no line with {text!r}:\n{self.log[-3000:]}")

    def kill(self) -> None:
        """SIGKILL."""
        self.process.kill()
        self.process.wait()

    def close(self) -> None:
        """SIGTERM, which closes an application in order, and ends a driver."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            self.process.wait(_LIMIT_S)


def await_in(holds: Callable[[], bool], otherwise: Callable[[], str]) -> None:
    deadline = time.monotonic() + _LIMIT_S
    while not holds():
        assert time.monotonic() < deadline, otherwise()
        time.sleep(_POLL_S)


@pytest.fixture
def brokers(tmp_path: Path) -> Iterator[list[BrokerProcess]]:
    if not any(STREAMS.glob("kafka-streams-*-test.jar")):
        missing("the jars of Kafka Streams are missing: run scripts/fetch-jars.sh")
    config = {
        "default.replication.factor": "3",
        "min.insync.replicas": "2",
        "offsets.topic.replication.factor": "3",
        "offsets.topic.num.partitions": "3",
        "transaction.state.log.replication.factor": "3",
        "transaction.state.log.min.isr": "2",
        "transaction.state.log.num.partitions": "3",
    }
    with ExitStack() as stack:
        zookeeper = stack.enter_context(ZooKeeperServer(tmp_path / "zookeeper"))
        found = [BrokerProcess(tmp_path / f"broker-{number}", number, zookeeper.connect, config) for number in range(3)]
        for broker in found:
            stack.callback(broker.close)
            broker.start()
        yield found


@pytest.mark.long
def test_streams_process_each_record_exactly_once_when_a_broker_and_an_application_are_killed(
    brokers: list[BrokerProcess], tmp_path: Path
) -> None:
    bootstrap = ",".join(broker.address for broker in brokers)
    for topic in TOPICS:
        create(bootstrap, topic, PARTITIONS)
    with ExitStack() as stack:

        def start(name: str, command: str) -> SmokeTest:
            found = SmokeTest(tmp_path, name, bootstrap, command)
            stack.callback(found.close)
            return found

        first, second = start("application-1", "process"), start("application-2", "process")
        for application in (first, second):
            application.await_line("SMOKE-TEST-CLIENT-STARTED")
        driver = start("driver", "run")
        driver.await_line(" 4000 records produced")
        brokers[0].kill()
        driver.await_line(" 8000 records produced")
        brokers[0].start()
        driver.await_line(" 12000 records produced")
        first.kill()
        third = start("application-3", "process")
        third.await_line("SMOKE-TEST-CLIENT-STARTED")
        await_in(lambda: driver.process.poll() is not None, lambda: f"the driver does not end:\n{driver.log[-3000:]}")
    result = driver.log[driver.log.rindex("Result Verification") :]
    assert f"recordProcessed={RECORDS}\n" in result and "ALL-RECORDS-DELIVERED" in result, result
    assert "\nSUCCESS\n" in result, result
    for application in (second, third):
        assert "SMOKE-TEST-CLIENT-CLOSED" in application.log, application.log[-3000:]
        assert "SMOKE-TEST-CLIENT-EXCEPTION" not in application.log, application.log[-3000:]
