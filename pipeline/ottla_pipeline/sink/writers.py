"""The writers that Spark calls: for a batch job and for a streaming query. With `source` the only users of pyspark.

Spark makes a writer in a Python process of the driver and copies it to every task. For the commit of a streaming batch
it makes another one, in a new process: what the tasks have returned is all that reaches it. Each of these processes
loads this module again: tasks and commits import what only they need, numpy and pyarrow above all.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from ottla_pipeline.errors import OptionError, UnknownReplay
from ottla_pipeline.sink.column_types import check_columns
from ottla_pipeline.sink.left_files import delete_left, driver_name
from ottla_pipeline.sink.spool import TaskOutput, WriteName, machine, spool_directory, write_name
from ottla_pipeline.sink.write_options import Guarantee, NumberedWrite, WriteOptions, parse_write_options
from ottla_pipeline.worker_memory import exempt_loaded_modules

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True)
class TaskMessage(WriterCommitMessage):
    """What a task returns: its batches with exactly-once, else nothing but that it has written all."""

    query_id: str | None
    output: TaskOutput | None


def batch_writer(options: Mapping[str, str], schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
    """The writer of `df.write`. OptionError or ColumnError for what is wrong before any row is looked at."""
    parsed = _checked(options, schema)
    if overwrite:
        raise OptionError("mode", "overwrite cannot be done: a topic is only appended to")
    return BatchWriter(parsed)


def stream_writer(options: Mapping[str, str], schema: StructType) -> DataSourceStreamArrowWriter:
    """The writer of `writeStream`. Raises as `batch_writer`."""
    parsed = _checked(options, schema)
    if parsed.numbered is not None:
        raise OptionError("txnAppId", "is for df.write in foreachBatch; writeStream knows its query and its batches")
    return StreamWriter(parsed)


def _checked(options: Mapping[str, str], schema: StructType) -> WriteOptions:
    parsed = parse_write_options(options)
    check_columns({field.name: field.dataType.simpleString() for field in schema.fields}, parsed.topic)
    return parsed


class BatchWriter(DataSourceArrowWriter):
    """Writes a DataFrame: with exactly-once in one transaction, of which readers see all or nothing. With the number of
    a batch it is written once, however often it is run."""

    def __init__(self, options: WriteOptions, after: Callable[[str], None] | None = None) -> None:
        self._options = options
        self._machine = machine()
        self._transactional_id = options.transactional_id or f"ottla-sink-job-{uuid.uuid4()}"
        self._after = after
        numbered = options.numbered or NumberedWrite(uuid.uuid4().hex, 0)
        self._write = write_name(numbered.application, numbered.version, driver_name())

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskMessage:
        """One task."""
        return _written(iterator, self._options, self._machine, None, self._write)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """All tasks have ended well."""
        if self._options.guarantee is not Guarantee.EXACTLY_ONCE:
            return
        from ottla_pipeline.sink.commit import commit_batch, commit_job, nothing

        outputs, numbered = _outputs(messages), self._options.numbered
        after = self._after or nothing
        if numbered is None:
            commit_job(outputs, self._transactional_id, self._options, after)
        else:
            commit_batch(outputs, numbered.application, numbered.version, self._options, after)
        _delete(outputs, self._options, self._write, of_all_drivers=True)

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """A task or the commit has failed: with exactly-once nothing is visible."""
        _delete(_outputs(messages), self._options, self._write, of_all_drivers=False)


class StreamWriter(DataSourceStreamArrowWriter):
    """Writes the batches of a streaming query, with exactly-once one transaction for each."""

    def __init__(self, options: WriteOptions, after: Callable[[str], None] | None = None) -> None:
        self._options = options
        self._machine = machine()
        self._driver = driver_name()
        self._after = after

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskMessage:
        """One task of a batch."""
        context = TaskContext.get()
        query_id = None if context is None else context.getLocalProperty("sql.streaming.queryId")
        batch_id = None if context is None else context.getLocalProperty("streaming.sql.batchId")
        write = write_name(query_id or "", int(batch_id or 0), self._driver)
        return _written(iterator, self._options, self._machine, query_id, write)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        """All tasks of the batch have ended well."""
        if self._options.guarantee is not Guarantee.EXACTLY_ONCE:
            return
        from ottla_pipeline.sink.commit import commit_batch, nothing

        outputs, query_id = _outputs(messages), _query_id(messages)
        if query_id is None:
            raise UnknownReplay(f"batch {batchId}: Spark does not say which query it belongs to")
        commit_batch(outputs, query_id, batchId, self._options, self._after or nothing)
        write = write_name(query_id, batchId, self._driver)
        _delete(outputs, self._options, write, of_all_drivers=True)

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        """A task or the commit has failed; the next run of the query does the batch again."""
        query_id = _query_id(messages)
        if query_id is None:  # no task has ended; what a killed one has left goes when the batch is written
            return
        write = write_name(query_id, batchId, self._driver)
        _delete(_outputs(messages), self._options, write, of_all_drivers=False)


def _written(
    iterator: Iterator[pa.RecordBatch],
    options: WriteOptions,
    driver_machine: str,
    query_id: str | None,
    write: WriteName,
) -> TaskMessage:
    from ottla_pipeline.sink.task import send_rows, spool_rows

    output: TaskOutput | None = None
    if options.guarantee is Guarantee.EXACTLY_ONCE:
        output = spool_rows(iterator, options, driver_machine, write)
    else:
        send_rows(iterator, options)
    exempt_loaded_modules()
    return TaskMessage(query_id, output)


def _outputs(messages: Sequence[WriterCommitMessage | None]) -> list[TaskOutput]:
    return [message.output for message in messages if isinstance(message, TaskMessage) and message.output is not None]


def _query_id(messages: Sequence[WriterCommitMessage | None]) -> str | None:
    """The query of the tasks that have ended; None where there is none, or Spark does not say."""
    found = {message.query_id for message in messages if isinstance(message, TaskMessage)}
    return found.pop() if len(found) == 1 else None


def _delete(outputs: Sequence[TaskOutput], options: WriteOptions, write: WriteName, *, of_all_drivers: bool) -> None:
    """Deletes the files of a write that has ended: those of its outputs, and those of attempts that were killed."""
    for output in outputs:
        output.delete()
    if options.guarantee is Guarantee.EXACTLY_ONCE:
        folders = {str(Path(output.path).parent) for output in outputs if output.path is not None}
        own = spool_directory(options.spool_directory, machine())
        delete_left(folders | ({own} if own is not None else set()), write, of_all_drivers=of_all_drivers)
