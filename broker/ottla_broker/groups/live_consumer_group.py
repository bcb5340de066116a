"""One group of the consumer protocol on its coordinator (KIP-848): carries out what the pure group decides.

Holds the group's timers (Clock port), its appends that are under way, and its offsets. A request is answered when the
log has what it changed, and what was changed before it. Which groups there are, and what a conversion to a classic
group does, is the coordinator's (`coordinator.py`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Sequence, Set

from ottla_broker.groups.append_errors import OF_CONSUMER_GROUP_RECORD
from ottla_broker.groups.consumer import classic_members, heartbeats
from ottla_broker.groups.consumer.consumer_group import ConsumerGroup
from ottla_broker.groups.consumer.group_image import TopicView
from ottla_broker.groups.consumer.group_requests import (
    ConsumerGroupWrite,
    ConvertToClassic,
    GroupHeartbeat,
    HeartbeatAnswer,
    MemberTimerKey,
    ResolveExpressions,
    SetTimer,
    StopTimer,
)
from ottla_broker.groups.consumer.topic_expressions import matching
from ottla_broker.groups.decisions import Explain, JoinAnswer, JoinRequest, LeavingMember, SyncAnswer, SyncRequest
from ottla_broker.groups.group_overview import CONSUMER, GroupOverview
from ottla_broker.groups.group_timers import GroupTimers
from ottla_broker.groups.offsets import ExpiryRule, GroupOffsets
from ottla_broker.groups.subscription import CONSUMER_PROTOCOL_TYPE
from ottla_broker.internal_topics.topic_log import AppendOutcome, StateRecord
from ottla_broker.ports.clock import Clock
from ottla_broker.protocol.errors import ErrorCode
from ottla_broker.records.ids import TopicPartition

logger = logging.getLogger("ottla.groups")

MAX_BATCH_BYTES = 500_000
"""A change that is larger is appended as several batches: half of what a topic accepts by default (max.message.bytes).
The records are in an order in which any of them may be the last."""
NAMES_PER_TURN = 2_000
"""Resolving regular expressions lets the loop do other work after so many topics."""
_RIGHTS_PER_TURN = 50
"""After so many questions about rights, of up to 20 µs each."""
_RECORD_OVERHEAD_BYTES = 32

Describable = Callable[[Collection[str]], Set[str]]
"""Gives those of some topics that a member may know of."""
Appender = Callable[["LiveConsumerGroup", Sequence[StateRecord]], "asyncio.Future[AppendOutcome] | None"]
"""Appends the group's records as one batch; None when the partition has moved away."""
Converter = Callable[["LiveConsumerGroup", tuple[str, ...]], "asyncio.Future[AppendOutcome] | None"]
"""Makes the group a classic one without the members that leave; the append of its records."""


