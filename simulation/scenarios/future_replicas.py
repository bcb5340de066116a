"""The `log` scenario with two or three log directories and logs that move between them all the time (KIP-113).

The guarantees are the same, at whatever file call of a move the process or the power ends. A move is started, replaced,
throttled or cancelled; the future log replaces the current one during appends, truncations, deletions of records and
of topics.
"""

from __future__ import annotations

import asyncio

from ottla_broker.storage.log.log import Log
from ottla_broker.storage.log_dirs.future_replicas import FutureReplica
from simulation.checker import Checker
from simulation.scenarios.log import Life, LogModel, LogScenario
from simulation.world import World

_LONGEST_SWAP_S = 0.5


class MovingLife(Life):
    """One process, and somebody who moves its logs. `commands` stands for the lock of the replica manager."""

    async def drive(self, steps: int) -> None:
        self.moves_draw = self.process.world.stream(f"moves/{self.process.life}")
        self.commands = asyncio.Lock()
        self.is_done = False
        mover = self.process.spawn(self._keep_moving(), name="mover")
        await super().drive(steps)
        self.is_done = True
        await mover

    async def _keep_moving(self) -> None:
        draw = self.moves_draw
        while not self.is_done:
            await asyncio.sleep(draw.choice((0.0, 0.002, 0.02, 0.3)) * draw.random())
            mirror = draw.choice(list(self.scenario.mirrors.values()))
            log = self.manager.get(mirror.partition)
            if log is not None:
                await self._guarded(self._move(mirror))

    async def _move(self, mirror: LogModel) -> None:
        draw = self.moves_draw
        moves = self.manager.future_replicas
        moves.copying.max_bytes_per_second = draw.choice((2**63 - 1, 2**63 - 1, 50_000, 2_000))
        async with self.commands:
            log = self.manager.get(mirror.partition)
            if log is None:
                return
            if draw.random() < 0.1:
                await moves.cancel(mirror.partition)
                return
            known = moves.get(mirror.partition)
            path = draw.choice(self.manager.paths)
            if known is not None and draw.random() < 0.7:
                path = known.future.state.disk.path
            move = await moves.create(log, self.manager.disk(path))
            if move is not None:
                moves.run(move, self._finish)

    async def _finish(self, move: FutureReplica) -> bool:
        async with self.commands:
            if move.is_finished:
                return True
            swap = self.process.spawn(
                self.manager.future_replicas.swap(move, lambda log: self._took_over(move, log)), name="swap"
            )
            timer = self.clock.call_later(_LONGEST_SWAP_S, swap.cancel)
            await asyncio.wait([swap])
            timer.cancel()
            return not swap.cancelled() and swap.result()

    def _took_over(self, move: FutureReplica, log: Log) -> None:
        old = move.current
        before = (old.state.assigned_offset, old.state.log_end_offset, old.state.epochs.latest)
        after = (log.state.assigned_offset, log.state.log_end_offset, log.state.epochs.latest)
        if (
            before != after
            or log.state.log_start_offset < old.state.log_start_offset
            or log.state.high_watermark < old.state.high_watermark
        ):
            self.process.world.problem(f"{log.state.topic_partition}: {before} moved and became {after}")
        if log.state.flushed_offset > old.state.flushed_offset:
            self.process.world.problem(f"{log.state.topic_partition}: more is called flushed after a move than before")
        self.scenario.swaps += 1

    async def _delete_topic(self, mirror: LogModel, log: Log) -> None:
        async with self.commands:
            await super()._delete_topic(mirror, log)


class MovesScenario(LogScenario):
    """The logs of one machine with several directories."""

    directories = (2, 3)
    life = MovingLife


async def run(world: World) -> Checker:
    scenario = MovesScenario(world)
    checker = await scenario.run()
    world.note(f"{scenario.swaps} moves")
    return checker
