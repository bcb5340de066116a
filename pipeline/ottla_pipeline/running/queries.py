"""Starts the queries of a pipeline, follows their progress, and ends them after a batch. Imports pyspark."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import DataStreamWriter, StreamingQuery, StreamingQueryListener

from ottla_documents.kafka_pipeline import KafkaPipeline
from ottla_documents.pipeline_sink import EXACTLY_ONCE, FileSink, TopicSink
from ottla_pipeline.running.batch_progress import query_status
from ottla_pipeline.running.failure_reasons import failure_reason
from ottla_pipeline.running.frames import Frames, StepError, planned
from ottla_pipeline.running.jdbc_writer import JdbcWriter
from ottla_pipeline.running.query_options import is_local, sink_options, trigger_options
from ottla_pipeline.running.run_folder import RunFolder, first_new_batch

POLL_S = 0.25


class ProgressListener(StreamingQueryListener):
    """Gives the status of a query after each batch to `on_batch(query name, status)`; Spark calls it on a thread."""

    def __init__(self, on_batch: Callable[[str, dict[str, Any]], None]) -> None:
        self._on_batch = on_batch
        self._ended = threading.Condition()
        self._batches: dict[str, list[tuple[int, str]]] = {}

    def onQueryStarted(self, event: Any) -> None:
        """Nothing: the status says that the pipeline runs before its first batch."""

    def onQueryProgress(self, event: Any) -> None:
        self.take(json.loads(event.progress.json))

    def take(self, progress: Mapping[str, Any]) -> None:
        """The progress of a batch, from Spark's thread or from who has seen a query end before that thread came."""
        batch = progress["batchId"], progress["timestamp"]
        with self._ended:
            batches = self._batches.setdefault(progress["runId"], [])
            if batch in batches[-1:]:
                return
            batches.append(batch)
            self._on_batch(progress["name"], query_status(progress))
            self._ended.notify_all()

    def onQueryIdle(self, event: Any) -> None:
        """Nothing has come: the last status still holds."""

    def onQueryTerminated(self, event: Any) -> None:
        """Nothing: whoever waits for the query sees how it ended."""

    def batches(self, run_id: str) -> int:
        """How many batches of a run have ended."""
        with self._ended:
            return len(self._batches.get(run_id, ()))

    def wait(self, run_id: str, seen: int, timeout_s: float) -> bool:
        """Waits for another batch than the `seen` ones; whether there was one in time."""
        with self._ended:
            return self._ended.wait_for(lambda: len(self._batches.get(run_id, ())) > seen, timeout_s)


def start_queries(
    spark: SparkSession,
    pipeline: KafkaPipeline,
    frames: Frames,
    brokers: Mapping[str, str],
    folder: RunFolder,
    *,
    is_once: bool,
) -> list[StreamingQuery]:
    """One query; two where files or a table take the rows and a topic the dead letters.

    Raises:
        PipelineError: Spark refuses the query, such as an aggregation that append mode cannot write, or the database
            refuses the table.
    """
    trigger, mode = trigger_options(pipeline.trigger, is_once), pipeline.sink.output_mode

    def writer_of(frame: DataFrame, name: str, checkpoint: Path, mode: str = "append") -> DataStreamWriter:
        writer = frame.writeStream.option("checkpointLocation", str(checkpoint))
        return writer.queryName(name).outputMode(mode).trigger(**trigger)

    def started(writer: DataStreamWriter) -> StreamingQuery:
        return planned("spec.sink", writer.start)

    folder.check_checkpoint()
    target = pipeline.sink.target
    spool = "" if is_local(spark.sparkContext.master) else str(folder.empty_spool())
    if isinstance(target, TopicSink):
        options = sink_options(target, brokers, spool, first_new_batch(folder.query, time.time()))
        if frames.has_dead_letters:
            result = planned("spec.sink", lambda: frames.with_dead_letters(target.topic, pipeline.dead_letters))
        else:
            result, options = planned("spec.sink", lambda: frames.result), options | {"topic": target.topic}
        writer = writer_of(result, pipeline.name, folder.query, mode)
        if mode == "update":
            return [started(writer.foreachBatch(_writer_of_updates(options, folder)))]
        return [started(writer.format("ottla").options(**options))]
    result = planned("spec.sink", lambda: frames.result)
    writer = writer_of(result, pipeline.name, folder.query, mode)
    if isinstance(target, FileSink):
        writer = writer.format(target.format).option("path", target.path).partitionBy(*target.partition_by)
    else:
        upserts = JdbcWriter(spark, target, pipeline.name, folder.query_id)
        upserts.prepare(result.columns)
        writer = writer.foreachBatch(upserts)
    queries = [started(writer)]
    if frames.has_dead_letters:
        new = first_new_batch(folder.dead_letters, time.time())
        options = sink_options(TopicSink(pipeline.dead_letters), brokers, spool, new)
        options |= {"topic": pipeline.dead_letters}
        try:
            dead = planned("spec.deadLetters", lambda: frames.dead)
            writer = writer_of(dead, f"{pipeline.name}-dead-letters", folder.dead_letters)
            queries.append(started(writer.format("ottla").options(**options)))
        except StepError:
            queries[0].stop()
            raise
    return queries


def _writer_of_updates(options: Mapping[str, str], folder: RunFolder) -> Callable[[DataFrame, int], None]:
    """Writes a batch of update mode, which Spark refuses to every sink that is written in Python: as a write of its
    own, which has the query and the number of the batch."""

    def write(rows: DataFrame, batch_id: int) -> None:
        numbered: dict[str, str] = {}
        if options["guarantee"] == EXACTLY_ONCE:
            numbered = {"txnAppId": folder.query_id(), "txnVersion": str(batch_id)}
            numbered["checkpointLocation"] = str(folder.query)  # which Spark gives to the sink of a query
        rows.write.format("ottla").options(**options, **numbered).mode("append").save()

    return write


def follow(queries: list[StreamingQuery], listener: ProgressListener, is_asked_to_end: Callable[[], bool]) -> str:
    """Waits until all queries have ended, or one has failed; the others are then stopped.

    Returns:
        "" when they ended by themselves or as they were asked, else why one has failed.
    """
    failed = _wait_for_end(queries, listener, is_asked_to_end)
    for query in queries:
        if (last := query.lastProgress) is not None:
            listener.take(json.loads(last.json))
    return failed


def _wait_for_end(
    queries: list[StreamingQuery], listener: ProgressListener, is_asked_to_end: Callable[[], bool]
) -> str:
    while any(query.isActive for query in queries):
        if is_asked_to_end():
            for query in queries:
                _end_after_batch(query, listener)
            return ""
        if failed := _failure(queries):
            for query in queries:
                query.stop()
            return failed
        _wait(queries)
    return _failure(queries)


def _wait(queries: list[StreamingQuery]) -> None:
    active = [query for query in queries if query.isActive]
    if active:
        try:
            active[0].awaitTermination(POLL_S)
        except PySparkException:
            return  # how it ended is looked at by whoever asks for failures


def _failure(queries: list[StreamingQuery]) -> str:
    for query in queries:
        if not query.isActive and (error := query.exception()) is not None:
            return failure_reason(str(error))
    return ""


def _end_after_batch(query: StreamingQuery, listener: ProgressListener) -> None:
    """Stops the query once the batch that is under way has ended; one that began after that is run again later."""
    run_id = str(query.runId)
    seen = listener.batches(run_id)
    while query.isActive and query.status["isTriggerActive"]:
        if listener.wait(run_id, seen, POLL_S):
            break
    query.stop()
