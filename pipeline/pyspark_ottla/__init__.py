"""Registers the format "ottla": Spark imports top-level modules named `pyspark_*` and uses their `DefaultSource`.

A program imports this module before it makes its session: Spark then starts its Python processes with the program's own
interpreter, which has this package. Without that, and without PYSPARK_PYTHON, Spark takes the `python3` of the PATH.

Spark then also speaks to these processes over Unix domain sockets (`spark.python.unix.domain.socket.enabled`), unless
PYSPARK_UDS_MODE says otherwise. Over TCP each task waits 40 ms: Spark sends it what to run and what to run it on in two
writes, and the second one stays with Nagle's algorithm until the kernel of the receiver acknowledges the first.
"""

import os
import socket
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

_has_java = SparkContext._gateway is not None or "PYSPARK_GATEWAY_PORT" in os.environ  # the latter by spark-submit
if not _has_java and hasattr(socket, "AF_UNIX"):
    os.environ.setdefault("PYSPARK_UDS_MODE", "true")  # the Java process takes it over; both sides have to agree
