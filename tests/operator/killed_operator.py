"""An operator that is killed after its n-th write, and the one that goes on from there."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Protocol, TypeVar

import pytest

from tests.operator.kubernetes import InMemoryKubernetes, Killed

every_third_or_every_write = pytest.mark.parametrize("every", [3, pytest.param(1, marks=pytest.mark.long)])
"""After which writes a slow test kills its operator."""


class Operated(Protocol):
    """A `Fleet`, or the `Topics` of one."""

    kubernetes: InMemoryKubernetes

    def restart_operator(self) -> None:
        """A new process: it knows only what the API server has."""


_Operated = TypeVar("_Operated", bound=Operated)


async def _converge(fleet: Any) -> None:
    await fleet.converge()


async def is_killed_after(
    writes: int, fleet: _Operated, act: Callable[[_Operated], Awaitable[object]] = _converge
) -> bool:
    """Acts; an operator that makes more than so many writes dies then, and another one acts again.

    Args:
        act: what the operator does until it rests.

    Returns:
        Whether it was killed.
    """
    fleet.kubernetes.kill_after = writes
    try:
        await act(fleet)
        return False
    except Killed:
        fleet.kubernetes.kill_after = None
        fleet.restart_operator()
        fleet.kubernetes.settle()
        await act(fleet)
        return True
    finally:
        fleet.kubernetes.kill_after = None


async def killed_after_every_write(
    prepare: Callable[[], Awaitable[_Operated]],
    act: Callable[[_Operated], Awaitable[object]] = _converge,
    *,
    at_least: int,
    every: int = 1,
) -> AsyncIterator[tuple[int, _Operated]]:
    """Fleets whose operator was killed after 0, `every`, twice `every` and so on writes, each once the next one has
    acted too.

    The last one is that of the first operator that makes no more writes than that and so survives.

    Args:
        prepare: makes a fleet with something to do.
        at_least: so many writes there are to be killed after.
    """
    writes, was_killed, made = 0, True, 0
    while was_killed:
        fleet = await prepare()
        before = len(fleet.kubernetes.writes)
        was_killed = await is_killed_after(writes, fleet, act)
        made = len(fleet.kubernetes.writes) - before  # those of the operator that survives, at last
        yield writes, fleet
        writes += every
    assert made >= at_least, f"the operator made {made} writes, not {at_least}"
