"""What goes into the group machine and what comes out of it: plain values, nothing else.

A request that may have to wait carries a *ticket*, a number the coordinator chose; the machine answers a ticket
exactly once, at once or in a later decision. A decision is a list of effects that the coordinator carries out in
order. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple, TypeAlias

from ottla_broker.config import BrokerConfig
from ottla_broker.protocol.errors import ErrorCode

NO_MEMBER_ID = ""
NO_GENERATION = -1

Protocols: TypeAlias = tuple[tuple[str, bytes], ...]
"""(name, metadata) in the member's order of preference."""


@dataclass(frozen=True, slots=True)
class GroupConfig:
    """Broker configuration of the groups; every field is named after its key."""

    group_min_session_timeout_ms: int = 6_000
    group_max_session_timeout_ms: int = 1_800_000
    group_initial_rebalance_delay_ms: int = 3_000
    group_max_size: int = 2**31 - 1

    @staticmethod
    def from_config(config: BrokerConfig) -> GroupConfig:
        """The values of a broker."""
        return GroupConfig(
            config.group_min_session_timeout_ms,
            config.group_max_session_timeout_ms,
            config.group_initial_rebalance_delay_ms,
            config.group_max_size,
        )


@dataclass(frozen=True, slots=True)
class JoinRequest:
    """A JoinGroup after version differences are gone (v0 has no rebalance timeout: it is the session timeout)."""

    member_id: str
    """Empty for a member that has none yet."""
    new_member_id: str
    """The id to give to a member that has none: unique, chosen by the coordinator. Empty where `member_id` is not."""
    group_instance_id: str | None
    """Static membership (KIP-345)."""
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: Protocols
    requires_known_member_id: bool = False
    """KIP-394, from version 4 on for dynamic members."""
    supports_skipping_assignment: bool = False
    """KIP-814, from version 9 on."""
    reason: str | None = None
    """KIP-800."""


class JoinMember(NamedTuple):
    """One line of the member list that only the leader gets."""

    member_id: str
    group_instance_id: str | None
    metadata: bytes


class JoinAnswer(NamedTuple):
    error: ErrorCode
    member_id: str
    generation_id: int = NO_GENERATION
    protocol_type: str | None = None
    protocol_name: str | None = None
    leader: str = ""
    skip_assignment: bool = False
    members: tuple[JoinMember, ...] = ()


@dataclass(frozen=True, slots=True)
class SyncRequest:
    generation_id: int
    member_id: str
    group_instance_id: str | None
    protocol_type: str | None
    protocol_name: str | None
    """Type and name since version 5 (KIP-559); None before."""
    assignments: Mapping[str, bytes]
    """By member id; only the leader's is read."""


class SyncAnswer(NamedTuple):
    error: ErrorCode
    assignment: bytes = b""
    protocol_type: str | None = None
    protocol_name: str | None = None


class LeavingMember(NamedTuple):
    """Member id empty: named by its group instance id alone (an administrator's removal)."""

    member_id: str
    group_instance_id: str | None = None
    reason: str | None = None


class MemberSnapshot(NamedTuple):
    """A member as `__consumer_offsets` and DescribeGroups know it."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    subscription: bytes
    assignment: bytes


@dataclass(frozen=True, slots=True)
class GroupSnapshot:
    """A generation of a group as `__consumer_offsets` keeps it."""

    group_id: str
    protocol_type: str
    generation_id: int
    protocol_name: str | None
    leader: str | None
    current_state_timestamp_ms: int
    """-1 when the record is of a version without it."""
    members: tuple[MemberSnapshot, ...]


class TimerKind(Enum):
    SESSION = "session"
    """A request of the member (Heartbeat, OffsetCommit, SyncGroup) has to come before this."""
    PENDING_MEMBER = "pending member"
    """A member that was given an id has to join with it before this (KIP-394)."""
    REBALANCE = "rebalance"
    """Joining ends here, with those who joined."""
    SYNC = "sync"
    """Members that have not sent SyncGroup by now are removed."""


class TimerKey(NamedTuple):
    """A group has at most one timer per key."""

    kind: TimerKind
    member_id: str = NO_MEMBER_ID


class WritePurpose(Enum):
    ASSIGNMENT = "assignment"
    EMPTY = "empty"
    STATIC_MEMBER = "static member"


@dataclass(frozen=True, slots=True)
class GroupWrite:
    """A group record to append; its outcome is reported through `Group.stored(write, error, now_ms)`."""

    purpose: WritePurpose
    snapshot: GroupSnapshot
    static_member: StaticReplacement | None = None


@dataclass(frozen=True, slots=True)
class StaticReplacement:
    """What has to be undone when the record with a static member's new id cannot be stored."""

    group_instance_id: str
    old_member_id: str
    new_member_id: str
    old_leader: str
    old_protocols: Protocols = field(repr=False)
    old_session_timeout_ms: int
    old_rebalance_timeout_ms: int
    ticket: int
    supports_skipping_assignment: bool


class AnswerJoin(NamedTuple):
    ticket: int
    answer: JoinAnswer


class AnswerSync(NamedTuple):
    ticket: int
    answer: SyncAnswer


class ArmTimer(NamedTuple):
    """Starts the timer, `delay_ms` from now, replacing an armed one of that key."""

    key: TimerKey
    delay_ms: int


class CancelTimer(NamedTuple):
    key: TimerKey


@dataclass(frozen=True, slots=True)
class CancelAllTimers:
    pass


@dataclass(frozen=True, slots=True)
class Store:
    write: GroupWrite


@dataclass(frozen=True, slots=True)
class Explain:
    """Why the group does what it does, for the log."""

    reason: str


Effect: TypeAlias = AnswerJoin | AnswerSync | ArmTimer | CancelTimer | CancelAllTimers | Store | Explain
