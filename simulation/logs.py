"""The logs of the brokers in a run: not printed, but a traceback is a bug, even if the broker survives it."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator

from ottla_broker.ports.coordination import ConnectionLoss, SessionExpired
from ottla_broker.protocol.errors import KafkaError

_EXPECTED = (KafkaError, ConnectionLoss, SessionExpired)
"""An answer on its way to somebody, or a session that broke: if nobody takes it up, the run does not settle."""


def quiet() -> None:
    """Brokers log a lot under faults; only a run asked for with --verbose shows it."""
    logging.getLogger().addHandler(logging.NullHandler())
    logging.disable(logging.WARNING)


@contextlib.contextmanager
def watched(tell: Callable[[str], None]) -> Iterator[None]:
    """In the block every exception that somebody logs is told, but for those that a fault explains."""
    handler = _Exceptions(tell)
    root = logging.getLogger()
    root.addHandler(handler)
    try:
        yield
    finally:
        root.removeHandler(handler)


class _Exceptions(logging.Handler):
    def __init__(self, tell: Callable[[str], None]) -> None:
        super().__init__(logging.ERROR)
        self._tell = tell

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        if error is not None and not isinstance(error, _EXPECTED):
            self._tell(f"{record.name}: {record.getMessage()}: {error!r}")
