"""Kafka 3.9's own command line tools, run in one JVM: what they print, and that they end with status 0."""

from __future__ import annotations

import json
import re
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from ottla.testing import RunningCluster
from ottla_broker.protocol.api import ApiKey
from ottla_broker.records.compression import Codec
from ottla_broker.records.legacy import build_message_set
from ottla_broker.records.record import Record as RawRecord
from tests.integration.clients.driver import Gathering, GroupMember, Record, await_that
from tests.integration.clients.java import JavaError, JavaMachine
from tests.integration.clients.librdkafka import Librdkafka
from tests.integration.clients.topics import FOREVER, await_forgotten, await_known, create, metadata, numbered
from tests.integration.wire import Wire, produce_request

pytestmark = pytest.mark.java

TOPICS = "org.apache.kafka.tools.TopicCommand"
CONFIGS = "kafka.admin.ConfigCommand"
GROUPS = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
PRODUCER = "kafka.tools.ConsoleProducer"
CONSUMER = "org.apache.kafka.tools.consumer.ConsoleConsumer"
PRODUCER_PERFORMANCE = "org.apache.kafka.tools.ProducerPerformance"
CONSUMER_PERFORMANCE = "org.apache.kafka.tools.ConsumerPerformance"
OFFSETS = "org.apache.kafka.tools.GetOffsetShell"
API_VERSIONS = "kafka.admin.BrokerApiVersionsCommand"
DUMP = "kafka.tools.DumpLogSegments"
LOG_DIRS = "org.apache.kafka.tools.LogDirsCommand"
ACLS = "kafka.admin.AclCommand"
TRANSACTIONS = "org.apache.kafka.tools.TransactionsCommand"
FEATURES = "org.apache.kafka.tools.FeatureCommand"


class Tools:
    """Runs a tool against the fleet and fails the test when it failed."""

    def __init__(self, machine: JavaMachine, bootstrap: str) -> None:
        self.machine = machine
        self.bootstrap = bootstrap

    def __call__(self, tool: str, *arguments: str, standard_input: str = "") -> str:
        given = ("--bootstrap-server", self.bootstrap, *arguments)
        return self.bare(tool, *given, standard_input=standard_input)

    def bare(self, tool: str, *arguments: str, standard_input: str = "") -> str:
        """Without the address."""
        done = self.machine.tool(tool, *arguments, standard_input=standard_input)
        assert done.status == 0, f"{tool} {arguments}: {done.out}{done.err}"
        return done.out


@pytest.fixture
def tools(machine: JavaMachine, bootstrap: str) -> Tools:
    return Tools(machine, bootstrap)


def test_kafka_topics(tools: Tools, name: str) -> None:
    configured = ("--partitions", "3", "--replication-factor", "3", "--config", "retention.ms=7200000")
    assert f"Created topic {name}" in tools(TOPICS, "--create", "--topic", name, *configured)
    await_known(tools.bootstrap, name, 3)  # each tool may ask another broker
    assert name in tools(TOPICS, "--list").split()
    described = tools(TOPICS, "--describe", "--topic", name)
    assert re.search(r"PartitionCount: 3\s+ReplicationFactor: 3\s+Configs: .*retention\.ms=7200000", described)
    assert re.search(r"TopicId: [\w-]{22}", described)
    partitions = re.findall(r"Partition: (\d)\s+Leader: (\d)\s+Replicas: ([\d,]+)\s+Isr: ([\d,]+)", described)
    assert [number for number, *_ in partitions] == ["0", "1", "2"]
    assert sorted(leader for _, leader, *_ in partitions) == ["0", "1", "2"]
    assert all(sorted(found) == sorted("0,1,2") for _, _, *replicas in partitions for found in replicas)
    assert tools(TOPICS, "--describe", "--under-replicated-partitions", "--topic", name).strip() == ""
    tools(TOPICS, "--alter", "--topic", name, "--partitions", "6")
    await_that(lambda: "PartitionCount: 6" in tools(TOPICS, "--describe", "--topic", name), "it has six partitions")
    tools(TOPICS, "--delete", "--topic", name)
    await_forgotten(tools.bootstrap, name)
    assert name not in tools(TOPICS, "--list").split()
    refused = tools.machine.tool(TOPICS, "--bootstrap-server", tools.bootstrap, "--delete", "--topic", name)
    assert refused.status == 1
    assert "does not exist as expected" in refused.out + refused.err


