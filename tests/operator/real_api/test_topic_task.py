"""The tests of tests/operator/runtime/test_topic_task.py and test_ownership.py, on a real API server.

Each begins with a fleet of its own, which takes seconds here: `make test-all` has those of test_topics.
"""

from __future__ import annotations

import pytest

from tests.operator.concerns.topics import test_ownership as claims
from tests.operator.real_api.topics import many, topics
from tests.operator.runtime import test_topic_task as in_memory

__all__ = ["many", "topics"]

pytestmark = [pytest.mark.kubernetes, pytest.mark.long]

NOT_HERE = {
    "test_a_finalizer_never_outlives_its_namespace": "the namespace default cannot be deleted; e2e deletes another one",
    "test_the_older_of_two_kafka_topics_has_the_topic_that_both_name": "the API server sets the times, to the second",
    "test_an_older_kafka_topic_that_begins_to_name_a_topic_adopts_it": "topicName cannot change",
    "test_a_kafka_topic_of_another_namespace_does_not_conflict": "there is one namespace here",
    "test_a_topic_stays_when_the_record_of_its_creation_is_lost": "no document with a finalizer disappears",
    "test_an_internal_topic_is_neither_changed_nor_deleted": "the API server refuses the document",
    "test_only_what_needs_an_answer_of_brokers_waits_for_it": "the API server refuses one of its documents",
}
for _name, _test in {**vars(in_memory), **vars(claims)}.items():
    if _name.startswith("test_") and _name not in NOT_HERE:
        globals()[_name] = _test


def test_the_tests_that_run_elsewhere_exist() -> None:
    assert all(hasattr(in_memory, name) or hasattr(claims, name) for name in NOT_HERE)
