"""Retries calls that fail for a shortage of descriptors or memory, where there is no way back."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from ottla_broker.ports.clock import Clock
from ottla_broker.ports.os_errors import is_shortage

_T = TypeVar("_T")

_RETRY_S = 0.2


async def retry_on_shortage(clock: Clock, call: Callable[[], Awaitable[_T]]) -> _T:
    """Makes the call until it does not fail for a shortage (`ports.os_errors`). Raises every other OSError."""
    while True:
        try:
            return await call()
        except OSError as error:
            if not is_shortage(error):
                raise
        await clock.sleep(_RETRY_S)
