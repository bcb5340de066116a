"""Three brokers on directories and ports of their own; of which kind each is, is chosen whenever it is started."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from confluent_kafka import ElectionType, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError
from kazoo.protocol.states import ZnodeStat

from ottla.local.jars import find_java, kafka_class_path
from ottla.local.ports import free_port
from ottla_broker.coordination import znodes
from tests.nemesis.fleet import knows_the_fleet, knows_the_leaders
from tests.nemesis.load import TOPIC

PARTITIONS = 6
SIZE = 3
BROKERS = tuple(range(SIZE))
_LIMIT_S = 120.0
_POLL_S = 0.1
_TRIES = 20
"""Of a question to ZooKeeper: on a busy machine our session may end as well as a broker's."""
_CONTROLLER_TRIES = 60
_JAVA_OPTIONS = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
_LOG4J = """log4j.rootLogger=INFO, file
log4j.appender.file=org.apache.log4j.FileAppender
log4j.appender.file.File={file}
log4j.appender.file.layout=org.apache.log4j.PatternLayout
log4j.appender.file.layout.ConversionPattern=%d %p %c{{1}} %m%n
"""


class Kind(Enum):
    APACHE = "apache"
    OURS = "ours"


@dataclass(frozen=True, slots=True)
class State:
    """What stands in ZooKeeper: who is registered and controller (-1: nobody), leader and ISR of every partition."""

    brokers: tuple[int, ...]
    controller: int
    leaders: tuple[int, ...]
    in_sync: tuple[tuple[int, ...], ...]

    @property
    def is_whole(self) -> bool:
        return (
            self.brokers == BROKERS
            and self.controller in BROKERS
            and all(leader in BROKERS for leader in self.leaders)
            and len(self.in_sync) == PARTITIONS
            and all(len(members) == SIZE for members in self.in_sync)
        )

    @property
    def is_balanced(self) -> bool:
        """Every broker leads, and leads what it is the first replica of."""
        return self.leaders == tuple(index % SIZE for index in range(PARTITIONS))


class Slot:
    """One broker id with its directory and port, and the process that runs there.

    Brokers have a listener of their own: ours serve what only brokers send there alone.
    """

    def __init__(self, broker_id: int, directory: Path, properties: Mapping[str, str]) -> None:
        directory.mkdir()
        self.broker_id = broker_id
        self.directory = directory
        self.log_dir = directory / "logs"
        self.kind = Kind.OURS
        self.port = free_port()
        self._process: subprocess.Popen[bytes] | None = None
        whole = {
            "broker.id": str(broker_id),
            "listeners": f"CLIENT://127.0.0.1:{self.port},INTERNAL://127.0.0.1:{free_port()}",
            "listener.security.protocol.map": "CLIENT:PLAINTEXT,INTERNAL:PLAINTEXT",
            "inter.broker.listener.name": "INTERNAL",
            "log.dirs": str(self.log_dir),
            **properties,
        }
        (directory / "server.properties").write_text("".join(f"{key}={value}\n" for key, value in whole.items()))
        (directory / "log4j.properties").write_text(_LOG4J.format(file=directory / "apache.log"))

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def is_listening(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0

    def launch(self, kind: Kind) -> None:
        """Starts it and does not wait."""
        self.kind = kind
        properties = str(self.directory / "server.properties")
        if kind is Kind.OURS:
            command = [sys.executable, "-m", "ottla.cli.main", "broker", "run", properties]
        else:
            log4j = f"-Dlog4j.configuration=file:{self.directory / 'log4j.properties'}"
            command = [find_java(), *_JAVA_OPTIONS, log4j, "-cp", kafka_class_path(), "kafka.Kafka", properties]
        with (self.directory / f"{kind.value}.out").open("ab") as output:
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output)

    def end(self, number: signal.Signals) -> None:
        """SIGTERM or SIGKILL; returns when it has ended."""
        if self._process is not None:
            self._process.send_signal(number)
            self._process.wait(_LIMIT_S)

    def last_lines(self) -> str:
        files = sorted((self.directory / name for name in ("apache.log", "ours.out")), key=lambda path: path.name)
        texts = (path.read_text(errors="replace")[-1500:] for path in files if path.exists())
        return "\n".join(texts)


