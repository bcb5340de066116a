"""What every member of a simulated group does: it finds the coordinator, asks it, commits offsets and reads them.

A `SimulatedGroup` has what all members of a group share. An answer that no client copes with is a `Violation`.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from ottla_broker.protocol import codec
from ottla_broker.protocol.api import ApiKey
from ottla_broker.protocol.errors import ErrorCode
from simulation.checker import Partition, Violation
from simulation.client import Client, Unavailable
from simulation.consumer_group_oracle import Commit, ConsumerGroupOracle
from simulation.coordinators import GROUP, find_coordinator
from simulation.workload import Workload

OTHER_COORDINATOR = (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE)
_UNCERTAIN = (
    *OTHER_COORDINATOR,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
)
"""Of a commit: the log may have it all the same."""
_REFUSED = (
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.STALE_MEMBER_EPOCH,
    ErrorCode.ILLEGAL_GENERATION,
    ErrorCode.FENCED_INSTANCE_ID,
    ErrorCode.REBALANCE_IN_PROGRESS,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.UNSUPPORTED_VERSION,
)
"""Of a commit: it changes nothing. UNSUPPORTED_VERSION when a classic member's group has been converted meanwhile."""


_TIMER_SLACK_S = 0.001
"""A session may time out so much early."""


@dataclass
class SimulatedGroup:
    """A group, for its members."""

    group_id: str
    workload: Workload
    oracle: ConsumerGroupOracle
    coordinates: Callable[[tuple[str, int]], bool]
    """Whether the broker at this address coordinates the group now."""
    session_s: float
    rebalance_timeout_ms: int
    is_mixed: bool = False
    """It has members of both protocols."""
    live: dict[str, MemberView] = field(default_factory=dict)
    """The members that run, by name."""
    topic_ids: dict[str, bytes] = field(default_factory=dict)
    """As far as its members have heard."""

    kind: str = ""
    """"classic" or "consumer", as its members were told last."""
    conversions: int = 0
    """How often it has become one of the other kind."""

    def seen_as(self, kind: str, exchange: Exchange) -> None:
        """A member's response says of which protocol the group is."""
        if exchange.was_current and kind != self.kind:
            self.conversions += bool(self.kind)
            self.kind = kind

    @property
    def now_s(self) -> float:
        return self.workload.world.loop.time()


@dataclass
class MemberView:
    """What the end of a run asks of a member that runs."""

    topics: Callable[[dict[Partition, Any]], set[str]]
    """The topics that it subscribes to, of those that there are."""
    is_settled: Callable[[], bool]
    """It is a member, and has taken what it was given."""


class MemberEndedError(Exception):
    """The process of the member has ended, or it was told to end."""


@dataclass(frozen=True)
class Exchange:
    """A request and its response."""

    answer: Any
    sent_s: float
    received_s: float
    was_current: bool
    """It went to the coordinator, not to one that had been replaced."""
    highest_epoch: int
    """That any member of the group had been told when it was sent."""

    def covered_until_s(self, session_s: float) -> float | None:
        """Until when a member whose request was accepted is not removed; None where nobody can say."""
        return self.sent_s + session_s - _TIMER_SLACK_S if self.was_current else None


