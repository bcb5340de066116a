"""Errors of Spark as errors of a pipeline: what Spark refuses, and the end of Spark itself. Imports pyspark."""

from __future__ import annotations

from collections.abc import Callable

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import PySparkException

from ottla_pipeline.errors import PipelineError, SparkEnded, WorkerNotStarted
from ottla_pipeline.running.failure_reasons import WORKER_NOT_STARTED, failure_reason

SPARK_ERRORS = (PySparkException, Py4JError)
"""What a call of Spark raises. Of the second kind is what Spark has not foreseen, and a JVM that does not answer."""
_NOT_STARTED = "JAVA_GATEWAY_EXITED"


def has_ended(error: Exception) -> bool:
    """Whether Spark's JVM is gone. One that has answered is not: Py4JJavaError has its exception, others its trace.

    >>> has_ended(Py4JError("An error occurred while calling o1.f. Trace:\\npy4j.Py4JException: Method f([]) ..."))
    False
    >>> has_ended(Py4JError("An error occurred while calling o1.f")), has_ended(ConnectionRefusedError())
    (True, True)
    """
    if isinstance(error, PySparkException):
        return bool(error.getCondition() == _NOT_STARTED)
    has_answered = isinstance(error, Py4JJavaError) or "Trace:" in str(error)
    return isinstance(error, ConnectionError) or (isinstance(error, Py4JError) and not has_answered)


def pipeline_error(error: Exception, refused: Callable[[str], PipelineError] = PipelineError) -> PipelineError:
    """SparkEnded, WorkerNotStarted, or what `refused` makes of the reason in one line."""
    reason = failure_reason(str(error))
    if has_ended(error):
        return SparkEnded(f"Spark's JVM has ended ({type(error).__name__}: {reason}), often for want of memory")
    if reason == WORKER_NOT_STARTED:
        return WorkerNotStarted(reason)
    return refused(reason)
