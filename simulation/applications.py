"""The applications of a simulated group: each runs one member after the other, as a pod that is restarted does.

A member leaves in good order, dies without a word, or falls silent for longer than its session lasts and goes on as a
member that was fenced. When the run is calm the applications have one member each, which stays.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

from simulation.client import Client
from simulation.group_access import GroupAccess, SimulatedGroup


class RunningMember(Protocol):
    """A member of either protocol."""

    async def run(self) -> None: ...


MakeMember = Callable[[GroupAccess], RunningMember]

MakeClient = Callable[[str], Client]
"""By the name of its member, which has connections of its own: a JoinGroup that waits holds back what follows it."""


class Application:
    """See the module. `make` makes its next member."""

    def __init__(self, group: SimulatedGroup, make_client: MakeClient, name: str, make: MakeMember) -> None:
        self._group = group
        self._make_client = make_client
        self._name = name
        self._make = make
        self._random = group.workload.world.stream(f"application/{name}")
        self._members = 0
        self.is_calm = False

    async def run(self) -> None:
        """Until the workload stops."""
        world, draw = self._group.workload.world, self._random
        running: set[asyncio.Task[None]] = set()
        while not self._group.workload.is_stopping:
            self._members += 1
            name = f"{self._name}.{self._members}"
            client = self._make_client(name)
            access = GroupAccess(self._group, client, name, world.stream(f"member/{name}"))
            task = world.spawn(self._run(access), name=f"member {name}")
            running.add(task)
            await self._until_its_fate(access, task)
            for ended in [one for one in running if one.done()]:
                running.discard(ended)
                ended.result()
            if not self.is_calm:
                await asyncio.sleep(draw.choice((0.0, 0.5, 3.0)) * draw.random())
        for task in running:
            await task

    async def _run(self, access: GroupAccess) -> None:
        try:
            await self._make(access).run()
        finally:
            access.client.close()

    async def _until_its_fate(self, access: GroupAccess, task: asyncio.Task[None]) -> None:
        """Returns when another member is to follow."""
        draw = self._random
        while not task.done():
            await asyncio.wait({task}, timeout=draw.choice((1.0, 4.0, 12.0)) * (0.2 + draw.random()))
            if task.done() or self.is_calm or self._group.workload.is_stopping:
                continue
            fate = draw.random()
            if fate < 0.3:
                seconds = self._group.session_s * draw.choice((0.5, 1.5, 2.5))
                access.paused_until_s = self._group.now_s + seconds
            elif fate < 0.5:
                access.is_dead = True
                self._group.oracle.gone(access.name)
                self._group.live.pop(access.name, None)
                access.client.close()
                return
            elif fate < 0.7:
                access.is_leaving = True
                await asyncio.wait({task}, timeout=5.0)
                return
