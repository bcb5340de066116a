"""Drives brokers with 10 000 partitions, or with 10 000 connections, step by step, and collects their long turns.

The brokers' timers come every few seconds, not every few minutes, so that a step sees each of them several times.
"""

from __future__ import annotations

import socket
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.broker_scale import long_turns
from bench.broker_scale.long_turns import LongTurn
from bench.systems import OURS, System, SystemFailed, ask
from ottla.local.ports import free_port
from ottla_broker.protocol import codec
from ottla_broker.protocol.api import ApiKey

TIMERS = {
    "replica.lag.time.max.ms": "4000",
    "log.flush.offset.checkpoint.interval.ms": "5000",
    "log.flush.start.offset.checkpoint.interval.ms": "5000",
    "log.retention.check.interval.ms": "5000",
    "leader.imbalance.check.interval.seconds": "10",
    "ottla.max.partition.replicas": "0",
}
METADATA_VERSION = 12
CLIENTS = 8
ANSWERS = 5
"""Of each client, and of each HTTP path."""
QUIET_S = 2.0
_PATIENCE_S = 600.0
_TOPICS_A_REQUEST = 100


@dataclass(frozen=True, slots=True)
class Step:
    """What one broker did meanwhile. `turns`: its long ones."""

    name: str
    broker: int
    seconds: float
    turns: Sequence[LongTurn]

    @property
    def longest(self) -> LongTurn | None:
        """By CPU time: other programs have no part in it."""
        return max(self.turns, key=lambda turn: turn.cpu_ms, default=None)


class ScaleRun:
    """Brokers under measurement, and the steps so far. `report` is called with each step."""

    def __init__(self, work: Path, brokers: int, report: Callable[[Step], None]) -> None:
        self._work = work
        self._report = report
        self._http = [free_port() for _ in range(brokers)]
        self.system = System(OURS, work, brokers, properties=TIMERS, runs=self._command)
        self.steps: list[Step] = []

    def _command(self, number: int, properties: Path) -> list[str]:
        with properties.open("a") as out:
            out.write(f"ottla.http.listener=127.0.0.1:{self._http[number]}\n")
        return [sys.executable, "-m", "bench.broker_scale.broker_process", str(self._turns(number)), str(properties)]

    def _turns(self, number: int) -> Path:
        return self._work / f"turns-{number}.jsonl"

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """What happens meanwhile, and in the two seconds behind it."""
        began = time.monotonic()
        yield
        seconds = time.monotonic() - began
        time.sleep(QUIET_S)
        ended = time.monotonic()
        for number in range(self.system.count):
            found = Step(name, number, seconds, long_turns.read(self._turns(number), began, ended))
            self.steps.append(found)
            self._report(found)

    def metadata_of_all(self, clients: int = CLIENTS) -> None:
        """Clients that ask each broker for all topics, several times, at the same time."""
        sent = _on_the_wire(codec.module(ApiKey.METADATA).MetadataRequest(topics=None))

        def run(port: int) -> None:
            with socket.create_connection(("127.0.0.1", port), timeout=60) as connection:
                for _ in range(ANSWERS):
                    connection.sendall(sent)
                    left = int.from_bytes(connection.recv(4, socket.MSG_WAITALL), "big")
                    while left:
                        left -= len(connection.recv(min(left, 1 << 20)))

        threads = [threading.Thread(target=run, args=(port,)) for port in self.system.ports for _ in range(clients)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def get(self, path: str) -> int:
        """Asks each broker for a path, several times; the bytes of the last answer."""
        size = 0
        for port in self._http:
            for _ in range(ANSWERS):
                with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=60) as answer:
                    size = len(answer.read())
        return size

    def leaders(self) -> dict[int, int]:
        """The number of partitions by the leader that broker 0, or the only one that runs, has for them."""
        for process, port in zip(self.system.brokers, self.system.ports, strict=False):
            if process.handle is None:
                continue
            with socket.create_connection(("127.0.0.1", port), timeout=60) as connection:
                request = codec.module(ApiKey.METADATA).MetadataRequest(topics=None)
                answer = ask(connection, ApiKey.METADATA, METADATA_VERSION, request)
            found: dict[int, int] = {}
            for topic in answer.topics:
                for partition in topic.partitions:
                    found[partition.leader_id] = found.get(partition.leader_id, 0) + 1
            return found
        return {}

    def wait_for_leaders(self, holds: Callable[[dict[int, int]], bool]) -> None:
        """Returns when it holds of `leaders`. SystemFailed after ten minutes."""
        deadline = time.monotonic() + _PATIENCE_S
        found = self.leaders()
        while not holds(found):
            if time.monotonic() > deadline:
                raise SystemFailed(f"after {_PATIENCE_S:.0f} s the partitions by leader are {found}")
            time.sleep(1.0)
            found = self.leaders()


