"""The tools of Apache Kafka 0.8.2.2, whose consumers use ZooKeeper: `tools_0_8.py JAVA CLASS_PATH ZOOKEEPER`."""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from loop import UnsupportedError, data, record, serve

PRODUCER = "kafka.tools.ConsoleProducer"
CONSUMER = "kafka.tools.ConsoleConsumer"
OFFSETS = "kafka.tools.GetOffsetShell"
TOPICS = "kafka.admin.TopicCommand"
LIMIT_S = 60
_groups: set[str] = set()
JAVA, CLASS_PATH, ZOOKEEPER = sys.argv[1:4]


def _run(tool: str, *arguments: str, standard_input: str = "") -> str:
    command = [JAVA, "-Xmx256m", "-XX:TieredStopAtLevel=1", "-cp", CLASS_PATH, tool, *arguments]
    done = subprocess.run(command, input=standard_input, capture_output=True, text=True, timeout=LIMIT_S)
    if done.returncode or "Exception" in done.stdout + done.stderr:
        raise RuntimeError((done.stdout + done.stderr).strip()[:500])
    return done.stdout


def produce(
    bootstrap: str,
    topic: str,
    records: list[dict[str, Any]],
    codec: str = "none",
    acks: str = "all",
    idempotent: bool = False,
) -> None:
    if idempotent or codec == "zstd":
        raise UnsupportedError("Kafka 0.8 has none" if idempotent else "Kafka 0.8 has no zstd")
    if any(each["t"] is not None or each["h"] or each["p"] for each in records):
        raise UnsupportedError("the console producer takes neither timestamps, headers nor partitions")
    lines = [f"{_text(each['k'])}\t{_text(each['v'])}\n" for each in records]
    options = ["--compression-codec", codec] if codec != "none" else []
    options += ["--request-required-acks", "-1" if acks == "all" else acks, "--property", "parse.key=true", "--sync"]
    _run(PRODUCER, "--broker-list", bootstrap, "--topic", topic, *options, standard_input="".join(lines))


def _text(found: str | None) -> str:
    decoded = data(found)
    if decoded is None:
        raise UnsupportedError("the console producer has no null keys and values")
    return decoded.decode()


def _consume(topic: str, count: int, properties: dict[str, str], is_known: bool) -> dict[str, Any]:
    """`is_known`: the group has offsets. The consumer names itself where it is not given a group."""
    with tempfile.TemporaryDirectory() as directory:
        config = Path(directory, "consumer.properties")
        config.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))
        limits = ["--max-messages", str(count), "--property", "print.key=true"]
        where = ["--consumer.config", str(config)] if properties else []
        if not is_known:
            where.append("--from-beginning")  # refused where the group has offsets; without it the end is the beginning
        command = ["--zookeeper", ZOOKEEPER, "--topic", topic, *limits, *where]
        printed = _run(CONSUMER, *command)
    pairs = [line.split("\t") for line in printed.splitlines() if "\t" in line]
    return {"records": [record(key.encode(), value.encode(), [], None, 0) for key, value in pairs]}


def read(bootstrap: str, topic: str, count: int, partitions: int, committed: bool) -> dict[str, Any]:
    if partitions > 1:
        raise UnsupportedError("the console consumer does not print partitions")
    return _consume(topic, count, {}, is_known=False)


def group(bootstrap: str, group: str, topic: str, count: int, protocol: str = "classic") -> dict[str, Any]:
    if protocol != "classic":
        raise UnsupportedError("Kafka 0.8 has no groups of the consumer protocol")
    properties = {"group.id": group, "offsets.storage": "zookeeper"}
    found = _consume(topic, count, properties, is_known=group in _groups)
    _groups.add(group)
    return found


def create_topic(bootstrap: str, topic: str, partitions: int, replicas: int, config: dict[str, str]) -> None:
    counts = ["--partitions", str(partitions), "--replication-factor", str(replicas)]
    configs = [part for name, value in config.items() for part in ("--config", f"{name}={value}")]
    _run(TOPICS, "--zookeeper", ZOOKEEPER, "--create", "--topic", topic, *counts, *configs)


def topic_config(bootstrap: str, topic: str) -> dict[str, Any]:
    printed = _run(TOPICS, "--zookeeper", ZOOKEEPER, "--describe", "--topic", topic)
    found = re.search(r"Configs:(\S*)", printed)
    return {"config": dict(each.split("=", 1) for each in found[1].split(",") if each) if found else {}}


def alter_topic(bootstrap: str, topic: str, config: dict[str, str]) -> None:
    changes = [part for name, value in config.items() for part in ("--config", f"{name}={value}")]
    _run(TOPICS, "--zookeeper", ZOOKEEPER, "--alter", "--topic", topic, *changes)


def grow_topic(bootstrap: str, topic: str, partitions: int) -> None:
    _run(TOPICS, "--zookeeper", ZOOKEEPER, "--alter", "--topic", topic, "--partitions", str(partitions))


def delete_topic(bootstrap: str, topic: str) -> None:
    _run(TOPICS, "--zookeeper", ZOOKEEPER, "--delete", "--topic", topic)


def topics(bootstrap: str) -> dict[str, Any]:
    listed = _run(TOPICS, "--zookeeper", ZOOKEEPER, "--list").splitlines()
    return {"topics": [line.split(" ")[0] for line in listed if "marked for deletion" not in line]}


def offset_at(bootstrap: str, topic: str, partition: int, timestamp: int) -> dict[str, Any]:
    raise UnsupportedError("Kafka 0.8 finds a segment, not a record")


if __name__ == "__main__":
    operations = (
        produce,
        read,
        group,
        create_topic,
        topic_config,
        alter_topic,
        grow_topic,
        delete_topic,
        topics,
        offset_at,
    )
    serve({each.__name__: each for each in operations})
