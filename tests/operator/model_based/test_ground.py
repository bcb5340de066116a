"""A KafkaCluster below which others scale, orphan, prune and take rights away."""

from __future__ import annotations

from tests.operator.model_based.machines import run_fixed


def test_clusters_keep_their_data_and_converge_after_others_changed_what_they_stand_on() -> None:
    run_fixed("ground", examples=12, steps=10)
