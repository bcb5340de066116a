"""What goes into a group of the consumer protocol, and what comes out: plain values. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple, TypeAlias

from ottla_broker.groups.consumer.assignors.assignor import Assignor
from ottla_broker.groups.consumer.consumer_records import RecordKey
from ottla_broker.groups.consumer.group_image import Assignment
from ottla_broker.groups.decisions import Explain
from ottla_broker.internal_topics.topic_log import StateRecord
from ottla_broker.protocol.errors import ErrorCode


class MigrationPolicy(NamedTuple):
    """`group.consumer.migration.policy`: which conversions of a group with members are allowed."""

    allows_upgrade: bool
    """From a classic group to one of the consumer protocol."""
    allows_downgrade: bool
    """And back."""

    @staticmethod
    def of(value: str) -> MigrationPolicy:
        """
        >>> MigrationPolicy.of("Bidirectional"), MigrationPolicy.of("upgrade").allows_downgrade
        (MigrationPolicy(allows_upgrade=True, allows_downgrade=True), False)
        """
        policy = value.lower()
        return MigrationPolicy(policy in ("upgrade", "bidirectional"), policy in ("downgrade", "bidirectional"))


NO_MIGRATION = MigrationPolicy(False, False)


@dataclass(frozen=True, slots=True)
class ConsumerGroupConfig:
    """Broker configuration of groups of the consumer protocol; every field is named after its key."""

    group_consumer_assignors: Mapping[str, Assignor]
    """By name; the first is the default."""
    group_consumer_session_timeout_ms: int = 45_000
    group_consumer_heartbeat_interval_ms: int = 5_000
    group_consumer_max_size: int = 2**31 - 1
    group_consumer_migration_policy: MigrationPolicy = NO_MIGRATION
    group_max_size: int = 2**31 - 1
    """Of classic groups: a larger group is not converted to one."""


@dataclass(frozen=True, slots=True)
class GroupHeartbeat:
    """A ConsumerGroupHeartbeat. None means that nothing has changed since the last one."""

    member_id: str
    """Empty in version 0 for a member that has none yet."""
    member_epoch: int
    """0 joins, -1 leaves, -2 leaves for a while (a static member)."""
    new_member_id: str = ""
    """The id to give should the member need one: unique, chosen by the coordinator."""
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = -1
    subscribed_topic_names: tuple[str, ...] | None = None
    subscribed_topic_regex: str | None = None
    server_assignor: str | None = None
    owned: Assignment | None = None
    client_id: str = ""
    client_host: str = ""


@dataclass(frozen=True, slots=True)
class HeartbeatAnswer:
    """`assignment` is None where the member's has not changed."""

    error: ErrorCode
    message: str | None = None
    member_id: str | None = None
    member_epoch: int = 0
    heartbeat_interval_ms: int = 0
    assignment: Assignment | None = None


class GroupRequestRefused(Exception):
    """A request that changes nothing."""

    def __init__(self, error: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.error = error
        self.message = message


class MemberTimer(Enum):
    """The member is removed when it runs out."""

    SESSION = "session"
    """The next heartbeat has to come before this."""
    REVOCATION = "revocation"
    """The member's rebalance timeout: it has to revoke partitions before this."""
    JOIN = "join"
    """A member of the classic protocol has to join again before this."""
    SYNC = "sync"
    """A member of the classic protocol has to send SyncGroup before this."""


class MemberTimerKey(NamedTuple):
    """A group has at most one timer for each key."""

    kind: MemberTimer
    member_id: str


@dataclass(frozen=True, slots=True)
class SetTimer:
    """Starts the timer, `delay_ms` from now; one of that key that runs is replaced, or kept with `keeps_running`."""

    key: MemberTimerKey
    delay_ms: int
    keeps_running: bool = False


@dataclass(frozen=True, slots=True)
class StopTimer:
    key: MemberTimerKey


@dataclass(frozen=True, slots=True)
class ResolveExpressions:
    """Asks for the topics that match; they come back through `ConsumerGroup.resolved`."""

    regexes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ConvertToClassic:
    """Only members of the classic protocol are left: the group becomes a classic one, without `leaving`."""

    leaving: tuple[str, ...]


ConsumerGroupEffect: TypeAlias = SetTimer | StopTimer | ResolveExpressions | ConvertToClassic | Explain


@dataclass(frozen=True, slots=True)
class ConsumerGroupWrite:
    """Records to append as one batch; its failure goes back through `ConsumerGroup.write_failed`."""

    keys: tuple[RecordKey, ...]
    records: tuple[StateRecord, ...]
