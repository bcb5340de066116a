"""The Spark session of a pipeline. Imports pyspark."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

from pyspark import SparkConf, SparkContext
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

import pyspark_ottla  # noqa: F401  Spark's Python processes get this interpreter, and find the source "ottla"
from ottla_pipeline.errors import PipelineError
from ottla_pipeline.running.executor import in_brackets
from ottla_pipeline.running.query_options import DELTA_EXTENSION, is_local
from ottla_pipeline.running.standalone_cluster import await_master
from ottla_pipeline.running.worker_python import VARIABLE, worker_python


def open_session(
    settings: Mapping[str, str], modules: Sequence[Path], java_output: IO[bytes] | None = None
) -> SparkSession:
    """Starts Spark.

    Args:
        settings: of `query_options.session_settings`.
        modules: folders in which the modules of Python steps are looked for, here and in Spark's Python processes.
        java_output: gets what Spark's JVM and its Python processes print; None for where this process prints.

    Raises:
        PipelineError: no master of a standalone cluster answers; the sink needs Delta Lake, which is not there.
    """
    await_master(settings["spark.master"])
    if is_local(settings["spark.master"]):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    chosen = worker_python(os.environ)
    os.environ.update(chosen)
    folders = list(dict.fromkeys(str(folder.absolute()) for folder in modules))
    sys.path[:0] = [folder for folder in folders if folder not in sys.path]
    inherited = os.environ.get("PYTHONPATH", "")
    os.environ["PYTHONPATH"] = os.pathsep.join([*folders, *filter(None, [inherited])])
    conf = SparkConf(loadDefaults=False)
    for name, value in settings.items():
        conf.set(name, in_brackets(value) if name == "spark.driver.host" else value)
    if VARIABLE in chosen:
        conf.set(f"spark.executorEnv.{VARIABLE}", chosen[VARIABLE])
    _start_jvm(conf, java_output)
    spark = SparkSession.builder.config(conf=conf).getOrCreate()
    # Spark logs a warning for an extension that it does not find, and goes on.
    if settings.get("spark.sql.extensions") == DELTA_EXTENSION and not _is_loadable(spark, DELTA_EXTENSION):
        spark.stop()
        raise PipelineError(
            "spec.sink.delta: Delta Lake is not on Spark's class path: name its jars with --conf "
            "spark.jars=FILE,FILE, or --conf spark.jars.packages=io.delta:delta-spark_2.13:4.3.0, which Spark fetches "
            "from Maven Central"
        )
    return spark


def _start_jvm(conf: SparkConf, output: IO[bytes] | None) -> None:
    """Starts the JVM that SparkSession will use, where there is none yet, so that a signal to end is for this process.

    Whoever ends a service or a terminal signals all its processes at once. The JVM would end in the middle of a batch,
    and take the way out that this process has: it stops the query after the batch, and with it the JVM, which also ends
    when this process does. So the JVM gets a process group of its own, with the Python processes that it starts, and
    ignores SIGTERM.
    """
    if SparkContext._gateway is not None or "PYSPARK_GATEWAY_PORT" in os.environ:
        return
    gateway = launch_gateway(conf, {"process_group": 0, "stdout": output, "stderr": output})
    SparkContext._ensure_initialized(gateway=gateway)
    with contextlib.suppress(Exception):  # a JVM without the module jdk.unsupported ends by SIGTERM, as before
        signals = gateway.jvm.sun.misc
        signals.Signal.handle(signals.Signal("TERM"), signals.SignalHandler.SIG_IGN)


def _is_loadable(spark: SparkSession, name: str) -> bool:
    return bool(spark._jvm.org.apache.spark.util.Utils.classIsLoadable(name))
