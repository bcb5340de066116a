"""What tasks leave for the driver in files: whatever became of a file on its way, it is sent whole or not at all."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from ottla_broker.records.compression import Codec
from ottla_pipeline.errors import SpoolError
from ottla_pipeline.running.failure_reasons import failure_reason
from ottla_pipeline.sink.plain_batch import PlainBatch
from ottla_pipeline.sink.spool import INLINE_BYTES, Spool, TaskOutput, WriteName, write_name
from ottla_pipeline.topic_partition import TopicPartition

WRITE = write_name("query", 7)


def batch(letter: bytes, size: int = INLINE_BYTES) -> PlainBatch:
    return PlainBatch(letter * size, Codec.NONE, 3, 1, 2)


def spooled(directory: Path, *letters: bytes, write: WriteName = WRITE) -> TaskOutput:
    spool = Spool(str(directory), write)
    for letter in letters:
        spool.add(TopicPartition("t", 1), batch(letter))
    return spool.finish()


def file_of(output: TaskOutput) -> Path:
    assert output.path is not None
    return Path(output.path)


def test_the_driver_reads_what_a_task_has_written(tmp_path: Path) -> None:
    output = spooled(tmp_path, b"a", b"b")
    assert list(output.read()) == [(TopicPartition("t", 1), batch(letter)) for letter in (b"a", b"b")]
    output.delete()
    assert list(tmp_path.iterdir()) == []


def test_few_bytes_are_in_the_message(tmp_path: Path) -> None:
    output = spooled(tmp_path, b"a")
    assert output.path is None and list(tmp_path.iterdir()) == []
    assert list(output.read()) == [(TopicPartition("t", 1), batch(b"a"))]


def cut(file: Path, by: int) -> None:
    file.write_bytes(file.read_bytes()[:-by])


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (Path.unlink, "No such file or directory"),
        (lambda file: file.write_bytes(b""), "is cut short"),
        (lambda file: cut(file, 1), "is cut short"),
        (lambda file: cut(file, INLINE_BYTES), "is cut short"),
        (lambda file: file.write_bytes(b"a" * INLINE_BYTES + bytes(INLINE_BYTES)), "is not what the task has written"),
        (lambda file: (file.unlink(), file.mkdir()), "Is a directory"),
    ],
    ids=["missing", "empty", "last byte", "last batch", "zeros", "directory"],
)
def test_a_file_that_is_not_whole_is_named(tmp_path: Path, damage: Callable[[Path], object], message: str) -> None:
    output = spooled(tmp_path, b"a", b"b")
    damage(file_of(output))
    with pytest.raises(SpoolError, match=message) as raised:
        list(output.read())
    assert str(output.path) in str(raised.value)


def test_a_file_that_becomes_shorter_while_it_is_read_is_named(tmp_path: Path) -> None:
    output = spooled(tmp_path, b"a", b"b")
    batches = output.read()
    assert next(batches)[1] == batch(b"a")
    cut(file_of(output), 1)
    with pytest.raises(SpoolError, match="is cut short"):
        next(batches)


def test_a_directory_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    with pytest.raises(SpoolError, match=rf"spoolDirectory {tmp_path / 'gone'}: No such file or directory"):
        spooled(tmp_path / "gone", b"a", b"b")


def test_the_reason_of_a_failed_query_is_the_file(tmp_path: Path) -> None:
    output = spooled(tmp_path, b"a", b"b")
    file_of(output).unlink()
    with pytest.raises(SpoolError) as raised:
        list(output.read())
    kind = type(raised.value)
    text = f"Job aborted\nTraceback ...\n{kind.__module__}.{kind.__qualname__}: {raised.value}\n at x"
    assert failure_reason(f"[STREAM_FAILED] {text}") == str(raised.value)
