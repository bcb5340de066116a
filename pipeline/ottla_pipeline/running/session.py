"""The Spark session of a pipeline. Imports pyspark."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from pyspark.sql import SparkSession

import pyspark_ottla  # noqa: F401  Spark's Python processes get this interpreter, and find the source "ottla"
from ottla_pipeline.errors import PipelineError
from ottla_pipeline.running.executor import in_brackets
from ottla_pipeline.running.query_options import DELTA_EXTENSION, is_local
from ottla_pipeline.running.standalone_cluster import await_master


def open_session(settings: Mapping[str, str], modules: Sequence[Path]) -> SparkSession:
    """Starts Spark.

    Args:
        settings: of `query_options.session_settings`.
        modules: folders in which the modules of Python steps are looked for, here and in Spark's Python processes.

    Raises:
        PipelineError: no master of a standalone cluster answers; the sink needs Delta Lake, which is not there.
    """
    await_master(settings["spark.master"])
    if is_local(settings["spark.master"]):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    folders = list(dict.fromkeys(str(folder.absolute()) for folder in modules))
    sys.path[:0] = [folder for folder in folders if folder not in sys.path]
    known = os.environ.get("PYTHONPATH", "")
    os.environ["PYTHONPATH"] = os.pathsep.join([*folders, *filter(None, [known])])
    builder = SparkSession.builder
    for name, value in settings.items():
        builder = builder.config(name, in_brackets(value) if name == "spark.driver.host" else value)
    spark = builder.getOrCreate()
    # Spark logs a warning for an extension that it does not find, and goes on.
    if settings.get("spark.sql.extensions") == DELTA_EXTENSION and not _is_loadable(spark, DELTA_EXTENSION):
        spark.stop()
        raise PipelineError(
            "spec.sink.delta: Delta Lake is not on Spark's class path: name its jars with --conf "
            "spark.jars=FILE,FILE, or --conf spark.jars.packages=io.delta:delta-spark_2.13:4.3.0, which Spark fetches "
            "from Maven Central"
        )
    return spark


def _is_loadable(spark: SparkSession, name: str) -> bool:
    return bool(spark._jvm.org.apache.spark.util.Utils.classIsLoadable(name))
