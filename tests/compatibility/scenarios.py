"""What every client is tried with. A scenario raises AssertionError, ClientError or Unsupported; else it passes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from ottla.testing import RunningCluster
from ottla_broker.protocol import codec as codec_of_api
from ottla_broker.protocol.api import ApiKey
from tests.compatibility.protocol import ClientError, Program, Record
from tests.integration.clients import driver
from tests.integration.clients.driver import await_that
from tests.integration.clients.librdkafka import Librdkafka
from tests.integration.clients.security import PLAIN, Security, tls_context
from tests.integration.clients.topics import await_known, create, metadata
from tests.integration.wire import Wire

CODECS = ("gzip", "snappy", "lz4", "zstd")


@dataclass(frozen=True, slots=True)
class Bench:
    """What a scenario has: the client, the fleet, and a name that nobody else uses."""

    client: Program
    fleet: RunningCluster
    name: str
    security: Security = field(default_factory=lambda: PLAIN)

    @property
    def bootstrap(self) -> str:
        return self.fleet.bootstrap

    def ask(self, op: str, **arguments: Any) -> dict[str, Any]:
        return self.client.ask(op, bootstrap=self.bootstrap, **arguments)

    def create(self, topic: str, partitions: int = 1, replicas: int = 3, **config: str) -> None:
        create(self.bootstrap, topic, partitions, replicas, security=self.security, **config)

    def produce(self, topic: str, records: list[Record], **options: Any) -> None:
        self.ask("produce", topic=topic, records=[record.encode() for record in records], **options)

    def provide(self, topic: str, records: list[Record]) -> None:
        """Produces by librdkafka, where the client's own producer is not the point."""
        sent = [
            driver.Record(each.key, each.value, each.headers, each.timestamp_ms, each.partition) for each in records
        ]
        Librdkafka(self.security).produce(self.bootstrap, topic, sent)

    def read(self, topic: str, count: int, partitions: int = 1, *, committed: bool = False) -> list[Record]:
        """`count` records from the beginning, by partition in the order of offsets."""
        found = self.ask("read", topic=topic, count=count, partitions=partitions, committed=committed)["records"]
        return sorted(map(Record.decode, found), key=lambda record: record.partition)


def numbered(count: int, first: int = 0, partitions: int = 1) -> list[Record]:
    return [Record(b"k%d" % n, b"value %d" % n, partition=n % partitions) for n in range(first, first + count)]


def values(records: list[Record]) -> list[bytes | None]:
    return [record.value for record in records]


def round_trip(bench: Bench) -> None:
    bench.create(bench.name, retention_ms="-1")  # for its old timestamps
    sent = [
        Record(b"key", b"value", (("trace", b"abc"), ("trace", b"again"), ("empty", b"")), 1_700_000_000_123),
        Record(None, b"no key", (), 1_600_000_000_000),
        Record(b"a tombstone", None, (), 1_500_000_000_001),
        Record("ключ".encode(), "значение".encode(), (("заголовок", "да".encode()),), 1),
        Record(b"big", b"x" * 200_000, (), 1_700_000_000_005),
    ]
    bench.produce(bench.name, sent)
    got = bench.read(bench.name, len(sent))
    different = [(mine, theirs) for mine, theirs in zip(sent, got, strict=True) if mine != theirs]
    assert not different, f"sent and read: {different}"


def one_partition(bench: Bench) -> None:
    bench.create(bench.name)
    sent = numbered(60)
    bench.produce(bench.name, sent)
    got = bench.read(bench.name, 60)
    assert [(record.key, record.value) for record in got] == [(record.key, record.value) for record in sent]


def several_partitions(bench: Bench) -> None:
    bench.create(bench.name, 3)
    sent = numbered(60, partitions=3)
    bench.produce(bench.name, sent)
    got = bench.read(bench.name, 60, 3)
    expected = sorted(sent, key=lambda record: record.partition)
    assert [(record.partition, record.key, record.value) for record in got] == [
        (record.partition, record.key, record.value) for record in expected
    ]


