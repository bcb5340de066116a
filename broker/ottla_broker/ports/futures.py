"""What is done with the futures that ports return, where nobody awaits them."""

from __future__ import annotations

import asyncio
from typing import Any


def retrieve(future: asyncio.Future[Any]) -> None:
    """For a call whose failure is reported elsewhere: else asyncio logs an exception that was never retrieved."""
    if not future.cancelled():
        future.exception()


def pass_on(source: asyncio.Future[Any], target: asyncio.Future[Any]) -> None:
    """Completes `target` with the outcome of `source`, unless whoever awaited it has cancelled it."""
    if target.done():
        retrieve(source)
    elif source.cancelled():
        target.cancel()
    elif (error := source.exception()) is not None:
        target.set_exception(error)
    else:
        target.set_result(source.result())
