"""spec.rolling: how the operator restarts members."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from ottla_documents.schema.marks import Named, WholeNumber

Approval = Literal["Automatic", "Manual"]


@dataclass(frozen=True, slots=True)
class RollingSpec:
    """How brokers and ZooKeeper servers are restarted when what they run changes."""

    approval: Approval = "Automatic"
    """Automatic: a roll begins at once. Manual: it writes its plan into status.roll and waits until the annotation
    kafka.ottla.dev/approve-roll has the value of status.roll.awaitingApproval; a change of what members run has another
    value."""
    max_batch: Annotated[int | None, WholeNumber(1, 1000)] = None
    """How many brokers may be restarted together. Default: as many of one rack as every partition can do without. 1
    restarts one broker at a time."""
    leadership_timeout_s: Annotated[int, WholeNumber(1, 3600), Named("leadershipTimeoutSeconds")] = 60
    """How many seconds leaderships have to move away from a batch before its pods are deleted, and to come back after
    the restart. What has not moved then moves by the controlled shutdown of the broker."""
    allows_unavailability: Annotated[bool, Named("allowUnavailability")] = False
    """Whether a roll may restart brokers with partitions that clients lose meanwhile, whatever the order: those with
    one replica, and those with no more replicas than min.insync.replicas. Such brokers are then restarted one at a
    time. false: they are not restarted, and Rolled names the partitions. A cluster of one broker is always rolled."""
    progress_deadline_s: Annotated[int, WholeNumber(10, 7 * 24 * 3600), Named("progressDeadlineSeconds")] = 600
    """How many seconds a batch may make no progress after its pods were stopped: its members become ready, and then
    fewer of their partitions are out of sync. After that the roll has failed: Rolled is False ProgressDeadlineExceeded,
    and no other member is restarted until the batch is back or the change is corrected. Default: 600, as for a
    Deployment."""


DEFAULT_ROLLING = RollingSpec()
