"""Registers the format "ottla": Spark imports top-level modules named `pyspark_*` and uses their `DefaultSource`.

A program imports this module before it makes its session: Spark then starts its Python processes with the program's own
interpreter, which has this package. Without that, and without PYSPARK_PYTHON, Spark takes the `python3` of the PATH.
"""

import os
import sys
import warnings

from pyspark import SparkContext

from ottla_pipeline.source import OttlaDataSource as DefaultSource

__all__ = ["DefaultSource"]

if "PYSPARK_PYTHON" not in os.environ:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    if SparkContext._active_spark_context is not None:
        warnings.warn(
            'the SparkSession was made before "import pyspark_ottla": where format("ottla") is not found, import it'
            " first, or set PYSPARK_PYTHON to the Python that has it",
            stacklevel=2,
        )
