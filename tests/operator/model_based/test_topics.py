"""KafkaTopics under two writers, a failing API server and a failing Kafka."""

from __future__ import annotations

from tests.operator.model_based.machines import run_fixed


def test_topics_stay_and_conditions_are_true_after_random_events() -> None:
    run_fixed("topics", examples=400, steps=25)
