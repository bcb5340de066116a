"""Whether disruptive steps that can wait may begin now: rolls, moves of replicas, volumes that spec replaces.

They begin while one of spec.maintenanceWindows is open, or until the time in the annotation maintenance-until; always
where no window is declared. What is under way goes on to a safe point when a window closes: a batch whose pods are
being restarted is finished, the replicas that move arrive. What brings a failed broker or volume back never waits.

A window is open from each time of its schedule, for its duration, both ends in real time:

    schedule 0 22 * * SAT, duration 4h, Europe/Berlin
    open     2026-11-28T21:00:00Z (22:00 in Berlin) until 2026-11-29T01:00:00Z
    the time that a change of the clocks leaves out: right after it; one that comes twice: the first time
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import islice
from zoneinfo import ZoneInfo

from cronsim import CronSim

from ottla_documents.maintenance_windows import MaintenanceWindow
from ottla_operator.api import names
from ottla_operator.api.objects import annotation
from ottla_operator.facts.annotation_values import maintenance_until
from ottla_operator.facts.snapshot import Snapshot

FIELD = "spec.maintenanceWindows"
CLOCKS_CHANGE = timedelta(hours=3)
"""More than clocks are ever set back. Schedules are walked from so far away, since they go by the local time, of which
an hour comes twice."""


@dataclass(frozen=True, slots=True)
class Maintenance:
    """`waits_for`: what a step that can wait has to wait for, "" when it may begin. `opens`: when, UTC, "" if unknown.

    `hint`: what a person who does not want to wait has to know.
    """

    waits_for: str = ""
    opens: str = ""
    hint: str = ""


OPEN = Maintenance()


def decide_maintenance(snapshot: Snapshot) -> Maintenance:
    """Whether a window is open. Ordered checks; the same answer as long as no window opens or closes.

    Of a paused cluster nothing begins anyway, so what status says of it does not follow the windows.
    """
    if snapshot.cluster.paused:
        return OPEN
    if snapshot.problems_below(FIELD):
        return Maintenance(f"{FIELD}, which cannot be read")
    windows = snapshot.cluster.maintenance_windows
    if not windows:
        return OPEN
    now = datetime.fromisoformat(snapshot.now)
    until, wrong = maintenance_until(annotation(snapshot.resource, names.MAINTENANCE_UNTIL) or "")
    if (until is not None and now < until) or any(is_open(window, now) for window in windows):
        return OPEN
    opens = next_opening(windows, now)
    hint = wrong or f"the annotation {names.MAINTENANCE_UNTIL} opens one at once, until the time that it names"
    return Maintenance(f"the maintenance window at {opens}", opens, hint)


def is_open(window: MaintenanceWindow, now: datetime) -> bool:
    """Whether a window is open: its last opening is less than its duration ago.

    >>> weekend = MaintenanceWindow("0 22 * * SAT", "4h", "Europe/Berlin")
    >>> times = "2026-11-28T20:59:59Z", "2026-11-28T21:00:00Z", "2026-11-29T00:59:59Z", "2026-11-29T01:00:00Z"
    >>> [is_open(weekend, datetime.fromisoformat(time)) for time in times]
    [False, True, True, False]
    """
    openings = CronSim(window.schedule, _local(now + CLOCKS_CHANGE, window), reverse=True)
    last = next((opening for opening in openings if opening <= now), None)
    return last is not None and now < last.astimezone(UTC) + timedelta(seconds=window.duration_s)


def next_opening(windows: Sequence[MaintenanceWindow], now: datetime) -> str:
    """When the first of the windows opens after `now`, in UTC; "" when none ever does.

    >>> daily = MaintenanceWindow("30 2 * * *", "1h", "Europe/Berlin")
    >>> next_opening([daily], datetime.fromisoformat("2026-03-28T12:00:00Z"))  # clocks go from 02:00 to 03:00
    '2026-03-29T01:00:00Z'
    """
    found = []
    for window in windows:
        openings = CronSim(window.schedule, _local(now - CLOCKS_CHANGE, window))
        found += [opening.astimezone(UTC) for opening in islice((one for one in openings if one > now), 1)]
    return min(found).strftime("%Y-%m-%dT%H:%M:%SZ") if found else ""


def _local(time: datetime, window: MaintenanceWindow) -> datetime:
    return time.astimezone(ZoneInfo(window.time_zone))