def test_console_producer_and_consumer(tools: Tools, name: str) -> None:
    create(tools.bootstrap, name)
    lines = "h1:a,h2:b\tkey 1\tvalue 1\nh1:c\tkey 2\tvalue 2\n"
    properties = ("parse.key=true", "parse.headers=true")
    arguments = [part for value in properties for part in ("--property", value)]
    tools(PRODUCER, "--topic", name, *arguments, "--compression-codec", "zstd", standard_input=lines)
    shown = ("print.key=true", "print.headers=true", "print.partition=true", "print.offset=true")
    arguments = [part for value in shown for part in ("--property", value)]
    printed = tools(CONSUMER, "--topic", name, "--from-beginning", "--max-messages", "2", *arguments)
    assert printed.splitlines() == [
        "Partition:0\tOffset:0\th1:a,h2:b\tkey 1\tvalue 1",
        "Partition:0\tOffset:1\th1:c\tkey 2\tvalue 2",
    ]


def test_console_consumer_as_a_group_and_kafka_consumer_groups(tools: Tools, name: str) -> None:
    create(tools.bootstrap, name, 2)
    ordered = sorted(numbered(10, 2), key=lambda record: record.partition)
    Librdkafka().produce(tools.bootstrap, name, ordered)
    printed = tools(CONSUMER, "--topic", name, "--group", name, "--from-beginning", "--max-messages", "10")
    assert sorted(printed.split("\n")) == sorted(["", *(f"value {number}" for number in range(10))])
    assert name in tools(GROUPS, "--list").split()
    described = group_lines(tools(GROUPS, "--describe", "--group", name))
    assert [(line["PARTITION"], line["CURRENT-OFFSET"], line["LAG"]) for line in described] == [
        ("0", "5", "0"),
        ("1", "5", "0"),
    ]
    reset = ("--reset-offsets", "--to-offset", "2", "--topic", f"{name}:1", "--execute")
    tools(GROUPS, "--group", name, *reset)
    described = group_lines(tools(GROUPS, "--describe", "--group", name))
    assert [line["LAG"] for line in described] == ["0", "3"]
    tools(GROUPS, "--delete-offsets", "--group", name, "--topic", f"{name}:0")
    described = group_lines(tools(GROUPS, "--describe", "--group", name))
    assert [line["PARTITION"] for line in described if line["CURRENT-OFFSET"] != "-"] == ["1"]

    gathering = Gathering()
    member = Librdkafka().join(tools.bootstrap, GroupMember(f"{name}-a", name, name), gathering)
    try:
        gathering.wait_until(lambda found: found.shares(2), "the member has both partitions")
        state = tools(GROUPS, "--describe", "--group", name, "--state")
        assert re.search(r"\(\d\)\s+range\s+Stable\s+1", state), state
        members = tools(GROUPS, "--describe", "--group", name, "--members", "--verbose")
        assert re.search(r"\s2\s+\(0,1\)", members), members  # 3.9 leaves out the topic
        assert re.search(rf"{name}\s+Stable", tools(GROUPS, "--list", "--state"))
    finally:
        member.close()
    assert "was successful" in tools(GROUPS, "--delete", "--group", name)
    assert name not in tools(GROUPS, "--list").split()


