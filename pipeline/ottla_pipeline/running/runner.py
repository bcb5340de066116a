"""Runs a pipeline in this process until it has done what its document says, is asked to end, or fails for good."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any
from zoneinfo import ZoneInfo

from cronsim import CronSim
from pyspark.sql import SparkSession

from ottla_documents.kafka_pipeline import KafkaPipeline, Trigger
from ottla_pipeline.errors import DatabaseUnreachable, PipelineError, SparkEnded, WorkerNotStarted
from ottla_pipeline.running.batch_progress import progress_line
from ottla_pipeline.running.document_words import in_words_of_document, is_for_good
from ottla_pipeline.running.failure_reasons import WORKER_NOT_STARTED
from ottla_pipeline.running.frames import build_frames
from ottla_pipeline.running.queries import ProgressListener, follow, start_queries
from ottla_pipeline.running.restarts import decide_restart
from ottla_pipeline.running.run_folder import RunFolder, RunFolderError


class PipelineRun:
    """One run of `ottla pipeline run`. The caller has the lock of the folder."""

    def __init__(
        self,
        pipeline: KafkaPipeline,
        brokers: Mapping[str, str],
        folder: RunFolder,
        *,
        is_once: bool,
        is_asked_to_end: threading.Event,
        say: Callable[[str], None],
    ) -> None:
        """
        Args:
            brokers: `broker_options`.
            is_once: what is there now, whatever trigger and schedule say.
            say: prints a line.
        """
        self._pipeline = pipeline
        self._brokers = brokers
        self._folder = folder
        self._is_once = is_once
        self._is_asked_to_end = is_asked_to_end
        self._say = say
        self._writing = threading.Lock()
        self._batches = 0
        self._status: dict[str, Any] = {
            "phase": "Starting",
            "pid": os.getpid(),
            "startTime": _now().isoformat(timespec="seconds"),
            "restarts": 0,
            "lastError": "",
            "queries": {},
        }

    def status(self) -> dict[str, Any]:
        """The status as of the last report."""
        return self._folder.named(self._status)

    def report(self, phase: str, **fields: Any) -> None:
        """Writes the status file."""
        with self._writing:
            self._status |= {"phase": phase, "updateTime": _now().isoformat(timespec="seconds"), **fields}
            self._folder.write_status(self._status)

    def run(self, spark: SparkSession) -> bool:
        """Runs to the end; whether it went well. The status file says how it ended."""
        listener = ProgressListener(self._on_batch)
        spark.streams.addListener(listener)
        failures = not_begun = 0
        try:
            while True:
                if not self._until_time():
                    self.report("Stopped")
                    return True
                self.report("Running", nextRunTime="")
                begun, self._batches = time.monotonic(), 0
                has_run, failure = self._attempt(spark, listener)
                if self._is_asked_to_end.is_set():
                    self.report("Stopped")
                    return True
                if failure:
                    not_begun = not_begun + 1 if failure == WORKER_NOT_STARTED and not self._batches else 0
                    decided = decide_restart(
                        self._pipeline.restart_policy,
                        self._pipeline.backoff_limit,
                        failures,
                        time.monotonic() - begun,
                        has_run=has_run,
                        not_begun=not_begun,
                    )
                    failures = decided.failures
                    self._say(f"{self._pipeline.name}: {failure}")
                    if decided.wait_s is None:
                        self.report("Failed", lastError=failure, reason=decided.reason, hasBegun=has_run)
                        return False
                    self._say(f"{self._pipeline.name}: {decided.reason}")
                    restarts = self._status["restarts"] + 1
                    self.report("Restarting", lastError=failure, reason=decided.reason, restarts=restarts)
                    self._is_asked_to_end.wait(decided.wait_s)
                elif self._is_once or not self._pipeline.trigger.schedule:
                    self.report("Completed", reason="")
                    return True
                else:
                    failures = not_begun = 0
        finally:
            spark.streams.removeListener(listener)

    def _attempt(self, spark: SparkSession, listener: ProgressListener) -> tuple[bool, str]:
        """Whether the queries have begun, and why they failed."""
        try:
            if (log := self._folder.forgotten_files()) is not None:
                raise RunFolderError(
                    f"spec.sink.parquet.path: {log} knows batches that the checkpoint does not: Spark would leave out "
                    "what it takes for them; choose another path, or `ottla pipeline reset`"
                )
            frames = build_frames(spark, self._pipeline, self._brokers)
            queries = start_queries(spark, self._pipeline, frames, self._brokers, self._folder, is_once=self._is_once)
        except SparkEnded:
            raise  # an attempt needs another process
        except (DatabaseUnreachable, WorkerNotStarted) as error:
            return True, str(error)  # another attempt may find it, or have the CPU to begin
        except PipelineError as error:
            return False, in_words_of_document(str(error), self._pipeline)
        failure = follow(queries, listener, self._is_asked_to_end.is_set)
        return not is_for_good(failure), in_words_of_document(failure, self._pipeline)

    def _until_time(self) -> bool:
        """Waits for the next time of the schedule; False when it is asked to end before."""
        if self._is_asked_to_end.is_set():
            return False
        trigger = self._pipeline.trigger
        if self._is_once or not trigger.schedule or self._status["phase"] == "Restarting":
            return True
        at = next_time(trigger, _now())
        self._say(f"{self._pipeline.name}: next run at {at.isoformat()}")
        self.report("Waiting", nextRunTime=at.isoformat())
        return not self._is_asked_to_end.wait(max(0.0, (at - _now()).total_seconds()))

    def _on_batch(self, query: str, status: dict[str, Any]) -> None:
        self._batches += 1
        before = self._status["queries"].get(query, {})
        status["totalInputRows"] = before.get("totalInputRows", 0) + status["numInputRows"]
        self.report(self._status["phase"], queries=self._status["queries"] | {query: status})
        if status["numInputRows"]:
            self._say(progress_line(query, status))


def next_time(trigger: Trigger, now: datetime) -> datetime:
    """The next time of a schedule after `now`.

    >>> daily = Trigger(schedule="0 6 * * *", time_zone="Europe/Berlin")
    >>> next_time(daily, datetime(2026, 1, 1, tzinfo=UTC)).isoformat()
    '2026-01-01T06:00:00+01:00'
    """
    return next(CronSim(trigger.schedule, now.astimezone(ZoneInfo(trigger.time_zone))))


def _now() -> datetime:
    return datetime.now(UTC)
