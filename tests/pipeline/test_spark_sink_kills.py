"""A kill of Spark's Python processes below the sink.

In a JVM of its own: Spark keeps sockets and pipes of the processes that are gone, and a later write of the same JVM may
meet one (`java.io.IOException: Broken pipe`).
"""

from __future__ import annotations

import os
import signal
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ottla.testing import cluster
from tests.pipeline.sink.test_delivery import read_all, topic
from tests.pipeline.spark_jvm import local_session, own_jvm
from tests.pipeline.test_spark_sink import write

pytestmark = [pytest.mark.spark, pytest.mark.java]


def test_a_write_goes_on_when_the_daemon_of_the_python_processes_is_killed(
    tmp_path: Path,
) -> None:
    """As by the kernel's OOM killer, which takes all of them, when all tasks but one have ended. Spark runs the last
    one again, with a new daemon."""
    seen = str(tmp_path / "seen")

    def killing(batches: Iterator[Any]) -> Iterator[Any]:
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        yield from batches
        if context.partitionId() == 3 and not os.path.exists(seen):
            folder = Path(os.environ["SPARK_LOCAL_DIRS"])
            while sum(file.stat().st_size > 600_000 for file in folder.glob("ottla-sink-*")) < 3:
                time.sleep(0.05)
            Path(seen).touch()
            daemons = [
                found for found in Path("/proc").glob("[0-9]*/cmdline") if b"pyspark.daemon" in found.read_bytes()
            ]
            jvm = parent(os.getppid())
            for daemon in (int(found.parent.name) for found in daemons):
                if daemon != os.getppid() and parent(daemon) == jvm:
                    os.kill(daemon, signal.SIGKILL)
            os.kill(os.getppid(), signal.SIGKILL)
            os.kill(os.getpid(), signal.SIGKILL)

    def parent(process: int) -> int:
        return int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])

    with cluster(brokers=1, racks=1) as fleet, own_jvm(lambda: local_session(tmp_path, "local[2,3]")) as spark:
        name = topic(fleet, "daemon", replicas=1)
        rows = spark.range(0, 2800, 1, 4).selectExpr("lpad(cast(id as string), 1000, '0') value")
        write(rows.mapInArrow(killing, rows.schema), fleet, topic=name)
        assert os.path.exists(seen)
        assert Counter(int(value) for _, _, value in read_all(fleet, name)) == Counter(range(2800))
        left = spark.sparkContext._jvm.org.apache.spark.SparkEnv.get().blockManager().diskBlockManager().localDirs()
        assert [file for folder in left for file in Path(folder.getPath()).glob("ottla-sink-*")] == []