def group_lines(printed: str) -> list[dict[str, str]]:
    """The lines of a description, by the names of the columns, in order of partitions."""
    rows = [line.split() for line in printed.splitlines() if line.strip()]
    head = next(row for row in rows if row[0] == "GROUP")
    body = [row for row in rows[rows.index(head) + 1 :] if len(row) >= 6]
    return sorted((dict(zip(head, row, strict=False)) for row in body), key=lambda line: line["PARTITION"])


def test_kafka_log_dirs_and_a_move_by_the_java_admin(tools: Tools, fleet: RunningCluster, name: str) -> None:
    create(tools.bootstrap, name)
    Librdkafka().produce(tools.bootstrap, name, numbered(5))

    def home_on_1() -> str:
        printed = tools(LOG_DIRS, "--describe", "--broker-list", "1", "--topic-list", name)
        (broker,) = json.loads(printed.splitlines()[-1])["brokers"]
        assert broker["broker"] == 1 and len(broker["logDirs"]) == 2
        assert all(entry["error"] is None for entry in broker["logDirs"])
        found = [(entry["logDir"], replica) for entry in broker["logDirs"] for replica in entry["partitions"]]
        ((path, replica),) = [(path, replica) for path, replica in found if not replica["isFuture"]]
        assert replica["partition"] == f"{name}-0" and replica["size"] > 100 and replica["offsetLag"] == 0
        return str(path)

    (path,) = [str(entry) for entry in (fleet.data / "broker-1").glob("d?") if str(entry) != home_on_1()]
    tools.machine.ask("move", bootstrap=tools.bootstrap, topic=name, partition=0, broker=1, path=path)
    await_that(lambda: home_on_1() == path, "the replica has moved")
    with pytest.raises(JavaError) as caught:
        tools.machine.ask("move", bootstrap=tools.bootstrap, topic=name, partition=0, broker=1, path="/nowhere")
    assert caught.value.kind == "LogDirNotFoundException"
    all_brokers = json.loads(tools(LOG_DIRS, "--describe").splitlines()[-1])["brokers"]
    assert sorted(entry["broker"] for entry in all_brokers) == [0, 1, 2]


def test_kafka_configs(tools: Tools, name: str) -> None:
    create(tools.bootstrap, name, retention_ms="3600000")
    entity = ("--entity-type", "topics", "--entity-name", name)
    described = tools(CONFIGS, "--describe", *entity)
    assert "retention.ms=3600000" in described
    assert "DYNAMIC_TOPIC_CONFIG:retention.ms=3600000" in described
    tools(CONFIGS, "--alter", *entity, "--add-config", "max.message.bytes=1234567", "--delete-config", "retention.ms")
    await_that(lambda: "max.message.bytes=1234567" in tools(CONFIGS, "--describe", *entity), "it is told")
    assert "retention.ms" not in tools(CONFIGS, "--describe", *entity)
    everything = tools(CONFIGS, "--describe", "--all", *entity)
    assert "retention.ms=604800000 sensitive=false synonyms={}" in everything
    size = "{DYNAMIC_TOPIC_CONFIG:max.message.bytes=1234567, DEFAULT_CONFIG:message.max.bytes=1048588}"
    assert f"max.message.bytes=1234567 sensitive=false synonyms={size}" in everything

    broker = ("--entity-type", "brokers", "--entity-name", "1")
    assert "STATIC_BROKER_CONFIG:broker.id=1" in tools(CONFIGS, "--describe", "--all", *broker)
    tools(CONFIGS, "--alter", *broker, "--add-config", "log.retention.ms=111222333")
    await_that(
        lambda: "DYNAMIC_BROKER_CONFIG:log.retention.ms=111222333" in tools(CONFIGS, "--describe", *broker),
        "the broker's own setting is told",
    )
    everywhere = ("--entity-type", "brokers", "--entity-default")
    tools(CONFIGS, "--alter", *everywhere, "--add-config", "log.retention.ms=222333444")
    await_that(lambda: "log.retention.ms=222333444" in tools(CONFIGS, "--describe", *everywhere), "the default is told")
    tools(CONFIGS, "--alter", *broker, "--delete-config", "log.retention.ms")
    tools(CONFIGS, "--alter", *everywhere, "--delete-config", "log.retention.ms")
    refused = tools.machine.tool(
        CONFIGS, "--bootstrap-server", tools.bootstrap, "--alter", *entity, "--add-config", "retention.ms=soon"
    )
    assert refused.status == 1
    assert "retention.ms" in refused.out + refused.err


