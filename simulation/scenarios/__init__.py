"""What is run: each scenario is one `async def run(world) -> Checker` in a module of its own, imported on first use."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from importlib import import_module

from simulation.checker import Checker
from simulation.world import World

Scenario = Callable[[World], Awaitable[Checker]]

NAMES = ("log", "compaction", "single", "replicated", "transactions", "moves", "moving_fleet", "disks", "reassigning")
"""In the order in which `run` takes turns."""


def scenario(name: str) -> Scenario:
    """KeyError for an unknown name."""
    if name not in NAMES:
        raise KeyError(f"no scenario {name!r}; there are {', '.join(NAMES)}")
    found: Scenario = import_module(f"simulation.scenarios.{name}").run
    return found
