"""What a task hands to the driver: record batches that the driver sends in its transaction.

Few bytes are in the task's message itself. More are in a file, where the driver can read it: on the driver's own
machine, or in a directory that is shared (spoolDirectory). Without either all bytes are in the message, as many as
Spark takes (spark.driver.maxResultSize).

A file is deleted with its batch. After a kill it stays; the next write on that machine deletes the files of processes
that run no more.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import socket
import tempfile
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, NamedTuple

from ottla_broker.records.compression import Codec
from ottla_pipeline.errors import PipelineError
from ottla_pipeline.sink.plain_batch import PlainBatch
from ottla_pipeline.topic_partition import TopicPartition

INLINE_BYTES = 256 * 1024
"""So many bytes of a task are in its message."""

_PREFIX = "ottla-sink"


class SpoolLost(PipelineError):
    """The driver cannot read what a task has spooled."""


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
        """The batches. Their payloads are pieces of the mapped file. SpoolLost when there is no file."""
        if self.path is None:
            yield from self._from(memoryview(self.data))
            return
        try:
            with open(self.path, "rb") as file:
                content = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except OSError as error:
            raise SpoolLost(
                f"the driver cannot read what a task has written: {error}; spoolDirectory must name a directory that"
                " the driver and all executors share"
            ) from error
        yield from self._from(memoryview(content))

    def delete(self) -> None:
        """Deletes the file, if there is one."""
        if self.path is not None:
            Path(self.path).unlink(missing_ok=True)

    def _from(self, data: memoryview) -> Iterator[tuple[TopicPartition, PlainBatch]]:
        for one in self.batches:
            payload = data[one.position : one.position + one.size]
            batch = PlainBatch(payload, Codec(one.codec), one.records, one.base_timestamp, one.max_timestamp)
            yield TopicPartition(one.topic, one.partition), batch


class Spool:
    """Takes the batches of one task. Ends with `finish` or `discard`."""

    def __init__(self, directory: str | None) -> None:
        """`directory`: for the file; None keeps all bytes in the message."""
        self._directory = directory
        self._batches: list[SpooledBatch] = []
        self._inline: list[bytes | memoryview] = []
        self._file: IO[bytes] | None = None
        self._path: Path | None = None
        self._size = 0

    def add(self, partition: TopicPartition, batch: PlainBatch) -> None:
        """Takes a batch. OSError when there is no room for it."""
        size = len(batch.payload)
        if self._file is None and self._directory is not None and self._size + size > INLINE_BYTES:
            self._path = Path(self._directory) / f"{_of_process(os.getppid())}-{uuid.uuid4().hex}"
            self._file = open(self._path, "xb", opener=_private)  # noqa: SIM115 (`finish` or `discard` closes it)
            self._file.writelines(self._inline)
            self._inline = []
        self._batches.append(
            SpooledBatch(
                partition.topic, partition.partition, self._size, size, int(batch.codec), batch.records,
                batch.base_timestamp, batch.max_timestamp,
            )
        )  # fmt: skip
        if self._file is None:
            self._inline.append(bytes(batch.payload))
        else:
            self._file.write(batch.payload)
        self._size += size

    def finish(self) -> TaskOutput:
        """What was taken; the driver deletes the file."""
        if self._file is not None:
            self._file.close()
        return TaskOutput(self._batches, b"".join(self._inline), None if self._path is None else str(self._path))

    def discard(self) -> None:
        """Deletes the file of a task that has failed."""
        if self._file is not None and self._path is not None:
            self._file.close()
            self._path.unlink(missing_ok=True)


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


def sweep(directory: str) -> None:
    """Deletes the files of processes on this machine that run no more."""
    own = f"{_PREFIX}-{socket.gethostname()}-"
    for found in Path(directory).glob(f"{_PREFIX}-*"):
        process, _, _ = found.name.removeprefix(own).partition("-")
        if found.name.startswith(own) and process.isdecimal() and not _runs(int(process)):
            found.unlink(missing_ok=True)


def _runs(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _of_process(process: int) -> str:
    return f"{_PREFIX}-{socket.gethostname()}-{process}"


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)
