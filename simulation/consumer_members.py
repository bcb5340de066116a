"""Members of the consumer protocol (KIP-848), by the rules of the official client.

A member sends ConsumerGroupHeartbeat, gives up what it is asked to give up before it says so, takes what it was given,
and commits offsets with its member epoch. What it was told is in the `ConsumerGroupOracle`.

Source: org.apache.kafka.clients.consumer.internals.ConsumerMembershipManager and ConsumerHeartbeatRequestManager.
"""

from __future__ import annotations

import asyncio
import re
import uuid
from collections.abc import Mapping, Sequence
from typing import Any

from ottla_broker.protocol import codec
from ottla_broker.protocol.api import ApiKey
from ottla_broker.protocol.errors import ErrorCode
from simulation.checker import Partition, Violation
from simulation.client import Unavailable
from simulation.group_access import Exchange, GroupAccess, MemberEndedError, MemberView

_LEAVE, _LEAVE_FOR_A_WHILE, _JOIN = -1, -2, 0
_REMOVED = (
    ErrorCode.FENCED_MEMBER_EPOCH,
    ErrorCode.UNKNOWN_MEMBER_ID,
    # The last member of the consumer protocol is gone, and those of the classic protocol have the group.
    ErrorCode.GROUP_ID_NOT_FOUND,
)
_FIRST_VERSION_WITH_MEMBER_ID = 1
_COMMIT_VERSIONS = range(9, 10)
_PAUSES_S = (0.05, 0.3, 1.0)


