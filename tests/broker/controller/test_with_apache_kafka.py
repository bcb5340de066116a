"""Our controller over brokers of Apache Kafka 3.9.1: the strictest reader that LeaderAndIsr and its like can have.

First alone, with Apache brokers only, where every error answer is seen; then whole brokers of both kinds in one fleet.
"""

import asyncio
import contextlib
import logging
import subprocess
import threading
import uuid

import pytest

from ottla_broker.adapters.network import SocketNetwork
from ottla_broker.config.broker import BrokerConfig
from ottla_broker.controller.controller import Controller
from ottla_broker.controller.decisions.topic_plans import NewTopic, TopicGrowth
from ottla_broker.metrics import Metrics
from ottla_broker.protocol.errors import ErrorCode
from ottla_broker.server.peers.controller_channels import NetworkControllerChannels
from tests.broker.controller.fleet import LISTENER, Fleet, RecordingChannels
from tests.integration.wire import fleet_named_by

pytestmark = pytest.mark.java

RECORDS = 500
LIMIT_S = 120
"""For a JVM to start, on a machine where much else does."""


SESSION_MS = {"zookeeper.session.timeout.ms": "6000"}
"""Of every broker: one that gets no processor for so long is no longer controller, or in an ISR."""


class MixedChannels(RecordingChannels):
    """Broker 0, the controller's own, is answered here; the others over sockets."""

    def __init__(self, clock, network) -> None:
        super().__init__(clock)
        logger = logging.LoggerAdapter(logging.getLogger("ottla"), {"broker": 0})
        self._wire = NetworkControllerChannels(0, lambda listener: network, clock, LISTENER, 30_000, Metrics(), logger)
        self.answers = []

    def open(self, broker) -> None:
        super().open(broker)
        if broker.id != 0:
            self._wire.open(broker)

    def close(self, broker_id) -> None:
        super().close(broker_id)
        self._wire.close(broker_id)

    def close_all(self) -> None:
        super().close_all()
        self._wire.close_all()

    def send(self, broker_id, api_key, version, request, on_response) -> None:
        if broker_id == 0:
            super().send(broker_id, api_key, version, request, on_response)
            return

        def answered(response) -> None:
            self.answers.append((broker_id, api_key, response))
            on_response(response)
            self._changed.set()

        self._wire.send(broker_id, api_key, version, request, answered)

    def errors(self):
        """Every error that an Apache broker answered."""
        found = []
        for broker_id, api_key, response in self.answers:
            if response.error_code:
                found.append((broker_id, api_key, response.error_code))
            for topic in getattr(response, "topics", ()):
                found.extend((broker_id, api_key, e.error_code) for e in topic.partition_errors if e.error_code)
            found.extend(
                (broker_id, api_key, e.error_code) for e in getattr(response, "partition_errors", ()) if e.error_code
            )
        return found


LOGGING = """log4j.rootLogger=INFO, out
log4j.appender.out=org.apache.log4j.ConsoleAppender
log4j.appender.out.layout=org.apache.log4j.PatternLayout
log4j.appender.out.layout.ConversionPattern=%d %p %c{1} %m%n
"""


