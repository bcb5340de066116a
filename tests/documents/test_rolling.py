"""spec.rolling, read the way a user would get it wrong."""

from __future__ import annotations

import pytest

from ottla_documents.kafka_cluster import KafkaCluster, parse_cluster
from ottla_documents.rolling import RollingSpec
from ottla_documents.schema.marks import Problem


def _parse(value: object) -> tuple[KafkaCluster, list[Problem]]:
    return parse_cluster({"metadata": {"name": "c"}, "spec": {"rolling": value}})


def test_without_the_field_rolls_begin_at_once_with_batches_as_large_as_is_safe() -> None:
    cluster, problems = _parse(None)
    assert problems == []
    assert cluster.rolling == RollingSpec("Automatic", None, 60, allows_unavailability=False, progress_deadline_s=600)


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
    assert [problem.path for problem in _parse(value)[1]] == [path]
