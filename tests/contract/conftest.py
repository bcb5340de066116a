"""The event loop of a contract suite: virtual time for the simulator's adapters, asyncio's for the others."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from simulation.loop import VirtualTimeLoop


def pytest_asyncio_loop_factories(item: pytest.Item) -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    """The modules `test_*_simulated.py` run in the simulator."""
    if item.path.stem.endswith("_simulated"):
        return {"virtual": VirtualTimeLoop}
    return {"asyncio": asyncio.new_event_loop}
