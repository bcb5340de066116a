"""The context of a request for a handler that a test calls without a connection."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

from ottla_broker.server.turns import LongWork, Turns


class _Clock:
    """Of the loop that runs the test, whichever that is."""

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.get_running_loop().create_future()

    def call_soon(self, callback: Any, *args: Any) -> None:
        asyncio.get_running_loop().call_soon(callback, *args)


def clock_of_loop() -> Any:
    """What waits for a turn needs of a clock."""
    return _Clock()


def turns_of_loop() -> Turns:
    """Turns of the loop that runs the test."""
    return Turns(clock_of_loop())


def handler_context(**fields: Any) -> Any:
    """A context with these attributes, whose long loops take turns."""
    client: Any = SimpleNamespace(is_closed=False)
    work = LongWork(turns_of_loop(), client, is_urgent=False)
    return SimpleNamespace(**fields, work=work, each=work.each, distinct=work.distinct, sorted=work.sorted)
