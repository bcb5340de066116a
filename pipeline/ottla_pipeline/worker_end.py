"""How a Python process of Spark ends that Spark does not want any more: without a traceback.

`show(5)` and every other LIMIT stop reading a task in the middle, and a process that has planned something is not kept
for more than a minute: Spark closes its end of the socket, and then ends the process. The process may find that first,
when it writes, and its main program (`manager` of pyspark.daemon) prints a traceback, over the table that the user has
asked for.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any


def end_quietly_in_daemon() -> None:
    """Has this process, if it is one of the daemon, end without a word when Spark has closed its end of the socket."""
    main = sys.modules.get("__main__")
    specification = getattr(main, "__spec__", None)
    if main is None or specification is None or specification.name != "pyspark.daemon":
        return
    traceback = getattr(main, "traceback", None)
    if isinstance(traceback, ModuleType):
        main.traceback = _TracebackOfOthers(traceback)  # type: ignore[attr-defined]


class _TracebackOfOthers:
    """The module `traceback`, which prints nothing for a socket that the other side has closed."""

    def __init__(self, traceback: ModuleType) -> None:
        self._traceback = traceback

    def __getattr__(self, name: str) -> Any:
        return getattr(self._traceback, name)

    def print_exc(self, *arguments: Any, **named: Any) -> None:
        if not isinstance(sys.exc_info()[1], BrokenPipeError | ConnectionResetError):
            self._traceback.print_exc(*arguments, **named)
