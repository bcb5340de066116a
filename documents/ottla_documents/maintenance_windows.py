"""spec.maintenanceWindows: the times at which disruptive steps that can wait may begin.

The fields are those of a CronJob (schedule, timeZone), with the duration of Argo CD's sync windows.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

from ottla_documents.fields import Fields

DEFAULT_TIME_ZONE = "Etc/UTC"
SHORTEST_WINDOW_S = 60
LONGEST_WINDOW_S = 7 * 24 * 3600
_DURATION = re.compile(r"(?:(\d{1,4})h)?(?:(\d{1,6})m)?")
_CRON_FIELDS = 5


@dataclass(frozen=True, slots=True)
class MaintenanceWindow:
    """One window: it opens at each time of `schedule` (cron, in `time_zone`) and is open for `duration_s` seconds."""

    schedule: str
    duration_s: int
    time_zone: str = DEFAULT_TIME_ZONE


def parse_maintenance_windows(spec: Fields) -> tuple[MaintenanceWindow, ...]:
    """Reads `maintenanceWindows` below spec. A window with a problem does not count.

    >>> problems = []
    >>> given = {"maintenanceWindows": [{"schedule": "0 22 * * SAT", "duration": "1h30m", "timeZone": "Europe/Berlin"}]}
    >>> parse_maintenance_windows(Fields(given, "spec", problems)), problems
    ((MaintenanceWindow(schedule='0 22 * * SAT', duration_s=5400, time_zone='Europe/Berlin'),), [])
    """
    found: list[MaintenanceWindow] = []
    for item in spec.items("maintenanceWindows"):
        known = len(spec.problems)
        schedule, duration = item.text("schedule"), item.text("duration")
        time_zone = item.text("timeZone", DEFAULT_TIME_ZONE)
        item.finish()
        if isinstance(item.values.get("schedule"), str) and (wrong := wrong_schedule(schedule)):
            item.problem("schedule", f"{schedule!r} is no schedule of five fields as cron has them: {wrong}")
        seconds = duration_s(duration)
        if isinstance(item.values.get("duration"), str) and not SHORTEST_WINDOW_S <= seconds <= LONGEST_WINDOW_S:
            item.problem("duration", f"must be from 1m to 168h, such as 4h or 1h30m, not {duration!r}")
        if not is_time_zone(time_zone):
            item.problem("timeZone", f"{time_zone!r} is no time zone of the IANA data base, such as Europe/Berlin")
        if len(spec.problems) == known:
            found.append(MaintenanceWindow(schedule, seconds, time_zone))
    return tuple(found)


def duration_s(text: str) -> int:
    """The seconds of a duration in hours and minutes; 0 when it is none.

    >>> duration_s("4h"), duration_s("1h30m"), duration_s("90m"), duration_s("4"), duration_s("")
    (14400, 5400, 5400, 0, 0)
    """
    match = _DURATION.fullmatch(text)
    return int(match[1] or 0) * 3600 + int(match[2] or 0) * 60 if match else 0


def is_time_zone(name: str) -> bool:
    """
    >>> is_time_zone("Europe/Berlin"), is_time_zone("Etc/UTC"), is_time_zone("Europe"), is_time_zone("../x")
    (True, True, False, False)
    """
    try:
        ZoneInfo(name)
    except (OSError, ValueError, KeyError):
        return False
    return True


def wrong_schedule(text: str) -> str:
    """What is wrong with a schedule of five fields, as cron has them; "" when it names some time that comes."""
    if len(text.split()) != _CRON_FIELDS:
        return f"it has {len(text.split())} fields"
    try:
        next(CronSim(text, datetime(2026, 1, 1, tzinfo=UTC)))
    except CronSimError as error:
        return str(error)
    except StopIteration:
        return "it names no time that comes"
    return ""
