"""A fleet under test: nodes, configuration, one disk that can be broken, and what ZooKeeper says of the partitions."""

from __future__ import annotations

import json
import random
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]
from kazoo.client import KazooClient
from kazoo.exceptions import KazooException
from kazoo.handlers.threading import KazooTimeoutError

from tests.integration.file_systems import FuseMount
from tests.nemesis.load import MAX_MESSAGE_BYTES, TOPIC
from tests.nemesis.network import CLIENTS, Network
from tests.nemesis.nodes import ZOOKEEPER_PORT, Broker, Node, System, ZooKeeper, until

SIZE = 3
PARTITIONS = 6
COORDINATOR_PARTITIONS = 3
"""Of __consumer_offsets, and of __transaction_state."""
REPLICA_LAG_MS = 5000
TRANSACTION_STATE = "__transaction_state"
_LIMIT_S = 180.0
_ASK_S = 5.0
_ASK_AGAIN_S = 0.25


@dataclass(frozen=True, slots=True)
class State:
    """What stands in ZooKeeper: who is registered and controller (-1: nobody), leader and ISR of every partition."""

    brokers: tuple[int, ...]
    controller: int
    leaders: tuple[int, ...]
    in_sync: tuple[tuple[int, ...], ...]
    coordinators: tuple[int, ...] = ()
    """The leader of each partition of __transaction_state, where it exists."""

    @property
    def is_whole(self) -> bool:
        return (
            len(self.brokers) == SIZE
            and self.controller in self.brokers
            and all(leader in self.brokers for leader in self.leaders)
            and len(self.in_sync) == PARTITIONS
            and all(len(members) == SIZE for members in self.in_sync)
        )


