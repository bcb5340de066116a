"""A fleet of three for each file, one JVM for all, and the drivers a test is run with."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from ottla.local.jars import cache_directory
from ottla.testing import RunningCluster, cluster
from tests.integration.broker_errors import BrokerErrors, broker_errors
from tests.integration.clients.aiokafka_client import Aiokafka
from tests.integration.clients.driver import Administrator, Driver
from tests.integration.clients.java import Java, JavaMachine
from tests.integration.clients.kafka_python import KafkaPython
from tests.integration.clients.kcat import Kcat
from tests.integration.clients.librdkafka import Librdkafka
from tests.integration.clients.security import PLAIN, Security

DRIVERS: dict[str, type[Driver]] = {driver.name: driver for driver in (Librdkafka, KafkaPython, Aiokafka, Kcat, Java)}
MARKS = {"kcat": [pytest.mark.kcat], "java": [pytest.mark.java]}
EVERY_CLIENT = [pytest.param(name, marks=MARKS.get(name, [])) for name in DRIVERS]
EVERY_ADMIN = [param for param in EVERY_CLIENT if issubclass(DRIVERS[str(param.values[0])], Administrator)]


@pytest.fixture(scope="session")
def _machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[JavaMachine]:
    found = JavaMachine(tmp_path_factory.mktemp("java") / "clients.log")
    yield found
    found.close()


@pytest.fixture(scope="module")
def machine(_machine: JavaMachine) -> Iterator[JavaMachine]:
    """The JVM of the whole run, as long as no client remains in it after the tests of a file."""
    yield _machine
    _machine.end_clients()


@pytest.fixture(scope="module")
def machine_4(tmp_path_factory: pytest.TempPathFactory) -> Iterator[JavaMachine]:
    """A JVM of a file's own with the clients of Apache Kafka 4.3.1."""
    jar = cache_directory() / "kafka-clients-4-jars" / "kafka-clients-4.3.1.jar"
    if not jar.exists():
        pytest.skip("kafka-clients-4.3.1.jar is missing: run scripts/fetch-jars.sh")
    found = JavaMachine(tmp_path_factory.mktemp("java") / "clients.log", clients=jar)
    yield found
    found.close()


@pytest.fixture
def driver(request: pytest.FixtureRequest) -> Driver:
    """The client of this run of the test; parametrise it indirectly, with EVERY_CLIENT or EVERY_ADMIN."""
    return make_driver(request, request.param)


def make_driver(request: pytest.FixtureRequest, name: str, security: Security = PLAIN) -> Driver:
    if name == Java.name:
        return Java(request.getfixturevalue("machine"), security)
    return DRIVERS[name](security)


@pytest.fixture(scope="module")
def _watched() -> Iterator[BrokerErrors]:
    with broker_errors() as errors:
        yield errors


@pytest.fixture(scope="module")
def fleet(_watched: BrokerErrors) -> Iterator[RunningCluster]:
    # What is acknowledged is on all three disks, where some tests look: nobody leaves an ISR for want of time. Whoever
    # is dead leaves it with the end of its session.
    lag = {"replica.lag.time.max.ms": "30000"}
    config = {"group.min.session.timeout.ms": "500", "min.insync.replicas": "2", **lag}
    with cluster(brokers=3, racks=3, disks=2, config=config) as found:
        yield found


@pytest.fixture(autouse=True)
def _brokers_complain_about_nothing(_watched: BrokerErrors) -> Iterator[None]:
    yield
    _watched.check()


@pytest.fixture
def internal(fleet: RunningCluster) -> str:
    """The listeners of the brokers, where an administrator writes markers."""
    return ",".join(fleet.internal_address(broker) for broker in fleet.running)


@pytest.fixture
def bootstrap(fleet: RunningCluster) -> str:
    return fleet.bootstrap


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """A name nobody else uses, for a topic or a group."""
    return re.sub(r"[^A-Za-z0-9]+", "-", request.node.name).strip("-")[-120:]
