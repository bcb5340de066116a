"""A KafkaCluster whose objects, claims and status people and failures change behind the operator's back."""

from __future__ import annotations

import pytest

from tests.operator.model_based.machines import run_fixed


@pytest.mark.parametrize("examples", [8, pytest.param(30, marks=pytest.mark.long)])
def test_clusters_keep_their_data_and_converge_after_random_events(examples: int) -> None:
    run_fixed("clusters", examples=examples, steps=10)


@pytest.mark.parametrize("examples", [5, pytest.param(20, marks=pytest.mark.long)])
def test_clusters_and_topics_keep_their_data_and_converge_after_random_events(examples: int) -> None:
    run_fixed("fleets", examples=examples, steps=10)


@pytest.mark.parametrize("examples", [2, pytest.param(5, marks=pytest.mark.long)])
def test_racks_of_several_brokers_keep_min_insync_replicas_and_replica_orders_after_random_events(
    examples: int,
) -> None:
    run_fixed("racks", examples=examples, steps=8)
