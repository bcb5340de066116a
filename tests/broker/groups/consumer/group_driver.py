"""Drives one pure group of the consumer protocol in virtual time: its topics, timers, log and clients.

After every step it checks what must always hold: one owner for a partition, epochs that do not fall, and a log from
whose records the same group comes back.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from ottla_broker.groups.consumer import heartbeats
from ottla_broker.groups.consumer.assignors.offered import offered_assignors
from ottla_broker.groups.consumer.consumer_group import ConsumerGroup, owned_by
from ottla_broker.groups.consumer.consumer_records import RecordKey, RecordKind, image_of, read_key
from ottla_broker.groups.consumer.group_image import (
    Assignment,
    ConsumerGroupImage,
    SubscribedTopic,
    partitions_of,
)
from ottla_broker.groups.consumer.group_requests import (
    ConsumerGroupConfig,
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
from ottla_broker.internal_topics.topic_log import StateRecord
from ottla_broker.protocol.errors import ErrorCode

_VERSION = struct.Struct(">h")


class Topics:
    """A `TopicView` that a test changes."""

    def __init__(self, **partition_counts: int) -> None:
        self.version = 0
        self._topics: dict[str, SubscribedTopic] = {}
        self._last_id = 0
        for name, count in partition_counts.items():
            self.create(name, count)

    def create(self, name: str, partition_count: int) -> None:
        self._last_id += 1
        self._topics[name] = SubscribedTopic(self._last_id.to_bytes(16), partition_count)
        self.version += 1

    def grow(self, name: str, partition_count: int) -> None:
        self._topics[name] = self._topics[name]._replace(partition_count=partition_count)
        self.version += 1

    def delete(self, name: str) -> None:
        del self._topics[name]
        self.version += 1

    def find(self, name: str) -> SubscribedTopic | None:
        return self._topics.get(name)

    def name_of(self, topic_id: bytes) -> str | None:
        return next((name for name, topic in self._topics.items() if topic.topic_id == topic_id), None)

    def names(self) -> Iterable[str]:
        return list(self._topics)


@dataclass
class Client:
    """What a consumer remembers between heartbeats, and does with an answer."""

    member_id: str
    instance_id: str | None = None
    names: tuple[str, ...] | None = None
    regex: str | None = None
    assignor: str | None = None
    epoch: int = 0
    owned: Assignment = field(default_factory=dict)
    errors: list[ErrorCode] = field(default_factory=list)


def config(**changes: Any) -> ConsumerGroupConfig:
    return ConsumerGroupConfig(offered_assignors(["uniform", "range"]), **changes)


class GroupDriver:
    """A group, its topics and its log."""

    def __init__(self, topics: Topics | None = None, **changes: Any) -> None:
        self.topics = topics or Topics(t=4)
        self.config = config(**changes)
        self.group = ConsumerGroup(ConsumerGroupImage("g"), self.config)
        self.now_ms = 1_000_000
        self.timers: dict[MemberTimerKey, int] = {}
        self.log: list[StateRecord] = []
        self.batches: list[int] = []
        """Lengths of the log after each batch."""
        self.lost: list[ConsumerGroupWrite] = []
        self.conversions: list[tuple[str, ...]] = []
        self.writes_fail = False

    # Requests

    def heartbeat(self, member_id: str, epoch: int, **fields: Any) -> HeartbeatAnswer:
        """With the fields of a joining member where it joins and does not say otherwise."""
        if epoch == 0:
            joining = {"rebalance_timeout_ms": 60_000, "owned": {}}
            if "subscribed_topic_regex" not in fields:
                joining["subscribed_topic_names"] = ("t",)
            fields = joining | fields
        request = GroupHeartbeat(member_id, epoch, client_id="app", client_host="/127.0.0.1", **fields)
        before = self.group.image
        answer = heartbeats.heartbeat(self.group, request, self.topics, self.now_ms)
        if answer.error is not ErrorCode.NONE:
            assert self.group.image is before, "a request that is refused has changed the group"
        self.carry_out(before)
        return answer

    def beat(self, client: Client) -> ErrorCode:
        """A heartbeat as a consumer sends it: everything when it joins, else what it owns."""
        if client.epoch == 0:
            client.owned = {}
        answer = self.heartbeat(
            client.member_id,
            client.epoch,
            instance_id=client.instance_id,
            rebalance_timeout_ms=60_000,
            subscribed_topic_names=client.names,
            subscribed_topic_regex=client.regex,
            server_assignor=client.assignor,
            owned=client.owned,
        )
        client.errors.append(answer.error)
        self.answered(client, answer)
        return answer.error

    def answered(self, client: Client, answer: HeartbeatAnswer) -> None:
        """The consumer takes the assignment over at once, or joins again when it is fenced."""
        if answer.error is ErrorCode.NONE:
            client.epoch = answer.member_epoch
            if answer.assignment is not None:
                client.owned = answer.assignment
        elif answer.error in (ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID):
            client.epoch, client.owned = 0, {}

    def leave(self, client: Client, epoch: int = -1) -> HeartbeatAnswer:
        answer = self.heartbeat(client.member_id, epoch, instance_id=client.instance_id)
        client.epoch, client.owned = 0, {}
        return answer

    def settle(self, *clients: Client, rounds: int = 12) -> None:
        """The clients beat until nothing changes any more."""
        for _ in range(rounds):
            for client in clients:
                self.beat(client)
        assert self.group.state.value == "Stable", self.group.image

    # Time

    def advance(self, milliseconds: int) -> None:
        end = self.now_ms + milliseconds
        while due := [(deadline, key) for key, deadline in self.timers.items() if deadline <= end]:
            deadline, key = min(due, key=lambda each: each[0])
            del self.timers[key]
            self.now_ms = deadline
            before = self.group.image
            self.group.expire(key, self.topics)
            self.carry_out(before)
        self.now_ms = end

    # The log

    def carry_out(self, before: ConsumerGroupImage) -> None:
        for effect in self.group.take_effects():
            if isinstance(effect, SetTimer):
                if not (effect.keeps_running and effect.key in self.timers):
                    self.timers[effect.key] = self.now_ms + effect.delay_ms
            elif isinstance(effect, StopTimer):
                self.timers.pop(effect.key, None)
            elif isinstance(effect, ResolveExpressions):
                self.pending = effect.regexes
            elif isinstance(effect, ConvertToClassic):
                self.conversions.append(effect.leaving)
        write = self.group.take_write()
        if write is not None and self.writes_fail:
            self.group.write_failed(write)
        elif write is not None:
            self.log += write.records
            self.batches.append(len(self.log))
        self.check(before)

    pending: tuple[str, ...] = ()

    def resolve(self) -> None:
        """The topics of the regular expressions that the group has asked for are found."""
        regexes, self.pending = self.pending, ()
        if regexes:
            before = self.group.image
            found = matching(regexes, self.topics.names())
            self.group.resolved(found, self.topics.version, self.now_ms, self.topics)
            self.carry_out(before)

    def replayed(self, length: int | None = None) -> ConsumerGroupImage:
        """The group that the first records of the log give."""
        values: dict[RecordKey, bytes] = {}
        for key, value in self.log[:length]:
            (version,) = _VERSION.unpack_from(key)
            group_id, record_key = read_key(RecordKind(version), memoryview(key))
            assert group_id == "g"
            values.pop(record_key, None)
            if value is not None:
                values[record_key] = value
        return image_of("g", values)

    def restart(self) -> None:
        """Another broker loads the group."""
        self.group = ConsumerGroup(self.replayed(), self.config)
        self.timers.clear()
        self.pending = ()
        self.group.start()
        self.carry_out(self.group.image)

    def check(self, before: ConsumerGroupImage) -> None:
        image = self.group.image
        one_owner(image)
        assert image.epoch >= before.epoch
        assert image.assignment_epoch >= before.assignment_epoch
        assert image.epoch >= image.assignment_epoch
        for member_id, member in image.members.items():
            assert member.member_epoch <= image.assignment_epoch
            previous = before.members.get(member_id)
            if previous is not None and previous.instance_id is None:
                assert member.member_epoch >= previous.member_epoch
        targets = [partition for target in image.targets.values() for partition in partitions_of(target)]
        assert len(targets) == len(set(targets)), "a partition is in two target assignments"
        if not self.writes_fail:
            assert self.replayed() == image, "the log gives another group"


def one_owner(image: ConsumerGroupImage) -> None:
    owned = [partition for member in image.members.values() for partition in owned_by(member)]
    assert len(owned) == len(set(owned)), f"a partition has two owners: {image}"