class ApacheBroker:
    """One process of Apache Kafka, killed at the end."""

    def __init__(self, directory, broker_id, port, connect, client_port=None, rack=None) -> None:
        from ottla.local.jars import find_java, kafka_class_path

        directory.mkdir(exist_ok=True)
        self._client_port = port if client_port is None else client_port
        listeners = f"{LISTENER}://127.0.0.1:{port}"
        if client_port is not None:
            listeners += f",CLIENT://127.0.0.1:{client_port}"
        logging_properties = directory / "log4j.properties"
        logging_properties.write_text(LOGGING)
        self._output = directory / "out.log"
        properties = directory / "server.properties"
        properties.write_text(
            f"broker.id={broker_id}\nlisteners={listeners}\n"
            + (f"broker.rack={rack}\n" if rack else "")
            + f"listener.security.protocol.map={LISTENER}:PLAINTEXT,CLIENT:PLAINTEXT\n"
            f"inter.broker.listener.name={LISTENER}\n"
            f"log.dirs={directory}/logs\nzookeeper.connect={connect}\n"
            + "".join(f"{key}={value}\n" for key, value in SESSION_MS.items())
            # Without it a broker that has no connection within the session's time ends, before it is seen.
            + "zookeeper.connection.timeout.ms=60000\n"
            "num.network.threads=1\nnum.io.threads=2\nlog.cleaner.enable=false\nfile.delete.delay.ms=0\n"
            "controlled.shutdown.enable=false\nreplica.fetch.wait.max.ms=50\n"
        )
        options = ["-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
        java = [find_java(), *options, f"-Dlog4j.configuration=file:{logging_properties}", "-cp", kafka_class_path()]
        with self._output.open("ab") as output:
            self.process = subprocess.Popen(
                [*java, "kafka.Kafka", str(properties)], stdout=output, stderr=subprocess.STDOUT
            )

    def check(self) -> None:
        """Fails, with what it has printed, when it has ended by itself."""
        assert self.process.poll() is None, f"Apache Kafka ended:\n{self._output.read_text(errors='replace')[-3000:]}"

    def is_ready(self):
        """It registers before it listens, and listens before it names a controller."""
        return fleet_named_by(f"127.0.0.1:{self._client_port}")[0] >= 0

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


@pytest.fixture
async def apache(tmp_path, zookeeper):
    """(controller, channels, start a broker, its bootstrap addresses): brokers 1 and 2 are Apache Kafka."""
    from ottla.local.ports import free_port

    connect = f"{zookeeper.connect}/mixed/{uuid.uuid4()}"
    brokers, ports = {}, {}
    async with Fleet(tmp_path, connect) as fleet:
        own = await fleet.register(0)
        network = SocketNetwork()
        channels = own.channels = MixedChannels(own.clock, network)
        controller = own.controller = Controller(
            broker_id=0,
            config=BrokerConfig.from_mapping({"broker.id": "0", "zookeeper.connect": connect}),
            clock=own.clock,
            coordination=own.session,
            channels=channels,
            listener=LISTENER,
        )
        await controller.start()

        def start(broker_id):
            ports.setdefault(broker_id, free_port())
            brokers[broker_id] = ApacheBroker(tmp_path / f"apache-{broker_id}", broker_id, ports[broker_id], connect)
            return brokers[broker_id]

        try:
            for broker_id in (1, 2):
                start(broker_id)
            try:
                await channels.until(lambda: {1, 2} <= channels.open_brokers.keys(), LIMIT_S)
            finally:
                for broker in brokers.values():
                    broker.check()
            yield controller, channels, fleet, brokers, start, [f"127.0.0.1:{ports[b]}" for b in (1, 2)]
        finally:
            for broker in brokers.values():
                with contextlib.suppress(OSError):
                    broker.kill()
            network.close()


async def in_thread(function, *arguments):
    return await asyncio.get_running_loop().run_in_executor(None, function, *arguments)


def produce(bootstrap, topic, first, count, *, is_idempotent=False) -> None:
    from confluent_kafka import Producer

    failed = []
    producer = Producer(
        {
            "bootstrap.servers": ",".join(bootstrap),
            "acks": "all",
            "enable.idempotence": is_idempotent,
            "max.in.flight.requests.per.connection": 1,  # what is sent again stays in its place
            "linger.ms": 5,
        }
    )
    for number in range(first, first + count):
        producer.produce(
            topic, str(number).encode(), partition=0, on_delivery=lambda error, _: error and failed.append(error)
        )
    assert producer.flush(LIMIT_S) == 0 and not failed, failed


def fetchers_of(broker):
    return broker.replica_manager._fetchers._fetchers.items()


def consume(bootstrap, topic, count):
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer({"bootstrap.servers": ",".join(bootstrap), "group.id": "none", "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, 0, 0)])
    values = []
    while len(values) < count:
        message = consumer.poll(LIMIT_S)
        assert message is not None and message.error() is None, message
        values.append(int(message.value()))
    consumer.close()
    return values


async def test_apache_brokers_follow_our_controller_through_creation_death_return_growth_and_deletion(apache) -> None:
    controller, channels, fleet, brokers, start, bootstrap = apache
    (created,) = await controller.create_topics(
        [NewTopic("t", assignment={0: (1, 2)}, configs={"min.insync.replicas": "1"})], timeout_ms=30_000
    )
    assert created.error is ErrorCode.NONE
    await in_thread(produce, bootstrap, "t", 0, RECORDS)

    brokers[1].kill()
    await channels.until(lambda: channels.metadata(0, "t").leader == 2, LIMIT_S)
    await in_thread(produce, bootstrap, "t", RECORDS, RECORDS)
    assert await in_thread(consume, bootstrap, "t", 2 * RECORDS) == list(range(2 * RECORDS))

    before = len(channels.answers)
    start(1)
    await channels.until(lambda: any(broker == 1 for broker, _, _ in channels.answers[before:]), LIMIT_S)
    await controller.create_partitions([TopicGrowth("t", 2, [(1, 2)])], timeout_ms=30_000)
    assert channels.metadata(0, "t", 1).leader == 1
    assert channels.errors() == []

    (deleted,) = await controller.delete_topics(["t"], timeout_ms=30_000)
    assert deleted.error is ErrorCode.NONE
    await asyncio.wait_for(fleet.until_gone("/brokers/topics/t"), LIMIT_S)
    assert channels.errors() == []


def test_a_broker_of_apache_kafka_reads_our_features_and_cannot_join_once_one_is_finalized(
    tmp_path, zookeeper, monkeypatch
) -> None:
    from confluent_kafka.admin import AdminClient

    from ottla.local.ports import free_port
    from ottla.testing import cluster
    from ottla_broker.config import features
    from ottla_broker.protocol.api import ApiKey
    from ottla_broker.protocol.generated import api_versions, update_features
    from tests.integration.wire import Wire

    monkeypatch.setattr(features, "SUPPORTED", {"x": (0, 2)})
    connect = f"{zookeeper.connect}/mixed/{uuid.uuid4()}"
    with cluster(brokers=2, config=SESSION_MS, zookeeper=connect) as fleet, contextlib.ExitStack() as cleanup:
        client_port = free_port()

        def start():
            broker = ApacheBroker(tmp_path / "apache-7", 7, free_port(), connect, client_port)
            cleanup.callback(broker.kill)
            return broker

        def wait_until(is_true, what):
            for _ in range(1200):
                found = what()
                if is_true(found):
                    return found
                threading.Event().wait(0.1)
            raise AssertionError(f"never so: {found}")

        def ask(broker, api_key, version, request):
            with Wire(fleet.address(broker)) as wire:
                return wire.ask(api_key, version, request)

        def highest():
            request = api_versions.ApiVersionsRequest(client_software_name="t", client_software_version="1")
            found = [ask(broker, ApiKey.API_VERSIONS, 4, request).api_keys for broker in fleet.running]
            return {api.max_version for apis in found for api in apis if api.api_key == ApiKey.UPDATE_FEATURES}

        def finalize():
            update = update_features.FeatureUpdateKey(feature="x", max_version_level=2)
            (controller,) = [one.broker_id for one in fleet.fleet.brokers.values() if one.controller.is_active]
            request = update_features.UpdateFeaturesRequest(feature_updates=[update])
            return ask(controller, ApiKey.UPDATE_FEATURES, 1, request).results[0]

        apache = start()
        theirs = AdminClient({"bootstrap.servers": f"127.0.0.1:{client_port}"})
        wait_until(lambda found: found == {1}, highest)
        refused = finalize()
        assert (refused.error_code, "brokers [7] do not support" in refused.error_message) == (42, True)
        # It becomes the active controller, reads the registrations of ours, and takes them into its metadata.
        for broker in (0, 1):
            fleet.stop(broker)
        for broker in (0, 1):
            fleet.start(broker)
        apache.check()
        found = wait_until(lambda found: {0, 1, 7} == found.brokers.keys(), lambda: theirs.list_topics(timeout=LIMIT_S))
        assert found.controller_id == 7
        apache.kill()
        wait_until(lambda found: found == {2}, highest)
        wait_until(bool, lambda: any(one.controller.is_active for one in fleet.fleet.brokers.values()))
        assert finalize().error_code == 0
        ended = start()
        assert ended.process.wait(LIMIT_S) != 0
        assert "feature compatibility checks failed" in ended._output.read_text(errors="replace")
        ours = AdminClient({"bootstrap.servers": fleet.bootstrap})
        assert ours.list_topics(timeout=LIMIT_S).brokers.keys() == {0, 1}


def test_a_mixed_fleet_replicates_both_ways_and_loses_nothing_when_our_controller_dies(tmp_path, zookeeper) -> None:
    from confluent_kafka import Consumer, Producer, TopicPartition
    from confluent_kafka.admin import AdminClient
    from confluent_kafka.admin import NewTopic as ClientTopic

    from ottla.local.ports import free_port
    from ottla.testing import cluster

    connect = f"{zookeeper.connect}/mixed/{uuid.uuid4()}"
    with cluster(brokers=2, racks=2, config=SESSION_MS, zookeeper=connect) as fleet, contextlib.ExitStack() as cleanup:
        apache = ApacheBroker(tmp_path / "apache-7", 7, free_port(), connect, free_port(), "rack-1")
        cleanup.callback(apache.kill)
        admin = AdminClient({"bootstrap.servers": fleet.bootstrap})

        def wait_until(is_true):
            for _ in range(1200):
                metadata = admin.list_topics(timeout=LIMIT_S)
                if is_true(metadata):
                    return metadata
                apache.check()
                threading.Event().wait(0.1)
            raise AssertionError(f"never so: {admin.list_topics(timeout=LIMIT_S).topics}")

        def in_sync(metadata):
            return [sorted(partition.isrs) for partition in metadata.topics["t"].partitions.values()]

        wait_until(lambda metadata: 7 in metadata.brokers)
        new = ClientTopic("t", 6, 3, config={"min.insync.replicas": "2"})
        admin.create_topics([new])["t"].result(LIMIT_S)

        def has_leaders(metadata):
            found = metadata.topics["t"].partitions.values() if "t" in metadata.topics else ()
            return len(found) == 6 and all(partition.leader >= 0 for partition in found)

        known = wait_until(has_leaders)
        assert {partition.leader for partition in known.topics["t"].partitions.values()} == {0, 1, 7}

        failed = []
        producer = Producer({"bootstrap.servers": fleet.bootstrap, "acks": "all", "enable.idempotence": True})

        def send(first) -> None:
            for number in range(first, first + RECORDS):
                producer.produce(
                    "t",
                    str(number).encode(),
                    partition=number % 6,
                    on_delivery=lambda error, _: error and failed.append(error),
                )
            assert producer.flush(LIMIT_S) == 0 and not failed, failed

        send(0)
        # In sessions, both ways: 7 leads partitions that both of ours follow, and follows each of ours.
        for broker in fleet.fleet.brokers.values():
            sessions = {key[0]: fetcher.session_id for key, fetcher in fetchers_of(broker)}
            assert sessions.keys() == {0, 1, 7} - {broker.broker_id} and all(sessions.values()), sessions
            held = broker.metrics.gauge("kafka_server_fetchsessioncache_numincrementalfetchsessions", "").value
            assert held == 2
        fleet.kill(0)  # the controller
        send(RECORDS)
        wait_until(lambda metadata: in_sync(metadata) == [[1, 7]] * 6)
        fleet.start(0)
        send(2 * RECORDS)
        wait_until(lambda metadata: in_sync(metadata) == [[0, 1, 7]] * 6)

        consumer = Consumer({"bootstrap.servers": fleet.bootstrap, "group.id": "g", "enable.auto.commit": False})
        consumer.assign([TopicPartition("t", partition, 0) for partition in range(6)])
        read = []
        while len(read) < 3 * RECORDS:
            message = consumer.poll(LIMIT_S)
            assert message is not None and message.error() is None, message
            read.append(int(message.value()))
        consumer.close()
        assert sorted(read) == list(range(3 * RECORDS))