class GroupAccess:
    """One member's way to its coordinator, and what the member is told to do by whoever runs it."""

    def __init__(self, group: SimulatedGroup, client: Client, name: str, draw: random.Random) -> None:
        self.group = group
        self.client = client
        self.name = name
        self.random = draw
        self.is_dead = False
        """Its process has ended: nothing more is done."""
        self.paused_until_s = 0.0
        self.is_leaving = False
        self.was_paused = False
        """Since it last looked: it may have been removed meanwhile, and does not know it."""
        self._coordinator: tuple[str, int] | None = None

    async def step(self) -> None:
        """Between any two acts: the member may be paused, or its process ended. Raises MemberEndedError."""
        pause_s = self.paused_until_s - self.group.now_s
        if pause_s > 0 and not self.group.workload.is_stopping:
            self.was_paused = True
            await asyncio.sleep(pause_s)
        if self.is_dead:
            raise MemberEndedError

    async def refresh(self) -> None:
        """Asks for metadata: the group knows the ids of topics from it."""
        try:
            state = await self.client.refresh()
        except Unavailable:
            return
        self.group.topic_ids.update(state.topic_ids)

    async def ask(self, api_key: ApiKey, version: int, body: Any, *, timeout_s: float = 3.0) -> Exchange:
        """Raises Unavailable, MemberEndedError."""
        await self.step()
        try:
            if self._coordinator is None:
                group_id = self.group.group_id
                self._coordinator = await find_coordinator(self.client, self.random, group_id, GROUP)
            address, sent_s = self._coordinator, self.group.now_s
            was_current = self.group.coordinates(address)
            highest = self.group.oracle.highest_epoch
            answer = await self.client.request(address, api_key, version, body, timeout_s=timeout_s)
        except Unavailable:
            self._coordinator = None
            await self.step()
            raise
        exchange = Exchange(answer, sent_s, self.group.now_s, was_current, highest)
        await self.step()
        return exchange

    def unavailable(self, code: ErrorCode, *also: ErrorCode) -> bool:
        """Whether the request is to be made again; another coordinator is asked where this one says so."""
        if code in OTHER_COORDINATOR:
            self._coordinator = None
            return True
        return code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS or code in also

    # -- offsets ----------------------------------------------------------------------------------------------------

    async def commit(
        self, partitions: Iterable[Partition], member_id: str, epoch: int, instance_id: str | None, versions: range
    ) -> None:
        """Commits another offset for each of these partitions, which the member has."""
        api = codec.module(ApiKey.OFFSET_COMMIT)
        await self.step()
        oracle, sent_s = self.group.oracle, self.group.now_s
        commits = {one: oracle.commit_sent(self.name, one, sent_s) for one in sorted(partitions)}
        if not commits:
            return
        topics: dict[str, list[Any]] = {}
        for (topic, number), commit in commits.items():
            part = api.OffsetCommitRequestPartition(
                partition_index=number, committed_offset=commit.offset, committed_metadata=""
            )
            topics.setdefault(topic, []).append(part)
        body = api.OffsetCommitRequest(
            group_id=self.group.group_id,
            generation_id_or_member_epoch=epoch,
            member_id=member_id,
            group_instance_id=instance_id,
            topics=[api.OffsetCommitRequestTopic(name=name, partitions=parts) for name, parts in topics.items()],
        )
        try:
            exchange = await self.ask(ApiKey.OFFSET_COMMIT, self.random.choice(versions), body)
        except Unavailable:
            return
        for topic in exchange.answer.topics:
            for part in topic.partitions:
                partition = (topic.name, part.partition_index)
                self._committed(partition, commits[partition], ErrorCode.of(part.error_code), exchange)

    def _committed(self, partition: Partition, commit: Commit, code: ErrorCode, exchange: Exchange) -> None:
        oracle = self.group.oracle
        if code is ErrorCode.NONE:
            oracle.commit_acknowledged(partition, commit, exchange.received_s)
        elif code in _REFUSED:
            oracle.commit_refused(partition, commit)
        elif code not in _UNCERTAIN:
            raise Violation(f"OffsetCommit of {self.name} gave {code.name}")
        if code in OTHER_COORDINATOR:
            self._coordinator = None

    async def read_offsets(
        self, partitions: Sequence[Partition], member_id: str | None = None, epoch: int = -1
    ) -> bool:
        """Reads the committed offsets of these partitions; False when they could not be read."""
        if not partitions:
            return True
        api = codec.module(ApiKey.OFFSET_FETCH)
        topics: dict[str, list[int]] = {}
        for topic, number in partitions:
            topics.setdefault(topic, []).append(number)
        asked = api.OffsetFetchRequestGroup(
            group_id=self.group.group_id,
            member_id=member_id,
            member_epoch=epoch,
            topics=[api.OffsetFetchRequestTopics(name=name, partition_indexes=each) for name, each in topics.items()],
        )
        body = api.OffsetFetchRequest(groups=[asked], require_stable=self.random.random() < 0.5)
        try:
            exchange = await self.ask(ApiKey.OFFSET_FETCH, 8 if member_id is None else 9, body)
        except Unavailable:
            return False
        found = exchange.answer.groups[0]
        code = ErrorCode.of(found.error_code)
        if code is not ErrorCode.NONE:
            if not self.unavailable(code, ErrorCode.STALE_MEMBER_EPOCH, *_REFUSED):
                raise Violation(f"OffsetFetch of {self.name} gave {code.name}")
            return False
        codes = {ErrorCode.of(part.error_code) for topic in found.topics for part in topic.partitions}
        if codes - {ErrorCode.NONE, ErrorCode.UNSTABLE_OFFSET_COMMIT}:
            raise Violation(f"OffsetFetch of {self.name} gave {', '.join(sorted(code.name for code in codes))}")
        if ErrorCode.UNSTABLE_OFFSET_COMMIT in codes:
            return False  # a commit is under way
        for topic in found.topics:
            for part in topic.partitions:
                if exchange.was_current:
                    partition = (topic.name, part.partition_index)
                    self.group.oracle.offset_read(partition, part.committed_offset, asked_s=exchange.sent_s)
        return exchange.was_current
