"""The Spark session of one test module, in a JVM of its own.

Spark gives the class path of the first session of a process to the JVM that it starts then, and keeps that JVM for all
later sessions: the `spark.jars` of the next module would not be found. Which modules share a process is up to
pytest-xdist.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

LIMIT_S = 60


@contextmanager
def own_jvm(open_session: Callable[[], Any]) -> Iterator[Any]:
    """The session that `open_session` opens; afterwards its JVM has ended and the environment is as before."""
    from pyspark import SparkContext

    import pyspark_ottla  # noqa: F401  as every program does; what it sets in the environment stays

    assert SparkContext._gateway is None, "the JVM of other tests is still there: open their session with own_jvm"
    environment, path = dict(os.environ), list(sys.path)
    try:
        session = open_session()
        try:
            yield session
        finally:
            session.stop()
    finally:
        _end_jvm()
        os.environ.clear()
        os.environ.update(environment)
        sys.path[:] = path


def local_session(work: Path, master: str = "local[2]", jars: Sequence[Path] = ()) -> Any:
    """Opens a session that keeps its tables in `work`, with `jars` on its class path."""
    from pyspark.sql import SparkSession

    os.environ.update(SPARK_LOCAL_IP="127.0.0.1", PYSPARK_PYTHON=sys.executable)
    return (
        SparkSession.builder.master(master)
        .config("spark.jars", ",".join(map(str, jars)))
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.ui.enabled", "false")
        .config("spark.log.level", "OFF")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.warehouse.dir", str(work / "warehouse"))
        .getOrCreate()
    )


def _end_jvm() -> None:
    """Ends the JVM as the end of this process would; the next session starts another one."""
    from pyspark import SparkContext

    gateway = SparkContext._gateway
    if gateway is None:
        return
    SparkContext._gateway = SparkContext._jvm = None
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait(LIMIT_S)
