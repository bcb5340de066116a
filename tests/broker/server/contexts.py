"""The context of a request for a handler that a test calls without a connection."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

from ottla_broker.security.principals import ANONYMOUS
from ottla_broker.server.handler_api import RequestContext
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


class _Context(SimpleNamespace):
    """What a test gives, and the rights of a client of a broker without an authorizer."""

    api_name = "Test"
    principal = ANONYMOUS
    may = RequestContext.may
    may_any = RequestContext.may_any
    denied = RequestContext.denied
    denied_of_many = RequestContext.denied_of_many
    authorized_operations = RequestContext.authorized_operations


def handler_context(**fields: Any) -> Any:
    """A context with these attributes, whose long loops take turns."""
    client: Any = SimpleNamespace(is_closed=False)
    work = LongWork(turns_of_loop(), client, is_urgent=False)
    connection = SimpleNamespace(access=None, principal=ANONYMOUS, has_cluster_action=True)
    return _Context(
        **{"connection": connection, **fields}, work=work, each=work.each, distinct=work.distinct, sorted=work.sorted
    )