def every_acks(bench: Bench) -> None:
    bench.create(bench.name)
    for number, acks in enumerate(("1", "all", "0")):
        bench.produce(bench.name, numbered(10, 10 * number), acks=acks)
    assert sorted(values(bench.read(bench.name, 30)), key=repr) == sorted(values(numbered(30)), key=repr)


def codec(name: str) -> Callable[[Bench], None]:
    def run(bench: Bench) -> None:
        bench.create(bench.name)
        sent = [replace(record, value=b"z" * 500 + b"%d" % n) for n, record in enumerate(numbered(50))]
        bench.produce(bench.name, sent, codec=name)
        assert values(bench.read(bench.name, 50)) == values(sent)

    return run


def _leader(bench: Bench) -> int:
    """Of partition 0, as a running broker has it."""
    with Wire(bench.fleet.address(bench.fleet.running[0]), tls=tls_context(bench.security)) as wire:
        return metadata(wire, bench.name)[0]


def _await_another_leader(bench: Bench, than: int) -> None:
    await_that(lambda: _leader(bench) not in (than, -1), "another broker leads the partition")


def idempotent_over_a_leader_change(bench: Bench) -> None:
    bench.create(bench.name, replicas=3)
    for first in range(0, 300, 50):
        if first == 150:
            leader = _leader(bench)
            bench.fleet.kill(leader)
            try:
                _await_another_leader(bench, leader)
                bench.produce(bench.name, numbered(50, first), idempotent=True)
            finally:
                bench.fleet.start(leader)
            continue
        bench.produce(bench.name, numbered(50, first), idempotent=True)
    assert values(bench.read(bench.name, 300)) == values(numbered(300))


def group_goes_on_where_it_committed(bench: Bench) -> None:
    bench.create(bench.name, 2)
    bench.provide(bench.name, numbered(20, partitions=2))
    first = bench.ask("group", group=bench.name, topic=bench.name, count=20)["records"]
    bench.provide(bench.name, numbered(20, 20, partitions=2))
    second = bench.ask("group", group=bench.name, topic=bench.name, count=20)["records"]
    assert sorted(values([*map(Record.decode, first)]), key=repr) == sorted(values(numbered(20)), key=repr)
    assert sorted(values([*map(Record.decode, second)]), key=repr) == sorted(values(numbered(20, 20)), key=repr)


def group_type(bench: Bench) -> str | None:
    """What the group's coordinator says, None when there is no such group."""
    api = codec_of_api.module(ApiKey.LIST_GROUPS)
    for address in bench.bootstrap.split(","):
        with Wire(address, tls=tls_context(bench.security)) as wire:
            for group in wire.ask(ApiKey.LIST_GROUPS, 5, api.ListGroupsRequest()).groups:
                if group.group_id == bench.name:
                    found: str = group.group_type
                    return found
    return None


def group_of_the_consumer_protocol(bench: Bench) -> None:
    bench.create(bench.name, 2)
    bench.provide(bench.name, numbered(20, partitions=2))
    found = bench.ask("group", group=bench.name, topic=bench.name, count=20, protocol="consumer")["records"]
    assert group_type(bench) == "consumer", f"the group is of type {group_type(bench)}"
    assert sorted(values([*map(Record.decode, found)]), key=repr) == sorted(values(numbered(20)), key=repr)


def transactions_commit_and_abort(bench: Bench) -> None:
    bench.create(bench.name, 2)
    for number, commits in enumerate((True, False, True)):
        records = [record.encode() for record in numbered(10, 10 * number, partitions=2)]
        bench.ask("transact", id=bench.name, topic=bench.name, records=records, commit=commits)
    expected = numbered(10, partitions=2) + numbered(10, 20, partitions=2)
    got = bench.read(bench.name, 20, 2, committed=True)
    assert sorted(values(got), key=repr) == sorted(values(expected), key=repr)
    assert len(bench.read(bench.name, 30, 2, committed=False)) == 30