def measure_partitions(
    work: Path, topics: int, partitions: int, brokers: int, rest_s: float, report: Callable[[Step], None]
) -> list[Step]:
    """`topics` topics of `partitions` partitions with a replica on each of the brokers.

    Raises:
        SystemFailed: a broker did not start, or the partitions got no leaders.
    """
    run = ScaleRun(work, brokers, report)
    system, total = run.system, topics * partitions
    try:
        system.start()
        with run.step("create"):
            _create(system, topics, partitions, brokers)
            run.wait_for_leaders(lambda found: found.get(-1, 0) == 0 and sum(found.values()) == total)
        with run.step("metadata"):
            run.metadata_of_all()
        with run.step("timers"):
            time.sleep(rest_s)
        with run.step("/metrics"):
            run.get("/metrics")
        with run.step("/status"):
            run.get("/status")
        if brokers > 1:
            last = brokers - 1
            with run.step(f"stop of broker {last}"):
                system.brokers[last].stop()
            with run.step(f"start of broker {last}"):
                system.restart_broker(last)
                time.sleep(rest_s)
                run.wait_for_leaders(lambda found: found.get(last, 0) > 0)
            with run.step("stop of broker 0, the controller"):
                system.brokers[0].stop()
            with run.step("start of broker 0"):
                system.restart_broker(0)
                time.sleep(rest_s)
        else:
            with run.step("stop"):
                system.brokers[0].stop()
            with run.step("start"):
                system.restart_broker(0)
                run.wait_for_leaders(lambda found: found.get(0, 0) == total)
                time.sleep(rest_s)
    finally:
        system.stop()
    return run.steps


def measure_connections(work: Path, connections: int, rest_s: float, report: Callable[[Step], None]) -> list[Step]:
    """Connections to one broker with one topic; each asks for versions and for the topic, and then is idle.

    Raises:
        SystemFailed: the broker did not start.
    """
    run = ScaleRun(work, 1, report)
    system = run.system
    opened: list[socket.socket] = []
    try:
        system.start()
        system.create_topic("few", 10, 1)
        with run.step("connect"):
            for _ in range(connections):
                opened.append(socket.create_connection(("127.0.0.1", system.ports[0]), timeout=60))
        with run.step("ask"):
            versions, metadata = codec.module(ApiKey.API_VERSIONS), codec.module(ApiKey.METADATA)
            few = metadata.MetadataRequest(topics=[metadata.MetadataRequestTopic(name="few")])
            for connection in opened:
                ask(connection, ApiKey.API_VERSIONS, 0, versions.ApiVersionsRequest())
            _ask_together(opened, few)
        with run.step("timers"):
            time.sleep(rest_s)
        with run.step("/metrics"):
            run.get("/metrics")
        with run.step("disconnect of half"):
            for connection in opened[: connections // 2]:
                connection.close()
        with run.step("stop"):
            system.brokers[0].stop()
    finally:
        for connection in opened:
            connection.close()
        system.stop()
    return run.steps


def _ask_together(connections: Sequence[socket.socket], request: object) -> None:
    """The requests of all, before the first answer is read."""
    sent = _on_the_wire(request)
    for connection in connections:
        connection.sendall(sent)
    for connection in connections:
        length = int.from_bytes(connection.recv(4, socket.MSG_WAITALL), "big")
        connection.recv(length, socket.MSG_WAITALL)


def _on_the_wire(request: object) -> bytes:
    chunks = codec.frame_request(ApiKey.METADATA, METADATA_VERSION, 1, "bench", request)
    return b"".join(chunk for chunk in chunks if isinstance(chunk, bytes | bytearray | memoryview))


def _create(system: System, topics: int, partitions: int, replicas: int) -> None:
    from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

    admin = AdminClient({"bootstrap.servers": system.bootstrap, "socket.timeout.ms": 300_000})
    for first in range(0, topics, _TOPICS_A_REQUEST):
        names = [f"many-{number:05}" for number in range(first, min(topics, first + _TOPICS_A_REQUEST))]
        created = admin.create_topics(
            [NewTopic(name, partitions, replicas) for name in names],
            operation_timeout=_PATIENCE_S,
            request_timeout=_PATIENCE_S,
        )
        for one in created.values():
            one.result()
