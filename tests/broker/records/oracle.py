"""Kafka's own record classes behind a pipe: see KafkaRecords.java. Tests that use it are marked `java`."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TypeAlias

import pytest

from ottla_broker.records.record import Record

JARS = Path(os.environ.get("OTTLA_CACHE") or Path.home() / ".cache" / "ottla") / "jars"

Ask: TypeAlias = Callable[..., str]


@contextmanager
def kafka_records() -> Iterator[Ask]:
    """A function that sends a request's words and returns the answer."""
    if shutil.which("javac") is None:
        reason = "no javac: run scripts/install-system.sh (Debian: openjdk-17-jdk-headless)"
        pytest.fail(reason) if os.environ.get("OTTLA_TEST_ALL") == "1" else pytest.skip(reason)
    process = subprocess.Popen(
        ["java", "-cp", f"{JARS}/*", str(Path(__file__).with_name("KafkaRecords.java"))],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        bufsize=1,
    )
    assert process.stdin is not None and process.stdout is not None
    questions, answers = process.stdin, process.stdout

    def ask(*words: object) -> str:
        texts = [bytes(word).hex() if isinstance(word, (bytes, bytearray, memoryview)) else str(word) for word in words]
        questions.write(" ".join(texts) + "\n")
        questions.flush()
        return answers.readline().rstrip("\n")

    try:
        yield ask
    finally:
        questions.close()
        process.wait(timeout=60)
        answers.close()


def hex_of(field: bytes | None) -> str:
    return "-" if field is None else field.hex()


def spelled(magic: int, records: Sequence[Record], timestamp_type: str = "CreateTime") -> str:
    """These records in the text of `read`."""
    return ",".join(
        f"{magic} {record.offset} {record.timestamp} {timestamp_type} {hex_of(record.key)} {hex_of(record.value)}"
        for record in records
    )


def to_write(records: Sequence[Record]) -> str:
    """These records in the text for `write`."""
    return ",".join(f"{record.timestamp}:{hex_of(record.key)}:{hex_of(record.value)}" for record in records)
