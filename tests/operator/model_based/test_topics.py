"""KafkaTopics under two writers, a failing API server and a failing Kafka."""

from __future__ import annotations

import pytest

from tests.operator.model_based.machines import run_fixed


@pytest.mark.parametrize("examples", [150, pytest.param(400, marks=pytest.mark.long)])
def test_topics_stay_and_conditions_are_true_after_random_events(examples: int) -> None:
    run_fixed("topics", examples=examples, steps=25)
