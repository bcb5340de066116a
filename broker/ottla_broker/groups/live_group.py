"""One classic group on its coordinator: carries out what the machine decides.

Holds the group's timers (Clock port), the futures of the requests that wait, and its offsets. Which groups there are
and where records go is the coordinator's (`coordinator.py`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, TypeVar

from ottla_broker.groups.answer_queue import AnswerQueue
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
    TimerKind,
)
from ottla_broker.groups.group_overview import GroupOverview
from ottla_broker.groups.group_timers import GroupTimers
from ottla_broker.groups.machine import Group
from ottla_broker.groups.offsets import ExpiryRule, GroupOffsets, classic_expiry_rule
from ottla_broker.groups.records import group_tombstone
from ottla_broker.groups.states import GroupState
from ottla_broker.internal_topics.topic_log import StateRecord
from ottla_broker.ports.clock import Clock
from ottla_broker.protocol.errors import ErrorCode
from ottla_broker.records.ids import TopicPartition

logger = logging.getLogger("ottla.groups")

_Answer = TypeVar("_Answer")

MANY_EFFECTS: Final = 100
"""Of a decision: the answers of one that has more are given in several iterations of the loop."""


class LiveGroup:
    """`store` appends a group record and reports to `stored` later, never during the call; `answers` takes the answers
    of a decision that has many."""

    def __init__(
        self,
        group: Group,
        offsets: GroupOffsets,
        clock: Clock,
        store: Callable[[LiveGroup, GroupWrite], None],
        answers: AnswerQueue,
    ) -> None:
        self.group = group
        self.offsets = offsets
        self.owed: list[StateRecord] = []
        """To append with the group's next record: what made it a classic group could not be stored."""
        self._clock = clock
        self._store = store
        self._answers = answers
        self._timers: GroupTimers[TimerKey] = GroupTimers(clock, self._expire)
        self._joins: dict[int, asyncio.Future[JoinAnswer]] = {}
        self._syncs: dict[int, asyncio.Future[SyncAnswer]] = {}
        self._last_ticket = 0

    @property
    def group_id(self) -> str:
        return self.group.group_id

    @property
    def is_empty(self) -> bool:
        """Whether it has no members."""
        return self.group.state is GroupState.EMPTY

    @property
    def may_end(self) -> bool:
        """Whether nothing is lost with the group itself: no member is there, or has been given an id."""
        return self.is_empty and not self.group.membership.pending

    @property
    def is_dead(self) -> bool:
        return self.group.state is GroupState.DEAD

    def overview(self) -> GroupOverview:
        return GroupOverview(self.group_id, self.group.protocol_type or "", self.group.state.value)

    def own_tombstones(self) -> list[StateRecord]:
        """For every record of the group itself that the log may have."""
        tombstone = [group_tombstone(self.group_id)] if self.group.generation_id > 0 else []
        return [*self.owed, *tombstone]

    def check_commit(
        self, member_id: str, group_instance_id: str | None, generation_id: int, api_version: int
    ) -> ErrorCode:
        """Whether an OffsetCommit is accepted; it counts as a heartbeat of the member."""
        error, effects = self.group.commit(member_id, group_instance_id, generation_id, self._clock.now_ms())
        self.carry_out(effects)
        return error

    def check_transactional_commit(
        self, member_id: str, group_instance_id: str | None, generation_id: int, api_version: int
    ) -> ErrorCode:
        return self.group.check_transactional_commit(member_id, group_instance_id, generation_id)

    def check_fetch(self, member_id: str | None, member_epoch: int) -> ErrorCode:
        """Classic groups do not look at the member."""
        return ErrorCode.NONE

    def expiry_rule(self) -> ExpiryRule | None:
        return classic_expiry_rule(self.group)

    def subscribed_among(self, partitions: Sequence[TopicPartition]) -> set[TopicPartition] | None:
        """The topics whose offsets cannot be deleted (KIP-496); None where none can, because the group has members."""
        if self.is_empty:
            return set()
        if not self.group.is_consumer_group:
            return None
        return {partition for partition in partitions if self.group.is_subscribed_to(partition.topic)}

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

    async def leave(self, members: Sequence[LeavingMember]) -> tuple[ErrorCode, list[ErrorCode]]:
        error, errors, effects = self.group.leave(members, self._clock.now_ms())
        self.carry_out(effects)
        return error, errors

    def stored(self, write: GroupWrite, error: ErrorCode) -> None:
        self.carry_out(self.group.stored(write, error, self._clock.now_ms()))

    def start(self) -> None:
        self.carry_out(self.group.start(self._clock.now_ms()))

    def unload(self) -> None:
        self.carry_out(self.group.unload(self._clock.now_ms()))

    def convert(self) -> None:
        self.carry_out(self.group.convert(self._clock.now_ms()))

    def delete(self) -> None:
        self.carry_out(self.group.delete(self._clock.now_ms()))

    def carry_out(self, effects: Sequence[Effect]) -> None:
        has_many = len(effects) > MANY_EFFECTS
        for effect in effects:
            if isinstance(effect, ArmTimer):
                if has_many and effect.key.kind is TimerKind.SESSION:
                    self._answers.put(partial(self._timers.arm, effect.key, effect.delay_ms / 1000))
                else:
                    self._timers.arm(effect.key, effect.delay_ms / 1000)
            elif isinstance(effect, CancelTimer):
                self._timers.cancel(effect.key)
            elif isinstance(effect, AnswerJoin):
                join = self._joins.pop(effect.ticket)
                if has_many:
                    self._answers.put(partial(_complete, join, effect.answer))
                else:
                    _complete(join, effect.answer)
            elif isinstance(effect, AnswerSync):
                sync = self._syncs.pop(effect.ticket)
                if has_many:
                    self._answers.put(partial(_complete, sync, effect.answer))
                else:
                    _complete(sync, effect.answer)
            elif isinstance(effect, Store):
                self._store(self, effect.write)
            elif isinstance(effect, CancelAllTimers):
                self._timers.cancel_all()
            elif isinstance(effect, Explain):
                logger.info("group %s: %s", self.group.group_id, effect.reason)

    def _next_ticket(self) -> int:
        self._last_ticket += 1
        return self._last_ticket

    def _expire(self, key: TimerKey) -> None:
        self.carry_out(self.group.expire(key, self._clock.now_ms()))


def _complete(future: asyncio.Future[_Answer], answer: _Answer) -> None:
    if not future.done():  # cancelled: the broker is halting
        future.set_result(answer)
