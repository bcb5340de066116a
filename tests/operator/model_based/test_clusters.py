"""A KafkaCluster whose objects, claims and status people and failures change behind the operator's back."""

from __future__ import annotations

from tests.operator.model_based.machines import run_fixed


def test_clusters_keep_their_data_and_converge_whatever_happens_in_whatever_order() -> None:
    run_fixed("clusters", examples=30, steps=10)


def test_fleets_keep_their_topics_and_data_and_converge_whatever_happens_in_whatever_order() -> None:
    run_fixed("fleets", examples=20, steps=10)
