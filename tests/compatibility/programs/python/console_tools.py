"""The command line tools of Apache Kafka 3.9.1: `console_tools.py JAVA CLASS_PATH`."""

from __future__ import annotations

import re
import subprocess
import sys
from typing import Any

from loop import UnsupportedError, data, record, serve

PRODUCER = "kafka.tools.ConsoleProducer"
CONSUMER = "org.apache.kafka.tools.consumer.ConsoleConsumer"
TOPICS = "org.apache.kafka.tools.TopicCommand"
CONFIGS = "kafka.admin.ConfigCommand"
OFFSETS = "org.apache.kafka.tools.GetOffsetShell"
LIMIT_S = 60
JAVA, CLASS_PATH = sys.argv[1:3]


def _run(tool: str, bootstrap: str, *arguments: str, standard_input: str = "") -> str:
    options = ["-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Dfile.encoding=UTF-8"]
    command = [JAVA, *options, "-cp", CLASS_PATH, tool, "--bootstrap-server", bootstrap, *arguments]
    done = subprocess.run(command, input=standard_input, capture_output=True, text=True, timeout=LIMIT_S)
    output = done.stdout + done.stderr
    if done.returncode or "ERROR" in done.stderr:
        raise RuntimeError(output.strip()[:500])
    return done.stdout


def _text(found: str | None) -> str:
    decoded = data(found)
    return "~null~" if decoded is None else decoded.decode()


def produce(
    bootstrap: str,
    topic: str,
    records: list[dict[str, Any]],
    codec: str = "none",
    acks: str = "all",
    idempotent: bool = False,
) -> None:
    if any(each["t"] is not None or each["p"] for each in records):
        raise UnsupportedError("the console producer takes neither timestamps nor partitions")
    lines = [f"{_text(each['k'])}\t{_text(each['v'])}\n" for each in records]
    options = ["--producer-property", f"enable.idempotence={str(idempotent).lower()}", "--request-required-acks", acks]
    options += ["--compression-codec", codec, "--property", "parse.key=true", "--property", "null.marker=~null~"]
    _run(PRODUCER, bootstrap, "--topic", topic, *options, standard_input="".join(lines))


def _consume(bootstrap: str, topic: str, count: int, *arguments: str) -> dict[str, Any]:
    shown = ["print.key=true", "print.partition=true", "print.timestamp=true", "null.literal=~null~"]
    properties = [part for each in shown for part in ("--property", each)]
    limits = ["--max-messages", str(count), "--timeout-ms", "30000"]
    printed = _run(CONSUMER, bootstrap, "--topic", topic, "--from-beginning", *limits, *properties, *arguments)
    found = []
    for line in printed.splitlines():
        timestamp, partition, key, value = line.split("\t")
        pair = [None if each == "~null~" else each.encode() for each in (key, value)]
        found.append(record(pair[0], pair[1], [], int(timestamp.split(":")[1]), int(partition.split(":")[1])))
    return {"records": found}


def read(bootstrap: str, topic: str, count: int, partitions: int, committed: bool) -> dict[str, Any]:
    isolation = "read_committed" if committed else "read_uncommitted"
    return _consume(bootstrap, topic, count, "--isolation-level", isolation)


def group(bootstrap: str, group: str, topic: str, count: int, protocol: str = "classic") -> dict[str, Any]:
    return _consume(bootstrap, topic, count, "--group", group, "--consumer-property", f"group.protocol={protocol}")


def offset_at(bootstrap: str, topic: str, partition: int, timestamp: int) -> dict[str, Any]:
    printed = _run(OFFSETS, bootstrap, "--topic-partitions", f"{topic}:{partition}", "--time", str(timestamp))
    return {"offset": int(printed.strip().rsplit(":", 1)[1])}


def create_topic(bootstrap: str, topic: str, partitions: int, replicas: int, config: dict[str, str]) -> None:
    counts = ["--partitions", str(partitions), "--replication-factor", str(replicas)]
    configs = [part for name, value in config.items() for part in ("--config", f"{name}={value}")]
    _run(TOPICS, bootstrap, "--create", "--topic", topic, *counts, *configs)


def topic_config(bootstrap: str, topic: str) -> dict[str, Any]:
    printed = _run(CONFIGS, bootstrap, "--describe", "--entity-type", "topics", "--entity-name", topic)
    return {"config": dict(re.findall(r"^\s+([\w.]+)=(\S*)", printed, re.MULTILINE))}


def alter_topic(bootstrap: str, topic: str, config: dict[str, str]) -> None:
    changes = ",".join(f"{name}={value}" for name, value in config.items())
    _run(CONFIGS, bootstrap, "--alter", "--entity-type", "topics", "--entity-name", topic, "--add-config", changes)


def grow_topic(bootstrap: str, topic: str, partitions: int) -> None:
    _run(TOPICS, bootstrap, "--alter", "--topic", topic, "--partitions", str(partitions))


def delete_topic(bootstrap: str, topic: str) -> None:
    _run(TOPICS, bootstrap, "--delete", "--topic", topic)


def topics(bootstrap: str) -> dict[str, Any]:
    return {"topics": _run(TOPICS, bootstrap, "--list").split()}


if __name__ == "__main__":
    operations = (
        produce,
        read,
        group,
        offset_at,
        create_topic,
        topic_config,
        alter_topic,
        grow_topic,
        delete_topic,
        topics,
    )
    serve({each.__name__: each for each in operations})
