"""The log output of a process that runs brokers: one line per event on standard error, with the broker it is about.

    2026-11-21T20:27:41.866Z INFO [broker 5] ottla: registered at /brokers/ids/5 with broker epoch 21

A line about no broker has [fleet]. Several brokers may share a process, and most modules have one logger. So the broker
comes, in this order, from the record (a LoggerAdapter's `broker`), from the context in which the broker was started
(its tasks, timers and connections inherit it), or from the process, if it runs a single one.

Not here: what is logged, and at which level.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

Subject = Callable[[], int]
"""Returns the broker's id when a line is written: with `broker.id=-1` it is known only once the broker starts."""

ZOOKEEPER = "ottla.zookeeper"
REPEAT_AFTER_S = 10.0
"""kazoo tries an ensemble that is down about once a second; one line in this time is enough."""

_SUBJECT: ContextVar[Subject | None] = ContextVar("ottla broker", default=None)
_FORMAT = "%(asctime)s %(levelname)s [%(subject)s] %(name)s: %(message)s"
_LINE = re.compile(r"\S+ [A-Z]+ \[[^\]]*\] \S+: (.*)")
_CONTROL = {code: f"\\x{code:02x}" for code in (*range(32), 127)} | {9: "\t", 10: "\\n", 13: "\\r"}


@contextmanager
def about(broker: Subject) -> Iterator[None]:
    """Lines of everything that is started inside this block are about `broker`."""
    token = _SUBJECT.set(broker)
    try:
        yield
    finally:
        _SUBJECT.reset(token)


def configure(default: Subject | None = None, level: int = logging.INFO) -> LastLines:
    """Writes the records of this process to standard error. Returns what keeps the last lines.

    Args:
        default: the only broker of the process.
        level: the level of the root logger; records below it are not written.
    """
    handler = logging.StreamHandler()
    handler.setFormatter(LineFormatter())
    handler.addFilter(SubjectFilter(default))
    handler.addFilter(RepeatFilter(ZOOKEEPER))
    last = LastLines()
    last.setFormatter(LineFormatter())
    last.addFilter(SubjectFilter(default))
    # Whoever has read a line on standard error finds it as the last one.
    logging.basicConfig(level=level, handlers=[last, handler])
    logging.getLogger(ZOOKEEPER).setLevel(max(level, logging.WARNING))  # the broker logs the state of its session
    return last


def zookeeper_logger(broker_id: int) -> logging.Logger:
    """The logger of a broker's ZooKeeper client, whose thread has no context: the name of the logger has the id."""
    return logging.getLogger(f"{ZOOKEEPER}.{broker_id}")


def message_of(line: str) -> str:
    """The message of a line, without time, level, broker and logger; other text unchanged.

    >>> message_of("2026-11-21T20:27:41.866Z INFO [broker 5] ottla: ready")
    'ready'
    """
    match = _LINE.fullmatch(line)
    return match[1] if match else line


class LastLines(logging.Handler):
    """Keeps the last line of the process, and the last of level WARNING or above: what a broker waits for."""

    def __init__(self) -> None:
        super().__init__()
        self._line = self._problem = ""

    def emit(self, record: logging.LogRecord) -> None:
        self._line = self.format(record)
        if record.levelno >= logging.WARNING:
            self._problem = self._line

    def __str__(self) -> str:
        """The last problem, else the last line; "" before the first."""
        return self._problem or self._line


class SubjectFilter(logging.Filter):
    """Passes every record and sets its `subject`, the broker that it is about."""

    def __init__(self, default: Subject | None = None) -> None:
        super().__init__()
        self._default = default

    def filter(self, record: logging.LogRecord) -> bool:
        record.subject = self._subject(record)
        return True

    def _subject(self, record: logging.LogRecord) -> str:
        named = getattr(record, "broker", -1)
        if isinstance(named, int) and named >= 0:
            return f"broker {named}"
        subject = _SUBJECT.get() or self._default
        if subject is not None:
            return f"broker {subject()}"
        if record.name.startswith(ZOOKEEPER + "."):
            return f"broker {record.name[len(ZOOKEEPER) + 1 :].partition('.')[0]}"
        return "fleet"


class RepeatFilter(logging.Filter):
    """Passes the same text of one logger and its children once in REPEAT_AFTER_S."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self._passed: dict[tuple[str, str], float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        if not super().filter(record):
            return True
        key = (record.name, record.getMessage())
        if record.created - self._passed.get(key, -REPEAT_AFTER_S) < REPEAT_AFTER_S:
            return False
        self._passed[key] = record.created
        return True


class LineFormatter(logging.Formatter):
    """One line per record, in UTC: control characters are escaped, the lines of a traceback joined with ` | `."""

    def __init__(self) -> None:
        super().__init__(_FORMAT)

    def formatTime(self, record: logging.LogRecord, datefmt: str | None = None) -> str:
        seconds = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        return f"{seconds}.{int(record.msecs):03d}Z"

    def formatMessage(self, record: logging.LogRecord) -> str:
        return super().formatMessage(record).translate(_CONTROL)

    def formatException(self, ei: object) -> str:
        return _folded(super().formatException(ei))  # type: ignore[arg-type]

    def formatStack(self, stack_info: str) -> str:
        return _folded(stack_info)

    def format(self, record: logging.LogRecord) -> str:
        # The base class puts the message, the traceback and the stack on lines of their own.
        return " | ".join(super().format(record).split("\n"))


def _folded(text: str) -> str:
    return " | ".join(line.strip() for line in text.splitlines()).translate(_CONTROL)
