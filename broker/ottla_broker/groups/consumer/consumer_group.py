"""One group of the consumer rebalance protocol (KIP-848): its image, who owns which partition, what is not written yet.

Pure: no clock, no randomness, no await. `heartbeats` has the requests of members of the consumer protocol,
`classic_members` those of the classic protocol; both make a new image and install it here.

Rules
- An operation that is refused changes nothing; one that is not installs its image once, with its effects.
- The records to write are the difference of the images (`take_write`). What could not be written is written with the
  next operation: the log catches up with the group, whatever was lost in between.
- A partition has one owner: a member owns what it has assigned and what it still has to revoke.
- The group epoch and the assignment epoch never fall; the epoch of a member neither, except where a static member
  leaves or is replaced.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from ottla_broker.groups.consumer.consumer_records import (
    RecordKey,
    changed_keys,
    every_key,
    records_of,
    tombstones_of,
)
from ottla_broker.groups.consumer.group_image import (
    ConsumerGroupImage,
    ConsumerMember,
    ResolvedExpression,
    TopicId,
    TopicView,
)
from ottla_broker.groups.consumer.group_requests import (
    ConsumerGroupConfig,
    ConsumerGroupEffect,
    ConsumerGroupWrite,
    ConvertToClassic,
    MemberTimer,
    MemberTimerKey,
    SetTimer,
    StopTimer,
)
from ottla_broker.groups.consumer.states import ConsumerGroupState, MemberState
from ottla_broker.groups.consumer.target_assignment import with_topics
from ottla_broker.groups.decisions import Explain
from ottla_broker.internal_topics.topic_log import StateRecord
from ottla_broker.protocol.errors import ErrorCode

CONSUMER_GROUP_OFFSET_COMMIT_VERSION = 9
"""The first OffsetCommit version whose response may carry STALE_MEMBER_EPOCH."""


class ConsumerGroup:
    """Made empty, or with the image that its records give (see `start`)."""

    def __init__(self, image: ConsumerGroupImage, config: ConsumerGroupConfig) -> None:
        self.image = image
        self.config = config
        self.is_dead = False
        self.topics_version: int | None = None
        """Of the metadata that the image's topics were last compared with; None when not yet."""
        self.expressions_version: int | None = None
        """Of the metadata that the regular expressions were last resolved with; None when not yet."""
        self.is_resolving = False
        """The topics that match are being looked for."""
        self._owners: dict[tuple[TopicId, int], str] = {}
        self._static_ids: dict[str, str] = {}
        self._unwritten: dict[RecordKey, None] = {}
        self._effects: list[ConsumerGroupEffect] = []
        for member in image.members.values():
            self._index(member)

    # Questions

    @property
    def group_id(self) -> str:
        return self.image.group_id

    @property
    def state(self) -> ConsumerGroupState:
        return ConsumerGroupState.DEAD if self.is_dead else self.image.state

    @property
    def is_empty(self) -> bool:
        return not self.image.members

    def static_member(self, instance_id: str) -> ConsumerMember | None:
        """The member that has the instance id."""
        member_id = self._static_ids.get(instance_id)
        return None if member_id is None else self.image.members[member_id]

    def is_free(self, topic_id: TopicId, partition: int) -> bool:
        """Whether no member owns the partition."""
        return (topic_id, partition) not in self._owners

    def is_free_for(self, member_id: str, topic_id: TopicId, partition: int) -> bool:
        """Whether no other member owns the partition."""
        return self._owners.get((topic_id, partition), member_id) == member_id

    def is_subscribed_to(self, topic: str) -> bool:
        """Whether a member subscribes to the topic, also by a regular expression."""
        return any(topic in self.image.topics_of(member) for member in self.image.members.values())

    def subscribed_names(self) -> list[str]:
        return self.image.subscribed_names()

    def check_commit(
        self, member_id: str, member_epoch: int, instance_id: str | None, *, api_version: int, is_transactional: bool
    ) -> ErrorCode:
        """Whether offsets are accepted: UNKNOWN_MEMBER_ID, UNSUPPORTED_VERSION (OffsetCommit before version 9),
        ILLEGAL_GENERATION (a member of the classic protocol), STALE_MEMBER_EPOCH.

        Source: ConsumerGroup.validateOffsetCommit.
        """
        if member_epoch < 0 and self.is_empty:
            return ErrorCode.NONE  # an admin client, or a consumer that assigns itself
        if is_transactional and member_epoch == -1 and not member_id and instance_id is None:
            return ErrorCode.NONE  # TxnOffsetCommit does not ask for them
        member = self.image.members.get(member_id)
        if member is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        is_old = api_version < CONSUMER_GROUP_OFFSET_COMMIT_VERSION
        if not is_transactional and not member.uses_classic_protocol and is_old:
            return ErrorCode.UNSUPPORTED_VERSION
        return _check_same_epoch(member, member_epoch)

    def check_fetch(self, member_id: str | None, member_epoch: int) -> ErrorCode:
        """Whether offsets are given: UNKNOWN_MEMBER_ID, ILLEGAL_GENERATION, STALE_MEMBER_EPOCH.

        Source: ConsumerGroup.validateOffsetFetch.
        """
        if member_id is None and member_epoch < 0:
            return ErrorCode.NONE
        member = None if member_id is None else self.image.members.get(member_id)
        return ErrorCode.UNKNOWN_MEMBER_ID if member is None else _check_same_epoch(member, member_epoch)

    # Changes

    def install(self, image: ConsumerGroupImage, *effects: ConsumerGroupEffect) -> None:
        """The group is this image from now on; what differs is to be written."""
        before, self.image = self.image, image
        if image is not before:
            for key in changed_keys(before, image):
                self._unwritten[key] = None
            changed = [
                (old, image.members.get(member_id))
                for member_id, old in before.members.items()
                if image.members.get(member_id) is not old
            ]
            for old, _ in changed:
                self._unindex(old)
            for _, new in changed:
                if new is not None:
                    self._index(new)
            for member_id, member in image.members.items():
                if member_id not in before.members:
                    self._index(member)
        self._effects += effects

    def remove(self, member_ids: Iterable[str], reason: str, topics: TopicView) -> None:
        """Members leave or are removed: the group epoch rises.

        A group whose members of the classic protocol alone are left becomes a classic group, where the migration policy
        allows it. Source: GroupMetadataManager.consumerGroupFenceMembers.
        """
        gone = tuple(member_id for member_id in dict.fromkeys(member_ids) if member_id in self.image.members)
        if not gone:
            return
        explanation = Explain(f"{', '.join(gone)} removed: {reason}")
        if self._becomes_classic(gone):
            self._effects += [explanation, ConvertToClassic(gone)]
            return
        left = with_topics(self.image.without_members(gone), topics, bumps_epoch=True)
        stops = [StopTimer(MemberTimerKey(kind, member_id)) for member_id in gone for kind in MemberTimer]
        self.install(left, explanation, *stops)

    def expire(self, key: MemberTimerKey, topics: TopicView) -> None:
        """A timer has run out."""
        member = self.image.members.get(key.member_id)
        if member is None or self.is_dead:
            return
        if key.kind is MemberTimer.SESSION:
            self.remove([key.member_id], "its session timed out", topics)
        elif key.kind is MemberTimer.REVOCATION:
            # A member that has moved on since has another timer, or none.
            if member.state is MemberState.UNREVOKED_PARTITIONS:
                reason = f"it did not leave epoch {member.member_epoch} within {member.rebalance_timeout_ms} ms"
                self.remove([key.member_id], reason, topics)
        elif key.kind is MemberTimer.JOIN:
            self.remove([key.member_id], "it did not join again within its rebalance timeout", topics)
        else:
            self.remove([key.member_id], "it did not send SyncGroup within its rebalance timeout", topics)

    def resolved(self, found: dict[str, tuple[str, ...]], version: int, now_ms: int, topics: TopicView) -> None:
        """The topics that match regular expressions, by expression, in the metadata of that version.

        The group epoch rises where they have changed. Source: GroupMetadataManager.handleRegularExpressionsResult.
        """
        self.is_resolving = False
        self.expressions_version = version
        used = self.image.regexes()
        expressions = dict(self.image.expressions)
        has_changed = False
        for regex, names in found.items():
            if regex in used:
                previous = expressions.get(regex)
                has_changed = has_changed or (() if previous is None else previous.topics) != names
                expressions[regex] = ResolvedExpression(names, version, now_ms)
        image = with_topics(replace(self.image, expressions=expressions), topics, bumps_epoch=has_changed)
        self.install(image)

    def start(self) -> None:
        """A group from the log begins: its members have a session timeout to send a heartbeat."""
        for member in self.image.members.values():
            self._effects += session_timers(member, self.config)

    def stop(self) -> None:
        """The group is deleted, became a classic one, or its partition has another leader."""
        self.is_dead = True
        for member_id in self.image.members:
            self._effects += [StopTimer(MemberTimerKey(kind, member_id)) for kind in MemberTimer]

    # What the coordinator carries out

    def take_effects(self) -> list[ConsumerGroupEffect]:
        effects, self._effects = self._effects, []
        return effects

    def take_write(self) -> ConsumerGroupWrite | None:
        """The records that the log does not have yet; None when it has all."""
        if not self._unwritten:
            return None
        keys = tuple(self._unwritten)
        self._unwritten.clear()
        return ConsumerGroupWrite(keys, tuple(records_of(self.image, keys)))

    def write_failed(self, write: ConsumerGroupWrite) -> None:
        """The log may lack these records: they are written with the next ones, as they are then."""
        self._unwritten.update(dict.fromkeys(write.keys))

    def tombstones(self) -> list[StateRecord]:
        """For every record that the log may have."""
        return tombstones_of(self.group_id, dict.fromkeys([*every_key(self.image), *self._unwritten]))

    def adopt(self) -> None:
        """Everything is to be written: the group was a classic one until now."""
        self._unwritten.update(dict.fromkeys(every_key(self.image)))

    # Parts

    def _becomes_classic(self, leaving: tuple[str, ...]) -> bool:
        left = [member for member_id, member in self.image.members.items() if member_id not in leaving]
        return (
            bool(left)
            and all(member.uses_classic_protocol for member in left)
            and self.config.group_consumer_migration_policy.allows_downgrade
            and len(left) <= self.config.group_max_size
        )

    def _index(self, member: ConsumerMember) -> None:
        for partition in owned_by(member):
            self._owners[partition] = member.member_id
        if member.instance_id is not None:
            self._static_ids[member.instance_id] = member.member_id

    def _unindex(self, member: ConsumerMember) -> None:
        for partition in owned_by(member):
            if self._owners.get(partition) == member.member_id:
                del self._owners[partition]
        if member.instance_id is not None and self._static_ids.get(member.instance_id) == member.member_id:
            del self._static_ids[member.instance_id]


