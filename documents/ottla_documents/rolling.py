"""spec.rolling: how the operator restarts members."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, cast, get_args

from ottla_documents.fields import Fields

Approval = Literal["Automatic", "Manual"]
APPROVALS: tuple[str, ...] = get_args(Approval)
MOST_IN_A_BATCH = 1000
DEFAULT_LEADERSHIP_TIMEOUT_S = 60
LONGEST_LEADERSHIP_TIMEOUT_S = 3600
DEFAULT_PROGRESS_DEADLINE_S = 600
"""That of a Deployment."""
LONGEST_PROGRESS_DEADLINE_S = 7 * 24 * 3600


@dataclass(frozen=True, slots=True)
class RollingSpec:
    """`max_batch`: how many brokers restart together; None: as many as are safe. `leadership_timeout_s`: seconds.

    `progress_deadline_s`: how long a batch may make no progress after its pods were stopped before the roll has failed.
    With `approval` Manual a roll writes its plan and waits for the annotation that names its id.
    """

    approval: Approval = "Automatic"
    max_batch: int | None = None
    leadership_timeout_s: int = DEFAULT_LEADERSHIP_TIMEOUT_S
    progress_deadline_s: int = DEFAULT_PROGRESS_DEADLINE_S
    allows_unavailability: bool = False
    """Whether partitions that no order of restarts keeps available may be lost to clients while a broker restarts."""


DEFAULT_ROLLING = RollingSpec()


def parse_rolling(spec: Fields) -> RollingSpec:
    """Reads `rolling` below spec.

    >>> problems = []
    >>> parse_rolling(Fields({"rolling": {"maxBatch": 1}}, "spec", problems)).max_batch, problems
    (1, [])
    """
    fields = spec.child("rolling")
    bounded = fields.has("maxBatch")
    most = fields.whole("maxBatch", MOST_IN_A_BATCH, lowest=1, highest=MOST_IN_A_BATCH)
    timeout = fields.whole(
        "leadershipTimeoutSeconds", DEFAULT_LEADERSHIP_TIMEOUT_S, lowest=1, highest=LONGEST_LEADERSHIP_TIMEOUT_S
    )
    deadline = fields.whole(
        "progressDeadlineSeconds", DEFAULT_PROGRESS_DEADLINE_S, lowest=10, highest=LONGEST_PROGRESS_DEADLINE_S
    )
    approval = cast(Approval, fields.choice("approval", APPROVALS, "Automatic"))
    allows_unavailability = fields.flag("allowUnavailability")
    fields.finish()
    return RollingSpec(approval, most if bounded else None, timeout, deadline, allows_unavailability)