def test_the_defaults_of_a_topic_are_those_of_kafka(tools: Tools, name: str) -> None:
    """Beside the file is what `kafka-configs --describe --all` of 3.9.1 prints of a topic of a 3.9.1 broker."""
    create(tools.bootstrap, name)
    printed = tools(CONFIGS, "--describe", "--all", "--entity-type", "topics", "--entity-name", name)
    ours = {line.partition("=")[0].strip(): line.strip() for line in printed.splitlines() if "synonyms=" in line}
    golden = Path(__file__).with_name("topic_configs_kafka_3_9.txt").read_text().splitlines()
    kafkas = {line.partition("=")[0]: line for line in golden}
    ours.pop("min.insync.replicas")  # the fleet's own
    assert {key: ours.get(key) for key in kafkas if key != "min.insync.replicas"} == {
        key: line for key, line in kafkas.items() if key != "min.insync.replicas"
    }
    assert sorted(set(ours) - set(kafkas)) == ["max.message.bytes", "retention.ms"]


def test_the_performance_tools(tools: Tools, name: str) -> None:
    create(tools.bootstrap, name, 3)
    properties = f"bootstrap.servers={tools.bootstrap}"
    load = ("--num-records", "20000", "--record-size", "100", "--throughput", "-1")
    printed = tools.bare(PRODUCER_PERFORMANCE, "--topic", name, *load, "--producer-props", properties, "acks=all")
    assert "20000 records sent" in printed
    read = tools(CONSUMER_PERFORMANCE, "--topic", name, "--messages", "20000", "--timeout", "60000")
    row = read.strip().splitlines()[-1].split(", ")
    assert int(float(row[4])) >= 20000, read


def test_get_offsets(tools: Tools, name: str) -> None:
    create(tools.bootstrap, name, 2, retention_ms=FOREVER)
    times = [Record(None, b"x", timestamp_ms=1_700_000_000_000 + number) for number in (0, 5, 2)]
    Librdkafka().produce(tools.bootstrap, name, times)
    assert tools(OFFSETS, "--topic", name).split() == [f"{name}:0:3", f"{name}:1:0"]
    assert tools(OFFSETS, "--topic", name, "--time", "earliest").split() == [f"{name}:0:0", f"{name}:1:0"]
    assert f"{name}:0:1" in tools(OFFSETS, "--topic", name, "--time", "max-timestamp").split()
    assert f"{name}:0:1" in tools(OFFSETS, "--topic", name, "--time", "1700000000001").split()


def test_broker_api_versions(tools: Tools, name: str) -> None:
    create(tools.bootstrap, name)  # once all know of its replicas, each broker knows of the others
    printed = tools(API_VERSIONS)
    assert len(re.findall(r"^127\.0\.0\.1:\d+ \(id: [012] rack: rack-[012]\) -> \(", printed, re.MULTILINE)) == 3
    assert re.search(r"Produce\(0\): 0 to 13 \[usable: 11\]", printed)
    assert re.search(r"Fetch\(1\): 0 to 18 \[usable: 17\]", printed)
    assert re.search(r"AddPartitionsToTxn\(24\): 0 to 5 \[usable: 5\]", printed)
    assert re.search(r"ShareFetch\(78\): UNSUPPORTED", printed)


