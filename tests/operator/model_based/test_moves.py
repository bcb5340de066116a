"""A KafkaCluster whose brokers come and go, whose disks and nodes are drained, and whose replicas are moved."""

from __future__ import annotations

from tests.operator.model_based.machines import run_fixed


def test_replicas_are_moved_in_safety_and_everything_converges_after_random_events() -> None:
    run_fixed("moves", examples=10, steps=6)
