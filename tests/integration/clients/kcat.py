"""Debian's kcat. It administers nothing."""

from __future__ import annotations

import json
import re
import subprocess
import threading
from collections.abc import Sequence
from typing import Any

from tests.integration.clients.driver import LIMIT_S, Driver, Gathering, GroupMember, Member, Record

_NOTHING = "~null~"


def record_of(found: dict[str, Any]) -> Record:
    assert found["tstype"] == "create", found
    headers = found.get("headers", [])
    return Record(
        _bytes(found["key"]),
        _bytes(found["payload"]),
        tuple((name, _bytes(value)) for name, value in zip(headers[::2], headers[1::2], strict=True)),
        found["ts"],
        found["partition"],
        found["offset"],
    )


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else text.encode()


class _Member(Member):
    def __init__(self, bootstrap: str, member: GroupMember, gathering: Gathering) -> None:
        self._name = member.name
        self._gathering = gathering
        settings = {
            "auto.offset.reset": "earliest",
            "auto.commit.interval.ms": "100",
            "topic.metadata.refresh.interval.ms": "1000",
            **member.config,
        }
        options = [part for name, value in settings.items() for part in ("-X", f"{name}={value}")]
        self._process = subprocess.Popen(
            ["kcat", "-b", bootstrap, *options, "-J", "-u", "-G", member.group, member.topic],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._threads = [
            threading.Thread(target=self._read_records, daemon=True),
            threading.Thread(target=self._read_messages, daemon=True),
        ]
        for thread in self._threads:
            thread.start()

    def close(self) -> None:
        self._process.terminate()
        self._process.wait(LIMIT_S)
        for thread in self._threads:
            thread.join(LIMIT_S)
        self._gathering.left(self._name)

    def _read_records(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            found = json.loads(line)
            if found.get("topic") and "offset" in found and "payload" in found:
                self._gathering.received(self._name, [record_of(found)])

    def _read_messages(self) -> None:
        assert self._process.stderr is not None
        for line in self._process.stderr:
            if "rebalanced" in line and ("assigned:" in line or "revoked:" in line):
                partitions = frozenset(map(int, re.findall(r"\[(\d+)\]", line)))
                self._gathering.assigned(self._name, partitions if "assigned:" in line else frozenset())
            elif "ERROR" in line and "fatal" in line.lower():
                self._gathering.failed(self._name, line)


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
        }
        options = [part for name, value in settings.items() for part in ("-X", f"{name}={value}")]
        partition = str(records[0].partition)
        command = ["kcat", "-b", bootstrap, *options, "-P", "-t", topic, "-p", partition, "-K", _NOTHING, "-Z"]
        run([*command, *headers], "\n".join(lines) + "\n")

    def read(self, bootstrap: str, topic: str, partitions: int = 1) -> list[Record]:
        quick = ["-X", "fetch.wait.max.ms=10"]  # it ends when a fetch has come back empty
        printed = run(["kcat", "-b", bootstrap, *quick, "-C", "-t", topic, "-o", "beginning", "-e", "-q", "-J"])
        records = [record_of(json.loads(line)) for line in printed.splitlines()]
        return sorted(records, key=lambda record: (record.partition, record.offset))

    def join(self, bootstrap: str, member: GroupMember, gathering: Gathering) -> Member:
        return _Member(bootstrap, member, gathering)


def run(command: Sequence[str], standard_input: str = "") -> str:
    """What a command prints. Its failure fails the test with what it said."""
    done = subprocess.run(command, input=standard_input, capture_output=True, text=True, timeout=LIMIT_S)
    assert done.returncode == 0, f"{' '.join(command)}: {done.stderr}"
    return done.stdout