class ConsumerProtocolMember:
    """One member, from its first heartbeat until it leaves or its process ends."""

    def __init__(
        self,
        access: GroupAccess,
        *,
        topics: Sequence[str] = (),
        regex: str | None = None,
        instance_id: str | None = None,
    ) -> None:
        draw = access.random
        self.access = access
        self._group = access.group
        self._topics = topics
        self._regex = regex
        self._instance_id = instance_id
        # A regular expression needs version 1, in which a member chooses its own id.
        self._version = 1 if regex is not None else draw.choice((0, 1))
        self._member_id = str(uuid.UUID(int=draw.getrandbits(128))) if self._version else ""
        self._epoch = _JOIN
        self._interval_s = 0.1
        self._owned: set[Partition] = set()
        self._target: set[Partition] = set()
        self._must_send_all = True
        self._must_refresh = False
        self._has_changed = False
        """What it owns is not what it has said last."""

    async def run(self) -> None:
        """Until it is told to leave, or its process ends."""
        name = self.access.name
        self._group.live[name] = MemberView(self._subscribed, self._is_settled)
        try:
            while not (self.access.is_leaving or self._group.workload.is_stopping):
                await self._one_round()
            await self._leave()
        except MemberEndedError:
            pass
        finally:
            self._group.live.pop(name, None)
            self._group.oracle.gone(name)

    async def _one_round(self) -> None:
        draw = self.access.random
        if self._must_refresh:
            self._must_send_all = True
            await self.access.refresh()
        await self.access.step()
        if self.access.was_paused:  # it goes on with what it did, and hears only then that it was removed
            self.access.was_paused = False
            await self._commit(self._owned)
        try:
            await self._heartbeat()
        except Unavailable:
            self._must_send_all = True  # what the coordinator knows is not certain
            await asyncio.sleep(0.1 + 0.2 * draw.random())
            return
        if self._epoch > _JOIN:
            await self._reconcile()
            if draw.random() < 0.4:
                await self._commit(self._owned)
        if not self._has_changed:
            await asyncio.sleep(self._interval_s * (0.5 + 0.5 * draw.random()))

    # -- heartbeats -------------------------------------------------------------------------------------------------

    async def _heartbeat(self) -> None:
        is_join = self._epoch == _JOIN
        sends_all = is_join or self._must_send_all or self.access.random.random() < 0.1
        sends_owned = sends_all or self._has_changed
        said = set(self._owned)
        exchange = await self._send(self._epoch, sends_all=sends_all, owned=said if sends_owned else None)
        code = ErrorCode.of(exchange.answer.error_code)
        if code is ErrorCode.NONE:
            self._must_send_all = False
            if sends_owned:
                self._has_changed = said != self._owned
            self._accepted(exchange, is_join=is_join)
        elif code in _REMOVED:
            self._give_all_up()
            await asyncio.sleep(0.05 + 0.2 * self.access.random.random())
        elif self.access.unavailable(code, *((ErrorCode.UNRELEASED_INSTANCE_ID,) if is_join else ())):
            raise Unavailable(code.name)
        elif code is ErrorCode.FENCED_INSTANCE_ID:
            self._group.oracle.fenced(self.access.name)
            raise MemberEndedError
        else:
            text = exchange.answer.error_message
            raise Violation(f"ConsumerGroupHeartbeat of {self.access.name} gave {code.name}: {text}")

    async def _send(self, epoch: int, *, sends_all: bool, owned: set[Partition] | None) -> Exchange:
        api = codec.module(ApiKey.CONSUMER_GROUP_HEARTBEAT)
        body = api.ConsumerGroupHeartbeatRequest(
            group_id=self._group.group_id,
            member_id=self._member_id,
            member_epoch=epoch,
            instance_id=self._instance_id,
            rebalance_timeout_ms=self._group.rebalance_timeout_ms if sends_all else -1,
            subscribed_topic_names=list(self._topics) if sends_all else None,
            subscribed_topic_regex=self._regex if sends_all else None,
            topic_partitions=None if owned is None else self._by_id(owned),
        )
        return await self.access.ask(ApiKey.CONSUMER_GROUP_HEARTBEAT, self._version, body)

    def _accepted(self, exchange: Exchange, *, is_join: bool) -> None:
        answer, oracle, name = exchange.answer, self._group.oracle, self.access.name
        self._group.seen_as("consumer", exchange)
        if is_join:
            oracle.joined(
                name,
                answer.member_epoch,
                exchange.highest_epoch,
                sent_s=exchange.sent_s,
                at_s=exchange.received_s,
                is_current=exchange.was_current,
            )
            self._member_id = answer.member_id or self._member_id
        else:
            oracle.epoch_told(name, answer.member_epoch)
        self._epoch = answer.member_epoch
        self._interval_s = answer.heartbeat_interval_ms / 1000
        if answer.assignment is not None:
            target = self._by_name(answer.assignment.topic_partitions)
            oracle.released(name, self._target - target - self._owned)  # what it never came to take
            self._target = target
        covered = exchange.covered_until_s(self._group.session_s)
        oracle.told(name, self._target, at_s=exchange.received_s, covered_until_s=covered)

    def _give_all_up(self) -> None:
        self._group.oracle.fenced(self.access.name)
        self._owned.clear()
        self._target.clear()
        self._epoch = _JOIN
        self._must_send_all = True
        if self._version < _FIRST_VERSION_WITH_MEMBER_ID:
            self._member_id = ""

    async def _leave(self) -> None:
        """Once, without looking at the answer, as the official client."""
        self._group.oracle.gone(self.access.name)
        if self._epoch == _JOIN:
            return
        is_for_a_while = self._instance_id is not None and self.access.random.random() < 0.8
        try:
            await self._send(_LEAVE_FOR_A_WHILE if is_for_a_while else _LEAVE, sends_all=False, owned=None)
        except Unavailable:
            pass

    # -- what it owns -----------------------------------------------------------------------------------------------

    async def _reconcile(self) -> None:
        """Gives up what it has to, says so, and takes what it was given once it was told nothing else."""
        draw = self.access.random
        to_revoke = self._owned - self._target
        if to_revoke:
            if draw.random() < 0.5:
                await self._commit(to_revoke)
            await asyncio.sleep(draw.choice(_PAUSES_S) * draw.random())
            await self.access.step()
            self._owned -= to_revoke
            self._group.oracle.released(self.access.name, to_revoke)
            self._has_changed = True
            return
        added = self._target - self._owned
        if added:
            has_member = draw.random() < 0.7
            member_id = self._member_id if has_member else None
            if await self.access.read_offsets(sorted(added), member_id, self._epoch if has_member else -1):
                self._owned |= added
                self._has_changed = True

    async def _commit(self, partitions: set[Partition]) -> None:
        await self.access.commit(partitions, self._member_id, self._epoch, self._instance_id, _COMMIT_VERSIONS)

    def _is_settled(self) -> bool:
        return self._epoch > _JOIN and self._owned == self._target and not (self._has_changed or self._must_refresh)

    def _subscribed(self, known: Mapping[Partition, Any]) -> set[str]:
        names = {topic for topic, _ in known if not topic.startswith("__")}
        matched = {name for name in names if self._regex is not None and re.fullmatch(self._regex, name)}
        return matched | {name for name in names if name in self._topics}

    # -- topic ids --------------------------------------------------------------------------------------------------

    def _by_id(self, partitions: set[Partition]) -> list[Any]:
        api = codec.module(ApiKey.CONSUMER_GROUP_HEARTBEAT)
        ids = self._group.topic_ids
        topics: dict[str, list[int]] = {}
        for topic, number in sorted(partitions):
            topics.setdefault(topic, []).append(number)
        return [api.TopicPartitions(topic_id=ids[name], partitions=each) for name, each in topics.items()]

    def _by_name(self, found: Sequence[Any]) -> set[Partition]:
        """Without topics that this client has not heard of yet: it asks for metadata, and to be told again."""
        names = {topic_id: name for name, topic_id in self._group.topic_ids.items()}
        self._must_refresh = any(bytes(each.topic_id) not in names for each in found)
        return {
            (names[bytes(each.topic_id)], number)
            for each in found
            if bytes(each.topic_id) in names
            for number in each.partitions
        }
