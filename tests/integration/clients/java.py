"""The official Java client and Kafka's own tools, all in one JVM (`JavaClients.java`): a start costs seconds."""

from __future__ import annotations

import base64
import itertools
import json
import subprocess
import threading
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ottla.local.jars import find_java, kafka_class_path
from tests.integration.clients.driver import (
    LARGEST_REQUEST_BYTES,
    LIMIT_S,
    Administrator,
    Gathering,
    GroupMember,
    Member,
    Record,
    TopicDescription,
)
from tests.integration.clients.security import PLAIN, Security


class JavaError(Exception):
    """An exception of a Java client. `kind` is its class, `TopicExistsException`."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(f"{kind}: {message}")
        self.kind = kind


@dataclass(frozen=True, slots=True)
class ToolOutput:
    status: int
    out: str
    err: str


class JavaMachine:
    """A JVM, which starts with the first request. `ask` may be called from any thread.

    Args:
        log: file for what the clients log.
        clients: a jar whose clients win over those of 3.9.1.
        options: of the JVM.
    """

    def __init__(self, log: Path, *, clients: Path | None = None, options: Sequence[str] = ()) -> None:
        self._log = log
        self._options = options
        self._class_path = kafka_class_path() if clients is None else f"{clients}:{kafka_class_path()}"
        self._process: subprocess.Popen[str] | None = None
        self._reader: threading.Thread | None = None
        self._waiting: dict[int, Future[dict[str, Any]]] = {}
        self._gatherings: dict[str, Gathering] = {}
        self._numbers = itertools.count()
        self._lock = threading.Lock()

    def close(self) -> None:
        """Ends the JVM; the next request starts another one."""
        if self._process is None or self._reader is None:
            return
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(LIMIT_S)
        self._reader.join(LIMIT_S)
        self._process = self._reader = None

    def end_clients(self) -> None:
        """Ends the JVM if clients remain in it: another fleet may get a port that they go on connecting to.

        Some of Kafka's tools never close theirs, others do not when they fail.
        """
        if self._process is not None and self.ask("clients")["threads"]:
            self.close()

    def _started(self) -> subprocess.Popen[str]:
        if self._process is None:
            program = Path(__file__).with_name("JavaClients.java")
            options = [
                "-Xmx256m",
                "-XX:TieredStopAtLevel=1",
                "-XX:+UseSerialGC",
                "-Dfile.encoding=UTF-8",
                *self._options,
            ]
            with self._log.open("ab") as errors:
                self._process = subprocess.Popen(
                    [find_java(), *options, *self._options, "-cp", self._class_path, str(program)],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=errors,
                    text=True,
                    encoding="utf-8",
                )
            self._reader = threading.Thread(target=self._read, args=(self._process.stdout,), daemon=True)
            self._reader.start()
        return self._process

    def ask(self, do: str, **arguments: Any) -> dict[str, Any]:
        """Raises JavaError."""
        future: Future[dict[str, Any]] = Future()
        with self._lock:
            number = next(self._numbers)
            self._waiting[number] = future
            requests = self._started().stdin
            assert requests is not None
            requests.write(json.dumps({"id": number, "do": do, **arguments}) + "\n")
            requests.flush()
        answer = future.result(LIMIT_S * 2)
        if "error" in answer:
            raise JavaError(answer["error"], answer["message"])
        return answer

    def tool(self, name: str, *arguments: str, standard_input: str = "") -> ToolOutput:
        """Runs the main method of a class of Kafka's."""
        answer = self.ask("tool", **{"class": name, "arguments": arguments, "input": standard_input})
        return ToolOutput(answer["status"], answer["out"], answer["err"])

    def join(self, bootstrap: str, member: GroupMember, gathering: Gathering, security: Security = PLAIN) -> None:
        self._gatherings[member.name] = gathering
        config = {
            "group.id": member.group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": "false",
            "metadata.max.age.ms": "1000",
            **security,
            **member.config,
        }
        self.ask("join", bootstrap=bootstrap, name=member.name, topic=member.topic, config=config)

    def _read(self, messages: Iterable[str]) -> None:
        for line in messages:
            message = json.loads(line)
            if "event" in message:
                self._on_event(message)
            else:
                self._waiting.pop(message["id"]).set_result(message)
        while self._waiting:
            _, future = self._waiting.popitem()
            future.set_exception(RuntimeError(f"the JVM ended:\n{self._log.read_text()[-3000:]}"))

    def _on_event(self, message: dict[str, Any]) -> None:
        name = message["name"]
        gathering = self._gatherings[name]
        match message["event"]:
            case "assigned":
                gathering.assigned(name, frozenset(message["partitions"]))
            case "records":
                gathering.received(name, [record_of(found) for found in message["records"]])
            case "committed":
                gathering.committed(name)
            case "failed":
                gathering.failed(name, message["why"])
            case "left":
                gathering.left(name)


