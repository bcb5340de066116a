"""What status says of a roll."""

from __future__ import annotations

from ottla_operator.api.objects import Obj
from ottla_operator.concerns.roll.state import Roll, from_status
from ottla_operator.facts.snapshot import Snapshot


def roll_entry(snapshot: Snapshot, roll: Roll | None) -> Obj | None:
    """status.roll; None without a roll. That of a cluster that is paused stays as it is."""
    shown = from_status(snapshot.status("roll")) if snapshot.cluster.paused else roll
    return None if shown is None else shown.to_status()
