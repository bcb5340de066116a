"""A KafkaCluster whose brokers come and go, whose disks and nodes are drained, and whose replicas are moved."""

from __future__ import annotations

import pytest

from tests.operator.model_based.machines import run_fixed


@pytest.mark.parametrize("examples", [3, pytest.param(10, marks=pytest.mark.long)])
def test_replicas_are_moved_in_safety_and_everything_converges_after_random_events(examples: int) -> None:
    run_fixed("moves", examples=examples, steps=6)
