"""spec.maintenanceWindows: the times at which disruptive steps that can wait may begin.

The fields are those of a CronJob (schedule, timeZone), with the duration of Argo CD's sync windows.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, TypeAlias
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

from ottla_documents.schema.marks import Items, OnlyRight, Text

DEFAULT_TIME_ZONE = "Etc/UTC"
SHORTEST_WINDOW_S = 60
LONGEST_WINDOW_S = 7 * 24 * 3600
DURATION_FORM = "from 1m to 168h, such as 4h or 1h30m"
_DURATION = re.compile(r"(?:(\d{1,4})h)?(?:(\d{1,6})m)?")
_CRON_FIELDS = 5


@dataclass(frozen=True, slots=True)
class MaintenanceWindow:
    """A time at which steps that can wait may begin."""

    schedule: Annotated[str, Text(most=200)]
    """When the window opens: minute, hour, day of the month, month and day of the week, as cron has them, such as "0 22
    * * SAT"."""
    duration: Annotated[str, Text(r"([0-9]+h)?([0-9]+m)?", DURATION_FORM, least=2, most=12)]
    """How long the window is open, from 1m to 168h, such as 4h or 1h30m."""
    time_zone: Annotated[str, Text(most=60)] = DEFAULT_TIME_ZONE
    """The time zone of schedule, by its name in the IANA data base, such as Europe/Berlin."""

    @property
    def duration_s(self) -> int:
        return duration_s(self.duration)

    def problems(self) -> Iterator[tuple[str, str]]:
        if wrong := wrong_schedule(self.schedule):
            yield "schedule", f"{self.schedule!r} is no schedule of five fields as cron has them: {wrong}"
        if not SHORTEST_WINDOW_S <= self.duration_s <= LONGEST_WINDOW_S:
            yield "duration", f"must be {DURATION_FORM}, not {self.duration!r}"
        if not is_time_zone(self.time_zone):
            yield "timeZone", f"{self.time_zone!r} is no time zone of the IANA data base, such as Europe/Berlin"


MaintenanceWindows: TypeAlias = Annotated[tuple[MaintenanceWindow, ...], Items(most=20, is_atomic=True), OnlyRight()]
"""A window with a problem does not count."""


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
