"""The one line that says why a query failed, out of what Spark and Python print. Pure."""

from __future__ import annotations

import re

WORKER_NOT_STARTED = (
    "a Python process of Spark has not started within ten seconds: there is too little CPU here, or PYSPARK_PYTHON"
    " names no Python"
)
_NOT_INSTALLED = re.compile(r"ModuleNotFoundError: No module named '((?:ottla|pyspark_ottla)\w*)")
_NOT_CONNECTED = "Python worker failed to connect back"
"""Source: PythonWorkerFactory.createSimpleWorker, which waits for ten seconds."""
_OWN = re.compile(r"^(?:pyspark\.\S+: )?ottla_pipeline\.errors\.\w+: (.*)$", re.MULTILINE)
_OF_PYTHON = re.compile(r"^(\w+(?:\.\w+)*(?:Error|Exception|Interrupt|Exit)\b: .+)$", re.MULTILINE)
_FRAME = re.compile(r'^ *File "([^"]+)", line (\d+), in (.+)$', re.MULTILINE)
_OF_SPARK = re.compile(r"/(pyspark|ottla_pipeline|site-packages|dist-packages|lib/python[\d.]+)/")
_OF_JAVA = re.compile(r"^(?:: |Caused by: )[\w.$]+: (.+)$", re.MULTILINE)
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
    >>> failure_reason('Traceback ...\\n  File "/w/steps.py", line 3, in late\\n    1 / 0\\nZeroDivisionError: by zero')
    'ZeroDivisionError: by zero (steps.py, line 3, in late)'
    >>> failure_reason("An error occurred while calling None.X.\\n: a.SparkException: Cannot parse master\\n at x")
    'Cannot parse master'
    >>> failure_reason("Traceback ...\\nModuleNotFoundError: No module named 'ottla_pipeline'\\n at x")[:65]
    "the Python of Spark's executors has no module ottla_pipeline: the"
    >>> failure_reason("[STREAM_FAILED] ... Python worker failed to connect back. SQLSTATE") == WORKER_NOT_STARTED
    True
    """
    if _NOT_CONNECTED in text:
        return WORKER_NOT_STARTED
    if absent := _NOT_INSTALLED.search(text):
        return (
            f"the Python of Spark's executors has no module {absent[1]}: they need this package, for example in an"
            " archive (docs/operating/pipelines.md, On a cluster)"
        )
    if own := _OWN.findall(text):
        return str(own[-1])
    if text.startswith("An error occurred while calling") and (causes := _OF_JAVA.findall(text)):
        return str(causes[-1])
    first = _NOISE.sub("", text.strip().splitlines()[0] if text.strip() else "no reason is given")
    if "Traceback" in text and (raised := _OF_PYTHON.findall(text[text.index("Traceback") :])):
        return str(raised[-1]) + _place(text[: text.rindex(raised[-1])])
    return first


def _place(traceback: str) -> str:
    """Where the user's code raised it: in which of several steps, the error alone does not say."""
    frames = [frame for frame in _FRAME.findall(traceback) if not _OF_SPARK.search(frame[0])]
    if not frames:
        return ""
    file, line, name = frames[-1]
    return f" ({file.rpartition('/')[2]}, line {line}, in {name})"