def an_older_producer_is_fenced(bench: Bench) -> None:
    bench.create(bench.name)
    records = [record.encode() for record in numbered(5)]
    answer = bench.ask("fence", id=bench.name, topic=bench.name, records=records)
    assert answer["fenced"], f"the older producer committed, or failed otherwise: {answer.get('error')}"
    assert values(bench.read(bench.name, 5, committed=True)) == values(numbered(5))


def exactly_once_copy(bench: Bench) -> None:
    target = f"{bench.name}-target"
    bench.create(bench.name, 2)
    bench.create(target, 2)
    bench.provide(bench.name, numbered(40, partitions=2))
    common = {"id": bench.name, "group": bench.name, "source": bench.name, "target": target}
    bench.ask("copy", count=10, commit=True, **common)
    bench.ask("copy", count=10, commit=False, **common)
    bench.ask("copy", count=30, commit=True, **common)
    got = bench.read(target, 40, 2, committed=True)
    assert sorted(values(got), key=repr) == sorted(values(numbered(40)), key=repr)


def offset_of_a_time(bench: Bench) -> None:
    bench.create(bench.name)
    sent = [replace(record, timestamp_ms=1_700_000_000_000 + 1000 * n) for n, record in enumerate(numbered(20))]
    bench.provide(bench.name, sent)
    answer = bench.ask("offset_at", topic=bench.name, partition=0, timestamp=1_700_000_000_000 + 6500)
    assert answer["offset"] == 7


def administers_topics(bench: Bench) -> None:
    bench.ask("create_topic", topic=bench.name, partitions=3, replicas=2, config={"retention.ms": "86400000"})
    await_known(bench.bootstrap, bench.name, 3, security=bench.security)
    assert bench.ask("topic_config", topic=bench.name)["config"]["retention.ms"] == "86400000"
    bench.ask("alter_topic", topic=bench.name, config={"retention.ms": "3600000"})
    assert bench.ask("topic_config", topic=bench.name)["config"]["retention.ms"] == "3600000"
    bench.ask("grow_topic", topic=bench.name, partitions=5)
    await_known(bench.bootstrap, bench.name, 5, security=bench.security)
    bench.ask("delete_topic", topic=bench.name)
    assert bench.name not in bench.ask("topics")["topics"]


def says_what_is_refused(bench: Bench) -> None:
    bench.ask("create_topic", topic=bench.name, partitions=1, replicas=1, config={})
    await_known(bench.bootstrap, bench.name, security=bench.security)
    try:
        bench.ask("create_topic", topic=bench.name, partitions=1, replicas=1, config={})
    except ClientError as error:
        text = str(error).lower().replace(" ", "").replace("_", "")
        assert "alreadyexist" in text, f"the error does not say that the topic exists: {error}"
        return
    raise AssertionError("a topic is created twice")


@dataclass(frozen=True, slots=True)
class Scenario:
    """`title` is its row in the table."""

    name: str
    title: str
    run: Callable[[Bench], None]


SCENARIOS = (
    Scenario("produce", "produce and consume", one_partition),
    Scenario("partitions", "several partitions", several_partitions),
    Scenario("records", "headers, null keys and values, timestamps, 200 kB", round_trip),
    Scenario("acks", "acks 0, 1 and all", every_acks),
    *(Scenario(name, f"compression {name}", codec(name)) for name in CODECS),
    Scenario("idempotence", "idempotent producer, leader killed meanwhile", idempotent_over_a_leader_change),
    Scenario("group", "consumer group goes on where it committed", group_goes_on_where_it_committed),
    Scenario("consumer-protocol", "consumer group protocol (KIP-848)", group_of_the_consumer_protocol),
    Scenario("transactions", "transactions, read_committed", transactions_commit_and_abort),
    Scenario("fencing", "a newer transactional producer fences the older", an_older_producer_is_fenced),
    Scenario("exactly-once", "consume, transform, produce exactly once", exactly_once_copy),
    Scenario("offset-of-time", "offset of a timestamp", offset_of_a_time),
    Scenario("topics", "create, describe, alter, grow, delete topics", administers_topics),
    Scenario("refusals", "an error says what is wrong", says_what_is_refused),
)
