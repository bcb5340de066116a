"""A data source that is the product's, and kills something at a named step. Spark's processes import it.

The plan of a run is a file, {"batch", "step", "victim"}; it is carried out once. Steps are those of `sink.commit`, and
"task", in the middle of a task's rows, and "file", in the middle of its file. A broker is killed by the process of the
run, which is asked by a file.
"""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

from pyspark import TaskContext
from pyspark.sql.types import StructType

from ottla_pipeline.sink.plain_batch import PlainBatch
from ottla_pipeline.sink.spool import Spool
from ottla_pipeline.sink.write_options import parse_write_options
from ottla_pipeline.sink.writers import StreamWriter, TaskMessage
from ottla_pipeline.source import OttlaDataSource
from ottla_pipeline.topic_partition import TopicPartition

PLAN, DONE, WANTED, JVM, SPOOL = "plan.json", "done", "wanted", "jvm", "spool"


@dataclass(frozen=True)
class KillAt:
    """Carries the plan of a folder out, in whichever process comes to its step."""

    folder: str
    batch: int | None

    def __call__(self, step: str) -> None:
        folder = Path(self.folder)
        plan = json.loads((folder / PLAN).read_text())
        if step != plan["step"] or self.batch != plan["batch"]:
            return
        try:
            (folder / DONE).touch(exist_ok=False)
        except FileExistsError:
            return
        if plan["victim"] == "jvm":
            os.kill(int((folder / JVM).read_text()), signal.SIGKILL)
            time.sleep(60)  # until this process is ended with it
        elif plan["victim"] == "worker":
            os.kill(os.getpid(), signal.SIGKILL)
        else:
            (folder / WANTED).write_text(plan["victim"])
            while (folder / WANTED).exists():
                time.sleep(0.02)


class KillingWriter(StreamWriter):
    """The product's writer, with its steps watched."""

    def __init__(self, options: Mapping[str, str], folder: str) -> None:
        super().__init__(parse_write_options(options))
        self._folder = folder

    def write(self, iterator: Iterator[Any]) -> TaskMessage:
        context = TaskContext.get()
        assert context is not None
        batch = int(context.getLocalProperty("streaming.sql.batchId") or -1)

        def watched() -> Iterator[Any]:
            for number, rows in enumerate(iterator):
                yield rows
                if number == 1:
                    KillAt(self._folder, batch)("task")

        add = Spool.add

        def watched_add(spool: Spool, partition: TopicPartition, rows: PlainBatch) -> None:
            add(spool, partition, rows)
            if spool.has_file:
                KillAt(self._folder, batch)("file")

        with mock.patch.object(Spool, "add", watched_add):
            return super().write(watched())

    def commit(self, messages: Any, batchId: int) -> None:
        self._after = KillAt(self._folder, batchId)
        super().commit(messages, batchId)


class KillingDataSource(OttlaDataSource):
    """format("killing")."""

    @classmethod
    def name(cls) -> str:
        return "killing"

    def streamWriter(self, schema: StructType, overwrite: bool) -> KillingWriter:
        options = {name: value for name, value in self.options.items() if name != "folder"}
        return KillingWriter(options, self.options["folder"])