class LiveConsumerGroup:
    """Made by the coordinator, for a group that it has loaded, created or converted."""

    def __init__(
        self,
        group: ConsumerGroup,
        offsets: GroupOffsets,
        clock: Clock,
        topics: TopicView,
        append: Appender,
        convert: Converter,
        on_rebalance: Callable[[], None],
        owed: Sequence[StateRecord] = (),
    ) -> None:
        """`owed`: records to append with the first change, tombstones of the classic group that it was."""
        self.group = group
        self.offsets = offsets
        self._clock = clock
        self._topics = topics
        self._append = append
        self._convert = convert
        self._on_rebalance = on_rebalance
        self._owed = list(owed)
        self._timers: GroupTimers[MemberTimerKey] = GroupTimers(clock, self._expire)
        self._epoch = group.image.epoch
        self._is_stopped = False
        self._describable: Describable | None = None
        """Of the member whose heartbeat is being handled."""
        self._last_append: asyncio.Future[ErrorCode] | None = None

    # Questions

    @property
    def group_id(self) -> str:
        return self.group.group_id

    @property
    def is_empty(self) -> bool:
        """Whether it has no members."""
        return self.group.is_empty

    @property
    def may_end(self) -> bool:
        """Whether nothing is lost with the group itself."""
        return self.group.is_empty

    @property
    def is_dead(self) -> bool:
        return self.group.is_dead

    def overview(self) -> GroupOverview:
        return GroupOverview(self.group_id, CONSUMER_PROTOCOL_TYPE, self.group.state.value, CONSUMER)

    def check_commit(
        self, member_id: str, group_instance_id: str | None, generation_id: int, api_version: int
    ) -> ErrorCode:
        """Whether an OffsetCommit is accepted."""
        return self.group.check_commit(
            member_id, generation_id, group_instance_id, api_version=api_version, is_transactional=False
        )

    def check_transactional_commit(
        self, member_id: str, group_instance_id: str | None, generation_id: int, api_version: int
    ) -> ErrorCode:
        """Whether a TxnOffsetCommit is accepted: ILLEGAL_GENERATION stands for STALE_MEMBER_EPOCH there."""
        error = self.group.check_commit(
            member_id, generation_id, group_instance_id, api_version=api_version, is_transactional=True
        )
        return ErrorCode.ILLEGAL_GENERATION if error is ErrorCode.STALE_MEMBER_EPOCH else error

    def check_fetch(self, member_id: str | None, member_epoch: int) -> ErrorCode:
        """Whether an OffsetFetch is answered."""
        return self.group.check_fetch(member_id, member_epoch)

    def expiry_rule(self) -> ExpiryRule:
        """Offsets of topics that no member subscribes to expire by their own age. Source: ConsumerGroup."""
        return ExpiryRule(None, frozenset(self.group.subscribed_names()))

    def subscribed_among(self, partitions: Sequence[TopicPartition]) -> set[TopicPartition]:
        """The topics whose offsets cannot be deleted (KIP-496)."""
        names = frozenset(self.group.subscribed_names())
        return {partition for partition in partitions if partition.topic in names}

    # Requests

    def begin(self, request: GroupHeartbeat, describable: Describable | None = None) -> HeartbeatAnswer:
        """ConsumerGroupHeartbeat without its append: `finish` follows, unless it was refused.

        Args:
            describable: of topics that match a regular expression those that the member may know; None: all.
        """
        self._describable = describable
        return heartbeats.heartbeat(self.group, request, self._topics, self._clock.now_ms())

    async def finish(self, answer: HeartbeatAnswer) -> HeartbeatAnswer:
        """Answers when the log has what the heartbeat changed."""
        if answer.error is not ErrorCode.NONE:
            return answer
        error = await self._carry_out()
        return answer if error is ErrorCode.NONE else HeartbeatAnswer(error)

    async def join(self, request: JoinRequest) -> JoinAnswer:
        answer = classic_members.join(self.group, request, self._topics)
        error = await self._carry_out()
        return answer if error is ErrorCode.NONE else JoinAnswer(error, request.member_id)

    async def sync(self, request: SyncRequest) -> SyncAnswer:
        answer = classic_members.sync(self.group, request, self._topics)
        error = await self._carry_out()
        return answer if error is ErrorCode.NONE else SyncAnswer(error)

    def heartbeat(self, member_id: str, group_instance_id: str | None, generation_id: int) -> ErrorCode:
        error = classic_members.heartbeat(self.group, member_id, group_instance_id, generation_id)
        self._carry_out_later()
        return error

    async def leave(self, members: Sequence[LeavingMember]) -> tuple[ErrorCode, list[ErrorCode]]:
        errors = classic_members.leave(self.group, members, self._topics)
        error = await self._carry_out()
        return (error, []) if error is not ErrorCode.NONE else (ErrorCode.NONE, errors)

    # Life

    def start(self) -> None:
        self.group.start()
        self._carry_out_later()

    def delete(self) -> None:
        """A group without members ends (DeleteGroups, or its last offset is gone)."""
        self.unload()

    def unload(self) -> None:
        """The group ends here: nothing of it happens any more."""
        self._is_stopped = True
        self.group.stop()
        self.group.take_effects()
        self._timers.cancel_all()

    def own_tombstones(self) -> list[StateRecord]:
        """For every record of the group itself that the log may have."""
        return [*self._owed, *self.group.tombstones()]

    # Parts

    def _expire(self, key: MemberTimerKey) -> None:
        self.group.expire(key, self._topics)
        self._carry_out_later()

    def _carry_out_later(self) -> None:
        done = self._flush()
        if done is not None and not done.done():
            self._last_append = done

    async def _carry_out(self) -> ErrorCode:
        done = self._flush()
        if done is None:
            return ErrorCode.NONE
        return await asyncio.shield(done)

    def _flush(self) -> asyncio.Future[ErrorCode] | None:
        """Carries the effects out and appends what is to be written; completes when the log has that, and what was
        appended before."""
        converted: asyncio.Future[AppendOutcome] | None = None
        has_converted = False
        for effect in self.group.take_effects():
            if isinstance(effect, SetTimer):
                if not (effect.keeps_running and effect.key in self._timers):
                    self._timers.arm(effect.key, effect.delay_ms / 1000)
            elif isinstance(effect, StopTimer):
                self._timers.cancel(effect.key)
            elif isinstance(effect, ResolveExpressions):
                resolution = self._resolve(effect.regexes, self._describable)
                self._clock.spawn(resolution, name=f"resolve expressions of {self.group_id}")
            elif isinstance(effect, ConvertToClassic):
                has_converted = True
                converted = self._convert(self, effect.leaving)
            elif isinstance(effect, Explain):
                logger.info("group %s: %s", self.group_id, effect.reason)
        self._describable = None
        if has_converted:
            return self._clock.spawn(self._await_conversion(converted), name=f"convert group {self.group_id}")
        if self.group.image.epoch > self._epoch:
            self._epoch = self.group.image.epoch
            self._on_rebalance()
        write = self.group.take_write()
        if write is None and not self._owed:
            before = self._last_append
            return None if before is None or before.done() else before
        owed, self._owed = self._owed, []
        records = [*owed, *(() if write is None else write.records)]
        appends = [self._append(self, batch) for batch in batches_of(records)]
        waiting = self._await_appends(self._last_append, appends, owed, write)
        self._last_append = self._clock.spawn(waiting, name=f"store group {self.group_id}")
        return self._last_append

    async def _await_appends(
        self,
        before: asyncio.Future[ErrorCode] | None,
        appends: Sequence[asyncio.Future[AppendOutcome] | None],
        owed: list[StateRecord],
        write: ConsumerGroupWrite | None,
    ) -> ErrorCode:
        error = ErrorCode.NONE
        for appended in appends:
            outcome = ErrorCode.NOT_LEADER_OR_FOLLOWER if appended is None else (await appended).error
            if error is ErrorCode.NONE:
                error = outcome
        if error is not ErrorCode.NONE:
            logger.warning("group %s: its records could not be stored: %s", self.group_id, error.name)
            self._owed = [*owed, *self._owed]
            if write is not None:
                self.group.write_failed(write)
        elif before is not None and not before.done():
            await before  # appended earlier, and as a rule confirmed earlier
        return OF_CONSUMER_GROUP_RECORD.get(error, error)

    async def _await_conversion(self, converted: asyncio.Future[AppendOutcome] | None) -> ErrorCode:
        error = ErrorCode.NOT_LEADER_OR_FOLLOWER if converted is None else (await converted).error
        return OF_CONSUMER_GROUP_RECORD.get(error, error)

    async def _resolve(self, regexes: tuple[str, ...], describable: Describable | None) -> None:
        """Finds the topics that match, a part of the names at a time: a cluster may have many.

        Of every member's expressions, with the rights of the one whose heartbeat was the occasion. Source:
        GroupMetadataManager.resolveRegularExpressions.
        """
        version = self._topics.version
        started_ms = self._clock.now_ms()
        names = list(self._topics.names())
        found: dict[str, tuple[str, ...]] = dict.fromkeys(regexes, ())
        for start in range(0, len(names), NAMES_PER_TURN):
            some = matching(regexes, names[start : start + NAMES_PER_TURN])
            if describable is not None:
                known = await self._among({name for matched in some.values() for name in matched}, describable)
                some = {regex: tuple(filter(known.__contains__, matched)) for regex, matched in some.items()}
            for regex, matched in some.items():
                found[regex] += matched
            await self._clock.sleep(0)
        if self._is_stopped:
            return
        found = {regex: tuple(sorted(matched)) for regex, matched in found.items()}
        self.group.resolved(found, version, started_ms, self._topics)
        self._carry_out_later()

    async def _among(self, names: Collection[str], describable: Describable) -> set[str]:
        different, found = list(names), set[str]()
        for start in range(0, len(different), _RIGHTS_PER_TURN):
            found |= describable(different[start : start + _RIGHTS_PER_TURN])
            await self._clock.sleep(0)
        return found


def batches_of(records: Sequence[StateRecord], limit_bytes: int = MAX_BATCH_BYTES) -> list[list[StateRecord]]:
    """The records in order, divided into batches of about the limit.

    >>> [len(batch) for batch in batches_of([StateRecord(b"k" * 60, None)] * 5, 200)]
    [2, 2, 1]
    """
    batches: list[list[StateRecord]] = []
    size = limit_bytes
    for record in records:
        record_bytes = len(record.key) + len(record.value or b"") + _RECORD_OVERHEAD_BYTES
        if size + record_bytes > limit_bytes:
            batches.append([])
            size = 0
        batches[-1].append(record)
        size += record_bytes
    return batches
