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


def decide_restart(
    policy: str, limit: int, failures: int, ran_s: float, *, has_run: bool, not_begun: int = 0
) -> Restart:
    """Decides after a failure.

    Args:
        policy: spec.restartPolicy.
        limit: spec.backoffLimit.
        failures: before this one.
        ran_s: how long the attempt that has failed ran.
        has_run: False when the queries could not even be planned: the next attempt could not either.
        not_begun: how many attempts in a row have run nothing of the pipeline, with this one, as Spark's own processes
            did not start; 0 when this one has. Such an attempt says nothing of the pipeline, and does not count.

    >>> decide_restart("OnFailure", 6, 0, 5.0, has_run=True)
    Restart(wait_s=10.0, failures=1, reason='attempt 1 of 6 after 10 s')
    >>> decide_restart("OnFailure", 6, 5, 700.0, has_run=True).failures
    1
    >>> decide_restart("OnFailure", 1, 1, 5.0, has_run=True).reason
    'spec.backoffLimit 1 is reached'
    >>> decide_restart("OnFailure", 1, 1, 5.0, has_run=True, not_begun=2).reason
    'another attempt after 20 s; this one does not count, as nothing of the pipeline has run'
    """
    if not has_run:
        return Restart(None, failures, "it could not begin, and would not the next time")
    if policy == "Never":
        return Restart(None, failures, "spec.restartPolicy is Never")
    if not_begun:
        wait_s = _wait_s(not_begun - 1)
        reason = f"another attempt after {wait_s:.0f} s; this one does not count, as nothing of the pipeline has run"
        return Restart(wait_s, failures, reason)
    counted = 0 if ran_s >= RESET_AFTER_S else failures
    if counted >= limit:
        return Restart(None, counted, f"spec.backoffLimit {limit} is reached")
    wait_s = _wait_s(counted)
    return Restart(wait_s, counted + 1, f"attempt {counted + 1} of {limit} after {wait_s:.0f} s")


def _wait_s(attempts: int) -> float:
    return min(LONGEST_WAIT_S, FIRST_WAIT_S * 2.0 ** min(attempts, 10))