def record_of(found: dict[str, Any]) -> Record:
    return Record(
        _bytes(found["key"]),
        _bytes(found["value"]),
        tuple((name, _bytes(value)) for name, value in found["headers"]),
        found["timestamp"],
        found["partition"],
        found["offset"],
        not found["isCreateTime"],
    )


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)


def _text(data: bytes | None) -> str | None:
    return None if data is None else base64.b64encode(data).decode()


class _Member(Member):
    def __init__(self, machine: JavaMachine, name: str) -> None:
        self._machine = machine
        self._name = name

    def close(self) -> None:
        self._machine.ask("leave", name=self._name)


class Java(Administrator):
    name = "java"

    def __init__(self, machine: JavaMachine, security: Security = PLAIN) -> None:
        super().__init__(security)
        self.machine = machine

    def produce(
        self,
        bootstrap: str,
        topic: str,
        records: Sequence[Record],
        *,
        codec: str = "none",
        acks: str = "all",
        is_idempotent: bool = False,
    ) -> list[int] | None:
        config = {
            "acks": acks,
            "compression.type": codec,
            "linger.ms": "5",
            "enable.idempotence": str(is_idempotent).lower(),
            "max.request.size": str(LARGEST_REQUEST_BYTES),
        }
        sent = [
            {
                "key": _text(record.key),
                "value": _text(record.value),
                "timestamp": record.timestamp_ms,
                "partition": record.partition,
                "headers": [[name, _text(value)] for name, value in record.headers],
            }
            for record in records
        ]
        answer = self._ask("produce", bootstrap, topic=topic, config=config, records=sent)
        return list(answer["offsets"]) if acks != "0" else None

    def read(self, bootstrap: str, topic: str, partitions: int = 1) -> list[Record]:
        answer = self._ask("read", bootstrap, topic=topic, partitions=partitions)
        records = [record_of(found) for found in answer["records"]]
        return sorted(records, key=lambda record: (record.partition, record.offset))

    def join(self, bootstrap: str, member: GroupMember, gathering: Gathering) -> Member:
        self.machine.join(bootstrap, member, gathering, self.security)
        return _Member(self.machine, member.name)

    def create_topic(
        self, bootstrap: str, topic: str, partitions: int, replicas: int, config: Mapping[str, str]
    ) -> None:
        self._ask("create", bootstrap, topic=topic, partitions=partitions, replicas=replicas, settings=dict(config))

    def describe_topic(self, bootstrap: str, topic: str) -> TopicDescription:
        parts = self._ask("describe", bootstrap, topic=topic)["partitions"]
        return TopicDescription(
            {part["partition"]: part["leader"] for part in parts},
            {part["partition"]: tuple(part["replicas"]) for part in parts},
            {part["partition"]: frozenset(part["inSync"]) for part in parts},
        )

    def grow_topic(self, bootstrap: str, topic: str, partitions: int) -> None:
        self._ask("grow", bootstrap, topic=topic, partitions=partitions)

    def alter_topic(self, bootstrap: str, topic: str, config: Mapping[str, str]) -> None:
        self._ask("alter", bootstrap, topic=topic, settings=dict(config))

    def topic_config(self, bootstrap: str, topic: str) -> Mapping[str, str]:
        found: dict[str, str] = self._ask("configs", bootstrap, topic=topic)["settings"]
        return found

    def delete_topic(self, bootstrap: str, topic: str) -> None:
        self._ask("delete", bootstrap, topic=topic)

    def topics(self, bootstrap: str) -> frozenset[str]:
        return frozenset(self._ask("topics", bootstrap)["topics"])

    def _ask(self, do: str, bootstrap: str, *, config: Mapping[str, str] = PLAIN, **arguments: Any) -> dict[str, Any]:
        return self.machine.ask(do, bootstrap=bootstrap, config={**self.security, **config}, **arguments)
