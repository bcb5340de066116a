"""Makes the live groups of a coordinator: new ones, loaded ones, and converted ones (KIP-848). Port used: Clock.

What a group needs of its coordinator are callables; which groups there are is the coordinator's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from ottla_broker.config import BrokerConfig
from ottla_broker.groups.answer_queue import AnswerQueue
from ottla_broker.groups.consumer.assignors.offered import offered_assignors
from ottla_broker.groups.consumer.consumer_group import ConsumerGroup
from ottla_broker.groups.consumer.group_image import ConsumerGroupImage, TopicView
from ottla_broker.groups.consumer.group_requests import ConsumerGroupConfig, MigrationPolicy
from ottla_broker.groups.consumer.migration import downgraded, upgraded
from ottla_broker.groups.decisions import GroupConfig, GroupWrite
from ottla_broker.groups.live_consumer_group import Appender, Converter, LiveConsumerGroup
from ottla_broker.groups.live_group import LiveGroup
from ottla_broker.groups.machine import Group
from ottla_broker.groups.offsets import GroupOffsets
from ottla_broker.groups.records import group_record
from ottla_broker.groups.replay import ReplayedGroup
from ottla_broker.internal_topics.topic_log import StateRecord
from ottla_broker.ports.clock import Clock

AnyLiveGroup: TypeAlias = LiveGroup | LiveConsumerGroup


def consumer_group_config(config: BrokerConfig) -> ConsumerGroupConfig:
    """The values of a broker. ValueError for `group.consumer.assignors` that do not exist."""
    return ConsumerGroupConfig(
        offered_assignors(config.group_consumer_assignors),
        config.group_consumer_session_timeout_ms,
        config.group_consumer_heartbeat_interval_ms,
        config.group_consumer_max_size,
        MigrationPolicy.of(config.group_consumer_migration_policy),
        config.group_max_size,
    )


class GroupFactory:
    """`store_group` appends a record of a classic group, `append` records of a group of the consumer protocol."""

    def __init__(
        self,
        clock: Clock,
        config: BrokerConfig,
        topics: TopicView,
        store_group: Callable[[LiveGroup, GroupWrite], None],
        append: Appender,
        convert: Converter,
        on_rebalance: Callable[[], None],
    ) -> None:
        self.config = GroupConfig.from_config(config)
        self.consumer_config = consumer_group_config(config)
        self._clock = clock
        self._answers = AnswerQueue(clock)
        self._topics = topics
        self._store_group = store_group
        self._append = append
        self._convert = convert
        self._on_rebalance = on_rebalance

    def classic(self, group_id: str, offsets: GroupOffsets) -> LiveGroup:
        """A classic group without members."""
        return self._live(Group(group_id, self.config, self._clock.now_ms()), offsets)

    def restored(self, replayed: ReplayedGroup) -> AnyLiveGroup:
        """A group as the log has it."""
        if replayed.image is not None:
            return self.consumer(ConsumerGroup(replayed.image, self.consumer_config), replayed.offsets)
        if replayed.snapshot is None:
            return self.classic(replayed.group_id, replayed.offsets)
        return self._live(Group.restored(replayed.snapshot, self.config, self._clock.now_ms()), replayed.offsets)

    def consumer(
        self, group: ConsumerGroup, offsets: GroupOffsets, owed: Sequence[StateRecord] = ()
    ) -> LiveConsumerGroup:
        """A group of the consumer protocol. `owed`: see `LiveConsumerGroup`."""
        return LiveConsumerGroup(
            group, offsets, self._clock, self._topics, self._append, self._convert, self._on_rebalance, owed
        )

    def upgraded(self, group_id: str, classic: LiveGroup | None) -> LiveConsumerGroup:
        """A group of the consumer protocol in place of a classic one, or of none. The classic one stays as it is:
        `LiveGroup.convert` ends it once a member has joined.

        Raises:
            GroupRequestRefused: a classic group with members cannot be converted.
        """
        if classic is None or classic.is_empty:
            group = ConsumerGroup(ConsumerGroupImage(group_id), self.consumer_config)
        else:
            group = ConsumerGroup(upgraded(classic.group, self.consumer_config, self._topics), self.consumer_config)
            group.adopt()
            group.start()
        offsets = GroupOffsets() if classic is None else classic.offsets
        return self.consumer(group, offsets, () if classic is None else classic.own_tombstones())

    def downgraded(self, live: LiveConsumerGroup, leaving: Sequence[str]) -> tuple[LiveGroup, list[StateRecord]]:
        """A classic group of the members of the classic protocol, and the records that replace those of the group."""
        now_ms = self._clock.now_ms()
        if len(leaving) == len(live.group.image.members):
            return self.classic(live.group_id, live.offsets), live.own_tombstones()
        found = downgraded(live.group.image, leaving, self._topics, now_ms)
        group = Group.restored(found.snapshot, self.config, now_ms)
        for member in group.membership.all():
            group.membership.update(
                member, found.protocols[member.member_id], member.session_timeout_ms, member.rebalance_timeout_ms
            )
        return self._live(group, live.offsets), [*live.own_tombstones(), group_record(found.snapshot)]

    def _live(self, group: Group, offsets: GroupOffsets) -> LiveGroup:
        return LiveGroup(group, offsets, self._clock, self._store_group, self._answers)
