"""What an API server decides about KafkaTopics: finalizers, status, records and the order of writes. All other tests of
topics run here too, in test_topic_task, which is long."""

from __future__ import annotations

import pytest

from tests.operator.concerns.topics.test_ownership import (
    test_a_record_is_confirmed_before_the_finalizer_and_the_creation,
    test_a_renamed_kafka_topic_takes_the_topic_over_and_nothing_is_deleted,
    test_a_topic_is_deleted_when_both_kafka_topics_are_deleted_together,
    test_a_topic_whose_status_was_cleared_is_still_known_to_be_created_for_its_kafka_topic,
)
from tests.operator.real_api.topics import many, topics
from tests.operator.runtime.test_topic_task import (
    test_a_cluster_of_many_topics_is_at_rest_without_a_write,
    test_a_created_topic_is_deleted_with_its_kafka_topic,
    test_a_created_topic_stays_recorded_when_its_cluster_is_deleted_and_applied_again,
    test_a_finalizer_never_outlives_its_cluster,
    test_a_kafka_topic_creates_its_topic_and_status_shows_it,
    test_an_existing_topic_is_adopted_altered_and_kept,
)

__all__ = [
    "many",
    "test_a_cluster_of_many_topics_is_at_rest_without_a_write",
    "test_a_created_topic_is_deleted_with_its_kafka_topic",
    "test_a_created_topic_stays_recorded_when_its_cluster_is_deleted_and_applied_again",
    "test_a_finalizer_never_outlives_its_cluster",
    "test_a_kafka_topic_creates_its_topic_and_status_shows_it",
    "test_a_record_is_confirmed_before_the_finalizer_and_the_creation",
    "test_a_renamed_kafka_topic_takes_the_topic_over_and_nothing_is_deleted",
    "test_a_topic_is_deleted_when_both_kafka_topics_are_deleted_together",
    "test_a_topic_whose_status_was_cleared_is_still_known_to_be_created_for_its_kafka_topic",
    "test_an_existing_topic_is_adopted_altered_and_kept",
    "topics",
]

pytestmark = pytest.mark.kubernetes