class MixedFleet:
    """`kinds` is what each broker is at first; `protocol` is the inter.broker.protocol.version of all of them."""

    def __init__(self, directory: Path, connect: str, kinds: tuple[Kind, ...], protocol: str) -> None:
        host, _, chroot = connect.partition("/")
        self._store = KazooClient(host, command_retry={"max_tries": _TRIES})
        self._store.start(_LIMIT_S)
        self._store.ensure_path(chroot)
        self._store.chroot = f"/{chroot}"
        properties = {
            "zookeeper.connect": connect,
            "zookeeper.session.timeout.ms": "6000",
            "zookeeper.connection.timeout.ms": "60000",
            "inter.broker.protocol.version": protocol,
            "offsets.topic.replication.factor": str(SIZE),
            "offsets.topic.num.partitions": "3",
            "transaction.state.log.replication.factor": str(SIZE),
            "transaction.state.log.num.partitions": "1",
            "group.initial.rebalance.delay.ms": "0",
            "replica.lag.time.max.ms": "10000",
            "num.network.threads": "1",
            "num.io.threads": "2",
            "log.cleaner.enable": "false",
            "controlled.shutdown.retry.backoff.ms": "500",
        }
        self._kinds = kinds
        self.slots = [Slot(broker_id, directory / f"b{broker_id}", properties) for broker_id in BROKERS]

    @property
    def bootstrap(self) -> str:
        return ",".join(f"127.0.0.1:{slot.port}" for slot in self.slots)

    def start(self) -> None:
        """Starts all and creates the topic: partition p is led by broker p mod 3, if all is well."""
        for slot, kind in zip(self.slots, self._kinds, strict=True):
            slot.launch(kind)
        self.until(lambda: self.state().brokers == BROKERS, "every broker is registered")
        # A client that is told of no controller by the first broker it asks does not ask again for minutes.
        addresses = self.bootstrap.split(",")
        self.until(lambda: all(map(knows_the_fleet, addresses)), "every broker knows the controller")
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        assignment = [[(index + step) % SIZE for step in range(SIZE)] for index in range(PARTITIONS)]
        new = NewTopic(TOPIC, PARTITIONS, replica_assignment=assignment, config={"min.insync.replicas": "2"})
        admin.create_topics([new])[TOPIC].result(_LIMIT_S)
        self.until(
            lambda: all(knows_the_leaders(address, TOPIC, PARTITIONS) for address in addresses),
            "every broker knows the leaders",
        )

    def state(self) -> State:
        brokers = tuple(sorted(int(name) for name in self._children("/brokers/ids")))
        try:
            controller = znodes.ControllerZnode.decode(self._get(znodes.CONTROLLER)[0]).broker_id
        except NoNodeError:
            controller = -1
        leaders, in_sync = [], []
        for index in range(PARTITIONS):
            try:
                data = self._get(znodes.PartitionStateZnode.path(TOPIC, index))[0]
            except NoNodeError:
                break
            state = znodes.PartitionStateZnode.decode(TOPIC, index, data)
            leaders.append(state.leader)
            in_sync.append(state.isr)
        return State(brokers, controller, tuple(leaders), tuple(in_sync))

    def _children(self, path: str) -> list[str]:
        try:
            return list(self._store.retry(self._store.get_children, path))
        except NoNodeError:
            return []

    def _get(self, path: str) -> tuple[bytes, ZnodeStat]:
        """NoNodeError."""
        data, stat = self._store.retry(self._store.get, path)
        return data, stat

    def start_again(self, broker_id: int, kind: Kind) -> None:
        """On the directory that is there. A broker of Apache Kafka's ends when it is still registered."""
        self.until(lambda: broker_id not in self.state().brokers, f"broker {broker_id} is no longer registered")
        self.slots[broker_id].launch(kind)

    def end(self, broker_id: int, number: signal.Signals) -> None:
        self.slots[broker_id].end(number)

    def led_to_the_end(self, partitions: Sequence[int]) -> list[int]:
        """Which of these were not given to another leader before the broker that led them left, a moment ago.

        By the order of ZooKeeper's transactions: the end of a registration is the last change of /brokers/ids.
        """
        brokers = self._store.retry(self._store.exists, "/brokers/ids")
        assert brokers is not None
        states = {index: self._get(znodes.PartitionStateZnode.path(TOPIC, index))[1] for index in partitions}
        return [index for index, stat in states.items() if stat.mzxid > brokers.pzxid]

    def make_controller(self, broker_id: int) -> None:
        """Has the brokers elect a controller until it is this one, by Kafka's own way: /controller is removed."""
        for _ in range(_CONTROLLER_TRIES):
            if self.state().controller == broker_id:
                return
            former = self._election()
            with suppress(NoNodeError):
                self._store.retry(self._store.delete, znodes.CONTROLLER)
            self.until(lambda former=former: self._election() not in (former, 0), "a controller is elected")
        raise AssertionError(f"broker {broker_id} never became controller")

    def _election(self) -> int:
        """The transaction that made /controller, 0 for nobody."""
        stat = self._store.retry(self._store.exists, znodes.CONTROLLER)
        return 0 if stat is None else int(stat.czxid)

    def balance(self) -> None:
        """Gives every partition its preferred leader back, by ElectLeaders at whoever is controller."""
        deadline = time.monotonic() + _LIMIT_S
        partitions = [TopicPartition(TOPIC, index) for index in range(PARTITIONS)]
        while not self.state().is_balanced:
            assert time.monotonic() < deadline, f"the preferred leaders do not lead: {self.state()}"
            admin = AdminClient({"bootstrap.servers": self.bootstrap})
            try:
                admin.elect_leaders(ElectionType.PREFERRED, partitions).result(10)
            except (KafkaException, TimeoutError):
                pass  # the controller has just moved, or has not heard of the broker that is back: asked again
            time.sleep(_POLL_S)

    def until(self, holds: Callable[[], bool], what: str) -> None:
        """AssertionError when it takes too long."""
        deadline = time.monotonic() + _LIMIT_S
        while not holds():
            assert time.monotonic() < deadline, f"never: {what}; {self.state()}"
            time.sleep(_POLL_S)

    def close(self) -> None:
        for slot in self.slots:
            if slot.is_running:
                slot.end(signal.SIGKILL)
        self._store.stop()
        self._store.close()
