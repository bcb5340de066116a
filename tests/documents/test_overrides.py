"""spec.brokers.overrides, read the way a user would get it wrong."""

from __future__ import annotations

import pytest

from ottla_documents.kafka_cluster import parse_cluster
from ottla_documents.overrides import BrokerOverride, with_state


def _parse(value: object) -> tuple[tuple[BrokerOverride, ...], list[str]]:
    cluster, problems = parse_cluster({"metadata": {"name": "c"}, "spec": {"brokers": {"overrides": value}}})
    return cluster.brokers.overrides, [problem.path for problem in problems]


def test_an_entry_without_a_state_is_active() -> None:
    assert _parse([{"id": 2}]) == ((BrokerOverride(2, "Active"),), [])
    assert _parse(None) == ((), [])


def test_only_brokers_with_the_state_are_found() -> None:
    found, problems = _parse([{"id": 0, "state": "Hold"}, {"id": 1, "state": "Active"}, {"id": 7, "state": "Hold"}])
    assert problems == [] and with_state(found, "Hold") == {0, 7}


@pytest.mark.parametrize(
    ("value", "path"),
    [
        ([{"state": "Hold"}], "spec.brokers.overrides[0].id"),
        ([{"id": -1}], "spec.brokers.overrides[0].id"),
        ([{"id": "1"}], "spec.brokers.overrides[0].id"),
        ([{"id": 1, "state": "hold"}], "spec.brokers.overrides[0].state"),
        ([{"id": 1, "hold": True}], "spec.brokers.overrides[0].hold"),
        ([{"id": 1}, {"id": 1, "state": "Hold"}], "spec.brokers.overrides[1].id"),
        ([1], "spec.brokers.overrides[0]"),
        ({"id": 1}, "spec.brokers.overrides"),
    ],
)
def test_a_wrong_entry_is_a_problem_with_its_field(value: object, path: str) -> None:
    assert path in _parse(value)[1]
