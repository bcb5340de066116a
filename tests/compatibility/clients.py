"""The clients that are tried, and how their programs are started."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from ottla.local.jars import cache_directory, find_java, kafka_class_path

PROGRAMS = Path(__file__).with_name("programs")


@dataclass(frozen=True, slots=True)
class Setup:
    """What a program is started with."""

    zookeeper: str


@dataclass(frozen=True, slots=True)
class Client:
    """One column of the table.

    `reasons`: why a scenario does not pass with this client, by scenario, where the reason is the client's own. A
    scenario with a reason has to fail: once it passes the reason is out of date.
    """

    name: str
    title: str
    command: Callable[[Setup], list[str]]
    reasons: Mapping[str, str] = field(default_factory=dict)
    not_tried: Mapping[str, str] = field(default_factory=dict)
    """Scenarios that have no certain outcome, and why."""


def _folder() -> Path:
    return cache_directory() / "compatibility"


def _python(program: str, environment: str | None = None) -> Callable[[Setup], list[str]]:
    """A program in the test's own environment, or in one of scripts/setup-clients.sh."""

    def command(_setup: Setup) -> list[str]:
        python = sys.executable if environment is None else str(_folder() / environment / "bin" / "python")
        return [python, str(PROGRAMS / "python" / program)]

    return command


def _java(class_path: Callable[[], str]) -> Callable[[Setup], list[str]]:
    def command(_setup: Setup) -> list[str]:
        options = ["-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Dfile.encoding=UTF-8"]
        return [find_java(), *options, "-cp", class_path(), str(PROGRAMS / "java" / "Client.java")]

    return command


def _java_4() -> str:
    return f"{cache_directory()}/kafka-clients-4-jars/*"


def _node(program: str) -> Callable[[Setup], list[str]]:
    def command(_setup: Setup) -> list[str]:
        return [str(_folder() / "node-runtime" / "bin" / "node"), str(_folder() / "node" / program)]

    return command


def _go(program: str) -> Callable[[Setup], list[str]]:
    return lambda _setup: [str(_folder() / "go" / program)]


def _console_tools(_setup: Setup) -> list[str]:
    return [sys.executable, str(PROGRAMS / "python" / "console_tools.py"), find_java(), kafka_class_path()]


def _tools_0_8(setup: Setup) -> list[str]:
    program = str(PROGRAMS / "python" / "tools_0_8.py")
    return [sys.executable, program, find_java(), f"{cache_directory()}/kafka-0.8-jars/*", setup.zookeeper]


_PLATFORMATIC_ID = (
    "a second producer with the same transactional.id names producer id 0, and is fenced; Apache Kafka fences it too"
)

CLIENTS = (
    Client("java-4", "Java 4.3.1", _java(_java_4)),
    Client("java-3", "Java 3.9.1", _java(kafka_class_path)),
    Client("confluent-kafka", "confluent-kafka 2.16", _python("confluent.py")),
    Client("kafka-python-3", "kafka-python 3.0", _python("kafka_python.py")),
    Client(
        "kafka-python-2",
        "kafka-python 2.3",
        _python("kafka_python.py", "kafka-python-2"),
        {"acks": "the client never sends a request with acks=0"},
        {
            "exactly-once": "not tried: abort_transaction() hangs for good when a batch is in flight: it takes the"
            " batch for one that is not sent yet, its I/O thread fails in each turn and reads no response (ValueError"
            " in abort_undrained_batches); with Apache Kafka 3.9.1 too"
        },
    ),
    Client("aiokafka", "aiokafka 0.14", _python("aio.py")),
    Client("franz-go", "franz-go 1.22", _go("franz")),
    Client("sarama", "sarama 1.61", _go("sarama")),
    Client("kafkajs", "kafkajs 2.2", _node("kafkajs.mjs")),
    Client(
        "platformatic",
        "@platformatic/kafka 2.12",
        _node("platformatic.mjs"),
        {
            "records": "the client writes other timestamps than it is given, from the second record of a batch on",
            **dict.fromkeys(("transactions", "fencing", "exactly-once"), _PLATFORMATIC_ID),
        },
    ),
    Client("kcat", "kcat 1.7", _python("kcat.py")),
    Client("console-tools", "tools of Kafka 3.9.1", _console_tools),
    Client("kafka-python-0.9", "kafka-python 0.9 (Kafka 0.8)", _python("ancient.py", "kafka-python-0.9")),
    Client("tools-0.8", "tools of Kafka 0.8.2", _tools_0_8),
)

ENVIRONMENT = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
