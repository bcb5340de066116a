"""The states of a classic group and everything that depends on the state alone, as tables.

The machine (`machine.py`) asks these tables before any rule of its own. Pure.

    Empty ──first join──▶ PreparingRebalance ──everybody joined, or the rebalance timeout──▶ CompletingRebalance
      ▲                      │        ▲   ▲                                                      │       │
      └──nobody is left──────┘        │   └──a member joins, leaves, expires, changes────────────┘       │
                                      └──────────────────────── Stable ◀──the leader's assignment is stored

Dead follows any state: the group was deleted, its last offset expired, or its partition moved to another broker.
"""

from __future__ import annotations

from enum import Enum
from types import MappingProxyType

from ottla_broker.protocol.errors import ErrorCode


class GroupState(Enum):
    """The value is the name on the wire (DescribeGroups, ListGroups)."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


PREVIOUS_STATES = MappingProxyType(
    {
        GroupState.EMPTY: (GroupState.PREPARING_REBALANCE,),
        GroupState.PREPARING_REBALANCE: (GroupState.STABLE, GroupState.COMPLETING_REBALANCE, GroupState.EMPTY),
        GroupState.COMPLETING_REBALANCE: (GroupState.PREPARING_REBALANCE,),
        GroupState.STABLE: (GroupState.COMPLETING_REBALANCE,),
        GroupState.DEAD: tuple(GroupState),
    }
)
"""From which states a state may be entered."""

HEARTBEAT_ANSWERS = MappingProxyType(
    {
        GroupState.EMPTY: ErrorCode.UNKNOWN_MEMBER_ID,
        GroupState.PREPARING_REBALANCE: ErrorCode.REBALANCE_IN_PROGRESS,
        GroupState.COMPLETING_REBALANCE: ErrorCode.NONE,
        GroupState.STABLE: ErrorCode.NONE,
        GroupState.DEAD: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    }
)
"""The error that a known member of the current generation gets for a Heartbeat.

CompletingRebalance answers NONE: a member may beat between its JoinGroup and its SyncGroup.
"""

COMMIT_ANSWERS = MappingProxyType(
    {
        GroupState.EMPTY: ErrorCode.NONE,
        GroupState.PREPARING_REBALANCE: ErrorCode.NONE,
        GroupState.COMPLETING_REBALANCE: ErrorCode.REBALANCE_IN_PROGRESS,
        GroupState.STABLE: ErrorCode.NONE,
        GroupState.DEAD: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    }
)
"""The error that an OffsetCommit gets which has passed the checks of the member.

PreparingRebalance accepts it: members commit what they processed before they rejoin.
"""


def can_enter(target: GroupState, current: GroupState) -> bool:
    """
    >>> can_enter(GroupState.STABLE, GroupState.PREPARING_REBALANCE)
    False
    """
    return current in PREVIOUS_STATES[target]
