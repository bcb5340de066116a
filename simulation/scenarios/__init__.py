"""The scenarios: each is one `async def run(world) -> Checker` in its own module, imported on first use."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from importlib import import_module

from simulation.checker import Checker
from simulation.world import World

Scenario = Callable[[World], Awaitable[Checker]]

NAMES = (
    "log",
    "acls",
    "compaction",
    "single",
    "replicated",
    "transactions",
    "future_replicas",
    "fleet_with_future_replicas",
    "disks",
    "reassignment",
    "recreation",
    "delayed_requests",
    "refused_batches",
    "transactional_fleet",
    "consumer_groups_fleet",
    "fleet",
)
"""In the order in which `run` takes turns."""


TURNS = {"fleet": 4}
"""How often a scenario has its turn in each round; once, where it is not named."""


def in_turn(names: Sequence[str]) -> list[str]:
    """One round of these scenarios, the frequent ones spread over it.

    >>> in_turn(("log", "single", "fleet"))
    ['log', 'fleet', 'single', 'fleet', 'fleet', 'fleet']
    """
    rounds = [[name for name in names if TURNS.get(name, 1) > number] for number in range(max(TURNS.values()))]
    often = [name for later in rounds[1:] for name in later]
    turns: list[str] = []
    for name in rounds[0]:
        if name not in often:
            turns.append(name)
            turns += often[:1]
            often = often[1:]
    return turns + often + [name for name in rounds[0] if name not in turns]


def scenario(name: str) -> Scenario:
    """KeyError for an unknown name."""
    if name not in NAMES:
        raise KeyError(f"no scenario {name!r}; there are {', '.join(NAMES)}")
    found: Scenario = import_module(f"simulation.scenarios.{name}").run
    return found
