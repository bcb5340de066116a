"""The one line that says why a query failed, out of what Spark and Python print. Pure."""

from __future__ import annotations

import re

_OWN = re.compile(r"^(?:pyspark\.\S+: )?ottla_pipeline\.errors\.\w+: (.*)$", re.MULTILINE)
_OF_PYTHON = re.compile(r"^(\w+(?:\.\w+)*(?:Error|Exception|Interrupt|Exit)\b: .+)$", re.MULTILINE)
_NOISE = re.compile(r"^(\[STREAM_FAILED\].*?terminated with exception: )+")


def failure_reason(text: str) -> str:
    """The cause in one line.

    Args:
        text: of an exception of Spark's, with the traceback of a Python worker or without.

    >>> failure_reason("[STREAM_FAILED] Query [id = 1] terminated with exception: [X] Bad cast.\\n== SQL ==")
    '[X] Bad cast.'
    >>> failure_reason("Job aborted\\nTraceback ...\\nottla_pipeline.errors.UnknownTopic: topic 'a' is gone\\n at x")
    "topic 'a' is gone"
    >>> failure_reason("[PYTHON_ERROR] Job aborted\\nTraceback ...\\nZeroDivisionError: division by zero\\n\\n at x")
    'ZeroDivisionError: division by zero'
    """
    if own := _OWN.findall(text):
        return str(own[-1])
    first = _NOISE.sub("", text.strip().splitlines()[0] if text.strip() else "no reason is given")
    if "Traceback" in text and (raised := _OF_PYTHON.findall(text[text.index("Traceback") :])):
        return str(raised[-1])
    return first
