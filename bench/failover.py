"""The scenario partitions-10000-failover: one of three brokers is killed, and its partitions need new leaders.

10 000 partitions of two replicas, in topics of 1 000. The killed broker is not the controller. Two figures:

    failover_s   from the kill until the metadata of a live broker has a live leader for every partition; most of it is
                 the session timeout of ZooKeeper (18 s by default, the same for both)
    election_s   from the first new leader to the last: the time of the controller and the brokers
"""

from __future__ import annotations

import json
import os
import signal
import socket
import time
from pathlib import Path

from bench.scenarios import FAILOVER as NAME
from bench.spark_read import SparkReadResults
from bench.systems import APACHE_KAFKA, OURS, System, SystemFailed, ask
from ottla_broker.protocol import codec
from ottla_broker.protocol.api import ApiKey

PARTITIONS = 10_000
SMOKE_PARTITIONS = 60
_TOPICS = 10
_BROKERS = 3
_LIMIT_S = 180.0
_POLL_S = 0.05


def run(work: Path, is_full: bool, rounds: int, measured: SparkReadResults) -> None:
    """Measures both systems one after the other, `rounds` times. SystemFailed when leaders do not come back."""
    partitions = PARTITIONS if is_full else SMOKE_PARTITIONS
    for number in range(rounds):
        names = (OURS, APACHE_KAFKA) if number % 2 == 0 else (APACHE_KAFKA, OURS)
        for name in names:
            system = System(name, work / f"{name}-failover", _BROKERS)
            try:
                system.start()
                _measure(system, partitions, measured)
                for pid in system.pids:  # their orderly stop, with one missing, would take minutes
                    os.kill(pid, signal.SIGKILL)
            finally:
                system.stop()


def _measure(system: System, partitions: int, measured: SparkReadResults) -> None:
    for number in range(_TOPICS):
        system.create_topic(f"failover-{number}", partitions // _TOPICS, 2)
    victim = next(broker for broker in range(_BROKERS) if broker != _controller(system))
    survivor = next(port for broker, port in enumerate(system.ports) if broker != victim)
    before = _leaders(survivor)
    led = {partition for partition, leader in before.items() if leader == victim}
    os.kill(system.pids[victim], signal.SIGKILL)
    killed = time.monotonic()
    first = 0.0
    while True:
        leaders = _leaders(survivor)
        waiting = sum(1 for partition in led if leaders.get(partition, -1) in (-1, victim))
        now = time.monotonic()
        if waiting < len(led) and not first:
            first = now
        if not waiting:
            break
        if now - killed > _LIMIT_S:
            raise SystemFailed(f"{system.name}: {waiting} of {len(led)} partitions have no leader after {_LIMIT_S} s")
        time.sleep(_POLL_S)
    measured.add(NAME, "failover_s", system.name, now - killed)
    measured.add(NAME, "election_s", system.name, now - first)


def _controller(system: System) -> int:
    """The broker that holds /controller."""
    from kazoo.client import KazooClient

    client = KazooClient(system.zookeeper_address)
    client.start()
    try:
        return int(json.loads(client.get("/controller")[0])["brokerid"])
    finally:
        client.stop()
        client.close()


def _leaders(port: int) -> dict[tuple[str, int], int]:
    """Leaders by partition of our topics, as this broker knows them. A client would ask the dead one, too."""
    metadata = codec.module(ApiKey.METADATA)
    with socket.create_connection(("127.0.0.1", port), timeout=30) as connection:
        answer = ask(connection, ApiKey.METADATA, 1, metadata.MetadataRequest(topics=None))
    return {
        (topic.name, part.partition_index): part.leader_id
        for topic in answer.topics
        if topic.name.startswith("failover-")
        for part in topic.partitions
    }
