"""What ListGroups says of a group. Pure."""

from __future__ import annotations

from typing import Final, NamedTuple

CLASSIC: Final = "classic"
CONSUMER: Final = "consumer"


class GroupOverview(NamedTuple):
    """`group_type` is CLASSIC or CONSUMER (KIP-848)."""

    group_id: str
    protocol_type: str
    state: str
    group_type: str = CLASSIC
