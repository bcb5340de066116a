"""Reassignment in a fleet of both kinds: our controller over replicas of Apache Kafka 3.9.1, and its over ours."""

import contextlib
import json
import threading
import uuid

import pytest

from tests.broker.controller.test_with_apache_kafka import LIMIT_S, SESSION_MS, ApacheBroker, consume, produce

pytestmark = pytest.mark.java

RECORDS = 500
LIMIT = 1200


def wait_until(is_true, what) -> None:
    for _ in range(LIMIT):
        if is_true():
            return
        threading.Event().wait(0.1)
    raise AssertionError(f"never so: {what}")


@pytest.fixture
def mixed(tmp_path, zookeeper):
    """(fleet of our brokers 0 and 1, a function that starts Apache broker 7 or 8, the chroot)."""
    from ottla.local.ports import free_port
    from ottla.testing import cluster

    connect = f"{zookeeper.connect}/reassigned/{uuid.uuid4()}"
    with contextlib.ExitStack() as cleanup:

        def start_apache(broker_id):
            found = ApacheBroker(
                tmp_path / f"apache-{broker_id}", broker_id, free_port(), connect, free_port(), "rack-1"
            )
            cleanup.callback(found.kill)
            return found

        def start_ours():
            return cleanup.enter_context(cluster(brokers=2, racks=2, config=SESSION_MS, zookeeper=connect))

        yield start_ours, start_apache, connect


def controller_of(connect):
    """The broker that holds /controller."""
    from kazoo.client import KazooClient

    client = KazooClient(connect)
    client.start()
    try:
        if client.exists("/controller") is None:
            return -1
        return json.loads(client.get("/controller")[0])["brokerid"]
    finally:
        client.stop()
        client.close()


def replicas_of(bootstrap, topic):
    """(replicas, ISR, leader) of partition 0."""
    from confluent_kafka.admin import AdminClient

    known = AdminClient({"bootstrap.servers": bootstrap}).list_topics(topic, timeout=LIMIT_S).topics[topic].partitions
    return (list(known[0].replicas), sorted(known[0].isrs), known[0].leader) if 0 in known else ([], [], -1)


def move_there_and_back(bootstrap, first, second) -> None:
    """A topic on `first`, moved to `second`, given both, and brought back, with records in between."""
    from kafka import KafkaAdminClient, TopicPartition
    from kafka.admin import NewTopic

    servers = bootstrap.split(",")
    admin = KafkaAdminClient(bootstrap_servers=servers)
    try:
        admin.create_topics([NewTopic("t", -1, -1, replica_assignments={0: list(first)})])
        wait_until(lambda: replicas_of(bootstrap, "t")[2] in first, "the topic has a leader")
        count = 0
        for target in (second, [*first[:1], *second], first):
            produce(servers, "t", count, RECORDS, is_idempotent=True)
            count += RECORDS
            answers = admin.alter_partition_reassignments({TopicPartition("t", 0): list(target)})
            assert list(answers.values()) == [None], answers
            produce(servers, "t", count, RECORDS, is_idempotent=True)
            count += RECORDS
            wait_until(lambda: not admin.list_partition_reassignments(), f"the reassignment to {target} has ended")
            wait_until(
                lambda target=target: (
                    replicas_of(bootstrap, "t")[:2] == (list(target), sorted(target))
                    and replicas_of(bootstrap, "t")[2] in target
                ),
                f"everybody knows of {target}",
            )
        assert consume(servers, "t", count) == list(range(count))
    finally:
        admin.close()


def test_our_controller_moves_a_partition_to_brokers_of_apache_kafka_and_back(mixed, tmp_path) -> None:
    start_ours, start_apache, connect = mixed
    fleet = start_ours()
    apache = start_apache(7)
    assert controller_of(connect) in (0, 1)
    wait_until(lambda: knows(fleet.bootstrap, 7) and apache.is_ready(), "broker 7 is there")
    move_there_and_back(fleet.bootstrap, [0, 1], [7])
    logs = tmp_path / "apache-7" / "logs"
    wait_until(lambda: not (logs / "t-0").exists(), "Apache Kafka has deleted its replica")


def test_apache_kafkas_controller_moves_a_partition_to_our_brokers_and_back(mixed) -> None:
    start_ours, start_apache, connect = mixed
    apache = start_apache(7)
    wait_until(lambda: controller_of(connect) == 7, "Apache Kafka is the controller")
    fleet = start_ours()
    assert controller_of(connect) == 7
    wait_until(lambda: knows(fleet.bootstrap, 7) and apache.is_ready(), "broker 7 is there")
    move_there_and_back(fleet.bootstrap, [7], [0, 1])
    wait_until(lambda: not list(fleet.data.glob("broker-1/*/t-0")), "ours have deleted their replica")


def knows(bootstrap, broker):
    from confluent_kafka.admin import AdminClient

    return broker in AdminClient({"bootstrap.servers": bootstrap}).list_topics(timeout=LIMIT_S).brokers