def test_the_formatter_reads_the_consumer_offsets(tools: Tools, name: str) -> None:
    create(tools.bootstrap, name)
    Librdkafka().produce(tools.bootstrap, name, numbered(7))
    tools(CONSUMER, "--topic", name, "--group", name, "--from-beginning", "--max-messages", "7")
    # Partition by partition up to its end: a consumer in a group of its own would write what it reads.
    ends = [line.split(":")[1:] for line in tools(OFFSETS, "--topic", "__consumer_offsets").split()]

    def read(formatter: str) -> str:
        return "".join(
            tools(
                CONSUMER,
                *("--topic", "__consumer_offsets", "--partition", partition, "--offset", "earliest"),
                *("--max-messages", end, "--formatter", formatter),
            )
            for partition, end in ends
            if end != "0"
        )

    offsets = "org.apache.kafka.tools.consumer.OffsetsMessageFormatter"
    printed = read(offsets)
    found = documents(printed)
    mine = [entry for entry in found if entry["key"]["data"]["group"] == name]
    assert mine[-1]["key"]["data"] == {"group": name, "topic": name, "partition": 0}
    assert mine[-1]["value"]["data"]["offset"] == 7
    metadata = "org.apache.kafka.tools.consumer.GroupMetadataMessageFormatter"
    printed = read(metadata)
    found = documents(printed)
    mine = [entry for entry in found if entry["key"]["data"]["group"] == name and entry["value"]]
    assert any(entry["value"]["data"]["protocolType"] == "consumer" for entry in mine), mine
    older = "kafka.coordinator.group.GroupMetadataManager$OffsetsMessageFormatter"
    assert f"[{name},{name},0]::" in read(older)


def documents(printed: str) -> list[Any]:
    """The formatters of 3.9 print one JSON document right after the other."""
    found, decoder, position = [], json.JSONDecoder(), 0
    text = printed.strip()
    while position < len(text):
        document, position = decoder.raw_decode(text, position)
        found.append(document)
    return found


COMPLAINTS = re.compile(r"(?i)mismatch|exception|invalid|corrupt|non-consecutive|not found|error|isvalid: false")


def has_its_snapshots(directory: Path) -> bool:
    """Every roll writes one, behind the appends."""
    rolled = sorted(path.stem for path in directory.glob("0*.log"))[1:]
    written = {path.stem for path in directory.glob("0*.snapshot")}
    return written.issuperset(rolled) and not list(directory.glob("*.tmp"))


def test_the_files_of_a_topic_are_dumped_without_a_complaint(tools: Tools, fleet: RunningCluster, name: str) -> None:
    """Segments, both indexes and producer snapshots, of a log that has rolled several times."""
    create(tools.bootstrap, name, segment_bytes="100000", index_interval_bytes="1000")
    for start in range(0, 3000, 500):
        Librdkafka().produce(
            tools.bootstrap,
            name,
            [Record(b"key", b"x" * 100, (("h", b"v"),)) for _ in range(start, start + 500)],
            is_idempotent=True,
            codec="none" if start % 1000 else "lz4",
        )
    directories = sorted(fleet.data.glob(f"broker-*/*/{name}-0"))
    assert len(directories) == 3
    for directory in directories:
        await_that(partial(has_its_snapshots, directory), "the producers' snapshots are written")
        files = sorted(directory.glob("0*"))
        indexes = [path for path in files if path.suffix == ".index"]
        assert {path.suffix for path in files} == {".log", ".index", ".timeindex", ".snapshot"}
        assert len(indexes) > 2, "it has rolled"
        dumped = dump(tools, [path for path in files if path.suffix != ".snapshot"], "--deep-iteration")
        assert dumped.count("| offset:") == 3000
        checked = dump(tools, indexes, "--index-sanity-check")
        assert checked.count("passed sanity check") + checked.count(".index is empty") == len(indexes)
        assert "producerId:" in dump(tools, [path for path in files if path.suffix == ".snapshot"])


