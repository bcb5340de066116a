"""The tools of Apache Kafka 0.8.2.2: their consumers keep members, owners and offsets in ZooKeeper."""

from __future__ import annotations

import os
import re
import subprocess
import threading
from collections.abc import Mapping
from pathlib import Path

from ottla.local.jars import cache_directory, find_java
from tests.integration.clients.driver import LIMIT_S, await_that

CONSUMER = "kafka.tools.ConsoleConsumer"
PRODUCER = "kafka.tools.ConsoleProducer"
OFFSET_CHECKER = "kafka.tools.ConsumerOffsetChecker"
TOPICS = "kafka.admin.TopicCommand"

PADDING = b" " * 8192
"""A consumer prints a value at once when it is as long as the buffer of standard output."""

QUICK = {
    "auto.commit.interval.ms": "100",
    "zookeeper.session.timeout.ms": "2000",
    "zookeeper.sync.time.ms": "200",
    "rebalance.backoff.ms": "500",
    "rebalance.max.retries": "20",
}
"""A rebalance waits `rebalance.backoff.ms` between its attempts, and a dead member's session has to end first."""


def command(tool: str, *arguments: str) -> list[str]:
    """How a tool is started."""
    jars = cache_directory() / "kafka-0.8-jars" / "*"
    return [find_java(), "-Xmx128m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-cp", str(jars), tool, *arguments]


def tool(name: str, *arguments: str, standard_input: str = "") -> str:
    """What a tool prints; AssertionError when it ends with another status than 0."""
    done = subprocess.run(
        command(name, *arguments), input=standard_input, capture_output=True, text=True, timeout=LIMIT_S
    )
    assert done.returncode == 0, f"{name} {arguments}: {done.stdout}{done.stderr}"
    return done.stdout


class ConsoleConsumer:
    """A console consumer as a member of a group, in a process of its own."""

    def __init__(
        self,
        directory: Path,
        zookeeper: str,
        topic: str,
        name: str,
        config: Mapping[str, str],
        *,
        from_beginning: bool = False,
    ) -> None:
        """Starts it.

        Args:
            directory: for its configuration file.
            config: has at least `group.id`.
            from_beginning: for a group without offsets, which begins at the end otherwise; refused for another.
        """
        properties = directory / f"{name}.properties"
        settings = {**QUICK, "consumer.id": name, **config}
        properties.write_text("".join(f"{key}={value}\n" for key, value in settings.items()), encoding="utf-8")
        arguments = ("--zookeeper", zookeeper, "--topic", topic, "--consumer.config", str(properties))
        arguments += ("--from-beginning",) if from_beginning else ()
        self._printed = b""
        self._process = subprocess.Popen(
            command(CONSUMER, *arguments), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    @property
    def values(self) -> list[str]:
        """What it has printed, without the padding."""
        return [found.decode() for found in re.findall(rb"(value \d+) ", self._printed)]

    def await_values(self, count: int) -> None:
        await_that(lambda: len(self.values) >= count, f"{count} records are read")

    def stop(self) -> None:
        """Ends it in order: it commits its offsets and leaves the group."""
        self._process.terminate()
        self._process.wait(LIMIT_S)
        self._thread.join(LIMIT_S)

    def kill(self) -> None:
        """Ends it without a word: the others hear of it when its session ends."""
        self._process.kill()
        self._process.wait(LIMIT_S)

    def _read(self) -> None:
        assert self._process.stdout is not None
        while data := os.read(self._process.stdout.fileno(), 1 << 16):
            self._printed += data
