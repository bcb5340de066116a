"""The states of a group and of a member of the consumer rebalance protocol (KIP-848), and what follows from them. Pure.

A group derives its state from its epochs and its members:

    Empty ──a member joins──▶ Assigning ──target assignment──▶ Reconciling ──every member reconciled──▶ Stable
                                  ▲                                                                      │
                                  └──a subscription, a member or a topic changes (the group epoch rises)──┘

A member derives its state from its target assignment (`reconciliation`):

    Stable ──newer target, nothing to revoke──▶ Stable, or UnreleasedPartitions while another member owns some
       └─────newer target, partitions to revoke──▶ UnrevokedPartitions ──the member has revoked them──▶ as above
"""

from __future__ import annotations

from enum import Enum, IntEnum


class ConsumerGroupState(Enum):
    """The value is the name on the wire (ListGroups, ConsumerGroupDescribe)."""

    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    """The group epoch is newer than the target assignment."""
    RECONCILING = "Reconciling"
    """A member does not have its target assignment yet."""
    STABLE = "Stable"
    DEAD = "Dead"


class MemberState(IntEnum):
    """The value is the one in ConsumerGroupCurrentMemberAssignmentValue."""

    STABLE = 0
    UNREVOKED_PARTITIONS = 1
    """The member has partitions to revoke before it moves to the next epoch."""
    UNRELEASED_PARTITIONS = 2
    """Other members still own partitions of the member's target assignment."""
    UNKNOWN = 127
    """Written by a newer release; the member has to join again without partitions."""

    @classmethod
    def of(cls, value: int) -> MemberState:
        """UNKNOWN for a number that this release does not know.

        >>> MemberState.of(1).name, MemberState.of(9).name
        ('UNREVOKED_PARTITIONS', 'UNKNOWN')
        """
        return cls(value) if value in cls._value2member_map_ else cls.UNKNOWN
