"""Has the garbage collector destroy admin clients of confluent-kafka in the main thread alone.

Such a client is part of a reference cycle, and the collector runs in whichever thread allocates. One of these is the
client's own, which calls back into Python with results: librdkafka does not let it destroy the client, and aborts the
process. Source: https://github.com/confluentinc/confluent-kafka-python/pull/2131.
"""

from __future__ import annotations

import gc
import sys
import threading
import weakref
from typing import Any

_clients: weakref.WeakSet[Any] = weakref.WeakSet()
_kept: list[Any] = []
"""Clients that the collection which runs now must not find to be garbage."""


def protect() -> None:
    """To be called once the test modules are imported; does nothing where none has an admin client."""
    admin = sys.modules.get("confluent_kafka.admin")
    if admin is None or _keep in gc.callbacks:
        return
    make = admin.AdminClient.__init__

    def make_known(client: Any, *arguments: Any, **options: Any) -> None:
        make(client, *arguments, **options)
        _clients.add(client)

    admin.AdminClient.__init__ = make_known  # type: ignore[attr-defined]
    gc.callbacks.append(_keep)


def _keep(phase: str, info: dict[str, int]) -> None:
    if phase == "start" and threading.get_ident() != threading.main_thread().ident:
        _kept.extend(_clients)
    else:
        _kept.clear()
