"""Debian's kcat. It administers nothing."""

from __future__ import annotations

import json
import re
import subprocess
import threading
from collections.abc import Mapping, Sequence
from typing import Any

from tests.integration.clients.driver import (
    LARGEST_REQUEST_BYTES,
    LIMIT_S,
    Driver,
    Gathering,
    GroupMember,
    Member,
    Record,
)
from tests.integration.clients.librdkafka import librdkafka_security
from tests.integration.clients.security import Security

_NOTHING = "~null~"
_KCAT = ("kcat", "-m", "60")
"""It gives up when metadata takes longer than that, by default 5 s."""


def record_of(found: dict[str, Any]) -> Record:
    headers = found.get("headers", [])
    return Record(
        _bytes(found["key"]),
        _bytes(found["payload"]),
        tuple((name, _bytes(value)) for name, value in zip(headers[::2], headers[1::2], strict=True)),
        found["ts"],
        found["partition"],
        found["offset"],
        found["tstype"] == "logappend",
    )


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else text.encode()


class _Member(Member):
    """With -E kcat goes on when it is connected to no broker at all."""

    def __init__(self, bootstrap: str, member: GroupMember, gathering: Gathering, security: Security) -> None:
        self._name = member.name
        self._gathering = gathering
        settings = {
            "auto.offset.reset": "earliest",
            "auto.commit.interval.ms": "100",
            "topic.metadata.refresh.interval.ms": "1000",
            **librdkafka_security(security),
            **member.config,
        }
        self._closing = threading.Event()
        self._process = subprocess.Popen(
            [*_KCAT, "-E", "-b", bootstrap, *options(settings), "-J", "-u", "-G", member.group, member.topic],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._closing.set()
        self._process.terminate()
        self._thread.join(LIMIT_S)
        self._gathering.left(self._name)

    def _run(self) -> None:
        process = self._process
        records = threading.Thread(target=self._read_records, args=(process,), daemon=True)
        records.start()
        last = self._read_messages(process)
        records.join(LIMIT_S)
        process.wait(LIMIT_S)
        if not self._closing.is_set():
            self._gathering.left(self._name)
            self._gathering.failed(self._name, f"ended with {process.returncode}: {last}")

    def _read_records(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            found = json.loads(line)
            if found.get("topic") and "offset" in found and "payload" in found:
                self._gathering.received(self._name, [record_of(found)])

    def _read_messages(self, process: subprocess.Popen[str]) -> str:
        """Until kcat ends; the last thing it said."""
        assert process.stderr is not None
        line = ""
        for line in process.stderr:
            if "rebalanced" in line and ("assigned:" in line or "revoked:" in line):
                partitions = frozenset(map(int, re.findall(r"\[(\d+)\]", line)))
                self._gathering.assigned(self._name, partitions if "assigned:" in line else frozenset())
        return line.strip()


class Kcat(Driver):
    name = "kcat"

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
        """One process for each partition and set of headers: kcat has one of both. It takes no timestamps."""
        start = 0
        while start < len(records):
            first = records[start]
            end = start
            while end < len(records) and (records[end].headers, records[end].partition) == (
                first.headers,
                first.partition,
            ):
                end += 1
            self._produce_alike(bootstrap, topic, records[start:end], codec, acks, is_idempotent)
            start = end
        return None

    def _produce_alike(
        self, bootstrap: str, topic: str, records: Sequence[Record], codec: str, acks: str, is_idempotent: bool
    ) -> None:
        headers = []
        for name, value in records[0].headers:
            headers += ["-H", name if value is None else f"{name}={value.decode()}"]
        lines = [
            ("" if record.key is None else record.key.decode())
            + _NOTHING
            + ("" if record.value is None else record.value.decode())
            for record in records
        ]
        settings = {
            "acks": acks,
            "enable.idempotence": str(is_idempotent).lower(),
            "compression.codec": codec,
            "linger.ms": "5",
            "message.max.bytes": str(LARGEST_REQUEST_BYTES),
            **librdkafka_security(self.security),
        }
        partition = str(records[0].partition)
        command = [
            *_KCAT,
            "-b",
            bootstrap,
            *options(settings),
            "-P",
            "-t",
            topic,
            "-p",
            partition,
            "-K",
            _NOTHING,
            "-Z",
        ]
        run([*command, *headers], "\n".join(lines) + "\n")

    def read(self, bootstrap: str, topic: str, partitions: int = 1) -> list[Record]:
        quick = {"fetch.wait.max.ms": "10"}  # it ends when a fetch has come back empty
        settings = options({**quick, **librdkafka_security(self.security)})
        printed = run([*_KCAT, "-b", bootstrap, *settings, "-C", "-t", topic, "-o", "beginning", "-e", "-q", "-J"])
        records = [record_of(json.loads(line)) for line in printed.splitlines()]
        return sorted(records, key=lambda record: (record.partition, record.offset))

    def join(self, bootstrap: str, member: GroupMember, gathering: Gathering) -> Member:
        return _Member(bootstrap, member, gathering, self.security)


def options(settings: Mapping[str, str]) -> list[str]:
    """
    >>> options({"acks": "1"})
    ['-X', 'acks=1']
    """
    return [part for name, value in settings.items() for part in ("-X", f"{name}={value}")]


def run(command: Sequence[str], standard_input: str = "") -> str:
    """What a command prints. Its failure fails the test with what it said."""
    done = subprocess.run(command, input=standard_input, capture_output=True, text=True, timeout=LIMIT_S)
    assert done.returncode == 0, f"{' '.join(command)}: {done.stderr}"
    return done.stdout
