"""A KafkaCluster whose objects, claims and status people and failures change behind the operator's back."""

from __future__ import annotations

from tests.operator.model_based.machines import run_fixed


def test_clusters_keep_their_data_and_converge_after_random_events() -> None:
    run_fixed("clusters", examples=30, steps=10)


def test_clusters_and_topics_keep_their_data_and_converge_after_random_events() -> None:
    run_fixed("fleets", examples=20, steps=10)


def test_racks_of_several_brokers_keep_min_insync_replicas_and_replica_orders_after_random_events() -> None:
    run_fixed("racks", examples=5, steps=8)
