"""Errors logged by brokers in this process: they fail the test, whatever the client saw."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

BROKER_THREAD = "ottla test cluster"
EXPECTED = ("halting: killed by",)
"""What a broker says that a test kills."""


class BrokerErrors(logging.Handler):
    """Collects records of level ERROR and every traceback of the brokers' loggers, and of anything on their thread."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.found: list[str] = []
        self.setFormatter(logging.Formatter("%(levelname)s %(name)s: %(message)s"))

    def emit(self, record: logging.LogRecord) -> None:
        is_ours = record.name.split(".")[0] == "ottla" or record.threadName == BROKER_THREAD
        is_bad = record.levelno >= logging.ERROR or bool(record.exc_info)
        if is_ours and is_bad and not record.getMessage().startswith(EXPECTED):
            self.found.append(self.format(record))

    def check(self) -> None:
        """Fails when there was something; what it has told is told once."""
        found, self.found = self.found, []
        assert not found, "the brokers logged:\n" + "\n".join(found)


@contextmanager
def broker_errors() -> Iterator[BrokerErrors]:
    """Listens for the length of a `with` block, and checks at its end."""
    handler = BrokerErrors()
    root = logging.getLogger()
    root.addHandler(handler)
    try:
        yield handler
        handler.check()
    finally:
        root.removeHandler(handler)
