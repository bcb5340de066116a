"""Whether a pipeline that has failed runs again, and after how long. Pure.

Times are the kubelet's for containers: 10 s, doubled up to five minutes, and from the beginning after ten minutes
without a failure.
"""

from __future__ import annotations

from dataclasses import dataclass

FIRST_WAIT_S = 10.0
LONGEST_WAIT_S = 300.0
RESET_AFTER_S = 600.0


@dataclass(frozen=True, slots=True)
class Restart:
    """`wait_s`: before the next attempt; None for no other one. `failures`: that count from now on."""

    wait_s: float | None
    failures: int
    reason: str


def decide_restart(policy: str, limit: int, failures: int, ran_s: float, *, has_run: bool) -> Restart:
    """Decides after a failure.

    Args:
        policy: spec.restartPolicy.
        limit: spec.backoffLimit.
        failures: before this one.
        ran_s: how long the attempt that has failed ran.
        has_run: False when the queries could not even be planned: the next attempt could not either.

    >>> decide_restart("OnFailure", 6, 0, 5.0, has_run=True)
    Restart(wait_s=10.0, failures=1, reason='attempt 1 of 6 after 10 s')
    >>> decide_restart("OnFailure", 6, 5, 700.0, has_run=True).failures
    1
    >>> decide_restart("OnFailure", 1, 1, 5.0, has_run=True).reason
    'spec.backoffLimit 1 is reached'
    """
    if not has_run:
        return Restart(None, failures, "it could not begin, and would not the next time")
    if policy == "Never":
        return Restart(None, failures, "spec.restartPolicy is Never")
    counted = 0 if ran_s >= RESET_AFTER_S else failures
    if counted >= limit:
        return Restart(None, counted, f"spec.backoffLimit {limit} is reached")
    wait_s = min(LONGEST_WAIT_S, FIRST_WAIT_S * 2**counted)
    return Restart(wait_s, counted + 1, f"attempt {counted + 1} of {limit} after {wait_s:.0f} s")
