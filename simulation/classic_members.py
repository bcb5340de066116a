"""Members of the classic protocol, which revoke everything before they join again (the eager protocol).

The group that they are in may become one of the consumer protocol, and a classic one again (KIP-848, online migration):
they do not notice. The leader of a classic group assigns; in a group of the consumer protocol the coordinator does. It
joins again when the partitions are others than those that it has assigned: a topic has grown, or the broker that named
them had just been started and knew none.
They are dynamic members: a static one of this protocol is replaced while it runs, and not covered by its session.

Source: org.apache.kafka.clients.consumer.internals.AbstractCoordinator and ConsumerCoordinator.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Mapping, Sequence
from typing import Any

from ottla_broker.protocol import codec
from ottla_broker.protocol.api import ApiKey
from ottla_broker.protocol.errors import ErrorCode
from ottla_broker.protocol.generated import consumer_protocol as schema
from simulation.checker import Partition, Violation
from simulation.client import Unavailable
from simulation.group_access import Exchange, GroupAccess, MemberEndedError, MemberView

_PROTOCOL = "range"
_VERSION = struct.Struct(">h")
_COMMIT_VERSIONS = range(5, 10)
_JOIN_AGAIN = (ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.ILLEGAL_GENERATION, ErrorCode.UNKNOWN_MEMBER_ID)
_HEARTBEAT_S = 0.3
_REBALANCE_S = 4.0
"""The rebalance timeout is so much longer than the session timeout."""


class ClassicProtocolMember:
    """One member, from its first JoinGroup until it leaves or its process ends."""

    def __init__(self, access: GroupAccess, topics: Sequence[str]) -> None:
        self.access = access
        self._group = access.group
        self._topics = topics
        self._subscription_version = access.random.randrange(1, 4)
        self._session_ms = int(access.group.session_s * 1000)
        self._rebalance_ms = self._session_ms + int(_REBALANCE_S * 1000)
        self._member_id = ""
        self._generation = -1
        """-1 while it has to join."""
        self._owned: set[Partition] = set()
        self._assigned: list[Partition] | None = None
        """As the leader: what it has assigned to the members."""

    async def run(self) -> None:
        """Until it is told to leave, or its process ends."""
        name = self.access.name
        self._group.live[name] = MemberView(self._subscribed, lambda: self._generation >= 0)
        try:
            while not (self.access.is_leaving or self._group.workload.is_stopping):
                try:
                    await self._one_round()
                except Unavailable:
                    await asyncio.sleep(0.1 + 0.2 * self.access.random.random())
            await self._leave()
        except MemberEndedError:
            pass
        finally:
            self._group.live.pop(name, None)
            self._group.oracle.gone(name)

    async def _one_round(self) -> None:
        draw = self.access.random
        await self.access.step()
        if self._generation < 0:
            await self._join()
            return
        if self._assigned is not None:
            await self.access.refresh()
            if self._known() != self._assigned:
                self._give_all_up()
                return
        if self.access.was_paused:  # it goes on with what it did, and hears only then that it was removed
            self.access.was_paused = False
            await self._commit()
        await self._heartbeat()
        if self._generation >= 0:
            if draw.random() < 0.4:
                await self._commit()
            await asyncio.sleep(_HEARTBEAT_S * (0.5 + draw.random()))

    # -- joining ----------------------------------------------------------------------------------------------------

    async def _join(self) -> None:
        self._give_all_up()
        joined = await self._send_join()
        code = ErrorCode.of(joined.answer.error_code)
        if code is ErrorCode.MEMBER_ID_REQUIRED:
            self._member_id = joined.answer.member_id
            return
        self._check(code, "JoinGroup")
        if code is not ErrorCode.NONE:
            return
        answer = joined.answer
        self._member_id = answer.member_id
        assignments = await self._assign(answer.members) if answer.leader == answer.member_id else []
        synced = await self._send_sync(answer.generation_id, assignments)
        code = ErrorCode.of(synced.answer.error_code)
        self._check(code, "SyncGroup")
        if code is not ErrorCode.NONE:
            return
        self._group.seen_as("classic" if answer.leader else "consumer", synced)
        oracle, name = self._group.oracle, self.access.name
        is_current = joined.was_current and synced.was_current
        oracle.joined(
            name,
            answer.generation_id,
            joined.highest_epoch,
            sent_s=joined.sent_s,
            at_s=synced.received_s,
            is_current=is_current,
        )
        target = _read_assignment(bytes(synced.answer.assignment))
        covered_until_s = synced.covered_until_s(self._group.session_s)
        oracle.told(name, target, at_s=synced.received_s, covered_until_s=covered_until_s)
        self._owned = target
        self._generation = answer.generation_id
        while not await self.access.read_offsets(sorted(target)):
            await asyncio.sleep(0.1)
            if self._group.workload.is_stopping or self.access.is_leaving:
                return
            await self._heartbeat()
            if self._generation < 0:
                return

    async def _send_join(self) -> Exchange:
        join = codec.module(ApiKey.JOIN_GROUP)
        value = schema.ConsumerProtocolSubscription(topics=list(self._topics), user_data=None, owned_partitions=[])
        version = self._subscription_version
        chunks = schema.write_consumer_protocol_subscription(version, value)
        metadata = b"".join([_VERSION.pack(version), *chunks])  # type: ignore[list-item]
        body = join.JoinGroupRequest(
            group_id=self._group.group_id,
            session_timeout_ms=self._session_ms,
            rebalance_timeout_ms=self._rebalance_ms,
            member_id=self._member_id,
            protocol_type="consumer",
            protocols=[join.JoinGroupRequestProtocol(name=_PROTOCOL, metadata=metadata)],
        )
        version = self.access.random.randrange(2, 10)
        return await self.access.ask(ApiKey.JOIN_GROUP, version, body, timeout_s=self._rebalance_ms / 1000 + 2.0)

    async def _send_sync(self, generation: int, assignments: Sequence[Any]) -> Exchange:
        sync = codec.module(ApiKey.SYNC_GROUP)
        body = sync.SyncGroupRequest(
            group_id=self._group.group_id,
            generation_id=generation,
            member_id=self._member_id,
            protocol_type="consumer",
            protocol_name=_PROTOCOL,
            assignments=list(assignments),
        )
        version = self.access.random.randrange(1, 6)
        return await self.access.ask(ApiKey.SYNC_GROUP, version, body, timeout_s=self._rebalance_ms / 1000 + 2.0)

    async def _assign(self, members: Sequence[Any]) -> list[Any]:
        """As the leader: every partition to one of the members that subscribe to its topic."""
        sync = codec.module(ApiKey.SYNC_GROUP)
        await self.access.refresh()
        known = self._assigned = self._known()
        topics = {each.member_id: _read_topics(bytes(each.metadata)) for each in members}
        assigned: dict[str, list[Partition]] = {member_id: [] for member_id in topics}
        for number, partition in enumerate(known):
            candidates = [member_id for member_id, names in sorted(topics.items()) if partition[0] in names]
            if candidates:
                assigned[candidates[number % len(candidates)]].append(partition)
        return [
            sync.SyncGroupRequestAssignment(member_id=member_id, assignment=_write_assignment(partitions))
            for member_id, partitions in assigned.items()
        ]

    def _known(self) -> list[Partition]:
        return sorted(self.access.client.state.partitions)

    # -- staying ----------------------------------------------------------------------------------------------------

    async def _heartbeat(self) -> None:
        beat = codec.module(ApiKey.HEARTBEAT)
        body = beat.HeartbeatRequest(
            group_id=self._group.group_id, generation_id=self._generation, member_id=self._member_id
        )
        exchange = await self.access.ask(ApiKey.HEARTBEAT, self.access.random.randrange(1, 5), body)
        code = ErrorCode.of(exchange.answer.error_code)
        if code is ErrorCode.REBALANCE_IN_PROGRESS and self.access.random.random() < 0.5:
            await self._commit()
        self._check(code, "Heartbeat")
        if code is ErrorCode.NONE:
            covered_until_s = exchange.covered_until_s(self._group.session_s)
            self._group.oracle.confirmed(self.access.name, at_s=exchange.received_s, covered_until_s=covered_until_s)

    async def _commit(self) -> None:
        await self.access.commit(self._owned, self._member_id, self._generation, None, _COMMIT_VERSIONS)

    def _check(self, code: ErrorCode, what: str) -> None:
        """Raises Unavailable where the request is to be made again, Violation for what no consumer copes with."""
        if code is ErrorCode.NONE:
            return
        if code in _JOIN_AGAIN:
            if code is ErrorCode.UNKNOWN_MEMBER_ID:
                self._member_id = ""
                self._group.oracle.fenced(self.access.name)
            self._give_all_up()
        elif self.access.unavailable(code, ErrorCode.REQUEST_TIMED_OUT):
            raise Unavailable(code.name)
        else:
            raise Violation(f"{what} of {self.access.name} gave {code.name}")

    def _give_all_up(self) -> None:
        self._group.oracle.released(self.access.name, self._owned)
        self._owned = set()
        self._generation = -1
        self._assigned = None

    async def _leave(self) -> None:
        self._group.oracle.gone(self.access.name)
        if not self._member_id:
            return
        leave = codec.module(ApiKey.LEAVE_GROUP)
        body = leave.LeaveGroupRequest(
            group_id=self._group.group_id, members=[leave.MemberIdentity(member_id=self._member_id)]
        )
        try:
            await self.access.ask(ApiKey.LEAVE_GROUP, self.access.random.randrange(3, 6), body)
        except Unavailable:
            pass

    def _subscribed(self, known: Mapping[Partition, Any]) -> set[str]:
        return {topic for topic, _ in known if topic in self._topics}


def _read_topics(metadata: bytes) -> list[str]:
    version = _VERSION.unpack_from(metadata)[0]
    value = schema.read_consumer_protocol_subscription_at(version, memoryview(metadata), _VERSION.size)[0]
    return list(value.topics)


def _read_assignment(blob: bytes) -> set[Partition]:
    if not blob:
        return set()
    version = _VERSION.unpack_from(blob)[0]
    value = schema.read_consumer_protocol_assignment_at(version, memoryview(blob), _VERSION.size)[0]
    return {(each.topic, number) for each in value.assigned_partitions for number in each.partitions}


def _write_assignment(partitions: Sequence[Partition]) -> bytes:
    topics: dict[str, list[int]] = {}
    for topic, number in partitions:
        topics.setdefault(topic, []).append(number)
    value = schema.ConsumerProtocolAssignment(
        assigned_partitions=[
            schema.ConsumerProtocolAssignmentTopicPartition(topic=name, partitions=each)
            for name, each in topics.items()
        ],
        user_data=None,
    )
    chunks = schema.write_consumer_protocol_assignment(1, value)
    return b"".join([_VERSION.pack(1), *chunks])  # type: ignore[list-item]
