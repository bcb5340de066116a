"""spec.rolling, read the way a user would get it wrong."""

from __future__ import annotations

import pytest

from ottla_documents.fields import Fields, Problem
from ottla_documents.rolling import RollingSpec, parse_rolling


def test_without_the_field_rolls_begin_at_once_with_batches_as_large_as_is_safe() -> None:
    problems: list[Problem] = []
    assert parse_rolling(Fields({}, "spec", problems)) == RollingSpec("Automatic", None, 60, 600) and problems == []


@pytest.mark.parametrize(
    ("value", "path"),
    [
        ({"maxBatch": 0}, "spec.rolling.maxBatch"),
        ({"maxBatch": "2"}, "spec.rolling.maxBatch"),
        ({"approval": "manual"}, "spec.rolling.approval"),
        ({"leadershipTimeoutSeconds": 0}, "spec.rolling.leadershipTimeoutSeconds"),
        ({"progressDeadlineSeconds": 9}, "spec.rolling.progressDeadlineSeconds"),
        ({"allowUnavailability": "yes"}, "spec.rolling.allowUnavailability"),
        ({"batch": 2}, "spec.rolling.batch"),
        ([], "spec.rolling"),
    ],
)
def test_a_wrong_value_is_a_problem_with_its_field(value: object, path: str) -> None:
    problems: list[Problem] = []
    parse_rolling(Fields({"rolling": value}, "spec", problems))
    assert [problem.path for problem in problems] == [path]