@pytest.mark.parametrize("compression_type", ["producer", "gzip", "snappy", "lz4", "zstd", "uncompressed"])
def test_converted_and_recompressed_files_are_dumped_without_a_complaint(
    tools: Tools, fleet: RunningCluster, name: str, compression_type: str
) -> None:
    create(tools.bootstrap, name, compression_type=compression_type, message_timestamp_type="LogAppendTime")
    leader = next(iter(metadata_of(tools.bootstrap, name).values()))
    with Wire(fleet.address(leader)) as wire:
        for magic in (0, 1):
            for old in (Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4):
                records = [RawRecord(n, 5, b"k%d" % n, b"old %d" % n) for n in range(200)]
                message_set = build_message_set(records, magic, codec=old)
                answer = wire.ask(ApiKey.PRODUCE, 2, produce_request(name, message_set))
                assert answer.responses[0].partition_responses[0].error_code == 0
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        Librdkafka().produce(tools.bootstrap, name, numbered(200), codec=codec)
    printed = tools(CONSUMER, "--topic", name, "--from-beginning", "--max-messages", "2600")
    assert printed.split("\n").count("old 7") == 8 and printed.split("\n").count("value 7") == 5
    for log in fleet.data.glob(f"broker-*/*/{name}-0/0*.log"):
        dumped = dump(tools, [log], "--deep-iteration")
        assert dumped.count("| offset:") == 2600 and "LogAppendTime" in dumped and "CreateTime" not in dumped
        if compression_type != "producer":
            kept = "none" if compression_type == "uncompressed" else compression_type
            assert set(re.findall(r"compresscodec: (\w+)", dumped)) == {kept}


def metadata_of(bootstrap: str, topic: str) -> dict[int, int]:
    with Wire(bootstrap.split(",")[0]) as wire:
        return metadata(wire, topic)


def dump(tools: Tools, files: list[Path], *options: str) -> str:
    printed = tools.bare(DUMP, *options, "--files", ",".join(map(str, files)))
    complaints = [line for line in printed.splitlines() if COMPLAINTS.search(line) and "isvalid: true" not in line]
    assert complaints == []
    return printed


def test_the_files_of_the_consumer_offsets_are_decoded(tools: Tools, fleet: RunningCluster, name: str) -> None:
    create(tools.bootstrap, name)
    Librdkafka().produce(tools.bootstrap, name, numbered(3))
    tools(CONSUMER, "--topic", name, "--group", name, "--from-beginning", "--max-messages", "3")
    files = sorted(fleet.data.glob("broker-0/*/__consumer_offsets-*/0*.log"))
    assert files
    dumped = dump(tools, files, "--offsets-decoder", "--deep-iteration")
    assert f'"group":"{name}"' in dumped
    assert re.search(rf'"group":"{name}","topic":"{name}","partition":0.*"offset":3', dumped), dumped[-2000:]


def test_the_features_of_a_fleet_without_brokers_of_another_kind(tools: Tools) -> None:
    described = [line.split("\t") for line in tools(FEATURES, "describe").splitlines()]
    assert [[cell.split(": ")[1] for cell in line[:4]] for line in described] == [
        ["group.version", "0", "1", "0"],
        ["transaction.version", "0", "2", "0"],
    ]


def test_the_tools_of_what_does_not_exist_say_so(tools: Tools) -> None:
    """As they do beside a broker of Apache Kafka without an authorizer and SCRAM users."""
    allowed = ("--allow-principal", "User:a", "--operation", "Read", "--topic", "t", "--force")
    for arguments, reason in (
        (("--list",), "SecurityDisabledException: No Authorizer is configured on the broker"),
        (("--add", *allowed), "SecurityDisabledException: No Authorizer is configured."),
        (("--remove", *allowed), "SecurityDisabledException: No Authorizer is configured."),
    ):
        refused = tools.machine.tool(ACLS, "--bootstrap-server", tools.bootstrap, *arguments)
        assert reason in refused.out + refused.err
