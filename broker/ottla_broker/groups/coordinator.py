"""The group coordinator of one broker: which groups it has, loading and unloading them, and their requests.

Thin: rules are in `machine.py` (classic groups), `consumer/` (groups of the consumer protocol, KIP-848) and
`offsets.py`; this module finds the group, appends its records, awaits them and translates errors. `group_factory.py`
makes the groups. A group belongs to a partition of `__consumer_offsets`; whoever leads the partition coordinates the
group. Ports used: Clock. The log is a `TransactionalTopicLog`.

`partitions` has the partitions that this broker leads, and loads them (`internal_topics.owned_partitions`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from ottla_broker.config import BrokerConfig
from ottla_broker.config.topics import CONSUMER_OFFSETS
from ottla_broker.groups.append_errors import OF_GROUP_RECORD, OF_OFFSET_COMMIT
from ottla_broker.groups.consumer.group_image import JOIN_EPOCH, ConsumerGroupImage, TopicView
from ottla_broker.groups.consumer.group_requests import GroupHeartbeat, GroupRequestRefused, HeartbeatAnswer
from ottla_broker.groups.consumer.heartbeats import check_heartbeat
from ottla_broker.groups.consumer.target_assignment import preferred_assignor
from ottla_broker.groups.decisions import (
    NO_GENERATION,
    NO_MEMBER_ID,
    GroupSnapshot,
    GroupWrite,
    JoinAnswer,
    JoinRequest,
    LeavingMember,
    SyncAnswer,
    SyncRequest,
    WritePurpose,
)
from ottla_broker.groups.group_factory import AnyLiveGroup, GroupFactory
from ottla_broker.groups.group_overview import GroupOverview
from ottla_broker.groups.live_consumer_group import Describable, LiveConsumerGroup
from ottla_broker.groups.live_group import LiveGroup
from ottla_broker.groups.metrics import GroupMetrics
from ottla_broker.groups.offsets import CommittedOffset, GroupOffsets
from ottla_broker.groups.records import group_record, offset_record, offset_tombstone
from ottla_broker.groups.replay import Replay
from ottla_broker.groups.states import GroupState
from ottla_broker.internal_topics.owned_partitions import OwnedPartition, OwnedPartitions, PartitionContent
from ottla_broker.internal_topics.topic_log import (
    AppendOutcome,
    StateRecord,
    TransactionalProducer,
    TransactionalTopicLog,
)
from ottla_broker.metrics import Metrics
from ottla_broker.ports.clock import Clock, Timer
from ottla_broker.protocol.codec import EncodeError
from ottla_broker.protocol.errors import ErrorCode
from ottla_broker.records.ids import TopicPartition
from ottla_broker.storage.log.verification import Verification

logger = logging.getLogger("ottla.groups")

OFFSETS_PER_TURN = 20_000
"""The search for expired offsets does so after so many."""
MAX_STRING_BYTES = 32_767
"""Of a string in a record."""


@dataclass(frozen=True, slots=True)
class OffsetConfig:
    """Broker configuration of committed offsets; every field is named after its key."""

    offset_metadata_max_bytes: int = 4096
    offsets_retention_minutes: int = 10_080
    offsets_retention_check_interval_ms: int = 600_000
    offsets_commit_timeout_ms: int = 5_000
    offsets_commit_required_acks: int = -1
    offsets_topic_num_partitions: int = 50

    @staticmethod
    def from_config(config: BrokerConfig) -> OffsetConfig:
        """The values of a broker."""
        return OffsetConfig(
            config.offset_metadata_max_bytes,
            config.offsets_retention_minutes,
            config.offsets_retention_check_interval_ms,
            config.offsets_commit_timeout_ms,
            config.offsets_commit_required_acks,
            config.offsets_topic_num_partitions,
        )


class FetchedOffset(NamedTuple):
    """`committed` is None when there is none, or with an error."""

    partition: TopicPartition
    committed: CommittedOffset | None
    error: ErrorCode = ErrorCode.NONE


class CommittingMember(NamedTuple):
    """Who commits offsets in a transaction (KIP-447); the defaults are of a producer that names no member."""

    member_id: str = NO_MEMBER_ID
    group_instance_id: str | None = None
    generation_id: int = NO_GENERATION


class _Marker(NamedTuple):
    """A transaction marker that is committed in the partition."""

    producer_id: int
    offset: int
    is_commit: bool


class GroupDescription(NamedTuple):
    """One group; with an error `state` is empty, an unknown group is "Dead"."""

    error: ErrorCode
    state: str
    snapshot: GroupSnapshot | None


class ConsumerGroupDescription(NamedTuple):
    """One group of the consumer protocol; with an error `image` is None."""

    error: ErrorCode
    message: str | None = None
    state: str = ""
    image: ConsumerGroupImage | None = None
    assignor: str = ""


@dataclass(slots=True)
class _Groups:
    """What a partition has."""

    groups: dict[str, AnyLiveGroup] = field(default_factory=dict)
    open_transactions: dict[int, dict[str, None]] = field(default_factory=dict)
    """By producer id, the groups that have offsets of its transaction."""
    markers: list[_Marker] = field(default_factory=list)
    """Those that were committed while it was loading."""

    def end_transaction(self, marker: _Marker) -> None:
        producer_id, offset, is_commit = marker
        for group_id in self.open_transactions.pop(producer_id, {}):
            live = self.groups.get(group_id)
            if live is not None:
                live.offsets.end_transaction(producer_id, offset, is_commit=is_commit)
                if live.offsets.has_transactional(producer_id):  # of its next transaction
                    self.add_transaction(producer_id, group_id)

    def add_transaction(self, producer_id: int, group_id: str) -> None:
        self.open_transactions.setdefault(producer_id, {})[group_id] = None


class GroupCoordinator:
    """Made once per broker. `partition_count` gives the number of partitions of `__consumer_offsets`, 0 while it does
    not exist (then `offsets.topic.num.partitions` counts), None while it is not known (then every group is loading).
    `topics` are those that consumers subscribe to."""

    def __init__(
        self,
        *,
        clock: Clock,
        log: TransactionalTopicLog,
        metrics: Metrics,
        config: BrokerConfig,
        partition_count: Callable[[], int | None],
        topics: TopicView,
    ) -> None:
        self._clock = clock
        self._log = log
        self.config = OffsetConfig.from_config(config)
        self._is_active = False
        self._retention_timer: Timer | None = None
        self._metrics = GroupMetrics(metrics, self._live_groups)
        content = PartitionContent(
            empty=_Groups,
            replay=Replay,
            before_serving=None,
            restore=self._restore,
            serve=_start,
            release=_unload,
            count=lambda groups: len(groups.groups),
            observe_load=self._metrics.partition_load.observe,
        )
        count = self.config.offsets_topic_num_partitions
        self.partitions = OwnedPartitions(
            clock, log, logger, CONSUMER_OFFSETS, "group", partition_count, count, content
        )
        self._factory = GroupFactory(
            clock,
            config,
            topics,
            self._store_group,
            lambda live, records: self._append(live.group_id, records),
            self._downgrade,
            self._metrics.consumer_group_rebalances.inc,
        )

    # Start, end, leadership

    def start(self) -> None:
        self._is_active = True
        self._schedule_retention()

    def close(self) -> None:
        """Answers COORDINATOR_NOT_AVAILABLE from now on; requests that wait get NOT_COORDINATOR."""
        self._is_active = False
        if self._retention_timer is not None:
            self._retention_timer.cancel()
        self.partitions.close()
        self.partitions.log_unloads()

    def on_partitions_deleted(self, partitions: Iterable[TopicPartition]) -> None:
        """Offsets of deleted topics go; the tombstones are appended without waiting for them."""
        gone = list(partitions)
        for owned in self.partitions:
            for live in list(owned.state.groups.values()):
                self._append_removal(owned, live, live.offsets.remove(gone))

    def end_transaction(
        self, partition: int, leader_epoch: int, producer_id: int, marker_offset: int, *, is_commit: bool
    ) -> None:
        """A marker of the producer, which this broker appended in that epoch at that offset, is committed in the
        partition: the offsets that the transaction committed before it count now, or are forgotten.

        A marker of an earlier leadership of ours was loaded with the rest.
        """
        owned = self.partitions.get(partition)
        if owned is None or leader_epoch < owned.first_epoch:
            return
        marker = _Marker(producer_id, marker_offset, is_commit)
        if owned.is_loading:
            owned.state.markers.append(marker)
        else:
            owned.state.end_transaction(marker)

    # Membership

    async def join(self, group_id: str, request: JoinRequest) -> JoinAnswer:
        """JoinGroup. Before the errors of `Group.join`: INVALID_GROUP_ID, COORDINATOR_NOT_AVAILABLE,
        COORDINATOR_LOAD_IN_PROGRESS, NOT_COORDINATOR, INVALID_SESSION_TIMEOUT, UNKNOWN_MEMBER_ID (no such group)."""
        error = self._check(group_id)
        config = self._factory.config
        if error is ErrorCode.NONE and not (
            config.group_min_session_timeout_ms <= request.session_timeout_ms <= config.group_max_session_timeout_ms
        ):
            error = ErrorCode.INVALID_SESSION_TIMEOUT
        if error is not ErrorCode.NONE:
            return JoinAnswer(error, request.member_id)
        live = self._find(group_id)
        if isinstance(live, LiveConsumerGroup) and live.is_empty:
            self._downgrade(live, ())
            live = self._find(group_id)
        if live is None:
            if request.member_id != NO_MEMBER_ID:
                return JoinAnswer(ErrorCode.UNKNOWN_MEMBER_ID, request.member_id)
            live = self._create(group_id)
        return await live.join(request)

    async def sync(self, group_id: str, request: SyncRequest) -> SyncAnswer:
        """SyncGroup. REBALANCE_IN_PROGRESS while the group is being loaded: the rebalance is lost, and the member joins
        again."""
        error = self._check(group_id)
        if error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            return SyncAnswer(ErrorCode.REBALANCE_IN_PROGRESS)
        if error is not ErrorCode.NONE:
            return SyncAnswer(error)
        live = self._find(group_id)
        if live is None:
            return SyncAnswer(ErrorCode.UNKNOWN_MEMBER_ID)
        return await live.sync(request)

    def heartbeat(self, group_id: str, member_id: str, group_instance_id: str | None, generation_id: int) -> ErrorCode:
        """Heartbeat. NONE while the group is being loaded, so that the member stays."""
        error = self._check(group_id)
        if error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            return ErrorCode.NONE
        if error is not ErrorCode.NONE:
            return error
        live = self._find(group_id)
        if live is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        return live.heartbeat(member_id, group_instance_id, generation_id)

    async def leave(self, group_id: str, members: Sequence[LeavingMember]) -> tuple[ErrorCode, list[ErrorCode]]:
        """LeaveGroup: the error of the request, else one per member."""
        error = self._check(group_id)
        if error is not ErrorCode.NONE:
            return error, []
        live = self._find(group_id)
        if live is None:
            return ErrorCode.NONE, [ErrorCode.UNKNOWN_MEMBER_ID] * len(members)
        return await live.leave(members)

    async def consumer_heartbeat(
        self, group_id: str, request: GroupHeartbeat, api_version: int, describable: Describable | None = None
    ) -> HeartbeatAnswer:
        """ConsumerGroupHeartbeat (KIP-848): answered when the log has what it changed. Before the errors of
        `heartbeats.heartbeat`: COORDINATOR_NOT_AVAILABLE, INVALID_REQUEST, UNSUPPORTED_ASSIGNOR, NOT_COORDINATOR,
        COORDINATOR_LOAD_IN_PROGRESS, GROUP_ID_NOT_FOUND.

        Args:
            describable: see `LiveConsumerGroup.begin`.

        A member that joins creates the group, or converts a classic one where the migration policy allows it.
        """
        if not self._is_active:
            return HeartbeatAnswer(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        try:
            check_heartbeat(group_id, request, api_version, self._factory.consumer_config.group_consumer_assignors)
            error = self._check(group_id)
            if error is not ErrorCode.NONE:
                return HeartbeatAnswer(error)
            live = self._consumer_group(group_id, may_create=request.member_epoch == JOIN_EPOCH)
        except GroupRequestRefused as refusal:
            return HeartbeatAnswer(refusal.error, refusal.message)
        answer = live.begin(request, describable)
        if answer.error is ErrorCode.NONE:
            self._install(live)
        return await live.finish(answer)

    # Offsets

    async def commit(
        self,
        group_id: str,
        member_id: str,
        group_instance_id: str | None,
        generation_id: int,
        commits: Mapping[TopicPartition, CommittedOffset],
        api_version: int = 8,
    ) -> dict[TopicPartition, ErrorCode]:
        """OffsetCommit: answered when the log has it. ILLEGAL_GENERATION for a member of an unknown group;
        OFFSET_METADATA_TOO_LARGE per partition, the others are stored all the same."""
        error = self._check(group_id, allows_empty_id=True)
        if error is not ErrorCode.NONE:
            return dict.fromkeys(commits, error)
        live = self._find(group_id)
        if live is None:
            if generation_id >= 0:
                return dict.fromkeys(commits, ErrorCode.ILLEGAL_GENERATION)
            live = self._create(group_id)
        error = live.check_commit(member_id, group_instance_id, generation_id, api_version)
        if error is not ErrorCode.NONE:
            return dict.fromkeys(commits, error)
        accepted = self._with_fitting_metadata(commits)
        error = await self._store_offsets(live, accepted) if accepted else ErrorCode.NONE
        return {
            partition: error if partition in accepted else ErrorCode.OFFSET_METADATA_TOO_LARGE for partition in commits
        }

    async def commit_in_transaction(
        self,
        group_id: str,
        producer: TransactionalProducer,
        member: CommittingMember,
        commits: Mapping[TopicPartition, CommittedOffset],
        *,
        adds_partition: bool = False,
    ) -> dict[TopicPartition, ErrorCode]:
        """TxnOffsetCommit: answered when the log has it; the offsets count when the producer's marker commits them.

        With `adds_partition` the group's partition of `__consumer_offsets` is added to the transaction (KIP-890).
        First the transaction is verified, then the member: it may be fenced while the transaction coordinator is asked.
        Source: GroupCoordinator.handleTxnCommitOffsets.
        """
        error = self._check(group_id)
        if error is ErrorCode.NONE:
            if self._find(group_id) is None:
                self._create(group_id)  # whatever comes of the request, as Apache Kafka does
            owned = self._owned(group_id)
            verified = await self._log.verify_transaction(
                owned.index, owned.leader_epoch, producer, adds_partition=adds_partition
            )
            error = OF_OFFSET_COMMIT.get(verified.error, verified.error)
        if error is ErrorCode.NONE:
            error = self._check(group_id)  # it may have moved meanwhile
        if error is not ErrorCode.NONE:
            return dict.fromkeys(commits, error)
        live = self._find(group_id) or self._create(group_id)
        error = live.check_transactional_commit(*member, api_version=0)
        if error is not ErrorCode.NONE:
            return dict.fromkeys(commits, error)
        accepted = self._with_fitting_metadata(commits)
        if accepted:
            error = await self._store_transactional(live, producer, verified.verification, accepted)
        return {
            partition: error if partition in accepted else ErrorCode.OFFSET_METADATA_TOO_LARGE for partition in commits
        }

    def _with_fitting_metadata(
        self, commits: Mapping[TopicPartition, CommittedOffset]
    ) -> dict[TopicPartition, CommittedOffset]:
        return {
            partition: commit
            for partition, commit in commits.items()
            if not self.is_metadata_too_large(commit.metadata)
        }

    def is_metadata_too_large(self, metadata: str) -> bool:
        """Longer than `offset.metadata.max.bytes`, which Apache Kafka counts in UTF-16 code units, or than what the
        record's string can hold."""
        limit = min(self.config.offset_metadata_max_bytes, MAX_STRING_BYTES)
        if metadata.isascii():
            return len(metadata) > limit
        if len(metadata.encode("utf-8", "surrogatepass")) > MAX_STRING_BYTES:
            return True
        return len(metadata.encode("utf-16-le", "surrogatepass")) // 2 > limit

    def fetch(
        self,
        group_id: str,
        partitions: Sequence[TopicPartition] | None,
        *,
        require_stable: bool,
        member_id: str | None = None,
        member_epoch: int = -1,
    ) -> tuple[ErrorCode, list[FetchedOffset]]:
        """OffsetFetch of these partitions, or of all that have an offset. UNSTABLE_OFFSET_COMMIT per partition. In a
        group of the consumer protocol UNKNOWN_MEMBER_ID and STALE_MEMBER_EPOCH, where the member is given."""
        error = self._check(group_id, allows_empty_id=True)
        if error is not ErrorCode.NONE:
            return error, []
        live = self._find(group_id)
        error = ErrorCode.NONE if live is None else live.check_fetch(member_id, member_epoch)
        if error is not ErrorCode.NONE:
            return error, []
        offsets = GroupOffsets() if live is None else live.offsets
        found = []
        for partition in offsets.stored if partitions is None else partitions:
            if require_stable and offsets.is_unstable(partition):
                found.append(FetchedOffset(partition, None, ErrorCode.UNSTABLE_OFFSET_COMMIT))
            else:
                found.append(FetchedOffset(partition, offsets.get(partition)))
        return ErrorCode.NONE, found

    def partitions_with_offset(self, group_id: str) -> list[TopicPartition]:
        """The partitions that the group has an offset of; none where this broker does not coordinate it."""
        if self._check(group_id, allows_empty_id=True) is not ErrorCode.NONE:
            return []
        live = self._find(group_id)
        return [] if live is None else list(live.offsets.stored)

    async def delete_offsets(
        self, group_id: str, partitions: Sequence[TopicPartition]
    ) -> tuple[ErrorCode, dict[TopicPartition, ErrorCode]]:
        """OffsetDelete (KIP-496): GROUP_ID_NOT_FOUND, NON_EMPTY_GROUP (members, and not of consumers);
        GROUP_SUBSCRIBED_TO_TOPIC per partition."""
        error = self._check(group_id)
        if error is not ErrorCode.NONE:
            return error, {}
        live = self._find(group_id)
        if live is None:
            return ErrorCode.GROUP_ID_NOT_FOUND, {}
        subscribed = live.subscribed_among(partitions)
        if subscribed is None:
            return ErrorCode.NON_EMPTY_GROUP, {}
        deleted = [partition for partition in partitions if partition not in subscribed]
        if deleted:  # else the group stays, even one without offsets
            removed = live.offsets.remove(deleted)
            self._metrics.offset_deletions.inc(len(removed))
            error = await self._finish_removal(live, removed)
        return ErrorCode.NONE, {
            partition: ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC if partition in subscribed else error
            for partition in partitions
        }

    # Administration

    def describe(self, group_id: str) -> GroupDescription:
        """DescribeGroups: a group that is not there, or is one of the consumer protocol, is Dead."""
        error = self._check(group_id, allows_empty_id=True)
        if error is not ErrorCode.NONE:
            return GroupDescription(error, "", None)
        live = self._find(group_id)
        if not isinstance(live, LiveGroup):
            return GroupDescription(ErrorCode.NONE, GroupState.DEAD.value, None)
        return GroupDescription(ErrorCode.NONE, live.group.state.value, live.group.snapshot())

    def describe_consumer_group(self, group_id: str) -> ConsumerGroupDescription:
        """ConsumerGroupDescribe: INVALID_GROUP_ID, COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR,
        COORDINATOR_LOAD_IN_PROGRESS, GROUP_ID_NOT_FOUND (also for a classic group)."""
        error = self._check(group_id)
        if error is not ErrorCode.NONE:
            return ConsumerGroupDescription(error)
        live = self._find(group_id)
        if isinstance(live, LiveConsumerGroup):
            assignors = self._factory.consumer_config.group_consumer_assignors
            image = live.group.image
            return ConsumerGroupDescription(
                ErrorCode.NONE, None, live.group.state.value, image, preferred_assignor(image.members, assignors)
            )
        return ConsumerGroupDescription(ErrorCode.GROUP_ID_NOT_FOUND, _not_found(group_id, live))

    def list(self) -> tuple[ErrorCode, Iterator[GroupOverview]]:
        """Every group of this broker, each as it is when the iterator gives it; COORDINATOR_LOAD_IN_PROGRESS beside
        them when some are still being loaded."""
        if not self._is_active:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE, iter(())
        error = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if self.partitions.is_any_loading else ErrorCode.NONE
        return error, (live.overview() for live in tuple(self._live_groups()))

    async def delete(self, group_id: str) -> ErrorCode:
        """DeleteGroups, one group: GROUP_ID_NOT_FOUND, NON_EMPTY_GROUP. Answered when the tombstones are stored."""
        error = self._check(group_id, allows_empty_id=True)
        if error is not ErrorCode.NONE:
            return error
        live = self._find(group_id)
        if live is None:
            return ErrorCode.GROUP_ID_NOT_FOUND
        if not live.is_empty:
            return ErrorCode.NON_EMPTY_GROUP
        live.delete()
        return await self._finish_removal(live, live.offsets.remove(live.offsets.known()))

    async def expire_offsets(self) -> None:
        """Removes what has outlived its retention, and groups that have nothing left."""
        now_ms = self._clock.now_ms()
        retention_ms = self.config.offsets_retention_minutes * 60_000
        count = 0
        for owned in self.partitions:
            for live in list(owned.state.groups.values()):
                if not self.partitions.is_current(owned):
                    break  # it moved away while the loop did other work
                if owned.state.groups.get(live.group_id) is not live:
                    continue  # it was deleted, and may have been created again
                count += len(live.offsets)
                rule = live.expiry_rule()
                expired = [] if rule is None else live.offsets.expired(rule, now_ms, retention_ms)
                removed = live.offsets.remove(expired)
                self._metrics.offset_expirations.inc(len(removed))
                self._append_removal(owned, live, removed)
                if count >= OFFSETS_PER_TURN:
                    count = 0
                    await self._clock.sleep(0)

    # Groups

    def _check(self, group_id: str, *, allows_empty_id: bool = False) -> ErrorCode:
        """The empty id is allowed where it was before groups were managed (offsets), and to see and delete such."""
        if not group_id and not allows_empty_id:
            return ErrorCode.INVALID_GROUP_ID
        if not self._is_active:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        return self.partitions.find(group_id)[0]

    def _find(self, group_id: str) -> AnyLiveGroup | None:
        owned = self.partitions.of(group_id)
        return None if owned is None else owned.state.groups.get(group_id)

    def _owned(self, group_id: str) -> OwnedPartition[_Groups]:
        """The partition of a group that is here."""
        owned = self.partitions.of(group_id)
        assert owned is not None, group_id
        return owned

    def _create(self, group_id: str) -> LiveGroup:
        live = self._factory.classic(group_id, GroupOffsets())
        self._owned(group_id).state.groups[group_id] = live
        return live

    def _consumer_group(self, group_id: str, *, may_create: bool) -> LiveConsumerGroup:
        """The group, or one that takes the place of a classic one or of none once it is installed.

        Raises:
            GroupRequestRefused: there is none, and none can be made.
        """
        live = self._find(group_id)
        if isinstance(live, LiveConsumerGroup):
            return live
        if not may_create:
            raise GroupRequestRefused(ErrorCode.GROUP_ID_NOT_FOUND, _not_found(group_id, live))
        return self._factory.upgraded(group_id, live)

    def _install(self, live: LiveConsumerGroup) -> None:
        """The group is there from now on; a classic one of its id ends."""
        groups = self._owned(live.group_id).state.groups
        previous = groups.get(live.group_id)
        if previous is live:
            return
        groups[live.group_id] = live
        if isinstance(previous, LiveGroup):
            logger.info("group %s: a classic group becomes one of the consumer protocol", live.group_id)
            previous.convert()

    def _downgrade(self, live: LiveConsumerGroup, leaving: tuple[str, ...]) -> asyncio.Future[AppendOutcome] | None:
        """A group of the consumer protocol becomes a classic one; the append of its records, None when the partition
        has moved away."""
        owned = self.partitions.of(live.group_id)
        if owned is None or owned.state.groups.get(live.group_id) is not live:
            return None
        classic, records = self._factory.downgraded(live, leaving)
        logger.info("group %s: it becomes a classic group", live.group_id)
        live.unload()
        owned.state.groups[live.group_id] = classic
        appended = self._append(live.group_id, records)
        self._clock.spawn(self._await_downgrade(classic, records, appended), name=f"convert group {live.group_id}")
        classic.start()
        return appended

    async def _await_downgrade(
        self, classic: LiveGroup, records: Sequence[StateRecord], appended: asyncio.Future[AppendOutcome] | None
    ) -> None:
        error = ErrorCode.NOT_LEADER_OR_FOLLOWER if appended is None else (await appended).error
        if error is not ErrorCode.NONE:
            logger.warning("group %s: its conversion could not be stored: %s", classic.group_id, error.name)
            classic.owed = [*records]

    def _live_groups(self) -> Iterator[AnyLiveGroup]:
        for owned in self.partitions:
            yield from owned.state.groups.values()

    # Writing

    def _append(self, group_id: str, records: Sequence[StateRecord]) -> asyncio.Future[AppendOutcome] | None:
        """The append, which has its place in the log when this returns; None when the partition has moved away."""
        owned = self.partitions.of(group_id)
        return None if owned is None else self._append_to(owned, records)

    def _append_to(
        self, owned: OwnedPartition[_Groups], records: Sequence[StateRecord]
    ) -> asyncio.Future[AppendOutcome]:
        return self._log.append(
            owned.index,
            owned.leader_epoch,
            records,
            required_acks=self.config.offsets_commit_required_acks,
            timeout_ms=self.config.offsets_commit_timeout_ms,
        )

    def _store_group(self, live: LiveGroup, write: GroupWrite) -> None:
        if write.purpose is WritePurpose.ASSIGNMENT:
            self._metrics.completed_rebalances.inc()
        size = sum(len(member.subscription) + len(member.assignment) for member in write.snapshot.members)
        try:
            if size > self._log.most_bytes(self.partitions.index_of(live.group_id)):
                raise EncodeError(f"subscriptions and assignments have {size} bytes")  # it would take time to make it
            appended = self._append(live.group_id, [*live.owed, group_record(write.snapshot)])
        except EncodeError as error:
            logger.error("group %s does not fit a record: %s", live.group_id, error)
            appended = self._clock.create_future()
            appended.set_result(AppendOutcome(ErrorCode.MESSAGE_TOO_LARGE))
        self._clock.spawn(self._await_group(live, write, appended), name=f"store group {live.group_id}")

    async def _await_group(
        self, live: LiveGroup, write: GroupWrite, appended: asyncio.Future[AppendOutcome] | None
    ) -> None:
        error = ErrorCode.NOT_LEADER_OR_FOLLOWER if appended is None else (await appended).error
        if error is not ErrorCode.NONE:
            logger.warning("group %s: its record could not be stored: %s", live.group_id, error.name)
        else:
            live.owed.clear()
        live.stored(write, OF_GROUP_RECORD.get(error, error))

    async def _store_offsets(self, live: AnyLiveGroup, commits: Mapping[TopicPartition, CommittedOffset]) -> ErrorCode:
        group_id = live.group_id
        records = [offset_record(group_id, partition, commit) for partition, commit in commits.items()]
        live.offsets.stage(commits)
        appended = self._append(group_id, records)
        outcome = AppendOutcome(ErrorCode.NOT_LEADER_OR_FOLLOWER) if appended is None else await appended
        if outcome.error is ErrorCode.NONE:
            self._metrics.offset_commits.inc(len(commits))
            live.offsets.complete(commits, outcome.base_offset)
            return ErrorCode.NONE
        live.offsets.fail(commits)
        return OF_OFFSET_COMMIT.get(outcome.error, outcome.error)

    async def _store_transactional(
        self,
        live: AnyLiveGroup,
        producer: TransactionalProducer,
        verification: Verification | None,
        commits: Mapping[TopicPartition, CommittedOffset],
    ) -> ErrorCode:
        """One that is not confirmed in time stays in the transaction: the log has it, and its marker settles it."""
        group_id = live.group_id
        owned = self._owned(group_id)
        base_offset, appended = self._log.append_in_transaction(
            owned.index,
            owned.leader_epoch,
            [offset_record(group_id, partition, commit) for partition, commit in commits.items()],
            producer,
            verification,
            required_acks=self.config.offsets_commit_required_acks,
            timeout_ms=self.config.offsets_commit_timeout_ms,
        )
        if base_offset >= 0:
            owned.state.add_transaction(producer.producer_id, group_id)
            for partition, commit in commits.items():
                live.offsets.put_transactional(producer.producer_id, partition, commit, base_offset)
        error = (await appended).error
        if error is ErrorCode.NONE:
            self._metrics.offset_commits.inc(len(commits))
        return OF_OFFSET_COMMIT.get(error, error)

    def _append_removal(
        self, owned: OwnedPartition[_Groups], live: AnyLiveGroup, removed: Sequence[TopicPartition]
    ) -> asyncio.Future[AppendOutcome] | None:
        """Appends tombstones for removed offsets, and ends the group when it is empty and has none left."""
        if live.may_end and live.offsets.is_empty:
            live.delete()
        records = [offset_tombstone(live.group_id, partition) for partition in removed]
        if live.is_dead and owned.state.groups.get(live.group_id) is live:
            del owned.state.groups[live.group_id]
            records += live.own_tombstones()
        return self._append_to(owned, records) if records else None

    async def _finish_removal(self, live: AnyLiveGroup, removed: Sequence[TopicPartition]) -> ErrorCode:
        appended = self._append_removal(self._owned(live.group_id), live, removed)
        error = ErrorCode.NONE if appended is None else (await appended).error
        return OF_OFFSET_COMMIT.get(error, error)

    def _restore(self, owned: OwnedPartition[_Groups], replay: Replay) -> None:
        state = owned.state
        for replayed in replay.groups():
            state.groups[replayed.group_id] = self._factory.restored(replayed)
        state.open_transactions = replay.open_transactions
        for marker in state.markers:
            state.end_transaction(marker)

    # Retention

    def _schedule_retention(self) -> None:
        self._retention_timer = self._clock.call_later(
            self.config.offsets_retention_check_interval_ms / 1000, self._check_retention
        )

    def _check_retention(self) -> None:
        self._clock.spawn(self.expire_offsets(), name="expire offsets")
        self._schedule_retention()


def _start(owned: OwnedPartition[_Groups]) -> None:
    for live in list(owned.state.groups.values()):
        live.start()


def _unload(owned: OwnedPartition[_Groups]) -> None:
    for live in owned.state.groups.values():
        live.unload()


def _not_found(group_id: str, live: LiveGroup | None) -> str:
    return f"Group {group_id} not found." if live is None else f"Group {group_id} is not a consumer group."
