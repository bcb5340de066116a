"""The errors of a read, a closed set. Each message names the option, topic or broker."""

from __future__ import annotations


class PipelineError(Exception):
    """Base of all errors that a pipeline's user is meant to read."""


class OptionError(PipelineError):
    """An option is unknown, missing, contradicts another one, or its value is none that it takes."""

    def __init__(self, option: str, problem: str) -> None:
        super().__init__(f"option {option}: {problem}")
        self.option = option


class UnknownTopic(PipelineError):
    """A topic or partition that was asked for does not exist."""


class ClusterUnreachable(PipelineError):
    """No broker answered, or a partition had no leader, within the time and tries that the options give."""


class DataLoss(PipelineError):
    """Records that were planned to be read are gone, and failOnDataLoss is true."""


class UnreadableRecords(PipelineError):
    """A broker sent batches that cannot be read: corrupt, or of message format 0 or 1."""


class RequestRefused(PipelineError):
    """A broker refused a request for good, or does not serve an API that is needed."""
