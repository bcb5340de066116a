"""What a task hands to the driver: record batches that the driver sends in its transaction.

Few bytes are in the task's message itself. More are in a file, where the driver can read it: on the driver's own
machine, or in a directory that is shared (spoolDirectory). Without either all bytes are in the message, as many as
Spark takes (spark.driver.maxResultSize).

A file is whole or it is not sent: the message of its task says how long it is and what the checksum of each batch is.
An attempt has a file of its own name, so that what a killed one has left is never taken for that of the next.

When a file is deleted, `left_files` decides: with its write, whoever has made it.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import socket
import tempfile
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, NamedTuple

from crc32c import crc32c

from ottla_broker.records.compression import Codec
from ottla_pipeline.errors import SpoolError
from ottla_pipeline.sink.plain_batch import PlainBatch
from ottla_pipeline.topic_partition import TopicPartition

INLINE_BYTES = 256 * 1024
"""So many bytes of a task are in its message."""

PREFIX = "ottla-sink"
_UNSENT = "; the batch is not written; spoolDirectory has to be one that the driver and all executors share"


class WriteName(NamedTuple):
    """Whose a file is: what its name begins with."""

    driver: str
    """The driver, as `left_files.driver_name` names it."""
    batch: str
    """The same for each attempt of a batch, by whatever driver."""


class SpooledBatch(NamedTuple):
    """Where the payload of a batch is, and the rest of it."""

    topic: str
    partition: int
    position: int
    size: int
    codec: int
    records: int
    base_timestamp: int
    max_timestamp: int
    checksum: int
    """CRC-32C of the payload in a file: a shared one may come otherwise than it was written. 0 in a message."""


@dataclass(frozen=True)
class TaskOutput:
    """All batches of a task, in the order of its rows."""

    batches: list[SpooledBatch]
    data: bytes
    """The payloads, unless there is a file."""
    path: str | None
    """The file with the payloads."""

    @property
    def partitions(self) -> set[TopicPartition]:
        """Where its batches go."""
        return {TopicPartition(one.topic, one.partition) for one in self.batches}

    def read(self) -> Iterator[tuple[TopicPartition, PlainBatch]]:
        """The batches. SpoolError when the file is missing, cut short, or not what the task has written."""
        if self.path is None:
            data = memoryview(self.data)
            for one in self.batches:
                yield _plain(one, data[one.position : one.position + one.size])
            return
        # Read and not mapped: of a file that becomes shorter, or a server that is gone, a mapping ends the process.
        with _named(f"the driver cannot read {self.path}", _UNSENT), open(self.path, "rb") as file:
            for one in self.batches:
                payload = file.read(one.size)
                if len(payload) < one.size:
                    raise SpoolError(f"{self.path} is cut short at byte {one.position + len(payload)}{_UNSENT}")
                if crc32c(payload) != one.checksum:
                    raise SpoolError(
                        f"{self.path} is not what the task has written, from byte {one.position} on{_UNSENT}"
                    )
                yield _plain(one, payload)

    def delete(self) -> None:
        """Deletes the file, if there is one."""
        if self.path is not None:
            Path(self.path).unlink(missing_ok=True)


def _plain(one: SpooledBatch, payload: bytes | memoryview) -> tuple[TopicPartition, PlainBatch]:
    batch = PlainBatch(payload, Codec(one.codec), one.records, one.base_timestamp, one.max_timestamp)
    return TopicPartition(one.topic, one.partition), batch


class Spool:
    """Takes the batches of one task. Ends with `finish` or `discard`."""

    def __init__(self, directory: str | None, write: WriteName) -> None:
        """`directory`: for the file; None keeps all bytes in the message. `write`: whose file it is."""
        self._directory = directory
        self._write = write
        self._batches: list[SpooledBatch] = []
        self._inline: list[bytes | memoryview] = []
        self._file: IO[bytes] | None = None
        self._path: Path | None = None
        self._size = 0

    @property
    def has_file(self) -> bool:
        """Whether its batches go into a file."""
        return self._file is not None

    def add(self, partition: TopicPartition, batch: PlainBatch) -> None:
        """Takes a batch. SpoolError when the directory is missing or has no room for it."""
        size = len(batch.payload)
        if self._file is None and self._directory is not None and self._size + size > INLINE_BYTES:
            with _named(f"spoolDirectory {self._directory}"):
                self._path = Path(self._directory) / _file_name(self._write)
                self._file = open(self._path, "xb", opener=_private)  # noqa: SIM115 (`finish` or `discard` closes it)
                self._file.writelines(self._inline)
            self._batches = [
                one._replace(checksum=crc32c(payload)) for one, payload in zip(self._batches, self._inline, strict=True)
            ]
            self._inline = []
        checksum = 0
        if self._file is None:
            self._inline.append(bytes(batch.payload))
        else:
            with _named(f"spoolDirectory {self._directory}"):
                self._file.write(batch.payload)
            checksum = crc32c(batch.payload)
        self._batches.append(
            SpooledBatch(
                partition.topic, partition.partition, self._size, size, int(batch.codec), batch.records,
                batch.base_timestamp, batch.max_timestamp, checksum,
            )
        )  # fmt: skip
        self._size += size

    def finish(self) -> TaskOutput:
        """What was taken; the driver deletes the file. SpoolError when the last bytes have no room."""
        if self._file is not None:
            with _named(f"spoolDirectory {self._directory}"):
                self._file.close()
        return TaskOutput(self._batches, b"".join(self._inline), None if self._path is None else str(self._path))

    def discard(self) -> None:
        """Deletes the file of a task that has failed."""
        if self._file is not None and self._path is not None:
            with contextlib.suppress(OSError):  # what is buffered may find no room either
                self._file.close()
            self._path.unlink(missing_ok=True)


def write_name(owner: str, number: int, driver: str = "") -> WriteName:
    """Names the write of a batch. `owner`: of the numbers, such as a query. `driver`: that runs it, "" for any."""
    return WriteName(driver, hashlib.sha256(f"{owner}/{number}".encode()).hexdigest()[:16])


def _file_name(write: WriteName) -> str:
    return f"{PREFIX}-{write.driver}-{write.batch}-{uuid.uuid4().hex}"


def spool_directory(option: str | None, driver_machine: str) -> str | None:
    """Where a task may leave a file for the driver: None on another machine without a shared directory."""
    if option is not None:
        return option
    if driver_machine != machine():
        return None
    found = os.environ.get("SPARK_LOCAL_DIRS", "").split(",")[0]
    return found if found and Path(found).is_dir() else tempfile.gettempdir()


def machine() -> str:
    """Names this machine, or container, until it boots again."""
    boot_id = ""
    with contextlib.suppress(OSError):
        boot_id = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return f"{socket.gethostname()}-{boot_id}"


@contextlib.contextmanager
def _named(what: str, then: str = "") -> Iterator[None]:
    """Errors of the file system say what they are about."""
    try:
        yield
    except OSError as error:
        raise SpoolError(f"{what}: {error.strerror or error}{then}") from error


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)
