"""Times as Kubernetes writes them: UTC, in whole seconds."""

from __future__ import annotations

from datetime import datetime


def seconds_between(then: str, now: str) -> float | None:
    """The seconds from one time to another, at least 0; None when one of them cannot be parsed.

    >>> seconds_between("2026-01-01T00:00:00Z", "2026-01-01T00:02:00Z")
    120.0
    >>> seconds_between("", "2026-01-01T00:00:00Z") is None
    True
    """
    try:
        return max(0.0, (datetime.fromisoformat(now) - datetime.fromisoformat(then)).total_seconds())
    except (TypeError, ValueError):
        return None