class Fleet:
    """Three brokers b0..b2 and three ZooKeeper servers z1..z3. The second log directory of b1 is `disk`."""

    def __init__(self, system: System, session_timeout_ms: int, directory: Path) -> None:
        self.system = system
        self.session_timeout_s = session_timeout_ms / 1000
        self.network = Network()
        self.zookeepers = [
            ZooKeeper(f"z{number}", directory / f"z{number}", self.network) for number in range(1, SIZE + 1)
        ]
        self.brokers = [Broker(system, number, directory / f"b{number}", self.network) for number in range(SIZE)]
        self.disk = FuseMount(directory / "fuse")
        self.disk_owner = self.brokers[1]
        self.ended: list[str] = []
        """Brokers that ended though nobody had killed them."""
        self._session_timeout_ms = session_timeout_ms
        self._killed: set[str] = set()

    @property
    def nodes(self) -> list[Node]:
        return [*self.zookeepers, *self.brokers]

    @property
    def bootstrap(self) -> str:
        return ",".join(broker.bootstrap for broker in self.brokers)

    def start(self) -> None:
        servers = dict(enumerate(self.zookeepers, 1))
        for number, server in servers.items():
            server.configure(number, servers)
            server.launch()
        until(lambda: all(server.is_serving() for server in self.zookeepers), "ZooKeeper serves")
        self.disk.mount()
        for broker in self.brokers:
            second = self.disk.path if broker is self.disk_owner else broker.directory / "d1"
            broker.configure(self._properties(), [broker.directory / "d0", second])
            broker.launch()
        until(lambda: len(self.state().brokers) == SIZE, "every broker is registered")

    def create_topic(self, name: str, partitions: int) -> None:
        config = {"min.insync.replicas": "2", "max.message.bytes": str(MAX_MESSAGE_BYTES)}
        new = NewTopic(name, partitions, SIZE, config=config)
        # A client that is told of no controller by the first broker it asks does not ask again for minutes.
        until(
            lambda: all(knows_the_fleet(broker.bootstrap) for broker in self.brokers),
            "every broker knows the controller",
        )
        admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})
        admin.create_topics([new])[name].result(_LIMIT_S)
        until(
            lambda: all(knows_the_leaders(broker.bootstrap, name, partitions) for broker in self.brokers),
            f"every broker knows the leaders of {name}",
        )

    def state(self) -> State:
        """AssertionError when ZooKeeper cannot be asked for a long time."""
        deadline = time.monotonic() + _LIMIT_S
        while True:
            try:
                return self._ask()
            except (KazooException, KazooTimeoutError) as error:
                assert time.monotonic() < deadline, f"ZooKeeper cannot be asked: {error!r}"

    def until_whole(self, is_served: Callable[[], bool], limit_s: float) -> None:
        """Until every replica is in sync and `is_served`. Starts again what ended by itself, and remembers that."""
        deadline = time.monotonic() + limit_s
        while not ((state := self.state()).is_whole and is_served()):
            assert time.monotonic() < deadline, f"not everything is available again after {limit_s:g} s: {state}"
            self.look_after()
            time.sleep(_ASK_AGAIN_S)

    def look_after(self) -> None:
        """Starts again whatever has ended by itself."""
        for node in self.nodes:
            if not node.is_running and node.name not in self._killed:
                # A broker of Apache Kafka's cannot register while the session of the one before it lasts, and ends.
                if self.system is System.OURS or isinstance(node, ZooKeeper):
                    self.ended.append(f"{node.name} ended with status {node.status}:\n{node.last_lines()}")
                node.launch()

    def kill(self, node: Node) -> None:
        self._killed.add(node.name)
        node.send(signal.SIGKILL)

    def start_again(self, node: Node) -> None:
        self._killed.discard(node.name)
        node.launch()

    def stop(self, brokers: Sequence[Broker]) -> None:
        """In order."""
        for broker in brokers:
            if broker.is_running:
                broker.send(signal.SIGTERM)

    def isolate(self, node: Node) -> None:
        """From everybody."""
        for other in [*(one.name for one in self.nodes if one is not node), CLIENTS]:
            self.network.cut(node.name, other)

    def pick(self, state: State, draw: random.Random, *, is_controller: bool = False) -> Broker:
        """The controller; else one of the other brokers that lead most."""
        if is_controller and state.controller >= 0:
            return self.brokers[state.controller]
        others = [broker for broker in self.brokers if broker.broker_id != state.controller]
        most = max(state.leaders.count(broker.broker_id) for broker in others)
        return draw.choice([broker for broker in others if state.leaders.count(broker.broker_id) == most])

    def coordinator(self, state: State, draw: random.Random) -> Broker:
        """One that leads partitions of __transaction_state; without any, one that leads most."""
        leading = sorted({leader for leader in state.coordinators if leader >= 0})
        return self.brokers[draw.choice(leading)] if leading else self.pick(state, draw)

    def zookeeper_leader(self) -> ZooKeeper:
        found: list[ZooKeeper] = []

        def is_found() -> bool:
            found[:] = [server for server in self.zookeepers if server.is_leader]
            return len(found) == 1

        until(is_found, "ZooKeeper has a leader")
        return found[0]

    def _ask(self) -> State:
        client = KazooClient(self._connect, timeout=_ASK_S)
        try:
            client.start(_ASK_S)
            numbers = sorted(int(name) for name in client.get_children("/brokers/ids"))
            controller = -1
            if client.exists("/controller"):
                controller = json.loads(client.get("/controller")[0])["brokerid"]
            states = _states(client, TOPIC, PARTITIONS)
            coordinators = _states(client, TRANSACTION_STATE, COORDINATOR_PARTITIONS)
            return State(
                tuple(numbers),
                controller,
                tuple(one["leader"] for one in states),
                tuple(tuple(one["isr"]) for one in states),
                tuple(one["leader"] for one in coordinators),
            )
        finally:
            client.stop()
            client.close()

    @property
    def _connect(self) -> str:
        return ",".join(f"{server.address}:{ZOOKEEPER_PORT}" for server in self.zookeepers)

    def _properties(self) -> dict[str, str]:
        return {
            "zookeeper.connect": self._connect,
            "zookeeper.session.timeout.ms": str(self._session_timeout_ms),
            "replica.lag.time.max.ms": str(REPLICA_LAG_MS),
            "min.insync.replicas": "2",
            "offsets.topic.replication.factor": str(SIZE),
            "offsets.topic.num.partitions": str(COORDINATOR_PARTITIONS),
            "transaction.state.log.replication.factor": str(SIZE),
            "transaction.state.log.min.isr": "2",
            "transaction.state.log.num.partitions": str(COORDINATOR_PARTITIONS),
            "group.initial.rebalance.delay.ms": "0",
        }


def _states(client: KazooClient, topic: str, partitions: int) -> list[dict[str, Any]]:
    """Of each partition that has one."""
    paths = [f"/brokers/topics/{topic}/partitions/{partition}/state" for partition in range(partitions)]
    return [json.loads(client.get(path)[0]) for path in paths if client.exists(path)]


def knows_the_fleet(address: str) -> bool:
    """Whether the broker there names a controller and `SIZE` brokers."""
    try:
        metadata = AdminClient({"bootstrap.servers": address, "log_level": 0}).list_topics(timeout=_ASK_S)
    except KafkaException:
        return False
    return bool(metadata.controller_id >= 0 and len(metadata.brokers) == SIZE)


def knows_the_leaders(address: str, topic: str, partitions: int) -> bool:
    """Whether the broker there names a leader for each partition of the topic.

    A broker of Apache Kafka whose first answer to a new partition's producer is NOT_LEADER_OR_FOLLOWER may take the
    second batch: librdkafka then reports the first one as delivered ("implicitly acked"), and does not send it again.
    """
    try:
        metadata = AdminClient({"bootstrap.servers": address, "log_level": 0}).list_topics(topic, timeout=_ASK_S)
    except KafkaException:
        return False
    found = metadata.topics[topic].partitions.values()
    return len(found) == partitions and all(one.leader >= 0 for one in found)
