"""When a roll will end at its pace so far."""

from __future__ import annotations

from datetime import datetime, timedelta

from ottla_operator.api.times import seconds_between


def estimated_end(started: str, now: str, batches_done: int, batches_left: int) -> str:
    """The time at which the last batch is done, "" before the first one is: the pace is not known yet.

    >>> estimated_end("2026-01-01T00:00:00Z", "2026-01-01T00:01:00Z", 2, 4)
    '2026-01-01T00:03:00Z'
    >>> estimated_end("2026-01-01T00:00:00Z", "2026-01-01T00:01:00Z", 0, 4)
    ''
    """
    lasted = seconds_between(started, now)
    if lasted is None or batches_done < 1:
        return ""
    end = datetime.fromisoformat(now) + timedelta(seconds=round(lasted / batches_done * batches_left))
    return end.strftime("%Y-%m-%dT%H:%M:%SZ")
