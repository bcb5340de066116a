"""Kafka's own VerifiableProducer and VerifiableConsumer as the second kind of clients; they print JSON lines."""

from __future__ import annotations

import json
import signal
import subprocess
from abc import abstractmethod
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ottla.local.jars import find_java, kafka_class_path
from tests.nemesis.history import Acknowledged, History, Indeterminate, Placed, Polled, Subscribed, now
from tests.nemesis.load import REQUEST_TIMEOUT_MS, TOPIC, Client

_OPTIONS = ("-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData")
_LOG4J = """log4j.rootLogger=INFO, err
log4j.appender.err=org.apache.log4j.ConsoleAppender
log4j.appender.err.target=System.err
log4j.appender.err.layout=org.apache.log4j.PatternLayout
log4j.appender.err.layout.ConversionPattern=%d %p %c{1} %m%n
"""
_END_S = 60.0
_COMMON = {"metadata.max.age.ms": "1000", "reconnect.backoff.max.ms": "500", "request.timeout.ms": REQUEST_TIMEOUT_MS}
_PRODUCER = {
    "enable.idempotence": "true",
    "retries": 2**31 - 1,
    "delivery.timeout.ms": 600_000,
    "max.block.ms": 600_000,
    "linger.ms": 1,
    "retry.backoff.ms": 50,
    "retry.backoff.max.ms": 200,
    "socket.connection.setup.timeout.ms": 2000,
}
_CONSUMER = {"fetch.max.wait.ms": 100, "default.api.timeout.ms": 30_000, "auto.commit.interval.ms": 1000}


class _JavaClient(Client):
    def __init__(self, name: str, history: History, folder: Path, main: str, arguments: list[str]) -> None:
        super().__init__(name, history)
        self._log = folder / f"{name}.log"
        log4j = folder / "clients.log4j.properties"
        log4j.write_text(_LOG4J)
        options = [*_OPTIONS, f"-Dlog4j.configuration=file:{log4j}"]
        command = [find_java(), *options, "-cp", kafka_class_path(), f"org.apache.kafka.tools.{main}", *arguments]
        with self._log.open("wb") as errors:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors, text=True
            )

    def stop(self) -> None:
        self._stopping.set()
        self._process.send_signal(signal.SIGTERM)  # both have a shutdown hook that ends what is under way
        try:
            self._process.wait(_END_S)
        except subprocess.TimeoutExpired:
            self.errors.append(f"{self.name} does not end")
            self._process.kill()
        super().stop()

    def _run(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith("{"):
                event = json.loads(line)
                self._on(event["name"], event["timestamp"] / 1000, event)
        if not self._stopping.is_set():
            self.errors.append(f"{self.name} ended by itself, see {self._log}")

    @abstractmethod
    def _on(self, name: str, at: float, event: Mapping[str, Any]) -> None:
        """Takes down what the client says happened `at` that time, in seconds since the epoch."""


class JavaProducer(_JavaClient):
    """acks=all, idempotent; `per_second` records to partitions of Kafka's choice."""

    def __init__(self, name: str, history: History, folder: Path, bootstrap: str, per_second: int) -> None:
        arguments = ["--bootstrap-server", bootstrap, "--topic", TOPIC, "--max-messages", "-1", "--acks", "-1"]
        arguments += ["--throughput", str(per_second), "--value-prefix", name.removeprefix("j")]
        arguments += ["--producer.config", _written(folder / f"{name}.properties", _PRODUCER)]
        super().__init__(name, history, folder, "VerifiableProducer", arguments)

    def _on(self, name: str, at: float, event: Mapping[str, Any]) -> None:
        if name == "producer_send_success":
            offset = event["offset"] if event["offset"] >= 0 else None
            self._history.add(Acknowledged(at, self.name, event["partition"], event["value"], offset))
        elif name == "producer_send_error":
            self._history.add(Indeterminate(at, self.name, event["value"], event["message"]))
            self.errors.append(f"{self.name}: {event['message']}")


class JavaGroupMember(_JavaClient):
    """Subscribes, and commits after every poll."""

    def __init__(self, name: str, history: History, folder: Path, bootstrap: str, group: str) -> None:
        arguments = ["--bootstrap-server", bootstrap, "--topic", TOPIC, "--group-id", group, "--verbose"]
        arguments += ["--reset-policy", "earliest", "--session-timeout", "10000"]
        arguments += ["--consumer.config", _written(folder / f"{name}.properties", _CONSUMER)]
        history.add(Subscribed(now(), name, group))
        super().__init__(name, history, folder, "VerifiableConsumer", arguments)
        self._polled: dict[int, list[tuple[int, str]]] = defaultdict(list)

    def _on(self, name: str, at: float, event: Mapping[str, Any]) -> None:
        if name == "partitions_assigned":
            for one in event["partitions"]:
                self._history.add(Placed(at, self.name, one["partition"], None))
        elif name == "record_data":
            value = event["value"].split(" ", 1)[0]
            self._polled[event["partition"]].append((event["offset"], value))
        elif name == "records_consumed":
            for partition, records in self._polled.items():
                self._history.add(Polled(at, self.name, partition, tuple(records)))
            self._polled.clear()


def _written(path: Path, config: Mapping[str, object]) -> str:
    path.write_text("".join(f"{key}={value}\n" for key, value in (_COMMON | dict(config)).items()))
    return str(path)
