"""A KafkaCluster below which others scale, orphan, prune and take rights away."""

from __future__ import annotations

import pytest

from tests.operator.model_based.machines import run_fixed


@pytest.mark.parametrize("examples", [4, pytest.param(12, marks=pytest.mark.long)])
def test_clusters_keep_their_data_and_converge_after_others_changed_what_they_stand_on(examples: int) -> None:
    run_fixed("ground", examples=examples, steps=10)
