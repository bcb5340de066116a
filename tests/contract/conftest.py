"""The event loop of a contract suite: the simulator's, the broker's own for TLS, else asyncio's."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from ottla_broker.adapters.event_loop import TakeoverLoop
from simulation.loop import VirtualTimeLoop


def pytest_asyncio_loop_factories(item: pytest.Item) -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    """The modules `test_*_simulated.py` run in the simulator."""
    if item.path.stem.endswith("_simulated"):
        return {"virtual": VirtualTimeLoop}
    if item.path.stem == "test_tls_network":  # on which OpenSSL may be left alone
        return {"takeover": TakeoverLoop}
    return {"asyncio": asyncio.new_event_loop}
