"""What status says of disks: of each broker's, and the partitions that only failed volumes have."""

from __future__ import annotations

from ottla_operator.api.objects import Obj
from ottla_operator.concerns.disks.disks import DisksDecision

MOST_LAST_COPIES = 100


def disk_entries(decision: DisksDecision, broker_id: int) -> list[Obj]:
    """status.brokers[].disks of a broker, in the order of spec.brokers.disks."""
    return [
        {"name": claim.disk, "claim": claim.name, "state": claim.state, **_drain(decision, broker_id, claim.disk)}
        for claim in decision.claims.get(broker_id, ())
    ]


def last_copies_entries(decision: DisksDecision) -> list[Obj]:
    """status.lastCopies: by broker, how many partitions there are, and the first of them."""
    return [
        {
            "broker": found.broker_id,
            "count": len(found.partitions),
            "partitions": list(found.partitions[:MOST_LAST_COPIES]),
            "accepted": found.is_accepted,
        }
        for found in decision.last_copies
    ]


def _drain(decision: DisksDecision, broker_id: int, disk: str) -> Obj:
    state = decision.drains.states.get((broker_id, disk))
    return {"drain": state} if state else {}
