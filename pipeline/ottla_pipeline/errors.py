"""The errors of reads and writes, a closed set. Each message names the option, column, topic, record or broker."""

from __future__ import annotations


class PipelineError(Exception):
    """Base of all errors that a pipeline's user is meant to read."""


class OptionError(PipelineError):
    """An option is unknown, missing, contradicts another one, or its value is none that it takes."""

    def __init__(self, option: str, problem: str) -> None:
        super().__init__(f"option {option}: {problem}")
        self.option = option
        self.problem = problem


class SparkEnded(PipelineError):
    """Spark's JVM has ended, or does not start: nothing is wrong with the document for certain, another run may do."""


class WorkerNotStarted(PipelineError):
    """A Python process of Spark did not start in time: nothing is wrong with the document, another attempt may do."""


class UnknownTopic(PipelineError):
    """A topic or partition that was asked for does not exist."""


class ClusterUnreachable(PipelineError):
    """No broker answered, or a partition had no leader, within the time and tries that the options give."""


class DatabaseUnreachable(PipelineError):
    """The database of a sink does not answer, or has no room for a connection."""


class DataLoss(PipelineError):
    """Records that were planned to be read are gone, and failOnDataLoss is true."""


class UnreadableRecords(PipelineError):
    """A broker sent batches that cannot be read."""


class RequestRefused(PipelineError):
    """A broker refused a request for good, or does not serve an API that is needed."""


class LoginRefused(PipelineError):
    """A broker does not have the mechanism of the login, or does not let the user in."""


class ColumnError(PipelineError):
    """A column that is written is missing, has a type that it cannot have, or a value that no record can have."""

    def __init__(self, column: str, problem: str) -> None:
        super().__init__(f"column {column} {problem}")
        self.column = column


class RecordError(PipelineError):
    """A record cannot be written: it is too large, or the broker refuses it."""


class DeliveryFailed(PipelineError):
    """Records were not acknowledged within delivery.timeout.ms."""


class TransactionFailed(PipelineError):
    """A transaction was refused or has ended otherwise; says why, and what then holds."""


class ProducerFenced(TransactionFailed):
    """Another copy of the query has begun to write with the same transactional.id."""


class SpoolError(PipelineError):
    """A task cannot write its rows for the driver, or the driver does not find them as they were written."""


class UnknownReplay(PipelineError):
    """A batch cannot be told from one that was written before."""