def owned_by(member: ConsumerMember) -> Iterator[tuple[TopicId, int]]:
    """What the member has assigned, and what it still has to revoke."""
    for assignment in (member.assigned, member.pending_revocation):
        for topic_id, partitions in assignment.items():
            for partition in partitions:
                yield topic_id, partition


def session_timers(member: ConsumerMember, config: ConsumerGroupConfig) -> list[ConsumerGroupEffect]:
    """The timers of a member that was loaded."""
    classic = member.classic
    session_ms = config.group_consumer_session_timeout_ms if classic is None else classic.session_timeout_ms
    timers: list[ConsumerGroupEffect] = [SetTimer(MemberTimerKey(MemberTimer.SESSION, member.member_id), session_ms)]
    if classic is None and member.state is MemberState.UNREVOKED_PARTITIONS:
        timers.append(SetTimer(MemberTimerKey(MemberTimer.REVOCATION, member.member_id), member.rebalance_timeout_ms))
    return timers


def _check_same_epoch(member: ConsumerMember, member_epoch: int) -> ErrorCode:
    if member_epoch == member.member_epoch:
        return ErrorCode.NONE
    return ErrorCode.ILLEGAL_GENERATION if member.uses_classic_protocol else ErrorCode.STALE_MEMBER_EPOCH
