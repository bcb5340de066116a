"""One group on its coordinator: carries out what the machine decides.

Holds the group's timers (Clock port), the futures of the requests that wait, and its offsets. Which groups there are
and where records go is the coordinator's (`coordinator.py`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence

from ottla_broker.groups.decisions import (
    AnswerJoin,
    AnswerSync,
    ArmTimer,
    CancelAllTimers,
    CancelTimer,
    Effect,
    Explain,
    GroupWrite,
    JoinAnswer,
    JoinRequest,
    LeavingMember,
    Store,
    SyncAnswer,
    SyncRequest,
    TimerKey,
)
from ottla_broker.groups.machine import Group
from ottla_broker.groups.offsets import GroupOffsets
from ottla_broker.ports.clock import Clock, Timer
from ottla_broker.protocol.errors import ErrorCode

logger = logging.getLogger("ottla.groups")

_TIMER_SLACK_S = 0.0005
"""A timer that fires this much early is not armed again."""


class _ArmedTimer:
    """A deadline and the clock's timer towards it, which may be an earlier one.

    Every heartbeat moves a deadline. The clock's timer stays where it is and, when it fires, is armed again for the
    rest: one timer per session timeout instead of one per heartbeat.
    """

    __slots__ = ("deadline", "fires_at", "timer")

    def __init__(self, timer: Timer, deadline: float) -> None:
        self.timer = timer
        self.fires_at = deadline
        self.deadline = deadline


class LiveGroup:
    """`store` appends a group record and reports to `stored` later, never during the call."""

    def __init__(
        self,
        group: Group,
        offsets: GroupOffsets,
        clock: Clock,
        store: Callable[[LiveGroup, GroupWrite], None],
    ) -> None:
        self.group = group
        self.offsets = offsets
        self._clock = clock
        self._store = store
        self._timers: dict[TimerKey, _ArmedTimer] = {}
        self._joins: dict[int, asyncio.Future[JoinAnswer]] = {}
        self._syncs: dict[int, asyncio.Future[SyncAnswer]] = {}
        self._last_ticket = 0

    def join(self, request: JoinRequest) -> asyncio.Future[JoinAnswer]:
        """Completes when the group has a new generation, or at once."""
        ticket = self._next_ticket()
        future: asyncio.Future[JoinAnswer] = self._clock.create_future()
        self._joins[ticket] = future
        self.carry_out(self.group.join(request, ticket, self._clock.now_ms()))
        return future

    def sync(self, request: SyncRequest) -> asyncio.Future[SyncAnswer]:
        """Completes when the generation's assignment is stored, or at once."""
        ticket = self._next_ticket()
        future: asyncio.Future[SyncAnswer] = self._clock.create_future()
        self._syncs[ticket] = future
        self.carry_out(self.group.sync(request, ticket, self._clock.now_ms()))
        return future

    def heartbeat(self, member_id: str, group_instance_id: str | None, generation_id: int) -> ErrorCode:
        error, effects = self.group.heartbeat(member_id, group_instance_id, generation_id, self._clock.now_ms())
        self.carry_out(effects)
        return error

    def leave(self, members: Sequence[LeavingMember]) -> tuple[ErrorCode, list[ErrorCode]]:
        error, errors, effects = self.group.leave(members, self._clock.now_ms())
        self.carry_out(effects)
        return error, errors

    def commit(self, member_id: str, group_instance_id: str | None, generation_id: int) -> ErrorCode:
        error, effects = self.group.commit(member_id, group_instance_id, generation_id, self._clock.now_ms())
        self.carry_out(effects)
        return error

    def stored(self, write: GroupWrite, error: ErrorCode) -> None:
        self.carry_out(self.group.stored(write, error, self._clock.now_ms()))

    def start(self) -> None:
        self.carry_out(self.group.start(self._clock.now_ms()))

    def unload(self) -> None:
        self.carry_out(self.group.unload(self._clock.now_ms()))

    def delete(self) -> None:
        self.carry_out(self.group.delete(self._clock.now_ms()))

    def carry_out(self, effects: Sequence[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, ArmTimer):
                self._arm(effect.key, effect.delay_ms / 1000)
            elif isinstance(effect, CancelTimer):
                self._cancel(effect.key)
            elif isinstance(effect, AnswerJoin):
                join = self._joins.pop(effect.ticket)
                if not join.done():  # cancelled: the broker is halting
                    join.set_result(effect.answer)
            elif isinstance(effect, AnswerSync):
                sync = self._syncs.pop(effect.ticket)
                if not sync.done():
                    sync.set_result(effect.answer)
            elif isinstance(effect, Store):
                self._store(self, effect.write)
            elif isinstance(effect, CancelAllTimers):
                for key in list(self._timers):
                    self._cancel(key)
            elif isinstance(effect, Explain):
                logger.info("group %s: %s", self.group.group_id, effect.reason)

    def _next_ticket(self) -> int:
        self._last_ticket += 1
        return self._last_ticket

    def _arm(self, key: TimerKey, delay_s: float) -> None:
        deadline = self._clock.monotonic() + delay_s
        armed = self._timers.get(key)
        if armed is not None:
            if armed.fires_at <= deadline:
                armed.deadline = deadline
                return
            armed.timer.cancel()
        self._timers[key] = _ArmedTimer(self._clock.call_later(delay_s, self._fire, key), deadline)

    def _cancel(self, key: TimerKey) -> None:
        armed = self._timers.pop(key, None)
        if armed is not None:
            armed.timer.cancel()

    def _fire(self, key: TimerKey) -> None:
        armed = self._timers.get(key)
        if armed is None:
            return
        rest_s = armed.deadline - self._clock.monotonic()
        if rest_s > _TIMER_SLACK_S:
            armed.fires_at = armed.deadline
            armed.timer = self._clock.call_later(rest_s, self._fire, key)
            return
        del self._timers[key]
        self.carry_out(self.group.expire(key, self._clock.now_ms()))
