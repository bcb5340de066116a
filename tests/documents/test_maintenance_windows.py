"""spec.maintenanceWindows, read the way a user would get it wrong."""

from __future__ import annotations

from typing import Any

import pytest

from ottla_documents.fields import Fields, Problem
from ottla_documents.maintenance_windows import parse_maintenance_windows

GOOD = {"schedule": "0 22 * * SAT", "duration": "4h", "timeZone": "Europe/Berlin"}


@pytest.mark.parametrize(
    ("change", "field", "message"),
    [
        ({"schedule": None}, "schedule", "is required"),
        ({"schedule": "0 22 * *"}, "schedule", "it has 4 fields"),
        ({"schedule": "@daily"}, "schedule", "it has 1 fields"),
        ({"schedule": "0 25 * * *"}, "schedule", "Bad hour"),
        ({"schedule": "0 0 31 4 *"}, "schedule", ""),
        ({"schedule": 5}, "schedule", "must be a string"),
        ({"duration": None}, "duration", "is required"),
        ({"duration": "4"}, "duration", "from 1m to 168h"),
        ({"duration": "0m"}, "duration", "from 1m to 168h"),
        ({"duration": "169h"}, "duration", "from 1m to 168h"),
        ({"duration": "PT4H"}, "duration", "from 1m to 168h"),
        ({"timeZone": "Berlin"}, "timeZone", "no time zone"),
        ({"timeZone": "../../etc/passwd"}, "timeZone", "no time zone"),
        ({"timezone": "Europe/Berlin"}, "timezone", "is not a field here"),
    ],
)
def test_a_wrong_window_is_a_problem_with_its_field_and_does_not_count(
    change: dict[str, Any], field: str, message: str
) -> None:
    problems: list[Problem] = []
    wrong = {key: value for key, value in (GOOD | change).items() if value is not None}
    assert len(parse_maintenance_windows(Fields({"maintenanceWindows": [GOOD, wrong]}, "spec", problems))) == 1
    assert [problem.path for problem in problems] == [f"spec.maintenanceWindows[1].{field}"]
    assert message in problems[0].message


@pytest.mark.parametrize("value", [{"schedule": "* * * * *"}, "0 22 * * SAT", [None], ["0 22 * * SAT"]])
def test_what_is_no_list_of_windows_is_a_problem(value: object) -> None:
    problems: list[Problem] = []
    assert parse_maintenance_windows(Fields({"maintenanceWindows": value}, "spec", problems)) == ()
    assert problems and problems[0].path.startswith("spec.maintenanceWindows")
