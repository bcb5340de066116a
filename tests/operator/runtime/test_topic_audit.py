"""What others change in Kafka is noticed without an event, and changed back; what is left alone stays."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from ottla_operator.api.objects import KAFKA_TOPIC
from ottla_operator.api.topics import AlterTopicConfig, CreateTopic, TopicDescription
from ottla_operator.ports import KafkaUnavailable
from ottla_operator.runtime.topic_audit import AUDIT_S, MOST_PER_S, SLICE, TopicAudit
from tests.operator.model_based.topics import SMALL
from tests.operator.model_based.world import World
from tests.operator.model_based.writers import Writer
from tests.operator.topic_fleet import Topics


async def _audited(topics: Topics) -> list[str]:
    """The KafkaTopics that one whole round queues, and what is then done is done."""
    await topics.task.audit()
    queued = topics.task.queue.take(100, with_stalled=False)
    for name in queued:
        topics.task.queue.put(name)
    while len(topics.task.queue):
        await topics.task.reconcile_batch()
    return queued


async def test_a_configuration_that_others_alter_is_changed_back_without_an_event(topics: Topics) -> None:
    topics.apply()
    await topics.settle()
    live = topics.kafka.topics_there["flights"]
    topics.kafka.topics_there["flights"] = replace(live, config={**live.config, "retention.ms": "1"})
    assert await _audited(topics) == ["flights"]
    assert topics.kafka.requests[1:] == [AlterTopicConfig("flights", {"retention.ms": "604800000"}, ())]
    assert await _audited(topics) == []


async def test_a_topic_that_others_delete_is_created_again_without_an_event(topics: Topics) -> None:
    topics.apply()
    await topics.settle()
    del topics.kafka.topics_there["flights"]
    assert await _audited(topics) == ["flights"]
    assert topics.kafka.requests[1:] == [CreateTopic("flights", 12, 3, {"retention.ms": "604800000"})]
    assert topics.ready() == ("True", "AsDeclared")


async def test_an_audit_of_unchanged_topics_writes_nothing_and_queues_nothing(topics: Topics) -> None:
    topics.apply()
    await topics.settle()
    topics.fleet.kubernetes.writes.clear()
    assert await _audited(topics) == []
    assert topics.fleet.kubernetes.writes == [] and len(topics.kafka.requests) == 1


async def test_a_topic_whose_brokers_answer_an_error_counts_as_unchanged(topics: Topics) -> None:
    topics.apply()
    await topics.settle()
    topics.kafka.errors["flights"] = "TopicAuthorizationFailed: no"
    assert await _audited(topics) == []


async def test_a_deleted_kafka_topic_is_audited_no_more(topics: Topics) -> None:
    topics.apply(deletionPolicy="Retain")
    await topics.settle()
    topics.task.queue.put("flights")
    topics.fleet.kubernetes.remove(KAFKA_TOPIC, "flights")
    await topics.task.reconcile_batch()
    topics.kafka.asked.clear()
    await topics.task.audit()
    assert topics.kafka.asked == []


async def test_an_audit_without_brokers_raises_and_loses_no_topic(topics: Topics) -> None:
    topics.apply()
    await topics.settle()
    topics.kafka.answers = False
    with pytest.raises(KafkaUnavailable):
        await topics.task.audit()
    topics.kafka.answers = True
    del topics.kafka.topics_there["flights"]
    assert await _audited(topics) == ["flights"]


async def test_keys_that_are_left_alone_are_neither_set_nor_removed(topics: Topics) -> None:
    topics.apply(unmanagedConfig=["max.message.bytes"])
    await topics.settle()
    live = topics.kafka.topics_there["flights"]
    topics.kafka.topics_there["flights"] = replace(
        live, config={**live.config, "max.message.bytes": "5", "segment.bytes": "1048576"}
    )
    await topics.settle()
    assert topics.kafka.requests[1:] == [AlterTopicConfig("flights", {}, ("segment.bytes",))]
    assert topics.kafka.topics_there["flights"].config["max.message.bytes"] == "5"
    assert topics.ready() == ("True", "AsDeclared")


async def test_a_key_that_is_left_alone_no_more_is_removed(topics: Topics) -> None:
    topics.kafka.topics_there["flights"] = TopicDescription(
        "flights", "old", 12, 3, {"retention.ms": "604800000", "max.message.bytes": "5"}
    )
    topics.apply(unmanagedConfig=["max.message.bytes"])
    await topics.settle()
    assert topics.kafka.requests == []
    topics.apply(unmanagedConfig=None)
    await topics.settle()
    assert topics.kafka.requests == [AlterTopicConfig("flights", {}, ("max.message.bytes",))]


@pytest.mark.parametrize("keys", [["retention.ms"], ["no.such.key"], "retention.bytes", [1]])
async def test_a_wrong_list_of_keys_is_reported_with_its_field_and_changes_no_configuration(
    topics: Topics, keys: Any
) -> None:
    topics.kafka.topics_there["flights"] = TopicDescription("flights", "old", 12, 3, {"segment.bytes": "1048576"})
    topics.apply(unmanagedConfig=keys)
    await topics.settle()
    assert topics.ready() == ("False", "InvalidSpec") and "spec.unmanagedConfig" in topics.message()
    assert topics.kafka.requests == []


def test_a_round_looks_at_every_topic_once_within_its_time() -> None:
    now = 0.0
    audit = TopicAudit(lambda: now)
    names = [f"t{number}" for number in range(1000)]
    for name in names:
        audit.note(name, name, None)
    seen: list[str] = []
    while len(seen) < len(names):
        now = audit.due_at
        seen += audit.next_slice()
    assert sorted(seen) == sorted(names)
    assert now - AUDIT_S / 2 <= AUDIT_S


def test_no_more_topics_are_looked_at_in_a_second_than_a_fleet_bears() -> None:
    now = 0.0
    audit = TopicAudit(lambda: now)
    for number in range(40_000):
        audit.note(f"t{number}", f"t{number}", None)
    began = now = audit.due_at
    looked_at = 0
    for _ in range(50):
        looked_at += len(audit.next_slice())
        now = audit.due_at
    assert looked_at == 50 * SLICE and looked_at / (now - began) == pytest.approx(MOST_PER_S)


def test_the_operator_changes_back_within_a_minute_what_others_alter_or_delete() -> None:
    world = World(SMALL, 2)
    try:
        spec = {"clusterRef": {"name": "orders"}, "partitions": 2, "replicas": 1, "config": {"retention.ms": 1000}}
        for name in ("a", "b"):
            Writer(world).apply(name, spec)
        world.advance(120.0)
        assert {name: live.config for name, live in world.kafka.topics_there.items()} == {
            "a": {"retention.ms": "1000"},
            "b": {"retention.ms": "1000"},
        }
        world.kafka.topics_there["a"] = replace(world.kafka.topics_there["a"], config={"retention.ms": "5"})
        world.kafka.topics_there.pop("b")
        world.advance(60.0)
        assert {name: live.config for name, live in world.kafka.topics_there.items()} == {
            "a": {"retention.ms": "1000"},
            "b": {"retention.ms": "1000"},
        }
    finally:
        world.close()
