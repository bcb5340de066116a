"""spec.maintenanceWindows, read the way a user would get it wrong."""

from __future__ import annotations

from typing import Any

import pytest

from ottla_documents.kafka_cluster import KafkaCluster, parse_cluster
from ottla_documents.schema.marks import Problem

GOOD = {"schedule": "0 22 * * SAT", "duration": "4h", "timeZone": "Europe/Berlin"}


def _parse(value: object) -> tuple[KafkaCluster, list[Problem]]:
    return parse_cluster({"metadata": {"name": "c"}, "spec": {"maintenanceWindows": value}})


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
    wrong = {key: value for key, value in (GOOD | change).items() if value is not None}
    cluster, problems = _parse([GOOD, wrong])
    assert len(cluster.maintenance_windows) == 1
    assert [problem.path for problem in problems] == [f"spec.maintenanceWindows[1].{field}"]
    assert message in problems[0].message


@pytest.mark.parametrize("value", [{"schedule": "* * * * *"}, "0 22 * * SAT", [None], ["0 22 * * SAT"]])
def test_what_is_no_list_of_windows_is_a_problem(value: object) -> None:
    cluster, problems = _parse(value)
    assert cluster.maintenance_windows == ()
    assert problems and problems[0].path.startswith("spec.maintenanceWindows")
